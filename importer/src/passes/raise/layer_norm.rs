//! Layer and RMS normalization from means, squares and roots.
//!
//! Both end in a sum of products over `x`, its mean `m` and `1 / s`, `s = sqrt(mean(square) + epsilon)`:
//! `x / s - m / s`, times a weight, plus a bias; TensorFlow multiplies the weight into `1 / s` first. As polynomials all
//! are one shape.

use crate::fold;
use crate::ir::{Dim, Op, ValueId};
use crate::passes::matcher::{Factor, Polynomial, same};
use crate::passes::movement::constant_as;
use crate::passes::{Rewrite, Rule};
use kiln_types::{BinaryOp, ReduceOp, Scalar, UnaryOp};

pub(in crate::passes) const RULE: Rule = Rule { apply };

/// How far from the result the root may stand.
const DEPTH: usize = 5;

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let output = cx.output().filter(|&output| cx.ty(output).dtype.is_float())?;
    if !matches!(cx.op(), Op::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Add | BinaryOp::Sub)) {
        return None;
    }
    // The root may stand under a reciprocal, which is arithmetic too.
    let roots = cx.arguments(output, DEPTH);
    let root = roots.into_iter().find(|&id| cx.unary(id, UnaryOp::Sqrt).is_some())?;
    let spread = spread(cx, root)?;
    let terms = cx.polynomial(output, &[&spread.opaque[..], &[root]].concat());
    let (weight, bias) = affine(cx, &spread, root, &terms)?;
    let (op, what) = match spread.mean {
        Some(_) => (Op::LayerNorm { epsilon: spread.epsilon }, "layer_norm"),
        None if bias.is_none() => (Op::RmsNorm { epsilon: spread.epsilon }, "rms_norm"),
        None => return None,
    };
    let sizes = normalized(cx, spread.x, &spread.axes)?;
    let weight = match weight {
        Some(weight) => trailing(cx, weight, &sizes)?,
        None => {
            let ones = fold::fill(&sizes, Scalar::Float(1.0), cx.ty(spread.x).dtype)?;
            cx.add_constant(None, ones)
        }
    };
    let mut inputs = vec![Some(spread.x), Some(weight)];
    if let Some(bias) = bias {
        inputs.push(Some(trailing(cx, bias, &sizes)?));
    }
    cx.replace(op, inputs)?;
    Some(what)
}

/// What `sqrt(mean(square) + epsilon)` is over.
struct Spread {
    x: ValueId,
    /// Absent for a mean of squares that is not about the mean.
    mean: Option<ValueId>,
    axes: Vec<usize>,
    epsilon: f64,
    /// `x` and the mean, which polynomials must not look into.
    opaque: Vec<ValueId>,
}

fn spread(cx: &Rewrite<'_>, root: ValueId) -> Option<Spread> {
    let radicand = cx.unary(root, UnaryOp::Sqrt)?;
    let (epsilon, variance) = cx.commutative(radicand, BinaryOp::Add, |id| cx.scalar(id).is_some())?;
    let epsilon = cx.scalar(epsilon).filter(|&epsilon| epsilon >= 0.0)?;
    let (square, axes) = cx.kept_reduction(variance, ReduceOp::Mean)?;
    let v = Factor::Value;
    let parts = cx.arguments(square, DEPTH);
    for &mean in &parts {
        if let Some((x, mean_axes)) = cx.kept_reduction(mean, ReduceOp::Mean)
            && mean_axes == axes
        {
            let mut cross = vec![v(x), v(mean)];
            cross.sort();
            let wanted = Polynomial::from([(vec![v(x); 2], 1.0), (cross, -2.0), (vec![v(mean); 2], 1.0)]);
            let opaque = vec![x, mean];
            if same(&cx.polynomial(square, &opaque), &wanted) {
                return Some(Spread { x, mean: Some(mean), axes, epsilon, opaque });
            }
        }
    }
    let x = parts
        .into_iter()
        .find(|&x| same(&cx.polynomial(square, &[x]), &Polynomial::from([(vec![v(x); 2], 1.0)])))?;
    Some(Spread { x, mean: None, axes, epsilon, opaque: vec![x] })
}

/// Weight and bias of `weight * (x - mean) / root + bias`.
type Affine = (Option<ValueId>, Option<ValueId>);

/// Reads weight and bias off the terms; `None` when they are other than that.
fn affine(cx: &Rewrite<'_>, spread: &Spread, root: ValueId, terms: &Polynomial) -> Option<Affine> {
    let mut rest = terms.clone();
    let over_root = |id: ValueId| [Factor::Value(id), Factor::Inverse(root)];
    let mut take = |id: ValueId, coefficient: f64| {
        let product = rest.iter().find_map(|(product, &c)| {
            let fits = (c - coefficient).abs() < 1e-6 && over_root(id).iter().all(|f| product.contains(f));
            fits.then(|| product.clone())
        })?;
        rest.remove(&product);
        let others: Vec<Factor> = product.into_iter().filter(|f| !over_root(id).contains(f)).collect();
        Some(others)
    };
    let weight = take(spread.x, 1.0)?;
    if let Some(mean) = spread.mean
        && take(mean, -1.0)? != weight
    {
        return None;
    }
    let parameter = |factors: &[Factor]| match factors {
        [] => Some(None),
        &[Factor::Value(id)] if cx.constant(id).is_some() => Some(Some(id)),
        _ => None,
    };
    let weight = parameter(&weight)?;
    let bias = match rest.iter().next() {
        None => None,
        Some((product, 1.0)) if rest.len() == 1 && !product.is_empty() => parameter(product)?,
        _ => return None,
    };
    Some((weight, bias))
}

