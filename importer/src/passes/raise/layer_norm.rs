//! Layer and RMS normalization from means, squares and roots.
//!
//! Both end in a sum of products over `x`, its mean `m` and `1 / s`, `s = sqrt(mean(square) + epsilon)`:
//! `x / s - m / s`, times a weight, plus a bias; TensorFlow multiplies the weight into `1 / s` first. As polynomials all
//! are one shape. Flax spells the mean of squares as `mean(x^2) - m^2`. Axes that are not the last are moved there.

use crate::ir::{LayerNorm, Op, Permute, RmsNorm, ValueId};
use crate::passes::matcher::{Factor, Polynomial, close, same};
use crate::passes::movement::constant_as;
use crate::passes::{Rewrite, Rule};
use kiln_types::{Activation, BinaryOp, ReduceOp, Scalar, UnaryOp};

pub(in crate::passes) const RULE: Rule = Rule { apply };

/// How far from the result the root may stand.
const DEPTH: usize = 5;

/// Elements of a weight that is made where a norm has none: more are those of images, whose norms have no weight.
const MOST_MADE: usize = 1 << 16;

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let output = cx.output().filter(|&output| cx.ty(output).dtype.is_float())?;
    if !matches!(cx.op(), Op::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Add | BinaryOp::Sub)) {
        return None;
    }
    // The root may stand under a reciprocal, which is arithmetic too.
    let roots = cx.arguments(output, DEPTH);
    let root = roots.into_iter().find(|&id| cx.unary(id, UnaryOp::Sqrt).is_some())?;
    let spread = spread(cx, root, output)?;
    let terms = cx.polynomial(output, &[&spread.opaque[..], &[root]].concat());
    let (weight, bias) = affine(cx, &spread, root, &terms)?;
    let (op, what) = match spread.mean {
        Some(_) => (Op::LayerNorm(LayerNorm { epsilon: spread.epsilon }), "layer_norm"),
        None if bias.is_none() => (Op::RmsNorm(RmsNorm { epsilon: spread.epsilon }), "rms_norm"),
        None => return None,
    };
    let sizes: Vec<usize> =
        spread.axes.iter().map(|&axis| cx.ty(spread.x).dims[axis].as_size()).collect::<Option<_>>()?;
    let weight = match weight {
        Some(weight) => along(cx, weight, &spread, &sizes)?,
        // None is made of what a norm over many elements has not.
        None if sizes.iter().try_fold(1, |product: usize, &size| product.checked_mul(size))? > MOST_MADE => {
            return None;
        }
        None => {
            let ones = crate::data::fill(&sizes, Scalar::Float(1.0), cx.ty(spread.x).dtype)?;
            cx.add_constant(None, ones)
        }
    };
    let bias = match bias {
        Some(bias) => Some(along(cx, bias, &spread, &sizes)?),
        None => None,
    };
    let rank = cx.ty(spread.x).rank();
    let order: Vec<usize> =
        (0..rank).filter(|axis| !spread.axes.contains(axis)).chain(spread.axes.iter().copied()).collect();
    if order.is_sorted() {
        cx.replace(op, [spread.x, weight].into_iter().chain(bias).map(Some).collect())?;
        return Some(what);
    }
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
    let turned = cx.insert(Op::Permute(Permute { axes: order }), &[spread.x])?;
    let operands: Vec<ValueId> = [turned, weight].into_iter().chain(bias).collect();
    let y = cx.insert(op, &operands)?;
    cx.replace(Op::Permute(Permute { axes: back }), vec![Some(y)])?;
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

fn spread(cx: &Rewrite<'_>, root: ValueId, output: ValueId) -> Option<Spread> {
    let radicand = cx.unary(root, UnaryOp::Sqrt)?;
    let (epsilon, variance) = cx.commutative(radicand, BinaryOp::Add, |id| cx.scalar(id).is_some())?;
    let epsilon = cx.scalar(epsilon).filter(|&epsilon| epsilon >= 0.0)?;
    if let Some((x, axes)) = difference_of_means(cx, variance) {
        let wanted = Some((x, axes.clone()));
        let parts = cx.arguments(output, DEPTH);
        let mean = parts.into_iter().find(|&id| cx.kept_reduction(id, ReduceOp::Mean) == wanted)?;
        return Some(Spread { x, mean: Some(mean), axes, epsilon, opaque: vec![x, mean] });
    }
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
            if same(cx.ty(x).dtype, &cx.polynomial(square, &opaque), &wanted) {
                return Some(Spread { x, mean: Some(mean), axes, epsilon, opaque });
            }
        }
    }
    let squared = |x: ValueId| Polynomial::from([(vec![v(x); 2], 1.0)]);
    let x = parts.into_iter().find(|&x| same(cx.ty(x).dtype, &cx.polynomial(square, &[x]), &squared(x)))?;
    Some(Spread { x, mean: None, axes, epsilon, opaque: vec![x] })
}

