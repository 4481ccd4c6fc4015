//! Running folds, and positions where something is true.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Strided};
use kiln_gpu::kernels::reduce::Fold;
use kiln_gpu::kernels::scan::{Compact, Scan};
use kiln_tensor::DType;

pub fn scans(fold: Fold, dtype: DType) -> [Template; 4] {
    let kept = (Linear, Strided, 2);
    [(true, true), (true, false), (false, true), (false, false)]
        .map(|(exclusive, parts)| Scan { fold, dtype, exclusive, kept, parts }.into())
}

pub fn positions(index: DType) -> Template {
    Compact { rank: 3, index }.into()
}
