//! Quotients and remainders, rounded as Python rounds them.

use super::{Atom, Dim, Symbol};

impl Dim {
    /// `floor(self / divisor)`. Division by a known zero yields an atom that no check accepts as a size.
    pub fn floor_div(&self, divisor: &Dim) -> Dim {
        if divisor.is(1) {
            return self.clone();
        }
        if self.is_beyond() || divisor.is_beyond() {
            return Dim::beyond();
        }
        if let (Some(a), Some(b)) = (self.as_constant(), divisor.as_constant())
            && b != 0
        {
            return Dim::constant(floor_div(a, b));
        }
        // floor(floor(a / b) / c) is floor(a / (b * c)) for positive b and c.
        if let Some((1, [Atom::FloorDiv(a, b)])) = self.single_term()
            && let (Some(b), Some(c)) = (b.as_constant(), divisor.as_constant())
            && let (true, true, Some(product)) = (b > 0, c > 0, b.checked_mul(c))
        {
            return a.floor_div(&Dim::constant(product));
        }
        // Of -1 and 0 the quotient by any positive number is the same again: so ends a chain of quotients when the product of its
        // divisors is beyond what is counted.
        let any = |_: &Symbol| (Some(-i64::MAX), Some(i64::MAX));
        if divisor.as_constant().is_some_and(|divisor| divisor > 0)
            && matches!(self.single_term(), Some((1, [Atom::FloorDiv(..)])))
            && matches!(self.bounds(&any), (Some(-1..), Some(..=0)))
        {
            return self.clone();
        }
        if let Some(quotient) = divisor.divide_sum(self) {
            return quotient;
        }
        // Split off the terms that the divisor divides exactly; an exact part may leave the floor.
        let (mut whole, mut rest) = (Dim::constant(0), Dim::constant(0));
        for (coefficient, atoms) in self.terms() {
            match divisor.divide_term(atoms, coefficient) {
                Some(quotient) => whole.add_terms(&quotient),
                None => rest.add_term(atoms.to_vec(), coefficient),
            }
        }
        if rest.is(0) {
            return whole;
        }
        if let (Some(a), Some(b)) = (rest.as_constant(), divisor.as_constant())
            && b != 0
        {
            return &whole + &Dim::constant(floor_div(a, b));
        }
        if self == divisor {
            return Dim::constant(1);
        }
        if !whole.is(0) {
            // What is left may be a quotient itself: `(samples / 5 - 4) / 2` is `samples / 10 - 2`.
            return &whole + &rest.floor_div(divisor);
        }
        Dim::atom(Atom::FloorDiv(Box::new(rest), Box::new(divisor.clone())))
    }

    /// One term divided by this single-term divisor, when that is exact.
    fn divide_term(&self, atoms: &[Atom], coefficient: i64) -> Option<Dim> {
        let (factor, divisor) = self.single_term()?;
        if coefficient.checked_rem(factor)? != 0 {
            return None;
        }
        let mut atoms = atoms.to_vec();
        for atom in divisor {
            let at = atoms.iter().position(|a| a == atom)?;
            atoms.remove(at);
        }
        Some(Dim::term(atoms, coefficient / factor))
    }

    /// A sum divided by this divisor of several terms, when the quotient is one term: `(32 * batch * seq - 32 * batch) /
    /// (8 * batch * seq - 8 * batch)` is 4, as sizes of attention heads are computed from numbers of elements.
    fn divide_sum(&self, sum: &Dim) -> Option<Dim> {
        /// Sizes of real models have a handful of terms.
        const MOST_TERMS: usize = 16;
        let count = self.terms().count();
        if !(2..=MOST_TERMS).contains(&count) || sum.terms().count() != count {
            return None;
        }
        // The one term makes of each term of the divisor one of the sum; which of them, depends on how atoms are sorted.
        let first = self.terms().next().map(|(coefficient, atoms)| Dim::term(atoms.to_vec(), coefficient))?;
        sum.terms()
            .filter_map(|(coefficient, atoms)| first.divide_term(atoms, coefficient))
            .find(|quotient| *sum == self * quotient)
    }

    /// `self / divisor`, its fraction cut off.
    pub fn trunc_div(&self, divisor: &Dim) -> Dim {
        if self.is_beyond() || divisor.is_beyond() {
            return Dim::beyond();
        }
        match (self.as_constant(), divisor.as_constant()) {
            (Some(a), Some(b)) if b != 0 => Dim::constant(a.saturating_div(b)),
            _ if self.modulo(divisor).is(0) => self.floor_div(divisor),
            _ => Dim::atom(Atom::TruncDiv(Box::new(self.clone()), Box::new(divisor.clone()))),
        }
    }

    /// `ceil(self / divisor)`.
    pub fn ceil_div(&self, divisor: &Dim) -> Dim {
        -&(-self).floor_div(divisor)
    }

    /// `self mod divisor`, with the sign of the divisor.
    pub fn modulo(&self, divisor: &Dim) -> Dim {
        if self.is_beyond() || divisor.is_beyond() {
            return Dim::beyond();
        }
        if let (Some(a), Some(b)) = (self.as_constant(), divisor.as_constant())
            && b != 0
        {
            let rest = a.wrapping_rem(b);
            return Dim::constant(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest });
        }
        if divisor.divide_sum(self).is_some() {
            return Dim::constant(0);
        }
        if self.terms().all(|(coefficient, atoms)| divisor.divide_term(atoms, coefficient).is_some()) {
            return Dim::constant(0);
        }
        Dim::atom(Atom::Mod(Box::new(self.clone()), Box::new(divisor.clone())))
    }
}

pub(super) fn floor_div(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}
