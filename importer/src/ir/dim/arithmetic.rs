//! Sums and products.

use super::{Dim, MAX_ATOMS, Monomial};
use std::ops::{Add, Mul, Neg, Sub};

impl Dim {
    /// Whether a number in it is the largest or the smallest there is, where arithmetic on dims stops, or it has too many atoms for that.
    pub(crate) fn is_saturated(&self) -> bool {
        self.is_beyond() || self.terms().any(|(coefficient, _)| matches!(coefficient, i64::MIN | i64::MAX))
    }
}

impl Add for &Dim {
    type Output = Dim;

    fn add(self, other: &Dim) -> Dim {
        if self.is_beyond() || other.is_beyond() {
            return Dim::beyond();
        }
        let mut sum = self.clone();
        sum.add_terms(other);
        sum.bounded()
    }
}

impl Neg for &Dim {
    type Output = Dim;

    fn neg(self) -> Dim {
        if self.is_beyond() {
            return Dim::beyond();
        }
        self.terms().fold(Dim::constant(0), |mut negated, (coefficient, atoms)| {
            negated.add_term(atoms.to_vec(), coefficient.saturating_neg());
            negated
        })
    }
}

impl Sub for &Dim {
    type Output = Dim;

    fn sub(self, other: &Dim) -> Dim {
        self + &-other
    }
}

impl Mul for &Dim {
    type Output = Dim;

    fn mul(self, other: &Dim) -> Dim {
        if self.is_beyond() || other.is_beyond() {
            return Dim::beyond();
        }
        let mut product = Dim::constant(0);
        // The product of both counts bounds the result's size before it is computed.
        if self.terms().count() > 1
            && other.terms().count() > 1
            && self.count_atoms() * other.count_atoms() > MAX_ATOMS * 16
        {
            return Dim::beyond();
        }
        for (x, a) in self.terms() {
            for (y, b) in other.terms() {
                let mut monomial: Monomial = a.iter().chain(b).cloned().collect();
                monomial.sort();
                product.add_term(monomial, x.saturating_mul(y));
            }
        }
        product.bounded()
    }
}
