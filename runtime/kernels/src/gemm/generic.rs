//! Matrix products of the other element types: one plain, cache-friendly loop.

use super::Matrix;
use crate::size::elements;
use crate::threads;

/// An element of [`gemm_generic`]; integers wrap around.
pub trait Number: Copy + Send + Sync + 'static {
    /// Nothing.
    const ZERO: Self;

    /// `self + a · b`.
    fn add_product(self, a: Self, b: Self) -> Self;
}

macro_rules! number {
    ($($float:ty),*; $($int:ty),*) => {
        $(impl Number for $float {
            const ZERO: Self = 0.0;

            #[inline(always)]
            fn add_product(self, a: Self, b: Self) -> Self {
                self + a * b
            }
        })*
        $(impl Number for $int {
            const ZERO: Self = 0;

            #[inline(always)]
            fn add_product(self, a: Self, b: Self) -> Self {
                self.wrapping_add(a.wrapping_mul(b))
            }
        })*
    };
}

number!(f32, f64; i8, i16, i32, i64, u8, u16, u32, u64);

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
    threads::parallel_chunks(c, n, n * k, |i, row| {
        row.fill(T::ZERO);
        for l in 0..k {
            let x = a.at(i, l);
            if b.col_stride == 1 {
                let b = &b.data[l * b.row_stride..][..n];
                for (y, &b) in row.iter_mut().zip(b) {
                    *y = y.add_product(x, b);
                }
            } else {
                for (j, y) in row.iter_mut().enumerate() {
                    *y = y.add_product(x, b.at(l, j));
                }
            }
        }
    });
}
