//! Every function against f64, at every level, over its whole range.

use super::{Map, bounded_exp, bounded_exp2, map_slice, rounded_weight_of_two};
use crate::elementwise::{activation_of, unary_of};
use crate::simd::dispatched;
use crate::simd::forced::at_each_level;
use kiln_types::{Activation, UnaryOp};

/// Numbers from all over f32, denser where functions bend.
fn samples() -> Vec<f32> {
    let mut samples: Vec<f32> = (0..40_000).map(|i| (i as f32 - 20_000.0) * 0.001).collect();
    samples.extend((0..20_000).map(|i| (i as f32 - 10_000.0) * 0.0123));
    // Every 2^17-th bit pattern: subnormals, huge numbers, infinities, NaN.
    samples.extend((0..1 << 15).map(|i| f32::from_bits(i << 17)));
    samples.extend([
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MIN_POSITIVE,
        1e-45,
        f32::MAX,
    ]);
    samples
}

fn run(map: Map, x: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    // SAFETY: both slices have one length.
    unsafe { map_slice(map, x.as_ptr(), out.as_mut_ptr(), x.len()) };
    out
}

/// Distance in units in the last place of the exact result.
fn ulps(got: f32, exact: f64) -> f64 {
    let nearest = exact as f32;
    if got == nearest || (got.is_nan() && exact.is_nan()) {
        return 0.0;
    }
    if got.is_infinite() && nearest.abs() > 3.3e38 || nearest.is_infinite() && got.abs() > 3.3e38 {
        return 1.0;
    }
    let unit = (f64::from(f32::from_bits(nearest.abs().to_bits() + 1)) - f64::from(nearest.abs())).abs();
    (f64::from(got) - exact).abs() / unit
}

struct Case {
    map: Map,
    exact: fn(f64) -> f64,
    /// Largest distance in ulp, where the absolute error is above `absolute`.
    ulps: f64,
    absolute: f64,
}

fn case(map: Map, exact: fn(f64) -> f64, ulps: f64, absolute: f64) -> Case {
    Case { map, exact, ulps, absolute }
}

fn softplus(x: f64) -> f64 {
    (-x.abs()).exp().ln_1p() + x.max(0.0)
}

fn keep_nan(x: f64, y: f64) -> f64 {
    if x.is_nan() { x } else { y }
}

