//! What the backend asks of a device: [NVIDIA's driver](nvidia), or what tests put in its place.

mod allocator;
mod blas;
mod dnn;
mod nccl;
pub mod nvidia;
mod staging;

use crate::cache::Cache;
use kiln_gpu::language::Factors;
use kiln_gpu::runtime::ConvolutionDirection;
use kiln_tensor::{Activation, DType, Windows};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A device. All that is asked of it is done in the order in which it is asked for; only [`Pending::wait`] and
/// [`Driver::synchronize`] wait.
pub trait Driver: Any + Debug + Send + Sync {
    /// The device's name.
    fn name(&self) -> String;

    /// What code is compiled for, such as `sm_90`.
    fn architecture(&self) -> String;

    /// Names the compiler with its version: what it made is used again only by the same.
    fn compiler(&self) -> String;

    /// Where compiled kernels are kept between starts.
    fn cache(&self) -> Option<Cache> {
        Cache::of_user()
    }

    /// Memory with arbitrary contents.
    ///
    /// # Errors
    /// When there is no more: [`DriverError::is_out_of_memory`].
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError>;

    /// Gives memory back, which nothing that is asked for later uses.
    ///
    /// # Errors
    /// When the device fails.
    fn free(&self, address: Address) -> Result<(), DriverError>;

    /// Waits until everything has run, and gives back to the system what was [freed](Self::free).
    ///
    /// # Errors
    /// When the device fails.
    fn trim(&self) -> Result<(), DriverError>;

    /// Compiles CUDA C++ for the device.
    ///
    /// # Errors
    /// When the compiler refuses it, with what it says.
    fn compile(&self, source: &str) -> Result<Vec<u8>, DriverError>;

    /// Loads what was compiled.
    ///
    /// # Errors
    /// When it is not code for the device, or has no such function.
    fn load(&self, image: &[u8], entry_point: &str) -> Result<Function, DriverError>;

