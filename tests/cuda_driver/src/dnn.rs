//! Convolutions and their gradients ("cuDNN Backend API", chapter "`cudnn_cnn` Library"), of tensors that are row-major or
//! have their channels last, by algorithms that differ in what is said of them: the first is not deterministic (but for images of three dims, where it is the fastest), the second needs more memory
//! than anybody has, the last two are what can be asked for. What follows a convolution is not done in the same call with bf16.

use crate::driver::{self, Call};
use crate::give;
use cudarc::cudnn::sys::cudnnStatus_t::{self, *};
use cudarc::cudnn::sys::{
    cudnnActivationMode_t, cudnnConvolutionMode_t, cudnnDataType_t, cudnnMathType_t, cudnnNanPropagation_t,
    cudnnTensorFormat_t,
};
use half::{bf16, f16};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// The library, which works on a stream.
struct Handle {
    stream: *mut c_void,
}

/// A tensor, of images or of weights.
#[derive(Clone)]
struct Tensor {
    kind: cudnnDataType_t,
    dims: Vec<usize>,
    strides: Vec<usize>,
}

/// From each element to the next along each dim, of a tensor without gaps that is row-major, or has dim 1 innermost.
fn strides(dims: &[usize], channels_last: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    if channels_last {
        order[1..].rotate_left(1);
    }
    let mut strides = vec![1; dims.len()];
    for (n, &axis) in order.iter().enumerate() {
        strides[axis] = order[n + 1..].iter().map(|&inner| dims[inner]).product();
    }
    strides
}

/// How windows move.
#[derive(Clone)]
struct Movement {
    padding: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    groups: usize,
    math: cudnnMathType_t,
}

/// `cudnnConvolutionFwdAlgoPerf_t`, and those of the gradients.
#[repr(C)]
struct Advice {
    algorithm: u32,
    status: u32,
    time: f32,
    memory: usize,
    determinism: u32,
    math: u32,
    reserved: [c_int; 3],
}

/// What follows a convolution.
#[derive(Clone)]
struct Activation {
    mode: cudnnActivationMode_t,
    nan: cudnnNanPropagation_t,
}

/// Which of the three is computed of the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Input,
    Weight,
}

/// Channels of results whose convolutions are advised, as if by a part of the library that cannot be loaded when it is called.
const UNAVAILABLE: usize = 74;

/// Bytes of workspace of the algorithms that can be asked for: more than Kiln has from the start.
const WORKSPACE: usize = 40 << 20;

impl Tensor {
    fn len(&self) -> usize {
        self.dims.iter().product()
    }

    fn bytes(&self) -> usize {
        self.len() * if self.kind == cudnnDataType_t::CUDNN_DATA_FLOAT { 4 } else { 2 }
    }

    /// Where the element is that is at a place of a row-major tensor.
    fn place(&self, mut at: usize) -> usize {
        let mut place = 0;
        for (dim, stride) in self.dims.iter().zip(&self.strides).rev() {
            place += at % dim * stride;
            at /= dim;
        }
        place
    }

    /// # Safety
    /// The tensor is there.
    unsafe fn read(&self, start: u64, at: usize) -> f64 {
        let at = self.place(at);
        // SAFETY: the caller says so.
        unsafe {
            match self.kind {
                cudnnDataType_t::CUDNN_DATA_FLOAT => f64::from((start as *const f32).add(at).read()),
                cudnnDataType_t::CUDNN_DATA_HALF => f64::from((start as *const f16).add(at).read()),
                _ => f64::from((start as *const bf16).add(at).read()),
            }
        }
    }

    /// # Safety
    /// The tensor is there.
    unsafe fn write(&self, start: u64, at: usize, value: f64) {
        let at = self.place(at);
        // SAFETY: the caller says so.
        unsafe {
            match self.kind {
                cudnnDataType_t::CUDNN_DATA_FLOAT => (start as *mut f32).add(at).write(value as f32),
                cudnnDataType_t::CUDNN_DATA_HALF => (start as *mut f16).add(at).write(f16::from_f64(value)),
                _ => (start as *mut bf16).add(at).write(bf16::from_f64(value)),
            }
        }
    }
}

