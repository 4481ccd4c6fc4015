//! Users' own kernels, in CUDA C++.

use crate::device::{CudaDevice, expect_context};
use crate::memory::Memory;
use crate::{CudaRuntime, CudaTensor, context};
use kiln_gpu::{Operand, Parameter};
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A kernel in CUDA C++, to compute what no operation does, or several at once.
///
/// Its entry point is an `extern "C" __global__` function. Its first arguments are pointers to the elements of its tensors, in the order in
/// which [`Launch::input`] and [`Launch::output`] give them: row-major, in the tensor's dtype (halves and bf16 as their bits, booleans as
/// 32-bit integers, 0 or 1). Those that follow are its values, in the order of [`Launch::parameter`].
///
/// NVRTC compiles it when a device first runs it, as it does Kiln's own kernels: each operation is rounded (`--fmad=false`), no headers are
/// there, and what was compiled is kept on disk. It runs after the operations that were asked for before, without waiting for them; a
/// [graph](crate::Graph) holds it as it does others. It may write to its outputs alone, and only where they have elements: a write
/// elsewhere is a fault of the device, or changes other tensors.
///
/// ```no_run
/// use kiln_cuda::{CudaKernel, CudaTensor, KernelError};
/// use kiln_tensor::DType;
/// use kiln_tensor::backend::Primitive;
/// use std::sync::LazyLock;
///
/// static SCALE: LazyLock<CudaKernel> = LazyLock::new(|| {
///     CudaKernel::new(
///         "scale",
///         r#"extern "C" __global__ void scale(const float* x, float* y, unsigned count, float factor) {
///             unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
///             if (at < count) y[at] = factor * x[at];
///         }"#,
///     )
/// });
///
/// fn scale(x: CudaTensor, factor: f32) -> Result<CudaTensor, KernelError> {
///     let x = x.into_contiguous();
///     let count = x.shape().num_elements() as u32;
///     let mut y = CudaTensor::empty(x.shape(), DType::F32, x.device());
///     let launch = SCALE.launch().input(&x).output(&mut y).parameter(count).parameter(factor);
///     // SAFETY: each thread writes the element that it checked to be there.
///     unsafe { launch.run([count.div_ceil(256), 1, 1], [256, 1])? };
///     Ok(y)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CudaKernel(Arc<Source>);

#[derive(Debug)]
struct Source {
    entry_point: Cow<'static, str>,
    text: Cow<'static, str>,
    /// Of both, so that a launch does not read the text.
    hash: u64,
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.entry_point == other.entry_point && self.text == other.text
    }
}

impl Eq for Source {}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl CudaKernel {
    /// The kernel `entry_point` of a text.
    pub fn new(entry_point: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) -> Self {
        let (entry_point, text) = (entry_point.into(), text.into());
        let mut hasher = std::hash::DefaultHasher::new();
        (&entry_point, &text).hash(&mut hasher);
        Self(Arc::new(Source { entry_point, text, hash: hasher.finish() }))
    }

    /// Its function, which errors name.
    pub fn entry_point(&self) -> &str {
        &self.0.entry_point
    }

    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// A run of the kernel, which is yet to be given its tensors and values.
    pub fn launch<'a>(&'a self) -> Launch<'a> {
        Launch { kernel: self, tensors: Vec::new(), parameters: Vec::new() }
    }
}

/// A run of a kernel.
#[derive(Debug)]
#[must_use = "a kernel does nothing until it is run"]
pub struct Launch<'a> {
    kernel: &'a CudaKernel,
    tensors: Vec<Operand<'a, CudaRuntime>>,
    parameters: Vec<u32>,
}

impl<'a> Launch<'a> {
    /// The next pointer: to a tensor that is read, which must be [contiguous](CudaTensor::into_contiguous).
    pub fn input(mut self, tensor: &'a CudaTensor) -> Self {
        self.tensors.push(Operand::Input(tensor));
        self
    }

