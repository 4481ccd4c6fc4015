//! Parameters that are computed from a checkpoint's tensors: what was folded when a module was generated is folded again.

use super::load::From;
use super::source::Source;
use crate::module::{Derivation, DerivationError, Origin};
use crate::tensor::backend::{Backend, Primitive, SliceRange};
use crate::tensor::{BinaryOp, DType, Scalar, Shape, TensorData, UnaryOp};
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::{boxed::Box, format, vec, vec::Vec};

/// The layer that a computed parameter belongs to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Type of the layer: `Conv2d`.
    pub(super) layer: String,
    /// Shape of the parameter.
    pub(super) shape: Vec<usize>,
}

/// A computation of a parameter, its keys being the checkpoint's.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// What to compute.
    pub(super) expression: Derivation,
    /// For what.
    pub(super) target: Target,
}

/// What a parameter is made of, as far as its origin tells.
pub(super) enum Made {
    /// The model holds it already.
    Before,
    /// By a computation over keys below a path.
    By(Derivation),
}

/// A key of PyTorch's, with what must be done to its tensor so that it lies as the parameter does.
fn laid_out(path: &str, turned: bool) -> Derivation {
    let key = Derivation::key(path, true);
    if turned { Derivation::Permute(Box::new(key), vec![1, 0]) } else { key }
}

/// What an origin says of the parameter at `below` its field. `own` is where the parameter would be without the origin,
/// and whether it is transposed; `base` is the path of the struct.
pub(super) fn made(
    origin: Origin,
    below: &str,
    own: (&str, bool),
    base: &str,
) -> Result<Option<Made>, String> {
    match origin {
        Origin::Constant => Ok(Some(Made::Before)),
        Origin::Derived { parameter, from } if parameter == below => {
            let parsed: Derivation = from.parse().map_err(|error: DerivationError| error.to_string())?;
            Ok(Some(match parsed {
                Derivation::Constant => Made::Before,
                other => Made::By(rooted(other, base)),
            }))
        }
        Origin::BatchNorm { path, epsilon, biased } => {
            let norm = |name: &str| Derivation::key(join(base, &format!("{path}.{name}")), true);
            let variance =
                Derivation::binary(BinaryOp::Add, norm("running_var"), Derivation::Number(epsilon));
            let root = Derivation::Unary(UnaryOp::Sqrt, Box::new(variance));
            let scale = Derivation::binary(BinaryOp::Div, norm("weight"), root);
            let moved = Derivation::binary(BinaryOp::Mul, norm("running_mean"), scale.clone());
            let shift = Derivation::binary(BinaryOp::Sub, norm("bias"), moved);
            Ok(match below {
                "weight" => {
                    let weight = laid_out(own.0, own.1);
                    Some(Made::By(Derivation::Scaled(Box::new(weight), Box::new(scale))))
                }
                "bias" if biased => {
                    let scaled = Derivation::binary(BinaryOp::Mul, laid_out(own.0, own.1), scale);
                    Some(Made::By(Derivation::binary(BinaryOp::Add, scaled, shift)))
                }
                "bias" => Some(Made::By(shift)),
                _ => None,
            })
        }
        Origin::Derived { .. } => Ok(None),
    }
}

fn join(base: &str, path: &str) -> String {
    if base.is_empty() { path.to_string() } else { format!("{base}.{path}") }
}

/// The derivation with whole keys.
fn rooted(derivation: Derivation, base: &str) -> Derivation {
    rewritten(derivation, &|part| match part {
        Derivation::Key { path, absolute: false } => Derivation::key(join(base, &path), true),
        other => other,
    })
}

/// The derivation with every choice made: the first that the file has, or the first at all.
pub(super) fn settled(derivation: Derivation, source: &Source) -> Derivation {
    let there = |part: &Derivation| {
        let mut needed = BTreeSet::new();
        keys(part, &mut needed);
        needed.iter().all(|key| source.get(key).is_some())
    };
    rewritten(derivation, &|part| match part {
        Derivation::First(mut parts) if !parts.is_empty() => {
            let at = parts.iter().position(there).unwrap_or(0);
            parts.swap_remove(at)
        }
        other => other,
    })
}

