//! Chains of elementwise operations.

use super::{Cx, between, compare_scalar, is_arithmetic, is_one, unary, with_scalar};
use crate::ir::{Arg, Chain};
use kiln_types::{BinaryOp, DType, DTypeKind, Expression, Step, StepId};

/// What converts to the dtypes that are the backend's own.
fn own_dtype(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("float"),
        DType::I64 => Some("int"),
        _ => None,
    }
}

/// `elementwise([a, b], |[a, b]| (a - b) * 0.5)`.
pub(super) fn call(expression: &Expression, cx: &Cx<'_>) -> Arg {
    let count = cx.node.inputs.len();
    let output = cx.output().map_or(DTypeKind::Float, |ty| ty.dtype.kind());
    let chain = Arg::Chain(Links::new(expression, count).chain());
    if (0..count).all(|n| cx.dtype(n).kind() == output) {
        let operands = Arg::Array((0..count).map(Arg::Operand).collect());
        return Arg::call("tensor::elementwise", [operands, chain]);
    }
    let operands = Arg::Array((0..count).map(|n| Arg::Operand(n).then("into", [])).collect());
    Arg::call("elementwise", [operands, chain])
}

/// Turns a chain's steps into one expression; what is used more than once becomes a value before it.
struct Links<'a> {
    expression: &'a Expression,
    operands: usize,
    /// The link that each step has, if it has one.
    links: Vec<Option<usize>>,
    values: Vec<Arg>,
}

impl<'a> Links<'a> {
    fn new(expression: &'a Expression, operands: usize) -> Self {
        let links = expression.steps.iter().map(|step| match step {
            Step::Input(n) => Some(usize::from(*n)),
            _ => None,
        });
        Self { expression, operands, links: links.collect(), values: Vec::new() }
    }

    fn chain(mut self) -> Chain {
        let mut uses = vec![0; self.expression.steps.len()];
        for step in &self.expression.steps {
            for operand in step.operands() {
                if let Some(count) = uses.get_mut(usize::from(operand)) {
                    *count += 1;
                }
            }
        }
        let last = self.expression.steps.len().saturating_sub(1);
        for (index, count) in uses.into_iter().enumerate().take(last) {
            let simple = matches!(self.expression.steps[index], Step::Input(_) | Step::Constant(..));
            if !simple && count > 1 {
                let value = self.write(index);
                self.links[index] = Some(self.operands + self.values.len());
                self.values.push(value);
            }
        }
        let result = Box::new(self.write(last));
        Chain { operands: self.operands, values: self.values, result }
    }

    /// A step where it is used.
    fn step(&self, id: StepId) -> Arg {
        let index = usize::from(id);
        if let Some(&Step::Constant(value, dtype)) = self.expression.steps.get(index) {
            // A number cannot stand for itself where a method is called on it.
            let number = Arg::Scalar(value, dtype);
            return match own_dtype(dtype) {
                Some(method) => Arg::call("tensor::Traced::from", [number]).then(method, []),
                None => Arg::call("tensor::Traced::constant", [number, Arg::DType(dtype)]),
            };
        }
        self.links.get(index).copied().flatten().map_or_else(|| self.write(index), Arg::Link)
    }

    fn constant(&self, id: StepId) -> Option<Arg> {
        match self.expression.steps.get(usize::from(id)) {
            Some(&Step::Constant(value, dtype)) => Some(Arg::Scalar(value, dtype)),
            _ => None,
        }
    }

    fn write(&self, index: usize) -> Arg {
        let Some(&this) = self.expression.steps.get(index) else { return Arg::Tuple(Vec::new()) };
        match this {
            Step::Input(n) => Arg::Link(usize::from(n)),
            Step::Constant(value, dtype) => Arg::Scalar(value, dtype),
            // Inference refuses these in a graph.
            Step::Parameter(..) | Step::Iota(..) => Arg::Tuple(Vec::new()),
            Step::Unary(op, x) => unary(op, self.step(x)),
            Step::Binary(op, a, b) => self.binary(op, a, b),
            Step::Compare(op, a, b) => match self.constant(b) {
                Some(number) => self.step(a).then(compare_scalar(op), [number]),
                None => self.step(a).then(op.name(), [self.step(b)]),
            },
            Step::Activation(activation, x) => self.step(x).then("activation", [Arg::options(&activation)]),
            Step::Where(mask, a, b) => self.step(b).then("mask_where", [self.step(mask), self.step(a)]),
            Step::Cast(dtype, x) => match own_dtype(dtype) {
                Some(method) => self.step(x).then(method, []),
                None => self.step(x).then("cast", [Arg::DType(dtype)]),
            },
        }
    }

    fn binary(&self, op: BinaryOp, a: StepId, b: StepId) -> Arg {
        match (self.constant(a), self.constant(b)) {
            (None, Some(number)) => with_scalar(op, self.step(a), number.clone(), DType::F32)
                .unwrap_or_else(|| between(op, self.step(a), number, DType::F32)),
            (Some(number), None) if is_one(op, &number) => self.step(b).then("recip", []),
            (Some(number), None) if is_arithmetic(op) => number.then(op.name(), [self.step(b)]),
            _ => between(op, self.step(a), self.step(b), DType::F32),
        }
    }
}
