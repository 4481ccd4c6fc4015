//! Sizes known at build time or named by symbols.
//!
//! A [`Dim`] is a polynomial over atoms, in canonical form, so that equal sizes compare equal however they were
//! computed: `(batch * 12) * 64 / 768` is `batch`.

mod arithmetic;
mod bounds;
mod division;
mod kept;
#[cfg(test)]
mod tests;
mod text;

pub(super) use text::{Name, parse as parse_dim};

use kiln_types::CompareOp;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Atoms in an expression, those inside atoms counted. Sizes of real models have a few dozen at most; what walks through an
/// expression goes down into it as far as it is deep.
const MAX_ATOMS: usize = 512;

/// The name of an unknown size (or of a host integer read at run time).
pub type Symbol = Arc<str>;

/// An indivisible factor of a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// A symbol.
    Symbol(Symbol),
    /// `floor(a / b)`.
    FloorDiv(Box<Dim>, Box<Dim>),
    /// `a / b`, its fraction cut off: what tensors of integers have for it. Of what is not negative it is [`FloorDiv`](Self::FloorDiv).
    TruncDiv(Box<Dim>, Box<Dim>),
    /// `a mod b`, with the sign of `b`.
    Mod(Box<Dim>, Box<Dim>),
    /// The larger.
    Max(Box<Dim>, Box<Dim>),
    /// The smaller.
    Min(Box<Dim>, Box<Dim>),
    /// 1 when the comparison holds, else 0: conditions on shapes.
    Compare(CompareOp, Box<Dim>, Box<Dim>),
    /// What has grown beyond `MAX_ATOMS` atoms. Nothing is known of it, and nothing is computed with it: so is every expression that it would be a part of.
    Beyond,
}

/// Least and greatest value, where known.
pub type Bounds = (Option<i64>, Option<i64>);

/// A product of atoms, sorted.
type Monomial = Vec<Atom>;

/// An integer expression: a sum of terms, each a coefficient times a product of atoms.
///
/// Arithmetic saturates at the bounds of `i64`; a saturated size fails the checks on sizes later. So does an expression of
/// more than `MAX_ATOMS` atoms ([`Atom::Beyond`]), which repeated squaring in a hostile file would make of a single symbol: no operation is
/// given one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Dim {
    /// The term without atoms. Most sizes of most models are nothing else, and need no memory of their own.
    constant: i64,
    /// The terms with atoms; none where there are none, so that equal sums are equal here too. Shared: the values of a long chain
    /// have the same sizes.
    symbolic: Option<Arc<BTreeMap<Monomial, i64>>>,
}

impl Dim {
    /// A known integer.
    pub fn constant(value: i64) -> Self {
        Self { constant: value, symbolic: None }
    }

    /// An unknown size.
    pub fn symbol(name: impl Into<Symbol>) -> Self {
        Self::atom(Atom::Symbol(name.into()))
    }

    fn atom(atom: Atom) -> Self {
        Self::term(vec![atom], 1).bounded()
    }

    fn term(monomial: Monomial, coefficient: i64) -> Self {
        let mut dim = Self::constant(0);
        dim.add_term(monomial, coefficient);
        dim
    }

    /// Itself, or [`Atom::Beyond`] when it has grown so far.
    fn bounded(self) -> Self {
        if self.count_atoms() > MAX_ATOMS { Self::beyond() } else { self }
    }

    fn beyond() -> Self {
        Self::term(vec![Atom::Beyond], 1)
    }

    /// Whether it has grown beyond what is computed with.
    pub(crate) fn is_beyond(&self) -> bool {
        self.single_term() == Some((1, &[Atom::Beyond]))
    }

    fn count_atoms(&self) -> usize {
        self.terms().map(|(_, atoms)| 1 + atoms.iter().map(Atom::count_atoms).sum::<usize>()).sum()
    }

    /// The value, when it is known.
    pub fn as_constant(&self) -> Option<i64> {
        self.symbolic.is_none().then_some(self.constant)
    }

