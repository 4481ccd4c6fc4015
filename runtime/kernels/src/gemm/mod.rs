//! Matrix products `C = activation(A · B + bias + residual)`.
//!
//! `C` is row-major with a row stride. `A` and `B` are views with two strides, so a transposed operand costs nothing, or
//! were packed once ([`PackedLhs`], [`PackedRhs`]) into the order in which the kernel reads them: right for weights.

mod bf16;
mod blocked;
mod deep;
mod epilogue;
mod generic;
mod pack;
mod rows;
mod small;
mod tile;
mod vector;

pub use bf16::{PackedBf16, gemm_bf16, gemm_bf16_batched};
pub use epilogue::{Bias, Epilogue};
pub use generic::{Number, gemm_generic};
pub use pack::{PackedLhs, PackedRhs};

#[cfg(target_arch = "x86_64")]
pub(crate) use bf16::AtOnce;
pub(crate) use bf16::{
    Bf16Product, Bf16Results, Bf16Rows, PANEL, Packed as PackedBf16View, Plainly, Rounding, STEPS, TileSums,
    WHOLE, WindowRows, copy_rows, f32_of, multiplies_pairs, multiplies_tiles, pack_bf16_into,
    packed_bf16_len, panel_sums, round_rows, round_slice, row_step,
};
pub(crate) use blocked::{Panels, Product, cut};
pub(crate) use pack::{
    Part, pack_columns, pack_lhs_into, pack_rhs_into, pack_rhs_panel, packed_place, packed_rhs_len,
};
pub(crate) use rows::{FAR, PanelOrder, Rows, RowsProduct, panel_cols, panel_product, panel_widths};

use crate::scratch::with_scratch;
use crate::simd::level;
use crate::size::{elements, reach};
use crate::threads::{self, SharedMut};
use core::ops::Range;
use pack::pack_lhs;
use tile::Kernels;
use vector::vector_product;

/// A view of a matrix: element `(i, j)` is `data[i · row_stride + j · col_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T = f32> {
    /// The elements, from `(0, 0)` on.
    pub data: &'a [T],
    /// Elements between neighbours in a column.
    pub row_stride: usize,
    /// Elements between neighbours in a row.
    pub col_stride: usize,
}

impl<'a, T: Copy> Matrix<'a, T> {
    /// A row-major matrix with `cols` columns.
    pub fn row_major(data: &'a [T], cols: usize) -> Self {
        Self { data, row_stride: cols, col_stride: 1 }
    }

    /// The same elements with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// Checks that `rows` by `cols` elements lie inside.
    pub(crate) fn check(&self, rows: usize, cols: usize, what: &str) {
        assert!(
            reach([rows, cols], [self.row_stride, self.col_stride]) <= self.data.len(),
            "{what}: {} elements do not hold {rows} rows and {cols} columns",
            self.data.len()
        );
    }

    /// The element in a row and a column.
    pub(crate) fn at(&self, row: usize, col: usize) -> T {
        self.data[row * self.row_stride + col * self.col_stride]
    }
}

/// A left operand.
#[derive(Clone, Copy, Debug)]
pub enum Lhs<'a> {
    /// A view.
    Plain(Matrix<'a>),
    /// Packed.
    Packed(&'a PackedLhs),
}

/// A right operand.
#[derive(Clone, Copy, Debug)]
pub enum Rhs<'a> {
    /// A view.
    Plain(Matrix<'a>),
    /// Packed.
    Packed(&'a PackedRhs),
}

impl Lhs<'_> {
    fn check(&self, rows: usize, depth: usize) {
        match self {
            Lhs::Plain(a) => a.check(rows, depth, "left operand"),
            Lhs::Packed(a) => {
                assert_eq!(a.dims(), (rows, depth), "rows and depth of the left operand");
                assert_eq!(a.level, level(), "the left operand was packed for another machine");
            }
        }
    }
}

impl Rhs<'_> {
    fn check(&self, depth: usize, cols: usize) {
        match self {
            Rhs::Plain(b) => b.check(depth, cols, "right operand"),
            Rhs::Packed(b) => {
                assert_eq!(b.dims(), (depth, cols), "depth and columns of the right operand");
                assert_eq!(b.level, level(), "the right operand was packed for another machine");
            }
        }
    }
}

