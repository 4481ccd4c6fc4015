//! What a kind of GPU does for the operations: memory, launches, reads.

use crate::kernels::Template;
use crate::language::{Factors, Storage};
use crate::tensor::GpuTensor;
use kiln_tensor::backend::{DeviceOps, ExecutionError};
use kiln_tensor::{Activation, DType, Windows};
use smallvec::SmallVec;
use std::fmt::Debug;
use std::future::Future;
use std::ops::Range;

/// Numbers that lie one after another.
#[derive(Clone, Debug)]
pub struct Numbers<R: Runtime> {
    /// Where they lie.
    pub memory: R::Memory,
    /// Which bytes of it they are.
    pub bytes: Range<usize>,
    /// Their dtype.
    pub dtype: DType,
}

/// A kind of GPU.
///
/// Launches run one after another: each sees what those before it wrote. None is waited for but by reads and
/// [`Runtime::sync`]. What goes wrong on the device is told by those; the tensors that depend on it hold nothing of worth
/// then, and the process goes on.
pub trait Runtime: Clone + Copy + Debug + Default + Send + Sync + 'static {
    /// Names a device.
    type Device: DeviceOps;
    /// Memory on a device, counted: the last clone that is dropped gives it back.
    type Memory: Clone + Debug + Send + Sync + 'static;

    /// The backend's name with the device.
    fn name(device: &Self::Device) -> String;

    /// What the device can do.
    fn limits(device: &Self::Device) -> Limits;

    /// Whether kernels read and write elements of a kind, and compute with their [value's type](Storage::value). No kernel is made for a
    /// device with elements that it does not support.
    fn supports(device: &Self::Device, storage: Storage) -> bool;

    /// Memory with arbitrary contents.
    fn allocate(device: &Self::Device, bytes: usize) -> Self::Memory;

    /// Memory with the given contents.
    fn upload(device: &Self::Device, bytes: &[u8]) -> Self::Memory;

    /// A copy of bytes of one device's memory in another's, where it need not go through the host.
    fn copy_between(
        from: &Self::Device,
        part: &(Self::Memory, Range<usize>),
        to: &Self::Device,
    ) -> Option<Self::Memory> {
        let _ = (from, part, to);
        None
    }

    /// Has memory of several devices hold the sums of what they hold, by a library of the vendor's that moves numbers between its devices; says
    /// whether it does. Each of `sets` has numbers on one of the devices, of which each is named once; those at the same place of
    /// all sets are equally many of one dtype.
    fn all_reduce(devices: &[Self::Device], sets: &[Vec<Numbers<Self>>]) -> bool {
        let _ = (devices, sets);
        false
    }

    /// Number of bytes of memory.
    fn bytes(memory: &Self::Memory) -> usize;

    /// A part of memory, which it shares; it starts at a multiple of [`Limits::binding_alignment`].
    fn window(memory: &Self::Memory, range: Range<usize>) -> Self::Memory;

    /// Whether nobody else holds the memory, so that it may be written to: what is kept of its contents goes.
    fn is_unique(memory: &mut Self::Memory) -> bool;

    /// What was made of the contents of memory, and is kept with it until it is written to or given back. Made anew where there is none, or
    /// another.
    fn derived(memory: &Self::Memory, what: Derived, make: impl FnOnce() -> Self::Memory) -> Self::Memory;

    /// Has what was [made](Self::derived) of the contents be made anew, since these change.
    fn forget_derived(memory: &Self::Memory);

    /// Runs a kernel.
    fn launch(device: &Self::Device, launch: Launch<'_, Self>);

    /// Computes a batch of products by a library of the device's vendor, where there is one that is faster than kernels of Kiln's;
    /// says whether it does.
    fn product(device: &Self::Device, product: &MatrixProduct<'_, Self>) -> bool {
        let _ = (device, product);
        false
    }

    /// Likewise a convolution, or one of its gradients, with what is to be done to its results, all of it.
    fn convolution(device: &Self::Device, convolution: &Convolution<'_, Self>) -> bool {
        let _ = (device, convolution);
        false
    }

    /// How many channels images should have for a convolution that the library should be asked for with the channels last in memory, because it is
    /// faster so: as many as they have or, of one group in a forward pass or for the gradient of
    /// the weights, more, of which those behind their own are zeros, as are their weights.
    fn channels_if_last(device: &Self::Device, shape: &ConvolutionShape<'_>) -> Option<usize> {
        let _ = (device, shape);
        None
    }

    /// As what tensor cores multiply numbers of a dtype, where the device has such and may use them for it: no float is
    /// rounded to fewer bits unless that was asked for.
    fn factors(device: &Self::Device, dtype: DType) -> Option<Factors> {
        let _ = (device, dtype);
        None
    }

    /// Lets the last kernel that was launched do more, where it is the one that wrote all `elements` of `memory` and has not been handed to
    /// the device; `with` makes another kernel of it, or leaves it as it is. Says whether it does now.
    fn amend<'a>(
        device: &Self::Device,
        memory: &mut Self::Memory,
        elements: usize,
        with: impl FnOnce(Last<'_, Self>) -> Option<Amendment<'a, Self>>,
    ) -> bool;

    /// Which of several ways to do the same, by its place among them, is the fastest for work of a class. `run` goes one of them, and says whether
    /// it can be gone. Only devices that [time them](Limits::tunes) are asked.
    fn fastest(
        device: &Self::Device,
        class: &str,
        ways: &[Way<'_>],
        run: &mut dyn FnMut(usize) -> bool,
    ) -> usize {
        let _ = (device, class, ways, run);
        0
    }

    /// Reads ranges of bytes, all at once.
    fn download(
        device: &Self::Device,
        parts: Vec<(Self::Memory, Range<usize>)>,
    ) -> impl Future<Output = Result<Vec<Vec<u8>>, ExecutionError>> + Send;

    /// [`Runtime::download`], blocking the thread.
    fn download_now(
        device: &Self::Device,
        parts: Vec<(Self::Memory, Range<usize>)>,
    ) -> Result<Vec<Vec<u8>>, ExecutionError>;

    /// Waits until everything has run.
    fn sync(device: &Self::Device) -> Result<(), ExecutionError>;

    /// The next random key: a new one for each call, which follows from the device's seed.
    fn random_key(device: &Self::Device) -> u64;

    /// While launches are written down, to be run again and again: one integer of 64 bits that is another in each run, and that kernels mix
    /// into the keys by which they draw.
    fn salt(device: &Self::Device) -> Option<GpuTensor<Self>> {
        let _ = device;
        None
    }

    /// Seeds the random numbers.
    fn seed(device: &Self::Device, seed: u64);

    /// Begins a sequence of random keys of this thread's own, or ends it.
    fn seed_thread(device: &Self::Device, seed: Option<u64>);
}

/// One of several ways to do the same.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// By which it is known among those of its class.
    pub name: &'a str,
    /// The kernel, where it is one.
    pub kernel: Option<&'a Template>,
}

