//! [`GradientsAccumulator`]: the gradients of several batches as those of one.

use crate::GradientsParams;
use kiln_core::Tensor;
use kiln_core::module::{AutodiffModule, ModuleVisitor, Param};
use kiln_core::tensor::backend::AutodiffBackend;
use std::marker::PhantomData;

/// Sums gradients until a step is taken.
#[derive(Debug)]
pub struct GradientsAccumulator<M> {
    sums: GradientsParams,
    module: PhantomData<M>,
}

impl<M> Default for GradientsAccumulator<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> GradientsAccumulator<M> {
    /// With nothing accumulated.
    pub fn new() -> Self {
        Self { sums: GradientsParams::new(), module: PhantomData }
    }

    /// Adds the gradients of a module.
    pub fn accumulate<B: AutodiffBackend>(&mut self, module: &M, grads: GradientsParams)
    where
        M: AutodiffModule<B>,
    {
        let mut adder = Adder::<B> { sums: &mut self.sums, grads, backend: PhantomData };
        module.visit(&mut adder);
    }

    /// The sums; accumulation begins anew.
    pub fn grads(&mut self) -> GradientsParams {
        std::mem::take(&mut self.sums)
    }
}

/// Adds gradients as it visits their parameters.
struct Adder<'a, B> {
    sums: &'a mut GradientsParams,
    grads: GradientsParams,
    backend: PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Adder<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(gradient) = self.grads.remove::<B::InnerBackend, D>(param.id) else { return };
        let sum = match self.sums.remove::<B::InnerBackend, D>(param.id) {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        self.sums.register(param.id, sum);
    }
}
