//! Convolutions and their gradients by cuDNN 9 (NVIDIA, "cuDNN Backend API", chapter "`cudnn_cnn` Library"), where it is there.
//!
//! Tensors lie row-major, as ours do (images before channels before rows), or with their channels last, as tensor cores take them. Of the algorithms that the library advises those are taken that
//! yield the same numbers each time, in a workspace that is not too large, and round no factors unless that was asked for.

use super::{ALWAYS, Convolution, ConvolutionShape, DriverError, Epilogue, is_named};
use cudarc::cudnn::{result, sys};
use kiln_gpu::runtime::ConvolutionDirection;
use kiln_tensor::{DType, Windows};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// Products (multiplications and additions) from which on the library is asked for gradients. Not measured on a GPU yet.
const LEAST_PRODUCTS: usize = 1 << 24;
/// The same of convolutions of 32-bit floats: below, our kernel is faster, the more so the fewer windows there are, and does what follows itself.
/// Measured on an H200 with 110 convolutions of the benchmark's networks (`BENCHMARKS.md`).
const LEAST_OF_SINGLE: usize = 1 << 28;
/// The same where tensor cores multiply, as TF32, of row-major images, which the library turns around first.
const LEAST_OF_TF32: usize = 1 << 26;
/// The same of floats of 16 bits.
const LEAST_OF_HALVES: usize = 1 << 25;
/// The same by tensor cores of images whose channels stand last. Chosen by the times of single kernels, on an H200 in bf16, and not by turns: our kernel took
/// 4 to 12 µs a layer of 2^22 to 2^24 products and 9 to 21 µs a network's first, the library's 4 to 12 µs of 2^26 to 2^27, and products of rows, which
/// pointwise convolutions are then, 2.7 to 4.4 µs. What depends on it too is how many of a network's layers find images in this order.
const LEAST_OF_CHANNELS_LAST: usize = 1 << 22;
/// Products of each result from which on it is asked for row-major images: our kernel is faster where sums are short, however many there are. Of
/// images whose channels stand last it is asked for all: there, what our kernel needed for short sums was 3 to 10 times what moving the images takes.
const LEAST_DEPTH: usize = 128;
/// Channels of a group from which on it is asked, where there are several groups: depthwise convolutions are bound by memory.
const LEAST_OF_GROUP: usize = 4;
/// Bytes that an algorithm may use beside its operands: those by tensor cores turn images around first, into memory as large as these.
const MOST_WORKSPACE: usize = 1 << 30;
/// Where a device has much memory, it may use this share of it. Winograd's of 4x4 results transforms images and results to 36 numbers for each 16 (Lavin
/// and Gray, "Fast Algorithms for Convolutional Neural Networks", section 4.3): for 32 images of 32 channels of 256x256 pixels, in f32, that is 1.2 GB.
const WORKSPACE_SHARE: usize = 16;
/// What the bytes of a group's channels are a multiple of where they stand last: so much a tensor core is handed at once.
const ALIGNMENT_OF_CHANNELS: usize = 16;
/// Plans that are kept.
const MOST_PLANS: usize = 4096;
/// Algorithms that are looked at.
const MOST_ADVISED: usize = 10;
/// The oldest version whose errors have the numbers that are known here.
const OLDEST: usize = 90_000;

/// All that is called of the library.
const FUNCTIONS: [&[u8]; 24] = [
    b"cudnnCreate\0",
    b"cudnnGetVersion\0",
    b"cudnnSetStream\0",
    b"cudnnCreateTensorDescriptor\0",
    b"cudnnSetTensorNdDescriptor\0",
    b"cudnnDestroyTensorDescriptor\0",
    b"cudnnCreateFilterDescriptor\0",
    b"cudnnSetFilterNdDescriptor\0",
    b"cudnnDestroyFilterDescriptor\0",
    b"cudnnCreateConvolutionDescriptor\0",
    b"cudnnSetConvolutionNdDescriptor\0",
    b"cudnnDestroyConvolutionDescriptor\0",
    b"cudnnSetConvolutionMathType\0",
    b"cudnnSetConvolutionGroupCount\0",
    b"cudnnGetConvolutionForwardAlgorithm_v7\0",
    b"cudnnGetConvolutionBackwardDataAlgorithm_v7\0",
    b"cudnnGetConvolutionBackwardFilterAlgorithm_v7\0",
    b"cudnnCreateActivationDescriptor\0",
    b"cudnnSetActivationDescriptor\0",
    b"cudnnDestroyActivationDescriptor\0",
    b"cudnnConvolutionForward\0",
    b"cudnnConvolutionBiasActivationForward\0",
    b"cudnnConvolutionBackwardData\0",
    b"cudnnConvolutionBackwardFilter\0",
];

