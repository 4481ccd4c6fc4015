//! The shapes of a derivation's tensors: from those of its keys to its own, and back.

use super::{Derivation, Misfit};
use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, vec, vec::Vec};

/// The parameter that a derivation is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivationTarget {
    /// Type of the layer that it belongs to: `Conv2d`. It says where a weight's output channels are.
    pub layer: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

impl DerivationTarget {
    /// The axis of a weight's output channels, and the number of groups that it is for each of, when there are `count`.
    pub fn channels(&self, weight: &[usize], count: usize) -> Option<(usize, usize)> {
        let axis = self.channel_axis();
        let size = *weight.get(axis)?;
        let groups = count.checked_div(size)?;
        let grouped = self.is_transposed_convolution() && weight.first()? % groups.max(1) == 0;
        (groups.checked_mul(size) == Some(count) && (groups == 1 || grouped)).then_some((axis, groups))
    }

    fn channel_axis(&self) -> usize {
        usize::from(self.layer == "Linear" || self.is_transposed_convolution())
    }

    /// Whether the output channels stand for each group anew: `[in, out / groups, …]`.
    fn is_transposed_convolution(&self) -> bool {
        self.layer.starts_with("ConvTranspose")
    }
}

impl Derivation {
    /// The shape of what it yields for tensors of these shapes; those that are said count for those that are not known.
    /// A choice has to be made before.
    ///
    /// # Errors
    /// What does not fit.
    pub fn shape(
        &self,
        target: &DerivationTarget,
        known: &dyn Fn(&str) -> Option<Vec<usize>>,
    ) -> Result<Vec<usize>, Misfit> {
        let of = |part: &Self| part.shape(target, known);
        let all = |parts: &[Self]| parts.iter().map(of).collect::<Result<Vec<_>, _>>();
        match self {
            Self::Key { path, shape, .. } => {
                known(path).or_else(|| shape.clone()).ok_or_else(|| Misfit::Missing(path.clone()))
            }
            Self::Number(_) => Ok(Vec::new()),
            Self::Constant | Self::First(_) => Err(Misfit::Misplaced),
            Self::Unary(_, x) => of(x),
            Self::Binary(_, a, b) => broadcast(&of(a)?, &of(b)?),
            Self::Reduce(_, x, axes) => reduced(of(x)?, axes),
            Self::Permute(x, axes) => permuted(&of(x)?, axes),
            Self::Squeeze(x, axes) => Self::squeezed(&of(x)?, axes),
            Self::Unsqueeze(x, axes) => Self::unsqueezed(&of(x)?, axes),
            Self::Reshape(x, sizes) => {
                let (from, to) = (of(x)?, sizes.as_ref().unwrap_or(&target.shape));
                if count(&from) == count(to) {
                    Ok(to.clone())
                } else {
                    Err(Misfit::Count { from, to: to.clone() })
                }
            }
            Self::Expand(x, to) => {
                let from = of(x)?;
                let fits = from.len() <= to.len() && broadcast(&from, to)? == *to;
                if fits { Ok(to.clone()) } else { Err(Misfit::Spread { from, to: to.clone() }) }
            }
            Self::Slice { of: x, axis, start, end, step } => {
                let mut shape = of(x)?;
                let size = axis_of(&mut shape, *axis)?;
                if start > end || end > size || *step == 0 {
                    return Err(Misfit::Range { start: *start, end: *end, size: *size });
                }
                *size = (end - start).div_ceil(*step);
                Ok(shape)
            }
            Self::Concat(axis, parts) => joined(*axis, &all(parts)?),
            Self::Stack(parts) => stacked(&all(parts)?),
            Self::Parts(x, order) => {
                let mut shape = of(x)?;
                let size = *axis_of(&mut shape, 0)?;
                let whole = size.checked_rem(order.len()) == Some(0);
                let known = order.iter().all(|&part| part < order.len());
                if whole && known { Ok(shape) } else { Err(Misfit::Parts { shape, order: order.clone() }) }
            }
            Self::MatMul(a, b) => match (of(a)?.as_slice(), of(b)?.as_slice()) {
                (&[rows, inner], &[other, columns]) if inner == other => Ok(vec![rows, columns]),
                (a, b) => Err(Misfit::Product(a.to_owned(), b.to_owned())),
            },
            Self::Scaled(weight, factors) => {
                let (weight, factors) = (of(weight)?, of(factors)?);
                match factors.as_slice() {
                    &[] | &[1] => Ok(weight),
                    &[count] if target.channels(&weight, count).is_some() => Ok(weight),
                    _ => Err(Misfit::Channels { factors, weight }),
                }
            }
        }
    }

