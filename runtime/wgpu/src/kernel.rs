//! Users' own kernels, in WGSL.

use crate::context::PARAMETER_BYTES;
use crate::device::{WgpuDevice, expect_context};
use crate::memory::Memory;
use crate::{WgpuRuntime, WgpuTensor};
use kiln_gpu::{Operand, Parameter};
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A kernel in WGSL, to compute what no operation does, or several at once.
///
/// Its tensors are storage buffers of group 0, numbered in the order in which [`Launch::input`] and [`Launch::output`] give them:
/// arrays of `f32`, `f16`, `i32` or `u32` as the tensor's dtype is (booleans are `u32`, 0 or 1; integers of 64 bits `vec2<u32>`, the lower
/// word first), row-major, of the tensor's length (`arrayLength`). Values are a uniform of group 1, binding 0: a struct of 4-byte scalars in the order of [`Launch::parameter`].
///
/// No binding is empty, nor ends within 4 bytes: the array of an empty tensor has 16 bytes, and that of an odd number of `f16` one element
/// more. What these hold is nobody's, so that a kernel that may get such tensors is told their lengths as values.
///
/// It is compiled when a device first runs it, and run after the operations that were asked for before, without waiting for them.
/// Kernels of the same text, entry point and constants are the same kernel, wherever they are made.
///
/// ```no_run
/// use kiln_tensor::{DType, Shape};
/// use kiln_wgpu::{KernelError, WgpuTensor, WgslKernel};
/// use std::sync::LazyLock;
///
/// static SCALE: LazyLock<WgslKernel> = LazyLock::new(|| {
///     WgslKernel::new(
///         "scale",
///         "@group(0) @binding(0) var<storage, read> x: array<f32>;
///          @group(0) @binding(1) var<storage, read_write> y: array<f32>;
///          struct Parameters { factor: f32 }
///          @group(1) @binding(0) var<uniform> parameters: Parameters;
///
///          @compute @workgroup_size(64)
///          fn main(@builtin(global_invocation_id) at: vec3<u32>) {
///              if at.x < arrayLength(&y) { y[at.x] = parameters.factor * x[at.x]; }
///          }",
///         "main",
///     )
/// });
///
/// fn scale(x: WgpuTensor, factor: f32) -> Result<WgpuTensor, KernelError> {
///     let x = x.into_contiguous();
///     let shape: Shape = kiln_tensor::backend::Primitive::shape(&x);
///     let groups = shape.num_elements().div_ceil(64) as u32;
///     let mut y = WgpuTensor::empty(shape, DType::F32, x.device());
///     SCALE.launch().input(&x).output(&mut y).parameter(factor).run([groups, 1, 1])?;
///     Ok(y)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WgslKernel(Arc<Source>);

#[derive(Debug, Clone)]
struct Source {
    name: Cow<'static, str>,
    wgsl: Cow<'static, str>,
    entry_point: Cow<'static, str>,
    /// Values of overridable constants.
    constants: Vec<(Cow<'static, str>, f64)>,
    /// Of all the others but the name, so that a launch does not read the text.
    hash: u64,
}

impl Source {
    fn hashed(mut self) -> Self {
        let mut hasher = std::hash::DefaultHasher::new();
        (&self.wgsl, &self.entry_point).hash(&mut hasher);
        for (name, value) in &self.constants {
            (name, value.to_bits()).hash(&mut hasher);
        }
        self.hash = hasher.finish();
        self
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        let bits = |source: &Self| -> Vec<(Cow<'static, str>, u64)> {
            source.constants.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect()
        };
        self.hash == other.hash
            && self.wgsl == other.wgsl
            && self.entry_point == other.entry_point
            && bits(self) == bits(other)
    }
}

impl Eq for Source {}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl WgslKernel {
    /// The kernel `entry_point` of a WGSL module; `name` stands in errors.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        wgsl: impl Into<Cow<'static, str>>,
        entry_point: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (name, wgsl, entry_point) = (name.into(), wgsl.into(), entry_point.into());
        Self(Arc::new(Source { name, wgsl, entry_point, constants: Vec::new(), hash: 0 }.hashed()))
    }

    /// The kernel with a value for one of its constants (`override NAME: u32 = …;`), which may be the size of its workgroups.
    #[must_use]
    pub fn constant(self, name: impl Into<Cow<'static, str>>, value: f64) -> Self {
        let mut source = Arc::unwrap_or_clone(self.0);
        source.constants.push((name.into(), value));
        Self(Arc::new(source.hashed()))
    }

