//! What a tape makes of each operation: first derivatives against central differences in f64, and second ones against differences of the
//! first.

use kiln_tensor::backend::{AutodiffBackend, Backend, Primitive, SliceRange};
use kiln_tensor::{BinaryOp, ReduceOp, Scalar, Shape, TensorData};
use std::cell::Cell;
use std::marker::PhantomData;

/// Functions of operands between two bounds: for each a test that is generic over how it is [checked](Check), and a macro that declares
/// them all.
macro_rules! functions {
    // The dollar is that of the macro that is declared.
    (($dollar:tt) $table:ident: $(
        $name:ident $(($low:expr, $high:expr))? [$($shape:expr),* $(,)?] |$b:ident, $operands:pat_param| $body:expr;
    )*) => {
        $(
            pub fn $name<C: $crate::derivatives::Check>() {
                struct Tested;
                impl $crate::derivatives::Function for Tested {
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
                    .map(|(shape, seed)| $crate::derivatives::Operand::between(shape, low, high, seed))
                    .collect();
                C::check(&Tested, &operands);
            }
        )*

        /// Declares a test for each of the functions, with how it is checked.
        #[macro_export]
        macro_rules! $table {
            ($dollar check:ty) => {
                $(
                    #[test]
                    fn $name() {
                        $dollar crate::derivatives::$table::$name::<$dollar check>();
                    }
                )*
            };
        }
    };
}

pub mod elementwise;
pub mod layers;
pub mod shapes;

/// Declares a test for each function whose derivatives are checked, in a module of the given name.
#[macro_export]
macro_rules! derivatives {
    ($name:ident: $check:ty) => {
        mod $name {
            mod elementwise {
                use super::super::*;
                $crate::elementwise!($check);
            }
            mod shapes {
                use super::super::*;
                $crate::shapes!($check);
            }
            mod layers {
                use super::super::*;
                $crate::layers!($check);
            }
        }
    };
}

/// How the derivatives of a function are checked.
pub trait Check {
    /// Panics where they are wrong.
    fn check(function: &impl Function, operands: &[Operand]);
}

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
    /// Numbers between two bounds that look random and are the same each time; f32 holds them exactly.
    pub fn between(shape: &[usize], low: f64, high: f64, seed: u64) -> Self {
        let count = shape.iter().product();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let values = (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let number = low + (high - low) * ((state >> 11) as f64 / (1u64 << 53) as f64);
                f64::from(number as f32)
            })
            .collect();
        Self { shape: shape.to_vec(), values }
    }

    fn tensor<B: Backend>(&self) -> B::Primitive {
        let data = TensorData::new(self.values.clone(), self.shape.clone()).convert::<B::FloatElem>();
        laid::<B>(B::from_data(data, &B::Device::default()))
    }
}

/// How operands lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Row-major from the start of it.
    Alone,
    /// Row-major behind so many other numbers.
    Behind(usize),
    /// With the first dim last, among other numbers.
    Turned,
}

std::thread_local! {
    static LIE: Cell<Lie> = const { Cell::new(Lie::Alone) };
}

/// The same tensor as the test at hand has it lie in memory. What is beside it there would not go unseen in a result.
pub fn laid<B: Backend>(tensor: B::Primitive) -> B::Primitive {
    let lie = LIE.get();
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    let others = |dims: Shape| B::full(dims, Scalar::Int(1 << 20), dtype, &B::device(&tensor));
    match lie {
        Lie::Alone => tensor,
        Lie::Behind(others_before) => {
            let count = shape.num_elements();
            let flat = B::reshape(tensor.clone(), Shape::from([count]));
            let all = B::cat(&[others(Shape::from([others_before])), flat], 0);
            let range = SliceRange { start: others_before, end: others_before + count, step: 1 };
            B::reshape(B::slice(all, &[range]), shape)
        }
        Lie::Turned => {
            let rank = shape.rank();
            let there: Vec<usize> = (1..rank).chain([0]).collect();
            let back: Vec<usize> = [rank - 1].into_iter().chain(0..rank - 1).collect();
            let turned = B::permute(tensor.clone(), &there);
            let of_others = Shape::from([&turned.dims()[..rank - 1], &[3]].concat());
            let mut ranges: Vec<SliceRange> =
                turned.dims().iter().map(|&size| SliceRange { start: 0, end: size, step: 1 }).collect();
            let all = B::cat(&[others(of_others.clone()), turned, others(of_others)], rank - 1);
            let last = &mut ranges[rank - 1];
            (last.start, last.end) = (3, last.end + 3);
            B::permute(B::slice(all, &ranges), &back)
        }
    }
}