    /// The shapes of its tensors, as far as they are said or follow from the parameter's: operands have the shape of what
    /// is made of them, joined tensors are of equal size. Where that is not so, sizes have to be said.
    pub fn key_shapes(&self, target: &DerivationTarget) -> BTreeMap<String, Vec<usize>> {
        let mut found = BTreeMap::new();
        self.find_shapes(Some(target.shape.clone()), target, &mut found);
        found
    }

    fn find_shapes(
        &self,
        shape: Option<Vec<usize>>,
        target: &DerivationTarget,
        found: &mut BTreeMap<String, Vec<usize>>,
    ) {
        let mut next = |part: &Self, shape: Option<Vec<usize>>| part.find_shapes(shape, target, found);
        match self {
            Self::Key { path, shape: said, .. } => {
                if let Some(shape) = said.clone().or(shape) {
                    found.entry(path.clone()).or_insert(shape);
                }
            }
            Self::Number(_) | Self::Constant => {}
            Self::First(parts) => parts.iter().for_each(|part| next(part, shape.clone())),
            Self::Unary(_, x) | Self::Parts(x, _) => next(x, shape),
            Self::Binary(_, a, b) => {
                next(a, shape.clone());
                next(b, shape);
            }
            Self::Permute(x, axes) => next(x, shape.and_then(|shape| unpermuted(&shape, axes))),
            Self::Squeeze(x, axes) => next(x, shape.and_then(|shape| Self::unsqueezed(&shape, axes).ok())),
            Self::Unsqueeze(x, axes) => next(x, shape.and_then(|shape| Self::squeezed(&shape, axes).ok())),
            Self::Concat(axis, parts) => {
                let part = shape.and_then(|shape| equal_part(shape, *axis, parts.len()));
                parts.iter().for_each(|x| next(x, part.clone()));
            }
            Self::Stack(parts) => {
                let part = shape.and_then(|shape| Some(shape.split_first()?.1.to_vec()));
                parts.iter().for_each(|x| next(x, part.clone()));
            }
            Self::Scaled(weight, factors) => {
                // With groups there are more channels than the axis is long.
                let channels = (!target.is_transposed_convolution())
                    .then(|| shape.as_ref()?.get(target.channel_axis()).copied())
                    .flatten();
                next(factors, channels.map(|channels| vec![channels]));
                next(weight, shape);
            }
            Self::Reduce(..)
            | Self::Reshape(..)
            | Self::Expand(..)
            | Self::Slice { .. }
            | Self::MatMul(..) => {
                self.parts().into_iter().for_each(|part| next(part, None));
            }
        }
    }

    /// A shape without some of its axes.
    ///
    /// # Errors
    /// When one is not of size 1.
    pub fn squeezed(shape: &[usize], axes: &[usize]) -> Result<Vec<usize>, Misfit> {
        if axes.iter().any(|&axis| shape.get(axis) != Some(&1)) {
            return Err(Misfit::Axes { shape: shape.to_vec(), axes: axes.to_vec() });
        }
        let kept = shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
        Ok(kept.map(|(_, &size)| size).collect())
    }

    /// A shape with axes of size 1, which are these afterwards.
    ///
    /// # Errors
    /// When one would lie beyond the last.
    pub fn unsqueezed(shape: &[usize], axes: &[usize]) -> Result<Vec<usize>, Misfit> {
        let mut shape = shape.to_vec();
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        for axis in sorted {
            if axis > shape.len() {
                return Err(Misfit::NoAxis { axis, rank: shape.len() });
            }
            shape.insert(axis, 1);
        }
        Ok(shape)
    }
}

