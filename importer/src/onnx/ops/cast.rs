//! `Cast` and `CastLike`.

use super::super::tensor::{DataType, Narrow, STRING};
use super::prelude::*;
use super::quantize_linear::range_of;
use kiln_types::Minifloat;

pub(super) struct Cast {
    to: Target,
    /// Whether floats of few bits are the greatest where numbers are beyond it.
    saturate: bool,
    /// Whether scales round to the next power of two.
    rounds_up: bool,
}

/// What is converted to.
#[derive(Clone, Copy)]
enum Target {
    Numbers(DataType),
    Strings,
    /// What the second input is.
    Like,
}

impl Cast {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        if node.opset < 6 {
            let name = node.optional_string("to")?.ok_or_else(|| invalid("to", "is missing"))?;
            let to = match name.as_str() {
                "STRING" => Target::Strings,
                name => Target::Numbers(DataType { dtype: named(name)?, narrow: None }),
            };
            return Ok(Self { to, saturate: true, rounds_up: true });
        }
        let to = match node.optional_int("to")? {
            Some(code) if code == i64::from(STRING) => Target::Strings,
            _ => Target::Numbers(target(node)?),
        };
        Ok(Self { to, ..Self::read_like(node)? })
    }

    fn read_like(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let saturate = node.flag("saturate", true)?;
        let modes = [("up", true), ("down", false), ("nearest", false)];
        Ok(Self { to: Target::Like, saturate, rounds_up: node.choice("round_mode", "up", &modes)? })
    }
}

impl<'m> Operator<'m> for Cast {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Cast", 1, &["input"]).reads(Self::read),
        Spec::onnx("CastLike", 15, &["input", "target_type"]).reads(Self::read_like),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let target = match (self.to, args.first()) {
            (Target::Strings, Some(Operand::Strings(_))) => {
                return Ok(Outputs(args.first().cloned().into_iter().collect()));
            }
            (Target::Strings, _) => {
                return Err(RuleError::Unsupported { what: "numbers that become strings".to_owned() });
            }
            (Target::Numbers(target), _) => target,
            (Target::Like, _) => {
                let like = args.value("target_type")?;
                to.data_type(like)
            }
        };
        let x = args.value("input")?;
        let own = to.data_type(x);
        if own == target {
            return Ok(x.into());
        }
        match target.narrow {
            Some(Narrow::Floats(Minifloat::E8M0Fnu)) if !self.rounds_up => {
                Err(RuleError::Unsupported { what: "scales that round another way than up".to_owned() })
            }
            Some(Narrow::Floats(format)) => {
                let x = if own.dtype.is_float() { x } else { to.cast(x, DType::F32)? };
                Ok(to.round_to(x, format, self.saturate)?.into())
            }
            Some(Narrow::Integers(range)) => {
                let x = wrapped(to, x, range)?;
                Ok(to.cast(x, target.dtype)?.into())
            }
            None => {
                let range = range_of(target.dtype).filter(|_| target.dtype.is_packed());
                let x = range.map_or(Ok(x), |range| wrapped(to, x, range))?;
                Ok(to.cast(x, target.dtype)?.into())
            }
        }
    }
}

/// What a node converts to.
pub(super) fn target(node: &mut SourceNode<'_>) -> RuleResult<DataType> {
    node.data_type("to")?.ok_or_else(|| invalid("to", "is missing"))
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
                format!("is {}, must be a dtype of numbers such as FLOAT", kiln_types::quoted(other));
            return Err(invalid("to", reason));
        }
    })
}

/// Integers of which only the lowest bits count, in a range that has a power of two of them: devices hold it in eight bits, which would wrap elsewhere.
fn wrapped(to: &mut Lowering<'_, '_>, x: ValueId, [least, greatest]: [i64; 2]) -> RuleResult<ValueId> {
    if to.dtype(x).is_bool() {
        return Ok(x);
    }
    to.formula(|f| {
        let x = f.value(x).cast(DType::I32);
        let bits = x.number((greatest - least) as f64);
        match least {
            0 => x.binary(BinaryOp::BitwiseAnd, bits),
            // The highest bit is the sign.
            _ => {
                let below = x.number(-least as f64);
                (x + below).binary(BinaryOp::BitwiseAnd, bits) - below
            }
        }
    })
}
