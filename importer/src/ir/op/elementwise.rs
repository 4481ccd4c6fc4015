//! Chains of elementwise operations, and what elementwise operations share.

use super::activation::activation;
use super::binary::{binary, binary_dtype};
use super::broadcast::broadcast;
use super::compare::{compare, select};
use super::convert::cast;
use super::layout::view;
use super::prelude::*;
use super::unary::{unary, unary_call, unary_dtype};
use crate::ir::Chain;
use kiln_types::{BinaryOp, CompareOp, DType, DTypeKind, Expression, Shape, Step, StepId};

impl Operation for Expression {
    const OPERANDS: &'static [&'static str] = &["operands*"];
    const PARAMETERS: &'static [usize] = &[];

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let expression = self;
        let operands: Vec<usize> = (0..cx.len()).collect();
        let dims = broadcast(cx, &operands)?;
        let mut steps: Vec<TensorType> = Vec::with_capacity(expression.steps.len());
        for step in &expression.steps {
            let dtype = step_dtype(cx, &steps, step)?;
            steps.push(TensorType { dtype, dims: Vec::new() });
        }
        if !expression.outputs.is_empty() {
            return Err(attribute("expression", "has several results, a node's value is one"));
        }
        let last = steps.last().ok_or_else(|| attribute("expression", "has no steps"))?;
        Ok(vec![TensorType { dtype: last.dtype, dims }])
    }

    fn host(&self, _: &Host<'_>) -> Option<Vec<Dim>> {
        None
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        // Runs the steps one after the other on whole tensors.
        let (expression, operands) = (self, &operands.all()?);
        let mut steps: Vec<TensorData> = Vec::with_capacity(expression.steps.len());
        for step in &expression.steps {
            let at = |id: u16| steps.get(usize::from(id));
            let next = match *step {
                Step::Input(n) => (*operands.get(usize::from(n))?).clone(),
                Step::Constant(value, dtype) => fill(&[], value, dtype)?,
                Step::Parameter(..) | Step::Iota(..) => return None,
                Step::Unary(op, x) => unary(op, at(x)?)?,
                Step::Binary(op, a, b) => binary(op, at(a)?, at(b)?)?,
                Step::Compare(op, a, b) => compare(op, at(a)?, at(b)?)?,
                Step::Activation(op, x) => activation(op, at(x)?)?,
                Step::Where(condition, a, b) => select(at(condition)?, at(a)?, at(b)?)?,
                Step::Cast(dtype, x) => cast(at(x)?, dtype),
            };
            steps.push(next);
        }
        // The result has the shape of all operands together, whichever of them the last step reads.
        let result = steps.pop()?;
        let (shape, _) = broadcast_data(operands)?;
        let spread = Strided::new(&result.shape).expand(&shape)?;
        Some(vec![
            view(&result, spread)
                .and_then(|data| TensorData::from_bytes(data.bytes, shape, data.dtype).ok())?,
        ])
    }

    fn result(&self) -> Outcome {
        Outcome::Computed
    }

    none!(derivation);

    fn folding(&self) -> Folding {
        Folding::PerElement(self.steps.len())
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        expression_loops(cx, self.clone())
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(call(self, cx))
    }
}

/// Dtype of one step, given those before it.
fn step_dtype(cx: &Infer<'_>, steps: &[TensorType], step: &Step) -> RuleResult<DType> {
    let at = |id: StepId| -> RuleResult<&TensorType> {
        steps.get(usize::from(id)).ok_or_else(|| attribute("expression", "uses a step before it is computed"))
    };
    match *step {
        Step::Input(n) => Ok(cx.ty(usize::from(n))?.dtype),
        Step::Constant(_, dtype) | Step::Cast(dtype, _) => {
            if let Step::Cast(_, x) = *step {
                at(x)?;
            }
            Ok(dtype)
        }
        Step::Parameter(..) | Step::Iota(..) => {
            Err(attribute("expression", "reads what no operand of the node holds"))
        }
        Step::Unary(op, x) => unary_dtype(op, at(x)?),
        Step::Binary(op, a, b) => binary_dtype(op, at(a)?, at(b)?),
        Step::Compare(_, a, b) => {
            same_dtype("a", at(a)?, "b", at(b)?)?;
            Ok(DType::Bool)
        }
        Step::Activation(_, x) => {
            need_float("x", at(x)?)?;
            Ok(at(x)?.dtype)
        }
        Step::Where(condition, a, b) => {
            need_bool("condition", at(condition)?)?;
            same_dtype("a", at(a)?, "b", at(b)?)?;
            Ok(at(a)?.dtype)
        }
    }
}

