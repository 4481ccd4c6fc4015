//! `EyeLike`: ones on a diagonal.

use super::prelude::*;
use crate::ir::op;

pub(super) struct EyeLike {
    k: i64,
    dtype: Option<DType>,
}

impl EyeLike {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { k: node.int("k", 0)?, dtype: node.dtype("dtype")? })
    }
}

impl<'m> Operator<'m> for EyeLike {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("EyeLike", 9, &["input"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let dims = to.dims(x);
        let [rows, columns] = dims.as_slice() else {
            let expected = "expected 2".to_owned();
            return Err(RuleError::Rank { input: "input".to_owned(), actual: dims.len(), expected });
        };
        // Row `i` has its one in column `i + k`.
        let k = Dim::constant(self.k);
        let row = to.add(Op::Arange(op::Arange { start: k.clone(), end: rows + &k, step: 1 }), &[])?;
        let row = to.reshape(row, vec![rows.clone(), Dim::constant(1)])?;
        let column =
            to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: columns.clone(), step: 1 }), &[])?;
        let column = to.reshape(column, vec![Dim::constant(1), columns.clone()])?;
        let eye = to.compare(CompareOp::Equal, row, column)?;
        let dtype = self.dtype.unwrap_or(to.dtype(x));
        Ok(to.cast(eye, dtype)?.into())
    }
}
