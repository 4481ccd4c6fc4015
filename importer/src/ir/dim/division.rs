//! Quotients and remainders, rounded as Python rounds them.

use super::{Atom, Dim, Monomial};

impl Dim {
    /// `floor(self / divisor)`. Division by a known zero yields an atom that no check accepts as a size.
    pub fn floor_div(&self, divisor: &Dim) -> Dim {
        if divisor.is(1) {
            return self.clone();
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
        // Split off the terms that the divisor divides exactly; an exact part may leave the floor.
        let (mut whole, mut rest) = (Dim::constant(0), Dim::constant(0));
        for (monomial, &coefficient) in &*self.terms {
            match divisor.divide_term(monomial, coefficient) {
                Some(quotient) => whole.add_terms(&quotient),
                None => rest.add_term(monomial.clone(), coefficient),
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
        &whole + &Dim::atom(Atom::FloorDiv(Box::new(rest), Box::new(divisor.clone())))
    }

    /// Coefficient and atoms, when there is one term.
    fn single_term(&self) -> Option<(i64, &[Atom])> {
        let mut terms = self.terms();
        terms.next().filter(|_| terms.next().is_none())
    }

    /// One term divided by this single-term divisor, when that is exact.
    fn divide_term(&self, monomial: &Monomial, coefficient: i64) -> Option<Dim> {
        let (divisor, &factor) = self.terms.first_key_value()?;
        if self.terms.len() != 1 || coefficient.checked_rem(factor)? != 0 {
            return None;
        }
        let mut atoms = monomial.clone();
        for atom in divisor {
            let at = atoms.iter().position(|a| a == atom)?;
            atoms.remove(at);
        }
        Some(Dim::term(atoms, coefficient / factor))
    }

    /// `ceil(self / divisor)`.
    pub fn ceil_div(&self, divisor: &Dim) -> Dim {
        -&(-self).floor_div(divisor)
    }

    /// `self mod divisor`, with the sign of the divisor.
    pub fn modulo(&self, divisor: &Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_constant(), divisor.as_constant())
            && b != 0
        {
            let rest = a.wrapping_rem(b);
            return Dim::constant(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest });
        }
        if self.terms.iter().all(|(monomial, &c)| divisor.divide_term(monomial, c).is_some()) {
            return Dim::constant(0);
        }
        Dim::atom(Atom::Mod(Box::new(self.clone()), Box::new(divisor.clone())))
    }
}

pub(super) fn floor_div(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}
