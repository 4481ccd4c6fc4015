//! [`GradientsParams`]: gradients by parameter.

use kiln_core::Tensor;
use kiln_core::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use kiln_core::tensor::backend::{AutodiffBackend, Backend};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

/// The gradients of a module's parameters, by the parameters' ids.
///
/// The container does not name a backend, so that it can be sent between threads and kept beside anything.
#[derive(Default)]
pub struct GradientsParams {
    tensors: HashMap<ParamId, Box<dyn Any + Send>>,
}

impl fmt::Debug for GradientsParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GradientsParams").field("tensors", &self.tensors.len()).finish()
    }
}

impl GradientsParams {
    /// None at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// The gradients of all parameters of a module; a parameter that the loss does not depend on has none, one that is in
    /// several places of the module has the sum of theirs.
    pub fn from_grads<B: AutodiffBackend, M: AutodiffModule<B>>(mut grads: B::Gradients, module: &M) -> Self {
        Self::from_module(&mut grads, module)
    }

    /// Takes the gradients of a module's parameters out, and leaves those of others.
    pub fn from_module<B: AutodiffBackend, M: AutodiffModule<B>>(
        grads: &mut B::Gradients,
        module: &M,
    ) -> Self {
        Self::take(grads, module, None)
    }

    /// Takes the gradients of some of a module's parameters out, for an optimizer of their own.
    pub fn from_params<B: AutodiffBackend, M: AutodiffModule<B>>(
        grads: &mut B::Gradients,
        module: &M,
        params: &[ParamId],
    ) -> Self {
        Self::take(grads, module, Some(params))
    }

    fn take<B: AutodiffBackend, M: AutodiffModule<B>>(
        grads: &mut B::Gradients,
        module: &M,
        only: Option<&[ParamId]>,
    ) -> Self {
        let mut taker = Taker::<B> { taken: Self::new(), grads, only };
        module.visit(&mut taker);
        taker.taken
    }

    /// A parameter's gradient.
    pub fn get<B: Backend, const D: usize>(&self, id: ParamId) -> Option<Tensor<B, D>> {
        self.tensors.get(&id)?.downcast_ref::<Tensor<B, D>>().cloned()
    }

    /// Takes a parameter's gradient out.
    pub fn remove<B: Backend, const D: usize>(&mut self, id: ParamId) -> Option<Tensor<B, D>> {
        self.tensors.remove(&id)?.downcast::<Tensor<B, D>>().ok().map(|gradient| *gradient)
    }

    /// Sets a parameter's gradient.
    pub fn register<B: Backend, const D: usize>(&mut self, id: ParamId, gradient: Tensor<B, D>) {
        self.tensors.insert(id, Box::new(gradient));
    }

    /// The parameters that have a gradient, in no order.
    pub fn ids(&self) -> impl Iterator<Item = ParamId> + '_ {
        self.tensors.keys().copied()
    }

    /// Takes the gradients of some parameters out.
    #[must_use]
    pub fn split_off(&mut self, mut wanted: impl FnMut(&ParamId) -> bool) -> Self {
        Self { tensors: self.tensors.extract_if(|id, _| wanted(id)).collect() }
    }

    /// How many parameters have a gradient.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether no parameter has a gradient.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The gradients on another device.
    #[must_use]
    pub fn to_device<B: AutodiffBackend, M: AutodiffModule<B>>(
        mut self,
        device: &B::Device,
        module: &M,
    ) -> Self {
        let mut mover = Mover::<B> { gradients: &mut self, device, backend: PhantomData };
        module.visit(&mut mover);
        self
    }
}

/// Takes gradients out as it visits their parameters.
struct Taker<'a, B: AutodiffBackend> {
    taken: GradientsParams,
    grads: &'a mut B::Gradients,
    only: Option<&'a [ParamId]>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Taker<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if self.only.is_none_or(|only| only.contains(&param.id))
            && let Some(gradient) = param.base_val().grad_remove(self.grads)
        {
            // A parameter may be in several places of a module, each a leaf of its own: after loading, say.
            let gradient = match self.taken.remove::<B::InnerBackend, D>(param.id) {
                Some(sum) => {
                    let device = sum.device();
                    sum + gradient.to_device(&device)
                }
                None => gradient,
            };
            self.taken.register(param.id, gradient);
        }
    }
}

/// Moves gradients as it visits their parameters.
struct Mover<'a, B: AutodiffBackend> {
    gradients: &'a mut GradientsParams,
    device: &'a B::Device,
    backend: PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Mover<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            self.gradients.register(param.id, gradient.to_device(self.device));
        }
    }
}