fn axis_of(shape: &mut [usize], axis: usize) -> Result<&mut usize, Misfit> {
    let rank = shape.len();
    shape.get_mut(axis).ok_or(Misfit::NoAxis { axis, rank })
}

fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size))
}

fn reduced(mut shape: Vec<usize>, axes: &[usize]) -> Result<Vec<usize>, Misfit> {
    for &axis in axes {
        *axis_of(&mut shape, axis)? = 1;
    }
    Ok(shape)
}

/// Whether these are all axes of a rank, each once.
fn is_permutation(axes: &[usize], rank: usize) -> bool {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().eq(0..rank)
}

fn permuted(shape: &[usize], axes: &[usize]) -> Result<Vec<usize>, Misfit> {
    if !is_permutation(axes, shape.len()) {
        return Err(Misfit::Axes { shape: shape.to_vec(), axes: axes.to_vec() });
    }
    Ok(axes.iter().filter_map(|&axis| shape.get(axis).copied()).collect())
}

/// The shape that becomes this one.
fn unpermuted(shape: &[usize], axes: &[usize]) -> Option<Vec<usize>> {
    let mut from = vec![0; shape.len()];
    for (&axis, &size) in axes.iter().zip(shape) {
        *from.get_mut(axis)? = size;
    }
    is_permutation(axes, shape.len()).then_some(from)
}

fn equal_part(mut shape: Vec<usize>, axis: usize, count: usize) -> Option<Vec<usize>> {
    let size = shape.get_mut(axis)?;
    let part = size.checked_div(count)?;
    if part * count != *size {
        return None;
    }
    *size = part;
    Some(shape)
}

fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, Misfit> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], i: usize| {
        (i + shape.len()).checked_sub(rank).and_then(|i| shape.get(i).copied()).unwrap_or(1)
    };
    let sizes = (0..rank).map(|i| match (size(a, i), size(b, i)) {
        (x, y) if x == y || y == 1 => Ok(x),
        (1, y) => Ok(y),
        _ => Err(Misfit::Broadcast(a.to_vec(), b.to_vec())),
    });
    sizes.collect()
}

fn joined(axis: usize, shapes: &[Vec<usize>]) -> Result<Vec<usize>, Misfit> {
    let (first, rest) = shapes.split_first().ok_or(Misfit::Nothing)?;
    let mut shape = first.clone();
    axis_of(&mut shape, axis)?;
    for other in rest {
        let alike = shape.len() == other.len()
            && shape.iter().zip(other).enumerate().all(|(i, (a, b))| i == axis || a == b);
        match (shape.get_mut(axis), other.get(axis), alike) {
            (Some(size), Some(more), true) => *size += more,
            _ => return Err(Misfit::Join(first.clone(), other.clone(), axis)),
        }
    }
    Ok(shape)
}