    /// The name that errors have.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn wgsl(&self) -> &str {
        &self.0.wgsl
    }

    pub(crate) fn entry_point(&self) -> &str {
        &self.0.entry_point
    }

    pub(crate) fn constants(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.constants.iter().map(|(name, value)| (&**name, *value))
    }

    /// A run of the kernel, which is yet to be given its tensors and values.
    pub fn launch<'a>(&'a self) -> Launch<'a> {
        Launch { kernel: self, bindings: Vec::new(), parameters: Vec::new() }
    }
}

/// A run of a kernel.
#[derive(Debug)]
#[must_use = "a kernel does nothing until it is run"]
pub struct Launch<'a> {
    kernel: &'a WgslKernel,
    bindings: Vec<Operand<'a, WgpuRuntime>>,
    parameters: Vec<u32>,
}

impl<'a> Launch<'a> {
    /// The next binding: a tensor that is read (`var<storage, read>`), which must be [contiguous](WgpuTensor::into_contiguous).
    pub fn input(mut self, tensor: &'a WgpuTensor) -> Self {
        self.bindings.push(Operand::Input(tensor));
        self
    }

    /// The next binding: a tensor that is written to, and may be read (`var<storage, read_write>`). No other tensor may share
    /// its memory: one from [`WgpuTensor::empty`], or the result of an operation.
    pub fn output(mut self, tensor: &'a mut WgpuTensor) -> Self {
        self.bindings.push(Operand::Output(tensor));
        self
    }

    /// The next value.
    pub fn parameter(mut self, value: impl Parameter) -> Self {
        self.parameters.push(value.word());
        self
    }

    /// Records the run of so many workgroups along x, y and z.
    ///
    /// # Errors
    /// When the kernel does not compile, or its tensors, values or workgroups are not what it or the device takes: it does not run then, and all
    /// else does. In a browser compilation is asynchronous, and its errors, as those of its bindings, are those of the next read or [`sync`](kiln_tensor::backend::Backend::sync).
    pub fn run(self, groups: [u32; 3]) -> Result<(), KernelError> {
        let Self { kernel, mut bindings, parameters } = self;
        let error = |problem| KernelError::Launch { kernel: kernel.name().to_owned(), problem };
        let device = match bindings.iter().find(|binding| binding.is_output()) {
            Some(output) => *output.tensor().device(),
            None => return Err(error(LaunchProblem::NoOutput)),
        };
        let context = expect_context(&device);
        let most = context.limits();
        if bindings.len() > most.bindings {
            return Err(error(LaunchProblem::TooManyTensors {
                tensors: bindings.len(),
                most: most.bindings,
            }));
        }
        if groups.iter().any(|&groups| groups > most.groups) {
            return Err(error(LaunchProblem::TooManyGroups { groups, most: most.groups }));
        }
        if size_of_val(&*parameters) as u64 > PARAMETER_BYTES {
            return Err(error(LaunchProblem::TooManyParameters { parameters: parameters.len() }));
        }
        let mut memories = Vec::with_capacity(bindings.len());
        for (n, binding) in bindings.iter_mut().enumerate() {
            memories.push(
                binding
                    .memory(&device)
                    .map_err(|problem| error(LaunchProblem::Tensor { binding: n, problem }))?,
            );
        }
        let writable = bindings.iter().map(Operand::is_output).collect();
        let memories: Vec<&Memory> = memories.iter().collect();
        context.record_own(kernel, writable, &memories, &parameters, groups)
    }
}

/// Why a user's kernel cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// It does not compile, or not with the bindings that it was given.
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
    /// More tensors than the device binds.
    #[error("it has {tensors} tensors, and the device binds {most}")]
    TooManyTensors {
        /// How many it has.
        tensors: usize,
        /// How many it may have.
        most: usize,
    },
    /// More workgroups than the device runs.
    #[error("a grid of {groups:?} workgroups, and the device takes {most} along each axis")]
    TooManyGroups {
        /// How many were asked for.
        groups: [u32; 3],
        /// How many there may be along each axis.
        most: u32,
    },
    /// More values than fit.
    #[error("it has {parameters} values of 4 bytes, and {PARAMETER_BYTES} bytes are the most")]
    TooManyParameters {
        /// How many it has.
        parameters: usize,
    },
    /// Its tensors are not what the text's bindings take: mostly, one has fewer bytes than an element of its binding's type, or than the
    /// array of a fixed length that it is.
    #[error("its tensors do not do for its bindings: {reason}")]
    Bindings {
        /// What the device says, with the number of the binding and the bytes that it needs.
        reason: String,
    },
    /// A tensor that it cannot take.
    #[error("binding {binding}: {problem}")]
    Tensor {
        /// Its number among the tensors, from 0.
        binding: usize,
        /// What is wrong with it.
        problem: TensorProblem,
    },
}

/// Why a kernel cannot take a tensor.
pub type TensorProblem = kiln_gpu::TensorProblem<WgpuDevice>;