/// Sizes of the normalized axes, which must be the last ones and known.
fn normalized(cx: &Rewrite<'_>, x: ValueId, axes: &[usize]) -> Option<Vec<usize>> {
    let ty = cx.ty(x);
    let first = ty.rank().checked_sub(axes.len())?;
    let last = axes.iter().copied().eq(first..ty.rank());
    if !last {
        return None;
    }
    ty.dims[first..].iter().map(Dim::as_size).collect()
}

/// A constant that broadcasts over the leading axes, with just the trailing ones.
pub(super) fn trailing(cx: &mut Rewrite<'_>, id: ValueId, sizes: &[usize]) -> Option<ValueId> {
    let shape = cx.ty(id).shape()?;
    let skip = shape.len().checked_sub(sizes.len())?;
    let fits = shape[..skip].iter().all(|&size| size == 1) && shape[skip..] == *sizes;
    if fits { constant_as(cx, id, sizes.to_vec()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Builder;
    use crate::passes::testing::{checked, constant, graph};

    fn bin(b: &mut Builder<'_>, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
        b.add(Op::Binary(op), &[x, y]).unwrap()
    }

    fn mean(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        b.add(Op::Reduce { op: ReduceOp::Mean, axes: vec![2], keep_dims: true }, &[x]).unwrap()
    }

    fn parameters(b: &mut Builder<'_>) -> (ValueId, ValueId) {
        let weight = constant(b, Some("norm.weight"), &[1, 1, 4], &[1.0, 2.0, 0.5, -1.0]);
        let bias = constant(b, Some("norm.bias"), &[1, 1, 4], &[0.1, 0.2, 0.3, 0.4]);
        (weight, bias)
    }

    fn root(b: &mut Builder<'_>, square: ValueId) -> ValueId {
        let epsilon = constant(b, None, &[], &[1e-5]);
        let variance = mean(b, square);
        let sum = bin(b, BinaryOp::Add, variance, epsilon);
        b.add(Op::Unary(UnaryOp::Sqrt), &[sum]).unwrap()
    }

    /// TorchScript before opset 17: `(x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b`.
    fn torch(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (weight, bias) = parameters(b);
        let m = mean(b, x);
        let d = bin(b, BinaryOp::Sub, x, m);
        let two = constant(b, None, &[], &[2.0]);
        let square = bin(b, BinaryOp::Pow, d, two);
        let s = root(b, square);
        let y = bin(b, BinaryOp::Div, d, s);
        let y = bin(b, BinaryOp::Mul, y, weight);
        bin(b, BinaryOp::Add, y, bias)
    }

    /// TensorFlow: `x * (rsqrt * w) + (b - mean * (rsqrt * w))`, the difference spelt twice.
    fn tensorflow(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (weight, bias) = parameters(b);
        let m = mean(b, x);
        let d = bin(b, BinaryOp::Sub, x, m);
        let square = bin(b, BinaryOp::Mul, d, d);
        let s = root(b, square);
        let inverse = b.add(Op::Unary(UnaryOp::Recip), &[s]).unwrap();
        let scale = bin(b, BinaryOp::Mul, inverse, weight);
        let left = bin(b, BinaryOp::Mul, x, scale);
        let shift = bin(b, BinaryOp::Mul, m, scale);
        let right = bin(b, BinaryOp::Sub, bias, shift);
        bin(b, BinaryOp::Add, left, right)
    }

    /// LLaMA: `w * (x * rsqrt(mean(x^2) + eps))`.
    fn llama(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (weight, _) = parameters(b);
        let square = bin(b, BinaryOp::Mul, x, x);
        let s = root(b, square);
        let one = constant(b, None, &[], &[1.0]);
        let inverse = bin(b, BinaryOp::Div, one, s);
        let y = bin(b, BinaryOp::Mul, x, inverse);
        bin(b, BinaryOp::Mul, weight, y)
    }

    #[test]
    fn every_spelling_is_raised() {
        type Spelling = fn(&mut Builder<'_>, ValueId) -> ValueId;
        let cases: [(&str, Spelling, bool); 3] =
            [("torch", torch, true), ("tensorflow", tensorflow, true), ("llama", llama, false)];
        for (name, spelling, layer) in cases {
            let g = graph(&["f32[a, n, 4]", "f32[a, n, 4]"], |b, x| {
                // A residual sum before it must not hide it.
                let x = bin(b, BinaryOp::Add, x[0], x[1]);
                vec![spelling(b, x)]
            });
            let g = checked(g, &[("a", 2), ("n", 3)]);
            let node = g.node(*g.root.nodes.last().unwrap());
            assert_eq!(g.root.nodes.len(), 2, "{name}\n{g}");
            match node.op {
                Op::LayerNorm { epsilon } => assert!(layer && (epsilon - 1e-5).abs() < 1e-9),
                Op::RmsNorm { .. } => assert!(!layer),
                _ => panic!("{name}\n{g}"),
            }
            let weight = g.constant(node.inputs[1].unwrap()).unwrap();
            assert_eq!((weight.name.as_deref(), &weight.data.shape[..]), (Some("norm.weight"), &[4][..]));
        }
    }
}
