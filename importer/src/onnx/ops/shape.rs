//! `Shape` and `Size`: dims on the host.

use super::prelude::*;

pub(super) enum Shape {
    Dims { start: i64, end: Option<i64> },
    Size,
}

impl Shape {
    fn read_dims(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self::Dims { start: node.int("start", 0)?, end: node.optional_int("end")? })
    }
}

impl<'m> Operator<'m> for Shape {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Shape", 1, &["data"]).reads(Self::read_dims),
        Spec::onnx("Size", 1, &["data"]).reads(|_| Ok(Self::Size)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let data = match args.first() {
            Some(Operand::Strings(places)) => *places,
            _ => args.value("data")?,
        };
        let dims = to.dims(data);
        let result = match *self {
            Self::Size => to.builder.host_tensor(vec![Dim::product(&dims)], Vec::new())?,
            Self::Dims { start, end } => {
                let rank = dims.len() as i64;
                let clamp =
                    |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
                let (start, end) = (clamp(start), clamp(end.unwrap_or(rank)));
                let part = dims.get(start..end).unwrap_or_default().to_vec();
                let count = part.len();
                to.builder.host_tensor(part, vec![count])?
            }
        };
        Ok(result.into())
    }
}
