//! Grids of coordinates.

use crate::backend::Backend;
use crate::check::ensure;
use crate::{BasicOps, Tensor};
use alloc::vec::Vec;

/// How a grid is indexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridIndexing {
    /// Row before column: dim `i` follows the `i`-th vector.
    #[default]
    Matrix,
    /// `x` before `y`: the first two dims are swapped.
    Cartesian,
}

/// Whether a grid is written out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridSparsity {
    /// Every coordinate at every point.
    #[default]
    Dense,
    /// Dims of size 1 where a coordinate does not change.
    Sparse,
}

/// Options of [`meshgrid`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GridOptions {
    /// How the grid is indexed.
    pub indexing: GridIndexing,
    /// Whether it is written out.
    pub sparsity: GridSparsity,
}

impl GridOptions {
    /// Both options.
    pub const fn new(indexing: GridIndexing, sparsity: GridSparsity) -> Self {
        Self { indexing, sparsity }
    }
}

impl From<GridIndexing> for GridOptions {
    fn from(indexing: GridIndexing) -> Self {
        Self { indexing, ..Self::default() }
    }
}

impl From<GridSparsity> for GridOptions {
    fn from(sparsity: GridSparsity) -> Self {
        Self { sparsity, ..Self::default() }
    }
}

/// Where [`meshgrid_stack`] puts the coordinates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexPos {
    /// In the first dim.
    #[default]
    First,
    /// In the last dim.
    Last,
}

/// The grid that vectors span: for each vector, its coordinate at every point.
pub fn meshgrid<B: Backend, const N: usize, K: BasicOps<B>, O: Into<GridOptions>>(
    tensors: &[Tensor<B, 1, K>; N],
    options: O,
) -> [Tensor<B, N, K>; N] {
    let options = options.into();
    let sizes = core::array::from_fn(|i| tensors[i].dims()[0]);
    core::array::from_fn(|i| {
        let mut dims = [1; N];
        dims[i] = sizes[i];
        let mut grid: Tensor<B, N, K> = tensors[i].clone().reshape(dims);
        if options.sparsity == GridSparsity::Dense {
            grid = grid.expand(sizes);
        }
        if options.indexing == GridIndexing::Cartesian && N > 1 {
            grid = grid.swap_dims(0, 1);
        }
        grid
    })
}

/// [`meshgrid`] with the coordinates of a point together in one dim.
pub fn meshgrid_stack<B: Backend, const D: usize, const D2: usize, K: BasicOps<B>>(
    tensors: &[Tensor<B, 1, K>; D],
    index_pos: IndexPos,
) -> Tensor<B, D2, K> {
    ensure!(D2 == D + 1, "meshgrid_stack", "{D} vectors give rank {}, not {D2}", D + 1);
    let grids: Vec<_> = meshgrid(tensors, GridOptions::default()).into_iter().collect();
    Tensor::stack(grids, if index_pos == IndexPos::First { 0 } else { D })
}