/// `mean(x^2) - mean(x)^2`, perhaps kept from falling below zero: `x` and the axes.
fn difference_of_means(cx: &Rewrite<'_>, variance: ValueId) -> Option<(ValueId, Vec<usize>)> {
    let mut id = variance;
    while let Some(node) = cx.producer(id)
        && matches!(node.op, Op::Reshape(_) | Op::Activation(Activation::Relu))
    {
        id = node.inputs.first().copied().flatten()?;
    }
    let (mean_of_square, square_of_mean) = cx.binary(id, BinaryOp::Sub)?;
    let (square, axes) = cx.reduction(mean_of_square, ReduceOp::Mean)?;
    let (mean, same_mean) = cx.binary(square_of_mean, BinaryOp::Mul)?;
    let (x, mean_axes) = cx.reduction(mean, ReduceOp::Mean)?;
    let squared = Polynomial::from([(vec![Factor::Value(x); 2], 1.0)]);
    let is_square = same(cx.ty(x).dtype, &cx.polynomial(square, &[x]), &squared);
    // Reshaped otherwise, each row would meet the variances of all.
    let fits = mean == same_mean && axes == mean_axes && is_square && cx.keeps_axes(variance, x, &axes);
    fits.then_some((x, axes))
}

/// Weight and bias of `weight * (x - mean) / root + bias`.
type Affine = (Option<ValueId>, Option<ValueId>);

