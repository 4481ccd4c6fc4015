//! Products in tiles.

use super::after;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Single, Strided};
use kiln_gpu::kernels::matmul::Matmul;
use kiln_gpu::kernels::tiling::Tiling;
use kiln_tensor::{Activation, DType};

/// A product of two matrices, with nothing after it.
pub fn plain(dtype: DType, tiling: Tiling) -> Matmul {
    let batch = (Single, Single, 0);
    Matmul {
        dtype,
        batch,
        tiling,
        in_parts: false,
        groups: None,
        bias: false,
        activation: None,
        epilogues: Vec::new(),
    }
}

/// A batch of products, with all that may come after.
pub fn full(dtype: DType, tiling: Tiling) -> Template {
    let (batch, activation) = ((Strided, Linear, 2), dtype.is_float().then_some(Activation::Gelu));
    Matmul { batch, bias: true, activation, epilogues: after(dtype), ..plain(dtype, tiling) }.into()
}

/// A batch of products of which workgroups compute parts of the depth: nothing comes after those.
pub fn in_parts(tiling: Tiling) -> Template {
    Matmul { batch: (Strided, Linear, 2), in_parts: true, ..plain(DType::F32, tiling) }.into()
}
