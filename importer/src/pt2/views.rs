//! Tensors that are views of others: what is written into one, the others have, too.
//!
//! Programs that `torch.export.export` makes change tensors in place, as networks do; a graph of ONNX does not. What is written is
//! a new value, and so are what it views and all other views of that, once somebody reads them.

use super::call::{Call, Int, Result, Tensor, int, unsupported};
use super::operators::{self, Sharing, index, shape};
use super::schema::{Node, Size, TensorMeta};
use super::value::{Output, Part, Value};
use crate::error::ImportErrorKind;
use std::collections::HashMap;

/// A view: the call that made it, and what it is a view of.
#[derive(Clone, Copy)]
pub(super) struct View<'p> {
    pub name: &'p str,
    /// Nothing where it is the same tensor.
    pub node: Option<&'p Node>,
    /// Which of the call's results it is.
    pub position: usize,
    pub base: &'p str,
}

/// What PyTorch does to elements of a view when they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lazily {
    pub conjugated: bool,
    pub negated: bool,
}

impl Lazily {
    /// The same of a view of a tensor.
    pub fn viewed(self, operator: &str, of_complex: bool) -> Self {
        match operator {
            "_conj" | "adjoint" | "conj" | "mH" if of_complex => {
                Self { conjugated: !self.conjugated, ..self }
            }
            "_neg_view" => Self { negated: !self.negated, ..self },
            // That of a conjugated number is negative.
            "imag" => Self { conjugated: false, negated: self.negated != self.conjugated },
            "real" => Self { conjugated: false, ..self },
            _ => self,
        }
    }
}

/// The views of a graph.
#[derive(Default)]
pub(super) struct Views<'p> {
    views: HashMap<&'p str, View<'p>>,
    /// How often a name was given something new.
    versions: HashMap<&'p str, u64>,
    /// The version of its base that a view was made of.
    seen: HashMap<&'p str, u64>,
    /// Whether anything was changed in place; until then no view is looked at.
    changes: bool,
}

impl<'p> Views<'p> {
    pub fn note(&mut self, view: View<'p>) {
        self.seen.insert(view.name, self.version(view.base));
        self.views.insert(view.name, view);
    }