/// Whether the library is there, with all that is called of it.
pub(super) fn is_present() -> bool {
    // SAFETY: loading NVIDIA's library runs nothing of ours; of the functions it is only asked whether they are there, before the first is
    // called.
    unsafe {
        sys::is_culib_present()
            && FUNCTIONS.iter().all(|&name| sys::culib().get::<unsafe extern "C" fn()>(name).is_ok())
            && sys::cudnnGetVersion() >= OLDEST
    }
}

/// Names the library, which is there, with its version.
pub(super) fn version() -> String {
    format!("cuDNN {}", result::get_version())
}

/// The library with what it advised.
pub(super) struct Dnn {
    handle: sys::cudnnHandle_t,
    /// By all that a plan depends on; nothing where the library has no algorithm. A handle is used by one thread at a time: by whoever
    /// locks these.
    plans: Mutex<FxHashMap<Asked, Option<Plan>>>,
    /// Whether it is asked for small ones too.
    always: bool,
    /// Bytes that an algorithm may use beside its operands.
    most_workspace: usize,
}

/// What is computed in one call, and in [which way](super::Driver::product).
type Asked = (ConvolutionShape, Option<Following>, usize);

/// What follows a convolution in the same call, behind the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Following {
    residual: bool,
    relu: bool,
}

impl From<&Epilogue> for Following {
    fn from(epilogue: &Epilogue) -> Self {
        Self { residual: epilogue.residual.is_some(), relu: epilogue.relu }
    }
}

// SAFETY: the handle is used by one thread at a time ("Thread Safety"), which the lock of the plans sees to.
unsafe impl Send for Dnn {}
// SAFETY: as above.
unsafe impl Sync for Dnn {}

/// Something of the library that describes something.
struct Descriptor<T: Copy> {
    raw: T,
    destroy: unsafe fn(T) -> sys::cudnnStatus_t,
}

