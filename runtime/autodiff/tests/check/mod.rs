//! Gradients against central differences in f64, and gradients of gradients likewise.

use kiln_autodiff::Autodiff;
use kiln_autodiff::checkpoint::BalancedCheckpointing;
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{AutodiffBackend, Backend, Primitive};
use kiln_tensor::{BinaryOp, ReduceOp, Shape, TensorData};

/// What computes.
pub type Inner = NdArray<f64>;
type First = Autodiff<Inner>;
type Second = Autodiff<First>;
type Recomputing = Autodiff<Inner, BalancedCheckpointing>;

/// A function of tensors, on any backend.
pub trait Function {
    /// The result for some operands.
    fn run<B: Backend>(&self, operands: Vec<B::Primitive>) -> B::Primitive;
}

/// An operand: its dims and elements.
#[derive(Clone, Debug)]
pub struct Operand {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Operand {
    /// Numbers between two bounds that look random and are the same each time.
    pub fn between(shape: &[usize], low: f64, high: f64, seed: u64) -> Self {
        let count = shape.iter().product();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let values = (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                low + (high - low) * ((state >> 11) as f64 / (1u64 << 53) as f64)
            })
            .collect();
        Self { shape: shape.to_vec(), values }
    }

    fn tensor<B: Backend>(&self) -> B::Primitive {
        B::from_data(TensorData::new(self.values.clone(), self.shape.clone()), &B::Device::default())
    }
}

fn numbers<B: Backend>(tensor: B::Primitive) -> Vec<f64> {
    B::into_data(tensor).expect("the CPU does not fail").to_vec::<f64>().expect("f64")
}

/// `Σ w f(x)` with fixed weights, so that each element of the result has its own part in the gradient.
fn weighted<B: Backend>(result: B::Primitive, seed: u64) -> B::Primitive {
    let weights = Operand::between(result.dims(), 0.5, 1.5, seed).tensor::<B>();
    let product = B::binary(BinaryOp::Mul, result, weights);
    let count = product.shape().num_elements();
    B::reduce(ReduceOp::Sum, B::reshape(product, Shape::from([count])), &[0])
}

fn value(function: &impl Function, operands: &[Operand]) -> f64 {
    let operands = operands.iter().map(Operand::tensor::<Inner>).collect();
    numbers::<Inner>(weighted::<Inner>(function.run::<Inner>(operands), 7))[0]
}

/// The gradients of all operands; zeros for one that the result does not depend on.
fn gradients<A: AutodiffBackend>(function: &impl Function, operands: &[Operand]) -> Vec<Vec<f64>> {
    let leaves: Vec<A::Primitive> =
        operands.iter().map(|operand| A::set_require_grad(operand.tensor::<A>(), true)).collect();
    let loss = weighted::<A>(function.run::<A>(leaves.clone()), 7);
    let found = A::backward(loss);
    let numbers = |(leaf, operand): (&A::Primitive, &Operand)| match A::grad(leaf, &found) {
        Some(gradient) => {
            assert_eq!(gradient.dims(), operand.shape, "a gradient has its tensor's dims");
            numbers::<A::InnerBackend>(gradient)
        }
        None => vec![0.0; operand.values.len()],
    };
    leaves.iter().zip(operands).map(numbers).collect()
}

/// The gradient of `Σ v ∂f/∂x` over all operands.
fn second_gradients(function: &impl Function, operands: &[Operand]) -> Vec<Vec<f64>> {
    let inner: Vec<_> =
        operands.iter().map(|operand| First::set_require_grad(operand.tensor::<First>(), true)).collect();
    let leaves: Vec<_> =
        inner.iter().map(|leaf| Second::set_require_grad(Second::from_inner(leaf.clone()), true)).collect();
    let found = Second::backward(weighted::<Second>(function.run::<Second>(leaves.clone()), 7));
    let parts = leaves.iter().enumerate().filter_map(|(n, leaf)| {
        let gradient = Second::grad(leaf, &found)?;
        Some(weighted::<First>(gradient, 11 + n as u64))
    });
    let Some(sum) = parts.reduce(|a, b| First::binary(BinaryOp::Add, a, b)) else {
        return operands.iter().map(|operand| vec![0.0; operand.values.len()]).collect();
    };
    let found = First::backward(sum);
    let numbers = |(leaf, operand): (&_, &Operand)| match First::grad(leaf, &found) {
        Some(gradient) => numbers::<Inner>(gradient),
        None => vec![0.0; operand.values.len()],
    };
    inner.iter().zip(operands).map(numbers).collect()
}

