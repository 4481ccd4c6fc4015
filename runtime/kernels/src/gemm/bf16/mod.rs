//! Products of f32 whose operands are rounded to bf16 and whose sums are f32.
//!
//! Operands are rounded to the nearest bf16, halves to even. Where the machine multiplies bf16 (AMX, AVX-512-BF16) its instructions do it, which take
//! subnormal numbers for 0 and round each sum; elsewhere the rounded operands are widened again and multiplied as f32. Sums are in one order
//! for any number of threads, but not for any instruction set.

#[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
mod amx;
mod instructions;
mod pack;
mod product;
mod tile;

pub use pack::PackedBf16;

#[cfg(target_arch = "x86_64")]
pub(crate) use pack::AtOnce;
pub(crate) use pack::{
    Packed, Plainly, Rounding, STEPS, copy_rows, pack_bf16_into, packed_bf16_len, round_rows, round_slice,
};
pub(crate) use product::{Bf16Product, Bf16Results, Bf16Rows, TileSums, WindowRows, panel_sums, row_step};
pub(crate) use tile::{COLS as PANEL, WHOLE, f32_of};

use super::{Epilogue, Matrix};
use crate::scratch::with_scratch;
use crate::size::{elements, reach};
use crate::threads::{self, SharedMut};

/// Whether this machine multiplies bf16 many times as fast as f32: by AMX.
pub(crate) fn multiplies_tiles() -> bool {
    instructions::Instructions::current().are_tiles()
}

/// Whether this machine multiplies bf16 twice as fast as f32: pairs of them, by AVX-512-BF16.
pub(crate) fn multiplies_pairs() -> bool {
    instructions::Instructions::current().are_pairs()
}

/// `C = activation(A · B + bias + residual)` of rounded operands: `m` rows of `A` are `a_row_stride` apart, their elements side by side.
///
/// # Panics
/// When an operand does not hold its dims.
pub fn gemm_bf16(
    m: usize,
    a: &[f32],
    a_row_stride: usize,
    b: &PackedBf16,
    c: &mut [f32],
    c_row_stride: usize,
    epilogue: &Epilogue<'_>,
) {
    let (k, n) = b.dims();
    Matrix::row_major(a, a_row_stride).check(m, k, "left operand");
    epilogue.check(m, n, c_row_stride);
    assert!(reach([m, n], [c_row_stride, 1]) <= c.len(), "C does not hold {m} rows and {n} columns");
    assert!(m <= 1 || c_row_stride >= n, "rows of C overlap");
    let (c, a) = (SharedMut::new(c), Bf16Rows::Single(a, a_row_stride));
    let c = Bf16Results::Single(&c);
    Bf16Product { m, a, b: b.view(), c, c_start: 0, c_step: c_row_stride, adds: false, epilogue }.run();
}

/// Many products of rounded operands of one size: the `i`-th reads `a`, whose rows' elements lie side by side, and `b` from `offsets[i]` on and
/// writes the `i`-th run of `m · n` elements of `c`. Offsets may repeat, which broadcasts.
///
/// # Panics
/// When an operand does not hold its dims.
pub fn gemm_bf16_batched(
    m: usize,
    n: usize,
    k: usize,
    a: Matrix<'_>,
    b: Matrix<'_>,
    offsets: &[[usize; 2]],
    c: &mut [f32],
) {
    assert_eq!(
        c.len(),
        elements(&[offsets.len(), m, n]),
        "the output does not hold {} products",
        offsets.len()
    );
    assert_eq!(a.col_stride, 1, "elements of a left operand's rows lie side by side");
    let last_a = offsets.iter().map(|o| o[0]).max().unwrap_or(0);
    let last_b = offsets.iter().map(|o| o[1]).max().unwrap_or(0);
    assert!(last_a <= a.data.len() && last_b <= b.data.len(), "an offset lies outside of its operand");
    Matrix { data: &a.data[last_a..], ..a }.check(m, k, "left operand");
    Matrix { data: &b.data[last_b..], ..b }.check(k, n, "right operand");
    let work = m.saturating_mul(n).saturating_mul(k) / product::PER_NANOSECOND + k * n / 8 + 1;
    let split_each = offsets.len() < 2 * threads::sharing() && work >= threads::INLINE_WORK;
    let c = SharedMut::new(c);
    let epilogue = Epilogue::default();
    let one = |i: usize| {
        let [a_start, b_start] = offsets[i];
        let b = Matrix { data: &b.data[b_start..], ..b };
        with_scratch(packed_bf16_len(k, n), |packed| {
            let packed = bytemuck::cast_slice_mut(packed);
            pack_bf16_into(b, k, n, packed);
            let product = Bf16Product {
                m,
                a: Bf16Rows::Single(&a.data[a_start..], a.row_stride),
                b: Packed { data: packed, depth: k, cols: n, is_far: false },
                c: Bf16Results::Single(&c),
                c_start: i * m * n,
                c_step: n,
                adds: false,
                epilogue: &epilogue,
            };
            if split_each { product.run() } else { product.run_here() }
        });
    };
    if split_each {
        (0..offsets.len()).for_each(one);
    } else {
        threads::parallel_for(offsets.len(), work, |range| range.for_each(one));
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use instructions::tests::with_all_instructions;