/// What is [made of the contents of memory](Runtime::derived).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Derived {
    /// In which order.
    pub order: Order,
    /// All that the order depends on, of the tensor and of how it is used.
    pub sizes: [usize; 4],
}

/// Orders of weights that kernels or libraries read faster than the one in which they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Of a convolution: blocks of output channels.
    BlocksOfChannels,
    /// Likewise the channels last.
    ChannelsLast,
    /// Likewise the elements of a window first, the channels last.
    ElementsOfWindows,
    /// Likewise a row for each output channel.
    RowsOfWindows,
    /// Of a recurrent layer: the columns of all gates side by side.
    ColumnsOfGates,
    /// Likewise the sum of both biases.
    SumOfBiases,
}

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that a kernel sees of one buffer.
    pub binding_bytes: usize,
    /// What the start of what a kernel sees of a buffer is a multiple of, in bytes.
    pub binding_alignment: usize,
    /// Buffers of one kernel.
    pub bindings: usize,
    /// Workgroups along one axis of a grid.
    pub groups: u32,
    /// Whether what a workgroup shares is faster than other memory: not where kernels run on a CPU.
    pub shared_memory: bool,
    /// Bytes that a workgroup shares, at most.
    pub shared_bytes: u32,
    /// How the invocations of a workgroup run side by side.
    pub subgroups: Subgroups,
    /// Whether ways to do the same are timed, and the [fastest](Runtime::fastest) is gone.
    pub tunes: bool,
    /// Whether there are libraries that may be asked for [products](Runtime::product) and [convolutions](Runtime::convolution).
    pub libraries: bool,
    /// Elements of memory of the device's own by which the workgroups of a kernel [count](crate::language::Op::Count) who of them is the last; none where a
    /// workgroup never sees what another of the same kernel wrote.
    pub counters: u32,
    /// How many workgroups run at the same time without sharing what computes, where the device says it.
    pub multiprocessors: Option<u32>,
}

/// Which invocations of a workgroup run side by side, so that they hand numbers to each other without shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subgroups {
    /// None, as far as is known.
    None,
    /// Subgroups of however many lanes: functions [join](crate::language::Op::JoinSubgroup) the numbers of all of them, and
    /// [four neighbours](crate::language::Op::OfQuad) hand on theirs. They have numbers of one word alone.
    OfAnySize,
    /// Warps of 32 lanes, each of which reads [those of others](crate::language::WarpOp::Exchange).
    Warps,
}

/// One run of a kernel.
#[derive(Debug)]
pub struct Launch<'a, R: Runtime> {
    /// Which kernel.
    pub template: Template,
    /// Its buffers, in order.
    pub buffers: &'a [&'a R::Memory],
    /// Its parameters, in order.
    pub parameters: &'a [u32],
    /// Workgroups along x, y and z.
    pub groups: [u32; 3],
    /// Bytes that it reads and writes, each element counted once a buffer.
    pub moved: usize,
    /// The buffer that it writes, and how many elements of it, from the first on one after another: where it can do
    /// [more](Runtime::amend) with each.
    pub writes_all_of: Option<(usize, usize)>,
}

