//! Elementwise programs: a chain of operations in one pass over memory.

use super::broadcast::{Strided, for_each_position};
use super::scalar::{activation_of, binary_of, compare_of, unary_of};
use alloc::{vec, vec::Vec};
use kiln_types::{BinaryOp, DType, Expression, Step, UnaryOp};

/// An [`Expression`] whose operands and result are all f32 (bool values may occur inside), ready to run.
#[derive(Clone, Debug)]
pub struct Program {
    steps: Vec<Step>,
    inputs: usize,
}

/// Where a program reads one of its operands.
#[derive(Clone, Copy, Debug)]
pub enum ProgramOperand<'a> {
    /// A view.
    Strided(Strided<'a>),
    /// The output itself, before it is overwritten: the operand's buffer is reused.
    Output,
}

impl Program {
    /// Prepares an expression; `None` when it needs more than f32 and bool, or its result is not f32. The caller makes
    /// sure that the operands are f32.
    pub fn new(expression: &Expression) -> Option<Self> {
        let mut kinds: Vec<DType> = Vec::with_capacity(expression.steps.len());
        let mut inputs = 0;
        for step in &expression.steps {
            let kind = |id: u16| kinds.get(usize::from(id)).copied();
            let float = |id: u16| kind(id).filter(|&k| k == DType::F32);
            let kind = match *step {
                Step::Input(n) => {
                    inputs = inputs.max(usize::from(n) + 1);
                    DType::F32
                }
                Step::Constant(_, dtype @ (DType::F32 | DType::Bool)) => dtype,
                Step::Constant(..) => return None,
                Step::Unary(UnaryOp::Not, x) => kind(x).filter(|&k| k == DType::Bool)?,
                Step::Unary(UnaryOp::IsNan | UnaryOp::IsInf, x) => float(x).map(|_| DType::Bool)?,
                Step::Unary(UnaryOp::BitwiseNot, _) => return None,
                Step::Unary(_, x) | Step::Activation(_, x) => float(x)?,
                Step::Binary(BinaryOp::And | BinaryOp::Or | BinaryOp::Xor, a, b) => {
                    if kind(a)? != DType::Bool || kind(b)? != DType::Bool {
                        return None;
                    }
                    DType::Bool
                }
                Step::Binary(op, a, b) => {
                    use BinaryOp::*;
                    let known =
                        matches!(op, Add | Sub | Mul | Div | Pow | Remainder | Fmod | Max | Min | Atan2);
                    if !known {
                        return None;
                    }
                    float(a).and(float(b))?
                }
                Step::Compare(_, a, b) => {
                    if kind(a)? != kind(b)? {
                        return None;
                    }
                    DType::Bool
                }
                Step::Where(c, a, b) => {
                    if kind(c)? != DType::Bool || kind(a)? != kind(b)? {
                        return None;
                    }
                    kind(a)?
                }
                Step::Cast(to @ (DType::F32 | DType::Bool), x) => kind(x).map(|_| to)?,
                Step::Cast(..) => return None,
            };
            kinds.push(kind);
        }
        (kinds.last() == Some(&DType::F32)).then(|| Self { steps: expression.steps.clone(), inputs })
    }

    /// Number of operands.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Runs over `dims`; `out` is contiguous.
    ///
    /// # Panics
    /// When the number of operands is wrong, or an operand or `out` does not hold `dims`.
    pub fn run(&self, dims: &[usize], operands: &[ProgramOperand<'_>], out: &mut [f32]) {
        assert!(operands.len() >= self.inputs, "the program reads {} operands", self.inputs);
        assert_eq!(out.len(), dims.iter().product::<usize>(), "the output does not have the dims {dims:?}");
        for operand in operands {
            if let ProgramOperand::Strided(view) = operand {
                view.check(dims);
            }
        }
        let mut position = vec![0; dims.len()];
        let mut values = vec![0.0; self.steps.len()];
        for_each_position::<0>(dims, [], |i, []| {
            let mut rest = i;
            for axis in (0..dims.len()).rev() {
                position[axis] = rest % dims[axis];
                rest /= dims[axis];
            }
            for (k, step) in self.steps.iter().enumerate() {
                let at = |id: u16| values[usize::from(id)];
                values[k] = match *step {
                    Step::Input(n) => match operands[usize::from(n)] {
                        ProgramOperand::Output => out[i],
                        ProgramOperand::Strided(view) => {
                            let offset: usize = position.iter().zip(view.strides).map(|(p, s)| p * s).sum();
                            view.data[offset]
                        }
                    },
                    Step::Constant(value, _) => value.to_f64() as f32,
                    Step::Unary(UnaryOp::Not, x) => 1.0 - at(x),
                    Step::Unary(UnaryOp::IsNan, x) => f32::from(u8::from(at(x).is_nan())),
                    Step::Unary(UnaryOp::IsInf, x) => f32::from(u8::from(at(x).is_infinite())),
                    Step::Unary(op, x) => unary_of(op, at(x)),
                    Step::Binary(BinaryOp::And, a, b) => at(a) * at(b),
                    Step::Binary(BinaryOp::Or, a, b) => binary_of(BinaryOp::Max, at(a), at(b)),
                    Step::Binary(BinaryOp::Xor, a, b) => f32::from(u8::from(at(a) != at(b))),
                    Step::Binary(op, a, b) => binary_of(op, at(a), at(b)),
                    Step::Compare(op, a, b) => f32::from(u8::from(compare_of(op, at(a), at(b)))),
                    Step::Activation(activation, x) => activation_of(activation, at(x)),
                    Step::Where(c, a, b) => at(if at(c) != 0.0 { a } else { b }),
                    Step::Cast(DType::Bool, x) => f32::from(u8::from(at(x) != 0.0)),
                    Step::Cast(_, x) => at(x),
                };
            }
            out[i] = values[self.steps.len() - 1];
        });
    }
}