/// `C = activation(A · B + bias + residual)`: `A` is `m` by `k`, `B` `k` by `n`, `C` `m` by `n`.
///
/// # Panics
/// When an operand does not hold its dims.
#[allow(clippy::too_many_arguments, reason = "the customary arguments of a GEMM")]
pub fn gemm(
    m: usize,
    n: usize,
    k: usize,
    a: Lhs<'_>,
    b: Rhs<'_>,
    c: &mut [f32],
    c_row_stride: usize,
    epilogue: &Epilogue<'_>,
) {
    epilogue.check(m, n, c_row_stride);
    assert!(reach([m, n], [c_row_stride, 1]) <= c.len(), "C does not hold {m} rows and {n} columns");
    assert!(m == 0 || c_row_stride >= n, "rows of C overlap");
    a.check(m, k);
    b.check(k, n);
    product(m, n, k, a, b, c, c_row_stride, epilogue, true);
}

/// `C = A · B`, or `C += A · B` (then the depth is not 0), for `m` rows of `A`, `a_step` apart, which are read where they lie; panels of `B` are
/// read in the given order.
///
/// # Panics
/// When an operand does not hold its dims.
#[allow(clippy::too_many_arguments, reason = "the customary arguments of a GEMM, and the order")]
pub(crate) fn rows_product(
    m: usize,
    a: &[f32],
    a_step: usize,
    b: &PackedRhs,
    c: &mut [f32],
    c_step: usize,
    adds: bool,
    order: PanelOrder,
) {
    let (depth, n) = b.dims();
    assert!(reach([m, n], [c_step, 1]) <= c.len(), "C does not hold {m} rows and {n} columns");
    assert!(m == 0 || c_step >= n, "rows of C overlap");
    assert!(!adds || depth > 0, "nothing to add");
    let (c, epilogue) = (SharedMut::new(c), &Epilogue::default());
    RowsProduct { m, a: Rows::InPlace(a, a_step), b, c: &c, c_start: 0, c_step, adds, order, epilogue }.run();
}

/// `C = A · B` of an `A` that [`pack_lhs_into`] packed and whose depth is not 0.
///
/// # Panics
/// When an operand does not hold its dims.
pub(crate) fn packed_product(
    m: usize,
    n: usize,
    k: usize,
    a: &[f32],
    b: Matrix<'_>,
    c: &mut [f32],
    c_step: usize,
) {
    assert!(k > 0 && a.len() == elements(&[m, k]), "packed left operand");
    assert!(reach([m, n], [c_step, 1]) <= c.len(), "C does not hold {m} rows and {n} columns");
    assert!(m == 0 || c_step >= n, "rows of C overlap");
    b.check(k, n, "right operand");
    if m == 0 || n == 0 {
        return;
    }
    // SAFETY: `B` was checked.
    let fill = |part: Part, to: *mut f32| unsafe { pack_rhs_panel(b, part, to) };
    let (b, c, epilogue) = (Panels::Fill(&fill), SharedMut::new(c), &Epilogue::default());
    Product { m, n, k, a, b, c: &c, c_start: 0, c_step, adds: false, epilogue }.run();
}

/// Cuts `m` rows into parts, no fewer than wanted: a product of some part yields, to the bit, what the product of all rows does.
///
/// A tile of one row sums in an order of its own. So no part's last tile has one row, unless there is one row in all; nor has it where
/// [`RowsProduct`] shares out rows evenly.
pub(crate) fn row_parts(m: usize, wanted: usize) -> impl ExactSizeIterator<Item = Range<usize>> + Clone {
    let tile = Kernels::current().rows;
    let single = |rows: usize| m > 1 && rows % tile == 1;
    let count = (wanted.max(1)..=m).find(|count| !single(m / count) && !single(m.div_ceil(*count)));
    let count = count.unwrap_or(1);
    (0..count).map(move |i| m * i / count..m * (i + 1) / count)
}

