//! Reductions of dims, and positions of extremes.

use super::wide_of;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Single, Strided};
use kiln_gpu::kernels::reduce::{ArgReduce, By, Finish, Found, JoinMoments, Moments, Reduce, Reducer};
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::{ArgReduceOp, BinaryOp, DType, Expression, Step};

/// A reduction of runs that lie as they are reduced, each by a workgroup, with nothing before and after.
pub fn plain(reducer: Reducer, dtype: DType) -> Reduce {
    Reduce {
        reducer,
        mean: false,
        dtype,
        result: dtype,
        kept: (Linear, 0),
        reduced: (Linear, 0),
        by: By::Workgroup,
        subgroups: Subgroups::None,
        from: None,
        computed: None,
        joins: false,
        finish: None,
        epilogues: Vec::new(),
    }
}

/// What is made of a number and the last of several: in their dtype and in another.
pub fn finish(wide: DType, numbers: usize, dtype: DType) -> Finish {
    let steps = vec![
        Step::Input(0),
        Step::Input(numbers as u16 - 1),
        Step::Input(numbers as u16),
        Step::Input(numbers as u16 + 1),
        Step::Parameter(0, wide),
        Step::Cast(wide, 2),
        Step::Binary(BinaryOp::Mul, 0, 5),
        Step::Binary(BinaryOp::Mul, 1, 4),
        Step::Binary(BinaryOp::Add, 6, 7),
        Step::Binary(BinaryOp::Add, 8, 3),
        Step::Cast(dtype, 9),
    ];
    Finish {
        expression: Expression { steps, outputs: vec![10, 9] },
        numbers: vec![wide; numbers].as_slice().into(),
        operands: [(dtype, Linear), (wide, Single)].into(),
        results: [dtype, wide].into(),
    }
}

/// Columns, of which an invocation reads so many.
pub fn columns(neighbours: u32) -> By {
    By::Columns { neighbours }
}

pub fn reductions(reducer: Reducer, dtype: DType) -> Vec<Template> {
    let (mean, kept, reduced) = (!dtype.is_bool(), (Strided, 3), (Strided, 2));
    let of = |(by, result)| Reduce { mean, result, kept, reduced, by, ..plain(reducer, dtype) }.into();
    let results = [dtype, wide_of(dtype)];
    let all = [By::Invocation, By::Workgroup, columns(1), columns(4)];
    all.into_iter().flat_map(|by| results.map(|result| (by, result))).map(of).collect()
}

/// Means and variances of columns.
pub fn moments(dtype: DType) -> Vec<Template> {
    let of_columns = || Found::OfColumns(finish(wide_of(dtype), 2, dtype));
    vec![
        JoinMoments { dtype: wide_of(dtype), finish: finish(wide_of(dtype), 2, dtype) }.into(),
        moments_of(dtype, 1, Found::OfRuns).into(),
        moments_of(dtype, 4, Found::OfRuns).into(),
        moments_of(dtype, 4, of_columns()).into(),
    ]
}

/// Means and variances of columns, of which an invocation reads so many.
pub fn moments_of(dtype: DType, neighbours: u32, found: Found) -> Moments {
    Moments { dtype, kept: (Linear, 0), reduced: (Strided, 1), neighbours, found }
}

/// A sum of columns whose runs the last workgroup joins.
pub fn joined(dtype: DType, neighbours: u32) -> Reduce {
    Reduce { joins: true, by: columns(neighbours), reduced: (Strided, 1), ..plain(Reducer::Sum, dtype) }
}

/// What workgroups find of runs of columns, and the last of them joins.
pub fn joins(dtype: DType) -> Vec<Template> {
    let mut all: Vec<Template> = [1, 4].map(|neighbours| joined(dtype, neighbours).into()).into();
    all.push(Reduce { reducer: Reducer::Max, mean: !dtype.is_bool(), ..joined(dtype, 4) }.into());
    if dtype.is_float() {
        let found = || Found::Joined(finish(wide_of(dtype), 2, dtype));
        all.extend([1, 4].map(|neighbours| Template::from(moments_of(dtype, neighbours, found()))));
    }
    all
}

/// Whether any and whether all are true.
pub fn truths() -> Vec<Template> {
    let of = |reducer| Reduce { reduced: (Single, 0), ..plain(reducer, DType::Bool) }.into();
    vec![of(Reducer::Any), of(Reducer::All)]
}

/// The first position of an extreme, which an invocation looks for.
pub fn extreme(op: ArgReduceOp, dtype: DType) -> ArgReduce {
    let (index, kept) = (DType::I32, (Strided, 2));
    ArgReduce { op, select_last: false, dtype, index, kept, wide: false, among: false, from: None }
}

pub fn extremes(dtype: DType) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for op in [ArgReduceOp::Max, ArgReduceOp::Min] {
        for (wide, among) in [(false, false), (true, false), (true, true)] {
            all.push(ArgReduce { select_last: true, wide, among, ..extreme(op, dtype) }.into());
        }
    }
    all
}
