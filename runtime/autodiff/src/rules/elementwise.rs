//! Elementwise operations: each is a program of one step or more, which is differentiated symbolically.

use super::{T, is_differentiable, taken};
use crate::checkpoint::CheckpointStrategy;
use crate::operation::Operation;
use crate::program::{Derivative, Program, Source};
use crate::tensor::AutodiffTensor;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{Activation, BinaryOp, DType, Expression, InlineVec, Scalar, Shape, Step, StepId, UnaryOp};

/// Runs an elementwise program with one result, which `forward` computes.
fn run<B: Backend, C: CheckpointStrategy>(
    name: &'static str,
    operands: Vec<AutodiffTensor<B>>,
    expression: impl FnOnce(&[DType]) -> Expression,
    parameters: &[Scalar],
    forward: impl Fn(Vec<T<B>>) -> T<B> + Send + Sync + 'static,
) -> AutodiffTensor<B> {
    let mut operation = Operation::new(name, operands);
    let device = match operation.operands().first() {
        Some(first) if !operation.is_constant() => B::device(&first.primitive),
        _ => return operation.run::<C>(forward, |_| Vec::new()),
    };
    let dtypes: Vec<DType> = operation.operands().iter().map(Primitive::dtype).collect();
    let expression = expression(&dtypes);
    let program = Program::<B> { expression: &expression, dtypes: &dtypes, parameters, device: &device };
    let derivatives: Vec<Option<Derivative>> = (0..dtypes.len())
        .map(|n| {
            let wanted = operation.operands()[n].is_tracked() && is_differentiable(dtypes[n]);
            wanted.then(|| program.derivative(n)).flatten()
        })
        .collect();
    for read in derivatives.iter().flatten().flat_map(|derivative| &derivative.reads) {
        operation = match *read {
            Source::Operand(n) => operation.keep(n),
            Source::Result => operation.keep_result(),
            Source::Gradient => operation,
        };
    }
    operation.cheap().run::<C>(forward, move |context| {
        let read = |source: &Source| match *source {
            Source::Operand(n) => context.operand(n),
            Source::Result => context.result(),
            Source::Gradient => context.gradient.clone(),
        };
        let with_inputs = |derivative: Derivative| {
            let inputs: InlineVec<T<B>> = derivative.reads.iter().map(read).collect();
            (derivative, inputs)
        };
        let programs: Vec<_> =
            derivatives.into_iter().map(|derivative| derivative.map(with_inputs)).collect();
        // What the last program reads and nobody else holds may be written in its place, or gone on with by the kernel that computes it.
        drop(context);
        let gradient = |(derivative, mut inputs): (Derivative, InlineVec<T<B>>)| match derivative
            .program
            .steps
            .as_slice()
        {
            [Step::Input(_)] => inputs.remove(0),
            _ => single_result(B::elementwise(&derivative.program, inputs, &derivative.parameters)),
        };
        programs.into_iter().map(|program| program.map(gradient)).collect()
    })
}

/// The result of a program with one.
fn single_result<P>(results: InlineVec<P>) -> P {
    match <[P; 1]>::try_from(results) {
        Ok([result]) => result,
        Err(_) => unreachable!("a backend yields what a program has results"),
    }
}

/// A program of one step on operands.
fn single(operands: u16, step: Step) -> Expression {
    let inputs = (0..operands).map(Step::Input);
    Expression::new(inputs.chain([step]).collect())
}

pub(crate) fn unary<B: Backend, C: CheckpointStrategy>(
    op: UnaryOp,
    x: AutodiffTensor<B>,
) -> AutodiffTensor<B> {
    let program = |_: &[DType]| single(1, Step::Unary(op, 0));
    run::<B, C>(op.name(), vec![x], program, &[], move |operands| {
        let [x] = taken(operands);
        B::unary(op, x)
    })
}

pub(crate) fn activation<B: Backend, C: CheckpointStrategy>(
    activation: Activation,
    x: AutodiffTensor<B>,
) -> AutodiffTensor<B> {
    if let Some(normalization) = x.normalization {
        return normalization.activation::<C>(activation, x.primitive);
    }
    let program = |_: &[DType]| single(1, Step::Activation(activation, 0));
    run::<B, C>("activation", vec![x], program, &[], move |operands| {
        let [x] = taken(operands);
        B::activation(activation, x)
    })
}

pub(crate) fn binary<B: Backend, C: CheckpointStrategy>(
    op: BinaryOp,
    lhs: AutodiffTensor<B>,
    rhs: AutodiffTensor<B>,
) -> AutodiffTensor<B> {
    let program = |_: &[DType]| single(2, Step::Binary(op, 0, 1));
    run::<B, C>(op.name(), vec![lhs, rhs], program, &[], move |operands| {
        let [lhs, rhs] = taken(operands);
        B::binary(op, lhs, rhs)
    })
}