/// Operands broadcast to one shape (aligned at the last axis).
pub(super) fn broadcast_data(operands: &[&TensorData]) -> Option<(Vec<usize>, Vec<Elements>)> {
    let mut shape = Shape::default();
    for operand in operands {
        shape = shape.broadcast(&operand.shape.as_slice().into())?;
    }
    let spread = |data: &&TensorData| {
        let view = Strided::new(&data.shape).expand(&shape.dims)?;
        Some(match Elements::load(data) {
            Elements::Float(x) => Elements::Float(view.gather(&x)),
            Elements::Int(x) => Elements::Int(view.gather(&x)),
        })
    };
    let elements = operands.iter().map(spread).collect::<Option<_>>()?;
    Some((shape.into(), elements))
}

/// What converts to the dtypes that are the backend's own.
fn own_dtype(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("float"),
        DType::I64 => Some("int"),
        _ => None,
    }
}

/// One step of as many operands as it has.
pub(super) fn elementwise_loops(cx: &Site<'_>, step: Step, operands: u16) -> Option<Loops> {
    expression_loops(cx, Expression::new((0..operands).map(Step::Input).chain([step]).collect()))
}

/// A loop over the result, whose operands are broadcast.
pub(super) fn expression_loops(cx: &Site<'_>, expression: Expression) -> Option<Loops> {
    let shape = cx.result_shape()?;
    let operand = |n| Some((n, Strided::new(&cx.shape(n)?).expand(&shape)?));
    let operands = (0..cx.node.inputs.len()).map(operand).collect::<Option<_>>()?;
    Some(Loops::Elementwise(vec![ElementLoop { result: Strided::new(&shape), operands, expression }]))
}

/// `elementwise([a, b], |[a, b]| (a - b) * 0.5)`.
fn call(expression: &Expression, cx: &Site<'_>) -> Arg {
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
            Step::Unary(op, x) => unary_call(op, self.step(x)),
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

/// Whether tensors and numbers meet in it on either side.
pub(super) fn is_arithmetic(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div)
}

/// The method that takes a number on the right.
fn scalar_method(op: BinaryOp, dtype: DType) -> Option<&'static str> {
    Some(match op {
        BinaryOp::Atan2 => "atan2_scalar",
        BinaryOp::Pow if dtype.is_float() => "powf_scalar",
        BinaryOp::Pow => "powi_scalar",
        BinaryOp::Remainder => "remainder_scalar",
        BinaryOp::Fmod => "fmod_scalar",
        BinaryOp::Max => "clamp_min",
        BinaryOp::Min => "clamp_max",
        BinaryOp::BitwiseAnd => "bitwise_and_scalar",
        BinaryOp::BitwiseOr => "bitwise_or_scalar",
        BinaryOp::BitwiseXor => "bitwise_xor_scalar",
        BinaryOp::ShiftLeft => "bitwise_left_shift_scalar",
        BinaryOp::ShiftRight => "bitwise_right_shift_scalar",
        _ => return None,
    })
}

/// The method that takes a tensor.
fn method(op: BinaryOp, dtype: DType) -> &'static str {
    match op {
        BinaryOp::Pow if dtype.is_int() => "powi",
        op => op.name(),
    }
}

pub(super) fn between(op: BinaryOp, a: Arg, b: Arg, dtype: DType) -> Arg {
    a.then(method(op, dtype), [b])
}

pub(super) fn with_scalar(op: BinaryOp, x: Arg, number: Arg, dtype: DType) -> Option<Arg> {
    if is_arithmetic(op) {
        return Some(x.then(op.name(), [number]));
    }
    if matches!(op, BinaryOp::Max | BinaryOp::Min) && is_nan(&number) {
        // A bound that is no number is ignored, where the operation yields NaN.
        return Some(x.clone().then("full_like", [number]).then(op.name(), [x]));
    }
    scalar_method(op, dtype).map(|method| x.then(method, [number]))
}

/// A number on the left of an operation that does not commute.
pub(super) fn scalar_first(op: BinaryOp, number: Arg, x: Arg) -> Arg {
    if is_one(op, &number) {
        return x.then("recip", []);
    }
    if is_arithmetic(op) {
        return number.then(op.name(), [x]);
    }
    x.clone().then("full_like", [number]).then(op.name(), [x])
}

pub(super) fn is_nan(number: &Arg) -> bool {
    matches!(number, Arg::Scalar(value, _) if value.to_f64().is_nan())
}

/// Whether it is `1.0 / …`.
pub(super) fn is_one(op: BinaryOp, number: &Arg) -> bool {
    op == BinaryOp::Div
        && matches!(number, Arg::Scalar(value, dtype) if dtype.is_float() && value.to_f64() == 1.0)
}

pub(super) fn compare_scalar(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Equal => "equal_elem",
        CompareOp::NotEqual => "not_equal_elem",
        CompareOp::Greater => "greater_elem",
        CompareOp::GreaterEqual => "greater_equal_elem",
        CompareOp::Lower => "lower_elem",
        CompareOp::LowerEqual => "lower_equal_elem",
    }
}
