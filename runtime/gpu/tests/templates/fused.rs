//! Kernels that compute what they read, and go on with what they would write; of transposes there are no others here.

use super::{after, elementwise, index, norm_gradient, reduce, rows};
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Runs, Strided};
use kiln_gpu::kernels::elementwise::Elementwise;
use kiln_gpu::kernels::index::Gather;
use kiln_gpu::kernels::norm_gradient::NormGradient;
use kiln_gpu::kernels::reduce::{ArgReduce, By, Reduce, Reducer};
use kiln_gpu::kernels::rows::{RowOp, Rows};
use kiln_gpu::kernels::source::Computed;
use kiln_gpu::kernels::transpose::Transpose;
use kiln_tensor::{ArgReduceOp, BinaryOp, DType, Expression, Step, StepId};

/// A program of one result as one whose results are two of its steps.
pub fn both(program: Elementwise, steps: [StepId; 2]) -> Elementwise {
    let outputs = steps.to_vec();
    let expression = Expression { outputs, ..program.expression };
    let result = program.results[0];
    Elementwise { expression, results: [result; 2].into(), ..program }
}

/// What a normalization's gradients are the sums of, of halves.
pub fn summed_products() -> Elementwise {
    let dtype = DType::F32;
    let steps = vec![
        Step::Input(0),
        Step::Input(1),
        Step::Cast(dtype, 0),
        Step::Cast(dtype, 1),
        Step::Binary(BinaryOp::Mul, 2, 3),
    ];
    let halves = [(DType::BF16, Linear), (DType::BF16, Linear)];
    both(elementwise::plain(steps, &halves, dtype, 0), [4, 2])
}

/// Sums of columns of two programs, whose runs the last workgroup joins and makes something of.
pub fn joins() -> Vec<Template> {
    let dtype = DType::F32;
    let of = |neighbours: u32| {
        let from = Some(Box::new(Elementwise { fours: u32::from(neighbours > 1), ..summed_products() }));
        let finish = Some(reduce::finish(dtype, 2, DType::BF16));
        Reduce { from, finish, ..reduce::joined(dtype, neighbours) }.into()
    };
    [1, 4].map(of).into()
}

pub fn fused(dtype: DType) -> Vec<Template> {
    let steps = vec![Step::Input(0), Step::Input(1), Step::Binary(BinaryOp::Mul, 0, 1)];
    let program = Elementwise {
        epilogues: after(dtype),
        ..elementwise::plain(steps, &[(dtype, Strided), (dtype, Linear)], dtype, 2)
    };
    let from = || Some(Box::new(program.clone()));
    let epilogues = || after(dtype);
    let fours = |fours| Elementwise { fours, ..program.clone() };
    let runs = Elementwise {
        operands: [(dtype, Runs), (dtype, Linear)].into(),
        results: [(dtype, Runs)].into(),
        epilogues: Vec::new(),
        ..fours(1)
    };
    let mean = reduce::plain(Reducer::Sum, dtype);
    let columns = |neighbours| Reduce {
        by: reduce::columns(neighbours),
        kept: (Linear, 0),
        reduced: (Strided, 1),
        ..mean.clone()
    };
    // The sums of two results at once.
    let both = |fours| both(Elementwise { fours, epilogues: Vec::new(), ..program.clone() }, [2, 1]);
    // An operand of it is what another program yields.
    let computed =
        |fours| Some(Computed { operand: 1, by: Box::new(Elementwise { fours, ..program.clone() }) });
    let sums = |of: Reduce, fours: u32| Reduce { from: Some(Box::new(both(fours))), ..of };
    let finished = |of: Reduce| match dtype.is_float() {
        true => Reduce { finish: Some(reduce::finish(dtype, 2, dtype)), ..of },
        false => of,
    };
    let largest = reduce::extreme(ArgReduceOp::Max, dtype);
    let mut all: Vec<Template> = vec![
        Transpose { dtype, batch: 1, epilogues: epilogues() }.into(),
        fours(1).into(),
        fours(2).into(),
        runs.into(),
        Reduce { mean: true, kept: (Strided, 2), from: from(), epilogues: epilogues(), ..mean.clone() }
            .into(),
        Reduce { from: Some(Box::new(fours(1))), ..columns(4) }.into(),
        sums(columns(4), 1).into(),
        sums(Reduce { computed: computed(1), ..columns(4) }, 1).into(),
        sums(Reduce { computed: computed(0), ..columns(1) }, 0).into(),
        sums(columns(1), 0).into(),
        sums(mean.clone(), 0).into(),
        sums(finished(mean.clone()), 0).into(),
        sums(finished(columns(4)), 1).into(),
        sums(Reduce { by: By::Invocation, ..mean }, 0).into(),
        ArgReduce { from: from(), ..largest }.into(),
        Gather { epilogues: epilogues(), ..index::gather(dtype, DType::I32) }.into(),
    ];
    if dtype.is_float() {
        for op in [RowOp::Softmax, RowOp::LayerNorm { bias: true }] {
            let row = Rows { from: from(), epilogues: epilogues(), ..rows::plain(op, dtype, 8) };
            all.push(Rows { kept: Some(3), shares: true, ..row.clone() }.into());
            all.push(row.into());
        }
        all.push(NormGradient { epilogues: epilogues(), ..norm_gradient::plain(true, dtype, 8) }.into());
    }
    all
}
