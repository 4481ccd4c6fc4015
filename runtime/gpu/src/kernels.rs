//! The kernels: each family has a template, what is known when it is compiled, and the code that launches it.

pub mod access;
pub mod attention;
pub mod cross_entropy;
pub mod direct;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod epilogue;
pub mod gemv;
pub mod grouped;
pub mod index;
pub mod matmul;
pub mod norm_gradient;
mod order;
mod parts;
mod product;
pub(crate) mod program;
mod quads;
pub mod quantized;
pub mod random;
pub mod recurrent;
pub mod reduce;
mod right;
pub mod rows;
pub mod scan;
pub mod segments;
pub mod sort;
pub mod source;
mod tiles;
pub mod tiling;
pub mod transpose;
mod tune;
mod warps;
mod wide;
pub mod window;

pub use tiles::Form;

use crate::language::{Builder, Builtin, Kernel, Value};
use crate::runtime::{Launch, Runtime};
use crate::tensor::GpuTensor;
use smallvec::SmallVec;

macro_rules! templates {
    ($($(#[$doc:meta])* $name:ident($template:ty),)*) => {
        /// A kernel by what it is made of. Equal templates are the same kernel, compiled once.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Template {
            $($(#[$doc])* $name($template),)*
        }

        impl Template {
            /// The kernel.
            pub fn kernel(&self) -> Kernel {
                match self {
                    $(Template::$name(template) => template.kernel(),)*
                }
            }

            /// Those of its buffers, which are given in order, that it writes to.
            pub fn written<T>(&self, buffers: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
                let bindings = self.kernel().bindings;
                buffers.zip(bindings).filter(|(_, binding)| binding.writable).map(|(buffer, _)| buffer)
            }
        }

        $(impl From<$template> for Template {
            fn from(template: $template) -> Self {
                Template::$name(template)
            }
        })*
    };
}

templates! {
    /// Elementwise programs, copies and fills.
    Elementwise(elementwise::Elementwise),
    /// Copies that lay rows as columns.
    Transpose(transpose::Transpose),
    /// Reductions of dims.
    Reduce(reduce::Reduce),
    /// Means of runs of columns, and squares about them.
    Moments(reduce::Moments),
    /// Those of all runs of a column.
    JoinMoments(reduce::JoinMoments),
    /// Positions of extremes.
    ArgReduce(reduce::ArgReduce),
    /// Softmax and norms of rows.
    Rows(rows::Rows),
    /// Gradients of norms of rows.
    NormGradient(norm_gradient::NormGradient),
    /// Softmax and cross-entropy as one.
    CrossEntropy(cross_entropy::CrossEntropy),
    /// Scans.
    Scan(scan::Scan),
    /// Positions where something is true.
    Compact(scan::Compact),
    /// Reads at positions that a tensor names.
    Gather(index::Gather),
    /// Writes at positions that a tensor names.
    Scatter(index::Scatter),
    /// Writes that replace what other writes leave.
    Assign(index::Assign),
    /// Which of those come last.
    LastPlaces(index::LastPlaces),
    /// Sums of what arrives at the rows of a table.
    EmbeddingGradient(embedding::EmbeddingGradient),
    /// Reductions of what names the same rows, in their order.
    SegmentedReduction(segments::SegmentedReduction),
    /// Sorts of blocks.
    BlockSort(sort::BlockSort),
    /// Sorted runs as one.
    MergeRuns(sort::MergeRuns),
    /// Matrix products in tiles that a workgroup shares.
    Matmul(matmul::Matmul),
    /// Matrix products without shared memory.
    Direct(direct::Direct),
    /// Matrix products of few rows.
    Gemv(gemv::Gemv),
    /// Matrix products of 8-bit integers.
    MatmulInteger(quantized::MatmulInteger),
    /// Attention.
    Attention(attention::Attention),
    /// Attention in tiles that a workgroup shares.
    TiledAttention(attention::TiledAttention),
    /// Attention of few queries.
    Decode(attention::Decode),
    /// What joins parts of that.
    DecodeJoin(attention::DecodeJoin),
    /// Attention by tensor cores.
    Flash(attention::Flash),
    /// Its gradients.
    FlashGradient(attention::FlashGradient),
    /// Convolutions, transposed or not.
    Conv(window::Conv),
    /// Convolutions of which each channel has its own windows.
    DepthwiseConv(window::DepthwiseConv),
    /// Convolutions with windows of single elements that yield few channels.
    NarrowConv(window::NarrowConv),
    /// Copies of images with zeros behind their channels.
    FillChannels(window::FillChannels),
    /// What windows see, as the rows of a matrix.
    Im2col(window::Im2col),
    /// Convolutions of 8-bit integers.
    ConvInteger(window::ConvInteger),
    /// Those by rows of the result.
    RowConv(window::RowConv),
    /// Gradients of a convolution's weight.
    WeightGradient(window::WeightGradient),
    /// Those by rows of windows.
    RowWeightGradient(window::RowWeightGradient),
    /// Pooling.
    Pool(window::Pool),
    /// Gradients of what was pooled.
    PoolGradient(window::PoolGradient),
    /// Gradients of what was averaged to a size.
    AdaptivePoolGradient(window::AdaptivePoolGradient),
    /// Recurrent layers.
    Recurrent(recurrent::Recurrent),
    /// Those step by step.
    RecurrentStep(recurrent::RecurrentStep),
    /// Dropout.
    Dropout(dropout::Dropout),
    /// Random numbers.
    Random(random::Random),
}

/// Invocations of a workgroup where each does the same for another position.
pub(crate) const LINE: u32 = 256;

/// Workgroups that one after another cover `count` of them, along x and, where those are too many, y.
pub(crate) fn line_of_groups<R: Runtime>(device: &R::Device, count: usize) -> [u32; 3] {
    let most = R::limits(device).groups as usize;
    let rows = count.div_ceil(most).max(1);
    [count.div_ceil(rows) as u32, rows as u32, 1]
}

/// Workgroups of [`LINE`] invocations for `count` positions.
pub(crate) fn line_of<R: Runtime>(device: &R::Device, count: usize) -> [u32; 3] {
    line_of_groups::<R>(device, count.div_ceil(LINE as usize))
}

/// The place of a workgroup among blocks along x, y and z, of which there may be more than a grid has along an axis: the next
/// parameters say which of them the grid begins with. See [`launch_blocks`].
pub(crate) fn block(k: &Builder) -> [Value<'_>; 3] {
    [Builtin::GroupX, Builtin::GroupY, Builtin::GroupZ].map(|axis| k.parameter() + k.builtin(axis))
}

/// Runs a kernel of one workgroup a [`block`], which are the kernel's first parameters: in one grid, or in as many as the device needs.
/// Where it is `open` and one grid does, the kernel can do [more](then) with each element of its last tensor, all of which it writes.
pub(crate) fn launch_blocks<R: Runtime>(
    device: &R::Device,
    template: impl Into<Template>,
    tensors: &[&GpuTensor<R>],
    parameters: &[u32],
    blocks: [usize; 3],
    open: bool,
) {
    let template = template.into();
    let most = R::limits(device).groups as usize;
    // Each element is read and written by one of the grids.
    let mut moved = bytes_moved(tensors);
    if blocks.iter().all(|&blocks| blocks <= most) {
        let words: SmallVec<[u32; 64]> = [0; 3].iter().chain(parameters).copied().collect();
        let writes = tensors.last().filter(|_| open).map(|output| (tensors.len() - 1, output.len()));
        run(device, template, tensors, &words, blocks.map(|blocks| blocks as u32), moved, writes);
        return;
    }
    let [across, down, deep] = blocks.map(|blocks| (0..blocks).step_by(most));
    for z in deep {
        for y in down.clone() {
            for x in across.clone() {
                let first = [x, y, z];
                let groups = [0, 1, 2].map(|axis| (blocks[axis] - first[axis]).min(most) as u32);
                let words = [first.map(|at| at as u32).as_slice(), parameters].concat();
                run(device, template.clone(), tensors, &words, groups, core::mem::take(&mut moved), None);
            }
        }
    }
}

/// Runs a kernel, which reads and writes its tensors whole.
pub(crate) fn launch<R: Runtime>(
    device: &R::Device,
    template: impl Into<Template>,
    tensors: &[&GpuTensor<R>],
    parameters: &[u32],
    groups: [u32; 3],
) {
    run(device, template.into(), tensors, parameters, groups, bytes_moved(tensors), None);
}

/// [`launch`] of a kernel that writes all of its last tensor, and can do [more](then) with each element.
pub(crate) fn launch_open<R: Runtime>(
    device: &R::Device,
    template: impl Into<Template>,
    tensors: &[&GpuTensor<R>],
    parameters: &[u32],
    groups: [u32; 3],
) {
    let writes_all_of = tensors.last().map(|output| (tensors.len() - 1, output.len()));
    run(device, template.into(), tensors, parameters, groups, bytes_moved(tensors), writes_all_of);
}

fn bytes_moved<R: Runtime>(tensors: &[&GpuTensor<R>]) -> usize {
    tensors.iter().map(|tensor| tensor.bytes_in_memory()).sum()
}

/// Runs a kernel that reads and writes `moved` bytes; where it writes all of a tensor, that is said as in [`Launch::writes_all_of`].
fn run<R: Runtime>(
    device: &R::Device,
    template: Template,
    tensors: &[&GpuTensor<R>],
    parameters: &[u32],
    groups: [u32; 3],
    moved: usize,
    writes_all_of: Option<(usize, usize)>,
) {
    let buffers: SmallVec<[&R::Memory; 8]> = tensors.iter().map(|tensor| &tensor.memory).collect();
    R::launch(device, Launch { template, buffers: &buffers, parameters, groups, moved, writes_all_of });
}
