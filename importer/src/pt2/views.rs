//! Tensors that are views of others: what is written into one, the others have, too.
//!
//! Programs that `torch.export.export` makes change tensors in place, as networks do; a graph of ONNX does not. What is written is
//! a new value, and so are what it views and all other views of that, once somebody reads them.

pub(super) mod put_back;

use super::schema::{Node, Size, TensorMeta};
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

/// Whether elements lie in the same order, as far as that is known.
pub(super) fn lie_alike(base: &TensorMeta, result: &TensorMeta) -> bool {
    layout(base) == layout(result)
}

/// Whether both have the same shape.
pub(super) fn have_one_shape(base: &TensorMeta, result: &TensorMeta) -> bool {
    let sizes = |meta: &TensorMeta| -> Option<Vec<i64>> { meta.sizes.iter().map(Size::hint).collect() };
    sizes(base).is_some_and(|base| sizes(result) == Some(base))
}

/// Whether nothing says that tensors differ in shape.
pub(super) fn may_have_one_shape(a: &TensorMeta, b: &TensorMeta) -> bool {
    let may_be = |(a, b): (&Size, &Size)| a.hint().zip(b.hint()).is_none_or(|(a, b)| a == b);
    a.sizes.len() == b.sizes.len() && a.sizes.iter().zip(&b.sizes).all(may_be)
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
