//! Tests of gradients: against finite differences in f64, and against PyTorch's.

pub mod finite;
pub mod pytorch;
pub mod training;

use crate::primitives::orders::moved;
use crate::primitives::products::values;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{DType, Shape, TensorData};

/// Deterministic numbers in `[-1, 1)`, no two of them equal.
pub fn noise<B: Backend>(shape: &[usize], seed: u32) -> B::Primitive {
    let numbers = values(shape.iter().product(), seed).into_iter().map(f64::from).collect();
    B::from_data(TensorData::new(numbers, shape), &B::Device::default())
}

/// Whether the device can take differences.
pub fn has_f64<B: Backend>() -> bool {
    B::supports(&B::Device::default(), DType::F64)
}

fn numbers<B: Backend>(tensor: B::Primitive) -> Vec<f64> {
    B::into_data(tensor).expect("a backend in these tests reads back").iter().collect()
}

/// Compares gradients with central differences of `Σ c · f(operands)`, as each operand is moved as a whole: in some directions in which all of
/// its elements are moved by different parts, so that each has its own in what is compared. Where they differ, the element is looked for.
///
/// `gradients` yields, from the gradient `c` of the result, one gradient an operand.
#[track_caller]
pub fn check<B: Backend>(
    name: &str,
    operands: Vec<B::Primitive>,
    forward: impl Fn(&[B::Primitive]) -> B::Primitive,
    gradients: impl Fn(B::Primitive, &[B::Primitive]) -> Vec<B::Primitive>,
) {
    const STEP: f64 = 1e-5;
    const DIRECTIONS: u32 = 3;
    let result = forward(&operands);
    assert_eq!(result.dtype(), DType::F64, "{name}");
    let upstream = noise::<B>(&result.shape().dims, 99);
    let factors = numbers::<B>(upstream.clone());
    let score = |operands: &[B::Primitive]| -> f64 {
        numbers::<B>(forward(operands)).iter().zip(&factors).map(|(y, c)| y * c).sum()
    };
    let found = gradients(upstream, &operands);
    assert_eq!(found.len(), operands.len(), "{name}: a gradient for every operand");
    for (n, gradient) in found.into_iter().enumerate() {
        assert_eq!(gradient.shape(), operands[n].shape(), "{name}: operand {n}");
        assert_eq!(gradient.dtype(), operands[n].dtype(), "{name}: operand {n}");
        let (elements, shape) = (numbers::<B>(operands[n].clone()), operands[n].shape());
        let gradient = numbers::<B>(gradient);
        let moved = |direction: &[f64], by: f64| {
            let elements = elements.iter().zip(direction).map(|(x, part)| x + by * part).collect();
            let mut operands = operands.clone();
            operands[n] = B::from_data(TensorData::new(elements, shape.clone()), &B::Device::default());
            score(&operands)
        };
        // What the gradient says of a direction, and the difference.
        let along = |direction: &[f64]| {
            let difference = (moved(direction, STEP) - moved(direction, -STEP)) / (2.0 * STEP);
            (gradient.iter().zip(direction).map(|(g, part)| g * part).sum::<f64>(), difference)
        };
        let is_close =
            |(own, difference): (f64, f64)| (own - difference).abs() <= 1e-6 * difference.abs().max(1.0);
        let direction = |seed| -> Vec<f64> {
            // No part is small: what is wrong with any element is seen.
            let parts = values(elements.len(), 1000 + seed).into_iter().map(f64::from);
            parts.map(|part| part + part.signum() * 0.5).collect()
        };
        let Some(apart) = (0..DIRECTIONS).map(|seed| along(&direction(seed))).find(|&found| !is_close(found))
        else {
            continue;
        };
        for at in 0..elements.len() {
            let mut direction = vec![0.0; elements.len()];
            direction[at] = 1.0;
            let (own, difference) = along(&direction);
            assert!(
                is_close((own, difference)),
                "{name}: operand {n}, element {at}: {own}, the difference is {difference}"
            );
        }
        panic!("{name}: operand {n}, all elements together: {} instead of {}", apart.0, apart.1);
    }
}

/// [`check`], and that gradients of the same in f32 are those in f64, for images in both orders of their memory: a backend may have
/// kernels for either.
#[track_caller]
pub fn check_in_f32<B: Backend>(
    name: &str,
    operands: Vec<B::Primitive>,
    forward: impl Fn(&[B::Primitive]) -> B::Primitive,
    gradients: impl Fn(B::Primitive, &[B::Primitive]) -> Vec<B::Primitive>,
) {
    check::<B>(name, operands.clone(), &forward, &gradients);
    let direction = noise::<B>(&forward(&operands).shape().dims, 99);
    let exact: Vec<_> = gradients(direction.clone(), &operands).into_iter().map(numbers::<B>).collect();
    for channels_last in [false, true] {
        let single = |tensor: &B::Primitive| {
            let tensor = B::cast(tensor.clone(), DType::F32);
            if channels_last && tensor.shape().rank() > 2 { moved::<B>(tensor) } else { tensor }
        };
        let operands: Vec<_> = operands.iter().map(single).collect();
        for (n, gradient) in gradients(single(&direction), &operands).into_iter().enumerate() {
            assert_eq!(gradient.shape(), operands[n].shape(), "{name}: operand {n} in f32");
            assert_eq!(gradient.dtype(), DType::F32, "{name}: operand {n}");
            for (at, (found, exact)) in numbers::<B>(gradient).into_iter().zip(&exact[n]).enumerate() {
                let close = (found - exact).abs() <= 2e-5 * exact.abs().max(1.0);
                let order = if channels_last { "channels last" } else { "row-major" };
                assert!(close, "{name}, {order}: operand {n}, element {at}: {found} in f32, {exact} in f64");
            }
        }
    }
}

/// The shape of a tensor.
pub fn shape_of<P: Primitive>(tensor: &P) -> Shape {
    tensor.shape()
}