impl<T: Copy> Drop for Descriptor<T> {
    fn drop(&mut self) {
        // SAFETY: it was made for this, and is not used again.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

/// Why there is no workspace of a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// No memory is asked for: a graph is written down, or the device has none for libraries.
    NotAsked,
    /// The device has not so much memory left: what there is has so many bytes. What the driver said.
    Memory(usize, DriverError),
}

/// How a convolution is computed.
struct Plan {
    /// Bytes of workspace.
    workspace: usize,
    /// Whether there was no memory for that when it was asked for last.
    lacks: bool,
    image: Descriptor<sys::cudnnTensorDescriptor_t>,
    weight: Descriptor<sys::cudnnFilterDescriptor_t>,
    result: Descriptor<sys::cudnnTensorDescriptor_t>,
    convolution: Descriptor<sys::cudnnConvolutionDescriptor_t>,
    algorithm: Algorithm,
    epilogue: Option<DescribedEpilogue>,
}

/// What is done to the results in the same call.
struct DescribedEpilogue {
    bias: Descriptor<sys::cudnnTensorDescriptor_t>,
    activation: Descriptor<sys::cudnnActivationDescriptor_t>,
}

impl Plan {
    /// Asks for it; says what was called, and what the library said.
    ///
    /// # Safety
    /// It is the plan of the convolution, whose memory is there until the work is done, and the workspace has so many bytes.
    unsafe fn run(
        &self,
        handle: sys::cudnnHandle_t,
        asked: &Convolution,
        (workspace, bytes): (*mut c_void, usize),
    ) -> (&'static str, sys::cudnnStatus_t) {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let (one, zero) = ((&raw const one).cast::<c_void>(), (&raw const zero).cast::<c_void>());
        let [image, weight, result] = [asked.image, asked.weight, asked.result].map(|at| at.0 as *mut c_void);
        let Plan { image: images, weight: weights, result: results, convolution, .. } = self;
        let movement = convolution.raw;
        let epilogue = self.epilogue.as_ref().zip(asked.epilogue);
        // SAFETY: the plan's parts are valid and describe what lies there, as the caller says.
        unsafe {
            match (self.algorithm, epilogue) {
                (Algorithm::Forward(algorithm), Some((described, epilogue))) => {
                    // What is added has to be somewhere, also if none of it is.
                    let (share, residual) = match epilogue.residual {
                        Some(residual) => (one, residual.0 as *const c_void),
                        None => (zero, result.cast_const()),
                    };
                    (
                        "cudnnConvolutionBiasActivationForward",
                        sys::cudnnConvolutionBiasActivationForward(
                            handle,
                            one,
                            images.raw,
                            image,
                            weights.raw,
                            weight,
                            movement,
                            algorithm,
                            workspace,
                            bytes,
                            share,
                            results.raw,
                            residual,
                            described.bias.raw,
                            epilogue.bias.0 as *const c_void,
                            described.activation.raw,
                            results.raw,
                            result,
                        ),
                    )
                }
                (Algorithm::Forward(algorithm), None) => (
                    "cudnnConvolutionForward",
                    sys::cudnnConvolutionForward(
                        handle,
                        one,
                        images.raw,
                        image,
                        weights.raw,
                        weight,
                        movement,
                        algorithm,
                        workspace,
                        bytes,
                        zero,
                        results.raw,
                        result,
                    ),
                ),
                (Algorithm::Input(algorithm), _) => (
                    "cudnnConvolutionBackwardData",
                    sys::cudnnConvolutionBackwardData(
                        handle,
                        one,
                        weights.raw,
                        weight,
                        results.raw,
                        result,
                        movement,
                        algorithm,
                        workspace,
                        bytes,
                        zero,
                        images.raw,
                        image,
                    ),
                ),
                (Algorithm::Weight(algorithm), _) => (
                    "cudnnConvolutionBackwardFilter",
                    sys::cudnnConvolutionBackwardFilter(
                        handle,
                        one,
                        images.raw,
                        image,
                        results.raw,
                        result,
                        movement,
                        algorithm,
                        workspace,
                        bytes,
                        zero,
                        weights.raw,
                        weight,
                    ),
                ),
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    Input(sys::cudnnConvolutionBwdDataAlgo_t),
    Weight(sys::cudnnConvolutionBwdFilterAlgo_t),
}

/// What the library says of an algorithm: `cudnnConvolutionFwdAlgoPerf_t` and its like, which lie alike. Its enumerations are numbers here, since
/// versions to come may name others.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Advice {
    algorithm: u32,
    status: u32,
    time: f32,
    memory: usize,
    determinism: u32,
    math: u32,
    reserved: [c_int; 3],
}

impl Algorithm {
    /// Those that yield the same numbers each time and sum in f32; floats of 16 bits are not transformed (Winograd), which would round them
    /// once more.
    fn of(direction: ConvolutionDirection, number: u32, is_f32: bool) -> Option<Self> {
        use sys::cudnnConvolutionBwdDataAlgo_t::*;
        use sys::cudnnConvolutionBwdFilterAlgo_t::*;
        use sys::cudnnConvolutionFwdAlgo_t::*;
        match (direction, number) {
            (ConvolutionDirection::Forward, 0) => {
                Some(Self::Forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM))
            }
            (ConvolutionDirection::Forward, 1) => {
                Some(Self::Forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM))
            }
            (ConvolutionDirection::Forward, 6) if is_f32 => {
                Some(Self::Forward(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD))
            }
            (ConvolutionDirection::Forward, 7) if is_f32 => {
                Some(Self::Forward(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED))
            }
            (ConvolutionDirection::Input, 1) => Some(Self::Input(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)),
            (ConvolutionDirection::Input, 4) if is_f32 => {
                Some(Self::Input(CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD))
            }
            (ConvolutionDirection::Input, 5) if is_f32 => {
                Some(Self::Input(CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED))
            }
            (ConvolutionDirection::Weight, 1) => Some(Self::Weight(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1)),
            (ConvolutionDirection::Weight, 5) if is_f32 => {
                Some(Self::Weight(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED))
            }
            (
                ConvolutionDirection::Forward | ConvolutionDirection::Input | ConvolutionDirection::Weight,
                _,
            ) => None,
        }
    }

    /// Whether it does so much behind a convolution: behind all but one the library does ReLU alone. An algorithm that it takes for slower is
    /// not worth the launch that is saved.
    fn takes(self, following: Following) -> bool {
        use sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
        match self {
            Self::Forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) => true,
            Self::Forward(_) => following.relu,
            Self::Input(_) | Self::Weight(_) => false,
        }
    }
}

/// How factors are multiplied in an algorithm that is advised; nothing where they would be rounded though nobody asked for that.
fn math(number: u32, is_exact: bool) -> Option<sys::cudnnMathType_t> {
    use sys::cudnnMathType_t::*;
    match number {
        3 => Some(CUDNN_FMA_MATH),
        0 if !is_exact => Some(CUDNN_DEFAULT_MATH),
        1 if !is_exact => Some(CUDNN_TENSOR_OP_MATH),
        _ => None,
    }
}

