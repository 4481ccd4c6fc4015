//! Folds of dims, and positions of extremes.

use super::wide_of;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Single, Strided};
use kiln_gpu::kernels::reduce::{ArgReduce, By, Fold, JoinMoments, Moments, Reduce};
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::{ArgReduceOp, DType};

/// A fold of runs that lie as they are folded, each by a workgroup, with nothing before and after.
pub fn plain(fold: Fold, dtype: DType) -> Reduce {
    Reduce {
        fold,
        mean: false,
        dtype,
        result: dtype,
        kept: (Linear, 0),
        folded: (Linear, 0),
        by: By::Workgroup,
        subgroups: Subgroups::None,
        from: None,
        then: Vec::new(),
    }
}

/// Columns, of which an invocation reads so many.
pub fn columns(neighbours: u32) -> By {
    By::Columns { neighbours }
}

pub fn folds(fold: Fold, dtype: DType) -> Vec<Template> {
    let (mean, kept, folded) = (!dtype.is_bool(), (Strided, 3), (Strided, 2));
    let of = |(by, result)| Reduce { mean, result, kept, folded, by, ..plain(fold, dtype) }.into();
    let results = [dtype, wide_of(dtype)];
    let all = [By::Invocation, By::Workgroup, columns(1), columns(4)];
    all.into_iter().flat_map(|by| results.map(|result| (by, result))).map(of).collect()
}

/// Means and variances of columns.
pub fn moments(dtype: DType) -> Vec<Template> {
    let mut all = vec![JoinMoments { dtype: wide_of(dtype) }.into()];
    for (neighbours, whole) in [(1, false), (4, false), (4, true)] {
        let (kept, folded) = ((Linear, 0), (Strided, 1));
        all.push(Moments { dtype, kept, folded, neighbours, whole }.into());
    }
    all
}

/// Whether any and whether all are true.
pub fn truths() -> Vec<Template> {
    let of = |fold| Reduce { folded: (Single, 0), ..plain(fold, DType::Bool) }.into();
    vec![of(Fold::Any), of(Fold::All)]
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
