//! Walks down decision trees.

use crate::ops::index;
use crate::tensor::NdArrayTensor;
use kiln_kernels::tree as kernel;
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::Trees;
use kiln_tensor::{DType, Shape};

/// See [`Backend::tree_leaves`](kiln_tensor::backend::Backend::tree_leaves): positions of i64; `None` for other dtypes than f32 and f64.
pub(crate) fn leaves(
    samples: &NdArrayTensor,
    trees: &Trees<NdArrayTensor>,
    depth: usize,
) -> Option<NdArrayTensor> {
    if samples.dtype() != trees.thresholds.dtype() {
        return None;
    }
    match samples.dtype() {
        DType::F32 => Some(walked::<f32>(samples, trees, depth)),
        DType::F64 => Some(walked::<f64>(samples, trees, depth)),
        _ => None,
    }
}

fn walked<T: bytemuck::Pod + PartialOrd + Send + Sync>(
    samples: &NdArrayTensor,
    trees: &Trees<NdArrayTensor>,
    depth: usize,
) -> NdArrayTensor {
    let samples = samples.clone().into_contiguous();
    let thresholds = trees.thresholds.clone().into_contiguous();
    let [features, children, roots] =
        [&trees.features, &trees.children, &trees.roots].map(|table| index::indices(table.clone()));
    let &[count, width] = samples.dims() else { panic!("tree_leaves: samples are {}", samples.shape()) };
    let trees = kernel::Trees {
        features: features.slice(),
        thresholds: thresholds.slice::<T>(),
        children: children.slice(),
        roots: roots.slice(),
    };
    NdArrayTensor::build(Shape::from([count, trees.roots.len()]), DType::I64, |out| {
        kernel::leaves(samples.slice(), width, &trees, depth, out);
    })
}
