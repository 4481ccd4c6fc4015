//! [`OptimizerAdaptor`]: a [`SimpleOptimizer`] for all parameters of a module.

use crate::{GradientClipping, GradientsParams, LearningRate, Optimizer, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param, ParamId};
use kiln_core::record::{PrecisionSettings, Record, RecorderError};
use kiln_core::tensor::Shape;
use kiln_core::tensor::backend::AutodiffBackend;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;

/// Steps each parameter of a module with an optimizer of single tensors, and keeps a state for each.
#[derive(Clone)]
pub struct OptimizerAdaptor<O, M, B>
where
    O: SimpleOptimizer<B::InnerBackend>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    optimizer: O,
    states: HashMap<ParamId, AdaptorRecord<O, B>>,
    clipping: Option<GradientClipping>,
    module: PhantomData<M>,
}

impl<O, M, B> From<O> for OptimizerAdaptor<O, M, B>
where
    O: SimpleOptimizer<B::InnerBackend>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    fn from(optimizer: O) -> Self {
        Self { optimizer, states: HashMap::new(), clipping: None, module: PhantomData }
    }
}

impl<O, M, B> OptimizerAdaptor<O, M, B>
where
    O: SimpleOptimizer<B::InnerBackend>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    /// With bounds on the gradients.
    #[must_use]
    pub fn with_grad_clipping(mut self, clipping: GradientClipping) -> Self {
        self.clipping = Some(clipping);
        self
    }

    /// Whether gradients are bounded.
    pub fn has_gradient_clipping(&self) -> bool {
        self.clipping.is_some()
    }

    /// [`Optimizer::step`], for programs that do not bring the trait into scope.
    ///
    /// # Panics
    /// When a parameter is in two places of the module, with two ranks.
    pub fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        module.map(&mut Stepper {
            optimizer: &self.optimizer,
            states: &mut self.states,
            clipping: self.clipping,
            grads,
            lr,
            stepped: HashMap::new(),
        })
    }
}

impl<O, M, B> Optimizer<M, B> for OptimizerAdaptor<O, M, B>
where
    O: SimpleOptimizer<B::InnerBackend>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    type Record = HashMap<ParamId, AdaptorRecord<O, B>>;

    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        OptimizerAdaptor::step(self, lr, module, grads)
    }

    fn to_record(&self) -> Self::Record {
        self.states.clone()
    }

    fn check_record(&self, record: &Self::Record, module: &M) -> Result<(), RecorderError> {
        let mut checker = Checker::<O, B> { record, path: Vec::new(), wrong: None };
        module.visit(&mut checker);
        checker.wrong.map_or(Ok(()), |wrong| Err(RecorderError::Unknown(wrong)))
    }

    fn load_record(mut self, record: Self::Record) -> Self {
        self.states = record;
        self
    }
}

/// Looks for a parameter of which a record remembers something that cannot be its own.
struct Checker<'a, O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend> {
    record: &'a HashMap<ParamId, AdaptorRecord<O, B>>,
    path: Vec<String>,
    wrong: Option<String>,
}

impl<O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend> ModuleVisitor<B> for Checker<'_, O, B> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(record) = self.record.get(&param.id) else { return };
        let shape = param.lazy_shape();
        if self.wrong.is_none() && !record.fits::<D>(&shape) {
            let path = self.path.join(".");
            self.wrong = Some(format!(
                "what the optimizer remembers of `{path}` is not of its shape {:?}: the record is of another model or optimizer",
                shape.as_slice()
            ));
        }
    }
}

/// Steps each parameter that has a gradient, once; a parameter that is in several places of the module gets the same value in
/// each.
struct Stepper<'a, O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend> {
    optimizer: &'a O,
    states: &'a mut HashMap<ParamId, AdaptorRecord<O, B>>,
    clipping: Option<GradientClipping>,
    grads: GradientsParams,
    lr: LearningRate,
    /// The parameters after the step: tensors of `B`, of any rank.
    stepped: HashMap<ParamId, Box<dyn Any>>,
}

impl<O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend> Stepper<'_, O, B> {
    /// A further place of a parameter that was stepped.
    fn repeated<const D: usize>(param: Param<Tensor<B, D>>, stepped: &Tensor<B, D>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let device = tensor.device();
        // On its device it is the same leaf, so that gradients of both places meet there.
        let value = if stepped.device() == device {
            stepped.clone()
        } else {
            Tensor::from_inner(stepped.clone().inner().to_device(&device))
        };
        Param::from_mapped_value(id, value.set_require_grad(true), mapper)
    }
}

