//! How exact the functions of floats are that kernels compute with: as `kiln_gpu`'s `math` says, whatever the device's own are worth.

use kiln_tensor::backend::Backend;
use kiln_tensor::{BinaryOp, TensorData, UnaryOp};

type Wgpu = kiln_wgpu::Wgpu;
type T = <Wgpu as Backend>::Primitive;

/// Numbers of a range.
const COUNT: usize = 200_000;

fn tensor(values: &[f32]) -> T {
    Wgpu::from_data(TensorData::new(values.to_vec(), [values.len()]), &Default::default())
}

fn floats(tensor: T) -> Vec<f32> {
    Wgpu::into_data(tensor).expect("a device").to_vec().expect("floats")
}

/// Numbers of a range, in steps of one size.
fn range(low: f64, high: f64) -> Vec<f32> {
    (0..COUNT).map(|n| (low + (high - low) * n as f64 / (COUNT - 1) as f64) as f32).collect()
}

/// The result that is furthest off, in units of its last place.
fn worst(found: &[f32], exact: impl Fn(usize) -> f64) -> (f64, usize) {
    let off = |n: usize| {
        let exact = exact(n);
        let unit = f64::from(f32::EPSILON)
            * 2.0_f64.powi(exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor() as i32);
        (f64::from(found[n]) - exact).abs() / unit
    };
    (0..found.len()).map(|n| (off(n), n)).max_by(|a, b| a.0.total_cmp(&b.0)).expect("numbers")
}

#[test]
fn functions_are_as_exact_as_they_say() {
    type Case = (UnaryOp, fn(f64) -> f64, [f64; 2], f64);
    let cases: [Case; 16] = [
        (UnaryOp::Exp, f64::exp, [-87.0, 88.7], 2.0),
        (UnaryOp::Exp, f64::exp, [-2.0, 2.0], 2.0),
        (UnaryOp::Log, f64::ln, [1e-6, 4.0], 3.0),
        (UnaryOp::Log, f64::ln, [1.0, 1e9], 3.0),
        (UnaryOp::Log1p, f64::ln_1p, [-0.99, 3.0], 4.0),
        (UnaryOp::Tanh, f64::tanh, [-11.0, 11.0], 4.0),
        (UnaryOp::Sinh, f64::sinh, [-20.0, 20.0], 4.0),
        (UnaryOp::Cosh, f64::cosh, [-20.0, 20.0], 4.0),
        (UnaryOp::Asinh, f64::asinh, [-30.0, 30.0], 5.0),
        (UnaryOp::Acosh, f64::acosh, [1.0, 30.0], 5.0),
        (UnaryOp::Atanh, f64::atanh, [-0.999, 0.999], 5.0),
        (UnaryOp::Atan, f64::atan, [-30.0, 30.0], 3.0),
        (UnaryOp::Asin, f64::asin, [-1.0, 1.0], 3.0),
        (UnaryOp::Sqrt, f64::sqrt, [0.0, 1e6], 1.0),
        (UnaryOp::Recip, f64::recip, [0.01, 1e6], 2.5),
        (UnaryOp::Acos, f64::acos, [-1.0, 0.9999], 5.0),
    ];
    for (op, exact, [low, high], most) in cases {
        let x = range(low, high);
        let found = floats(Wgpu::unary(op, tensor(&x)));
        let (off, at) = worst(&found, |n| exact(f64::from(x[n])));
        assert!(off <= most, "{op:?} of {}: {}, off by {off} units", x[at], found[at]);
    }
}

/// Sine and cosine near their zeros: to so much of 1.
#[test]
fn waves_are_as_exact_as_they_say() {
    type Case = (UnaryOp, fn(f64) -> f64, [f64; 2]);
    let cases: [Case; 4] = [
        (UnaryOp::Sin, f64::sin, [-10.0, 10.0]),
        (UnaryOp::Sin, f64::sin, [-8000.0, 8000.0]),
        (UnaryOp::Cos, f64::cos, [-10.0, 10.0]),
        (UnaryOp::Cos, f64::cos, [-8000.0, 8000.0]),
    ];
    for (op, exact, [low, high]) in cases {
        let x = range(low, high);
        let found = floats(Wgpu::unary(op, tensor(&x)));
        for (x, found) in x.iter().zip(found) {
            let off = (f64::from(found) - exact(f64::from(*x))).abs();
            assert!(off <= 1.5e-7, "{op:?} of {x}: {found}, off by {off}");
        }
    }
}

#[test]
fn powers_are_as_exact_as_they_say() {
    for ([low, high], exponents) in
        [([0.5, 2.0], [0.5, 2.0]), ([1e-3, 1e3], [-3.0, 3.0]), ([0.9, 1.1], [-300.0, 300.0])]
    {
        let base = range(low, high);
        // Each base meets another exponent.
        let steps = range(exponents[0], exponents[1]);
        let exponent: Vec<f32> = (0..COUNT).map(|n| steps[n * 7919 % COUNT]).collect();
        let found = floats(Wgpu::binary(BinaryOp::Pow, tensor(&base), tensor(&exponent)));
        let (off, at) = worst(&found, |n| f64::from(base[n]).powf(f64::from(exponent[n])));
        assert!(
            off <= 4.0,
            "{} to the power of {}: {}, off by {off} units",
            base[at],
            exponent[at],
            found[at]
        );
    }
}
