//! What rules ask of a value: which operation computes it, from what, by what number.
//!
//! Arithmetic is matched as polynomials: `0.5 * x * (1 + e)`, `x * (e + 1) / 2` and `x / 2 + x * e / 2` are the same sum
//! of products over `x` and `e`, so one shape covers every exporter's spelling.

use super::Rewrite;
use crate::ir::{Dim, Fill, Op, Reduce, ValueId};
use kiln_types::{Activation, BinaryOp, DType, ReduceOp, TensorData, UnaryOp, bf16, f16};
use std::collections::BTreeMap;

/// A factor of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Factor {
    /// The value.
    Value(ValueId),
    /// 1 / the value.
    Inverse(ValueId),
}

/// A sum of products, each with a coefficient; the empty product is the constant.
pub(super) type Polynomial = BTreeMap<Vec<Factor>, f64>;

/// Larger sums are no pattern.
const MAX_TERMS: usize = 8;
/// Deeper arithmetic is no pattern.
const MAX_DEPTH: usize = 8;
/// Rounding of an exporter: its numbers were single precision, and perhaps products of such.
const ROUNDING: f64 = 4.0 * f32::EPSILON as f64;

/// Whether a number of a model is the one that a pattern wants, up to an exporter's rounding to single precision or, once, to
/// half. More would take one formula for another.
pub(super) fn close(number: f64, wanted: f64) -> bool {
    let near = |wanted: f64| (number - wanted).abs() <= ROUNDING * wanted.abs();
    near(wanted) || near(f16::from_f64(wanted).to_f64()) || near(bf16::from_f64(wanted).to_f64())
}

/// Like [`close`], where values of this dtype are computed: of those that are not exact in half precision, products are
/// some units off there.
fn close_in(dtype: DType, number: f64, wanted: f64) -> bool {
    let (rounded, unit) = match dtype {
        DType::F16 => (f16::from_f64(wanted).to_f64(), f16::EPSILON.to_f64()),
        DType::BF16 => (bf16::from_f64(wanted).to_f64(), bf16::EPSILON.to_f64()),
        _ => (wanted, 0.0),
    };
    close(number, wanted) || (rounded != wanted && (number - wanted).abs() <= 2.0 * unit * wanted.abs())
}

/// Whether a polynomial over values of a dtype has the terms of the wanted one.
pub(super) fn same(dtype: DType, polynomial: &Polynomial, wanted: &Polynomial) -> bool {
    let fits = |((p, x), (q, y)): ((_, &f64), (_, &f64))| p == q && close_in(dtype, *x, *y);
    polynomial.len() == wanted.len() && polynomial.iter().zip(wanted).all(fits)
}

