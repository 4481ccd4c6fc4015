//! [`MultiGradientsParams`]: gradients of several devices.

use crate::GradientsParams;
use kiln_core::Tensor;
use kiln_core::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use kiln_core::tensor::Device;
use kiln_core::tensor::backend::{AutodiffBackend, Backend, DeviceId, DeviceOps};
use std::marker::PhantomData;

/// Several gradients of each parameter, with the device that each set of them lies on.
#[derive(Debug, Default)]
pub struct MultiGradientsParams {
    /// The sets.
    pub grads: Vec<(GradientsParams, DeviceId)>,
}

impl MultiGradientsParams {
    /// Takes the gradients of a parameter out: their sum, and the device that it lies on, which is the same one for a
    /// parameter as long as the same sets have gradients for it.
    pub fn remove<B: Backend, const D: usize>(&mut self, id: ParamId) -> Option<(Tensor<B, D>, Device<B>)> {
        let (count, first) = (self.grads.len(), id.val());
        // Parameters are spread over the devices.
        let order = (0..count as u64).map(|i| (first.wrapping_add(i) % count as u64) as usize);
        let mut sum: Option<(Tensor<B, D>, Device<B>)> = None;
        for set in order {
            let (grads, device) = &mut self.grads[set];
            let Some(gradient) = grads.remove::<B, D>(id) else { continue };
            sum = Some(match sum {
                Some((sum, device)) => (sum + gradient.to_device(&device), device),
                None => (gradient, DeviceOps::from_id(*device)),
            });
        }
        sum
    }

    /// The sums for a module's parameters.
    pub fn sum<B: AutodiffBackend, M: AutodiffModule<B>>(mut self, module: &M) -> GradientsParams {
        let mut sums = GradientsParams::new();
        module.visit(&mut Summer::<B> { sets: &mut self, sums: &mut sums, backend: PhantomData });
        sums
    }
}

/// Sums gradients as it visits their parameters.
struct Summer<'a, B> {
    sets: &'a mut MultiGradientsParams,
    sums: &'a mut GradientsParams,
    backend: PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Summer<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some((sum, _)) = self.sets.remove::<B::InnerBackend, D>(param.id) {
            self.sums.register(param.id, sum);
        }
    }
}
