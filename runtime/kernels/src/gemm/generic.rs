//! Matrix products of the other element types: plain loops over what stays in the caches.

use super::Matrix;
use crate::simd::dispatched;
use crate::size::elements;
use crate::threads;
use alloc::vec;

/// An element of [`gemm_generic`]; integers wrap around.
pub trait Number: Copy + Send + Sync + 'static {
    /// Nothing.
    const ZERO: Self;

    /// `self + a · b`.
    fn add_product(self, a: Self, b: Self) -> Self;

    /// Adds to each element of `y` the products of four numbers and the elements of four rows beside it, one after the other.
    fn add_products(y: &mut [Self], a: [Self; STEPS], b: [&[Self]; STEPS]);
}

/// Steps of the depth that are added at once, so that sums are read and written once for all of them.
const STEPS: usize = 4;

macro_rules! number {
    ($($number:ident: $zero:literal, |$y:ident, $a:ident, $b:ident| $sum:expr, $with_lanes:ident;)*) => {
        $(
            impl Number for $number {
                const ZERO: Self = $zero;

                #[inline(always)]
                fn add_product(self, $a: Self, $b: Self) -> Self {
                    let $y = self;
                    $sum
                }

                fn add_products(y: &mut [Self], a: [Self; STEPS], b: [&[Self]; STEPS]) {
                    // SAFETY: none is needed.
                    unsafe { $with_lanes(y, a, b) }
                }
            }

            dispatched! {
                /// [`Number::add_products`] by the machine's vectors, into which the compiler makes the loop.
                ///
                /// # Safety
                /// None.
                unsafe fn $with_lanes<S>(_s, y: &mut [$number], a: [$number; STEPS], b: [&[$number]; STEPS]) {
                    let [b0, b1, b2, b3] = b.map(|b| &b[..y.len()]);
                    for ((((y, &b0), &b1), &b2), &b3) in y.iter_mut().zip(b0).zip(b1).zip(b2).zip(b3) {
                        *y = y.add_product(a[0], b0).add_product(a[1], b1).add_product(a[2], b2).add_product(a[3], b3);
                    }
                }
            }
        )*
    };
}

number! {
    f32: 0.0, |y, a, b| y + a * b, add_products_f32;
    f64: 0.0, |y, a, b| y + a * b, add_products_f64;
    i8: 0, |y, a, b| y.wrapping_add(a.wrapping_mul(b)), add_products_i8;
    i16: 0, |y, a, b| y.wrapping_add(a.wrapping_mul(b)), add_products_i16;
    i32: 0, |y, a, b| y.wrapping_add(a.wrapping_mul(b)), add_products_i32;
    i64: 0, |y, a, b| y.wrapping_add(a.wrapping_mul(b)), add_products_i64;
    u8: 0, |y, a, b| y.wrapping_add(a.wrapping_mul(b)), add_products_u8;
    u16: 0, |y, a, b| y.wrapping_add(a.wrapping_mul(b)), add_products_u16;
    u32: 0, |y, a, b| y.wrapping_add(a.wrapping_mul(b)), add_products_u32;
    u64: 0, |y, a, b| y.wrapping_add(a.wrapping_mul(b)), add_products_u64;
}

/// `C = A · B` with contiguous row-major `C`: `A` is `m` by `k`, `B` `k` by `n`.
///
/// # Panics
/// When an operand does not hold its dims.
pub fn gemm_generic<T: Number>(
    m: usize,
    n: usize,
    k: usize,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    c: &mut [T],
) {
    a.check(m, k, "left operand");
    b.check(k, n, "right operand");
    assert_eq!(c.len(), elements(&[m, n]), "the output is not {m} by {n}");
    if n == 0 {
        return;
    }
    if b.col_stride == 1 {
        return rows_of(n, k, a, b, c);
    }
    if m == 1 {
        return row_of(k, a, b, c);
    }
    // Each row of `C` would go through columns that lie apart.
    let mut rows = vec![T::ZERO; elements(&[k, n])];
    threads::parallel_chunks(&mut rows, n, n.saturating_mul(2), |l, row| {
        row.iter_mut().enumerate().for_each(|(j, x)| *x = b.at(l, j));
    });
    rows_of(n, k, a, Matrix::row_major(&rows, n), c);
}

/// Rows of `C` that a piece of the work has at most: all of them read what is in the caches of `B`.
const MOST_ROWS: usize = 8;

/// Columns of `C` that stay in the first-level cache, a row at a time.
const COLUMNS: usize = 512;

/// Steps of the depth of `B` whose columns stay in the second-level cache.
const DEPTH: usize = 64;

fn rows_of<T: Number>(n: usize, k: usize, a: Matrix<'_, T>, b: Matrix<'_, T>, c: &mut [T]) {
    let height = (c.len() / n).div_ceil(threads::sharing()).clamp(1, MOST_ROWS);
    threads::parallel_chunks(c, height * n, (height * n).saturating_mul(k), |block, rows| {
        rows.fill(T::ZERO);
        for first in (0..n).step_by(COLUMNS) {
            let columns = first..n.min(first + COLUMNS);
            for start in (0..k).step_by(DEPTH) {
                let steps = start..k.min(start + DEPTH);
                for (i, row) in rows.chunks_exact_mut(n).enumerate() {
                    let row = &mut row[columns.clone()];
                    let x = |l: usize| a.at(block * height + i, l);
                    let part = |l: usize| &b.data[l * b.row_stride + first..][..columns.len()];
                    let mut l = steps.start;
                    while l + STEPS <= steps.end {
                        let at: [usize; STEPS] = core::array::from_fn(|step| l + step);
                        T::add_products(row, at.map(x), at.map(part));
                        l += STEPS;
                    }
                    for l in l..steps.end {
                        let x = x(l);
                        row.iter_mut().zip(part(l)).for_each(|(y, &b)| *y = y.add_product(x, b));
                    }
                }
            }
        }
    });
}

/// One row of `C` from columns of `B` that lie apart.
fn row_of<T: Number>(k: usize, a: Matrix<'_, T>, b: Matrix<'_, T>, c: &mut [T]) {
    threads::parallel_chunks(c, 1, k, |j, y| {
        y[0] = (0..k).fold(T::ZERO, |y, l| y.add_product(a.at(0, l), b.at(l, j)));
    });
}