impl Rewrite<'_> {
    /// The contents of a constant or of a small tensor of one value.
    pub(super) fn data(&self, id: ValueId) -> Option<TensorData> {
        /// More is worth no copy.
        const MAX_FILL: usize = 1 << 20;
        if let Some(constant) = self.constant(id) {
            return Some(constant.data.clone());
        }
        match &self.producer(id)?.op {
            Op::Fill(Fill { value, dtype, .. }) => {
                let shape = self.ty(id).shape()?;
                let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
                (count <= MAX_FILL).then(|| crate::data::fill(&shape, *value, *dtype)).flatten()
            }
            _ => None,
        }
    }

    /// The number that a constant of one element holds, or that fills a tensor. Parameters of the original network are
    /// no numbers, here and below: they may be others next time.
    pub(super) fn scalar(&self, id: ValueId) -> Option<f64> {
        if self.constant(id).is_some() {
            return self.graph().number(id).map(|scalar| scalar.to_f64());
        }
        match &self.producer(id)?.op {
            Op::Fill(Fill { value, .. }) => Some(value.to_f64()),
            _ => None,
        }
    }

    /// The number that all elements of a constant are.
    pub(super) fn uniform(&self, id: ValueId) -> Option<f64> {
        if let Some(scalar) = self.scalar(id) {
            return Some(scalar);
        }
        let data = &self.constant(id).filter(|constant| constant.provenance.is_none())?.data;
        // What differs does so at its beginning, mostly.
        const FEW: usize = 16;
        let size = data.dtype.size();
        let mut few = data.bytes.chunks_exact(size).take(FEW);
        let first = few.next()?;
        if few.any(|element| element != first) {
            return None;
        }
        self.look(data.num_elements())?;
        crate::data::uniform(data)
    }

    /// The operand of a unary operation.
    pub(super) fn unary(&self, id: ValueId, op: UnaryOp) -> Option<ValueId> {
        let node = self.producer(id).filter(|node| node.op == Op::Unary(op))?;
        node.inputs.first().copied().flatten()
    }

    /// The operands of a binary operation.
    pub(super) fn binary(&self, id: ValueId, op: BinaryOp) -> Option<(ValueId, ValueId)> {
        let node = self.producer(id).filter(|node| node.op == Op::Binary(op))?;
        match node.inputs.as_slice() {
            &[Some(a), Some(b)] => Some((a, b)),
            _ => None,
        }
    }

    /// The operands of a commutative operation, such that `wanted` fits the first.
    pub(super) fn commutative(
        &self,
        id: ValueId,
        op: BinaryOp,
        wanted: impl Fn(ValueId) -> bool,
    ) -> Option<(ValueId, ValueId)> {
        let (a, b) = self.binary(id, op)?;
        if wanted(a) { Some((a, b)) } else { wanted(b).then_some((b, a)) }
    }

    /// The operand and axes of a reduction that keeps its axes, or gets them back.
    pub(super) fn kept_reduction(&self, id: ValueId, wanted: ReduceOp) -> Option<(ValueId, Vec<usize>)> {
        let (x, axes) = self.reduction(id, wanted)?;
        self.keeps_axes(id, x, &axes).then_some((x, axes))
    }

    /// Whether a value has the axes of another, those over which that was folded with size 1.
    pub(super) fn keeps_axes(&self, id: ValueId, x: ValueId, axes: &[usize]) -> bool {
        let kept = self.ty(x).dims.iter().enumerate();
        let kept = kept.map(|(i, dim)| if axes.contains(&i) { Dim::constant(1) } else { dim.clone() });
        kept.eq(self.ty(id).dims.iter().cloned())
    }

    /// The operand and axes of a reduction, whether it keeps its axes or not.
    pub(super) fn reduction(&self, id: ValueId, wanted: ReduceOp) -> Option<(ValueId, Vec<usize>)> {
        let node = self.producer(id)?;
        let x = node.inputs.first().copied().flatten()?;
        match &node.op {
            Op::Reduce(Reduce { op, axes, .. }) if *op == wanted => Some((x, axes.clone())),
            Op::Reshape(_) if matches!(self.producer(x)?.op, Op::Reduce(_)) => self.reduction(x, wanted),
            _ => None,
        }
    }

    /// The operand of an activation, spelt as such or (tanh) as a unary operation.
    pub(super) fn activated(&self, id: ValueId) -> Option<(Activation, ValueId)> {
        let node = self.producer(id)?;
        let x = node.inputs.first().copied().flatten()?;
        match &node.op {
            Op::Activation(activation) => Some((*activation, x)),
            Op::Unary(UnaryOp::Tanh) => Some((Activation::Tanh, x)),
            Op::Clamp(clamp) if self.ty(x).dtype.is_float() => {
                let (min, max) = clamp.bounds(self.ty(x).dtype);
                Some((Activation::Clamp { min, max }, x))
            }
            _ => None,
        }
    }

    /// `v = number * x`: peels factors that are numbers off; the product of them and the rest.
    pub(super) fn scaled(&self, mut id: ValueId) -> (f64, ValueId) {
        let mut factor = 1.0;
        for _ in 0..MAX_DEPTH {
            if let Some((c, x)) = self.commutative(id, BinaryOp::Mul, |v| self.scalar(v).is_some()) {
                factor *= self.scalar(c).unwrap_or(1.0);
                id = x;
            } else if let Some((x, c)) = self.binary(id, BinaryOp::Div)
                && let Some(divisor) = self.scalar(c)
            {
                factor /= divisor;
                id = x;
            } else {
                break;
            }
        }
        (factor, id)
    }

    /// The operands of an arithmetic node that [`Rewrite::polynomial`] looks through.
    fn arithmetic(&self, id: ValueId) -> Vec<ValueId> {
        let Some(node) = self.producer(id) else {
            return Vec::new();
        };
        match &node.op {
            Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Pow)
            | Op::Unary(UnaryOp::Neg | UnaryOp::Recip) => node.inputs.iter().copied().flatten().collect(),
            _ => Vec::new(),
        }
    }

    /// Values that a value is computed from by arithmetic, itself among them, nearest first; no numbers.
    pub(super) fn arguments(&self, id: ValueId, depth: usize) -> Vec<ValueId> {
        let mut found = vec![id];
        let mut level = vec![id];
        for _ in 0..depth {
            let next: Vec<ValueId> = level.iter().flat_map(|&v| self.arithmetic(v)).collect();
            level.clear();
            for value in next {
                if self.scalar(value).is_none() && !found.contains(&value) {
                    found.push(value);
                    level.push(value);
                }
            }
        }
        found
    }

    /// A value as a sum of products over values that are not arithmetic, or that are in `opaque`.
    pub(super) fn polynomial(&self, id: ValueId, opaque: &[ValueId]) -> Polynomial {
        self.expand(id, opaque, MAX_DEPTH)
            .unwrap_or_else(|| Polynomial::from([(vec![Factor::Value(id)], 1.0)]))
    }

    fn expand(&self, id: ValueId, opaque: &[ValueId], depth: usize) -> Option<Polynomial> {
        let atom = |factor| Some(Polynomial::from([(vec![factor], 1.0)]));
        if opaque.contains(&id) {
            return atom(Factor::Value(id));
        }
        if let Some(number) = self.scalar(id) {
            return Some(Polynomial::from([(Vec::new(), number)]));
        }
        let node = self.producer(id)?;
        let operand = |n: usize| node.inputs.get(n).copied().flatten();
        let deeper = |id: ValueId| match depth.checked_sub(1) {
            Some(depth) => self.expand(id, opaque, depth).or_else(|| atom(Factor::Value(id))),
            None => atom(Factor::Value(id)),
        };
        match &node.op {
            Op::Unary(UnaryOp::Neg) => Some(scale(deeper(operand(0)?)?, -1.0)),
            Op::Unary(UnaryOp::Recip) => atom(Factor::Inverse(operand(0)?)),
            Op::Binary(op) => {
                let (a, b) = (operand(0)?, operand(1)?);
                match op {
                    BinaryOp::Add => sum(deeper(a)?, deeper(b)?),
                    BinaryOp::Sub => sum(deeper(a)?, scale(deeper(b)?, -1.0)),
                    BinaryOp::Mul => multiply(&deeper(a)?, &deeper(b)?),
                    BinaryOp::Div => match self.scalar(b) {
                        Some(divisor) => Some(scale(deeper(a)?, 1.0 / divisor)),
                        None => multiply(&deeper(a)?, &atom(Factor::Inverse(b))?),
                    },
                    BinaryOp::Pow => {
                        let base = deeper(a)?;
                        match self.scalar(b)? {
                            2.0 => multiply(&base, &base),
                            3.0 => multiply(&multiply(&base, &base)?, &base),
                            _ => None,
                        }
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

fn scale(mut p: Polynomial, by: f64) -> Polynomial {
    p.values_mut().for_each(|coefficient| *coefficient *= by);
    p
}

fn sum(mut a: Polynomial, b: Polynomial) -> Option<Polynomial> {
    for (product, coefficient) in b {
        let sum = a.get(&product).copied().unwrap_or(0.0) + coefficient;
        if sum == 0.0 {
            a.remove(&product);
        } else {
            a.insert(product, sum);
        }
    }
    (a.len() <= MAX_TERMS).then_some(a)
}

fn multiply(a: &Polynomial, b: &Polynomial) -> Option<Polynomial> {
    let mut result = Polynomial::new();
    for (p, x) in a {
        for (q, y) in b {
            let mut product: Vec<Factor> = p.iter().chain(q).copied().collect();
            product.sort();
            result = sum(result, Polynomial::from([(product, x * y)]))?;
        }
    }
    Some(result)
}