fn data_type(dtype: DType) -> Option<sys::cudnnDataType_t> {
    match dtype {
        DType::F32 => Some(sys::cudnnDataType_t::CUDNN_DATA_FLOAT),
        DType::F16 => Some(sys::cudnnDataType_t::CUDNN_DATA_HALF),
        DType::BF16 => Some(sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16),
        DType::F64
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::I4
        | DType::U4
        | DType::Bool => None,
    }
}

fn failed(call: &'static str, status: sys::cudnnStatus_t) -> DriverError {
    DriverError {
        call,
        reason: format!("{status:?}"),
        is_out_of_memory: lacks_memory(status),
        is_fault: false,
    }
}

/// Whether the library had no memory for itself, of the device or of the host: its kernels are loaded when they are first needed.
fn lacks_memory(status: sys::cudnnStatus_t) -> bool {
    use sys::cudnnStatus_t::*;
    matches!(
        status,
        CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
            | CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
    )
}

/// Whether the library says that it cannot, and did nothing. Of its parts some may be missing, which are loaded when they are first needed, or a compiler that
/// it asks.
fn is_refusal(status: sys::cudnnStatus_t) -> bool {
    use sys::cudnnStatus_t::*;
    let lacks_parts = matches!(
        status,
        CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH
            | CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED
            | CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED
    );
    // Numbers of "not supported" and of bad parameters begin with 3 and 2.
    lacks_parts || matches!(status as u32 / 1000, 2 | 3)
}

/// Dims as the library wants them.
fn dims<const N: usize>(dims: [usize; N]) -> Option<[c_int; N]> {
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(dims) {
        *to = c_int::try_from(from).ok()?;
    }
    Some(all)
}

/// From each element to the next along each dim, of a tensor without gaps that is row-major, or would be with dim 1 behind the others.
fn strides(dims: &[c_int], channels_last: bool) -> Option<Vec<c_int>> {
    let mut outwards: Vec<usize> = (0..dims.len()).rev().collect();
    if channels_last && dims.len() > 1 {
        outwards.retain(|&axis| axis != 1);
        outwards.insert(0, 1);
    }
    let (mut strides, mut elements) = (vec![1; dims.len()], 1_i32);
    for axis in outwards {
        strides[axis] = elements;
        elements = elements.checked_mul(dims[axis])?;
    }
    Some(strides)
}

fn tensor(
    data_type: sys::cudnnDataType_t,
    dims: &[c_int],
    channels_last: bool,
) -> Option<Descriptor<sys::cudnnTensorDescriptor_t>> {
    let strides = strides(dims, channels_last)?;
    let raw = result::create_tensor_descriptor().ok()?;
    let made = Descriptor { raw, destroy: sys::cudnnDestroyTensorDescriptor };
    // SAFETY: the descriptor was just made, and there are as many dims and strides as is said.
    let set = unsafe {
        let rank = dims.len() as c_int;
        result::set_tensornd_descriptor(raw, data_type, rank, dims.as_ptr(), strides.as_ptr())
    };
    set.ok().map(|()| made)
}

fn filter(
    data_type: sys::cudnnDataType_t,
    dims: &[c_int],
    channels_last: bool,
) -> Option<Descriptor<sys::cudnnFilterDescriptor_t>> {
    let raw = result::create_filter_descriptor().ok()?;
    let made = Descriptor { raw, destroy: sys::cudnnDestroyFilterDescriptor };
    let format = match channels_last {
        false => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
        true => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
    };
    // SAFETY: the descriptor was just made, and there are as many dims as is said.
    let set = unsafe {
        result::set_filternd_descriptor(raw, data_type, format, dims.len() as c_int, dims.as_ptr())
    };
    set.ok().map(|()| made)
}

/// How windows move, over images of two or three dims.
fn movement(
    windows: &Windows,
    first: usize,
    groups: usize,
) -> Option<Descriptor<sys::cudnnConvolutionDescriptor_t>> {
    let raw = result::create_convolution_descriptor().ok()?;
    let made = Descriptor { raw, destroy: sys::cudnnDestroyConvolutionDescriptor };
    let padding = dims(windows.padding.map(|(before, _)| before))?;
    let (stride, dilation) = (dims(windows.stride)?, dims(windows.dilation)?);
    let groups = c_int::try_from(groups).ok()?;
    // SAFETY: the descriptor was just made, and there are as many numbers as is said.
    let set = unsafe {
        result::set_convolutionnd_descriptor(
            raw,
            (3 - first) as c_int,
            padding[first..].as_ptr(),
            stride[first..].as_ptr(),
            dilation[first..].as_ptr(),
            sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
            sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
        )
        .and(result::set_convolution_group_count(raw, groups))
    };
    set.ok().map(|()| made)
}

