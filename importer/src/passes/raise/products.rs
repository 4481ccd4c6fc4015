//! Activations that are products or sums over one inner function: GELU, SiLU, Mish, the hard ones, softplus, sigmoid.

use crate::ir::Op;
use crate::ir::ValueId;
use crate::passes::matcher::{Factor, Polynomial, close, same};
use crate::passes::{Rewrite, Rule};
use kiln_types::{Activation, BinaryOp, CompareOp, UnaryOp};

pub(in crate::passes) const RULE: Rule = Rule { apply };

/// The function inside.
#[derive(Clone, Copy)]
enum Inner {
    Erf,
    Tanh,
    Sigmoid,
    HardSigmoid,
    /// `clamp(y, 0, 6)`.
    Relu6,
    /// `tanh(softplus(y))`.
    TanhSoftplus,
}

/// `Σ coefficient · x^power` inside, `Σ coefficient · x^power · inner^power` outside.
struct Shape {
    activation: Activation,
    inner: Inner,
    argument: &'static [(f64, usize)],
    result: &'static [(f64, usize, usize)],
}

const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
const CUBE: f64 = 0.044_715 * SQRT_2_OVER_PI;
const HALF_SQRT_2: f64 = std::f64::consts::FRAC_1_SQRT_2;

const SHAPES: &[Shape] = &[
    Shape {
        activation: Activation::Gelu,
        inner: Inner::Erf,
        argument: &[(HALF_SQRT_2, 1)],
        result: &[(0.5, 1, 0), (0.5, 1, 1)],
    },
    Shape {
        activation: Activation::GeluTanh,
        inner: Inner::Tanh,
        argument: &[(SQRT_2_OVER_PI, 1), (CUBE, 3)],
        result: &[(0.5, 1, 0), (0.5, 1, 1)],
    },
    Shape {
        activation: Activation::GeluTanh,
        inner: Inner::Sigmoid,
        argument: &[(2.0 * SQRT_2_OVER_PI, 1), (2.0 * CUBE, 3)],
        result: &[(1.0, 1, 1)],
    },
    Shape {
        activation: Activation::Silu,
        inner: Inner::Sigmoid,
        argument: &[(1.0, 1)],
        result: &[(1.0, 1, 1)],
    },
    Shape {
        activation: Activation::Mish,
        inner: Inner::TanhSoftplus,
        argument: &[(1.0, 1)],
        result: &[(1.0, 1, 1)],
    },
    Shape {
        activation: Activation::HardSwish,
        inner: Inner::HardSigmoid,
        argument: &[(1.0, 1)],
        result: &[(1.0, 1, 1)],
    },
    Shape {
        activation: Activation::HardSwish,
        inner: Inner::Relu6,
        argument: &[(1.0, 1), (3.0, 0)],
        result: &[(1.0 / 6.0, 1, 1)],
    },
    Shape {
        activation: Activation::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 },
        inner: Inner::Relu6,
        argument: &[(1.0, 1), (3.0, 0)],
        result: &[(1.0 / 6.0, 0, 1)],
    },
];

/// How far from the result the inner function may stand.
const DEPTH: usize = 4;

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let output = cx.output().filter(|&output| cx.ty(output).dtype.is_float())?;
    match cx.op() {
        Op::Binary(BinaryOp::Div) => over_sigmoid(cx).or_else(|| product(cx, output)),
        Op::Binary(BinaryOp::Mul | BinaryOp::Add) => product(cx, output),
        Op::Unary(UnaryOp::Recip) => sigmoid(cx),
        Op::Unary(UnaryOp::Log | UnaryOp::Log1p) => softplus(cx),
        Op::Clamp(_) => hard_sigmoid(cx, output),
        Op::Where => guarded_softplus(cx),
        _ => None,
    }
}

