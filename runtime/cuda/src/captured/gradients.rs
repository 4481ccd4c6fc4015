//! Loss and gradients of a module, captured: the part of a training step that is most of its launches.

use super::{CapturedError, Graphs};
use crate::CudaTensor;
use crate::graph::state::Place;
use crate::graph::{Graph, Tensors};
use kiln_autodiff::Autodiff;
use kiln_autodiff::checkpoint::CheckpointStrategy;
use kiln_core::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param, ParamId, RunningState};
use kiln_core::tensor::backend::{AutodiffBackend, Backend};
use kiln_core::tensor::{Bool, Int};
use kiln_optim::GradientsParams;
use kiln_tensor::{Element, Tensor, TensorKind};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;

impl<F, I, C, const D: usize, K> Tensors for Tensor<Autodiff<crate::Cuda<F, I>, C>, D, K>
where
    F: Element,
    I: Element,
    C: CheckpointStrategy,
    K: TensorKind<Autodiff<crate::Cuda<F, I>, C>>,
{
    fn into_all(self) -> Vec<CudaTensor> {
        vec![Autodiff::<crate::Cuda<F, I>, C>::inner(self.into_backend())]
    }

    /// Constants: gradients do not flow out of a graph.
    fn from_all(all: &mut dyn Iterator<Item = CudaTensor>, like: &Self) -> Self {
        let constant = Autodiff::<crate::Cuda<F, I>, C>::from_inner;
        all.next().map_or_else(|| like.clone(), |tensor| Self::from_backend(constant(tensor)))
    }
}

/// Loss and gradients of a module, which are [captured](Graph::capture) when they are first asked for inputs of a shape, and replayed from then
/// on: forward and backward cost the host one launch. The optimizer's step is taken outside, where learning rate, schedule and
/// clipping are what they always are.
///
/// The module's parameters are inputs of the graph, as they are when a step begins; frozen ones are read where they are, and others in
/// their place have another graph. Statistics that its layers move (batch normalization's)
/// move with each replay. All else that the computation reads is what it was when the graph was captured: layers' settings (but which
/// parameters are frozen is looked at each time), numbers of the program. It cannot read what the device computes.
///
/// ```no_run
/// # use kiln_autodiff::Autodiff;
/// # use kiln_core::nn::Linear;
/// # use kiln_core::nn::loss::CrossEntropyLoss;
/// # use kiln_core::tensor::{Int, Tensor};
/// # use kiln_cuda::{CapturedGradients, Cuda};
/// # use kiln_optim::{AdamConfig, Optimizer};
/// # type B = Autodiff<Cuda>;
/// # type Batch = (Tensor<B, 2>, Tensor<B, 1, Int>);
/// # fn example(mut model: Linear<B>, loss: CrossEntropyLoss<B>, batches: Vec<Batch>) -> Result<(), Box<dyn std::error::Error>> {
/// let mut optimizer = AdamConfig::new().init();
/// let mut backward = CapturedGradients::new(|model: &Linear<B>, (inputs, targets)| {
///     let logits = model.forward(inputs);
///     (loss.forward(logits.clone(), targets), logits)
/// });
/// for batch in batches {
///     let (loss, logits, gradients) = backward.run(&model, batch)?;
///     model = optimizer.step(1e-3, model, gradients);
/// }
/// # Ok(())
/// # }
/// ```
pub struct CapturedGradients<F, M, I, O, B> {
    computation: F,
    graphs: Graphs<Backward<I, O>>,
    module: PhantomData<fn(M, B)>,
}

/// The loss, what else is yielded, gradients, and statistics as they are then.
type Results<O> = (CudaTensor, O, Vec<CudaTensor>, Vec<CudaTensor>);

/// The graph of a module's loss and gradients.
struct Backward<I, O> {
    /// From the module's tensors and the inputs on.
    graph: Graph<(Vec<CudaTensor>, I), Results<O>>,
    /// The module's tensors.
    parameters: Vec<Parameter>,
    /// Those that have a gradient.
    trained: Vec<ParamId>,
}

/// A tensor of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    id: ParamId,
    role: Role,
    /// Where a constant is, which a graph reads there. All others are inputs of it.
    place: Option<Place>,
}

