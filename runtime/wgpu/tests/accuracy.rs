//! How exact the functions of floats are that kernels compute with: as `kiln_gpu`'s `math` says, whatever the device's own are worth.

use kiln_tensor::backend::Backend;
use kiln_tensor::{BinaryOp, DType, TensorData, UnaryOp};

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
    let cases: [Case; 8] = [
        (UnaryOp::Sin, f64::sin, [-10.0, 10.0]),
        (UnaryOp::Sin, f64::sin, [-8000.0, 8000.0]),
        (UnaryOp::Sin, f64::sin, [-1e6, 1e6]),
        (UnaryOp::Sin, f64::sin, [-3.4e38, 3.4e38]),
        (UnaryOp::Cos, f64::cos, [-1e6, 1e6]),
        (UnaryOp::Cos, f64::cos, [-3.4e38, 3.4e38]),
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

/// Norms and their gradients of rows whose elements have more in common than they differ by, beside the same rows in f64.
#[test]
fn norms_of_rows_far_from_zero_are_as_exact_as_their_elements() {
    type Cpu = kiln_ndarray::NdArray<f64>;
    fn run<B: Backend>(x: &[f32], length: usize, dtype: DType) -> [Vec<f64>; 2] {
        let on = |values: &[f32], shape: &[usize]| {
            let data = TensorData::new(values.to_vec(), shape).convert_dtype(dtype);
            B::from_data(data, &Default::default())
        };
        let numbers = |count: usize, step: usize| -> Vec<f32> {
            (0..count).map(|n| (n * step % 97) as f32 / 64.0 - 0.7).collect()
        };
        let shape = [x.len() / length, length];
        let (weight, gradient) = (on(&numbers(length, 31), &[length]), on(&numbers(x.len(), 53), &shape));
        let x = on(x, &shape);
        let y = B::layer_norm(x.clone(), weight.clone(), None, 1e-5);
        let found = B::layer_norm_gradient(gradient, x, weight, 1e-5);
        [y, found.input].map(|x| B::into_data(x).expect("a device").iter::<f64>().collect())
    }
    for (rows, length) in [(3, 7), (4, 700), (2, 9000), (1024, 40)] {
        // Steps of the last digits of such numbers, so that they are the same in f64.
        let element = |n: usize| 1000.0 + (n * 7919 % 1009) as f32 / 1024.0;
        let x: Vec<f32> = (0..rows * length).map(element).collect();
        let (found, exact) = (run::<Wgpu>(&x, length, DType::F32), run::<Cpu>(&x, length, DType::F64));
        for (what, (found, exact)) in ["result", "gradient"].iter().zip(found.iter().zip(&exact)) {
            let largest = exact.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
            let off = found.iter().zip(exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off <= 2e-6 * largest, "{what} of {rows} rows of {length}: {off:e} of {largest}");
        }
    }
}

/// 64-bit floats beside the host's functions, which are exact to an ulp; nothing where shaders have none.
mod doubles {
    use super::*;

    fn have() -> bool {
        Wgpu::supports(&Default::default(), DType::F64)
    }

    fn double(values: &[f64]) -> T {
        Wgpu::from_data(TensorData::new(values.to_vec(), [values.len()]), &Default::default())
    }

    fn doubles(tensor: T) -> Vec<f64> {
        Wgpu::into_data(tensor).expect("a device").to_vec().expect("floats")
    }

    /// Numbers of a range, in steps of one size that is no round number.
    fn range(low: f64, high: f64) -> Vec<f64> {
        (0..20_000).map(|n| low + (high - low) * ((f64::from(n) + 0.123) / 20_000.0)).collect()
    }

    /// The units of its last place by which a number is off.
    fn units(found: f64, exact: f64) -> f64 {
        let unit = f64::EPSILON * 2.0_f64.powi(exact.abs().max(f64::MIN_POSITIVE).log2().floor() as i32);
        (found - exact).abs() / unit
    }

    /// The host's own loses digits near 1 (and its `atanh` near -1).
    fn acosh(x: f64) -> f64 {
        2.0 * ((x - 1.0) * 0.5).sqrt().asinh()
    }

    #[test]
    fn functions_are_as_exact_as_they_say() {
        type Case = (UnaryOp, fn(f64) -> f64, [f64; 2]);
        let cases: [Case; 26] = [
            (UnaryOp::Exp, f64::exp, [-700.0, 709.0]),
            (UnaryOp::Exp, f64::exp, [-2.0, 2.0]),
            (UnaryOp::Log, f64::ln, [1e-6, 4.0]),
            (UnaryOp::Log, f64::ln, [1.0, 1e9]),
            (UnaryOp::Log1p, f64::ln_1p, [-0.99, 3.0]),
            (UnaryOp::Log1p, f64::ln_1p, [-1e-9, 1e-9]),
            (UnaryOp::Tanh, f64::tanh, [-25.0, 25.0]),
            (UnaryOp::Tanh, f64::tanh, [-0.1, 0.1]),
            (UnaryOp::Sinh, f64::sinh, [-20.0, 20.0]),
            (UnaryOp::Sinh, f64::sinh, [700.0, 710.0]),
            (UnaryOp::Cosh, f64::cosh, [-20.0, 20.0]),
            (UnaryOp::Asinh, f64::asinh, [-30.0, 30.0]),
            (UnaryOp::Acosh, acosh, [1.0, 30.0]),
            (UnaryOp::Atanh, |x| x.abs().atanh().copysign(x), [-0.999, 0.999]),
            (UnaryOp::Atan, f64::atan, [-30.0, 30.0]),
            (UnaryOp::Atan, f64::atan, [-1.0, 1.0]),
            (UnaryOp::Asin, f64::asin, [-1.0, 1.0]),
            (UnaryOp::Acos, f64::acos, [-1.0, 1.0]),
            (UnaryOp::Sqrt, f64::sqrt, [0.0, 1e6]),
            (UnaryOp::Sin, f64::sin, [-10.0, 10.0]),
            (UnaryOp::Sin, f64::sin, [1e5, 2e5]),
            (UnaryOp::Sin, f64::sin, [-1e300, 1e300]),
            (UnaryOp::Cos, f64::cos, [-10.0, 10.0]),
            (UnaryOp::Cos, f64::cos, [1_048_000.0, 1_049_000.0]),
            (UnaryOp::Cos, f64::cos, [1e15, 1e18]),
            (UnaryOp::Tan, f64::tan, [-1.5, 1.5]),
        ];
        if !have() {
            return;
        }
        for (op, exact, [low, high]) in cases {
            let x = range(low, high);
            let found = doubles(Wgpu::unary(op, double(&x)));
            for (&x, found) in x.iter().zip(found) {
                let (off, exact) = (units(found, exact(x)), exact(x));
                assert!(off <= 4.0, "{op:?} of {x:e}: {found:e}, off by {off} units of {exact:e}");
            }
        }
    }

    #[test]
    fn error_functions_are_odd_and_bounded() {
        if !have() {
            return;
        }
        // Abramowitz & Stegun 1964, table 7.1, and what series say of the others.
        let known = [
            (0.0, 0.0),
            (0.1, 0.112_462_916_018_284_9),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (1.5, 0.966_105_146_475_310_8),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 0.999_977_909_503_001_4),
            (6.5, 1.0),
        ];
        for sign in [1.0, -1.0] {
            let x: Vec<f64> = known.iter().map(|(x, _)| sign * x).collect();
            let found = doubles(Wgpu::unary(UnaryOp::Erf, double(&x)));
            for ((x, exact), found) in known.iter().zip(found) {
                let off = units(found, sign * exact);
                assert!(off <= 3.0, "erf of {x}: {found}, off by {off} units");
            }
        }
    }

    #[test]
    fn powers_and_remainders_are_as_exact_as_they_say() {
        if !have() {
            return;
        }
        for ([low, high], exponents) in [
            ([0.5, 2.0], [-700.0, 700.0]),
            ([1e-3, 1e3], [-3.0, 3.0]),
            ([0.99, 1.01], [-60_000.0, 60_000.0]),
            ([1e300, 1.7e308], [-0.99, 0.99]),
        ] {
            let (base, steps) = (range(low, high), range(exponents[0], exponents[1]));
            let exponent: Vec<f64> = (0..base.len()).map(|n| steps[n * 7919 % steps.len()]).collect();
            let found = doubles(Wgpu::binary(BinaryOp::Pow, double(&base), double(&exponent)));
            for ((base, exponent), found) in base.iter().zip(&exponent).zip(found) {
                let exact = base.powf(*exponent);
                let off = units(found, exact);
                let is_normal = exact.is_normal() || exact == found;
                assert!(off <= 4.0 || !is_normal, "{base:e}^{exponent}: {found:e}, off by {off} units");
            }
        }
        let (a, b) = (range(-1e300, 1e300), range(-3.0, 7.0));
        let found = doubles(Wgpu::binary(BinaryOp::Fmod, double(&a), double(&b)));
        for ((a, b), found) in a.iter().zip(&b).zip(found) {
            assert_eq!(found.to_bits(), (a % b).to_bits(), "{a:e} % {b}");
        }
    }
}
