//! Matrix products `C = activation(A · B + bias + residual)`.
//!
//! `C` is row-major with a row stride. `A` and `B` are views with two strides, so a transposed operand costs nothing, or
//! were packed once ([`PackedLhs`], [`PackedRhs`]) into the order in which the kernel reads them: right for weights.

mod generic;

pub use generic::{Number, gemm_generic};

use crate::elementwise::activation_of;
use alloc::vec::Vec;
use kiln_types::Activation;

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
        if rows > 0 && cols > 0 {
            let last = (rows - 1) * self.row_stride + (cols - 1) * self.col_stride;
            assert!(
                last < self.data.len(),
                "{what}: {} elements do not hold {rows} rows and {cols} columns",
                self.data.len()
            );
        }
    }

    /// The element in a row and a column.
    pub(crate) fn at(&self, row: usize, col: usize) -> T {
        self.data[row * self.row_stride + col * self.col_stride]
    }
}

/// A left operand, packed.
#[derive(Clone, Debug)]
pub struct PackedLhs {
    rows: usize,
    depth: usize,
    data: Vec<f32>,
}

/// A right operand, packed.
#[derive(Clone, Debug)]
pub struct PackedRhs {
    depth: usize,
    cols: usize,
    data: Vec<f32>,
}

impl PackedLhs {
    /// Packs `rows` by `depth` elements.
    ///
    /// # Panics
    /// When the view does not hold them.
    pub fn new(a: Matrix<'_>, rows: usize, depth: usize) -> Self {
        a.check(rows, depth, "left operand");
        let data = (0..rows * depth).map(|i| a.at(i / depth, i % depth)).collect();
        Self { rows, depth, data }
    }

    /// Rows and depth.
    pub fn dims(&self) -> (usize, usize) {
        (self.rows, self.depth)
    }
}

impl PackedRhs {
    /// Packs `depth` by `cols` elements.
    ///
    /// # Panics
    /// When the view does not hold them.
    pub fn new(b: Matrix<'_>, depth: usize, cols: usize) -> Self {
        b.check(depth, cols, "right operand");
        let data = (0..depth * cols).map(|i| b.at(i / cols, i % cols)).collect();
        Self { depth, cols, data }
    }

    /// Depth and columns.
    pub fn dims(&self) -> (usize, usize) {
        (self.depth, self.cols)
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

/// What is added to a product along one of its dims.
#[derive(Clone, Copy, Debug, Default)]
pub enum Bias<'a> {
    /// Nothing.
    #[default]
    None,
    /// One number per row of `C`.
    PerRow(&'a [f32]),
    /// One number per column of `C`.
    PerColumn(&'a [f32]),
}

/// What happens to a product on its way out: `activation(x + bias + residual)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// Added per row or column.
    pub bias: Bias<'a>,
    /// Added element by element; laid out like `C`.
    pub residual: Option<&'a [f32]>,
    /// Applied last.
    pub activation: Option<Activation>,
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
    let a = match a {
        Lhs::Plain(a) => a,
        Lhs::Packed(a) => Matrix::row_major(&a.data, a.depth),
    };
    let b = match b {
        Rhs::Plain(b) => b,
        Rhs::Packed(b) => Matrix::row_major(&b.data, b.cols),
    };
    a.check(m, k, "left operand");
    b.check(k, n, "right operand");
    for i in 0..m {
        for j in 0..n {
            let mut sum = 0.0;
            for l in 0..k {
                sum += a.at(i, l) * b.at(l, j);
            }
            sum += match epilogue.bias {
                Bias::None => 0.0,
                Bias::PerRow(bias) => bias[i],
                Bias::PerColumn(bias) => bias[j],
            };
            let at = i * c_row_stride + j;
            sum += epilogue.residual.map_or(0.0, |residual| residual[at]);
            c[at] = epilogue.activation.map_or(sum, |activation| activation_of(activation, sum));
        }
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
    offsets: &[(usize, usize)],
    c: &mut [f32],
) {
    assert_eq!(c.len(), offsets.len() * m * n, "the output does not hold {} products", offsets.len());
    for (i, &(offset_a, offset_b)) in offsets.iter().enumerate() {
        let a = Matrix { data: &a.data[offset_a..], ..a };
        let b = Matrix { data: &b.data[offset_b..], ..b };
        let c = &mut c[i * m * n..(i + 1) * m * n];
        gemm(m, n, k, Lhs::Plain(a), Rhs::Plain(b), c, n, &Epilogue::default());
    }
}
