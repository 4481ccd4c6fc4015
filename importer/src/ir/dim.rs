//! Sizes known at build time or named by symbols.
//!
//! A [`Dim`] is a polynomial over atoms, in canonical form, so that equal sizes compare equal however they were
//! computed: `(batch * 12) * 64 / 768` is `batch`.

use kiln_types::CompareOp;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

/// Atoms in an expression, those inside atoms counted. Sizes of real models have a few dozen at most.
const MAX_ATOMS: usize = 2048;

/// The name of an unknown size (or of a host integer read at run time).
pub type Symbol = Arc<str>;

/// An indivisible factor of a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// A symbol.
    Symbol(Symbol),
    /// `floor(a / b)`.
    FloorDiv(Box<Dim>, Box<Dim>),
    /// `a mod b`, with the sign of `b`.
    Mod(Box<Dim>, Box<Dim>),
    /// The larger.
    Max(Box<Dim>, Box<Dim>),
    /// The smaller.
    Min(Box<Dim>, Box<Dim>),
    /// 1 when the comparison holds, else 0: conditions on shapes.
    Compare(CompareOp, Box<Dim>, Box<Dim>),
}

/// Least and greatest value, where known.
pub type Bounds = (Option<i64>, Option<i64>);

/// A product of atoms, sorted; empty for a constant.
type Monomial = Vec<Atom>;

/// An integer expression: a sum of terms, each a coefficient times a product of atoms.
///
/// Arithmetic saturates at the bounds of `i64`; a saturated size fails the checks on sizes later. So does an expression of
/// more than `MAX_ATOMS` atoms, which repeated squaring in a hostile file would make of a single symbol.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    terms: BTreeMap<Monomial, i64>,
}

impl Dim {
    /// A known integer.
    pub fn constant(value: i64) -> Self {
        let mut terms = BTreeMap::new();
        if value != 0 {
            terms.insert(Vec::new(), value);
        }
        Self { terms }
    }

    /// An unknown size.
    pub fn symbol(name: impl Into<Symbol>) -> Self {
        Self::atom(Atom::Symbol(name.into()))
    }

    fn atom(atom: Atom) -> Self {
        Self { terms: BTreeMap::from([(vec![atom], 1)]) }.bounded()
    }

    /// Itself, or the greatest integer when it has grown beyond reason.
    fn bounded(self) -> Self {
        if self.count_atoms() > MAX_ATOMS { Self::constant(i64::MAX) } else { self }
    }

    fn count_atoms(&self) -> usize {
        self.terms.keys().map(|monomial| 1 + monomial.iter().map(Atom::count_atoms).sum::<usize>()).sum()
    }

