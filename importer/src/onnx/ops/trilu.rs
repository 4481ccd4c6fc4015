//! `Trilu`: the upper or lower triangle.

use super::prelude::*;
use crate::ir::op;

pub(super) struct Trilu {
    upper: bool,
}

impl Trilu {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { upper: node.flag("upper", true)? })
    }
}

impl<'m> Operator<'m> for Trilu {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Trilu", 14, &["input", "k?"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        to.need_rank("input", x, 2)?;
        let k = match args.optional("k")? {
            None => 0,
            Some(k) if to.constant(k).is_none() => return Ok(by_positions(to, x, k, self.upper)?.into()),
            Some(k) => {
                let k = to.known_ints(k, "k")?;
                *k.first().ok_or_else(|| invalid("k", "is empty"))?
            }
        };
        Ok(to.add(Op::Trilu(op::Trilu { upper: self.upper, k }), &[x])?.into())
    }
}

/// What is beyond a diagonal that only the run gives is chosen by how far each column is from its row.
fn by_positions(to: &mut Lowering<'_, '_>, x: ValueId, k: ValueId, upper: bool) -> RuleResult<ValueId> {
    let dims = to.dims(x);
    let Some((_, [rows, columns])) = dims.split_last_chunk::<2>() else {
        return Err(invalid("input", "has fewer than two axes"));
    };
    let mut line = |size: &Dim, dims: [Dim; 2]| {
        let line = op::Arange { start: Dim::constant(0), end: size.clone(), step: 1 };
        let line = to.add(Op::Arange(line), &[])?;
        to.reshape(line, dims.to_vec())
    };
    let one = Dim::constant(1);
    let row = line(rows, [rows.clone(), one.clone()])?;
    let column = line(columns, [one, columns.clone()])?;
    let distance = to.binary(BinaryOp::Sub, column, row)?;
    let k = to.reshape(k, Vec::new())?;
    let inside = if upper { CompareOp::GreaterEqual } else { CompareOp::LowerEqual };
    let inside = to.compare(inside, distance, k)?;
    let zero = to.number_like(x, 0_i64);
    to.select(inside, x, zero)
}
