//! Kernels that compute what they read, and go on with what they would write; of transposes there are no others here.

use super::{after, elementwise, index, norm_gradient, reduce, rows};
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Runs, Strided};
use kiln_gpu::kernels::elementwise::Elementwise;
use kiln_gpu::kernels::index::Gather;
use kiln_gpu::kernels::norm_gradient::NormGradient;
use kiln_gpu::kernels::reduce::{ArgReduce, Fold, Reduce};
use kiln_gpu::kernels::rows::{RowOp, Rows};
use kiln_gpu::kernels::transpose::Transpose;
use kiln_tensor::{ArgReduceOp, BinaryOp, DType, Step};

pub fn fused(dtype: DType) -> Vec<Template> {
    let steps = vec![Step::Input(0), Step::Input(1), Step::Binary(BinaryOp::Mul, 0, 1)];
    let program = Elementwise {
        then: after(dtype),
        ..elementwise::plain(steps, &[(dtype, Strided), (dtype, Linear)], dtype, 2)
    };
    let from = || Some(Box::new(program.clone()));
    let then = || after(dtype);
    let fours = |fours| Elementwise { fours, ..program.clone() };
    let runs = Elementwise {
        operands: [(dtype, Runs), (dtype, Linear)].into(),
        results: [(dtype, Runs)].into(),
        then: Vec::new(),
        ..fours(1)
    };
    let mean = reduce::plain(Fold::Sum, dtype);
    let by = reduce::columns(4, Some(dtype));
    let columns = Reduce { by, kept: (Linear, 0), folded: (Strided, 1), ..mean.clone() };
    let largest = reduce::extreme(ArgReduceOp::Max, dtype);
    let mut all: Vec<Template> = vec![
        Transpose { dtype, batch: 1, then: then() }.into(),
        fours(1).into(),
        fours(2).into(),
        runs.into(),
        Reduce { mean: true, kept: (Strided, 2), from: from(), then: then(), ..mean }.into(),
        Reduce { from: Some(Box::new(fours(1))), ..columns }.into(),
        ArgReduce { from: from(), ..largest }.into(),
        Gather { then: then(), ..index::gather(dtype, DType::I32) }.into(),
    ];
    if dtype.is_float() {
        for op in [RowOp::Softmax, RowOp::LayerNorm { bias: true }] {
            all.push(Rows { from: from(), then: then(), ..rows::plain(op, dtype, 8) }.into());
        }
        all.push(NormGradient { then: then(), ..norm_gradient::plain(true, dtype, 8) }.into());
    }
    all
}
