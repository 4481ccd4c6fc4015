//! What happens to a tile of a product while it is still in the cache.

use super::tile::Finish;
use crate::bounds::Bounds;
use crate::math::{Map, map_rows, map_slice};
use crate::simd::dispatched;
use crate::size::reach;
use core::ops::Range;
use core::ptr::null;
use kiln_types::Activation;

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

impl Bias<'_> {
    /// The same for the transposed product.
    pub(super) fn transposed(self) -> Self {
        match self {
            Bias::None => Bias::None,
            Bias::PerRow(bias) => Bias::PerColumn(bias),
            Bias::PerColumn(bias) => Bias::PerRow(bias),
        }
    }
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

impl Epilogue<'_> {
    /// Whether there is anything to do.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.bias, Bias::None) && self.residual.is_none() && self.activation.is_none()
    }

    /// Checks the sizes for an `m` by `n` product whose rows are `c_step` apart.
    pub(super) fn check(&self, m: usize, n: usize, c_step: usize) {
        match self.bias {
            Bias::None => {}
            Bias::PerRow(bias) => assert_eq!(bias.len(), m, "one bias per row"),
            Bias::PerColumn(bias) => assert_eq!(bias.len(), n, "one bias per column"),
        }
        if let Some(residual) = self.residual {
            assert!(reach([m, n], [c_step, 1]) <= residual.len(), "the residual does not hold C");
        }
    }

    /// All but [`Epilogue::activate`], for a tile that starts at a row and a column of a `C` whose rows are `c_step` apart.
    ///
    /// `check` must have passed, and row and column lie inside.
    pub(super) fn of_tile(&self, row: usize, col: usize, c_step: usize) -> Finish {
        let (row_bias, col_bias) = match self.bias {
            Bias::None => (null(), null()),
            Bias::PerRow(bias) => (bias[row..].as_ptr(), null()),
            Bias::PerColumn(bias) => (null(), bias[col..].as_ptr()),
        };
        let Bounds { low, high, .. } = self.bounds();
        let residual = self.residual.map_or(null(), |residual| residual[row * c_step + col..].as_ptr());
        Finish { row_bias, col_bias, residual, low, high }
    }

    fn bounds(&self) -> Bounds {
        Bounds::of(self.activation)
    }

    /// Whether there is no activation, or one that is no more than bounds.
    pub(super) fn is_bounds(&self) -> bool {
        self.bounds().rest.is_none()
    }

    /// Tiles that are computed before [`Epilogue::activate`] is called for them: few enough that they are still in the first-level cache.
    pub(super) fn tiles_at_once(&self) -> usize {
        if self.is_bounds() { usize::MAX } else { 4 }
    }

    /// Applies an activation that is more than bounds to a part of `C`.
    ///
    /// # Safety
    /// As for [`Epilogue::apply`].
    pub(super) unsafe fn activate(&self, c: *mut f32, c_step: usize, rows: Range<usize>, cols: Range<usize>) {
        let Some(activation) = self.bounds().rest else { return };
        if cols.len() == c_step {
            // SAFETY: the caller's promise; rows follow each other without gaps.
            return unsafe {
                let rows = (c.add(rows.start * c_step), rows.len() * c_step);
                map_slice(Map::Activation(activation), rows.0, rows.0, rows.1);
            };
        }
        // SAFETY: the caller's promise.
        unsafe {
            let first = c.add(rows.start * c_step + cols.start);
            map_rows(Map::Activation(activation), first, c_step, rows.len(), cols.len());
        }
    }

    /// Applies it to a part of `C`.
    ///
    /// # Safety
    /// `check` has passed, and `c` (the whole of `C`) is valid for reading and writing the part.
    pub(super) unsafe fn apply(&self, c: *mut f32, c_step: usize, rows: Range<usize>, cols: Range<usize>) {
        let at = rows.start * c_step + cols.start;
        let (row_bias, col_bias) = match self.bias {
            Bias::None => (None, None),
            Bias::PerRow(bias) => (Some(&bias[rows.clone()]), None),
            Bias::PerColumn(bias) => (None, Some(&bias[cols.clone()])),
        };
        let Bounds { low, high, .. } = self.bounds();
        // SAFETY: the caller's promise.
        unsafe {
            let residual = self.residual.map(|residual| residual.as_ptr().add(at));
            let part = c.add(at);
            add_and_clamp(part, c_step, rows.len(), cols.len(), row_bias, col_bias, residual, low, high);
            self.activate(c, c_step, rows, cols);
        }
    }
}

dispatched! {
    /// `c = clamp(c + row_bias + col_bias + residual, low, high)`; the residual has `c`'s layout.
    ///
    /// # Safety
    /// `c` and `residual` are valid for `rows` rows of `cols` elements, `c_step` apart.
    unsafe fn add_and_clamp<S>(
        s,
        c: *mut f32,
        c_step: usize,
        rows: usize,
        cols: usize,
        row_bias: Option<&[f32]>,
        col_bias: Option<&[f32]>,
        residual: Option<*const f32>,
        low: f32,
        high: f32,
    ) {
        let (low, high) = (s.splat(low), s.splat(high));
        for row in 0..rows {
            let bias = s.splat(row_bias.map_or(0.0, |bias| bias[row]));
            let mut col = 0;
            while col < cols {
                let count = S::LANES.min(cols - col);
                let to = c.add(row * c_step + col);
                let mut x = s.add(s.load_up_to(to, count), bias);
                if let Some(bias) = col_bias {
                    x = s.add(x, s.load_up_to(bias.as_ptr().add(col), count));
                }
                if let Some(residual) = residual {
                    x = s.add(x, s.load_up_to(residual.add(row * c_step + col), count));
                }
                // The operand order lets NaN through.
                s.store_up_to(to, count, s.min(high, s.max(low, x)));
                col += S::LANES;
            }
        }
    }
}
