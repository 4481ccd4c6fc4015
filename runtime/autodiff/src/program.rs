//! Elementwise programs, differentiated into programs.
//!
//! The gradient of each operand is again an elementwise program: of the operands, the result, and the result's gradient.
//! What it reads is what the operation has to keep, no more.

use crate::derivative::{self, Operand, Side};
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::Backend;
use kiln_tensor::compose::{activation_derivative, wide};
use kiln_tensor::{DType, Expression, Scalar, Step, StepId, Traced};

/// What a gradient's program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Operand(usize),
    Result,
    Gradient,
}

/// The program that computes the gradient of one operand.
#[derive(Clone, Debug)]
pub(crate) struct Derivative {
    pub program: Expression,
    /// What its inputs are, in order.
    pub reads: Vec<Source>,
    /// The numbers of its parameters.
    pub parameters: Vec<Scalar>,
}

/// An elementwise program with one result, and what it runs on.
pub(crate) struct Program<'a, B: Backend> {
    pub expression: &'a Expression,
    /// The dtypes of its operands.
    pub dtypes: &'a [DType],
    /// The numbers of its parameters.
    pub parameters: &'a [Scalar],
    pub device: &'a B::Device,
}

impl<B: Backend> Program<'_, B> {
    /// The gradient of an operand.
    ///
    /// A single operation reads its result, if its derivative is said by it (`e^x`), in place of computing it again.
    /// Nothing when the result does not depend on the operand, or only by steps.
    pub(crate) fn derivative(&self, operand: usize) -> Option<Derivative> {
        let result = *self.expression.results().first()?;
        let dtype = *self.expression.dtypes(self.dtypes)?.get(usize::from(result))?;
        let inputs: Vec<DType> = self.dtypes.iter().copied().chain([dtype, dtype]).collect();
        let mut is_zero = false;
        let (recorded, parameters) = kiln_tensor::record::<B>(&inputs, self.device, |inputs| {
            let inputs: Vec<Traced> = inputs.iter().cloned().map(widened).collect();
            let gradient = backward(self.expression, self.parameters, &inputs, operand);
            is_zero = gradient.is_none();
            let dtype = self.dtypes[operand];
            gradient
                .map(|gradient| if wide(dtype) == dtype { gradient } else { gradient.cast(dtype) })
                .into_iter()
                .collect()
        });
        (!is_zero).then(|| used(&recorded, parameters, self.dtypes.len()))
    }
}

/// Floats of 16 bits as those of 32: the range and the precision of theirs are too small for what derivatives are made of. A square of 300 is
/// infinite in f16.
fn widened(x: Traced) -> Traced {
    match x.dtype() {
        Some(dtype) => x.cast(wide(dtype)),
        None => x,
    }
}

/// Whether the program is one operation on its operands.
fn is_single(program: &Expression) -> bool {
    let is_operation = |step: &&Step| {
        !matches!(step, Step::Input(_) | Step::Constant(..) | Step::Parameter(..) | Step::Iota(..))
    };
    program.steps.iter().filter(is_operation).count() == 1
}

/// Reverse accumulation (Linnainmaa 1970): from the last step to the first, each adds what it passes on to the
/// gradients of the steps that it reads. `inputs` are the operands, the result and its gradient.
fn backward(
    program: &Expression,
    parameters: &[Scalar],
    inputs: &[Traced],
    operand: usize,
) -> Option<Traced> {
    let (result, gradient) = (inputs.get(inputs.len() - 2)?, inputs.last()?);
    let end = usize::from(*program.results().first()?);
    let mut values = forward(program, parameters, inputs);
    if is_single(program) {
        values[end] = result.clone();
    }
    let depends = dependents(program, operand);
    let mut gradients: Vec<Option<Traced>> = vec![None; program.steps.len()];
    gradients[end] = Some(gradient.clone());
    let mut total: Option<Traced> = None;
    for (at, step) in program.steps.iter().enumerate().rev() {
        let Some(g) = gradients[at].take().filter(|_| depends[at]) else { continue };
        let value = |id: StepId| values[usize::from(id)].clone();
        let side = |id: StepId| Operand {
            value: value(id),
            is_number: matches!(program.steps[usize::from(id)], Step::Constant(..) | Step::Parameter(..)),
            number: number(program, id),
        };
        let y = values[at].clone();
        let mut pass = |to: StepId, part: Option<Traced>| {
            if let Some(part) = part.filter(|_| depends[usize::from(to)]) {
                let sum = &mut gradients[usize::from(to)];
                *sum = Some(match sum.take() {
                    Some(other) => other + part,
                    None => part,
                });
            }
        };
        match *step {
            Step::Input(_) => {
                total = Some(match total {
                    Some(other) => other + g,
                    None => g,
                });
            }
            Step::Constant(..) | Step::Parameter(..) | Step::Iota(..) | Step::Compare(..) => {}
            Step::Unary(op, x) => pass(x, derivative::unary(op, value(x), y, g)),
            Step::Activation(op, x) => pass(x, Some(activation_derivative(op, g, value(x), || y))),
            Step::Binary(op, a, b) => {
                let of = |on| derivative::binary(op, on, side(a), side(b), y.clone(), g.clone());
                if depends[usize::from(a)] {
                    pass(a, of(Side::Left));
                }
                if depends[usize::from(b)] {
                    pass(b, of(Side::Right));
                }
            }
            Step::Where(mask, yes, no) => {
                pass(yes, Some(Traced::from(0.0).mask_where(value(mask), g.clone())));
                pass(no, Some(g.mask_where(value(mask), 0.0)));
            }
            Step::Cast(_, x) => pass(x, value(x).dtype().map(|dtype| g.cast(dtype))),
        }
    }
    total
}

