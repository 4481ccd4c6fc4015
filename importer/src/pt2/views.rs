//! Tensors that are views of others: what is written into one, the others have, too.
//!
//! Programs that `torch.export.export` makes change tensors in place, as networks do; a graph of ONNX does not. What is written is
//! a new value, and so are what it views and all other views of that, once somebody reads them.

pub(super) mod put_back;

use super::schema::{Node, Size, TensorMeta};
use std::collections::HashMap;

/// A name of one of the graphs that are translated, of which each has names of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key<'p> {
    pub frame: usize,
    pub name: &'p str,
}

/// A view, and what it is a view of. The call that made it stands in the graph of its name.
#[derive(Clone, Copy)]
pub(super) struct View<'p> {
    pub name: Key<'p>,
    pub by: By<'p>,
    pub base: Key<'p>,
}

/// How a tensor shares elements with another.
#[derive(Clone, Copy)]
pub(super) enum By<'p> {
    /// It is the same tensor.
    Same,
    /// It is the same tensor, behind which there are no gradients.
    Detached,
    /// It is this result of a call that shows its argument.
    Call { node: &'p Node, position: usize },
    /// The program does not tell whether the call's result is a view or a copy.
    Unsure(&'p Node),
}

/// What PyTorch does to elements of a view when they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lazily {
    pub conjugated: bool,
    pub negated: bool,
}

impl Lazily {
    /// The same of a view of complex numbers.
    pub fn viewed(self, shown: Shown) -> Self {
        match shown {
            Shown::AsItIs => self,
            Shown::Conjugated => Self { conjugated: !self.conjugated, ..self },
            Shown::Negated => Self { negated: !self.negated, ..self },
            // That of a conjugated number is negative.
            Shown::ImaginaryPart => Self { conjugated: false, negated: self.negated != self.conjugated },
            Shown::RealPart => Self { conjugated: false, ..self },
        }
    }
}

/// What a view shows of complex numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    AsItIs,
    Conjugated,
    Negated,
    RealPart,
    ImaginaryPart,
}

/// The views of a program.
#[derive(Default)]
pub(super) struct Views<'p> {
    views: HashMap<Key<'p>, View<'p>>,
    /// How often a name was given something new.
    versions: HashMap<Key<'p>, u64>,
    /// The version of its base that a view was made of.
    seen: HashMap<Key<'p>, u64>,
    /// Whether anything was changed in place; until then no view is looked at.
    changes: bool,
}

impl<'p> Views<'p> {
    pub fn note(&mut self, view: View<'p>) {
        // What changes nothing but itself is no view.
        if view.name == view.base {
            return;
        }
        // The same as what is the same as another is that one: chains stay short where a tensor is changed in place again and again.
        let base =
            self.views.get(&view.base).filter(|base| matches!((view.by, base.by), (By::Same, By::Same)));
        let view = View { base: base.map_or(view.base, |base| base.base), ..view };
        self.seen.insert(view.name, self.version(view.base));
        self.views.insert(view.name, view);
    }