/// A convolution that is asked for.
struct Convolution {
    direction: Direction,
    image: (Tensor, u64),
    weight: (Tensor, u64),
    result: (Tensor, u64),
    movement: Movement,
    epilogue: Option<Epilogue>,
}

/// What is done to the results before they are written.
struct Epilogue {
    bias: (Tensor, u64),
    /// What is added, and how often.
    added: (Tensor, u64),
    share: f64,
    relu: bool,
}

impl Epilogue {
    /// # Safety
    /// The tensors are there.
    unsafe fn apply(&self, results: &mut [f64], dims: &[usize]) {
        let volume = dims[2..].iter().product::<usize>();
        for (at, result) in results.iter_mut().enumerate() {
            // SAFETY: the caller says so.
            unsafe {
                *result += self.bias.0.read(self.bias.1, at / volume % dims[1]);
                // What is added no times is not read.
                if self.share != 0.0 {
                    *result += self.share * self.added.0.read(self.added.1, at);
                }
            }
            if self.relu {
                // NaN becomes 0.
                *result = result.max(0.0);
            }
        }
    }
}

impl Convolution {
    /// Whether all fits and lies in one order, as the library's formula for the size of the result says. Exact floats are row-major.
    fn fits([image, weight, result]: [&Tensor; 3], movement: &Movement) -> bool {
        let rank = movement.stride.len();
        let all = [image, weight, result];
        let ranks = all.iter().all(|tensor| tensor.dims.len() == rank + 2);
        let is_exact = image.kind == cudnnDataType_t::CUDNN_DATA_FLOAT
            && movement.math == cudnnMathType_t::CUDNN_FMA_MATH;
        let lie = |channels_last: bool| {
            all.iter().all(|tensor| tensor.strides == strides(&tensor.dims, channels_last))
        };
        ranks
            && (lie(false) || (lie(true) && !is_exact))
            && [weight, result].iter().all(|tensor| tensor.kind == image.kind)
            && result.dims[..2] == [image.dims[0], weight.dims[0]]
            && weight.dims[1] * movement.groups == image.dims[1]
            && weight.dims[0].is_multiple_of(movement.groups)
            && (0..rank).all(|axis| {
                let window = (weight.dims[axis + 2] - 1) * movement.dilation[axis] + 1;
                let room = (image.dims[axis + 2] + 2 * movement.padding[axis]).checked_sub(window);
                room.is_some_and(|room| room / movement.stride[axis] + 1 == result.dims[axis + 2])
            })
    }

    /// Calls `visit` with the places in image, weight and result of every product that there is.
    fn products(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let [image, weight, result] = [&self.image.0.dims, &self.weight.0.dims, &self.result.0.dims];
        let volume = |dims: &[usize]| dims[2..].iter().product::<usize>();
        let Movement { padding, stride, dilation, groups, .. } = &self.movement;
        let (of_group, results_of_group) = (weight[1], weight[0] / groups);
        let coordinates = |mut at: usize, dims: &[usize]| {
            let mut all = vec![0; dims.len() - 2];
            for axis in (0..all.len()).rev() {
                (all[axis], at) = (at % dims[axis + 2], at / dims[axis + 2]);
            }
            all
        };
        for window in 0..volume(result) {
            let first = coordinates(window, result);
            for tap in 0..volume(weight) {
                let within = coordinates(tap, weight);
                let place =
                    first.iter().zip(&within).enumerate().try_fold(0, |place, (axis, (first, tap))| {
                        let at = (first * stride[axis] + tap * dilation[axis]).checked_sub(padding[axis])?;
                        (at < image[axis + 2]).then_some(place * image[axis + 2] + at)
                    });
                let Some(place) = place else { continue };
                for n in 0..image[0] {
                    for k in 0..weight[0] {
                        for c in 0..of_group {
                            let channel = k / results_of_group * of_group + c;
                            visit(
                                (n * image[1] + channel) * volume(image) + place,
                                (k * of_group + c) * volume(weight) + tap,
                                (n * result[1] + k) * volume(result) + window,
                            );
                        }
                    }
                }
            }
        }
    }
}

