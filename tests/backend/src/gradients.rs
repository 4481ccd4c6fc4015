//! Tests of gradients: against finite differences in f64, and against PyTorch's.

pub mod finite;
pub mod pytorch;
pub mod training;

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

/// Compares gradients with central differences of `Σ c · f(operands)`, for every element of every operand.
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
    let result = forward(&operands);
    assert_eq!(result.dtype(), DType::F64, "{name}");
    let direction = noise::<B>(&result.shape().dims, 99);
    let factors = numbers::<B>(direction.clone());
    let score = |operands: &[B::Primitive]| -> f64 {
        numbers::<B>(forward(operands)).iter().zip(&factors).map(|(y, c)| y * c).sum()
    };
    let found = gradients(direction, &operands);
    assert_eq!(found.len(), operands.len(), "{name}: a gradient for every operand");
    for (n, gradient) in found.into_iter().enumerate() {
        assert_eq!(gradient.shape(), operands[n].shape(), "{name}: operand {n}");
        assert_eq!(gradient.dtype(), operands[n].dtype(), "{name}: operand {n}");
        let (elements, shape) = (numbers::<B>(operands[n].clone()), operands[n].shape());
        for (at, gradient) in numbers::<B>(gradient).into_iter().enumerate() {
            let moved = |by: f64| {
                let mut elements = elements.clone();
                elements[at] += by;
                let mut operands = operands.clone();
                operands[n] = B::from_data(TensorData::new(elements, shape.clone()), &B::Device::default());
                score(&operands)
            };
            let difference = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            let close = (gradient - difference).abs() <= 1e-6 * difference.abs().max(1.0);
            assert!(close, "{name}: operand {n}, element {at}: {gradient}, the difference is {difference}");
        }
    }
}

/// The shape of a tensor.
pub fn shape_of<P: Primitive>(tensor: &P) -> Shape {
    tensor.shape()
}
