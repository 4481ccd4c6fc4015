//! Computations that are written down once and launched as a whole.

use crate::context::Recorded;
use crate::device::{CudaDevice, context};
use crate::{Cuda, CudaTensor, InitError};
use kiln_tensor::backend::{ExecutionError, Primitive};
use kiln_tensor::{DType, Element, Shape, Tensor, TensorKind};

/// Tensors that go into a [`Graph`] or come out of it: one, or a tuple (of up to twelve), an array or a vector of such.
pub trait Tensors: Sized {
    /// The backend's tensors, in order.
    fn into_all(self) -> Vec<CudaTensor>;

    /// As many of the backend's tensors as [`into_all`](Self::into_all) gave, of the same dtypes and ranks.
    fn from_all(all: &mut dyn Iterator<Item = CudaTensor>, like: &Self) -> Self;
}

impl<F: Element, I: Element, const D: usize, K: TensorKind<Cuda<F, I>>> Tensors for Tensor<Cuda<F, I>, D, K> {
    fn into_all(self) -> Vec<CudaTensor> {
        vec![self.into_backend()]
    }

    fn from_all(all: &mut dyn Iterator<Item = CudaTensor>, like: &Self) -> Self {
        all.next().map_or_else(|| like.clone(), Self::from_backend)
    }
}

impl<T: Tensors> Tensors for Vec<T> {
    fn into_all(self) -> Vec<CudaTensor> {
        self.into_iter().flat_map(T::into_all).collect()
    }

    fn from_all(all: &mut dyn Iterator<Item = CudaTensor>, like: &Self) -> Self {
        like.iter().map(|like| T::from_all(all, like)).collect()
    }
}

impl<T: Tensors, const N: usize> Tensors for [T; N] {
    fn into_all(self) -> Vec<CudaTensor> {
        self.into_iter().flat_map(T::into_all).collect()
    }

    fn from_all(all: &mut dyn Iterator<Item = CudaTensor>, like: &Self) -> Self {
        std::array::from_fn(|n| T::from_all(all, &like[n]))
    }
}

impl Tensors for () {
    fn into_all(self) -> Vec<CudaTensor> {
        Vec::new()
    }

    fn from_all(_all: &mut dyn Iterator<Item = CudaTensor>, (): &Self) -> Self {}
}

macro_rules! tuples {
    ($(($($name:ident $place:tt),+))*) => {
        $(impl<$($name: Tensors),+> Tensors for ($($name,)+) {
            fn into_all(self) -> Vec<CudaTensor> {
                let mut all = Vec::new();
                $(all.extend(self.$place.into_all());)+
                all
            }

            fn from_all(all: &mut dyn Iterator<Item = CudaTensor>, like: &Self) -> Self {
                ($($name::from_all(all, &like.$place),)+)
            }
        })*
    };
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
}

/// A computation that was written down: the device runs it anew as a whole, which costs the host one launch.
///
/// What it reads besides its inputs (weights) is what these hold when it runs, and stays in memory as long as the graph.
///
/// ```no_run
/// # use kiln_cuda::{Cuda, Graph};
/// # use kiln_tensor::Tensor;
/// # fn model(x: Tensor<Cuda, 2>) -> Tensor<Cuda, 2> { x }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (x, other): (Tensor<Cuda, 2>, Tensor<Cuda, 2>) = todo!();
/// let graph = Graph::capture(x, |x| model(x))?;
/// let y = graph.replay(other)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Graph<I, O> {
    /// Where each replay finds its inputs.
    inputs: Vec<CudaTensor>,
    like: std::marker::PhantomData<fn(I)>,
    /// Where each leaves its outputs.
    outputs: Vec<CudaTensor>,
    shapes: O,
    recorded: Recorded,
    device: CudaDevice,
}

