//! Reads and writes at positions that a tensor names.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Single, Strided};
use kiln_gpu::kernels::index::{Assign, Gather, Last, LastPlaces, Scatter};
use kiln_tensor::{DType, ScatterOp};

pub fn gather(dtype: DType, index: DType) -> Gather {
    Gather { dtype, index, access: (Linear, Strided, 3), epilogues: Vec::new() }
}

/// Writes of every kind.
pub fn writes(dtype: DType, index: DType) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for op in [ScatterOp::Assign, ScatterOp::Add, ScatterOp::Mul, ScatterOp::Max, ScatterOp::Min] {
        all.push(Scatter { op, dtype, index, access: (Strided, Linear, Single, 2) }.into());
    }
    for last in [Last::Search, Last::Table(Strided)] {
        let access = (Strided, Linear, Strided, Strided, 2);
        all.push(Assign { dtype, index, access, last }.into());
    }
    all
}

/// What makes the table of the writes that come last.
pub fn last_places(index: DType) -> Template {
    LastPlaces { index, access: (Linear, Single, Linear, 0) }.into()
}
