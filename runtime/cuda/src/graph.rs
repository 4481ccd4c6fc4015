//! Computations that are written down once and launched as a whole.

pub(crate) mod salt;
pub(crate) mod state;

use crate::context::{Context, Recorded};
use crate::device::{CudaDevice, context};
use crate::{Cuda, CudaTensor, InitError};
use kiln_tensor::backend::{ExecutionError, Primitive};
use kiln_tensor::{DType, Element, Shape, Tensor, TensorKind};
use salt::Salted;
use state::Place;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

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

impl Tensors for CudaTensor {
    fn into_all(self) -> Vec<CudaTensor> {
        vec![self]
    }

    fn from_all(all: &mut dyn Iterator<Item = CudaTensor>, like: &Self) -> Self {
        all.next().unwrap_or_else(|| like.clone())
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
/// What it reads besides its inputs and its state (weights) is what these hold when it runs, and stays in memory as long as the graph; weights in another
/// order, as some kernels take them, are those that were there when it was captured.
/// Outputs are in memory of the graph's until it runs again: who still has one then has a copy of it.
/// Random numbers (dropout's) are others in each replay; they follow from the device's seed. Threads that share a graph replay it one after another,
/// and each has the outputs of its own inputs.
///
/// ```no_run
/// # use kiln_cuda::{Cuda, Graph};
/// # use kiln_tensor::Tensor;
/// # fn model(x: Tensor<Cuda, 2>) -> Tensor<Cuda, 2> { x }
/// # fn example(x: Tensor<Cuda, 2>, other: Tensor<Cuda, 2>) -> Result<(), Box<dyn std::error::Error>> {
/// let graph = Graph::capture(x, |x| model(x))?;
/// let y = graph.replay(other)?;
/// # Ok(())
/// # }
/// ```
///
/// # State
/// A computation may have state `S` that each replay takes over from the one before: the caches of a decoder, the parameters and moments of a
/// training. It stays in the graph's memory, and nothing of it is copied for a replay. The computation is handed its state with nobody
/// else holding it, so that operations which write in place (`select_assign`, `scatter`) do so in the graph's memory; what of the state it
/// returns as other memory is copied there as the last thing that a replay does.
///
/// ```no_run
/// # use kiln_cuda::{Cuda, Graph};
/// # use kiln_tensor::{Int, Tensor};
/// # type Token = Tensor<Cuda, 2, Int>;
/// # type Caches = Vec<Tensor<Cuda, 4>>;
/// # fn decode(token: Token, position: Tensor<Cuda, 1, Int>, caches: Caches) -> (Token, Caches) { (token, caches) }
/// # fn example(token: Token, position: Tensor<Cuda, 1, Int>, caches: Caches) -> Result<(), Box<dyn std::error::Error>> {
/// // The token that was generated last, where it stands, and keys and values of all before it.
/// let graph = Graph::capture_with_state((token, position, caches), (), |(token, position, caches), ()| {
///     let (token, caches) = decode(token, position.clone(), caches);
///     ((token.clone(), position + 1, caches), token)
/// })?;
/// let mut text = Vec::new();
/// for _ in 0..256 {
///     text.push(graph.replay(())?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Graph<I, O, S = ()> {
    /// Where each replay finds its inputs.
    inputs: Vec<CudaTensor>,
    like: std::marker::PhantomData<fn(I)>,
    /// Where each leaves its outputs.
    outputs: Vec<Output>,
    /// Where each finds the state, and leaves it.
    state: Vec<CudaTensor>,
    /// Where each finds what makes its random numbers others, if it draws any.
    salt: Option<CudaTensor>,
    like_outputs: O,
    like_state: S,
    recorded: Recorded,
    device: CudaDevice,
    /// Held while inputs, state and outputs are the business of one thread.
    turn: Mutex<()>,
}

/// Where a replay leaves an output.
#[derive(Debug)]
enum Output {
    /// In memory that is whoever's it is given to until the next replay writes there: who holds it then has a copy.
    Lent(Place),
    /// In memory that holds something else too, or is not the graph's: whoever it is given to has a copy.
    Kept(CudaTensor),
}

impl Output {
    /// Of a tensor that what was written down left, in a buffer of the graph's own or not.
    fn of(mut tensor: CudaTensor, context: &Context, recorded: &Recorded) -> Self {
        let place = Place::of(&tensor)
            .filter(|place| place.is_from_start() && context.owns(recorded, place.buffer()));
        match place.filter(|_| tensor.memory_mut().is_some()) {
            Some(place) => Output::Lent(place),
            None => Output::Kept(tensor),
        }
    }
}

fn copied(tensors: &[CudaTensor]) -> Vec<CudaTensor> {
    tensors.iter().map(CudaTensor::copied).collect()
}

impl<I: Tensors + Clone, O: Tensors + Clone> Graph<I, O> {
    /// Writes a computation down, for inputs of the shapes and dtypes of `inputs`. It is run twice: as always, so that kernels are
    /// compiled and weights packed, and while it is written down. Other threads that use the device wait meanwhile.
    ///
    /// # Errors
    /// When it reads what the device computes, or captures or replays a graph itself; when its inputs are none or on several devices, or the device
    /// fails.
    pub fn capture(inputs: I, mut forward: impl FnMut(I) -> O) -> Result<Self, CaptureError> {
        Self::capture_with_state((), inputs, |(), inputs| ((), forward(inputs)))
    }
}

impl<I: Tensors + Clone, O: Tensors + Clone, S: Tensors + Clone> Graph<I, O, S> {
    /// Writes a computation with [state](Self#state) down; the first replay begins with `state`, of which the graph has a copy. It is run
    /// twice as by [`capture`](Graph::capture): as always on another copy, which is dropped again, so that the state is as it was given.
    ///
    /// # Errors
    /// As with [`capture`](Graph::capture), inputs being none only where there is no state either. When the state that the computation
    /// returns is not of the number, shapes and dtypes of the state that it was given, or when it keeps the memory of its state beyond its end.
    pub fn capture_with_state(
        state: S,
        inputs: I,
        mut forward: impl FnMut(S, I) -> (S, O),
    ) -> Result<Self, CaptureError> {
        let (first, initial) = (inputs.clone().into_all(), state.clone().into_all());
        let mut devices = first.iter().chain(&initial).map(CudaTensor::device);
        let Some(&device) = devices.next() else { return Err(CaptureError::NoInputs) };
        if devices.any(|&other| other != device) {
            return Err(CaptureError::SeveralDevices);
        }
        let context = context(&device)?;
        if context.refuses(CaptureError::Nested) {
            return Err(CaptureError::Nested);
        }
        let own = copied(&first);
        let salted = Salted::begin(&device);
        let given = || I::from_all(&mut own.iter().cloned(), &inputs);
        let (next, outputs) = forward(S::from_all(&mut copied(&initial).into_iter(), &state), given());
        drop(outputs);
        state::check(&initial, &next.into_all())?;
        let of_device = |error: ExecutionError| CaptureError::Device { reason: error.reason };
        context.sync().map_err(of_device)?;

        // What was made of an input is a part of the graph: the next replay has another.
        own.iter().for_each(CudaTensor::forget_derived);
        let own_state = copied(&initial);
        let places: Vec<Place> = own_state.iter().filter_map(Place::of).collect();
        let buffers: Vec<u64> = places.iter().map(Place::buffer).collect();
        // What says how outputs belong together has none of their memory.
        let nothing = CudaTensor::empty(Shape::from([0]), DType::U8, &device).viewed_memory().clone();
        let ((outputs, like_outputs, own_state), recorded) = context.capture(&buffers, || {
            let (next, outputs) = forward(S::from_all(&mut own_state.into_iter(), &state), given());
            // What of the outputs is state is copied before that moves on.
            let all: Vec<CudaTensor> =
                outputs.clone().into_all().into_iter().map(|output| state::beside(&places, output)).collect();
            let empty = |output: &CudaTensor| {
                let shape = Shape::from(vec![0; output.shape().rank()]);
                CudaTensor::from_memory(nothing.clone(), shape, output.dtype(), device)
            };
            let like_outputs = O::from_all(&mut all.iter().map(empty), &outputs);
            drop(outputs);
            let next = next.into_all();
            state::check(&initial, &next)?;
            Ok((all, like_outputs, state::settle(&context, &places, next)?))
        })?;
        let like_state = S::from_all(&mut own_state.iter().cloned(), &state);
        let like = std::marker::PhantomData;
        let salt = salted.end();
        let outputs = outputs.into_iter().map(|output| Output::of(output, &context, &recorded)).collect();
        Ok(Self {
            inputs: own,
            like,
            outputs,
            state: own_state,
            salt,
            like_outputs,
            like_state,
            recorded,
            device,
            turn: Mutex::default(),
        })
    }