/// What becomes of a tensor in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Its gradient is wanted.
    Trained,
    /// A statistic that its layer moves.
    Running,
    Constant,
}

impl<F, M, I, O, B> fmt::Debug for CapturedGradients<F, M, I, O, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapturedGradients").field("graphs", &self.graphs.len()).finish_non_exhaustive()
    }
}

impl<F, M, I, O, B> CapturedGradients<F, M, I, O, B>
where
    F: FnMut(&M, I) -> (Tensor<B, 1>, O),
    M: AutodiffModule<B>,
    I: Tensors + Clone,
    O: Tensors + Clone,
    B: AutodiffBackend,
    B::InnerBackend: Backend<Primitive = CudaTensor>,
{
    /// A computation that was not captured yet: from a module and inputs (several are a tuple) to a loss, and what else is wanted of it,
    /// `()` if nothing.
    pub fn new(computation: F) -> Self {
        Self { computation, graphs: Graphs::default(), module: PhantomData }
    }

    /// Keeps as many graphs (one at least); beyond that, the one that was not used for longest is forgotten. Each holds the memory of all
    /// that forward and backward compute.
    #[must_use]
    pub fn with_capacity(mut self, graphs: usize) -> Self {
        self.graphs.set_capacity(graphs);
        self
    }

    /// For how many shapes of inputs there is a graph.
    pub fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// The loss, what else the computation yields, and the gradients of the module's parameters, for an optimizer.
    ///
    /// # Errors
    /// When the computation cannot be captured, or the device fails.
    pub fn run(
        &mut self,
        module: &M,
        inputs: I,
    ) -> Result<(Tensor<B::InnerBackend, 1>, O, GradientsParams), CapturedError> {
        let Content { parameters, tensors, .. } = Content::of(module);
        let all: Vec<CudaTensor> = tensors.iter().cloned().chain(inputs.clone().into_all()).collect();
        let fits = |known: &Backward<I, O>| known.parameters == parameters && known.graph.fits(&all).is_ok();
        let computation = &mut self.computation;
        let backward = self.graphs.find_or_capture(
            &all,
            |known| known.graph.is_current(),
            fits,
            || Backward::capture(module, &parameters, (tensors.clone(), inputs.clone()), &mut *computation),
        )?;
        let (loss, output, gradients, running) = backward.graph.replay_all(&all)?;
        let mut handover = Handover {
            gradients: backward.trained.iter().copied().zip(gradients).collect(),
            running: backward.running().zip(running).collect(),
            by_id: GradientsParams::new(),
        };
        module.visit(&mut handover);
        Ok((Tensor::from_backend(loss), output, handover.by_id))
    }
}

impl<I: Tensors + Clone, O: Tensors + Clone> Backward<I, O> {
    fn capture<M, B>(
        module: &M,
        parameters: &[Parameter],
        inputs: (Vec<CudaTensor>, I),
        mut computation: impl FnMut(&M, I) -> (Tensor<B, 1>, O),
    ) -> Result<Self, CapturedError>
    where
        M: AutodiffModule<B>,
        B: AutodiffBackend,
        B::InnerBackend: Backend<Primitive = CudaTensor>,
    {
        let mut trained = Vec::new();
        let graph = Graph::capture(inputs, |(tensors, inputs)| {
            let of_inputs = parameters.iter().filter(|parameter| parameter.place.is_none());
            let values = of_inputs.zip(tensors).map(|(parameter, tensor)| {
                let is_trained = parameter.role == Role::Trained;
                (parameter.id, B::set_require_grad(B::from_inner(tensor), is_trained))
            });
            let own = module.clone().map(&mut Replacement::<B> { values: values.collect() });
            let (loss, output) = computation(&own, inputs);
            let mut collected = Collected {
                gradients: GradientsParams::from_grads(loss.backward(), &own),
                of_trained: Vec::new(),
                running: Vec::new(),
            };
            own.visit(&mut collected);
            let (ids, gradients): (_, Vec<_>) = collected.of_trained.into_iter().unzip();
            trained = ids;
            (B::inner(loss.into_backend()), output, gradients, collected.running)
        })?;
        Ok(Self { graph, parameters: parameters.to_vec(), trained })
    }

