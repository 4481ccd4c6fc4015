//! Scans, and positions where something is true.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Strided};
use kiln_gpu::kernels::reduce::Reducer;
use kiln_gpu::kernels::scan::{Compact, Scan};
use kiln_tensor::DType;

pub fn scans(reducer: Reducer, dtype: DType) -> [Template; 4] {
    let kept = (Linear, Strided, 2);
    [(true, true), (true, false), (false, true), (false, false)]
        .map(|(exclusive, parts)| Scan { reducer, dtype, exclusive, kept, parts }.into())
}

pub fn positions(index: DType) -> Template {
    Compact { rank: 3, index }.into()
}