fn product(cx: &mut Rewrite<'_>, output: ValueId) -> Option<&'static str> {
    let around = cx.arguments(output, DEPTH);
    let dtype = cx.ty(output).dtype;
    for shape in SHAPES {
        for &inner in &around {
            let Some(argument) = operand(cx, shape.inner, inner) else {
                continue;
            };
            for x in cx.arguments(argument, DEPTH) {
                if cx.ty(x) == cx.ty(output)
                    && same(dtype, &cx.polynomial(argument, &[x]), &over(x, shape.argument))
                    && same(dtype, &cx.polynomial(output, &[x, inner]), &over_both(x, inner, shape.result))
                {
                    cx.replace(Op::Activation(shape.activation), vec![Some(x)])?;
                    return Some(name(shape.activation));
                }
            }
        }
    }
    None
}

/// The argument of the inner function, when `id` is one.
fn operand(cx: &Rewrite<'_>, inner: Inner, id: ValueId) -> Option<ValueId> {
    if let Inner::Erf = inner {
        return cx.unary(id, UnaryOp::Erf);
    }
    let (activation, x) = cx.activated(id)?;
    match (inner, activation) {
        (Inner::Tanh, Activation::Tanh) | (Inner::Sigmoid, Activation::Sigmoid) => Some(x),
        (Inner::TanhSoftplus, Activation::Tanh) => match cx.activated(x)? {
            (Activation::Softplus, x) => Some(x),
            _ => None,
        },
        (Inner::HardSigmoid, Activation::HardSigmoid { alpha, beta }) => {
            (close(alpha, 1.0 / 6.0) && close(beta, 0.5)).then_some(x)
        }
        (Inner::Relu6, Activation::Clamp { min: 0.0, max: 6.0 }) => Some(x),
        _ => None,
    }
}

fn over(x: ValueId, terms: &[(f64, usize)]) -> Polynomial {
    terms.iter().map(|&(coefficient, power)| (vec![Factor::Value(x); power], coefficient)).collect()
}

fn over_both(x: ValueId, inner: ValueId, terms: &[(f64, usize, usize)]) -> Polynomial {
    let product = |&(coefficient, powers, inners): &(f64, usize, usize)| {
        let mut factors = vec![Factor::Value(x); powers];
        factors.extend(vec![Factor::Value(inner); inners]);
        factors.sort();
        (factors, coefficient)
    };
    terms.iter().map(product).collect()
}

/// `1 / (1 + exp(-x))`.
fn sigmoid(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let x = one_plus_exp_minus(cx, cx.input(0)?)?;
    cx.replace(Op::Activation(Activation::Sigmoid), vec![Some(x)])?;
    Some("sigmoid")
}

/// `y / (1 + exp(-x))`.
fn over_sigmoid(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (y, x) = (cx.input(0)?, one_plus_exp_minus(cx, cx.input(1)?)?);
    if x == y {
        cx.replace(Op::Activation(Activation::Silu), vec![Some(x)])?;
        return Some("silu");
    }
    let sigmoid = cx.insert(Op::Activation(Activation::Sigmoid), &[x])?;
    cx.replace(Op::Binary(BinaryOp::Mul), vec![Some(y), Some(sigmoid)])?;
    Some("sigmoid")
}

/// The `x` of `1 + exp(-x)`.
fn one_plus_exp_minus(cx: &Rewrite<'_>, id: ValueId) -> Option<ValueId> {
    let negated = cx.unary(one_plus(cx, id)?, UnaryOp::Exp)?;
    match (cx.unary(negated, UnaryOp::Neg), cx.scaled(negated)) {
        (Some(x), _) | (None, (-1.0, x)) => Some(x),
        _ => None,
    }
}

/// `ln(1 + exp(x))`.
fn softplus(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let argument = cx.input(0)?;
    let exp = match cx.op() {
        Op::Unary(UnaryOp::Log1p) => argument,
        _ => one_plus(cx, argument)?,
    };
    let x = cx.unary(exp, UnaryOp::Exp)?;
    cx.replace(Op::Activation(Activation::Softplus), vec![Some(x)])?;
    Some("softplus")
}

/// `x > 20 ? x : softplus(x)`, as PyTorch guards from overflow; above 20 they are equal.
fn guarded_softplus(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (condition, x, y) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let compare = cx.producer(condition).filter(|node| node.op == Op::Compare(CompareOp::Greater))?;
    let threshold = compare.inputs.get(1).copied().flatten().and_then(|id| cx.scalar(id))?;
    let guards = compare.inputs.first() == Some(&Some(x)) && threshold >= 15.0;
    if !guards || cx.activated(y) != Some((Activation::Softplus, x)) {
        return None;
    }
    cx.redirect(y)?;
    Some("softplus")
}

/// `1 + y`.
fn one_plus(cx: &Rewrite<'_>, id: ValueId) -> Option<ValueId> {
    let one = |id: ValueId| cx.scalar(id) == Some(1.0);
    cx.commutative(id, BinaryOp::Add, one).map(|(_, y)| y)
}

/// `clamp(alpha x + beta, 0, 1)`.
fn hard_sigmoid(cx: &mut Rewrite<'_>, output: ValueId) -> Option<&'static str> {
    let (Activation::Clamp { min: 0.0, max: 1.0 }, argument) = cx.activated(output)? else {
        return None;
    };
    for x in cx.arguments(argument, 3).into_iter().filter(|&x| x != argument) {
        let p = cx.polynomial(argument, &[x]);
        let (alpha, beta) = (p.get(&vec![Factor::Value(x)]), p.get(&Vec::new()));
        if let (Some(&alpha), Some(&beta), 2) = (alpha, beta, p.len()) {
            cx.replace(Op::Activation(Activation::HardSigmoid { alpha, beta }), vec![Some(x)])?;
            return Some("hard_sigmoid");
        }
    }
    None
}

/// What a report says.
fn name(activation: Activation) -> &'static str {
    match activation {
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu (tanh)",
        Activation::Silu => "silu",
        Activation::Mish => "mish",
        Activation::HardSwish => "hard_swish",
        Activation::HardSigmoid { .. } => "hard_sigmoid",
        _ => "activation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Builder, Clamp};
    use crate::passes::testing::{checked, constant, graph, single};

    type Spelling = fn(&mut Builder<'_>, ValueId) -> ValueId;

    fn c(b: &mut Builder<'_>, value: f32) -> ValueId {
        constant(b, None, &[], &[value])
    }

    fn bin(b: &mut Builder<'_>, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
        b.add(Op::Binary(op), &[x, y]).unwrap()
    }

    fn un(b: &mut Builder<'_>, op: UnaryOp, x: ValueId) -> ValueId {
        b.add(Op::Unary(op), &[x]).unwrap()
    }

    fn act(b: &mut Builder<'_>, activation: Activation, x: ValueId) -> ValueId {
        b.add(Op::Activation(activation), &[x]).unwrap()
    }

    /// PyTorch's exporters: `0.5 * (x * (1 + erf(x / sqrt(2))))`.
    fn gelu_torch(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (root, one, half) = (c(b, std::f32::consts::SQRT_2), c(b, 1.0), c(b, 0.5));
        let d = bin(b, BinaryOp::Div, x, root);
        let e = un(b, UnaryOp::Erf, d);
        let s = bin(b, BinaryOp::Add, e, one);
        let p = bin(b, BinaryOp::Mul, x, s);
        bin(b, BinaryOp::Mul, half, p)
    }

    /// TensorFlow: `(0.5 * x) * (1 + erf(x * 0.7071))`.
    fn gelu_tensorflow(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (root, one, half) = (c(b, HALF_SQRT_2 as f32), c(b, 1.0), c(b, 0.5));
        let d = bin(b, BinaryOp::Mul, root, x);
        let e = un(b, UnaryOp::Erf, d);
        let s = bin(b, BinaryOp::Add, one, e);
        let p = bin(b, BinaryOp::Mul, half, x);
        bin(b, BinaryOp::Mul, p, s)
    }

    /// GPT-2's `NewGELUActivation`.
    fn gelu_tanh(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (three, k, one, half) = (c(b, 3.0), c(b, 0.044_715), c(b, 1.0), c(b, 0.5));
        let root = c(b, SQRT_2_OVER_PI as f32);
        let cube = bin(b, BinaryOp::Pow, x, three);
        let cube = bin(b, BinaryOp::Mul, cube, k);
        let sum = bin(b, BinaryOp::Add, x, cube);
        let inner = bin(b, BinaryOp::Mul, sum, root);
        let t = un(b, UnaryOp::Tanh, inner);
        let s = bin(b, BinaryOp::Add, t, one);
        let p = bin(b, BinaryOp::Mul, x, half);
        bin(b, BinaryOp::Mul, p, s)
    }

    /// `x * x * x`, distributed: `0.79788 * x * (1 + 0.044715 * x * x)`.
    fn gelu_tanh_factored(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (k, one, half) = (c(b, 0.044_715), c(b, 1.0), c(b, 0.5));
        let root = c(b, SQRT_2_OVER_PI as f32);
        let kx = bin(b, BinaryOp::Mul, k, x);
        let kxx = bin(b, BinaryOp::Mul, kx, x);
        let s = bin(b, BinaryOp::Add, one, kxx);
        let rx = bin(b, BinaryOp::Mul, x, root);
        let inner = bin(b, BinaryOp::Mul, rx, s);
        let t = un(b, UnaryOp::Tanh, inner);
        let s = bin(b, BinaryOp::Add, t, one);
        let p = bin(b, BinaryOp::Mul, s, x);
        bin(b, BinaryOp::Mul, p, half)
    }

    fn silu(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let s = act(b, Activation::Sigmoid, x);
        bin(b, BinaryOp::Mul, x, s)
    }

    fn silu_spelt_out(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let one = c(b, 1.0);
        let n = un(b, UnaryOp::Neg, x);
        let e = un(b, UnaryOp::Exp, n);
        let d = bin(b, BinaryOp::Add, e, one);
        bin(b, BinaryOp::Div, x, d)
    }

    fn mish(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let one = c(b, 1.0);
        let e = un(b, UnaryOp::Exp, x);
        let s = bin(b, BinaryOp::Add, one, e);
        let s = un(b, UnaryOp::Log, s);
        let t = un(b, UnaryOp::Tanh, s);
        bin(b, BinaryOp::Mul, x, t)
    }

    fn hard_swish(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let (three, six) = (c(b, 3.0), c(b, 6.0));
        let s = bin(b, BinaryOp::Add, x, three);
        let (min, max) = (Some(0.0f32.into()), Some(6.0f32.into()));
        let s = b.add(Op::Clamp(Clamp { min, max }), &[s]).unwrap();
        let p = bin(b, BinaryOp::Mul, x, s);
        bin(b, BinaryOp::Div, p, six)
    }

    fn hard_swish_by_sigmoid(b: &mut Builder<'_>, x: ValueId) -> ValueId {
        let h = act(b, Activation::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 }, x);
        bin(b, BinaryOp::Mul, h, x)
    }

    #[test]
    fn every_spelling_is_raised() {
        let cases: [(&str, Spelling, Activation); 9] = [
            ("gelu, PyTorch", gelu_torch, Activation::Gelu),
            ("gelu, TensorFlow", gelu_tensorflow, Activation::Gelu),
            ("gelu tanh, GPT-2", gelu_tanh, Activation::GeluTanh),
            ("gelu tanh, factored", gelu_tanh_factored, Activation::GeluTanh),
            ("silu", silu, Activation::Silu),
            ("silu, spelt out", silu_spelt_out, Activation::Silu),
            ("mish", mish, Activation::Mish),
            ("hard_swish", hard_swish, Activation::HardSwish),
            ("hard_swish by hard_sigmoid", hard_swish_by_sigmoid, Activation::HardSwish),
        ];
        for (name, spelling, activation) in cases {
            let g = checked(graph(&["f32[n, 7]"], |b, x| vec![spelling(b, x[0])]), &[("n", 5)]);
            assert_eq!(single(&g).op, Op::Activation(activation), "{name}\n{g}");
        }
    }
}
