//! Grids of coordinates.

use crate::backend::Backend;
use crate::check::ensure;
use crate::{BasicOps, Tensor, TensorData};
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

/// Where the pixels of an image `[batch, channels, height, width]` go by affine maps `[batch, 2, 3]`: `[batch, height, width, 2]`, `x`
/// before `y`, from -1 to 1 between the centers of the outermost pixels. It is a grid for
/// [`Tensor::grid_sample_2d`] with `align_corners`.
///
/// # Panics
/// When the maps have other dims, or are not as many as images.
pub fn affine_grid_2d<B: Backend>(transform: Tensor<B, 3>, dims: [usize; 4]) -> Tensor<B, 4> {
    let [batch, _, height, width] = dims;
    let shape = transform.shape();
    ensure!(shape[..] == [batch, 2, 3], "affine_grid_2d", "maps {shape} are not [{batch}, 2, 3]");
    // A single pixel lies in the middle, as in PyTorch.
    let place = |at: usize, size: usize| match size {
        1 => 0.0,
        _ => 2.0 * at as f64 / (size - 1) as f64 - 1.0,
    };
    let points: Vec<f64> =
        (0..height * width).flat_map(|i| [place(i % width, width), place(i / width, height), 1.0]).collect();
    let points = TensorData::new(points, [1, height * width, 3]);
    let points = Tensor::<B, 3>::from_data_dtype(points, &transform.device(), transform.dtype());
    let points = points.expand([batch, height * width, 3]);
    points.matmul(transform.transpose()).reshape([batch, height, width, 2])
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