    /// What a name is a view of, which is about to be changed in place.
    pub fn changing(&mut self, name: Key<'p>) -> Option<View<'p>> {
        self.changes = true;
        self.get(name)
    }

    pub fn get(&self, name: Key<'_>) -> Option<View<'p>> {
        self.views.get(&name).copied()
    }

    /// A name is a view no longer.
    pub fn forget(&mut self, name: Key<'p>) {
        self.views.remove(&name);
        self.seen.remove(&name);
    }

    fn version(&self, name: Key<'_>) -> u64 {
        self.versions.get(&name).copied().unwrap_or(0)
    }

    /// Whether a view was made of what its base is now.
    pub fn is_fresh(&self, view: &View<'_>) -> bool {
        self.seen.get(&view.name).copied() == Some(self.version(view.base))
    }

    /// A name has a new value.
    pub fn changed(&mut self, name: Key<'p>) {
        *self.versions.entry(name).or_default() += 1;
    }

    /// A view was made again.
    pub fn renewed(&mut self, name: Key<'p>) {
        if let Some(view) = self.views.get(&name) {
            self.seen.insert(name, self.version(view.base));
        }
        self.changed(name);
    }

    /// A view was written, and its base is about to be.
    pub fn written(&mut self, name: Key<'p>) {
        if let Some(view) = self.views.get(&name) {
            self.seen.insert(name, self.version(view.base) + 1);
        }
        self.changed(name);
    }

    /// The views that a name is made by, innermost first.
    fn inwards(&self, name: Key<'_>) -> impl Iterator<Item = View<'p>> {
        std::iter::successors(self.get(name), |view| self.get(view.base))
    }

    /// The views that a name is made by, outermost first.
    pub fn chain(&self, name: Key<'_>) -> Vec<View<'p>> {
        let mut chain: Vec<View<'p>> = self.inwards(name).collect();
        chain.reverse();
        chain
    }

    /// The views that have to be made again before a name is read, outermost first, and how many were looked at.
    pub fn stale(&self, name: Key<'_>) -> (usize, Vec<View<'p>>) {
        let mut chain: Vec<View<'p>> = Vec::new();
        if self.changes {
            chain.extend(self.inwards(name));
        }
        let looked_at = chain.len();
        // All behind the outermost one that is stale.
        let stale = chain.iter().rposition(|view| !self.is_fresh(view)).map_or(0, |place| place + 1);
        chain.truncate(stale);
        chain.reverse();
        (looked_at, chain)
    }
}

/// Sizes and strides as they were when the program was made.
fn layout(meta: &TensorMeta) -> Option<Vec<(i64, i64)>> {
    let pair = |(size, stride): (&Size, &Size)| Some((size.hint()?, stride.hint()?));
    (meta.sizes.len() == meta.strides.len())
        .then(|| meta.sizes.iter().zip(&meta.strides).map(pair).collect())?
}

/// What is true, or not, of all; nothing where that is not known.
fn all(known: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let each = |all: Option<bool>, one: Option<bool>| match (all, one) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        (None, _) | (_, None) => None,
    };
    known.into_iter().fold(Some(true), each)
}

/// A size or a stride: a number times what depends on data, of which the program has only expressions.
#[derive(Clone)]
struct Measure<'m> {
    number: i64,
    /// Sorted.
    factors: Vec<&'m str>,
}

impl<'m> Measure<'m> {
    fn number(number: i64) -> Self {
        Self { number, factors: Vec::new() }
    }

    /// Nothing where an expression is long: those of sizes are short.
    fn of(size: &'m Size) -> Option<Self> {
        const LONGEST: usize = 512;
        if let Some(number) = size.hint() {
            return Some(Self::number(number));
        }
        let Size::Expr { expr_str, .. } = size else { return None };
        if expr_str.len() > LONGEST {
            return None;
        }
        let mut measure = Self::number(1);
        let mut waiting: Vec<&str> = vec![expr_str];
        while let Some(expression) = waiting.pop() {
            let within = |function: &str| expression.strip_prefix(function)?.strip_suffix(')');
            if let Some(factors) = within("Mul(") {
                waiting.extend(arguments(factors));
            } else if let Some(least) = within("Max(Integer(1), ") {
                // Strides count no axis for less than 1, which makes a difference where there are no elements alone.
                waiting.push(least);
            } else if let Some(number) = within("Integer(").and_then(|number| number.parse::<i64>().ok()) {
                measure.number = measure.number.checked_mul(number)?;
            } else {
                measure.factors.push(expression);
            }
        }
        measure.factors.sort_unstable();
        Some(measure)
    }

    fn times(mut self, other: &Self) -> Option<Self> {
        // Strides count no axis for less than 1.
        let number = if other.factors.is_empty() { other.number.max(1) } else { other.number };
        self.number = self.number.checked_mul(number)?;
        self.factors.extend(&other.factors);
        self.factors.sort_unstable();
        Some(self)
    }

    fn is_one(&self) -> bool {
        self.number == 1 && self.factors.is_empty()
    }

    /// Whether both are the same number, as far as that is known.
    fn is(&self, other: &Self) -> Option<bool> {
        (self.factors == other.factors).then_some(self.number == other.number)
    }
}

/// The arguments of a function in an expression.
fn arguments(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i64;
    let split = list.split(move |letter| {
        depth += i64::from(letter == '(') - i64::from(letter == ')');
        letter == ',' && depth == 0
    });
    split.map(str::trim)
}

/// Whether both are the same, as far as that is known.
fn same(own: &[Size], other: &[Size]) -> Option<bool> {
    if own.len() != other.len() {
        return Some(false);
    }
    all(own.iter().zip(other).map(|(own, other)| Measure::of(own)?.is(&Measure::of(other)?)))
}

/// Whether both have the same shape, as far as that is known.
pub(super) fn have_one_shape(base: &TensorMeta, result: &TensorMeta) -> Option<bool> {
    same(&base.sizes, &result.sizes)
}

/// Whether elements lie in the same order, as far as that is known.
pub(super) fn lie_alike(base: &TensorMeta, result: &TensorMeta) -> Option<bool> {
    all([have_one_shape(base, result), same(&base.strides, &result.strides)])
}

/// Whether elements lie in row-major order without gaps, as far as that is known.
pub(super) fn is_contiguous(meta: &TensorMeta) -> Option<bool> {
    if meta.sizes.len() != meta.strides.len() {
        return None;
    }
    let mut expected = Some(Measure::number(1));
    all(meta.sizes.iter().zip(&meta.strides).rev().map(|(size, stride)| {
        let size = Measure::of(size);
        if size.as_ref().is_some_and(Measure::is_one) {
            return Some(true);
        }
        let stride = Measure::of(stride).zip(expected.clone());
        expected = expected.take().zip(size).and_then(|(inner, size)| inner.times(&size));
        stride.and_then(|(stride, expected)| stride.is(&expected))
    }))
}

/// The axes of a tensor, outermost first, if its elements lie one after the other in that order.
pub(super) fn storage_order(meta: &TensorMeta) -> Option<Vec<i64>> {
    let axes = layout(meta)?;
    let mut order: Vec<(i64, (i64, i64))> = (0..).zip(axes).collect();
    // Axes of one element may have any stride.
    order.sort_by_key(|(_, (size, stride))| (*size != 1, std::cmp::Reverse(*stride)));
    let mut expected = 1i64;
    let dense = order.iter().rev().all(|&(_, (size, stride))| {
        let fits = size == 1 || stride == expected;
        expected = expected.saturating_mul(size.max(1));
        fits
    });
    dense.then(|| order.into_iter().map(|(axis, _)| axis).collect())
}

/// Whether a tensor of another shape can be a view of this one, as far as that is known: axes that are joined have to lie one in the
/// other, as `Tensor.view` demands it.
pub(super) fn lies_as(base: &TensorMeta, shaped: &TensorMeta) -> Option<bool> {
    if is_contiguous(base) == Some(true) || have_one_shape(base, shaped) == Some(true) {
        return Some(true);
    }
    let axes = layout(base)?;
    let shape: Vec<i64> = shaped.sizes.iter().map(Size::hint).collect::<Option<_>>()?;
    // Runs of axes that lie one in the other, innermost first: how many elements each has.
    let mut runs: Vec<i64> = Vec::new();
    let mut outer: Option<i64> = None;
    for &(size, stride) in axes.iter().rev().filter(|(size, _)| *size != 1) {
        match (outer, runs.last_mut()) {
            (Some(step), Some(run)) if step == stride => *run = run.saturating_mul(size),
            _ => runs.push(size),
        }
        outer = Some(stride.saturating_mul(size));
    }
    let mut sizes = shape.into_iter().rev().filter(|&size| size != 1);
    // Each run is some of the new axes, whole.
    let fits = runs.into_iter().all(|run| {
        let mut covered = 1i64;
        while covered < run {
            match sizes.next() {
                Some(size) if size > 0 => covered = covered.saturating_mul(size),
                _ => break,
            }
        }
        covered == run
    });
    Some(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pt2::operators::complex;

    fn meta(sizes: &[i64], strides: &[i64]) -> TensorMeta {
        let list = |numbers: &[i64]| numbers.iter().map(|&number| Size::Int(number)).collect();
        TensorMeta {
            dtype: 7,
            sizes: list(sizes),
            requires_grad: None,
            strides: list(strides),
            storage_offset: Size::Int(0),
        }
    }

    #[test]
    fn other_shapes_are_views_where_axes_lie_in_each_other() {
        let whole = meta(&[3, 4, 5], &[20, 5, 1]);
        let turned = meta(&[4, 3, 5], &[5, 20, 1]);
        let shape = |sizes: &[i64]| meta(sizes, &vec![0; sizes.len()]);
        assert_eq!((is_contiguous(&whole), is_contiguous(&turned)), (Some(true), Some(false)));
        for sizes in [&[12, 5][..], &[60], &[3, 2, 2, 5], &[1, 3, 4, 5], &[3, 20]] {
            assert_eq!(lies_as(&whole, &shape(sizes)), Some(true), "{sizes:?}");
        }
        assert_eq!(lies_as(&turned, &shape(&[2, 2, 3, 5])), Some(true));
        assert_eq!(lies_as(&turned, &shape(&[4, 1, 3, 5])), Some(true));
        for sizes in [&[12, 5][..], &[4, 15], &[60], &[6, 2, 5]] {
            assert_eq!(lies_as(&turned, &shape(sizes)), Some(false), "{sizes:?}");
        }
    }

    /// Sizes and strides as programs have them where they depend on data.
    fn unsized_meta(sizes: &[&str], strides: &[&str]) -> TensorMeta {
        let size = |text: &&str| match text.parse() {
            Ok(number) => Size::Int(number),
            Err(_) => Size::Expr { expr_str: (*text).to_owned(), hint: None },
        };
        let list = |texts: &[&str]| texts.iter().map(size).collect();
        TensorMeta { sizes: list(sizes), strides: list(strides), ..meta(&[], &[]) }
    }

    #[test]
    fn how_elements_lie_may_not_be_known() {
        const COUNT: &str = "Symbol('u0', integer=True)";
        const OTHER: &str = "Symbol('u1', integer=True)";
        const AT_LEAST_ONE: &str = "Max(Integer(1), Symbol('u0', integer=True))";
        const THRICE: &str = "Mul(Integer(3), Max(Integer(1), Symbol('u0', integer=True)))";
        let rows = unsized_meta(&[COUNT, "3"], &["3", "1"]);
        let turned = unsized_meta(&["3", COUNT], &["1", "3"]);
        let columns = unsized_meta(&["3", COUNT], &[AT_LEAST_ONE, "1"]);
        let nested = unsized_meta(&["2", COUNT, "3"], &[THRICE, "3", "1"]);
        let other = unsized_meta(&["3", COUNT], &[OTHER, "1"]);
        let contiguous = [&rows, &turned, &columns, &nested, &other].map(is_contiguous);
        assert_eq!(contiguous, [Some(true), Some(false), Some(true), Some(true), None]);
        assert_eq!(lie_alike(&rows, &rows), Some(true));
        assert_eq!(lie_alike(&turned, &columns), Some(false));
        assert_eq!(lie_alike(&other, &columns), None);
        let line = unsized_meta(&["Mul(Integer(3), Symbol('u0', integer=True))"], &["1"]);
        assert_eq!(lies_as(&rows, &line), Some(true));
        assert_eq!(lies_as(&columns, &line), Some(true));
        assert_eq!(lies_as(&turned, &line), None);
        assert_eq!(lies_as(&turned, &turned), Some(true));
        assert_eq!(have_one_shape(&rows, &turned), None);
        assert_eq!(have_one_shape(&rows, &line), Some(false));
        // What is deep or long is not looked into.
        let deep = format!("{}{COUNT}{}", "Mul(".repeat(1 << 16), ")".repeat(1 << 16));
        assert_eq!(is_contiguous(&unsized_meta(&["2", COUNT], &[&deep, "1"])), None);
    }

    #[test]
    fn what_is_done_when_elements_are_read() {
        let of = |operators: &[&str]| {
            let shown =
                |operator: &&str| complex::view(&format!("{operator}.default")).map(|view| view.shown);
            operators.iter().filter_map(shown).fold(Lazily::default(), Lazily::viewed)
        };
        assert_eq!(of(&["select", "conj", "transpose"]), Lazily { conjugated: true, negated: false });
        assert_eq!(of(&["mH", "_conj"]), Lazily::default());
        assert_eq!(of(&["conj", "imag"]), Lazily { conjugated: false, negated: true });
        assert_eq!(of(&["conj", "real"]), Lazily::default());
        assert_eq!(of(&["matrix_H"]), of(&["conj"]));
    }

    #[test]
    fn elements_lie_in_the_order_of_strides() {
        assert_eq!(storage_order(&meta(&[3, 4, 5], &[20, 5, 1])), Some(vec![0, 1, 2]));
        assert_eq!(storage_order(&meta(&[5, 3, 4], &[1, 20, 5])), Some(vec![1, 2, 0]));
        assert_eq!(storage_order(&meta(&[3, 1, 4], &[4, 9, 1])), Some(vec![1, 0, 2]));
        // With gaps, and of one element for several.
        assert_eq!(storage_order(&meta(&[3, 4], &[8, 1])), None);
        assert_eq!(storage_order(&meta(&[3, 4], &[0, 1])), None);
    }
}