/// A factor as TF32 has it.
fn rounded(x: f64) -> f64 {
    f64::from(f32::from_bits(((x as f32).to_bits() + 0x1000) & !0x1fff))
}

impl Call for Convolution {
    fn reach(&self) -> Vec<(u64, usize)> {
        let further = self.epilogue.iter().flat_map(|epilogue| [&epilogue.bias, &epilogue.added]);
        let all = [&self.image, &self.weight, &self.result].into_iter().chain(further);
        all.map(|(tensor, start)| (*start, tensor.bytes())).collect()
    }

    unsafe fn compute(&self) {
        let is_exact = self.movement.math == cudnnMathType_t::CUDNN_FMA_MATH
            || self.image.0.kind != cudnnDataType_t::CUDNN_DATA_FLOAT;
        let all = |(tensor, start): &(Tensor, u64)| -> Vec<f64> {
            // SAFETY: the caller says that all is there.
            let read = |at| unsafe { tensor.read(*start, at) };
            (0..tensor.len()).map(|at| if is_exact { read(at) } else { rounded(read(at)) }).collect()
        };
        let [image, weight, result] = [&self.image, &self.weight, &self.result];
        let (to, sums) = match self.direction {
            Direction::Forward => {
                let (x, w, mut y) = (all(image), all(weight), vec![0.0; result.0.len()]);
                self.products(|i, w_at, r| y[r] += x[i] * w[w_at]);
                if let Some(epilogue) = &self.epilogue {
                    // SAFETY: the caller says that all is there.
                    unsafe { epilogue.apply(&mut y, &result.0.dims) };
                }
                (result, y)
            }
            Direction::Input => {
                let (w, dy, mut dx) = (all(weight), all(result), vec![0.0; image.0.len()]);
                self.products(|i, w_at, r| dx[i] += w[w_at] * dy[r]);
                (image, dx)
            }
            Direction::Weight => {
                let (x, dy, mut dw) = (all(image), all(result), vec![0.0; weight.0.len()]);
                self.products(|i, w_at, r| dw[w_at] += x[i] * dy[r]);
                (weight, dw)
            }
        };
        for (at, sum) in sums.into_iter().enumerate() {
            // SAFETY: the caller says that it is there.
            unsafe { to.0.write(to.1, at, sum) };
        }
    }
}

/// A pointer that this library made, as what it is.
///
/// # Safety
/// It was made of a box of that, and is not given back.
unsafe fn known<'a, T>(pointer: *mut c_void) -> &'a mut T {
    // SAFETY: the caller says so.
    unsafe { &mut *pointer.cast::<T>() }
}

/// # Safety
/// The pointer may be written to.
unsafe fn made<T>(to: *mut *mut c_void, value: T) -> cudnnStatus_t {
    // SAFETY: the caller says so.
    status(unsafe { give(to, Box::into_raw(Box::new(value)).cast()) })
}

fn status(done: bool) -> cudnnStatus_t {
    if done { CUDNN_STATUS_SUCCESS } else { CUDNN_STATUS_BAD_PARAM }
}

/// # Safety
/// There are so many numbers.
unsafe fn numbers(from: *const c_int, count: c_int) -> Vec<usize> {
    // SAFETY: the caller says so.
    let numbers = unsafe { std::slice::from_raw_parts(from, count as usize) };
    numbers.iter().map(|&number| number as usize).collect()
}