/// The value of a function is the same however its operands lie in memory.
#[derive(Debug)]
pub struct Views<B>(PhantomData<B>);

impl<B: Backend> Check for Views<B> {
    fn check(function: &impl Function, operands: &[Operand]) {
        let run = |lie| {
            LIE.set(lie);
            let result = numbers::<B>(function.run::<B>(operands.iter().map(Operand::tensor::<B>).collect()));
            LIE.set(Lie::Alone);
            vec![result]
        };
        let expected = run(Lie::Alone);
        // Elements of 256 bytes, which memory can be cut into, and such that are no multiple of anything.
        for lie in [Lie::Behind(64), Lie::Behind(5), Lie::Turned] {
            compare(&format!("{lie:?}"), &run(lie), &expected, FIRST_IN_F32);
        }
    }
}

/// A function on one backend: what is below is compiled once for each of these, not for each function.
type Run<'a, B> = &'a dyn Fn(Vec<<B as Backend>::Primitive>) -> <B as Backend>::Primitive;

fn numbers<B: Backend>(tensor: B::Primitive) -> Vec<f64> {
    B::into_data(tensor).expect("a backend in these tests reads back").iter().collect()
}

/// `Σ w f(x)` with fixed weights, so that each element of the result has its own part in the gradient.
fn weighted<B: Backend>(result: B::Primitive, seed: u64) -> B::Primitive {
    let weights = Operand::between(result.dims(), 0.5, 1.5, seed).tensor::<B>();
    let product = B::binary(BinaryOp::Mul, result, weights);
    let count = product.shape().num_elements();
    B::reduce(ReduceOp::Sum, B::reshape(product, Shape::from([count])), &[0])
}

fn value<B: Backend>(run: Run<'_, B>, operands: &[Operand]) -> f64 {
    let operands = operands.iter().map(Operand::tensor::<B>).collect();
    numbers::<B>(weighted::<B>(run(operands), 7))[0]
}