    /// The value as a size, when it is known and not negative.
    pub fn as_size(&self) -> Option<usize> {
        self.as_constant().and_then(|value| usize::try_from(value).ok())
    }

    /// The symbol, when it is exactly one.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match self.single_term() {
            Some((1, [Atom::Symbol(symbol)])) => Some(symbol),
            _ => None,
        }
    }

    /// The comparison, when it is exactly one.
    pub fn as_comparison(&self) -> Option<(CompareOp, &Dim, &Dim)> {
        match self.single_term() {
            Some((1, [Atom::Compare(op, a, b)])) => Some((*op, a, b)),
            _ => None,
        }
    }

    /// A comparison that is a factor of all terms, with what it is multiplied by.
    pub fn split_comparison(&self) -> Option<((CompareOp, &Dim, &Dim), Dim)> {
        let (_, first) = self.terms().next()?;
        first.iter().find_map(|common| {
            let Atom::Compare(op, a, b) = common else { return None };
            let mut rest = Self::constant(0);
            for (coefficient, atoms) in self.terms() {
                let place = atoms.iter().position(|atom| atom == common)?;
                let mut atoms = atoms.to_vec();
                atoms.remove(place);
                rest.add_term(atoms, coefficient);
            }
            Some(((*op, a.as_ref(), b.as_ref()), rest))
        })
    }

    /// Whether it is the given constant.
    pub fn is(&self, value: i64) -> bool {
        self.as_constant() == Some(value)
    }

    /// The terms: coefficient and atoms, in canonical order.
    pub fn terms(&self) -> impl Iterator<Item = (i64, &[Atom])> {
        let constant = (self.constant != 0).then_some((self.constant, [].as_slice()));
        let symbolic = self.symbolic.iter().flat_map(|terms| terms.iter());
        constant
            .into_iter()
            .chain(symbolic.map(|(monomial, &coefficient)| (coefficient, monomial.as_slice())))
    }

    /// What is added up in it, and what is taken from that.
    pub fn difference(&self) -> (Dim, Dim) {
        let (mut more, mut less) = (Dim::constant(0), Dim::constant(0));
        for (coefficient, atoms) in self.terms() {
            match coefficient < 0 {
                true => less.add_term(atoms.to_vec(), coefficient.saturating_neg()),
                false => more.add_term(atoms.to_vec(), coefficient),
            }
        }
        (more, less)
    }

    /// Coefficient and atoms, when there is one term.
    fn single_term(&self) -> Option<(i64, &[Atom])> {
        let mut terms = self.terms();
        terms.next().filter(|_| terms.next().is_none())
    }

    /// Every symbol in it.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut found = BTreeSet::new();
        self.collect_symbols(&mut found);
        found
    }

    fn collect_symbols(&self, found: &mut BTreeSet<Symbol>) {
        for atom in self.symbolic.iter().flat_map(|terms| terms.keys()).flatten() {
            match atom {
                Atom::Symbol(symbol) => {
                    found.insert(symbol.clone());
                }
                Atom::FloorDiv(a, b)
                | Atom::TruncDiv(a, b)
                | Atom::Mod(a, b)
                | Atom::Max(a, b)
                | Atom::Min(a, b)
                | Atom::Compare(_, a, b) => {
                    a.collect_symbols(found);
                    b.collect_symbols(found);
                }
                Atom::Beyond => {}
            }
        }
    }

    /// Replaces symbols; a symbol for which `lookup` has nothing stays.
    pub fn substitute(&self, lookup: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
        let mut sum = Dim::constant(0);
        for (coefficient, atoms) in self.terms() {
            let mut term = Dim::constant(coefficient);
            for atom in atoms {
                let factor = match atom {
                    Atom::Symbol(symbol) => lookup(symbol).unwrap_or_else(|| Dim::symbol(symbol.clone())),
                    Atom::FloorDiv(a, b) => a.substitute(lookup).floor_div(&b.substitute(lookup)),
                    Atom::TruncDiv(a, b) => a.substitute(lookup).trunc_div(&b.substitute(lookup)),
                    Atom::Mod(a, b) => a.substitute(lookup).modulo(&b.substitute(lookup)),
                    Atom::Max(a, b) => a.substitute(lookup).maximum(&b.substitute(lookup)),
                    Atom::Min(a, b) => a.substitute(lookup).minimum(&b.substitute(lookup)),
                    Atom::Compare(op, a, b) => {
                        Dim::compare(*op, &a.substitute(lookup), &b.substitute(lookup))
                    }
                    Atom::Beyond => return Dim::beyond(),
                };
                term = &term * &factor;
            }
            sum.add_terms(&term);
            if sum.terms().count() > MAX_ATOMS {
                break;
            }
        }
        sum.bounded()
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

    /// The size of two that are equal, or of which one is 1, where that follows from how they are computed: `seq` and
    /// `min(seq, 64)`, as a table of 64 positions is cut to a sequence, are `seq`, since a longer one meets no such table; `seq - 1`
    /// and `max(seq - 1, 0)`, as the last element is cut off, are `seq - 1`, since no size is negative.
    pub fn met(&self, other: &Dim) -> Option<Dim> {
        let is_cut_of = |cut: &Dim, whole: &Dim| {
            let Some((1, [atom @ (Atom::Min(a, b) | Atom::Max(a, b))])) = cut.single_term() else {
                return false;
            };
            let lifts = matches!(atom, Atom::Max(..));
            let harmless = |limit: &Dim| limit.as_constant().is_some_and(|limit| (limit <= 0) == lifts);
            (**a == *whole && harmless(b)) || (**b == *whole && harmless(a))
        };
        if self == other || is_cut_of(other, self) {
            Some(self.clone())
        } else {
            is_cut_of(self, other).then(|| other.clone())
        }
    }

    /// 1 when the comparison holds, 0 when it does not; an atom when that depends on symbols.
    pub fn compare(op: CompareOp, a: &Dim, b: &Dim) -> Dim {
        let Some(difference) = (a - b).as_constant() else {
            return Dim::atom(Atom::Compare(op, Box::new(a.clone()), Box::new(b.clone())));
        };
        Dim::constant(i64::from(op.holds(difference, 0)))
    }

    /// The product of many; 1 for none.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        dims.into_iter().fold(Dim::constant(1), |product, dim| &product * dim)
    }

    fn add_term(&mut self, monomial: Monomial, coefficient: i64) {
        if monomial.is_empty() {
            self.constant = self.constant.saturating_add(coefficient);
            return;
        }
        let terms = Arc::make_mut(self.symbolic.get_or_insert_default());
        let sum = terms.get(&monomial).copied().unwrap_or(0).saturating_add(coefficient);
        if sum == 0 {
            terms.remove(&monomial);
        } else {
            terms.insert(monomial, sum);
        }
        if terms.is_empty() {
            self.symbolic = None;
        }
    }

    fn add_terms(&mut self, other: &Dim) {
        for (coefficient, atoms) in other.terms() {
            self.add_term(atoms.to_vec(), coefficient);
        }
    }
}

/// By terms, in canonical order: atoms first, then the coefficient.
impl Ord for Dim {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |(coefficient, atoms)| (atoms, coefficient);
        self.terms().map(key).cmp(other.terms().map(key))
    }
}

impl PartialOrd for Dim {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Atom {
    fn count_atoms(&self) -> usize {
        match self {
            Atom::Symbol(_) => 1,
            Atom::FloorDiv(a, b)
            | Atom::TruncDiv(a, b)
            | Atom::Mod(a, b)
            | Atom::Max(a, b)
            | Atom::Min(a, b)
            | Atom::Compare(_, a, b) => 1 + a.count_atoms() + b.count_atoms(),
            // Whatever it is a part of is beyond as well.
            Atom::Beyond => MAX_ATOMS,
        }
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