// All of what follows is declared, with what must hold, in cuDNN's documents.

#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    92_100
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreate(handle: *mut *mut c_void) -> cudnnStatus_t {
    // SAFETY: as the documents say.
    unsafe { made(handle, Handle { stream: std::ptr::null_mut() }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetStream(handle: *mut c_void, stream: *mut c_void) -> cudnnStatus_t {
    // SAFETY: as the documents say.
    unsafe { known::<Handle>(handle) }.stream = stream;
    CUDNN_STATUS_SUCCESS
}

/// Functions that make and destroy what describes something.
macro_rules! descriptors {
    ($($create:ident $destroy:ident: $ty:ty = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $create(descriptor: *mut *mut c_void) -> cudnnStatus_t {
            // SAFETY: as the documents say.
            unsafe { made::<$ty>(descriptor, $value) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $destroy(descriptor: *mut c_void) -> cudnnStatus_t {
            // SAFETY: as the documents say.
            drop(unsafe { Box::from_raw(descriptor.cast::<$ty>()) });
            CUDNN_STATUS_SUCCESS
        }
    )*};
}

descriptors! {
    cudnnCreateTensorDescriptor cudnnDestroyTensorDescriptor: Option<Tensor> = None;
    cudnnCreateFilterDescriptor cudnnDestroyFilterDescriptor: Option<Tensor> = None;
    cudnnCreateConvolutionDescriptor cudnnDestroyConvolutionDescriptor: Option<Movement> = None;
    cudnnCreateActivationDescriptor cudnnDestroyActivationDescriptor: Option<Activation> = None;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetTensorNdDescriptor(
    descriptor: *mut c_void,
    kind: cudnnDataType_t,
    rank: c_int,
    dims: *const c_int,
    strides: *const c_int,
) -> cudnnStatus_t {
    // SAFETY: as the documents say.
    let (dims, strides) = unsafe { (numbers(dims, rank), numbers(strides, rank)) };
    let known_here =
        [false, true].iter().any(|&channels_last| strides == self::strides(&dims, channels_last));
    if !known_here || !(4..=5).contains(&rank) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    // SAFETY: as the documents say.
    *unsafe { known(descriptor) } = Some(Tensor { kind, dims, strides });
    CUDNN_STATUS_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetFilterNdDescriptor(
    descriptor: *mut c_void,
    kind: cudnnDataType_t,
    format: cudnnTensorFormat_t,
    rank: c_int,
    dims: *const c_int,
) -> cudnnStatus_t {
    let channels_last = match format {
        cudnnTensorFormat_t::CUDNN_TENSOR_NCHW => false,
        cudnnTensorFormat_t::CUDNN_TENSOR_NHWC => true,
        _ => return CUDNN_STATUS_NOT_SUPPORTED,
    };
    // SAFETY: as the documents say.
    let dims = unsafe { numbers(dims, rank) };
    let strides = strides(&dims, channels_last);
    // SAFETY: as the documents say.
    *unsafe { known(descriptor) } = Some(Tensor { kind, dims, strides });
    CUDNN_STATUS_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetConvolutionNdDescriptor(
    descriptor: *mut c_void,
    rank: c_int,
    padding: *const c_int,
    stride: *const c_int,
    dilation: *const c_int,
    mode: cudnnConvolutionMode_t,
    sums: cudnnDataType_t,
) -> cudnnStatus_t {
    let known_here = mode == cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION
        && sums == cudnnDataType_t::CUDNN_DATA_FLOAT
        && (2..=3).contains(&rank);
    if !known_here {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    // SAFETY: as the documents say.
    unsafe {
        let [padding, stride, dilation] = [padding, stride, dilation].map(|from| numbers(from, rank));
        let math = cudnnMathType_t::CUDNN_DEFAULT_MATH;
        *known(descriptor) = Some(Movement { padding, stride, dilation, groups: 1, math });
    }
    CUDNN_STATUS_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetActivationDescriptor(
    descriptor: *mut c_void,
    mode: cudnnActivationMode_t,
    nan: cudnnNanPropagation_t,
    _most: f64,
) -> cudnnStatus_t {
    // SAFETY: as the documents say.
    unsafe { *known(descriptor) = Some(Activation { mode, nan }) };
    CUDNN_STATUS_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetConvolutionGroupCount(descriptor: *mut c_void, groups: c_int) -> cudnnStatus_t {
    // SAFETY: as the documents say.
    let movement = unsafe { known::<Option<Movement>>(descriptor) };
    status(movement.as_mut().map(|movement| movement.groups = groups as usize).is_some())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnSetConvolutionMathType(
    descriptor: *mut c_void,
    math: cudnnMathType_t,
) -> cudnnStatus_t {
    // SAFETY: as the documents say.
    let movement = unsafe { known::<Option<Movement>>(descriptor) };
    status(movement.as_mut().map(|movement| movement.math = math).is_some())
}

/// Whether images have three dims.
fn is_deep(movement: &Movement) -> bool {
    movement.stride.len() == 3
}

/// What is advised.
///
/// # Safety
/// All is what it should be.
unsafe fn advise(
    [image, weight, result, movement]: [*mut c_void; 4],
    wanted: c_int,
    count: *mut c_int,
    into: *mut Advice,
) -> cudnnStatus_t {
    // SAFETY: the caller says so.
    let (tensors, movement) = unsafe {
        let tensors = [image, weight, result].map(|of| known::<Option<Tensor>>(of).clone());
        (tensors, known::<Option<Movement>>(movement).clone())
    };
    let ([Some(image), Some(weight), Some(result)], Some(movement)) = (tensors, movement) else {
        return CUDNN_STATUS_BAD_PARAM;
    };
    if !Convolution::fits([&image, &weight, &result], &movement) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    let advice = |algorithm, memory, determinism, math: cudnnMathType_t| {
        let (status, time, math) = (0, 1.0, math as u32);
        Advice { algorithm, status, time, memory, determinism, math, reserved: [0; 3] }
    };
    let (rounds, asked) = (cudnnMathType_t::CUDNN_DEFAULT_MATH, movement.math);
    let all = [
        advice(0, 0, u32::from(is_deep(&movement)), asked),
        advice(1, 1 << 40, 1, asked),
        advice(1, WORKSPACE, 1, rounds),
        advice(1, WORKSPACE, 1, asked),
        // Winograd's, of gradients and of forward passes.
        advice(5, WORKSPACE, 1, asked),
        advice(7, WORKSPACE, 1, asked),
    ];
    let given = all.len().min(wanted as usize);
    for (at, advice) in all.into_iter().take(given).enumerate() {
        // SAFETY: there is room for as many as are wanted.
        unsafe { into.add(at).write(advice) };
    }
    // SAFETY: as the documents say.
    status(unsafe { give(count, given as c_int) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetConvolutionForwardAlgorithm_v7(
    _handle: *mut c_void,
    image: *mut c_void,
    weight: *mut c_void,
    movement: *mut c_void,
    result: *mut c_void,
    wanted: c_int,
    count: *mut c_int,
    into: *mut Advice,
) -> cudnnStatus_t {
    // SAFETY: as the documents say.
    unsafe { advise([image, weight, result, movement], wanted, count, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetConvolutionBackwardDataAlgorithm_v7(
    _handle: *mut c_void,
    weight: *mut c_void,
    result: *mut c_void,
    movement: *mut c_void,
    image: *mut c_void,
    wanted: c_int,
    count: *mut c_int,
    into: *mut Advice,
) -> cudnnStatus_t {
    // SAFETY: as the documents say.
    unsafe { advise([image, weight, result, movement], wanted, count, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    _handle: *mut c_void,
    image: *mut c_void,
    result: *mut c_void,
    movement: *mut c_void,
    weight: *mut c_void,
    wanted: c_int,
    count: *mut c_int,
    into: *mut Advice,
) -> cudnnStatus_t {
    // SAFETY: as the documents say.
    unsafe { advise([image, weight, result, movement], wanted, count, into) }
}

/// A bit for each algorithm that convolutions were asked for by.
static USED: AtomicU64 = AtomicU64::new(0);

/// Tells tests by which algorithms convolutions were asked for since it told it before, a bit each.
#[unsafe(no_mangle)]
extern "C" fn kiln_cuda_convolution_algorithms() -> u64 {
    USED.swap(0, Ordering::Relaxed)
}

/// A tensor by what describes it and where it begins.
type Operand = (*mut c_void, *const c_void);

/// # Safety
/// All is what it should be.
unsafe fn convolve(
    handle: *mut c_void,
    direction: Direction,
    [image, weight, result]: [Operand; 3],
    (movement, algorithm): (*mut c_void, u32),
    (workspace, bytes): (*mut c_void, usize),
    [alpha, beta]: [*const c_void; 2],
    epilogue: Option<Epilogue>,
) -> cudnnStatus_t {
    // SAFETY: the caller says so.
    unsafe {
        let plain = alpha.cast::<f32>().read() == 1.0 && beta.cast::<f32>().read() == 0.0;
        let needed = if algorithm == 0 { 0 } else { WORKSPACE };
        let has_it = match direction {
            Direction::Forward => matches!(algorithm, 0 | 1 | 7),
            Direction::Input | Direction::Weight => matches!(algorithm, 0 | 1 | 5),
        };
        if !plain || !has_it || workspace.is_null() || bytes < needed {
            return CUDNN_STATUS_BAD_PARAM;
        }
        USED.fetch_or(1 << algorithm, Ordering::Relaxed);
        let operand = |(tensor, start): Operand| {
            known::<Option<Tensor>>(tensor).clone().map(|tensor| (tensor, start as u64))
        };
        let movement = known::<Option<Movement>>(movement).clone();
        let (Some(image), Some(weight), Some(result), Some(movement)) =
            (operand(image), operand(weight), operand(result), movement)
        else {
            return CUDNN_STATUS_BAD_PARAM;
        };
        if weight.0.dims[0] == UNAVAILABLE {
            return CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED;
        }
        if algorithm == 0 && !(is_deep(&movement) && direction == Direction::Forward) {
            return CUDNN_STATUS_BAD_PARAM;
        }
        if !Convolution::fits([&image.0, &weight.0, &result.0], &movement) {
            return CUDNN_STATUS_BAD_PARAM;
        }
        let convolution = Convolution { direction, image, weight, result, movement, epilogue };
        match driver::call(known::<Handle>(handle).stream, Box::new(convolution)) {
            true => CUDNN_STATUS_SUCCESS,
            false => CUDNN_STATUS_EXECUTION_FAILED,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnConvolutionForward(
    handle: *mut c_void,
    alpha: *const c_void,
    image: *mut c_void,
    image_at: *const c_void,
    weight: *mut c_void,
    weight_at: *const c_void,
    movement: *mut c_void,
    algorithm: u32,
    workspace: *mut c_void,
    bytes: usize,
    beta: *const c_void,
    result: *mut c_void,
    result_at: *mut c_void,
) -> cudnnStatus_t {
    let operands = [(image, image_at), (weight, weight_at), (result, result_at.cast_const())];
    let (how, place) = ((movement, algorithm), (workspace, bytes));
    // SAFETY: as the documents say.
    unsafe { convolve(handle, Direction::Forward, operands, how, place, [alpha, beta], None) }
}

/// `activation(alpha · convolution + share · added + bias)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnConvolutionBiasActivationForward(
    handle: *mut c_void,
    alpha: *const c_void,
    image: *mut c_void,
    image_at: *const c_void,
    weight: *mut c_void,
    weight_at: *const c_void,
    movement: *mut c_void,
    algorithm: u32,
    workspace: *mut c_void,
    bytes: usize,
    share: *const c_void,
    added: *mut c_void,
    added_at: *const c_void,
    bias: *mut c_void,
    bias_at: *const c_void,
    activation: *mut c_void,
    result: *mut c_void,
    result_at: *mut c_void,
) -> cudnnStatus_t {
    let zero = 0.0_f32;
    // SAFETY: as the documents say.
    unsafe {
        let of = |tensor: *mut c_void| known::<Option<Tensor>>(tensor).clone();
        let activation = known::<Option<Activation>>(activation).clone();
        let (Some(bias), Some(added), Some(result_of), Some(activation)) =
            (of(bias), of(added), of(result), activation)
        else {
            return CUDNN_STATUS_BAD_PARAM;
        };
        let relu = activation.mode == cudnnActivationMode_t::CUDNN_ACTIVATION_RELU;
        let identity = activation.mode == cudnnActivationMode_t::CUDNN_ACTIVATION_IDENTITY;
        let mut channels = vec![1; result_of.dims.len()];
        channels[1] = result_of.dims[1];
        let supported = (relu || identity && algorithm == 1)
            && activation.nan == cudnnNanPropagation_t::CUDNN_NOT_PROPAGATE_NAN
            && [&bias, &added].iter().all(|tensor| tensor.kind == result_of.kind)
            && bias.dims == channels
            && added.dims == result_of.dims
            && result_of.kind != cudnnDataType_t::CUDNN_DATA_BFLOAT16;
        if !supported {
            return CUDNN_STATUS_NOT_SUPPORTED;
        }
        if bias_at.is_null() || added_at.is_null() {
            return CUDNN_STATUS_BAD_PARAM;
        }
        let share = f64::from(share.cast::<f32>().read());
        let epilogue =
            Epilogue { bias: (bias, bias_at as u64), added: (added, added_at as u64), share, relu };
        let operands = [(image, image_at), (weight, weight_at), (result, result_at.cast_const())];
        let (how, place) = ((movement, algorithm), (workspace, bytes));
        let scales = [alpha, (&raw const zero).cast()];
        convolve(handle, Direction::Forward, operands, how, place, scales, Some(epilogue))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnConvolutionBackwardData(
    handle: *mut c_void,
    alpha: *const c_void,
    weight: *mut c_void,
    weight_at: *const c_void,
    result: *mut c_void,
    result_at: *const c_void,
    movement: *mut c_void,
    algorithm: u32,
    workspace: *mut c_void,
    bytes: usize,
    beta: *const c_void,
    image: *mut c_void,
    image_at: *mut c_void,
) -> cudnnStatus_t {
    let operands = [(image, image_at.cast_const()), (weight, weight_at), (result, result_at)];
    let (how, place) = ((movement, algorithm), (workspace, bytes));
    // SAFETY: as the documents say.
    unsafe { convolve(handle, Direction::Input, operands, how, place, [alpha, beta], None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnConvolutionBackwardFilter(
    handle: *mut c_void,
    alpha: *const c_void,
    image: *mut c_void,
    image_at: *const c_void,
    result: *mut c_void,
    result_at: *const c_void,
    movement: *mut c_void,
    algorithm: u32,
    workspace: *mut c_void,
    bytes: usize,
    beta: *const c_void,
    weight: *mut c_void,
    weight_at: *mut c_void,
) -> cudnnStatus_t {
    let operands = [(image, image_at), (weight, weight_at.cast_const()), (result, result_at)];
    let (how, place) = ((movement, algorithm), (workspace, bytes));
    // SAFETY: as the documents say.
    unsafe { convolve(handle, Direction::Weight, operands, how, place, [alpha, beta], None) }
}