pub(crate) fn binary_scalar<B: Backend, C: CheckpointStrategy>(
    op: BinaryOp,
    lhs: AutodiffTensor<B>,
    rhs: Scalar,
) -> AutodiffTensor<B> {
    let extreme = matches!(op, BinaryOp::Max | BinaryOp::Min);
    if extreme && lhs.is_tracked() && !rhs.to_f64().is_nan() {
        // Unlike a bound, an operand shares the gradient where both are equal, as a tensor of such numbers would.
        let (shape, dtype) = (Shape::from(vec![1; lhs.dims().len()]), lhs.dtype());
        let number = B::full(shape, rhs, dtype, &B::device(&lhs.primitive));
        return binary::<B, C>(op, lhs, AutodiffTensor::constant(number));
    }
    let number = |dtype| match op {
        // What the derivative is depends on the number.
        BinaryOp::Pow => Step::Constant(rhs, dtype),
        // A parameter: with another number in each step (schedules, noise levels), its kernel stays the same.
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Remainder
        | BinaryOp::Fmod
        | BinaryOp::Atan2
        | BinaryOp::Max
        | BinaryOp::Min
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::BitwiseAnd
        | BinaryOp::BitwiseOr
        | BinaryOp::BitwiseXor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRight => Step::Parameter(0, dtype),
    };
    let program =
        |dtypes: &[DType]| Expression::new(vec![Step::Input(0), number(dtypes[0]), Step::Binary(op, 0, 1)]);
    run::<B, C>(op.name(), vec![lhs], program, &[rhs], move |operands| {
        let [lhs] = taken(operands);
        B::binary_scalar(op, lhs, rhs)
    })
}

pub(crate) fn select_where<B: Backend, C: CheckpointStrategy>(
    mask: AutodiffTensor<B>,
    on_true: AutodiffTensor<B>,
    on_false: AutodiffTensor<B>,
) -> AutodiffTensor<B> {
    let program = |_: &[DType]| single(3, Step::Where(0, 1, 2));
    run::<B, C>("mask_where", vec![mask, on_true, on_false], program, &[], move |operands| {
        let [mask, on_true, on_false] = taken(operands);
        B::select_where(mask, on_true, on_false)
    })
}

pub(crate) fn mask_fill<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    mask: AutodiffTensor<B>,
    value: Scalar,
) -> AutodiffTensor<B> {
    let program = |dtypes: &[DType]| {
        let value = Step::Constant(value, dtypes[0]);
        Expression::new(vec![Step::Input(0), Step::Input(1), value, Step::Where(1, 2, 0)])
    };
    run::<B, C>("mask_fill", vec![tensor, mask], program, &[], move |operands| {
        let [tensor, mask] = taken(operands);
        B::mask_fill(tensor, mask, value)
    })
}

pub(crate) fn clamp<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    min: Option<Scalar>,
    max: Option<Scalar>,
) -> AutodiffTensor<B> {
    let ops = [min.map(|_| BinaryOp::Max), max.map(|_| BinaryOp::Min)];
    let program = |dtypes: &[DType]| {
        let mut steps = vec![Step::Input(0)];
        for (n, op) in ops.into_iter().flatten().enumerate() {
            let last = steps.len() as u16 - 1;
            steps.extend([Step::Parameter(n as u16, dtypes[0]), Step::Binary(op, last, last + 1)]);
        }
        Expression::new(steps)
    };
    let bounds: InlineVec<Scalar> = [min, max].into_iter().flatten().collect();
    run::<B, C>("clamp", vec![tensor], program, &bounds, move |operands| {
        let [tensor] = taken(operands);
        B::clamp(tensor, min, max)
    })
}

pub(crate) fn cast<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    dtype: DType,
) -> AutodiffTensor<B> {
    if !is_differentiable(dtype) {
        return AutodiffTensor::constant(B::cast(tensor.primitive, dtype));
    }
    let program = |_: &[DType]| single(1, Step::Cast(dtype, 0));
    run::<B, C>("cast", vec![tensor], program, &[], move |operands| {
        let [tensor] = taken(operands);
        B::cast(tensor, dtype)
    })
}

pub(crate) fn elementwise<B: Backend, C: CheckpointStrategy>(
    expression: &Expression,
    operands: InlineVec<AutodiffTensor<B>>,
    parameters: &[Scalar],
) -> InlineVec<AutodiffTensor<B>> {
    if !operands.iter().any(AutodiffTensor::is_tracked) {
        let operands = operands.into_iter().map(|operand| operand.primitive).collect();
        let results = B::elementwise(expression, operands, parameters);
        return results.into_iter().map(AutodiffTensor::constant).collect();
    }
    // Each result has a history of its own.
    let result = |result: StepId| {
        let program = Expression { steps: expression.steps.clone(), outputs: vec![result] };
        let (kept, numbers) = (program.clone(), parameters.to_vec());
        run::<B, C>(
            "elementwise",
            operands.to_vec(),
            |_| program,
            parameters,
            move |operands| single_result(B::elementwise(&kept, operands.into(), &numbers)),
        )
    };
    expression.results().into_iter().map(result).collect()
}
