//! What is known of a dim's value without knowing its symbols.

use super::division::floor_div;
use super::{Atom, Bounds, Dim, Symbol};

impl Dim {
    /// Bounds of the value, given those of its symbols; `None` where there is no bound.
    pub fn bounds(&self, symbol: &dyn Fn(&Symbol) -> Bounds) -> Bounds {
        let (mut low, mut high) = (Some(0i64), Some(0i64));
        for (coefficient, atoms) in self.terms() {
            let (least, most) = product_bounds(atoms, symbol);
            let scaled = |bound: Option<i64>| bound.and_then(|b| b.checked_mul(coefficient));
            let (least, most) = match coefficient >= 0 {
                true => (scaled(least), scaled(most)),
                false => (scaled(most), scaled(least)),
            };
            low = low.zip(least).and_then(|(a, b)| a.checked_add(b));
            high = high.zip(most).and_then(|(a, b)| a.checked_add(b));
        }
        (low, high)
    }
}

/// Bounds of a product: of one factor, or of factors that are not negative.
fn product_bounds(atoms: &[Atom], symbol: &dyn Fn(&Symbol) -> Bounds) -> Bounds {
    if let [atom] = atoms {
        return atom.bounds(symbol);
    }
    let (mut low, mut high) = (Some(1i64), Some(1i64));
    for atom in atoms {
        let (least, most) = atom.bounds(symbol);
        let Some(least) = least.filter(|&least| least >= 0) else {
            return (None, None);
        };
        low = low.and_then(|low| low.checked_mul(least));
        high = high.zip(most).and_then(|(high, most)| high.checked_mul(most));
    }
    (low, high)
}

impl Atom {
    fn bounds(&self, symbol: &dyn Fn(&Symbol) -> Bounds) -> Bounds {
        match self {
            Atom::Symbol(name) => symbol(name),
            Atom::FloorDiv(a, b) => {
                let Some(divisor) = b.as_constant().filter(|&b| b > 0) else {
                    return (None, None);
                };
                let (low, high) = a.bounds(symbol);
                (low.map(|low| floor_div(low, divisor)), high.map(|high| floor_div(high, divisor)))
            }
            Atom::TruncDiv(a, b) => {
                let Some(divisor) = b.as_constant().filter(|&b| b > 0) else {
                    return (None, None);
                };
                let (low, high) = a.bounds(symbol);
                (low.map(|low| low / divisor), high.map(|high| high / divisor))
            }
            Atom::Mod(_, b) => match b.bounds(symbol) {
                (Some(least), most) if least > 0 => (Some(0), most.map(|most| most - 1)),
                _ => (None, None),
            },
            Atom::Max(a, b) => {
                let ((a_low, a_high), (b_low, b_high)) = (a.bounds(symbol), b.bounds(symbol));
                (a_low.max(b_low), a_high.zip(b_high).map(|(a, b)| a.max(b)))
            }
            Atom::Min(a, b) => {
                let ((a_low, a_high), (b_low, b_high)) = (a.bounds(symbol), b.bounds(symbol));
                let high = match (a_high, b_high) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                (a_low.zip(b_low).map(|(a, b)| a.min(b)), high)
            }
            Atom::Compare(..) => (Some(0), Some(1)),
            Atom::Beyond => (None, None),
        }
    }
}
