//! [`GradientsParams::all_reduce`]: the gradients of several devices as those of one.

use crate::GradientsParams;
use kiln_core::Tensor;
use kiln_core::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use kiln_core::tensor::backend::{AutodiffBackend, Backend};

/// What devices make of their gradients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOperation {
    /// The sum.
    Sum,
    /// The sum, divided by the number of devices that have any gradients: one that had no batch does not make the step of the others
    /// smaller.
    Mean,
}

impl GradientsParams {
    /// The sums or means of the gradients of several devices, for each of these: what all devices take the same step along in data-parallel
    /// training (Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"). Each set is of a copy of the module, on the
    /// device at the same place of `devices`. What only some devices have a gradient of counts as zeros on the others. All devices have the same bits.
    ///
    /// # Panics
    /// When there are not as many sets as devices.
    #[must_use]
    pub fn all_reduce<B: AutodiffBackend, M: AutodiffModule<B>>(
        mut sets: Vec<Self>,
        devices: &[B::Device],
        module: &M,
        operation: ReduceOperation,
    ) -> Vec<Self> {
        assert_eq!(sets.len(), devices.len(), "all_reduce: each device has a set of gradients");
        if sets.len() < 2 {
            return sets;
        }
        let taking_part = sets.iter().filter(|set| !set.is_empty()).count().max(1);
        let gradients = devices.iter().map(|_| Vec::new()).collect();
        let mut collector = Collector::<B> { sets: &mut sets, devices, places: Vec::new(), gradients };
        module.visit(&mut collector);
        let Collector { places, gradients, .. } = collector;
        let reduced = <B::InnerBackend as Backend>::all_reduce(gradients);
        for (set, gradients) in sets.iter_mut().zip(reduced) {
            for (place, gradient) in places.iter().zip(gradients) {
                let divisor = (operation == ReduceOperation::Mean).then_some(taking_part);
                (place.register)(set, place.id, gradient, divisor);
            }
        }
        sets
    }
}

type Primitive<B> = <<B as AutodiffBackend>::InnerBackend as Backend>::Primitive;

/// Where gradients of all sets go, once they are one.
struct Place<B: AutodiffBackend> {
    id: ParamId,
    /// [`register`] with the parameter's rank.
    register: fn(&mut GradientsParams, ParamId, Primitive<B>, Option<usize>),
}

fn register<B: AutodiffBackend, const D: usize>(
    set: &mut GradientsParams,
    id: ParamId,
    gradient: Primitive<B>,
    divisor: Option<usize>,
) {
    let gradient = Tensor::<B::InnerBackend, D>::from_backend(gradient);
    let gradient = match divisor {
        Some(divisor) => gradient.div_scalar(divisor as f64),
        None => gradient,
    };
    set.register(id, gradient);
}

/// Takes gradients out of all sets as it visits their parameters.
struct Collector<'a, B: AutodiffBackend> {
    sets: &'a mut [GradientsParams],
    devices: &'a [B::Device],
    places: Vec<Place<B>>,
    /// Those of each set, in the order of the places.
    gradients: Vec<Vec<Primitive<B>>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Collector<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let own: Vec<Option<Tensor<B::InnerBackend, D>>> =
            self.sets.iter_mut().map(|set| set.remove(param.id)).collect();
        let Some(like) = own.iter().flatten().next().cloned() else { return };
        for ((own, device), gradients) in own.into_iter().zip(self.devices).zip(&mut self.gradients) {
            let gradient = own.unwrap_or_else(|| like.zeros_like()).to_device(device);
            gradients.push(gradient.into_backend());
        }
        self.places.push(Place { id: param.id, register: register::<B, D> });
    }
}