#[test]
fn functions_keep_their_error_bounds() {
    let cases = [
        case(Map::Unary(UnaryOp::Exp), f64::exp, 1.0, 2e-45),
        case(Map::Unary(UnaryOp::Log), f64::ln, 2.0, 0.0),
        case(Map::Unary(UnaryOp::Log1p), f64::ln_1p, 4.0, 0.0),
        case(Map::Unary(UnaryOp::Tanh), f64::tanh, 3.0, 0.0),
        case(Map::Unary(UnaryOp::Erf), libm::erf, 3.0, 2e-45),
        case(Map::Unary(UnaryOp::Sin), f64::sin, 2.0, 1e-7),
        case(Map::Unary(UnaryOp::Cos), f64::cos, 2.0, 1e-7),
        case(Map::Unary(UnaryOp::Sqrt), f64::sqrt, 0.5, 0.0),
        case(Map::Activation(Activation::Sigmoid), |x| 1.0 / (1.0 + (-x).exp()), 3.0, 1.2e-38),
        case(Map::Activation(Activation::Softplus), softplus, 4.0, 1e-34),
        case(
            Map::Activation(Activation::Gelu),
            |x| 0.5 * x * (1.0 + libm::erf(x * core::f64::consts::FRAC_1_SQRT_2)),
            4.0,
            3e-7,
        ),
        case(
            Map::Activation(Activation::GeluTanh),
            |x| {
                let inner = (2.0 / core::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                0.5 * x * (1.0 + inner.tanh())
            },
            6.0,
            3e-7,
        ),
        case(Map::Activation(Activation::Silu), |x| x / (1.0 + (-x).exp()), 4.0, 1e-35),
        case(Map::Activation(Activation::Mish), |x| x * softplus(x).tanh(), 6.0, 1e-30),
        case(
            Map::Activation(Activation::Elu { alpha: 1.0 }),
            |x| if x > 0.0 { x } else { x.exp_m1() },
            2.0,
            0.0,
        ),
        case(Map::Activation(Activation::Relu), |x| keep_nan(x, x.max(0.0)), 0.0, 0.0),
        case(Map::Activation(Activation::HardSwish), |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), 4.0, 1e-6),
        case(Map::Activation(Activation::Clamp { min: -1.0, max: 6.0 }), |x| x.clamp(-1.0, 6.0), 0.0, 0.0),
        case(Map::Activation(Activation::Affine { alpha: 0.5, beta: 2.0 }), |x| 0.5 * x + 2.0, 2.0, 1e-6),
        case(
            Map::Activation(Activation::ScaledTanh { alpha: 1.5, beta: 0.5 }),
            |x| 1.5 * (0.5 * x).tanh(),
            4.0,
            1e-38,
        ),
        case(Map::Activation(Activation::Softsign), |x| x / (1.0 + x.abs()), 2.0, 0.0),
        case(
            Map::Activation(Activation::ThresholdedRelu { alpha: 0.75 }),
            |x| if x > 0.75 { x } else { 0.0 },
            0.0,
            0.0,
        ),
    ];
    let x = samples();
    at_each_level(|level| {
        for case in &cases {
            for (&x, y) in x.iter().zip(run(case.map, &x)) {
                let exact = (case.exact)(f64::from(x));
                if x.is_infinite() && exact.is_nan() {
                    continue;
                }
                assert_eq!(
                    y.is_nan(),
                    exact.is_nan(),
                    "{level:?} {:?}({x:e}) = {y:e}, not {exact:e}",
                    case.map
                );
                let far = (f64::from(y) - exact).abs() > case.absolute;
                let slack = if level.fuses() { 1.0 } else { 2.0 };
                assert!(
                    !far || ulps(y, exact) <= case.ulps * slack + 0.01,
                    "{level:?} {:?}({x:e}) = {y:e}, not {exact:e}: {} ulp",
                    case.map,
                    ulps(y, exact)
                );
            }
        }
    });
}

#[test]
fn every_operation_agrees_with_its_scalar_definition() {
    let x: Vec<f32> = (0..77).map(|i| (i as f32 - 38.0) * 0.17).collect();
    let unary = UnaryOp::ALL
        .iter()
        .copied()
        .filter(|op| !matches!(op, UnaryOp::Not | UnaryOp::BitwiseNot | UnaryOp::IsNan | UnaryOp::IsInf));
    let activations = [
        Activation::LeakyRelu { slope: 0.1 },
        Activation::HardSigmoid { alpha: 0.2, beta: 0.5 },
        Activation::Elu { alpha: 1.5 },
        Activation::Tanh,
        Activation::Mish,
    ];
    let maps: Vec<Map> = unary.map(Map::Unary).chain(activations.map(Map::Activation)).collect();
    at_each_level(|level| {
        for &map in &maps {
            for (&x, y) in x.iter().zip(run(map, &x)) {
                let expected = match map {
                    Map::Unary(op) => unary_of(op, x),
                    Map::Activation(activation) => activation_of(activation, x),
                };
                let close = (y - expected).abs() <= 1e-6 * expected.abs().max(1.0);
                assert!(
                    close || y.is_nan() && expected.is_nan() || y == expected,
                    "{level:?} {map:?}({x}) = {y}"
                );
            }
        }
    });
}

#[test]
fn zeros_keep_their_sign() {
    at_each_level(|_| {
        for op in [UnaryOp::Sin, UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::Log1p, UnaryOp::Round, UnaryOp::Sqrt] {
            assert!(run(Map::Unary(op), &[-0.0; 5])[0].is_sign_negative(), "{op:?}");
        }
    });
}
dispatched! {
    /// `e^x` or `2^x`.
    ///
    /// # Safety
    /// Both hold whole vectors.
    unsafe fn powers<S>(s, of_two: bool, x: &[f32], to: &mut [f32]) {
        for i in (0..x.len()).step_by(S::LANES) {
            let x = s.load(x.as_ptr().add(i));
            s.store(to.as_mut_ptr().add(i), if of_two { bounded_exp2(s, x) } else { bounded_exp(s, x) });
        }
    }
}