    /// Waits until no other thread uses the graph's own inputs, state and outputs. What is being written down uses them later, and the
    /// other may wait for it: what this thread writes down on another device is refused, as the other may wait for that, too.
    fn turn(&self, context: &Context) -> Result<Option<MutexGuard<'_, ()>>, ExecutionError> {
        if context.is_captured() {
            return Ok(None);
        }
        context.check_captures_elsewhere()?;
        Ok(Some(self.turn.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Runs the computation on other inputs, and on the state that the last replay left.
    ///
    /// # Errors
    /// When these differ in number, shape, dtype or device from those that it was written down with, or within a computation that is being captured on
    /// whatever device, and nothing is run; or when the device fails, after which the state is to be [set](Self::set_state) anew.
    pub fn replay(&self, inputs: I) -> Result<O, ReplayError> {
        self.replay_all(&inputs.into_all())
    }

    pub(crate) fn replay_all(&self, inputs: &[CudaTensor]) -> Result<O, ReplayError> {
        self.fits(inputs)?;
        let context = context(&self.device)?;
        context.check_graph(&self.recorded)?;
        context.check_replay()?;
        let _turn = self.turn(&context)?;
        // Before anything is overwritten: an input may lie where an output goes.
        let lent = context.take_places(&self.recorded, self.places(), self.device)?;
        let renewed = self.inputs.iter().chain(&self.salt).chain(&lent);
        context.renew(renewed.filter_map(CudaTensor::memory));
        inputs.iter().zip(&self.inputs).for_each(|(input, own)| own.overwrite(input));
        if let Some(own) = &self.salt {
            own.overwrite(&salt::drawn(&self.device));
        }
        context.check_memory(|| {
            let own = self.inputs.iter().chain(&self.state).chain(&self.salt);
            own.filter_map(CudaTensor::memory)
        })?;
        context.replay(&self.recorded)?;
        context.lend(self.places().zip(&lent));
        let mut lent = lent.into_iter();
        let given = |output: &Output| match output {
            Output::Lent(_) => lent.next(),
            // The next replay overwrites it.
            Output::Kept(tensor) => Some(tensor.copied()),
        };
        Ok(O::from_all(&mut self.outputs.iter().filter_map(given), &self.like_outputs))
    }

    /// Where a replay leaves outputs that are lent.
    fn places(&self) -> impl Iterator<Item = &Place> {
        self.outputs.iter().filter_map(|output| match output {
            Output::Lent(place) => Some(place),
            Output::Kept(_) => None,
        })
    }

    /// A copy of the state that the last replay left.
    ///
    /// # Errors
    /// When the device was opened again since the capture, or within a computation that is being captured on another.
    pub fn state(&self) -> Result<S, ReplayError> {
        let context = context(&self.device)?;
        context.check_graph(&self.recorded)?;
        let _turn = self.turn(&context)?;
        Ok(S::from_all(&mut copied(&self.state).into_iter(), &self.like_state))
    }

    /// Has the next replay begin with another state, of which the graph takes a copy.
    ///
    /// # Errors
    /// When it differs in number, shape, dtype or device from that which the computation was written down with, or the device was opened
    /// again since, or within a computation that is being captured on another.
    pub fn set_state(&self, state: S) -> Result<(), ReplayError> {
        let state = state.into_all();
        if state.len() != self.state.len() {
            return Err(ReplayError::StateNumber { given: state.len(), captured: self.state.len() });
        }
        self.same(Operand::State, &state, &self.state)?;
        let context = context(&self.device)?;
        context.check_graph(&self.recorded)?;
        let _turn = self.turn(&context)?;
        context.renew(self.state.iter().filter_map(CudaTensor::memory));
        state.iter().zip(&self.state).for_each(|(state, own)| own.overwrite(state));
        Ok(())
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
        self.same(Operand::Input, inputs, &self.inputs)
    }

    /// Whether tensors are such as the graph's own.
    fn same(&self, of: Operand, given: &[CudaTensor], captured: &[CudaTensor]) -> Result<(), ReplayError> {
        for (number, (given, own)) in given.iter().zip(captured).enumerate() {
            if (given.shape(), given.dtype()) != (own.shape(), own.dtype()) {
                return Err(ReplayError::Input {
                    of,
                    number,
                    given: Box::new((given.shape(), given.dtype())),
                    captured: Box::new((own.shape(), own.dtype())),
                });
            }
            if given.device() != own.device() {
                return Err(ReplayError::Device {
                    of,
                    number,
                    given: *given.device(),
                    captured: self.device,
                });
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
    /// It captures.
    #[error("a captured computation captures another: have it compute that itself")]
    Nested,
    /// It replays.
    #[error(
        "a captured computation replays a graph, or asks for the state of another device's: have it compute what that was captured of"
    )]
    Replay,
    /// It uses a device on which another thread captures, and that one the device that this is captured on.
    #[error(
        "a captured computation waits for one that another thread captures, and that waits for it, as each uses the other's device: leave \
         out of it what other devices compute"
    )]
    Deadlock,
    /// It has neither inputs nor state.
    #[error("a captured computation needs at least one input, or state")]
    NoInputs,
    /// Its inputs, or its state, are on several devices.
    #[error("the inputs and the state of a captured computation are on several devices")]
    SeveralDevices,
    /// It returns more or less state.
    #[error("a captured computation was given a state of {given} tensors, and returns one of {returned}")]
    StateNumber {
        /// How many tensors it was given.
        given: usize,
        /// How many it returns.
        returned: usize,
    },
    /// It returns other state.
    #[error(
        "tensor {number} of the state of a captured computation is {} {}, and it returns {} {}: each replay goes on from what the last \
         returned",
        given.1, given.0, returned.1, returned.0
    )]
    State {
        /// Which, from 0.
        number: usize,
        /// What it was given.
        given: Box<(Shape, DType)>,
        /// What it returns.
        returned: Box<(Shape, DType)>,
    },
    /// It keeps state.
    #[error(
        "a captured computation returns tensor {number} of its state as other memory, and keeps what it was given beyond its end, where \
         the next state belongs"
    )]
    StateKept {
        /// Which, from 0.
        number: usize,
    },
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

/// What a graph is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// An input.
    Input,
    /// A tensor of its state.
    State,
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operand::Input => "input",
            Operand::State => "state",
        })
    }
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
    /// More or fewer tensors of state.
    #[error("a state of {given} tensors was given to a graph that was captured with one of {captured}")]
    StateNumber {
        /// How many were given.
        given: usize,
        /// How many it has.
        captured: usize,
    },
    /// Another input, or another state.
    #[error(
        "{of} {number} is {} {}, and the graph was captured with {} {}: capture another for it",
        given.1, given.0, captured.1, captured.0
    )]
    Input {
        /// Whether it is an input, or a tensor of the state.
        of: Operand,
        /// Which, from 0.
        number: usize,
        /// What was given.
        given: Box<(Shape, DType)>,
        /// What it has.
        captured: Box<(Shape, DType)>,
    },
    /// An input, or state, on another device.
    #[error("{of} {number} is on {given:?}, and the graph was captured on {captured:?}")]
    Device {
        /// Whether it is an input, or a tensor of the state.
        of: Operand,
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