impl<I: Tensors + Clone, O: Tensors + Clone> Graph<I, O> {
    /// Writes a computation down, for inputs of the shapes and dtypes of `inputs`. It is run twice: as always, so that kernels are
    /// compiled and weights packed, and while it is written down. Other threads that use the device wait meanwhile.
    ///
    /// # Errors
    /// When it reads what the device computes, draws random numbers or captures a graph itself; when its inputs are none or on
    /// several devices, or the device fails.
    pub fn capture(inputs: I, mut forward: impl FnMut(I) -> O) -> Result<Self, CaptureError> {
        let own: Vec<CudaTensor> = inputs.clone().into_all().iter().map(CudaTensor::copied).collect();
        let Some(device) = own.first().map(|first| *first.device()) else {
            return Err(CaptureError::NoInputs);
        };
        if own.iter().any(|input| *input.device() != device) {
            return Err(CaptureError::SeveralDevices);
        }
        let context = context(&device)?;
        let given = || I::from_all(&mut own.iter().cloned(), &inputs);
        drop(forward(given()));
        let of_device = |error: ExecutionError| CaptureError::Device { reason: error.reason };
        context.sync().map_err(of_device)?;
        let (outputs, recorded) = context.capture(|| {
            let outputs = forward(given());
            // An output may be a view, or an input: each replay leaves it in memory of its own.
            let all: Vec<CudaTensor> = outputs.clone().into_all().iter().map(CudaTensor::copied).collect();
            (all, outputs)
        })?;
        let (outputs, shapes) = outputs;
        Ok(Self { inputs: own, like: std::marker::PhantomData, outputs, shapes, recorded, device })
    }

    /// Runs the computation on other inputs.
    ///
    /// # Errors
    /// When these differ in number, shape, dtype or device from those that it was written down with, or the device fails.
    pub fn replay(&self, inputs: I) -> Result<O, ReplayError> {
        self.replay_all(&inputs.into_all())
    }

    pub(crate) fn replay_all(&self, inputs: &[CudaTensor]) -> Result<O, ReplayError> {
        self.fits(inputs)?;
        let context = context(&self.device)?;
        context.check_graph(&self.recorded)?;
        inputs.iter().zip(&self.inputs).for_each(|(input, own)| own.overwrite(input));
        context.replay(&self.recorded)?;
        // The next replay overwrites them.
        let outputs: Vec<CudaTensor> = self.outputs.iter().map(CudaTensor::copied).collect();
        Ok(O::from_all(&mut outputs.into_iter(), &self.shapes))
    }

    /// Whether it can run: not where its device was opened again since.
    pub(crate) fn is_current(&self) -> bool {
        context(&self.device).is_ok_and(|context| context.holds(&self.recorded))
    }

    /// Whether it was written down for such inputs.
    pub(crate) fn fits(&self, inputs: &[CudaTensor]) -> Result<(), ReplayError> {
        if inputs.len() != self.inputs.len() {
            return Err(ReplayError::Number { given: inputs.len(), captured: self.inputs.len() });
        }
        for (number, (input, own)) in inputs.iter().zip(&self.inputs).enumerate() {
            if (input.shape(), input.dtype()) != (own.shape(), own.dtype()) {
                return Err(ReplayError::Input {
                    number,
                    given: Box::new((input.shape(), input.dtype())),
                    captured: Box::new((own.shape(), own.dtype())),
                });
            }
            if input.device() != own.device() {
                return Err(ReplayError::Device { number, given: *input.device(), captured: self.device });
            }
        }
        Ok(())
    }
}

/// Why a computation cannot be written down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It reads.
    #[error(
        "a captured computation reads what the device computes (`into_data`, `into_scalar`, or an operation whose result's shape \
         depends on data, such as `nonzero`): leave that out of it"
    )]
    Read,
    /// It draws random numbers.
    #[error(
        "a captured computation draws random numbers, which would be the same in every replay: make them before, and give them as \
         an input"
    )]
    Random,
    /// It captures.
    #[error("a captured computation captures another")]
    Nested,
    /// It has no inputs.
    #[error("a captured computation needs at least one input")]
    NoInputs,
    /// Its inputs are on several devices.
    #[error("the inputs of a captured computation are on several devices")]
    SeveralDevices,
    /// The device does not open.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The device failed.
    #[error("the computation cannot be captured: {reason}")]
    Device {
        /// What the driver says.
        reason: String,
    },
}

/// Why what was written down does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// Other inputs.
    #[error("{given} inputs were given to a graph that was captured with {captured}")]
    Number {
        /// How many were given.
        given: usize,
        /// How many it has.
        captured: usize,
    },
    /// Another input.
    #[error(
        "input {number} is {} {}, and the graph was captured with {} {}: capture another for it",
        given.1, given.0, captured.1, captured.0
    )]
    Input {
        /// Which, from 0.
        number: usize,
        /// What was given.
        given: Box<(Shape, DType)>,
        /// What it has.
        captured: Box<(Shape, DType)>,
    },
    /// An input on another device.
    #[error("input {number} is on {given:?}, and the graph was captured on {captured:?}")]
    Device {
        /// Which, from 0.
        number: usize,
        /// Where it is.
        given: CudaDevice,
        /// Where the graph is.
        captured: CudaDevice,
    },
    /// The device does not open.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The device failed.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
}