dispatched! {
    /// Powers that become weights.
    ///
    /// # Safety
    /// Both hold whole vectors.
    unsafe fn rounded_weights<S>(s, x: &[f32], to: &mut [f32]) {
        for i in (0..x.len()).step_by(S::LANES) {
            s.store(to.as_mut_ptr().add(i), rounded_weight_of_two(s, s.load(x.as_ptr().add(i))));
        }
    }
}

#[test]
fn rounded_weights_are_nearer_than_their_rounding() {
    let mut x: Vec<f32> = (0..130_000).map(|i| i as f32 * -0.001_013).collect();
    x.extend([
        1e-4,
        -0.0,
        -125.0,
        f32::from_bits((-125.0_f32).to_bits() + 1),
        -126.0,
        -150.0,
        -1e30,
        f32::MIN,
    ]);
    x.extend([f32::NEG_INFINITY, f32::NAN]);
    x.resize(x.len().next_multiple_of(16), 0.0);
    let mut y = vec![9.0; x.len()];
    at_each_level(|level| {
        // SAFETY: whole vectors, as many of both.
        unsafe { rounded_weights(&x, &mut y) };
        for (&x, &y) in x.iter().zip(&y) {
            let exact = if x < -125.0 { 0.0 } else { f64::from(x).exp2() };
            let is_near = (f64::from(y) - exact).abs() <= exact / 262_144.0;
            assert!(is_near || x.is_nan() && y.is_nan(), "{level:?}: 2^{x} is {y}, not {exact}");
            assert!(!y.is_subnormal(), "{level:?}: 2^{x} is {y}");
        }
    });
}

#[test]
fn bounded_powers_keep_their_error_bound() {
    // Odd steps: other bits everywhere. The ends are in it, and halves of a sixteenth, which round either way.
    let mut x: Vec<f32> = (0..240_000).map(|i| (i as f32 - 120_000.0) * 0.000_727_77).collect();
    x.extend((-2000..2000).flat_map(|i| [i as f32 / 32.0, i as f32 / 16.0 * core::f32::consts::LN_2]));
    x.extend([-87.33, 87.33]);
    x.resize(x.len().next_multiple_of(16), 0.0);
    let mut y = vec![0.0; x.len()];
    at_each_level(|level| {
        for of_two in [false, true] {
            let x: Vec<f32> = x.iter().map(|x| if of_two { x * 1.44 } else { *x }).collect();
            // SAFETY: whole vectors, as many of both.
            unsafe { powers(of_two, &x, &mut y) };
            for (&x, &y) in x.iter().zip(&y) {
                let exact = if of_two { f64::from(x).exp2() } else { f64::from(x).exp() };
                let bound = if level.fuses() { 1.2 } else { 2.0 };
                assert!(
                    ulps(y, exact) <= bound,
                    "{level:?} {x:e} -> {y:e}, not {exact:e}: {} ulp",
                    ulps(y, exact)
                );
            }
        }
    });
}

#[test]
fn activations_vanish_far_below_zero() {
    let x = [-105.0, -700.0, -1e30, f32::MIN, -1e5];
    let of = [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Sigmoid];
    at_each_level(|level| {
        for activation in of {
            let y = run(Map::Activation(activation), &x);
            assert!(y.iter().all(|&y| y == 0.0), "{level:?} {activation:?}: {y:?}");
        }
        for activation in [Activation::Gelu, Activation::GeluTanh] {
            assert!(
                run(Map::Activation(activation), &[-40.0, -13.0]) == [0.0; 2],
                "{level:?} {activation:?}"
            );
        }
    });
}

/// Subnormal numbers are slow to compute and slow to compute with.
#[test]
fn gelu_is_zero_before_it_is_subnormal() {
    let x: Vec<f32> = (0..4096).map(|i| 8.0 + i as f32 / 1024.0).flat_map(|x| [x, -x]).collect();
    at_each_level(|level| {
        let y = run(Map::Activation(Activation::Gelu), &x);
        assert!(y.iter().all(|y| !y.is_subnormal()), "{level:?}");
    });
}
