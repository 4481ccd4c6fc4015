//! Functions of f64, which NdArray composes of others, keep its precision where a difference would lose it.

use kiln_ndarray::{NdArray, NdArrayDevice};
use kiln_tensor::backend::Backend;
use kiln_tensor::{Activation, TensorData};

type B = NdArray;

/// Within a few ulp of `f`, also next to 0 and far below it.
#[track_caller]
fn check(activation: Activation, f: impl Fn(f64) -> f64) {
    let x = [-1e-300, -1e-17, -1e-9, -3e-4, -0.2, -1.0, -30.0, -1e4, f64::NEG_INFINITY, 0.0, 1e-9, 2.5];
    let y = B::activation(activation, B::from_data(TensorData::from(x), &NdArrayDevice::default()));
    let y = B::into_data(y).expect("it is on the CPU").to_vec::<f64>().expect("it is of f64");
    for (x, y) in x.into_iter().zip(y) {
        let expected = f(x);
        assert!(
            (y - expected).abs() <= 8.0 * f64::EPSILON * expected.abs(),
            "{activation:?} of {x:e}: {y:e}, not {expected:e}"
        );
    }
}

#[test]
fn elu() {
    check(Activation::Elu { alpha: 1.5 }, |x| if x > 0.0 { x } else { 1.5 * x.exp_m1() });
}