    /// The statistics that move.
    fn running(&self) -> impl Iterator<Item = ParamId> {
        let of_running = |parameter: &&Parameter| parameter.role == Role::Running;
        self.parameters.iter().filter(of_running).map(|parameter| parameter.id)
    }
}

/// The tensors of a module, in the order in which visitors see them. A parameter that is in several places of the module is one.
#[derive(Default)]
struct Content {
    parameters: Vec<Parameter>,
    /// Those that are inputs of a graph.
    tensors: Vec<CudaTensor>,
    /// A place may be frozen where another is not.
    seen: HashSet<(ParamId, Role)>,
}

impl Content {
    fn of<M, B>(module: &M) -> Self
    where
        M: AutodiffModule<B>,
        B: AutodiffBackend,
        B::InnerBackend: Backend<Primitive = CudaTensor>,
    {
        let mut content = Self::default();
        module.visit(&mut content);
        content
    }

    fn add(&mut self, id: ParamId, role: Role, tensor: CudaTensor) {
        if role != Role::Running && !self.seen.insert((id, role)) {
            return;
        }
        let place = if role == Role::Constant { Place::of_constant(&tensor) } else { None };
        if place.is_none() {
            self.tensors.push(tensor);
        }
        self.parameters.push(Parameter { id, role, place });
    }
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Content
where
    B::InnerBackend: Backend<Primitive = CudaTensor>,
{
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.base_val();
        let role = if value.is_require_grad() { Role::Trained } else { Role::Constant };
        self.add(param.id, role, B::inner(value.into_backend()));
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(param.id, Role::Constant, B::inner(param.base_val().into_backend()));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(param.id, Role::Constant, B::inner(param.base_val().into_backend()));
    }

    fn visit_running<const D: usize>(&mut self, state: &RunningState<Tensor<B, D>>) {
        let role = if state.is_frozen() { Role::Constant } else { Role::Running };
        self.add(state.id(), role, B::inner(state.value().into_backend()));
    }
}

/// Puts a graph's tensors in the places of a module's.
struct Replacement<B: Backend> {
    values: HashMap<ParamId, B::Primitive>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for Replacement<B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        match self.values.get(&param.id) {
            // Where a module has a parameter twice, both are one leaf.
            Some(value) => {
                let (id, _, mapper) = param.consume();
                Param::from_mapped_value(id, Tensor::from_backend(value.clone()), mapper)
            }
            None => param,
        }
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        match self.values.get(&param.id) {
            Some(value) => param.map(|_| Tensor::from_backend(value.clone())),
            None => param,
        }
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<B, D, Bool>>) -> Param<Tensor<B, D, Bool>> {
        match self.values.get(&param.id) {
            Some(value) => param.map(|_| Tensor::from_backend(value.clone())),
            None => param,
        }
    }
}

/// What a step leaves in a module and its gradients.
struct Collected {
    gradients: GradientsParams,
    of_trained: Vec<(ParamId, CudaTensor)>,
    running: Vec<CudaTensor>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Collected
where
    B::InnerBackend: Backend<Primitive = CudaTensor>,
{
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            self.of_trained.push((param.id, gradient.into_backend()));
        }
    }

    fn visit_running<const D: usize>(&mut self, state: &RunningState<Tensor<B, D>>) {
        if !state.is_frozen() {
            self.running.push(B::inner(state.value().into_backend()));
        }
    }
}

/// Brings what a replay yielded to its module.
struct Handover {
    gradients: HashMap<ParamId, CudaTensor>,
    running: HashMap<ParamId, CudaTensor>,
    by_id: GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Handover
where
    B::InnerBackend: Backend<Primitive = CudaTensor>,
{
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.remove(&param.id) {
            self.by_id.register::<B::InnerBackend, D>(param.id, Tensor::from_backend(gradient));
        }
    }

    fn visit_running<const D: usize>(&mut self, state: &RunningState<Tensor<B, D>>) {
        if let Some(value) = self.running.remove(&state.id()) {
            state.update(Tensor::from_backend(B::from_inner(value)));
        }
    }
}