    pub fn of(&mut self, name: &str) -> Option<View<'p>> {
        self.changes = true;
        self.views.get(name).copied()
    }

    fn version(&self, name: &str) -> u64 {
        self.versions.get(name).copied().unwrap_or(0)
    }

    /// A name has a new value.
    pub fn changed(&mut self, name: &'p str) {
        *self.versions.entry(name).or_default() += 1;
    }

    /// A view was made again.
    pub fn renewed(&mut self, name: &'p str) {
        if let Some(view) = self.views.get(name) {
            self.seen.insert(name, self.version(view.base));
        }
        self.changed(name);
    }

    /// A view was written, and its base is about to be.
    pub fn written(&mut self, name: &'p str) {
        if let Some(view) = self.views.get(name) {
            self.seen.insert(name, self.version(view.base) + 1);
        }
        self.changed(name);
    }

    /// The views that a name is made by, outermost first.
    pub fn chain(&self, name: &str) -> Vec<View<'p>> {
        let mut chain: Vec<View<'p>> =
            std::iter::successors(self.views.get(name), |view| self.views.get(view.base)).copied().collect();
        chain.reverse();
        chain
    }

    /// The views that have to be made again before a name is read, outermost first, and how many were looked at.
    pub fn stale(&self, name: &str) -> (usize, Vec<View<'p>>) {
        let mut chain: Vec<View<'p>> = Vec::new();
        if self.changes {
            chain.extend(std::iter::successors(self.views.get(name), |view| self.views.get(view.base)));
        }
        let looked_at = chain.len();
        let fresh = |view: &View<'p>| self.seen.get(view.name).copied() == Some(self.version(view.base));
        // All behind the outermost one that is stale.
        let stale = chain.iter().rposition(|view| !fresh(view)).map_or(0, |place| place + 1);
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

/// Whether elements lie in row-major order without gaps.
pub(super) fn is_contiguous(meta: &TensorMeta) -> bool {
    let mut expected = 1i64;
    layout(meta).is_some_and(|axes| {
        axes.iter().rev().all(|&(size, stride)| {
            let fits = size == 1 || stride == expected;
            expected = expected.saturating_mul(size.max(1));
            fits
        })
    })
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

/// Whether a tensor of another shape can be a view of this one: axes that are joined have to lie one in the other, as
/// `Tensor.view` demands it.
pub(super) fn lies_as(base: &TensorMeta, shaped: &TensorMeta) -> bool {
    let (Some(axes), Some(shape)) = (layout(base), layout(shaped)) else { return false };
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
    let mut sizes = shape.iter().rev().map(|&(size, _)| size).filter(|&size| size != 1);
    // Each run is some of the new axes, whole.
    runs.into_iter().all(|run| {
        let mut covered = 1i64;
        while covered < run {
            match sizes.next() {
                Some(size) if size > 0 => covered = covered.saturating_mul(size),
                _ => break,
            }
        }
        covered == run
    })
}

/// A value that has `output` where a call's view of it is.
pub(super) fn put_back(
    call: &mut Call<'_, '_>,
    base: &Value,
    output: Output,
    position: usize,
) -> Result<Output> {
    let operator = operators::family(&call.node.target);
    match (base, output) {
        (Value::Tensor(base), Output::Real(value)) => {
            put_back_part(call, base, &value, position).map(Output::Real)
        }
        (Value::Complex(base), Output::Complex([real, imaginary])) => {
            let conjugates = matches!(operator, "_conj" | "conj" | "adjoint" | "mH" | "matrix_H");
            let imaginary = if conjugates { call.op("Neg", &[&imaginary], Vec::new()) } else { imaginary };
            let mut put = |part, value: &str| {
                put_back_part(&mut call.of_parts(&[("self", part)]), &base.part(part), value, position)
            };
            Ok(Output::Complex([put(Part::Real, &real)?, put(Part::Imaginary, &imaginary)?]))
        }
        (Value::Complex(base), Output::Real(value)) => {
            let [real, imaginary] = base.parts.clone();
            match operator {
                "real" => Ok(Output::Complex([value, imaginary])),
                "imag" => Ok(Output::Complex([real, value])),
                "view_as_real" => {
                    Ok(Output::Complex(operators::complex::parts_of_pairs(call, &value, base.sizes.len())))
                }
                _ => Err(unchangeable(operator)),
            }
        }
        (Value::Tensor(_), Output::Complex(parts)) => match operator {
            "view_as_complex" => Ok(Output::Real(operators::complex::pairs_of_parts(call, &parts))),
            _ => Err(unchangeable(operator)),
        },
    }
}

fn unchangeable(operator: &str) -> ImportErrorKind {
    unsupported(format!(
        "changing what `{operator}` yields in place; `run_decompositions({{}})` makes a program that changes nothing in place"
    ))
}

/// As [`put_back`], of real numbers or of either part of complex ones.
fn put_back_part(call: &mut Call<'_, '_>, base: &Tensor, value: &str, position: usize) -> Result<String> {
    let operator = operators::family(&call.node.target);
    if matches!(
        operators::sharing(operator),
        Sharing::AsIs | Sharing::IfContiguous | Sharing::UnlessConjugated | Sharing::UnlessNegated
    ) {
        return Ok(value.to_owned());
    }
    match operator {
        "_conj" | "alias" | "conj" | "detach" | "lift_fresh" | "real" => Ok(value.to_owned()),
        "view" | "reshape" | "_unsafe_view" | "view_as" | "reshape_as" | "flatten" | "ravel"
        | "unflatten" | "squeeze" | "unsqueeze" | "atleast_1d" | "atleast_2d" | "atleast_3d" => {
            let shape = call.shape(base);
            Ok(call.op("Reshape", &[value, &shape], vec![int("allowzero", 1)]))
        }
        "transpose" | "swapaxes" | "swapdims" | "t" | "permute" | "moveaxis" | "movedim" | "numpy_T"
        | "mT" | "mH" | "matrix_H" | "adjoint" => {
            let permuted = shape::permutation(call, base)?;
            Ok(call.transpose(value, &shape::inverse(&permuted)))
        }
        "select" => {
            let along = call.axis("dim", 0, base)?;
            let index = call.size("index")?;
            let value = call.unsqueeze(value, &[along]);
            let end = shape::next(call, &index);
            Ok(between(call, base, &value, along, [&index, &end]))
        }
        "slice" => {
            let along = call.axis("dim", 0, base)?;
            if call.int_or("step", 1)? != 1 {
                let (start, end) = shape::bounds(call)?;
                return shape::put_steps(call, base, value, along, [&start, &end]);
            }
            let (start, end) = shape::bounds(call)?;
            Ok(between(call, base, value, along, [&start, &end]))
        }
        "narrow" => {
            let along = call.axis("dim", 0, base)?;
            let (start, length) = (call.size("start")?, call.size("length")?);
            let end = call.size_op("Add", &start, &length);
            Ok(between(call, base, value, along, [&start, &end]))
        }
        "diagonal" => {
            let value = Tensor { name: value.to_owned(), ..call.result(0)? };
            index::with_diagonal(call, base, &value)
        }
        "unbind" => {
            let along = call.axis("dim", 0, base)?;
            let index = i64::try_from(position).unwrap_or(i64::MAX);
            let value = call.unsqueeze(value, &[along]);
            let range = [&Int::Known(index), &Int::Known(index.saturating_add(1))];
            Ok(between(call, base, &value, along, range))
        }
        "split" | "split_with_sizes" | "chunk" | "tensor_split" => {
            let along = call.axis("dim", 0, base)?;
            call.to.spend(position)?;
            let sizes =
                call.results().take(position + 1).map(|part| part.ok().and_then(|part| part.size(along)));
            let sizes: Option<Vec<i64>> = sizes.collect();
            let (length, before) = match sizes.as_deref() {
                Some([before @ .., length]) => (Some(*length), Some(before)),
                _ => (None, None),
            };
            let start = before.map(|before| before.iter().fold(0i64, |sum, size| sum.saturating_add(*size)));
            let (Some(start), Some(length)) = (start, length) else {
                return Err(unsupported("changing a part of unknown size in place"));
            };
            Ok(between(
                call,
                base,
                value,
                along,
                [&Int::Known(start), &Int::Known(start.saturating_add(length))],
            ))
        }
        _ => Err(unchangeable(operator)),
    }
}

/// A tensor that has `value` from an index up to another along an axis.
pub(super) fn between(
    call: &mut Call<'_, '_>,
    base: &str,
    value: &str,
    along: i64,
    [start, end]: [&Int; 2],
) -> String {
    let mut parts = Vec::new();
    if !matches!(start, Int::Known(0)) {
        parts.push(call.slice(base, along, [&Int::Known(0), start], 1));
    }
    parts.push(value.to_owned());
    if !matches!(end, Int::Known(i64::MAX)) {
        parts.push(call.slice(base, along, [end, &Int::Known(i64::MAX)], 1));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [only] => (*only).to_owned(),
        parts => call.op("Concat", parts, vec![int("axis", along)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(is_contiguous(&whole) && !is_contiguous(&turned));
        for sizes in [&[12, 5][..], &[60], &[3, 2, 2, 5], &[1, 3, 4, 5], &[3, 20]] {
            assert!(lies_as(&whole, &shape(sizes)), "{sizes:?}");
        }
        assert!(lies_as(&turned, &shape(&[2, 2, 3, 5])));
        assert!(lies_as(&turned, &shape(&[4, 1, 3, 5])));
        for sizes in [&[12, 5][..], &[4, 15], &[60], &[6, 2, 5]] {
            assert!(!lies_as(&turned, &shape(sizes)), "{sizes:?}");
        }
    }

    #[test]
    fn what_is_done_when_elements_are_read() {
        let of = |operators: &[&str]| {
            operators.iter().fold(Lazily::default(), |lazily, operator| lazily.viewed(operator, true))
        };
        assert_eq!(of(&["select", "conj", "transpose"]), Lazily { conjugated: true, negated: false });
        assert_eq!(of(&["mH", "_conj"]), Lazily::default());
        assert_eq!(of(&["conj", "imag"]), Lazily { conjugated: false, negated: true });
        assert_eq!(of(&["conj", "real"]), Lazily::default());
        assert_eq!(Lazily::default().viewed("conj", false), Lazily::default());
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
