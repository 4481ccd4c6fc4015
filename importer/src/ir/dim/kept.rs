//! How much of an axis a part keeps whose bounds lie inside of it.

use super::{Atom, Dim};

impl Dim {
    /// The size of the part `start..end` of an axis of this size, of which so many elements are cut off at either end as there are, or fewer: the size less
    /// all that is cut off, or 0. It stays as short however often a part is taken of a part, where the difference of the bounds doubles each time. Nothing
    /// where the bounds say something else.
    pub(crate) fn kept(&self, start: &Dim, end: &Dim) -> Option<Dim> {
        let cut = self.cut_before(start)?.checked_add(self.cut_behind(end, start)?)?;
        if cut == 0 {
            return Some(self.clone());
        }
        // Of what is at least 0, less is cut off: `max(max(n - 1, 0) - 2, 0)` is `max(n - 3, 0)`.
        let whole = match self.extreme() {
            Some((Extreme::Max, other, 0)) => other,
            _ => self,
        };
        Some((whole - &Dim::constant(cut)).maximum(&Dim::constant(0)))
    }

    /// How many elements are cut off before a bound: `s` of `min(s, size)`.
    fn cut_before(&self, start: &Dim) -> Option<i64> {
        match start.extreme() {
            Some((Extreme::Min, other, cut)) => (other == self && cut >= 0).then_some(cut),
            _ => start.is(0).then_some(0),
        }
    }

    /// How many are cut off behind a bound, which may be kept from being before `start`.
    fn cut_behind(&self, end: &Dim, start: &Dim) -> Option<i64> {
        if end == self {
            return Some(0);
        }
        // `size - min(e, size)`.
        if let Some((Extreme::Min, other, cut)) = (self - end).extreme() {
            return (other == self && cut >= 0).then_some(cut);
        }
        // `max(size - e, 0)`; that of `size - min(e, size)` is no other.
        if let Some((Extreme::Max, other, 0)) = end.extreme() {
            return match (self - other).as_constant() {
                Some(cut) => (cut >= 0).then_some(cut),
                None => self.cut_behind(other, start),
            };
        }
        match end.single_term() {
            Some((1, [Atom::Max(a, b)])) if **b == *start => self.cut_behind(a, start),
            Some((1, [Atom::Max(a, b)])) if **a == *start => self.cut_behind(b, start),
            Some((1, [Atom::Min(a, b)])) if **b == *self => self.cut_behind(a, start),
            Some((1, [Atom::Min(a, b)])) if **a == *self => self.cut_behind(b, start),
            _ => None,
        }
    }

    /// The larger or the smaller of something and a number, if it is that alone.
    fn extreme(&self) -> Option<(Extreme, &Dim, i64)> {
        let (which, a, b) = match self.single_term()? {
            (1, [Atom::Max(a, b)]) => (Extreme::Max, a, b),
            (1, [Atom::Min(a, b)]) => (Extreme::Min, a, b),
            _ => return None,
        };
        match (a.as_constant(), b.as_constant()) {
            (None, Some(number)) => Some((which, &**a, number)),
            (Some(number), None) => Some((which, &**b, number)),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
enum Extreme {
    Max,
    Min,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the size, it is the difference of the bounds.
    #[test]
    fn it_is_the_difference_of_the_bounds() {
        let (n, zero) = (Dim::symbol("n"), Dim::constant(0));
        let number = |n: i64| Dim::constant(n);
        let from_end = |size: &Dim, cut: i64| (size - &number(cut)).maximum(&zero);
        for size in [n.clone(), from_end(&n, 2), &n + &number(1)] {
            for (before, behind) in [(0, 0), (1, 0), (3, 0), (0, 1), (0, 4), (1, 1), (2, 3)] {
                let start = if before == 0 { zero.clone() } else { number(before).minimum(&size) };
                let last = &size - &number(behind).minimum(&size);
                let ends = [
                    if behind == 0 { size.clone() } else { from_end(&size, behind) },
                    if behind == 0 { size.clone() } else { last.clone() },
                    if behind == 0 { size.clone() } else { last.maximum(&zero) },
                    if behind == 0 { size.clone() } else { from_end(&size, behind).minimum(&size) },
                ];
                for end in ends {
                    let end = if before == 0 || behind == 0 { end } else { end.maximum(&start) };
                    let kept = size.kept(&start, &end).unwrap_or_else(|| panic!("{start}..{end} of {size}"));
                    for value in 0..9 {
                        let at = |dim: &Dim| dim.substitute(&|_| Some(number(value))).as_constant();
                        assert_eq!(at(&kept), at(&(&end - &start)), "{start}..{end} of {size} for {value}");
                    }
                }
            }
        }
        assert_eq!(n.kept(&Dim::symbol("m"), &n), None);
        assert_eq!(n.kept(&zero, &Dim::symbol("m")), None);
    }

    #[test]
    fn it_stays_short() {
        let (mut size, zero) = (Dim::symbol("n"), Dim::constant(0));
        for _ in 0..40 {
            let start = Dim::constant(1).minimum(&size);
            let end = (&size - &Dim::constant(1)).maximum(&zero).maximum(&start);
            size = size.kept(&start, &end).expect("a part");
        }
        assert_eq!(size, (&Dim::symbol("n") - &Dim::constant(80)).maximum(&zero));
    }
}
