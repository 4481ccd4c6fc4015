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
        let count = self.grads.len();
        let mut gradients: Vec<Option<Tensor<B, D>>> =
            self.grads.iter_mut().map(|(grads, _)| grads.remove::<B, D>(id)).collect();
        // Parameters are spread over the devices. Which one it is must not decide in which order is added: ids are random.
        let first = (id.val() % count.max(1) as u64) as usize;
        let place = (first..count).chain(0..first).find(|&set| gradients[set].is_some())?;
        let device: Device<B> = DeviceOps::from_id(self.grads[place].1);
        let moved = gradients.iter_mut().filter_map(Option::take).map(|gradient| gradient.to_device(&device));
        let sum = moved.reduce(|sum, gradient| sum + gradient)?;
        Some((sum, device))
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
