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
        let y =
            if to.trainable && ratio != 0.0 { to.add(Op::Dropout(op::Dropout { ratio }), &[x])? } else { x };
        if !self.mask {
            return Ok(y.into());
        }
        if to.trainable && ratio != 0.0 {
            let what = "Dropout whose mask is read, in a model that is to be trained".to_owned();
            return Err(RuleError::Unsupported { what });
        }
        let dtype = if self.bool_mask { DType::Bool } else { to.dtype(x) };
        let dims = to.dims(x);
        let one = if dtype.is_bool() { true.into() } else { Scalar::Int(1) };
        let mask = to.fill(dims, one, dtype)?;
        Ok(vec![y, mask].into())
    }
}