/// A batch of matrix products, `activation(lhs · rhs + bias + added)`, with a number of the bias for each column, added to all rows.
#[derive(Debug)]
pub struct MatrixProduct<'a, R: Runtime> {
    /// The elements' dtype, of all of them.
    pub dtype: DType,
    /// Rows and columns of the result, and the depth.
    pub size: [usize; 3],
    /// How many there are.
    pub count: usize,
    /// The left sides.
    pub lhs: Matrices<'a, R>,
    /// The right sides.
    pub rhs: Matrices<'a, R>,
    /// What is added to each row, one number after another from an element of memory on.
    pub bias: Option<(&'a R::Memory, usize)>,
    /// What is added to the results: it lies as they do, from an element of memory on, and is not written.
    pub added: Option<(&'a R::Memory, usize)>,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// Where the results go, row-major one after another from the start on.
    pub out: &'a R::Memory,
    /// Where the sums of the right side's columns go, one after another from the start on, if they are asked for too: of one product, with nothing added.
    pub sums: Option<&'a R::Memory>,
}

/// Where the matrices of a batch are. All numbers count elements.
#[derive(Debug)]
pub struct Matrices<'a, R: Runtime> {
    /// Their memory.
    pub memory: &'a R::Memory,
    /// Where the first begins.
    pub start: usize,
    /// From each to the next: 0 where all are one.
    pub next: usize,
    /// Whether they lie column by column, rather than row by row.
    pub transposed: bool,
    /// From each row (or column) to the next.
    pub leading: usize,
}

/// Which convolution, or which of its gradients.
#[derive(Clone, Copy, Debug)]
pub struct ConvolutionShape<'a> {
    /// The elements' dtype, which is that of floats.
    pub dtype: DType,
    /// What is computed.
    pub direction: ConvolutionDirection,
    /// The windows over the images.
    pub windows: &'a Windows,
    /// Number of images.
    pub batch: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Channels of the images, and of the results.
    pub channels: [usize; 2],
}

/// A convolution, or one of its gradients: of images, weights and results one is computed of the others. All lie without gaps from the starts
/// of their memory: row-major, or so once their channels (dim 1) are moved behind all other dims.
#[derive(Debug)]
pub struct Convolution<'a, R: Runtime> {
    /// Which one.
    pub shape: ConvolutionShape<'a>,
    /// Whether the channels of images, weights and results stand last in memory.
    pub channels_last: bool,
    /// `[batch, channels of the images, windows.input…]`.
    pub image: &'a R::Memory,
    /// `[channels of the results, channels of the images / groups, windows.kernel…]`.
    pub weight: &'a R::Memory,
    /// `[batch, channels of the results, windows.output…]`.
    pub result: &'a R::Memory,
    /// What is done to the results of a forward pass before they are written.
    pub epilogue: Option<ConvolutionEpilogue<'a, R>>,
}

/// `activation(results + bias + residual)`, of the results' dtype from the starts of their memory, the residual in the results' order.
#[derive(Debug)]
pub struct ConvolutionEpilogue<'a, R: Runtime> {
    /// A number for each channel of the results.
    pub bias: &'a R::Memory,
    /// As many numbers as there are results.
    pub residual: Option<&'a R::Memory>,
    /// What is done at last.
    pub activation: Option<Activation>,
}

/// What is computed of a [`Convolution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvolutionDirection {
    /// The results.
    Forward,
    /// The gradient of the images, of the results' gradient.
    Input,
    /// The gradient of the weights, of images and the results' gradient.
    Weight,
}

/// The last kernel that was launched, while it can become another.
pub struct Last<'a, R: Runtime> {
    /// Which kernel: with an [`Amendment`], another one.
    pub template: &'a mut Template,
    /// How many buffers it has.
    pub buffers: usize,
    /// Whether memory is in the one of a number. That may have been given back since, and taken again.
    pub has_at: &'a dyn Fn(&R::Memory, usize) -> bool,
    /// Whether nobody else holds what it writes: else that is still to be written as it is.
    pub is_alone: bool,
}

impl<R: Runtime> Last<'_, R> {
    /// Whether memory is in one of its buffers.
    pub fn uses(&self, memory: &R::Memory) -> bool {
        (0..self.buffers).any(|buffer| (self.has_at)(memory, buffer))
    }
}

/// What a kernel does that does more.
#[derive(Debug)]
pub struct Amendment<'a, R: Runtime> {
    /// Its further buffers, behind those that it has.
    pub buffers: SmallVec<[&'a R::Memory; 4]>,
    /// Its further parameters, behind those that it has.
    pub parameters: SmallVec<[u32; 16]>,
    /// Bytes more that it reads and writes; fewer where that is negative.
    pub moved: isize,
    /// What becomes of its result; nothing where it is still what it writes.
    pub instead: Option<Instead>,
}

/// Another kernel in place of one, whose result it computes where it reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instead {
    /// The buffer of the result, if it has it no more.
    pub without: Option<usize>,
    /// Workgroups along x, y and z.
    pub groups: [u32; 3],
    /// Likewise [`Launch::writes_all_of`]; the buffer is counted among the further ones.
    pub writes_all_of: Option<(usize, usize)>,
}