    /// The next pointer: to a tensor that is written to, and may be read. No other tensor may share its memory: one from
    /// [`CudaTensor::empty`], or the result of an operation.
    pub fn output(mut self, tensor: &'a mut CudaTensor) -> Self {
        self.tensors.push(Operand::Output(tensor));
        self
    }

    /// The next value.
    pub fn parameter(mut self, value: impl Parameter) -> Self {
        self.parameters.push(value.word());
        self
    }

    /// Runs it on the first output's device, in so many blocks along x, y and z, each of so many threads along x and y.
    ///
    /// # Safety
    /// The kernel takes as many pointers and values of 4 bytes as it is given, reads and writes within the tensors alone, and writes to
    /// outputs alone.
    ///
    /// # Errors
    /// When it does not compile, or its tensors, blocks or threads are not what it or the device takes. What goes wrong as it runs is told
    /// by the next read or [`sync`](kiln_tensor::backend::Backend::sync).
    ///
    /// # Panics
    /// When the device does not open.
    pub unsafe fn run(self, blocks: [u32; 3], threads: [u32; 2]) -> Result<(), KernelError> {
        let Self { kernel, mut tensors, parameters } = self;
        let error = |problem| KernelError::Launch { kernel: kernel.entry_point().to_owned(), problem };
        let first = tensors.iter().find(|operand| operand.is_output());
        let Some(device) = first.map(|output| *output.tensor().device()) else {
            return Err(error(LaunchProblem::NoOutput));
        };
        // The limits that all devices have ("Compute Capabilities" of the programming guide).
        let most = context::LIMITS.groups;
        let count = threads.iter().try_fold(1_u32, |product, &threads| product.checked_mul(threads));
        let thread_count = count.filter(|count| (1..=1024).contains(count));
        let fits = |(blocks, most): (&u32, u32)| (1..=most).contains(blocks);
        if thread_count.is_none() || !blocks.iter().zip([MOST_ALONG_X, most, most]).all(fits) {
            return Err(error(LaunchProblem::Grid { blocks, threads, most }));
        }
        let memories: Result<Vec<Memory>, KernelError> = tensors
            .iter_mut()
            .enumerate()
            .map(|(tensor, operand)| {
                let refused = |problem| error(LaunchProblem::Tensor { tensor, problem });
                operand.memory(&device).map_err(refused)
            })
            .collect();
        let writable: Vec<bool> = tensors.iter().map(Operand::is_output).collect();
        expect_context(&device).record_own(kernel, (&memories?, &writable), &parameters, (blocks, threads))
    }
}

/// Blocks that a grid may have along x ("Compute Capabilities" of the programming guide).
const MOST_ALONG_X: u32 = i32::MAX.cast_unsigned();

/// Why a user's kernel cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// It does not compile, or has no such function.
    #[error("kernel `{kernel}`: {reason}")]
    Compile {
        /// The kernel's name.
        kernel: String,
        /// What the compiler says, with the place in the text.
        reason: String,
    },
    /// What it was given is not what it or the device takes.
    #[error("kernel `{kernel}`: {problem}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// What is wrong.
        problem: LaunchProblem,
    },
}

/// What is wrong with a run of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchProblem {
    /// It writes to no tensor.
    #[error("it has no output")]
    NoOutput,
    /// No blocks, no threads, or more than devices run.
    #[error(
        "{blocks:?} blocks of {threads:?} threads, where a grid has 1 to {MOST_ALONG_X} blocks along x and to {most} along y and z, and a block 1 \
         to 1024 threads"
    )]
    Grid {
        /// Blocks along x, y and z.
        blocks: [u32; 3],
        /// Threads along x and y.
        threads: [u32; 2],
        /// Blocks that there may be along y and z.
        most: u32,
    },
    /// A tensor that it cannot take.
    #[error("tensor {tensor}: {problem}")]
    Tensor {
        /// Its number, from 0.
        tensor: usize,
        /// What is wrong with it.
        problem: TensorProblem,
    },
}

/// Why a kernel cannot take a tensor.
pub type TensorProblem = kiln_gpu::TensorProblem<CudaDevice>;