/// What is done to results of so many dims. The library takes ReLU and nothing else but the identity, and of ReLU it
/// is told that NaN need not be kept (`cudnnConvolutionBiasActivationForward` in its reference): version 9 kept it on an H100.
fn describe_epilogue(
    following: Following,
    data_type: sys::cudnnDataType_t,
    channels: usize,
    rank: usize,
) -> Option<DescribedEpilogue> {
    let mut dims = vec![1; rank];
    *dims.get_mut(1)? = c_int::try_from(channels).ok()?;
    let bias = tensor(data_type, &dims, false)?;
    let raw = result::create_activation_descriptor().ok()?;
    let activation = Descriptor { raw, destroy: sys::cudnnDestroyActivationDescriptor };
    let mode = match following.relu {
        true => sys::cudnnActivationMode_t::CUDNN_ACTIVATION_RELU,
        false => sys::cudnnActivationMode_t::CUDNN_ACTIVATION_IDENTITY,
    };
    let nan = sys::cudnnNanPropagation_t::CUDNN_NOT_PROPAGATE_NAN;
    // Nothing is clipped, should that number be read at all.
    let most = f64::MAX;
    // SAFETY: the descriptor was just made.
    unsafe { result::set_activation_descriptor(raw, mode, nan, most) }.ok()?;
    Some(DescribedEpilogue { bias, activation })
}

/// Whether the library would find as many windows, at the same places.
fn fits(windows: &Windows) -> bool {
    (0..3).all(|axis| {
        let (before, after) = windows.padding[axis];
        let window = (windows.kernel[axis].max(1) - 1) * windows.dilation[axis] + 1;
        let room = (windows.input[axis] + before + after).checked_sub(window);
        before == after
            && windows.kernel[axis] > 0
            && room.is_some_and(|room| room / windows.stride[axis] + 1 == windows.output[axis])
    })
}

/// Whether its groups, if there are several, have so many channels that they are products.
fn has_wide_groups(shape: &ConvolutionShape) -> bool {
    let ConvolutionShape { groups, channels: [image, _], .. } = shape;
    *groups == 1 || image / groups >= LEAST_OF_GROUP
}

/// Whether factors may be rounded to what tensor cores multiply.
fn by_tensor_cores(shape: &ConvolutionShape) -> bool {
    shape.dtype != DType::F32 || shape.tf32
}

/// The same convolution of images with as many channels as tensor cores take at once, where zeros may stand behind those that there are.
fn filled(mut shape: ConvolutionShape) -> ConvolutionShape {
    if shape.direction != ConvolutionDirection::Input && shape.groups == 1 {
        shape.channels[0] = shape.channels[0].next_multiple_of(ALIGNMENT_OF_CHANNELS / shape.dtype.size());
    }
    shape
}

/// Whether it is worth it.
fn is_large(shape: &ConvolutionShape) -> bool {
    let ConvolutionShape { windows, batch, groups, channels: [image, result], .. } = shape;
    let of_group = image / groups;
    let product = |numbers: &[usize]| numbers.iter().copied().try_fold(1_usize, usize::checked_mul);
    let depth = product(&[&[of_group], windows.kernel.as_slice()].concat());
    let results = product(&[&[*batch, *result], windows.output.as_slice()].concat());
    let is_deep = shape.channels_last || depth.is_none_or(|depth| depth >= LEAST_DEPTH);
    let has = |least: usize| {
        let products = depth.zip(results).and_then(|(depth, results)| depth.checked_mul(results));
        products.is_none_or(|products| products >= least)
    };
    if shape.direction != ConvolutionDirection::Forward {
        return has(LEAST_PRODUCTS);
    }
    let least = match (by_tensor_cores(shape), shape.channels_last) {
        (false, _) => LEAST_OF_SINGLE,
        (true, true) => LEAST_OF_CHANNELS_LAST,
        (true, false) if shape.dtype == DType::F32 => LEAST_OF_TF32,
        (true, false) => LEAST_OF_HALVES,
    };
    is_deep && has(least)
}