    /// Runs a kernel.
    ///
    /// # Errors
    /// When the device fails, or refuses the grid.
    fn launch(&self, launch: &KernelLaunch<'_>) -> Result<(), DriverError>;

    /// How many multiprocessors it has.
    fn multiprocessors(&self) -> u32;

    /// Whether its tensor cores multiply such factors.
    fn multiplies(&self, factors: Factors) -> bool;

    /// Whether a library should be asked for a batch of products: all that waits is launched before it is.
    fn takes_product(&self, product: &Product) -> bool;

    /// Computes a batch of products by a library, if there is one that is faster at it than kernels of Kiln's, and does to each element what
    /// is asked for; says whether it does. Of the ways to do it that the library advises, it goes the one of this number: 0 is the one that it takes for the fastest,
    /// and those behind are fewer than [`WAYS`].
    ///
    /// # Errors
    /// When the library fails.
    fn product(&self, product: &Product, way: usize) -> Result<bool, DriverError>;

    /// Likewise a convolution, or one of its gradients, with what is to be done to its results, all of it.
    ///
    /// # Errors
    /// When the library fails.
    fn convolve(&self, convolution: &Convolution, way: usize) -> Result<bool, DriverError>;

    /// Names the libraries with their versions: what is known of their ways holds for those alone.
    fn libraries(&self) -> String;

    /// With how many channels of images the library takes such a convolution with the channels last in memory, if it should be asked for it so:
    /// see [`Runtime::channels_if_last`](kiln_gpu::runtime::Runtime::channels_if_last).
    fn channels_if_last(&self, shape: &ConvolutionShape) -> Option<usize>;

    /// Copies bytes to the device; they may change as soon as this returns.
    ///
    /// # Errors
    /// When the device fails.
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DriverError>;

    /// Begins to copy bytes from the device. Where that are none, they are there as soon as all is done that was asked for before.
    ///
    /// # Errors
    /// When the device fails.
    fn download(&self, parts: &[(Address, usize)]) -> Result<Box<dyn Pending>, DriverError>;

    /// Copies bytes from another device of the same driver: after what was asked of that so far, and before what is asked of it later. Says
    /// whether it does; otherwise they go through the host.
    ///
    /// # Errors
    /// When one of the devices fails.
    fn copy_from(
        &self,
        to: Address,
        other: &dyn Driver,
        from: Address,
        bytes: usize,
    ) -> Result<bool, DriverError>;

    /// Has memory of this device and of others of the same driver hold the sums of what they hold, by a library, if there is one: after what was asked of
    /// all of them so far, and before what is asked of any later. Says whether it does. The first of `sets` is of this device, the others are of `others`; those at
    /// the same place of all sets are equally many numbers of one dtype.
    ///
    /// # Errors
    /// When the library fails, which leaves anything in the memory.
    fn all_reduce(&self, others: &[&dyn Driver], sets: &[Vec<Numbers>]) -> Result<bool, DriverError>;

    /// Waits until all is done.
    ///
    /// # Errors
    /// When the device failed, or writes launches down.
    fn synchronize(&self) -> Result<(), DriverError>;

    /// From here on launches are written down, not run. Memory that is allocated and bytes that are uploaded meanwhile are there at
    /// once.
    ///
    /// # Errors
    /// When the device fails.
    fn begin_capture(&self) -> Result<(), DriverError>;

    /// Ends that, and yields what was written down.
    ///
    /// # Errors
    /// When something was asked for meanwhile that cannot be written down.
    fn end_capture(&self) -> Result<Written, DriverError>;

    /// Makes of what was written down what runs. It may be asked for again, where there was no memory.
    ///
    /// # Errors
    /// When the device fails.
    fn instantiate(&self, written: Written) -> Result<Captured, DriverError>;

    /// Forgets what was written down; what was made of it runs as before.
    fn discard(&self, written: Written);

    /// Runs it.
    ///
    /// # Errors
    /// When the device fails.
    fn replay(&self, captured: Captured) -> Result<(), DriverError>;

    /// Forgets what runs; it may be running.
    fn forget(&self, captured: Captured);

    /// Gives up the device's context with all that was had from it, even where the device failed. Whatever is asked for by this handle
    /// after that is an error, and there is nothing left to free or to forget; the device can be opened anew.
    ///
    /// # Errors
    /// When the driver refuses it.
    fn close(&self) -> Result<(), DriverError>;
}

/// A copy from the device that was begun.
pub trait Pending: Send {
    /// Waits until it is done.
    ///
    /// # Errors
    /// When the device failed.
    fn wait(self: Box<Self>) -> Result<Vec<Vec<u8>>, DriverError>;
}

/// Where memory of the device begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(pub u64);

/// A function of the device, as its driver names it; it stays loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function(pub u64);

/// Launches that were written down, as the driver names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Written(pub u64);

/// What runs them, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Captured(pub u64);

/// One run of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct KernelLaunch<'a> {
    /// Which.
    pub function: Function,
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block along x and y.
    pub threads: [u32; 2],
    /// Its first arguments.
    pub buffers: &'a [Address],
    /// Those that follow, 4 bytes each.
    pub words: &'a [u32],
    /// Whether these are one argument, a [table](kiln_gpu::language::cuda::batch).
    pub is_table: bool,
}

/// Numbers in memory of a device, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Where the first is.
    pub start: Address,
    /// How many there are.
    pub count: usize,
    /// Their dtype.
    pub dtype: DType,
}

/// A batch of matrix products, `activation(lhs · rhs + bias + added)`, with a number of the bias for each column, added to all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// The elements' dtype: that of floats.
    pub dtype: DType,
    /// Whether factors may be rounded to the 11 bits of TF32.
    pub tf32: bool,
    /// Rows and columns of the result, and the depth.
    pub size: [usize; 3],
    /// How many there are.
    pub count: usize,
    /// The left sides.
    pub lhs: Matrices,
    /// The right sides.
    pub rhs: Matrices,
    /// Where the numbers for the columns are, one after another.
    pub bias: Option<Address>,
    /// Where the numbers that are added to the results are, which lie as these do.
    pub added: Option<Address>,
    /// What is done to each element at last; NaN may become 0 by [`Activation::Relu`].
    pub activation: Option<Activation>,
    /// Where the results go, row-major one after another.
    pub out: Address,
    /// Where the sums of the right side's columns go, one after another.
    pub sums: Option<Address>,
}

