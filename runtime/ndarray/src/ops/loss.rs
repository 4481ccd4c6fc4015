//! Cross-entropy of f32 logits by the kernels.

use crate::ops::index::indices;
use crate::tensor::NdArrayTensor;
use alloc::vec::Vec;
use kiln_kernels::cross_entropy::{self, Losses};
use kiln_tensor::compose::{CrossEntropyOptions, CrossEntropyTrained};
use kiln_tensor::{DType, Shape};

/// What rows of logits are compared with.
struct Targets {
    classes: Vec<Option<usize>>,
    weights: Option<NdArrayTensor>,
    smoothing: f32,
}

impl Targets {
    /// # Panics
    /// When a target that counts is none of the classes.
    fn new(
        targets: NdArrayTensor,
        weights: Option<NdArrayTensor>,
        classes: usize,
        options: &CrossEntropyOptions,
    ) -> Self {
        let class = |&target: &i64| {
            if options.ignored.contains(&target) {
                return None;
            }
            match usize::try_from(target) {
                Ok(class) if class < classes => Some(class),
                _ => panic!("cross_entropy: target {target} is out of range for {classes} classes"),
            }
        };
        let classes = indices(targets).slice::<i64>().iter().map(class).collect();
        let weights = weights.map(NdArrayTensor::into_contiguous);
        Self { classes, weights, smoothing: options.smoothing as f32 }
    }

    fn view(&self) -> cross_entropy::Targets<'_> {
        let weights = self.weights.as_ref().map(NdArrayTensor::slice);
        cross_entropy::Targets { classes: &self.classes, weights, smoothing: self.smoothing }
    }
}

/// See [`kiln_tensor::backend::Backend::cross_entropy_train`]; all floats are f32.
pub(crate) fn cross_entropy(
    logits: NdArrayTensor,
    targets: NdArrayTensor,
    weights: Option<NdArrayTensor>,
    options: &CrossEntropyOptions,
) -> CrossEntropyTrained<NdArrayTensor> {
    let (rows, classes) = (logits.dims()[0], logits.dims()[1]);
    let targets = Targets::new(targets, weights, classes, options);
    let logits = logits.into_contiguous();
    let one_each = |shape: Shape| NdArrayTensor::build(shape, DType::F32, |_: &mut [f32]| {});
    let (mut largest, mut log_sum) = (one_each([rows, 1].into()), one_each([rows, 1].into()));
    let losses = NdArrayTensor::build([rows].into(), DType::F32, |losses| {
        let (Some(largest), Some(log_sum)) = (largest.slice_mut(), log_sum.slice_mut()) else { return };
        let into = Losses { losses, largest, log_sum };
        cross_entropy::cross_entropy(targets.view(), logits.slice(), into);
    });
    CrossEntropyTrained { losses, largest, log_sum }
}

/// See [`kiln_tensor::backend::Backend::cross_entropy_gradient`]; all floats are f32. It takes the memory of logits that nobody
/// else holds.
pub(crate) fn cross_entropy_gradient(
    gradient: NdArrayTensor,
    logits: NdArrayTensor,
    targets: NdArrayTensor,
    weights: Option<NdArrayTensor>,
    kept: [NdArrayTensor; 2],
    options: &CrossEntropyOptions,
) -> NdArrayTensor {
    let targets = Targets::new(targets, weights, logits.dims()[1], options);
    let gradient = gradient.into_contiguous();
    let [largest, log_sum] = kept.map(NdArrayTensor::into_contiguous);
    logits.transform(|data| {
        cross_entropy::cross_entropy_gradient(
            targets.view(),
            gradient.slice(),
            largest.slice(),
            log_sum.slice(),
            data,
        );
    })
}