impl Dnn {
    /// The library for a stream of the current device, which has so many bytes of memory, where it [is there](is_present).
    ///
    /// # Errors
    /// When it does not take the device, or there is no memory for it.
    pub fn open(stream: sys::cudaStream_t, memory: usize) -> Result<Self, DriverError> {
        let handle = result::create_handle().map_err(|error| failed("cudnnCreate", error.0))?;
        // SAFETY: both are valid.
        unsafe { result::set_stream(handle, stream) }.map_err(|error| failed("cudnnSetStream", error.0))?;
        log::info!("convolutions by {}", version());
        let most_workspace = MOST_WORKSPACE.max(memory / WORKSPACE_SHARE);
        Ok(Self { handle, plans: Mutex::default(), always: is_named(ALWAYS, "cudnn"), most_workspace })
    }

    /// Whether the library is asked for such a convolution: one that is worth it.
    fn is_asked(&self, shape: &ConvolutionShape) -> bool {
        data_type(shape.dtype).is_some()
            && has_wide_groups(shape)
            && (self.always || is_large(shape))
            && fits(&shape.windows)
    }

    /// With how many channels of images the library takes such a convolution with the channels last, if it should be asked for it so: where tensor
    /// cores compute it, which otherwise turns images and results around. They take channels by sixteen bytes; images that have fewer, as a
    /// network's first have, are given as many, since all that follows finds the channels last then.
    pub fn channels_if_last(&self, shape: &ConvolutionShape) -> Option<usize> {
        // Whether it is worth it is asked of the channels that there are.
        if !by_tensor_cores(shape) || !self.is_asked(shape) {
            return None;
        }
        let shape = filled(shape.clone());
        let channels = shape.channels[0];
        let bytes = shape.channels.map(|channels| channels / shape.groups * shape.dtype.size());
        if bytes.iter().any(|bytes| !bytes.is_multiple_of(ALIGNMENT_OF_CHANNELS)) {
            return None;
        }
        let plans = &mut *self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        // What there is no memory to ask for is asked again.
        self.planned(plans, &(shape, None, 0)).ok()?.as_ref().map(|_| channels)
    }

    /// The plan for what is asked, which is made where it was not asked before.
    ///
    /// # Errors
    /// Where the library has no memory to make one.
    fn planned<'p>(
        &self,
        plans: &'p mut FxHashMap<Asked, Option<Plan>>,
        asked: &Asked,
    ) -> Result<&'p mut Option<Plan>, DriverError> {
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        Ok(match plans.entry(asked.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(self.plan(asked, self.most_workspace)?),
        })
    }

    /// Computes a convolution or one of its gradients in [one of the ways](super::Driver::product) that the library advises, if it is worth it and there is that; says whether it does. It is given a workspace of at
    /// least as many bytes as it asks for, which is used by work on the stream alone.
    ///
    /// # Errors
    /// Where there is no memory for the library, or, once, for the workspace: who asks again has given back what can be.
    pub fn convolve(
        &self,
        (convolution, way): (&Convolution, usize),
        workspace: impl Fn(usize, usize) -> Result<*mut c_void, Lack>,
    ) -> Result<bool, DriverError> {
        if !self.is_asked(&convolution.shape) {
            return Ok(false);
        }
        let asked = (convolution.shape.clone(), convolution.epilogue.as_ref().map(Following::from), way);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = self.planned(&mut plans, &asked)?;
        let mut given = plan.as_ref().map(|plan| workspace(plan.workspace, self.most_workspace));
        if let Some(Err(Lack::Memory(bytes, error))) = &given {
            if let Some(plan) = plan.as_mut().filter(|plan| !plan.lacks) {
                plan.lacks = true;
                return Err(error.clone());
            }
            log::info!(
                "there is no memory for the fastest algorithm: cuDNN is asked for one that needs less"
            );
            *plan = self.plan(&asked, *bytes)?;
            given = plan.as_ref().map(|plan| workspace(plan.workspace, self.most_workspace));
        }
        let (Some(known), Some(Ok(given))) = (plan.as_mut(), given) else { return Ok(false) };
        known.lacks = false;
        // SAFETY: the plan is that of the convolution, whose memory outlives the work, which ends before what is asked for later on the
        // stream.
        let (call, status) = unsafe { known.run(self.handle, convolution, (given, known.workspace)) };
        match status {
            sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS => Ok(true),
            refused if is_refusal(refused) => {
                let instead = match (convolution.epilogue, convolution.shape.channels_last) {
                    (Some(_), _) => "what follows such convolutions is a launch of its own",
                    (None, true) => "such images are turned around for it",
                    (None, false) => "such convolutions run on kernels of Kiln's",
                };
                log::info!("{call}: {refused:?}; {instead}");
                *plan = None;
                Ok(false)
            }
            error => Err(failed(call, error)),
        }
    }

    /// How the library advises to compute a convolution, in a workspace of so many bytes at most; nothing where it cannot.
    ///
    /// # Errors
    /// Where the library has no memory to tell.
    fn plan(&self, asked: &Asked, most_workspace: usize) -> Result<Option<Plan>, DriverError> {
        let Some(described) = Described::of(&asked.0) else { return Ok(None) };
        match self.advice(&described, asked.0.direction) {
            Ok(advised) => Ok(described.plan(asked, &advised, most_workspace)),
            Err(status) if lacks_memory(status) => Err(failed("cudnnGetConvolutionAlgorithm", status)),
            Err(_) => Ok(None),
        }
    }

    /// The algorithms that the library advises, what it takes for the fastest one first.
    fn advice(
        &self,
        described: &Described,
        direction: ConvolutionDirection,
    ) -> Result<Vec<Advice>, sys::cudnnStatus_t> {
        let Described { image, weight, result, convolution, .. } = described;
        let (mut advised, mut count) = ([Advice::default(); MOST_ADVISED], 0);
        let (most, into) = (MOST_ADVISED as c_int, advised.as_mut_ptr());
        let (i, w, r, c, handle) = (image.raw, weight.raw, result.raw, convolution.raw, self.handle);
        // SAFETY: all are valid, and there is room for as much advice as is said, which lies as the library's does.
        let status = unsafe {
            match direction {
                ConvolutionDirection::Forward => sys::cudnnGetConvolutionForwardAlgorithm_v7(
                    handle,
                    i,
                    w,
                    c,
                    r,
                    most,
                    &raw mut count,
                    into.cast(),
                ),
                ConvolutionDirection::Input => sys::cudnnGetConvolutionBackwardDataAlgorithm_v7(
                    handle,
                    w,
                    r,
                    c,
                    i,
                    most,
                    &raw mut count,
                    into.cast(),
                ),
                ConvolutionDirection::Weight => sys::cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                    handle,
                    i,
                    r,
                    c,
                    w,
                    most,
                    &raw mut count,
                    into.cast(),
                ),
            }
        };
        match status {
            sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS => {
                Ok(advised.into_iter().take(usize::try_from(count).unwrap_or(0)).collect())
            }
            status => Err(status),
        }
    }
}