    /// The value, when it is known.
    pub fn as_constant(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    /// The value as a size, when it is known and not negative.
    pub fn as_size(&self) -> Option<usize> {
        self.as_constant().and_then(|value| usize::try_from(value).ok())
    }

    /// The symbol, when it is exactly one.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match self.terms.first_key_value() {
            Some((monomial, 1)) if self.terms.len() == 1 => match monomial.as_slice() {
                [Atom::Symbol(symbol)] => Some(symbol),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it is the given constant.
    pub fn is(&self, value: i64) -> bool {
        self.as_constant() == Some(value)
    }

    /// The terms: coefficient and atoms, in canonical order.
    pub fn terms(&self) -> impl Iterator<Item = (i64, &[Atom])> {
        self.terms.iter().map(|(monomial, &coefficient)| (coefficient, monomial.as_slice()))
    }

    /// Every symbol in it.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut found = BTreeSet::new();
        self.collect_symbols(&mut found);
        found
    }

    fn collect_symbols(&self, found: &mut BTreeSet<Symbol>) {
        for atom in self.terms.keys().flatten() {
            match atom {
                Atom::Symbol(symbol) => {
                    found.insert(symbol.clone());
                }
                Atom::FloorDiv(a, b)
                | Atom::Mod(a, b)
                | Atom::Max(a, b)
                | Atom::Min(a, b)
                | Atom::Compare(_, a, b) => {
                    a.collect_symbols(found);
                    b.collect_symbols(found);
                }
            }
        }
    }

    /// Replaces symbols; a symbol for which `lookup` has nothing stays.
    pub fn substitute(&self, lookup: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
        let mut sum = Dim::constant(0);
        for (monomial, &coefficient) in &self.terms {
            let mut term = Dim::constant(coefficient);
            for atom in monomial {
                let factor = match atom {
                    Atom::Symbol(symbol) => lookup(symbol).unwrap_or_else(|| Dim::symbol(symbol.clone())),
                    Atom::FloorDiv(a, b) => a.substitute(lookup).floor_div(&b.substitute(lookup)),
                    Atom::Mod(a, b) => a.substitute(lookup).modulo(&b.substitute(lookup)),
                    Atom::Max(a, b) => a.substitute(lookup).maximum(&b.substitute(lookup)),
                    Atom::Min(a, b) => a.substitute(lookup).minimum(&b.substitute(lookup)),
                    Atom::Compare(op, a, b) => {
                        Dim::compare(*op, &a.substitute(lookup), &b.substitute(lookup))
                    }
                };
                term = &term * &factor;
            }
            sum = &sum + &term;
        }
        sum
    }

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
        for (monomial, &coefficient) in &self.terms {
            match divisor.divide_term(monomial, coefficient) {
                Some(quotient) => whole = &whole + &quotient,
                None => rest = &rest + &Dim { terms: BTreeMap::from([(monomial.clone(), coefficient)]) },
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
        Some(Dim { terms: BTreeMap::from([(atoms, coefficient / factor)]) })
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

    /// The larger of two.
    pub fn maximum(&self, other: &Dim) -> Dim {
        match (self - other).as_constant() {
            Some(difference) if difference >= 0 => self.clone(),
            Some(_) => other.clone(),
            None => Dim::atom(Atom::Max(Box::new(self.clone()), Box::new(other.clone()))),
        }
    }

    /// The smaller of two.
    pub fn minimum(&self, other: &Dim) -> Dim {
        match (self - other).as_constant() {
            Some(difference) if difference >= 0 => other.clone(),
            Some(_) => self.clone(),
            None => Dim::atom(Atom::Min(Box::new(self.clone()), Box::new(other.clone()))),
        }
    }

    /// 1 when the comparison holds, 0 when it does not; an atom when that depends on symbols.
    pub fn compare(op: CompareOp, a: &Dim, b: &Dim) -> Dim {
        let Some(difference) = (a - b).as_constant() else {
            return Dim::atom(Atom::Compare(op, Box::new(a.clone()), Box::new(b.clone())));
        };
        Dim::constant(i64::from(match op {
            CompareOp::Equal => difference == 0,
            CompareOp::NotEqual => difference != 0,
            CompareOp::Greater => difference > 0,
            CompareOp::GreaterEqual => difference >= 0,
            CompareOp::Lower => difference < 0,
            CompareOp::LowerEqual => difference <= 0,
        }))
    }

    /// Bounds of the value, given those of its symbols; `None` where there is no bound.
    pub fn bounds(&self, symbol: &dyn Fn(&Symbol) -> Bounds) -> Bounds {
        let (mut low, mut high) = (Some(0i64), Some(0i64));
        for (monomial, &coefficient) in &self.terms {
            let (least, most) = product_bounds(monomial, symbol);
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

    /// The product of many; 1 for none.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        dims.into_iter().fold(Dim::constant(1), |product, dim| &product * dim)
    }

    fn add_term(&mut self, monomial: Monomial, coefficient: i64) {
        let sum = self.terms.get(&monomial).copied().unwrap_or(0).saturating_add(coefficient);
        if sum == 0 {
            self.terms.remove(&monomial);
        } else {
            self.terms.insert(monomial, sum);
        }
    }
}

/// Bounds of a product: of one factor, or of factors that are not negative.
fn product_bounds(monomial: &Monomial, symbol: &dyn Fn(&Symbol) -> Bounds) -> Bounds {
    if let [atom] = monomial.as_slice() {
        return atom.bounds(symbol);
    }
    let (mut low, mut high) = (Some(1i64), Some(1i64));
    for atom in monomial {
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
    fn count_atoms(&self) -> usize {
        match self {
            Atom::Symbol(_) => 1,
            Atom::FloorDiv(a, b)
            | Atom::Mod(a, b)
            | Atom::Max(a, b)
            | Atom::Min(a, b)
            | Atom::Compare(_, a, b) => 1 + a.count_atoms() + b.count_atoms(),
        }
    }

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
            Atom::Mod(_, b) => match b.as_constant() {
                Some(b) if b > 0 => (Some(0), Some(b - 1)),
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
        }
    }
}

fn floor_div(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

impl Add for &Dim {
    type Output = Dim;

    fn add(self, other: &Dim) -> Dim {
        let mut sum = self.clone();
        for (monomial, &coefficient) in &other.terms {
            sum.add_term(monomial.clone(), coefficient);
        }
        sum.bounded()
    }
}

impl Neg for &Dim {
    type Output = Dim;

    fn neg(self) -> Dim {
        Dim { terms: self.terms.iter().map(|(m, &c)| (m.clone(), c.saturating_neg())).collect() }
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
        let mut product = Dim::constant(0);
        // The product of both counts bounds the result's size before it is computed.
        if self.terms.len() > 1
            && other.terms.len() > 1
            && self.count_atoms() * other.count_atoms() > MAX_ATOMS * 16
        {
            return Dim::constant(i64::MAX);
        }
        for (a, &x) in &self.terms {
            for (b, &y) in &other.terms {
                let mut monomial: Monomial = a.iter().chain(b).cloned().collect();
                monomial.sort();
                product.add_term(monomial, x.saturating_mul(y));
            }
        }
        product.bounded()
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        Dim::constant(value)
    }
}

impl From<i32> for Dim {
    fn from(value: i32) -> Self {
        Dim::constant(value.into())
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Self {
        Dim::constant(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(symbol) => write!(f, "{symbol}"),
            Atom::FloorDiv(a, b) => write!(f, "{} / {}", Operand(a), Operand(b)),
            Atom::Mod(a, b) => write!(f, "{} % {}", Operand(a), Operand(b)),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
            Atom::Compare(op, a, b) => write!(f, "{}({a}, {b})", op.name()),
        }
    }
}

/// Prints a dim in parentheses unless it is one plain factor.
struct Operand<'a>(&'a Dim);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.as_constant().is_some_and(|c| c >= 0) || self.0.as_symbol().is_some() {
            write!(f, "{}", self.0)
        } else {
            write!(f, "({})", self.0)
        }
    }
}

impl fmt::Display for Dim {
    /// Terms with symbols first, the constant last: `seq + 1`, `2 * batch * heads - 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return write!(f, "0");
        }
        let constant_last = self.terms.iter().filter(|(m, _)| !m.is_empty());
        let constant = self.terms.iter().filter(|(m, _)| m.is_empty());
        for (i, (monomial, &coefficient)) in constant_last.chain(constant).enumerate() {
            match (i, coefficient < 0) {
                (0, false) => {}
                (0, true) => write!(f, "-")?,
                (_, false) => write!(f, " + ")?,
                (_, true) => write!(f, " - ")?,
            }
            let magnitude = coefficient.unsigned_abs();
            if monomial.is_empty() || magnitude != 1 {
                write!(f, "{magnitude}")?;
            }
            for (k, atom) in monomial.iter().enumerate() {
                if k > 0 || magnitude != 1 {
                    write!(f, " * ")?;
                }
                let nested = matches!(atom, Atom::FloorDiv(..) | Atom::Mod(..));
                let alone = monomial.len() == 1 && magnitude == 1;
                if nested && !alone { write!(f, "({atom})")? } else { write!(f, "{atom}")? }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_compare_equal() {
        let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
        let product = Dim::product([&batch, &seq, &Dim::constant(768)]);
        assert_eq!(product.floor_div(&Dim::product([&seq, &Dim::constant(768)])), batch);
        assert_eq!(&(&seq + &Dim::constant(1)) - &Dim::constant(1), seq);
        assert_eq!((&seq * &Dim::constant(2)).modulo(&Dim::constant(2)), Dim::constant(0));
    }

    #[test]
    fn floors_like_python() {
        assert_eq!(Dim::constant(-7).floor_div(&Dim::constant(2)), Dim::constant(-4));
        assert_eq!(Dim::constant(-7).modulo(&Dim::constant(3)), Dim::constant(2));
        assert_eq!(Dim::constant(7).ceil_div(&Dim::constant(2)), Dim::constant(4));
        let half = |dim: &Dim| dim.floor_div(&Dim::constant(2));
        assert_eq!(half(&half(&Dim::symbol("h"))).to_string(), "h / 4");
    }

    #[test]
    fn growth_is_bounded() {
        let mut dim = &Dim::symbol("a") + &Dim::symbol("b");
        for _ in 0..40 {
            dim = &dim * &dim.maximum(&Dim::constant(3));
        }
        assert!(dim.count_atoms() <= MAX_ATOMS);
    }

    #[test]
    fn prints_as_people_write() {
        let h = Dim::symbol("h");
        let half = (&h - &Dim::constant(1)).floor_div(&Dim::constant(2));
        assert_eq!((&half + &Dim::constant(1)).to_string(), "(h - 1) / 2 + 1");
        assert_eq!((&(&h * &Dim::constant(3)) - &Dim::constant(2)).to_string(), "3 * h - 2");
    }

    #[test]
    fn expressions_without_end_saturate() {
        let (a, b) = (Dim::symbol("a"), Dim::symbol("b"));
        let (mut product, mut largest) = (&a + &b, a.clone());
        for _ in 0..64 {
            product = &product * &(&a + &product);
            largest = largest.maximum(&(&largest * &b));
        }
        assert!(product.count_atoms() <= 2 * MAX_ATOMS && largest.count_atoms() <= 2 * MAX_ATOMS);
        assert_eq!(Dim::constant(i64::MIN).modulo(&Dim::constant(-1)), Dim::constant(0));
    }

    #[test]
    fn bounds_follow_from_those_of_symbols() {
        let size = |_: &Symbol| (Some(1), None);
        let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
        assert_eq!((&(&batch * &seq) - &Dim::constant(1)).bounds(&size), (Some(0), None));
        assert_eq!((-&seq).bounds(&size), (None, Some(-1)));
        assert_eq!((&seq - &batch).bounds(&size), (None, None));
        assert_eq!(seq.modulo(&Dim::constant(8)).bounds(&size), (Some(0), Some(7)));
        assert_eq!(seq.minimum(&Dim::constant(8)).bounds(&size), (Some(1), Some(8)));
    }

    #[test]
    fn substitution_evaluates() {
        let h = Dim::symbol("h");
        let dim = &(&h - &Dim::constant(1)).floor_div(&Dim::constant(2)) + &Dim::constant(1);
        assert_eq!(dim.substitute(&|_| Some(Dim::constant(224))), Dim::constant(112));
    }
}
