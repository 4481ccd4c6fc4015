//! `Dropout`: nothing, unless the model is to be trained.

use super::prelude::*;
use crate::data::shortest;
use crate::ir::op;

pub(super) struct Dropout {
    ratio: f64,
    mask: bool,
    bool_mask: bool,
    /// Whether an attribute asks for what training does, before version 7.
    training: bool,
}

impl Dropout {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        node.ignore(&["seed"]);
        let ratio = if node.opset >= 12 { 0.5 } else { node.float("ratio", 0.5)? };
        let training = node.opset < 7 && !node.flag("is_test", false)?;
        Ok(Self { ratio, mask: node.is_read(1), bool_mask: node.opset >= 10, training })
    }
}

impl<'m> Operator<'m> for Dropout {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Dropout", 1, &["data"]).until(11).reads(Self::read),
        Spec::onnx("Dropout", 12, &["data", "ratio?", "training_mode?"]).reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let training = match args.optional("training_mode")? {
            Some(mode) => to.known_number(mode).is_none_or(|mode| mode.to_bool()),
            None => self.training,
        };
        let ratio = match args.optional("ratio")? {
            // Which one it is, nothing but training asks.
            Some(ratio) if training || to.trainable => {
                to.known_floats(ratio, "ratio")?.first().copied().map_or(0.5, shortest)
            }
            Some(_) | None => self.ratio,
        };
        if training && ratio != 0.0 && !to.trainable {
            let what = if self.training {
                "Dropout in training mode, which the attribute `is_test` of 0 asks for before version 7; set it to 1, or import \
                 the model as trainable"
            } else {
                "Dropout in training mode; export the model in evaluation mode, or import it as trainable"
            };
            return Err(RuleError::Unsupported { what: what.to_owned() });
        }
        let is_kept = to.trainable && ratio != 0.0;
        if !self.mask {
            let y = if is_kept { to.add(Op::Dropout(op::Dropout { ratio }), &[x])? } else { x };
            return Ok(y.into());
        }
        let dtype = if self.bool_mask { DType::Bool } else { to.dtype(x) };
        let (dims, of_x) = (to.dims(x), to.dtype(x));
        if !is_kept {
            let one = if dtype.is_bool() { true.into() } else { Scalar::Int(1) };
            let mask = to.fill(dims, one, dtype)?;
            return Ok(vec![x, mask].into());
        }
        // The mask is the one that the elements went through.
        let ones = to.fill(dims, Scalar::Float(1.0), of_x)?;
        let factors = to.add(Op::Dropout(op::Dropout { ratio }), &[ones])?;
        let y = to.binary(BinaryOp::Mul, x, factors)?;
        let zero = to.scalar(Scalar::Float(0.0), of_x);
        let kept = to.compare(CompareOp::NotEqual, factors, zero)?;
        let mask = to.cast(kept, dtype)?;
        Ok(vec![y, mask].into())
    }
}