/// A convolution in the library's words.
struct Described {
    data_type: sys::cudnnDataType_t,
    /// The first of the dims of windows that the library is told: images may have two.
    first: usize,
    image: Descriptor<sys::cudnnTensorDescriptor_t>,
    result: Descriptor<sys::cudnnTensorDescriptor_t>,
    weight: Descriptor<sys::cudnnFilterDescriptor_t>,
    convolution: Descriptor<sys::cudnnConvolutionDescriptor_t>,
}

impl Described {
    /// Nothing where the library has no words for it.
    fn of(shape: &ConvolutionShape) -> Option<Self> {
        let ConvolutionShape {
            dtype,
            windows,
            batch,
            groups,
            channels: [of_image, of_result],
            tf32,
            channels_last: last,
            direction: _,
        } = shape;
        let data_type = data_type(*dtype)?;
        // Images have two dims at least.
        let flat = windows.input[0] == 1 && windows.kernel[0] == 1 && windows.output[0] == 1;
        let first = usize::from(flat && windows.padding[0] == (0, 0));
        let described = |outer: [usize; 2], inner: [usize; 3]| {
            let [a, b, c, d, e] = dims([outer[0], outer[1], inner[0], inner[1], inner[2]])?;
            Some(if first == 1 { vec![a, b, d, e] } else { vec![a, b, c, d, e] })
        };
        let image = tensor(data_type, &described([*batch, *of_image], windows.input)?, *last)?;
        let result = tensor(data_type, &described([*batch, *of_result], windows.output)?, *last)?;
        let weight = filter(data_type, &described([*of_result, of_image / groups], windows.kernel)?, *last)?;
        let convolution = movement(windows, first, *groups)?;
        let wanted = match (*dtype == DType::F32, tf32) {
            (true, false) => sys::cudnnMathType_t::CUDNN_FMA_MATH,
            (true, true) => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
            (false, _) => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
        };
        // SAFETY: the descriptor is valid.
        unsafe { result::set_convolution_math_type(convolution.raw, wanted) }.ok()?;
        Some(Self { data_type, first, image, result, weight, convolution })
    }