/// The derivation with each part, the inner ones first, replaced.
fn rewritten(derivation: Derivation, replace: &dyn Fn(Derivation) -> Derivation) -> Derivation {
    let inner = |part: Box<Derivation>| Box::new(rewritten(*part, replace));
    let each = |parts: Vec<Derivation>| parts.into_iter().map(|part| rewritten(part, replace)).collect();
    let whole = match derivation {
        Derivation::First(parts) => Derivation::First(each(parts)),
        Derivation::Unary(op, x) => Derivation::Unary(op, inner(x)),
        Derivation::Binary(op, a, b) => Derivation::Binary(op, inner(a), inner(b)),
        Derivation::Reduce(op, x, axes) => Derivation::Reduce(op, inner(x), axes),
        Derivation::Permute(x, axes) => Derivation::Permute(inner(x), axes),
        Derivation::Reshape(x, sizes) => Derivation::Reshape(inner(x), sizes),
        Derivation::Expand(x, sizes) => Derivation::Expand(inner(x), sizes),
        Derivation::Slice { of, axis, start, end, step } => {
            Derivation::Slice { of: inner(of), axis, start, end, step }
        }
        Derivation::Concat(axis, parts) => Derivation::Concat(axis, each(parts)),
        Derivation::Stack(parts) => Derivation::Stack(each(parts)),
        Derivation::Parts(x, order) => Derivation::Parts(inner(x), order),
        Derivation::MatMul(a, b) => Derivation::MatMul(inner(a), inner(b)),
        Derivation::Scaled(weight, factors) => Derivation::Scaled(inner(weight), inner(factors)),
        leaf @ (Derivation::Key { .. } | Derivation::Number(_) | Derivation::Constant) => leaf,
    };
    replace(whole)
}

/// Visits the keys of a derivation.
pub(super) fn keys(derivation: &Derivation, found: &mut BTreeSet<String>) {
    match derivation {
        Derivation::Key { path, .. } => {
            found.insert(path.clone());
        }
        Derivation::Unary(_, x)
        | Derivation::Reduce(_, x, _)
        | Derivation::Permute(x, _)
        | Derivation::Reshape(x, _)
        | Derivation::Expand(x, _)
        | Derivation::Parts(x, _)
        | Derivation::Slice { of: x, .. } => keys(x, found),
        Derivation::Binary(_, a, b) | Derivation::MatMul(a, b) | Derivation::Scaled(a, b) => {
            keys(a, found);
            keys(b, found);
        }
        Derivation::Concat(_, parts) | Derivation::Stack(parts) | Derivation::First(parts) => {
            parts.iter().for_each(|part| keys(part, found));
        }
        Derivation::Number(_) | Derivation::Constant => {}
    }
}

impl Recipe {
    /// Whether it is one number, everywhere.
    pub(super) fn is_number(&self) -> bool {
        matches!(self.expression, Derivation::Number(_))
    }

    /// The key, or the expression.
    pub(super) fn name(&self) -> String {
        match &self.expression {
            Derivation::Key { path, .. } => path.clone(),
            other => other.to_string(),
        }
    }

    /// A tensor as it is in the file, or transposed: nothing is computed then.
    pub(super) fn view(&self, source: &Source) -> Option<From> {
        let (path, turned) = match &self.expression {
            Derivation::Key { path, .. } => (path, false),
            Derivation::Permute(of, axes) if axes.as_slice() == [1, 0] => match &**of {
                Derivation::Key { path, .. } => (path, true),
                _ => return None,
            },
            _ => return None,
        };
        let tensor = source.get(path)?;
        let tensor = if turned { tensor.transposed()? } else { tensor.clone() };
        Some(From::Tensor(path.clone(), tensor))
    }
}

/// What is settled before anything is computed.
const MISPLACED: &str = "`constant()` can stand alone only";

type Shaped = Result<Vec<usize>, String>;

impl Recipe {
    /// The shape of what it yields. An error says, in words, what does not fit.
    pub(super) fn shape(&self, source: &Source) -> Shaped {
        self.shape_of(&self.expression, source)
    }