/// The gradients of all operands; zeros for one that the result does not depend on.
fn gradients<A: AutodiffBackend>(run: Run<'_, A>, operands: &[Operand]) -> Vec<Vec<f64>> {
    let leaves: Vec<A::Primitive> =
        operands.iter().map(|operand| A::set_require_grad(operand.tensor::<A>(), true)).collect();
    let loss = weighted::<A>(run(leaves.clone()), 7);
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
fn second_gradients<A>(run: Run<'_, A>, operands: &[Operand]) -> Vec<Vec<f64>>
where
    A: AutodiffBackend<InnerBackend: AutodiffBackend>,
{
    let inner: Vec<_> = operands
        .iter()
        .map(|operand| A::InnerBackend::set_require_grad(operand.tensor::<A::InnerBackend>(), true))
        .collect();
    let leaves: Vec<_> =
        inner.iter().map(|leaf| A::set_require_grad(A::from_inner(leaf.clone()), true)).collect();
    let found = A::backward(weighted::<A>(run(leaves.clone()), 7));
    let parts = leaves.iter().enumerate().filter_map(|(n, leaf)| {
        let gradient = A::grad(leaf, &found)?;
        Some(weighted::<A::InnerBackend>(gradient, 11 + n as u64))
    });
    let Some(sum) = parts.reduce(|a, b| A::InnerBackend::binary(BinaryOp::Add, a, b)) else {
        return operands.iter().map(|operand| vec![0.0; operand.values.len()]).collect();
    };
    let found = A::InnerBackend::backward(sum);
    let numbers = |(leaf, operand): (&_, &Operand)| match A::InnerBackend::grad(leaf, &found) {
        Some(gradient) => numbers::<<A::InnerBackend as AutodiffBackend>::InnerBackend>(gradient),
        None => vec![0.0; operand.values.len()],
    };
    inner.iter().zip(operands).map(numbers).collect()
}

/// `Σ v ∂f/∂x` as a number.
fn weighted_gradients<A: AutodiffBackend>(run: Run<'_, A>, operands: &[Operand]) -> f64 {
    let found = gradients::<A>(run, operands);
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
fn differences(f: &dyn Fn(&[Operand]) -> f64, operands: &[Operand], step: f64) -> Vec<Vec<f64>> {
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

/// A tape over a backend that computes in f64: its derivatives against differences of its own values. `Second` is a tape over a tape, and
/// what `Recomputing` forgets and computes again is the same.
#[derive(Debug)]
pub struct Exact<Second, Recomputing>(PhantomData<(Second, Recomputing)>);

/// The tape below a tape.
type First<A> = <A as AutodiffBackend>::InnerBackend;

impl<Second, Recomputing> Check for Exact<Second, Recomputing>
where
    Second: AutodiffBackend<InnerBackend: AutodiffBackend>,
    Recomputing: AutodiffBackend,
{
    fn check(function: &impl Function, operands: &[Operand]) {
        let first = gradients::<First<Second>>(&|x| function.run::<First<Second>>(x), operands);
        let of_values =
            |x: &[Operand]| value::<First<First<Second>>>(&|x| function.run::<First<First<Second>>>(x), x);
        compare("first derivative", &first, &differences(&of_values, operands, 1e-6), 2e-7);
        let recomputed = gradients::<Recomputing>(&|x| function.run::<Recomputing>(x), operands);
        assert_eq!(recomputed, first, "recomputed");
        let second = second_gradients::<Second>(&|x| function.run::<Second>(x), operands);
        let of_gradients =
            |x: &[Operand]| weighted_gradients::<First<Second>>(&|x| function.run::<First<Second>>(x), x);
        compare("second derivative", &second, &differences(&of_gradients, operands, 1e-5), 2e-6);
    }
}

/// [`Exact`] over a backend that computes in f32, against differences in f64 on another: what `Reference` is a tape over.
#[derive(Debug)]
pub struct Single<Second, Recomputing, Reference>(PhantomData<(Second, Recomputing, Reference)>);

/// How far off derivatives in f32 may be, relative to their size or to 1: forty of its roundings (of 6e-8 each, to either side), of which
/// the longest formulas make about as many. Second derivatives are computed of first ones, and have twice as many.
const FIRST_IN_F32: f64 = 5e-6;
const SECOND_IN_F32: f64 = 2.0 * FIRST_IN_F32;

impl<Second, Recomputing, Reference> Check for Single<Second, Recomputing, Reference>
where
    Second: AutodiffBackend<InnerBackend: AutodiffBackend>,
    Recomputing: AutodiffBackend,
    Reference: AutodiffBackend,
{
    fn check(function: &impl Function, operands: &[Operand]) {
        let of_values =
            |x: &[Operand]| value::<First<Reference>>(&|x| function.run::<First<Reference>>(x), x);
        let expected = differences(&of_values, operands, 1e-6);
        let first = gradients::<First<Second>>(&|x| function.run::<First<Second>>(x), operands);
        compare("first derivative", &first, &expected, FIRST_IN_F32);
        let recomputed = gradients::<Recomputing>(&|x| function.run::<Recomputing>(x), operands);
        compare("recomputed", &recomputed, &expected, FIRST_IN_F32);
        let of_gradients =
            |x: &[Operand]| weighted_gradients::<Reference>(&|x| function.run::<Reference>(x), x);
        let second = second_gradients::<Second>(&|x| function.run::<Second>(x), operands);
        compare("second derivative", &second, &differences(&of_gradients, operands, 1e-5), SECOND_IN_F32);
    }
}