/// `Σ v ∂f/∂x` as a number.
fn weighted_gradients(function: &impl Function, operands: &[Operand]) -> f64 {
    let found = gradients::<First>(function, operands);
    found
        .iter()
        .zip(operands)
        .enumerate()
        .map(|(n, (gradient, operand))| {
            let weights = Operand::between(&operand.shape, 0.5, 1.5, 11 + n as u64).values;
            gradient.iter().zip(weights).map(|(g, w)| g * w).sum::<f64>()
        })
        .sum()
}

/// Central differences of a number that depends on operands.
fn differences(f: impl Fn(&[Operand]) -> f64, operands: &[Operand], step: f64) -> Vec<Vec<f64>> {
    let mut moved = operands.to_vec();
    let mut all = Vec::new();
    for n in 0..operands.len() {
        let mut of_operand = Vec::new();
        for i in 0..operands[n].values.len() {
            let mut at = |offset: f64| {
                moved[n].values[i] = operands[n].values[i] + offset;
                let value = f(&moved);
                moved[n].values[i] = operands[n].values[i];
                value
            };
            of_operand.push((at(step) - at(-step)) / (2.0 * step));
        }
        all.push(of_operand);
    }
    all
}

fn compare(what: &str, found: &[Vec<f64>], expected: &[Vec<f64>], tolerance: f64) {
    for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len());
        for (i, (a, b)) in found.iter().zip(expected).enumerate() {
            let off = (a - b).abs();
            assert!(
                off <= tolerance * (1.0 + b.abs()),
                "{what}: operand {n}, element {i}: {a} instead of {b}"
            );
        }
    }
}

/// Checks a function's first and second derivatives, and that recomputing yields the same.
pub fn check(function: &impl Function, operands: &[Operand]) {
    let first = gradients::<First>(function, operands);
    compare("first derivative", &first, &differences(|x| value(function, x), operands, 1e-6), 2e-7);
    assert_eq!(gradients::<Recomputing>(function, operands), first, "recomputed");
    let second = second_gradients(function, operands);
    let expected = differences(|x| weighted_gradients(function, x), operands, 1e-5);
    compare("second derivative", &second, &expected, 2e-6);
}

/// A test that checks a function of operands between two bounds.
#[macro_export]
macro_rules! gradient_tests {
    ($($name:ident $(($low:expr, $high:expr))? [$($shape:expr),* $(,)?] |$b:ident, $operands:pat_param| $body:expr;)*) => {
        $(
            #[test]
            fn $name() {
                struct Tested;
                impl $crate::check::Function for Tested {
                    fn run<$b: kiln_tensor::backend::Backend>(
                        &self,
                        operands: Vec<$b::Primitive>,
                    ) -> $b::Primitive {
                        let Ok($operands) = <[$b::Primitive; _]>::try_from(operands) else {
                            panic!("another number of operands")
                        };
                        $body
                    }
                }
                #[allow(unused_mut, unused_assignments, reason = "bounds are given where they matter")]
                let (mut low, mut high) = (-2.0, 2.0);
                $((low, high) = ($low, $high);)?
                let shapes: Vec<Vec<usize>> = vec![$($shape.to_vec()),*];
                let operands: Vec<_> = shapes
                    .iter()
                    .zip(1..)
                    .map(|(shape, seed)| $crate::check::Operand::between(shape, low, high, seed))
                    .collect();
                $crate::check::check(&Tested, &operands);
            }
        )*
    };
}