    fn shape_of(&self, derivation: &Derivation, source: &Source) -> Shaped {
        let of = |part: &Derivation| self.shape_of(part, source);
        match derivation {
            Derivation::Key { path, .. } => match source.get(path) {
                Some(tensor) => Ok(tensor.shape().to_vec()),
                None => Err(format!("{path} is missing")),
            },
            Derivation::Number(_) => Ok(Vec::new()),
            Derivation::Constant | Derivation::First(_) => Err(MISPLACED.to_string()),
            Derivation::Unary(_, x) => of(x),
            Derivation::Binary(_, a, b) => broadcast(&of(a)?, &of(b)?),
            Derivation::Reduce(_, x, axes) => {
                let mut shape = of(x)?;
                let rank = shape.len();
                for &axis in axes {
                    *shape.get_mut(axis).ok_or_else(|| no_axis(axis, rank))? = 1;
                }
                Ok(shape)
            }
            Derivation::Permute(x, axes) => {
                let shape = of(x)?;
                let mut sorted = axes.clone();
                sorted.sort_unstable();
                if !sorted.into_iter().eq(0..shape.len()) {
                    return Err(format!("{shape:?} has other axes than {axes:?}"));
                }
                Ok(axes.iter().filter_map(|&axis| shape.get(axis).copied()).collect())
            }
            Derivation::Reshape(x, sizes) => {
                let (shape, sizes) = (of(x)?, sizes.as_ref().unwrap_or(&self.target.shape));
                let count = |shape: &[usize]| shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
                if count(&shape) != count(sizes) {
                    return Err(format!("{shape:?} cannot be {sizes:?}"));
                }
                Ok(sizes.clone())
            }
            Derivation::Expand(x, sizes) => {
                let shape = of(x)?;
                let fits = shape.len() <= sizes.len() && broadcast(&shape, sizes)? == *sizes;
                if fits { Ok(sizes.clone()) } else { Err(format!("{shape:?} cannot be spread to {sizes:?}")) }
            }
            Derivation::Slice { of: x, axis, start, end, step } => {
                let mut shape = of(x)?;
                let rank = shape.len();
                let size = shape.get_mut(*axis).ok_or_else(|| no_axis(*axis, rank))?;
                if start > end || end > size || *step == 0 {
                    return Err(format!("{start}..{end} is not in an axis of size {size}"));
                }
                *size = (end - start).div_ceil(*step);
                Ok(shape)
            }
            Derivation::Concat(axis, parts) => {
                let shapes = parts.iter().map(of).collect::<Result<Vec<_>, _>>()?;
                joined(*axis, &shapes)
            }
            Derivation::Stack(parts) => {
                let shapes = parts.iter().map(of).collect::<Result<Vec<_>, _>>()?;
                let first = shapes.first().ok_or("nothing is joined")?;
                match shapes.iter().find(|shape| *shape != first) {
                    Some(other) => Err(format!("{first:?} and {other:?} cannot be stacked")),
                    None => Ok([&[shapes.len()], first.as_slice()].concat()),
                }
            }
            Derivation::Parts(x, order) => {
                let shape = of(x)?;
                let size = shape.first().copied().ok_or_else(|| no_axis(0, 0))?;
                let whole = size.checked_rem(order.len()) == Some(0);
                let known = order.iter().all(|&part| part < order.len());
                if whole && known { Ok(shape) } else { Err(format!("{shape:?} has no parts {order:?}")) }
            }
            Derivation::MatMul(a, b) => match (of(a)?.as_slice(), of(b)?.as_slice()) {
                (&[rows, inner], &[other, columns]) if inner == other => Ok(vec![rows, columns]),
                (a, b) => Err(format!("{a:?} and {b:?} are no matrices with a product")),
            },
            Derivation::Scaled(weight, factors) => {
                let (weight, factors) = (of(weight)?, of(factors)?);
                match factors.as_slice() {
                    &[] | &[1] => Ok(weight),
                    &[count] if self.channels(&weight, count).is_some() => Ok(weight),
                    factors => Err(format!("{factors:?} are not the output channels of {weight:?}")),
                }
            }
        }
    }

