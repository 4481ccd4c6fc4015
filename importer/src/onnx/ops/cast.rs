//! `Cast` and `CastLike`.

use super::prelude::*;

pub(super) struct Cast {
    /// `None` takes the dtype of the second input.
    to: Option<DType>,
}

/// What concerns 8-bit floats alone.
const EIGHT_BITS: [&str; 2] = ["saturate", "round_mode"];

impl Cast {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        if node.opset < 6 {
            let name = node.optional_string("to")?.ok_or_else(|| invalid("to", "is missing"))?;
            return Ok(Self { to: Some(named(&name)?) });
        }
        node.ignore(&EIGHT_BITS);
        Ok(Self { to: Some(target(node)?) })
    }

    fn read_like(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        node.ignore(&EIGHT_BITS);
        Ok(Self { to: None })
    }
}

impl<'m> Operator<'m> for Cast {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Cast", 1, &["input"]).reads(Self::read),
        Spec::onnx("CastLike", 15, &["input", "target_type"]).reads(Self::read_like),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let dtype = match self.to {
            Some(dtype) => dtype,
            None => to.dtype(args.value("target_type")?),
        };
        let x = args.value("input")?;
        let x = if dtype.is_packed() { nibbles(to, x, dtype)? } else { x };
        Ok(to.cast(x, dtype)?.into())
    }
}

/// The dtype that a node converts to.
pub(super) fn target(node: &mut SourceNode<'_>) -> RuleResult<DType> {
    node.dtype("to")?.ok_or_else(|| invalid("to", "is missing"))
}

/// A dtype by its name, as `to` had it before version 6.
fn named(name: &str) -> RuleResult<DType> {
    Ok(match name {
        "BOOL" => DType::Bool,
        "DOUBLE" => DType::F64,
        "FLOAT" => DType::F32,
        "FLOAT16" => DType::F16,
        "INT8" => DType::I8,
        "INT16" => DType::I16,
        "INT32" => DType::I32,
        "INT64" => DType::I64,
        "UINT8" => DType::U8,
        "UINT16" => DType::U16,
        "UINT32" => DType::U32,
        "UINT64" => DType::U64,
        other => {
            let reason =
                format!("is {}, must be a dtype of numbers such as FLOAT", crate::error::quoted(other));
            return Err(invalid("to", reason));
        }
    })
}

/// Integers of which the lowest four bits count, in the range of a dtype: devices hold it in eight bits, which would wrap elsewhere.
fn nibbles(to: &mut Lowering<'_, '_>, x: ValueId, dtype: DType) -> RuleResult<ValueId> {
    if to.dtype(x) == dtype || to.dtype(x).is_bool() {
        return Ok(x);
    }
    to.formula(|f| {
        let x = f.value(x).cast(DType::I32);
        match dtype {
            // Its highest bit is the sign.
            DType::I4 => (x + x.number(8)).binary(BinaryOp::BitwiseAnd, x.number(15)) - x.number(8),
            _ => x.binary(BinaryOp::BitwiseAnd, x.number(15)),
        }
    })
}
