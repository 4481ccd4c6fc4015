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
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Trilu", 14, &["input", "k?"]).reads(Self::read),
        Spec::microsoft("Trilu", &["input", "k?"]).reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        to.need_rank("input", x, 2)?;
        let k = match args.optional("k")? {
            None => 0,
            Some(k) if to.constant(k).is_some() => {
                let k = to.known_ints(k, "k")?;
                *k.first().ok_or_else(|| invalid("k", "is empty"))?
            }
            Some(k) => return self.with_computed_diagonal(x, k, to),
        };
        Ok(to.add(Op::Trilu(op::Trilu { upper: self.upper, k }), &[x])?.into())
    }
}

impl Trilu {
    /// A diagonal that the run tells, such as a mask's behind the positions of a cache: what is beyond it is chosen by
    /// comparing rows and columns.
    fn with_computed_diagonal(
        &self,
        x: ValueId,
        k: ValueId,
        to: &mut Lowering<'_, '_>,
    ) -> RuleResult<Outputs> {
        let dims = to.dims(x);
        let Some((_, [rows, columns])) = dims.split_last_chunk::<2>() else {
            let expected = "expected at least 2".to_owned();
            return Err(RuleError::Rank { input: "input".to_owned(), actual: dims.len(), expected });
        };
        let one = Dim::constant(1);
        let count = |start: Dim, end: Dim| Op::Arange(op::Arange { start, end, step: 1 });
        let column = to.add(count(Dim::constant(0), columns.clone()), &[])?;
        let column = to.reshape(column, vec![one.clone(), columns.clone()])?;
        let known = match to.builder.graph.value(k).host.as_deref() {
            Some([k]) => Some(k.clone()),
            _ => None,
        };
        let side = if self.upper { CompareOp::GreaterEqual } else { CompareOp::LowerEqual };
        let kept = match known {
            // Row `i` begins, or ends, in column `i + k`.
            Some(k) => {
                let row = to.add(count(k.clone(), rows + &k), &[])?;
                let row = to.reshape(row, vec![rows.clone(), one])?;
                to.compare(side, column, row)?
            }
            // Any integer may come: `i + k` could be none.
            None => {
                let row = to.add(count(Dim::constant(0), rows.clone()), &[])?;
                let row = to.reshape(row, vec![rows.clone(), one])?;
                let distance = to.binary(BinaryOp::Sub, column, row)?;
                let k = to.reshape(k, Vec::new())?;
                to.compare(side, distance, k)?
            }
        };
        if to.dtype(x).is_bool() {
            return Ok(to.binary(BinaryOp::And, x, kept)?.into());
        }
        let zero = to.number_like(x, 0);
        Ok(to.select(kept, x, zero)?.into())
    }
}
