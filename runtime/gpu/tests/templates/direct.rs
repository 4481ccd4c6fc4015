//! Products where shared memory is no faster.

use super::after;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Strided};
use kiln_gpu::kernels::direct::{Bias, Direct, Reading};
use kiln_tensor::{Activation, DType};

pub fn products(dtype: DType) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    let (batch, rows, columns) = ((Strided, Linear, 2), 2, 8);
    let activation = dtype.is_float().then_some(Activation::Silu);
    for (lhs_fours, rhs) in [
        (true, Reading::Columns),
        (false, Reading::Columns),
        (true, Reading::Depth),
        (true, Reading::Single),
        (false, Reading::Single),
    ] {
        for bias in [None, Some(Bias::OfRows), Some(Bias::OfColumns)] {
            let epilogues = after(dtype);
            all.push(
                Direct { dtype, batch, lhs_fours, rhs, rows, columns, bias, activation, epilogues }.into(),
            );
        }
    }
    all
}