fn stacked(shapes: &[Vec<usize>]) -> Result<Vec<usize>, Misfit> {
    let first = shapes.first().ok_or(Misfit::Nothing)?;
    match shapes.iter().find(|shape| *shape != first) {
        Some(other) => Err(Misfit::Stack(first.clone(), other.clone())),
        None => Ok([&[shapes.len()], first.as_slice()].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::KeyBase;
    use super::*;
    use alloc::boxed::Box;
    use proptest::prelude::*;

    fn target(layer: &str, shape: &[usize]) -> DerivationTarget {
        DerivationTarget { layer: layer.into(), shape: shape.to_vec() }
    }

    /// What follows for the tensors of an expression, in the order of their names.
    fn followed(text: &str, layer: &str, shape: &[usize]) -> Vec<(String, Vec<usize>)> {
        let derivation: Derivation = text.parse().unwrap();
        derivation.key_shapes(&target(layer, shape)).into_iter().collect()
    }

    #[test]
    fn shapes_follow_from_the_parameters() {
        let found = |text, layer, shape: &[usize]| -> Vec<Vec<usize>> {
            followed(text, layer, shape).into_iter().map(|found| found.1).collect()
        };
        assert_eq!(found("transpose(w)", "Linear", &[2, 3]), [[3, 2]]);
        assert_eq!(found("permute(w, 2, 0, 1)", "", &[2, 3, 4]), [[3, 4, 2]]);
        assert_eq!(found("squeeze(w, 0, 2)", "", &[4, 5]), [[1, 4, 1, 5]]);
        assert_eq!(found("unsqueeze(w + 1, 1, 2)", "", &[4, 1, 1]), [[4]]);
        assert_eq!(found("stack(parts(a, 0, 2, 1), b)", "", &[2, 6, 5]), [[6, 5], [6, 5]]);
        assert_eq!(found("cat(0, a, b)", "", &[8]), [[4], [4]]);
        assert_eq!(found("cat(0, a, b)", "", &[7]), Vec::<Vec<usize>>::new());
        assert_eq!(found("cat(0, a[3], b[4])", "", &[7]), [[3], [4]]);
        assert_eq!(found("slice(a[9], 0, 0, 7)", "", &[7]), [[9]]);
        assert_eq!(found("scaled(b, a)", "Conv2d", &[8, 4, 3, 3]), [vec![8], vec![8, 4, 3, 3]]);
        assert_eq!(found("scaled(b, a)", "Linear", &[4, 8]), [vec![8], vec![4, 8]]);
        assert_eq!(found("scaled(b, a)", "ConvTranspose2d", &[4, 8, 3, 3]), [vec![4, 8, 3, 3]]);
        assert_eq!(found("reshape(a)", "", &[4, 8]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let cases = [
            ("a", Misfit::Missing("a".into())),
            ("constant() + 1", Misfit::Misplaced),
            ("sum(x, 3)", Misfit::NoAxis { axis: 3, rank: 2 }),
            ("squeeze(x, 0)", Misfit::Axes { shape: vec![2, 3], axes: vec![0] }),
            ("unsqueeze(x, 3)", Misfit::NoAxis { axis: 3, rank: 2 }),
            ("permute(x, 0, 0)", Misfit::Axes { shape: vec![2, 3], axes: vec![0, 0] }),
            ("reshape(x, 7)", Misfit::Count { from: vec![2, 3], to: vec![7] }),
            ("slice(x, 0, 1, 4)", Misfit::Range { start: 1, end: 4, size: 2 }),
            ("x + transpose(x)", Misfit::Broadcast(vec![2, 3], vec![3, 2])),
            ("parts(x, 0, 2)", Misfit::Parts { shape: vec![2, 3], order: vec![0, 2] }),
            ("matmul(x, x)", Misfit::Product(vec![2, 3], vec![2, 3])),
        ];
        for (text, expected) in cases {
            let derivation: Derivation = text.parse().unwrap();
            let known = |key: &str| (key == "x").then(|| vec![2, 3]);
            assert_eq!(derivation.shape(&target("", &[6]), &known), Err(expected), "{text}");
        }
    }

    /// Expressions whose tensors' shapes follow, for a parameter of any shape of even sizes.
    fn expression() -> impl Strategy<Value = Derivation> {
        let leaf = Just(Derivation::key("w", KeyBase::Module));
        leaf.prop_recursive(4, 8, 2, |inner| {
            let boxed = |x: Derivation| Box::new(x);
            prop_oneof![
                inner.clone().prop_map(move |x| Derivation::Permute(boxed(x), vec![1, 0])),
                inner.clone().prop_map(move |x| Derivation::Parts(boxed(x), vec![1, 0])),
                inner.clone().prop_map(move |x| Derivation::binary(
                    crate::BinaryOp::Mul,
                    x,
                    Derivation::Number(2.0)
                )),
                inner.prop_map(move |x| Derivation::Squeeze(
                    boxed(Derivation::Unsqueeze(boxed(x), vec![1])),
                    vec![1]
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn there_and_back(expression in expression(), rows in 1usize..5, columns in 1usize..5) {
            let target = target("", &[rows * 2, columns * 2]);
            let shapes = expression.key_shapes(&target);
            let shape = expression.shape(&target, &|key| shapes.get(key).cloned());
            prop_assert_eq!(shape, Ok(target.shape));
        }
    }
}