impl Product {
    /// The same wherever it lies.
    #[must_use]
    pub fn without_addresses(&self) -> Self {
        let nowhere = |address: Option<Address>| address.map(|_| Address(0));
        Self {
            lhs: Matrices { start: Address(0), ..self.lhs },
            rhs: Matrices { start: Address(0), ..self.rhs },
            bias: nowhere(self.bias),
            added: nowhere(self.added),
            out: Address(0),
            sums: nowhere(self.sums),
            ..*self
        }
    }
}

/// Where the matrices of a batch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrices {
    /// Where the first begins.
    pub start: Address,
    /// Elements from each to the next: 0 where all are one.
    pub next: usize,
    /// Whether they lie column by column, rather than row by row.
    pub transposed: bool,
    /// Elements from each row (or column) to the next.
    pub leading: usize,
}

/// Which convolution, or which of its gradients, as [`kiln_gpu::runtime::ConvolutionShape`] says, and how all of it lies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvolutionShape {
    /// The elements' dtype: that of floats.
    pub dtype: DType,
    /// Whether factors may be rounded to the 11 bits of TF32.
    pub tf32: bool,
    /// Which of the three tensors is computed.
    pub direction: ConvolutionDirection,
    /// The windows over the images.
    pub windows: Windows,
    /// Number of images.
    pub batch: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Channels of the images, and of the results.
    pub channels: [usize; 2],
    /// Whether the channels of images, weights and results stand last in memory.
    pub channels_last: bool,
}

/// A convolution, or one of its gradients, as [`kiln_gpu::runtime::Convolution`] says.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Which one.
    pub shape: ConvolutionShape,
    /// Where the images are.
    pub image: Address,
    /// Where the weights are.
    pub weight: Address,
    /// Where the results are.
    pub result: Address,
    /// What is done to the results of a forward pass before they are written.
    pub epilogue: Option<Epilogue>,
}

/// What is done to the results of a convolution, as [`kiln_gpu::runtime::ConvolutionEpilogue`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// Where the numbers for the channels are.
    pub bias: Address,
    /// Where that is what is added to the results.
    pub residual: Option<Address>,
    /// Whether negative results become 0, and NaN may.
    pub relu: bool,
}

/// Ways that a library advises at most.
pub const WAYS: usize = 8;

/// The variable that names libraries of NVIDIA's which are not to be used though they are there, with commas between them: `cublaslt`,
/// `cudnn`, `nccl`; `cublaslt-bgrad` leaves it the products, but not the sums beside them that are gradients of biases: these were slow for some shapes on an A100 with CUDA 11.7
/// (github.com/NVIDIA/CUDALibrarySamples, issue 90).
pub const WITHOUT: &str = "KILN_CUDA_WITHOUT";

/// The variable that names libraries, by commas, that are asked however small the work is: for tests, and to compare. By themselves they are asked
/// for what they were faster at when that was measured.
pub const ALWAYS: &str = "KILN_CUDA_ALWAYS";

/// Whether a library may be used.
fn is_wanted(library: &str) -> bool {
    !is_named(WITHOUT, library)
}

/// Whether a library is among those that a variable names.
fn is_named(variable: &str, library: &str) -> bool {
    let names = std::env::var(variable).unwrap_or_default();
    names.split(',').any(|name| name.trim().eq_ignore_ascii_case(library))
}

/// What a driver says went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {reason}")]
pub struct DriverError {
    /// What was asked for.
    pub call: &'static str,
    /// What the driver says.
    pub reason: String,
    /// Whether the device has no more memory; it can be used on.
    pub is_out_of_memory: bool,
    /// Whether a kernel faulted, which from there on fails all that is asked for.
    pub is_fault: bool,
}

/// Opens devices by their numbers.
pub(crate) type Open = Arc<dyn Fn(usize) -> Result<Arc<dyn Driver>, crate::InitError> + Send + Sync>;
