//! Functions of f64, which NdArray composes of others, keep its precision where a difference would lose it; and f32 has that of f64
//! where a rounding of each step would add up.

use kiln_ndarray::{NdArray, NdArrayDevice};
use kiln_tensor::backend::Backend;
use kiln_tensor::{Activation, AttentionOptions, CumulativeOp, DType, TensorData};

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

/// Scans of f32, by the sums and products of f64: a step of f32 off at most, however many there are.
#[test]
fn long_running_reductions() {
    let x: Vec<f32> = (0..1_000_000_u32).map(|i| (i % 1000 * 7919 % 1000) as f32 / 1000.0).collect();
    let factors: Vec<f32> = x.iter().map(|x| 1.0 + (x - 0.4995) / 1000.0).collect();
    for (op, x, first, f) in [
        (CumulativeOp::Sum, &x, 0.0, (|a, b| a + b) as fn(f64, f64) -> f64),
        (CumulativeOp::Prod, &factors, 1.0, |a, b| a * b),
    ] {
        let shape = [x.len()];
        let data = B::from_data(TensorData::new(x.clone(), shape), &NdArrayDevice::default());
        let y = B::into_data(B::cumulative(op, data, 0, false, false)).expect("it is on the CPU");
        let mut running = first;
        for (y, &x) in y.iter::<f32>().zip(x) {
            running = f(running, x.into());
            assert!((f64::from(y) - running).abs() <= 1.2e-7 * running, "{op:?}: {y} {running}");
        }
    }
}

/// Of the keys that a query sees, the mask leaves it none: those that the order hides from it are no better.
#[test]
fn a_query_whose_keys_all_have_no_score_is_no_number() {
    for dtype in [DType::F64, DType::F32] {
        let of = |values: Vec<f64>, shape: [usize; 4]| {
            B::from_data(TensorData::new(values, shape).convert_dtype(dtype), &NdArrayDevice::default())
        };
        let [q, k] = [[1.0, 2.0], [3.0, 4.0]].map(|values| of(values.to_vec(), [1, 1, 2, 1]));
        let v = of(vec![5.0, 6.0], [1, 1, 2, 1]);
        let mask = of(vec![f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY, 0.0], [1, 1, 2, 2]);
        let options = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
        let found: Vec<f64> =
            B::into_data(B::attention(q, k, v, Some(mask), &options)).expect("data").iter().collect();
        assert!(found[0].is_nan() && found[1] == 6.0, "{dtype}: {found:?}");
    }
}