    /// The plan in the way that is asked for, of those that are advised and compute what is wanted in so much memory.
    fn plan(
        self,
        (shape, following, way): &Asked,
        advised: &[Advice],
        most_workspace: usize,
    ) -> Option<Plan> {
        let Self { data_type, first, image, result, weight, convolution } = self;
        let is_f32 = shape.dtype == DType::F32;
        let is_exact = is_f32 && !shape.tf32;
        let deterministic = sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC as u32;
        let mut ways = advised.iter().filter_map(|advice| {
            let fits =
                advice.status == 0 && advice.determinism == deterministic && advice.memory <= most_workspace;
            let algorithm = Algorithm::of(shape.direction, advice.algorithm, is_f32).filter(|_| fits)?;
            Some((algorithm, math(advice.math, is_exact)?, advice.memory))
        });
        let (algorithm, math, workspace) = ways.nth(*way)?;
        if following.is_some_and(|following| !algorithm.takes(following)) {
            return None;
        }
        let epilogue = match *following {
            Some(following) => Some(describe_epilogue(following, data_type, shape.channels[1], 5 - first)?),
            None => None,
        };
        // SAFETY: the descriptor is valid.
        unsafe { result::set_convolution_math_type(convolution.raw, math) }.ok()?;
        Some(Plan { workspace, lacks: false, image, weight, result, convolution, algorithm, epilogue })
    }
}

#[cfg(test)]
mod tests {
    use super::{Advice, ConvolutionShape, filled, is_large, strides, sys};
    use kiln_gpu::runtime::ConvolutionDirection;
    use kiln_tensor::{DType, Windows};
    use std::mem::offset_of;

    /// The first convolution of a network for images, one at a time.
    fn first() -> ConvolutionShape {
        ConvolutionShape {
            dtype: DType::F16,
            tf32: false,
            direction: ConvolutionDirection::Forward,
            windows: Windows::new(&[224; 2], &[3; 2], &[2; 2], &[(1, 1); 2], &[1; 2], false),
            batch: 1,
            groups: 1,
            channels: [3, 32],
            channels_last: true,
        }
    }

    #[test]
    fn short_sums_are_asked_for_where_channels_stand_last() {
        assert!(
            is_large(&first()) && is_large(&ConvolutionShape { dtype: DType::F32, tf32: true, ..first() })
        );
        assert!(!is_large(&ConvolutionShape { batch: 1 << 10, channels_last: false, ..first() }));
        assert!(!is_large(&ConvolutionShape { channels: [1, 32], ..first() }));
        assert!(!is_large(&ConvolutionShape { dtype: DType::F32, ..first() }));
    }

    #[test]
    fn few_channels_are_filled_to_sixteen_bytes() {
        let channels = |shape: ConvolutionShape| filled(shape).channels;
        assert_eq!(channels(first()), [8, 32]);
        assert_eq!(channels(ConvolutionShape { dtype: DType::F32, ..first() }), [4, 32]);
        assert_eq!(channels(ConvolutionShape { channels: [16, 32], ..first() }), [16, 32]);
        assert_eq!(
            channels(ConvolutionShape { direction: ConvolutionDirection::Weight, ..first() }),
            [8, 32]
        );
        for unchanged in [
            ConvolutionShape { direction: ConvolutionDirection::Input, ..first() },
            ConvolutionShape { groups: 3, channels: [3, 33], ..first() },
        ] {
            assert_eq!(channels(unchanged.clone()), unchanged.channels);
        }
    }

    #[test]
    fn strides_follow_the_order() {
        assert_eq!(strides(&[2, 3, 4, 5], false), Some(vec![60, 20, 5, 1]));
        assert_eq!(strides(&[2, 3, 4, 5], true), Some(vec![60, 1, 15, 3]));
        assert_eq!(strides(&[2, 3, 4, 5, 6], true), Some(vec![360, 1, 90, 18, 3]));
        // All elements are counted, those of the first dim too.
        assert_eq!(strides(&[1 << 16, 1 << 16, 1, 1], true), None);
        assert_eq!(strides(&[1 << 16, 1 << 16, 1, 1], false), None);
    }

    #[test]
    fn advice_lies_as_the_librarys_does() {
        macro_rules! check {
            ($($theirs:ident)*) => {$(
                assert_eq!(size_of::<Advice>(), size_of::<sys::$theirs>());
                assert_eq!(offset_of!(Advice, status), offset_of!(sys::$theirs, status));
                assert_eq!(offset_of!(Advice, memory), offset_of!(sys::$theirs, memory));
                assert_eq!(offset_of!(Advice, determinism), offset_of!(sys::$theirs, determinism));
                assert_eq!(offset_of!(Advice, math), offset_of!(sys::$theirs, mathType));
            )*};
        }
        check!(cudnnConvolutionFwdAlgoPerf_t cudnnConvolutionBwdDataAlgoPerf_t cudnnConvolutionBwdFilterAlgoPerf_t);
    }
}