    /// The axis of a weight's output channels, and the number of groups that it is for each of.
    fn channels(&self, weight: &[usize], count: usize) -> Option<(usize, usize)> {
        let axis =
            usize::from(self.target.layer == "Linear" || self.target.layer.starts_with("ConvTranspose"));
        let size = *weight.get(axis)?;
        let groups = count.checked_div(size)?;
        let grouped = axis == 1 && self.target.layer != "Linear" && weight.first()? % groups.max(1) == 0;
        (groups.checked_mul(size) == Some(count) && (groups == 1 || grouped)).then_some((axis, groups))
    }

    /// Computes the parameter, floats in `f32` at least.
    ///
    /// # Errors
    /// When a tensor cannot be read. The shapes were checked by [`Recipe::shape`].
    pub(super) fn compute<B: Backend>(
        &self,
        source: &Source,
        device: &B::Device,
    ) -> Result<TensorData, super::ImportError> {
        let computed = self.value::<B>(&self.expression, source, device)?;
        let computed = match &self.expression {
            // A number is all of the parameter.
            Derivation::Number(_) => B::expand(computed, Shape::from(self.target.shape.clone())),
            _ => computed,
        };
        B::into_data(computed).map_err(|error| super::ImportError::Record(error.to_string()))
    }

    fn value<B: Backend>(
        &self,
        derivation: &Derivation,
        source: &Source,
        device: &B::Device,
    ) -> Result<B::Primitive, super::ImportError> {
        let of = |part: &Derivation| self.value::<B>(part, source, device);
        Ok(match derivation {
            Derivation::Key { path, .. } => {
                let Some(tensor) = source.get(path) else {
                    return Err(super::ImportError::Record(format!("{path} is missing")));
                };
                let data = source.data(path, tensor)?;
                let narrow = matches!(data.dtype, DType::F16 | DType::BF16);
                B::from_data(if narrow { data.convert_dtype(DType::F32) } else { data }, device)
            }
            Derivation::Number(number) => {
                B::full(Shape::from(Vec::new()), Scalar::Float(*number), DType::F32, device)
            }
            Derivation::Constant | Derivation::First(_) => {
                return Err(super::ImportError::Record(MISPLACED.to_string()));
            }
            Derivation::Unary(op, x) => B::unary(*op, of(x)?),
            Derivation::Binary(op, a, b) => binary::<B>(*op, of(a)?, of(b)?),
            Derivation::Reduce(op, x, axes) => {
                let mut axes = axes.clone();
                axes.sort_unstable();
                axes.dedup();
                B::reduce(*op, of(x)?, &axes)
            }
            Derivation::Permute(x, axes) => B::permute(of(x)?, axes),
            Derivation::Reshape(x, sizes) => {
                let sizes = sizes.as_ref().unwrap_or(&self.target.shape);
                B::reshape(of(x)?, Shape::from(sizes.clone()))
            }
            Derivation::Expand(x, sizes) => B::expand(of(x)?, Shape::from(sizes.clone())),
            Derivation::Slice { of: x, axis, start, end, step } => {
                let x = of(x)?;
                let mut ranges: Vec<_> = x.dims().iter().map(|&size| SliceRange::full(size)).collect();
                if let Some(range) = ranges.get_mut(*axis) {
                    *range = SliceRange { start: *start, end: *end, step: *step as isize };
                }
                B::slice(x, &ranges)
            }
            Derivation::Concat(axis, parts) => B::cat(parts.iter().map(of).collect::<Result<_, _>>()?, *axis),
            Derivation::Stack(parts) => {
                let parts = parts.iter().map(|part| {
                    let x = of(part)?;
                    let dims = [&[1], x.dims()].concat();
                    Ok(B::reshape(x, Shape::from(dims)))
                });
                B::cat(parts.collect::<Result<_, super::ImportError>>()?, 0)
            }
            Derivation::Parts(x, order) => reordered::<B>(of(x)?, order),
            Derivation::MatMul(a, b) => B::matmul(of(a)?, of(b)?),
            Derivation::Scaled(weight, factors) => self.scaled::<B>(of(weight)?, of(factors)?),
        })
    }