/// The values of all steps, floats of 16 bits [widened].
fn forward(program: &Expression, parameters: &[Scalar], inputs: &[Traced]) -> Vec<Traced> {
    let mut values: Vec<Traced> = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        let value = |id: StepId| values[usize::from(id)].clone();
        values.push(match *step {
            Step::Input(n) => inputs[usize::from(n)].clone(),
            Step::Constant(number, dtype) => Traced::constant(number, wide(dtype)),
            Step::Parameter(n, dtype) => Traced::parameter(parameters[usize::from(n)]).cast(wide(dtype)),
            Step::Iota(dim, dtype) => inputs[0].iota(usize::from(dim)).cast(wide(dtype)),
            Step::Unary(op, x) => value(x).unary(op),
            Step::Binary(op, a, b) => value(a).binary(op, value(b)),
            Step::Compare(op, a, b) => value(a).compare(op, value(b)),
            Step::Activation(op, x) => value(x).activation(op),
            Step::Where(mask, yes, no) => value(no).mask_where(value(mask), value(yes)),
            Step::Cast(dtype, x) => widened(value(x).cast(dtype)),
        });
    }
    values
}

/// For each step, whether an operand's floats reach it.
fn dependents(program: &Expression, operand: usize) -> Vec<bool> {
    let mut depends: Vec<bool> = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        let on = |id: StepId| depends[usize::from(id)];
        depends.push(match *step {
            Step::Input(n) => usize::from(n) == operand,
            Step::Constant(..) | Step::Parameter(..) | Step::Iota(..) | Step::Compare(..) => false,
            Step::Cast(dtype, x) => dtype.is_float() && on(x),
            Step::Unary(_, x) | Step::Activation(_, x) => on(x),
            Step::Binary(_, a, b) => on(a) || on(b),
            Step::Where(_, yes, no) => on(yes) || on(no),
        });
    }
    depends
}

/// The number that a step is for all runs of its program.
fn number(program: &Expression, id: StepId) -> Option<f64> {
    match program.steps.get(usize::from(id)) {
        Some(Step::Constant(number, _)) => Some(number.to_f64()),
        _ => None,
    }
}

/// The steps that a program's result needs, and the inputs among them.
fn used(program: &Expression, parameters: Vec<Scalar>, operands: usize) -> Derivative {
    let mut needed = vec![false; program.steps.len()];
    if let Some(last) = needed.last_mut() {
        *last = true;
    }
    for (at, step) in program.steps.iter().enumerate().rev() {
        if needed[at] {
            step.operands().for_each(|id| needed[usize::from(id)] = true);
        }
    }
    // Where each step is among those that are needed.
    let mut places: Vec<StepId> = vec![0; program.steps.len()];
    let mut steps: Vec<Step> = Vec::new();
    let mut reads: Vec<Source> = Vec::new();
    for (at, step) in program.steps.iter().enumerate() {
        if !needed[at] {
            continue;
        }
        places[at] = steps.len() as StepId;
        steps.push(match *step {
            Step::Input(n) => {
                reads.push(match usize::from(n) {
                    n if n < operands => Source::Operand(n),
                    n if n == operands => Source::Result,
                    _ => Source::Gradient,
                });
                Step::Input(reads.len() as u16 - 1)
            }
            step => step.with_operands(|id| places[usize::from(id)]),
        });
    }
    Derivative { program: Expression::new(steps), reads, parameters }
}