/// [`gemm`] after its checks, on several threads or only this one.
#[allow(clippy::too_many_arguments, reason = "the customary arguments of a GEMM")]
fn product(
    m: usize,
    n: usize,
    k: usize,
    a: Lhs<'_>,
    b: Rhs<'_>,
    c: &mut [f32],
    c_step: usize,
    epilogue: &Epilogue<'_>,
    parallel: bool,
) {
    if m == 0 || n == 0 {
        return;
    }
    if k > 0
        && let (Lhs::Plain(a), Rhs::Plain(b)) = (a, b)
    {
        if m == 1 && a.col_stride == 1 && vector_product(n, k, a.data, b, c, epilogue) {
            return;
        }
        if n == 1 && c_step == 1 && b.row_stride == 1 {
            let swapped = Epilogue { bias: epilogue.bias.transposed(), ..*epilogue };
            if vector_product(m, k, b.data, a.transposed(), c, &swapped) {
                return;
            }
        }
        if parallel && epilogue.is_empty() && deep::suits(m, n, k) {
            return deep::deep_product(m, n, k, a, b, c, c_step);
        }
    }
    if parallel
        && let (Lhs::Plain(a), Rhs::Packed(b)) = (a, b)
        && a.col_stride == 1
    {
        let c = SharedMut::new(c);
        return rows::spread(a.data, a.row_stride, m, k, |a, step| {
            let a = Rows::InPlace(a, step);
            let order = PanelOrder::Forwards;
            RowsProduct { m, a, b, c: &c, c_start: 0, c_step, adds: false, order, epilogue }.run();
        });
    }
    let kernels = Kernels::current();
    let fill = |part: Part, to: *mut f32| match b {
        // SAFETY: `B` was checked.
        Rhs::Plain(b) => unsafe { pack_rhs_panel(b, part, to) },
        Rhs::Packed(_) => {}
    };
    let b = match b {
        Rhs::Packed(b) => Panels::Packed(&b.data),
        // Packing pays when each panel is used a few times.
        Rhs::Plain(b) if b.col_stride == 1 && m <= 2 * kernels.rows => Panels::Rows(b.data, b.row_stride),
        Rhs::Plain(_) => Panels::Fill(&fill),
    };
    let c = SharedMut::new(c);
    let run = |a: &[f32]| {
        let product = Product { m, n, k, a, b, c: &c, c_start: 0, c_step, adds: false, epilogue };
        if parallel { product.run() } else { product.run_here() }
    };
    match a {
        Lhs::Packed(a) => run(&a.data),
        Lhs::Plain(a) => with_scratch(elements(&[m, k]), |packed| {
            pack_lhs(&kernels, a, m, k, packed);
            run(packed);
        }),
    }
}

/// Many products of one size: the `i`-th reads `a` and `b` from `offsets[i]` on and writes the `i`-th run of `m · n`
/// elements of `c`. Offsets may repeat, which broadcasts.
///
/// # Panics
/// When an operand does not hold its dims.
pub fn gemm_batched(
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
    let last_a = offsets.iter().map(|o| o[0]).max().unwrap_or(0);
    let last_b = offsets.iter().map(|o| o[1]).max().unwrap_or(0);
    assert!(last_a <= a.data.len() && last_b <= b.data.len(), "an offset lies outside of its operand");
    Matrix { data: &a.data[last_a..], ..a }.check(m, k, "left operand");
    Matrix { data: &b.data[last_b..], ..b }.check(k, n, "right operand");
    let work = m.saturating_mul(n).saturating_mul(k) / 100 + 1;
    if small::suits(m, n, k) {
        let c = SharedMut::new(c);
        return threads::parallel_for(offsets.len(), work + 10, |range| {
            // SAFETY: operands were checked from the last offset on, and so hold their dims from each; each product has its own part of the output.
            unsafe {
                small::small_products([m, n, k], a, b, &offsets[range.clone()], c.ptr(range.start * m * n))
            };
        });
    }
    // Large products share out their own work; small ones are the work that is shared out.
    let split_each = offsets.len() < 2 * threads::sharing() && work >= threads::INLINE_WORK;
    let c = SharedMut::new(c);
    let one = |i: usize| {
        let a = Matrix { data: &a.data[offsets[i][0]..], ..a };
        let b = Matrix { data: &b.data[offsets[i][1]..], ..b };
        // SAFETY: each product has its own part of the output.
        let c = unsafe { c.slice(i * m * n..(i + 1) * m * n) };
        product(m, n, k, Lhs::Plain(a), Rhs::Plain(b), c, n, &Epilogue::default(), split_each);
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
pub(crate) use bf16::with_all_instructions;
#[cfg(test)]
pub(crate) use tests::noise;
