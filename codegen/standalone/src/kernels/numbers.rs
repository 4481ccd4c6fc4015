// Functions of numbers, by the names that operations have.

/// The larger of two; NaN if either is.
fn max_pair(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// The smaller of two; NaN if either is.
fn min_pair(a: f32, b: f32) -> f32 {
    if a.is_nan() || a < b { a } else { b }
}

/// -1, 0 or 1; NaN stays.
fn sign(x: f32) -> f32 {
    if x == 0.0 || x.is_nan() { x } else { x.signum() }
}

/// `a^b`.
fn powf(a: f32, b: f32) -> f32 {
    libm::powf(a, b)
}

/// The remainder with the sign of the divisor.
fn remainder(a: f32, b: f32) -> f32 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

/// The remainder of integers with the sign of the divisor, of that with the dividend's.
fn integer_remainder<T>(rest: T, b: T) -> T
where
    T: Copy + Default + PartialOrd + core::ops::Add<Output = T>,
{
    let zero = T::default();
    if rest != zero && (rest < zero) != (b < zero) { rest + b } else { rest }
}

/// `base^exponent`, which wraps.
fn integer_power(base: u64, exponent: u64) -> u64 {
    let (mut result, mut power, mut rest) = (1_u64, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(power);
        }
        power = power.wrapping_mul(power);
        rest >>= 1;
    }
    result
}

/// `base^exponent`, which wraps; of a negative exponent the fraction, cut off.
fn signed_power(base: i64, exponent: i64) -> i64 {
    if exponent >= 0 {
        return integer_power(base as u64, exponent as u64) as i64;
    }
    match base {
        1 => 1,
        -1 if exponent & 1 == 0 => 1,
        -1 => -1,
        _ => 0,
    }
}

/// The angle of a point.
fn atan2(a: f32, b: f32) -> f32 {
    libm::atan2f(a, b)
}

/// `e^x`.
fn exp(x: f32) -> f32 {
    libm::expf(x)
}

/// The natural logarithm.
fn log(x: f32) -> f32 {
    libm::logf(x)
}

/// `ln(1 + x)`.
fn log1p(x: f32) -> f32 {
    libm::log1pf(x)
}

/// The square root.
fn sqrt(x: f32) -> f32 {
    libm::sqrtf(x)
}

/// The sine of radians.
fn sin(x: f32) -> f32 {
    libm::sinf(x)
}

/// The cosine of radians.
fn cos(x: f32) -> f32 {
    libm::cosf(x)
}

/// The tangent of radians.
fn tan(x: f32) -> f32 {
    libm::tanf(x)
}

/// The inverse sine.
fn asin(x: f32) -> f32 {
    libm::asinf(x)
}

/// The inverse cosine.
fn acos(x: f32) -> f32 {
    libm::acosf(x)
}

/// The inverse tangent.
fn atan(x: f32) -> f32 {
    libm::atanf(x)
}

/// The hyperbolic sine.
fn sinh(x: f32) -> f32 {
    libm::sinhf(x)
}

/// The hyperbolic cosine.
fn cosh(x: f32) -> f32 {
    libm::coshf(x)
}

/// The hyperbolic tangent.
fn tanh(x: f32) -> f32 {
    libm::tanhf(x)
}

/// The inverse hyperbolic sine.
fn asinh(x: f32) -> f32 {
    libm::asinhf(x)
}

/// The inverse hyperbolic cosine.
fn acosh(x: f32) -> f32 {
    libm::acoshf(x)
}

/// The inverse hyperbolic tangent.
fn atanh(x: f32) -> f32 {
    libm::atanhf(x)
}

/// The Gauss error function.
fn erf(x: f32) -> f32 {
    libm::erff(x)
}

/// The largest integer that is not above.
fn floor(x: f32) -> f32 {
    libm::floorf(x)
}

/// The smallest integer that is not below.
fn ceil(x: f32) -> f32 {
    libm::ceilf(x)
}

/// The nearest integer, halves to even.
fn round(x: f32) -> f32 {
    libm::rintf(x)
}

/// The integer towards zero.
fn trunc(x: f32) -> f32 {
    libm::truncf(x)
}

/// `max(x, 0)`.
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// `x` if positive, else `slope * x`.
fn leaky_relu(x: f32, slope: f32) -> f32 {
    if x < 0.0 { slope * x } else { x }
}

/// `x` times the share of a normal distribution below it.
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + libm::erff(x * core::f32::consts::FRAC_1_SQRT_2))
}

/// The approximation of GELU by a hyperbolic tangent (Hendrycks & Gimpel 2016).
fn gelu_approximate(x: f32) -> f32 {
    let inner = core::f32::consts::FRAC_2_SQRT_PI * core::f32::consts::FRAC_1_SQRT_2 * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + tanh(inner))
}

/// `1 / (1 + e^-x)`.
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x * sigmoid(x)`.
fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `x * tanh(softplus(x))`.
fn mish(x: f32) -> f32 {
    x * tanh(softplus(x, 1.0))
}

/// `ln(1 + e^(beta * x)) / beta`, computed without overflow.
fn softplus(x: f32, beta: f32) -> f32 {
    let x = beta * x;
    (relu(x) + log1p(exp(-x.abs()))) / beta
}

/// `alpha * x + beta` between 0 and 1.
fn hard_sigmoid(x: f32, alpha: f32, beta: f32) -> f32 {
    (alpha * x + beta).clamp(0.0, 1.0)
}

/// `x` times `x / 6 + 1 / 2` between 0 and 1.
fn hard_swish(x: f32) -> f32 {
    x * (x / 6.0 + 0.5).clamp(0.0, 1.0)
}

/// `x` if positive, else `alpha * (e^x - 1)`.
fn elu(x: f32, alpha: f32) -> f32 {
    if x < 0.0 { alpha * libm::expm1f(x) } else { x }
}

/// `x` between bounds; NaN stays.
fn clamp(x: f32, min: f32, max: f32) -> f32 {
    if x < min {
        min
    } else if x > max {
        max
    } else {
        x
    }
}

/// `alpha * x + beta`.
fn affine(x: f32, alpha: f32, beta: f32) -> f32 {
    alpha * x + beta
}

/// `alpha * tanh(beta * x)`.
fn scaled_tanh(x: f32, alpha: f32, beta: f32) -> f32 {
    alpha * tanh(beta * x)
}

/// `x / (1 + |x|)`.
fn softsign(x: f32) -> f32 {
    x / (1.0 + x.abs())
}

/// `x` above `alpha`, else 0.
fn thresholded_relu(x: f32, alpha: f32) -> f32 {
    if x > alpha { x } else { 0.0 }
}