/// Reads weight and bias off the terms; `None` when they are other than that.
fn affine(cx: &Rewrite<'_>, spread: &Spread, root: ValueId, terms: &Polynomial) -> Option<Affine> {
    let mut rest = terms.clone();
    // The other factors of the term `coefficient · id / root`: one of each is taken, `id²` leaves one behind.
    let mut take = |id: ValueId, coefficient: f64| {
        let (product, others) = rest.iter().find_map(|(product, &c)| {
            let mut others = product.clone();
            for factor in [Factor::Value(id), Factor::Inverse(root)] {
                let at = others.iter().position(|other| *other == factor)?;
                others.remove(at);
            }
            close(c, coefficient).then(|| (product.clone(), others))
        })?;
        rest.remove(&product);
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

/// A constant that varies over the normalized axes alone, with just those.
fn along(cx: &mut Rewrite<'_>, id: ValueId, spread: &Spread, sizes: &[usize]) -> Option<ValueId> {
    let shape = cx.ty(id).shape()?;
    let wanted = |axis: usize| {
        let place = spread.axes.iter().position(|&normalized| normalized == axis);
        place.and_then(|n| sizes.get(n).copied()).unwrap_or(1)
    };
    let fits = shape.iter().copied().eq((0..cx.ty(spread.x).rank()).map(wanted));
    if fits { constant_as(cx, id, sizes.to_vec()) } else { None }
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
    use crate::ir::{Builder, Dim, LayerNorm, Reduce, Reshape};
    use crate::passes::testing::{checked, constant, graph};

    fn bin(b: &mut Builder<'_>, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
        b.add(Op::Binary(op), &[x, y]).unwrap()
    }

    fn mean(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        b.add(Op::Reduce(Reduce { op: ReduceOp::Mean, axes: vec![2], keep_dims: true }), &[x]).unwrap()
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

    /// Flax: `(x - mean) * (rsqrt(relu(mean(x^2) - mean^2) + eps) * w) + b`, over axes that come back after.
    fn flax(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (weight, bias) = parameters(b);
        let reduced = |b: &mut Builder<'_>, x| {
            b.add(Op::Reduce(Reduce { op: ReduceOp::Mean, axes: vec![2], keep_dims: false }), &[x]).unwrap()
        };
        let square = bin(b, BinaryOp::Mul, x, x);
        let square = reduced(b, square);
        let m = reduced(b, x);
        let squared = bin(b, BinaryOp::Mul, m, m);
        let variance = bin(b, BinaryOp::Sub, square, squared);
        let variance = b.add(Op::Activation(Activation::Relu), &[variance]).unwrap();
        let kept = vec![Dim::symbol("a"), Dim::symbol("n"), 1.into()];
        let variance = b.add(Op::Reshape(Reshape { dims: kept.clone() }), &[variance]).unwrap();
        let m = b.add(Op::Reshape(Reshape { dims: kept }), &[m]).unwrap();
        let epsilon = constant(b, None, &[], &[1e-5]);
        let sum = bin(b, BinaryOp::Add, variance, epsilon);
        let s = b.add(Op::Unary(UnaryOp::Sqrt), &[sum]).unwrap();
        let inverse = b.add(Op::Unary(UnaryOp::Recip), &[s]).unwrap();
        let scale = bin(b, BinaryOp::Mul, inverse, weight);
        let d = bin(b, BinaryOp::Sub, x, m);
        let y = bin(b, BinaryOp::Mul, d, scale);
        bin(b, BinaryOp::Add, y, bias)
    }

    /// Over the channels of an image, as `LayerNorm2d` is written by hand.
    #[test]
    fn an_axis_in_the_middle_is_moved() {
        let g = graph(&["f32[n, 3, h, 2]"], |b, x| {
            let weight = constant(b, Some("norm.weight"), &[1, 3, 1, 1], &[1.0, 2.0, 0.5]);
            let bias = constant(b, Some("norm.bias"), &[1, 3, 1, 1], &[0.1, 0.2, 0.3]);
            let mean = |b: &mut Builder<'_>, x| {
                b.add(Op::Reduce(Reduce { op: ReduceOp::Mean, axes: vec![1], keep_dims: true }), &[x])
                    .unwrap()
            };
            let m = mean(b, x[0]);
            let d = bin(b, BinaryOp::Sub, x[0], m);
            let square = bin(b, BinaryOp::Mul, d, d);
            let variance = mean(b, square);
            let epsilon = constant(b, None, &[], &[1e-5]);
            let sum = bin(b, BinaryOp::Add, variance, epsilon);
            let s = b.add(Op::Unary(UnaryOp::Sqrt), &[sum]).unwrap();
            let y = bin(b, BinaryOp::Div, d, s);
            let y = bin(b, BinaryOp::Mul, y, weight);
            vec![bin(b, BinaryOp::Add, y, bias)]
        });
        let g = checked(g, &[("n", 2), ("h", 3)]);
        let kinds: Vec<String> = g.root.nodes.iter().map(|&id| g.node(id).op.kind()).collect();
        assert_eq!(kinds, ["Permute", "LayerNorm", "Permute"]);
    }

    /// A file of some bytes may declare rows of any length, and a weight of ones would be as long.
    #[test]
    fn no_long_weight_is_made_for_a_norm_without_one() {
        for (length, kind) in [(MOST_MADE, "LayerNorm"), (MOST_MADE + 1, "Unary(Sqrt)")] {
            let g = graph(&[&format!("f32[1, 2, {length}]")], |b, x| {
                let m = mean(b, x[0]);
                let d = bin(b, BinaryOp::Sub, x[0], m);
                let square = bin(b, BinaryOp::Mul, d, d);
                let s = root(b, square);
                vec![bin(b, BinaryOp::Div, d, s)]
            });
            let g = checked(g, &[]);
            let kinds: Vec<String> = g.root.nodes.iter().map(|&id| g.node(id).op.kind()).collect();
            assert!(kinds.iter().any(|found| found == kind), "{length}: {kinds:?}");
        }
    }

    /// Formulas that look like a norm and are none.
    #[test]
    fn variances_of_other_rows_are_no_norm() {
        let g = graph(&["f32[4, 4]"], |b, x| {
            let x = x[0];
            let reduced = |b: &mut Builder<'_>, x| {
                b.add(Op::Reduce(Reduce { op: ReduceOp::Mean, axes: vec![1], keep_dims: false }), &[x])
                    .unwrap()
            };
            let shaped = |b: &mut Builder<'_>, x, dims: [i64; 2]| {
                b.add(Op::Reshape(Reshape { dims: dims.map(Dim::from).to_vec() }), &[x]).unwrap()
            };
            let square = bin(b, BinaryOp::Mul, x, x);
            let (square, m) = (reduced(b, square), reduced(b, x));
            let squared = bin(b, BinaryOp::Mul, m, m);
            let variance = bin(b, BinaryOp::Sub, square, squared);
            let variance = b.add(Op::Activation(Activation::Relu), &[variance]).unwrap();
            let (variance, m) = (shaped(b, variance, [1, 4]), shaped(b, m, [4, 1]));
            let epsilon = constant(b, None, &[], &[1e-3]);
            let sum = bin(b, BinaryOp::Add, variance, epsilon);
            let s = b.add(Op::Unary(UnaryOp::Sqrt), &[sum]).unwrap();
            let d = bin(b, BinaryOp::Sub, x, m);
            vec![bin(b, BinaryOp::Div, d, s)]
        });
        checked(g, &[]);
    }

    #[test]
    fn other_powers_are_no_norm() {
        type Spelling = fn(&mut Builder<'_>, ValueId, ValueId, Option<ValueId>) -> ValueId;
        let cases: [(&str, Spelling); 6] = [
            ("x² / s", |b, x, s, _| {
                let square = bin(b, BinaryOp::Mul, x, x);
                bin(b, BinaryOp::Div, square, s)
            }),
            ("x / s²", |b, x, s, _| {
                let squared = bin(b, BinaryOp::Mul, s, s);
                bin(b, BinaryOp::Div, x, squared)
            }),
            ("x³ / s", |b, x, s, _| {
                let square = bin(b, BinaryOp::Mul, x, x);
                let cube = bin(b, BinaryOp::Mul, square, x);
                bin(b, BinaryOp::Div, cube, s)
            }),
            ("1.0009 x / s", |b, x, s, _| {
                let factor = constant(b, None, &[], &[1.0009]);
                let x = bin(b, BinaryOp::Mul, x, factor);
                bin(b, BinaryOp::Div, x, s)
            }),
            ("(x - m) / s²", |b, x, s, m| {
                let inverse = b.add(Op::Unary(UnaryOp::Recip), &[s]).unwrap();
                let squared = bin(b, BinaryOp::Mul, inverse, inverse);
                let d = bin(b, BinaryOp::Sub, x, m.unwrap());
                bin(b, BinaryOp::Mul, d, squared)
            }),
            ("(x - 1.0009 m) / s", |b, x, s, m| {
                let factor = constant(b, None, &[], &[1.0009]);
                let m = bin(b, BinaryOp::Mul, m.unwrap(), factor);
                let d = bin(b, BinaryOp::Sub, x, m);
                bin(b, BinaryOp::Div, d, s)
            }),
        ];
        for (name, spelling) in cases {
            let g = graph(&["f32[a, n, 4]"], |b, x| {
                let m = name.contains('m').then(|| mean(b, x[0]));
                let d = m.map_or(x[0], |m| bin(b, BinaryOp::Sub, x[0], m));
                let square = bin(b, BinaryOp::Mul, d, d);
                let s = root(b, square);
                vec![spelling(b, x[0], s, m)]
            });
            let g = checked(g, &[("a", 2), ("n", 3)]);
            let is_norm = |op: &Op| matches!(op, Op::LayerNorm(_) | Op::RmsNorm(_));
            assert!(g.root.nodes.iter().all(|&id| !is_norm(&g.node(id).op)), "{name}\n{g}");
        }
    }

    #[test]
    fn every_spelling_is_raised() {
        type Spelling = fn(&mut Builder<'_>, ValueId) -> ValueId;
        let cases: [(&str, Spelling, bool); 4] = [
            ("torch", torch, true),
            ("tensorflow", tensorflow, true),
            ("flax", flax, true),
            ("llama", llama, false),
        ];
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
                Op::LayerNorm(LayerNorm { epsilon }) => assert!(layer && (epsilon - 1e-5).abs() < 1e-9),
                Op::RmsNorm(_) => assert!(!layer),
                _ => panic!("{name}\n{g}"),
            }
            let weight = g.constant(node.inputs[1].unwrap()).unwrap();
            assert_eq!((weight.name.as_deref(), &weight.data.shape[..]), (Some("norm.weight"), &[4][..]));
        }
    }
}