impl<O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend> ModuleMapper<B> for Stepper<'_, O, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        if !param.base_val().is_require_grad() {
            // A place that is frozen stays as it is, though others of the parameter move: a teacher beside its student.
            return param;
        }
        if let Some(stepped) = self.stepped.get(&param.id) {
            return match stepped.downcast_ref() {
                Some(stepped) => Self::repeated(param, stepped),
                None => panic!("the parameter {} is in two places of the module, with two ranks", param.id),
            };
        }
        let Some(gradient) = self.grads.remove::<B::InnerBackend, D>(param.id) else { return param };
        let (id, tensor, mapper) = param.consume();
        let device = tensor.device();
        let gradient = if gradient.device() == device { gradient } else { gradient.to_device(&device) };
        let gradient = match self.clipping {
            Some(clipping) => clipping.clip_gradient(gradient),
            None => gradient,
        };
        let state = self.states.remove(&id).map(|state| {
            let state = O::to_device(state.into_state::<D>(), &device);
            O::to_dtype(state, tensor.dtype())
        });
        let (stepped, state) = self.optimizer.step(self.lr, tensor.inner(), gradient, state);
        if let Some(state) = state {
            self.states.insert(id, AdaptorRecord::from_state(state));
        }
        let stepped = Tensor::from_inner(stepped).set_require_grad(true);
        let param = Param::from_mapped_value(id, stepped, mapper);
        self.stepped.insert(id, Box::new(param.base_val()));
        param
    }
}

/// Declares the state of a parameter of any rank.
macro_rules! adaptor_record {
    ($($variant:ident = $rank:literal,)*) => {
        /// What an optimizer remembers of a parameter, whose rank the variant says.
        pub enum AdaptorRecord<O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend> {
            $(
                #[doc = concat!("Of rank ", stringify!($rank), ".")]
                $variant(O::State<$rank>),
            )*
        }

        impl<O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend> Clone for AdaptorRecord<O, B> {
            fn clone(&self) -> Self {
                match self {
                    $(Self::$variant(state) => Self::$variant(state.clone()),)*
                }
            }
        }

        impl<O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend> AdaptorRecord<O, B> {
            fn from_state<const D: usize>(state: O::State<D>) -> Self {
                let state: Box<dyn Any> = Box::new(state);
                match D {
                    $($rank => match state.downcast::<O::State<$rank>>() {
                        Ok(state) => Self::$variant(*state),
                        Err(_) => unreachable!("the rank is {}", $rank),
                    },)*
                    rank => panic!("an optimizer takes parameters of rank 0 to 8, not {rank}"),
                }
            }

            /// Whether it can be that of a parameter of this shape.
            fn fits<const D: usize>(&self, shape: &Shape) -> bool {
                match self {
                    $(Self::$variant(state) => D == $rank && O::fits(state, shape),)*
                }
            }

            /// # Panics
            /// When the state belongs to a parameter of another rank.
            fn into_state<const D: usize>(self) -> O::State<D> {
                let (rank, state): (usize, Box<dyn Any>) = match self {
                    $(Self::$variant(state) => ($rank, Box::new(state)),)*
                };
                match state.downcast::<O::State<D>>() {
                    Ok(state) if rank == D => *state,
                    _ => panic!("the optimizer's record is of a parameter of rank {rank}, the module's has rank {D}"),
                }
            }
        }

        /// [`AdaptorRecord`] as it is stored.
        #[derive(Serialize, Deserialize)]
        #[serde(bound = "")]
        pub enum AdaptorRecordItem<O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend, S: PrecisionSettings> {
            $(
                #[doc = concat!("Of rank ", stringify!($rank), ".")]
                $variant(<O::State<$rank> as Record<B::InnerBackend>>::Item<S>),
            )*
        }

        impl<O: SimpleOptimizer<B::InnerBackend>, B: AutodiffBackend> Record<B> for AdaptorRecord<O, B> {
            type Item<S: PrecisionSettings> = AdaptorRecordItem<O, B, S>;

            fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
                match self {
                    $(Self::$variant(state) => AdaptorRecordItem::$variant(state.into_item()),)*
                }
            }

            fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
                match item {
                    $(AdaptorRecordItem::$variant(item) => Self::$variant(Record::from_item::<S>(item, device)),)*
                }
            }
        }
    };
}

adaptor_record! {
    Rank0 = 0,
    Rank1 = 1,
    Rank2 = 2,
    Rank3 = 3,
    Rank4 = 4,
    Rank5 = 5,
    Rank6 = 6,
    Rank7 = 7,
    Rank8 = 8,
}
