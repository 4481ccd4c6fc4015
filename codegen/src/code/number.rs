//! Numbers that are equal when they are written alike.

use kiln_types::Scalar;
use std::hash::{Hash, Hasher};

/// A number of generated source. Floats are equal when their bits are, so that source never takes one for the other.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub Scalar);

impl Number {
    fn key(self) -> (u8, u64) {
        match self.0 {
            Scalar::Float(value) => (0, value.to_bits()),
            Scalar::Int(value) => (1, value as u64),
            Scalar::UInt(value) => (2, value),
            Scalar::Bool(value) => (3, u64::from(value)),
        }
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Number(Scalar::Float(value))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Number {}

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_equal_by_their_bits() {
        assert_eq!(Number::from(f64::NAN), Number::from(f64::NAN));
        assert_ne!(Number::from(0.0), Number::from(-0.0));
        assert_ne!(Number::from(1.0), Number(Scalar::Int(1)));
    }
}