    /// A weight with its output channels scaled.
    fn scaled<B: Backend>(&self, weight: B::Primitive, factors: B::Primitive) -> B::Primitive {
        let shape = weight.dims().to_vec();
        let count = factors.dims().iter().product();
        let (axis, groups) = self.channels(&shape, count).unwrap_or((0, 1));
        if groups == 1 {
            let mut along = vec![1; shape.len()];
            if let Some(size) = along.get_mut(axis) {
                *size = count;
            }
            return binary::<B>(BinaryOp::Mul, weight, B::reshape(factors, Shape::from(along)));
        }
        // `[groups, in / groups, out / groups, …]` times `[groups, 1, out / groups, 1, …]`.
        let (inputs, outputs) = (shape[0] / groups, shape[1]);
        let mut apart = vec![groups, inputs];
        apart.extend_from_slice(&shape[1..]);
        let mut along = vec![1; apart.len()];
        (along[0], along[2]) = (groups, outputs);
        let (weight, factors) =
            (B::reshape(weight, Shape::from(apart)), B::reshape(factors, Shape::from(along)));
        B::reshape(B::binary(BinaryOp::Mul, weight, factors), Shape::from(shape))
    }
}

/// The equal parts of the first axis in another order.
fn reordered<B: Backend>(x: B::Primitive, order: &[usize]) -> B::Primitive {
    let size = x.dims().first().copied().unwrap_or(0) / order.len().max(1);
    let full: Vec<SliceRange> = x.dims().iter().map(|&size| SliceRange::full(size)).collect();
    let part = |&n: &usize| {
        let mut ranges = full.clone();
        if let Some(range) = ranges.first_mut() {
            *range = SliceRange { start: n * size, end: (n + 1) * size, step: 1 };
        }
        B::slice(x.clone(), &ranges)
    };
    B::cat(order.iter().map(part).collect(), 0)
}

/// A binary operation on operands of any rank.
fn binary<B: Backend>(op: BinaryOp, a: B::Primitive, b: B::Primitive) -> B::Primitive {
    let rank = a.dims().len().max(b.dims().len());
    let dtype = match (a.dtype(), b.dtype()) {
        (a, b) if a == DType::F64 || b == DType::F64 => DType::F64,
        (a, b) if a.is_float() || b.is_float() => DType::F32,
        (a, _) => a,
    };
    let alike = |x: B::Primitive| {
        let mut dims = vec![1; rank - x.dims().len()];
        dims.extend_from_slice(x.dims());
        let x = if x.dtype() == dtype { x } else { B::cast(x, dtype) };
        if dims.len() == x.dims().len() { x } else { B::reshape(x, Shape::from(dims)) }
    };
    B::binary(op, alike(a), alike(b))
}

fn no_axis(axis: usize, rank: usize) -> String {
    format!("there is no axis {axis} among {rank}")
}

fn broadcast(a: &[usize], b: &[usize]) -> Shaped {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let sizes = (0..rank).map(|i| match (size(a, i), size(b, i)) {
        (x, y) if x == y || y == 1 => Ok(x),
        (1, y) => Ok(y),
        _ => Err(format!("{a:?} and {b:?} do not go together")),
    });
    sizes.collect()
}

fn joined(axis: usize, shapes: &[Vec<usize>]) -> Shaped {
    let (first, rest) = shapes.split_first().ok_or("nothing is joined")?;
    let mut shape = first.clone();
    for other in rest {
        let alike = shape.len() == other.len()
            && shape.iter().zip(other).enumerate().all(|(i, (a, b))| i == axis || a == b);
        match (shape.get_mut(axis), other.get(axis), alike) {
            (Some(size), Some(more), true) => *size += more,
            _ => return Err(format!("{first:?} and {other:?} cannot be joined along axis {axis}")),
        }
    }
    if axis < shape.len() { Ok(shape) } else { Err(no_axis(axis, shape.len())) }
}
