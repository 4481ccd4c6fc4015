// Functions of 64-bit floats.

var<private> double_nan_bits: u64 = 0x7ff8000000000000lu;
var<private> double_infinity_bits: u64 = 0x7ff0000000000000lu;

fn double_nan() -> f64 { return bitcast<f64>(double_nan_bits); }
fn double_infinity() -> f64 { return bitcast<f64>(double_infinity_bits); }
fn double_magnitude_bits(x: f64) -> u64 { return bitcast<u64>(x) & 0x7ffffffffffffffflu; }
fn double_is_nan(x: f64) -> bool { return double_magnitude_bits(x) > double_infinity_bits; }
fn double_is_infinite(x: f64) -> bool { return double_magnitude_bits(x) == double_infinity_bits; }
fn double_is_negative(x: f64) -> bool { return bitcast<u64>(x) >= 0x8000000000000000lu; }
fn double_signed_as(x: f64, other: f64) -> f64 { return select(abs(x), -abs(x), double_is_negative(other)); }

// The same finite number, of which a compiler does not see how it was had: it may take (a + b) - b for a.
fn double_opaque(x: f64) -> f64 { return min(x, 1.7976931348623157e308lf); }

// The integer next to x toward zero, by clearing the bits of what is cut off.
fn double_trunc(x: f64) -> f64 {
    let bits = bitcast<u64>(x);
    let exponent = i32(u32(bits >> 52u) & 0x7ffu) - 1023;
    if exponent < 0 {
        return bitcast<f64>(bits & 0x8000000000000000lu);
    }
    // Integers already, infinities and NaN.
    if exponent > 51 {
        return x;
    }
    return bitcast<f64>(bits & ~(0x000ffffffffffffflu >> u32(exponent)));
}

fn double_floor(x: f64) -> f64 {
    let whole = double_trunc(x);
    return select(whole, whole - 1.0lf, whole > x);
}

fn double_ceil(x: f64) -> f64 {
    let whole = double_trunc(x);
    return select(whole, whole + 1.0lf, whole < x);
}

// The nearest integer, of two the even one. What is cut off is had without an error.
fn double_round(x: f64) -> f64 {
    let whole = double_trunc(x);
    let rest = abs(x - whole);
    let half = whole * 0.5lf;
    let away = rest > 0.5lf || (rest == 0.5lf && half != double_trunc(half));
    return select(whole, whole + double_signed_as(1.0lf, x), away);
}

// x · 2^n, in two steps: neither power overflows.
fn double_scaled(x: f64, n: i32) -> f64 {
    let half = n >> 1u;
    return x * bitcast<f64>(u64(half + 1023) << 52u) * bitcast<f64>(u64(n - half + 1023) << 52u);
}

// e^r - 1 and n, where x = n ln 2 + r; x lies in ±750.
struct DoubleExp { rest: f64, n: i32 }

fn double_split_exp(x: f64) -> DoubleExp {
    let n = double_round(x * 1.4426950408889634lf);
    let r = x - n * 0.6931471803691238lf - n * 1.9082149292705877e-10lf;
    // (e^r - 1 - r) / r², as its series.
    var p = 1.6059043836821613e-10lf;
    p = p * r + 2.08767569878681e-09lf;
    p = p * r + 2.505210838544172e-08lf;
    p = p * r + 2.755731922398589e-07lf;
    p = p * r + 2.7557319223985893e-06lf;
    p = p * r + 2.48015873015873e-05lf;
    p = p * r + 0.0001984126984126984lf;
    p = p * r + 0.001388888888888889lf;
    p = p * r + 0.008333333333333333lf;
    p = p * r + 0.041666666666666664lf;
    p = p * r + 0.16666666666666666lf;
    p = p * r + 0.5lf;
    return DoubleExp(p * r * r + r, i32(n));
}

fn double_exp(x: f64) -> f64 {
    let split = double_split_exp(max(min(x, 710.0lf), -746.0lf));
    return select(double_scaled(split.rest + 1.0lf, split.n), x, double_is_nan(x));
}

fn double_exp_m1(x: f64) -> f64 {
    let split = double_split_exp(max(min(x, 710.0lf), -50.0lf));
    // At half the scale, since 2^1024 is no number.
    let half = double_scaled(0.5lf, split.n);
    let y = half * split.rest + (half - 0.5lf);
    return select(y + y, x, abs(x) < 1e-17lf || double_is_nan(x));
}

// x = 2^e (1 + f), with 1 + f in [√½, √2); x is positive and finite.
struct DoubleLog { e: f64, f: f64 }

fn double_split_log(x: f64) -> DoubleLog {
    // Subnormal numbers are made normal first.
    let is_tiny = x < 2.2250738585072014e-308lf;
    let normal = select(x, x * 18014398509481984.0lf, is_tiny);
    let bits = bitcast<i64>(normal) - 0x3fe6a09e667f3bcdli;
    let e = f64(i32(bits >> 52u)) + select(0.0lf, -54.0lf, is_tiny);
    let m = bitcast<f64>((bits & 0xfffffffffffffli) + 0x3fe6a09e667f3bcdli);
    return DoubleLog(e, m - 1.0lf);
}

fn double_log(x: f64) -> f64 {
    let split = double_split_log(x);
    let f = split.f;
    // ln(1 + f) = f - s (f - r) = 2 artanh(s) for s = f / (2 + f), with its series beyond 2 s.
    let s = f / (f + 2.0lf);
    let z = s * s;
    var p = 0.08695652173913043lf;
    p = p * z + 0.09523809523809523lf;
    p = p * z + 0.10526315789473684lf;
    p = p * z + 0.11764705882352941lf;
    p = p * z + 0.13333333333333333lf;
    p = p * z + 0.15384615384615385lf;
    p = p * z + 0.18181818181818182lf;
    p = p * z + 0.2222222222222222lf;
    p = p * z + 0.2857142857142857lf;
    p = p * z + 0.4lf;
    p = p * z + 0.6666666666666666lf;
    let half = f * f * 0.5lf;
    let low = s * (half + p * z) + split.e * 1.9082149292705877e-10lf;
    let y = split.e * 0.6931471803691238lf - ((half - low) - f);
    if x == 0.0lf { return -double_infinity(); }
    if x < 0.0lf { return double_nan(); }
    return select(y, x, double_is_nan(x) || double_is_infinite(x));
}

fn double_log_1p(x: f64) -> f64 {
    let w = double_opaque(x + 1.0lf);
    // What rounding took from 1 + x comes back to first order.
    let y = double_log(w) + (x - (w - 1.0lf)) / w;
    if w == 0.0lf { return -double_infinity(); }
    return select(y, x, abs(x) < 1e-17lf || double_is_nan(x) || x == double_infinity());
}

// 2/π behind 64 zeros, as words.
var<private> double_two_over_pi: array<u32, 41> = array<u32, 41>(
    0x00000000u, 0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u,
    0xfe5163abu, 0xdebbc561u, 0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu, 0xfe1deb1cu, 0xb129a73eu,
    0xe88235f5u, 0x2ebb4484u, 0xe99c7026u, 0xb45f7e41u, 0x3991d639u, 0x835339f4u, 0x9c845f8bu, 0xbdf9283bu,
    0x1ff897ffu, 0xde05980fu, 0xef2f118bu, 0x5a0a6d1fu, 0x6d367ecfu, 0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du,
    0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u, 0x8a5292eau, 0x6bfb5fb1u, 0x1f8d5d08u, 0x56033046u, 0xfc7b6babu,
    0xf0cfbc20u,
);

// The multiple of π/2 that is nearest to an angle, modulo 4, and what is left.
struct DoubleTurn { n: i32, rest: f64 }

// Of angles from 2^20 on (Payne & Hanek 1983, "Radian Reduction for Trigonometric Functions").
fn double_far_turn(x: f64) -> DoubleTurn {
    let bits = double_magnitude_bits(x);
    let exponent = i32(bits >> 52u) - 1075;
    let digits = (bits & 0xffffffffffffflu) | 0x10000000000000lu;
    // 192 bits of 2/π, from the one on whose product with the lowest digit is below 4: the others make whole turns.
    let start = u32(exponent - 2 + 64);
    let shift = start & 31u;
    var window: array<u32, 6>;
    for (var i = 0u; i < 6u; i += 1u) {
        let high = double_two_over_pi[start / 32u + i];
        let low = double_two_over_pi[start / 32u + i + 1u];
        window[i] = select((high << shift) | (low >> (32u - shift)), high, shift == 0u);
    }
    // Their product with the digits, of which no more than 192 bits are wanted, from the lowest word on.
    var product: array<u32, 6>;
    let factors = array<u64, 2>(digits & 0xfffffffflu, digits >> 32u);
    for (var which = 0u; which < 2u; which += 1u) {
        let factor = select(factors[0], factors[1], which == 1u);
        var carry = 0lu;
        for (var i = 0u; i + which < 6u; i += 1u) {
            let sum = factor * u64(window[5u - i]) + u64(product[5u - i - which]) + carry;
            product[5u - i - which] = u32(sum & 0xfffffffflu);
            carry = sum >> 32u;
        }
    }
    // Two bits of whole quarters, then the fraction, of which one above a half is negative.
    var high = (u64(product[0]) << 32u) | u64(product[1]);
    var low = (u64(product[2]) << 32u) | u64(product[3]);
    var n = i32(high >> 62u);
    high = (high << 2u) | (low >> 62u);
    low = (low << 2u) | u64(product[4] >> 30u);
    let is_above = high >= 0x8000000000000000lu;
    if is_above {
        n += 1;
        high = ~high;
        low = ~low;
    }
    let fraction = f64(high) * 5.421010862427522e-20lf + f64(low) * 2.938735877055719e-39lf;
    let rest = select(fraction, -fraction, is_above) * 1.5707963267948966lf;
    let is_turned = double_is_negative(x);
    return DoubleTurn(select(n, -n, is_turned), select(rest, -rest, is_turned));
}

fn double_turn(x: f64) -> DoubleTurn {
    if abs(x) >= 1048576.0lf { return double_far_turn(x); }
    let n = double_round(x * 0.6366197723675814lf);
    // π/2 in parts of 33 bits, whose products are exact.
    let rest = x - n * 1.5707963267341256lf - n * 6.077100506303966e-11lf - n * 2.0222662487111665e-21lf
        - n * 8.4784276603689e-32lf;
    return DoubleTurn(i32(n), rest);
}

// sin(x + shift · π/2).
fn double_wave(x: f64, shift: i32) -> f64 {
    if double_is_infinite(x) || double_is_nan(x) { return double_nan(); }
    let turn = double_turn(x);
    let quarter = turn.n + shift;
    let r = turn.rest;
    let z = r * r;
    // The series of both over ±π/4.
    var y = 0.0lf;
    if (quarter & 1) == 1 {
        var p = -1.5619206968586225e-16lf;
        p = p * z + 4.779477332387385e-14lf;
        p = p * z + (-1.1470745597729725e-11lf);
        p = p * z + 2.08767569878681e-09lf;
        p = p * z + (-2.755731922398589e-07lf);
        p = p * z + 2.48015873015873e-05lf;
        p = p * z + (-0.001388888888888889lf);
        p = p * z + 0.041666666666666664lf;
        y = p * z * z - z * 0.5lf + 1.0lf;
    } else {
        var p = 2.8114572543455206e-15lf;
        p = p * z + (-7.647163731819816e-13lf);
        p = p * z + 1.6059043836821613e-10lf;
        p = p * z + (-2.505210838544172e-08lf);
        p = p * z + 2.7557319223985893e-06lf;
        p = p * z + (-0.0001984126984126984lf);
        p = p * z + 0.008333333333333333lf;
        p = p * z + (-0.16666666666666666lf);
        y = p * z * r + r;
    }
    return select(y, -y, (quarter & 2) != 0);
}

fn double_sin(x: f64) -> f64 {
    return select(double_wave(x, 0), x, x == 0.0lf);
}

fn double_cos(x: f64) -> f64 {
    return double_wave(x, 1);
}

fn double_tan(x: f64) -> f64 {
    return double_sin(x) / double_cos(x);
}

fn double_half_exp(x: f64) -> f64 {
    let root = double_exp(x * 0.5lf);
    return root * 0.5lf * root;
}

fn double_sinh(x: f64) -> f64 {
    let t = abs(x);
    let e = double_exp_m1(min(t, 700.0lf));
    let y = select((e + e / (e + 1.0lf)) * 0.5lf, double_half_exp(t), t > 700.0lf);
    return select(double_signed_as(y, x), x, double_is_nan(x));
}

fn double_cosh(x: f64) -> f64 {
    let t = abs(x);
    let e = double_exp(min(t, 700.0lf));
    let y = select((e + 1.0lf / e) * 0.5lf, double_half_exp(t), t > 700.0lf);
    return select(y, x, double_is_nan(x));
}

fn double_tanh(x: f64) -> f64 {
    let t = min(abs(x), 20.0lf);
    let e = double_exp_m1(t + t);
    return select(double_signed_as(e / (e + 2.0lf), x), x, double_is_nan(x));
}

fn double_asinh(x: f64) -> f64 {
    let t = abs(x);
    let square = t * t;
    let small = double_log_1p(t + square / (sqrt(square + 1.0lf) + 1.0lf));
    let y = select(small, double_log(t) + 0.6931471805599453lf, t > 1e9lf);
    return select(double_signed_as(y, x), x, double_is_nan(x));
}

fn double_acosh(x: f64) -> f64 {
    if x < 1.0lf { return double_nan(); }
    let t = x - 1.0lf;
    let small = double_log_1p(t + sqrt(t + t + t * t));
    return select(small, double_log(x) + 0.6931471805599453lf, x > 1e9lf);
}

fn double_atanh(x: f64) -> f64 {
    let t = abs(x);
    if t > 1.0lf || double_is_nan(x) { return double_nan(); }
    if t == 1.0lf { return double_signed_as(double_infinity(), x); }
    return double_signed_as(double_log_1p((t + t) / (1.0lf - t)) * 0.5lf, x);
}

fn double_atan(x: f64) -> f64 {
    // atan(t) = atan(c) + atan((t - c) / (1 + t c)): what is left lies within ±7/16 (the reduction of FreeBSD's `atan`).
    let t = abs(x);
    var reduced = t;
    var start = 0.0lf;
    var rest = 0.0lf;
    if t >= 2.4375lf {
        reduced = -1.0lf / t;
        start = 1.5707963267948966lf;
        rest = 6.123233995736766e-17lf;
    } else if t >= 1.1875lf {
        reduced = (t - 1.5lf) / (1.0lf + 1.5lf * t);
        start = 0.982793723247329lf;
        rest = 1.3903311031230998e-17lf;
    } else if t >= 0.6875lf {
        reduced = (t - 1.0lf) / (t + 1.0lf);
        start = 0.7853981633974483lf;
        rest = 3.061616997868383e-17lf;
    } else if t >= 0.4375lf {
        reduced = (t + t - 1.0lf) / (t + 2.0lf);
        start = 0.4636476090008061lf;
        rest = 2.2698777452961687e-17lf;
    }
    let z = reduced * reduced;
    // (atan(√z) / √z - 1) / z over [0, 0.1915].
    var p = 0.01476642155379467lf;
    p = p * z + (-0.033121323310643644lf);
    p = p * z + 0.044919637149159995lf;
    p = p * z + (-0.05216607416783708lf);
    p = p * z + 0.0587693549653035lf;
    p = p * z + (-0.06666240859375808lf);
    p = p * z + 0.0769228548876496lf;
    p = p * z + (-0.09090908353049669lf);
    p = p * z + 0.11111111096587765lf;
    p = p * z + (-0.1428571428556615lf);
    p = p * z + 0.19999999999999407lf;
    p = p * z + (-0.3333333333333333lf);
    let y = start + (p * z * reduced + rest + reduced);
    return select(double_signed_as(y, x), x, double_is_nan(x));
}

fn double_atan2(y: f64, x: f64) -> f64 {
    if double_is_nan(x) || double_is_nan(y) { return double_nan(); }
    let rise = abs(y);
    let run = abs(x);
    let is_steep = rise > run;
    let less = select(rise, run, is_steep);
    let more = select(run, rise, is_steep);
    var ratio = less / more;
    if more == 0.0lf { ratio = 0.0lf; }
    if double_is_infinite(less) { ratio = 1.0lf; }
    var angle = double_atan(ratio);
    if is_steep { angle = 1.5707963267948966lf - (angle - 6.123233995736766e-17lf); }
    if double_is_negative(x) { angle = 3.141592653589793lf - (angle - 1.2246467991473532e-16lf); }
    return double_signed_as(angle, y);
}

fn double_asin(x: f64) -> f64 {
    if abs(x) > 1.0lf || double_is_nan(x) { return double_nan(); }
    return double_atan2(x, sqrt((1.0lf - x) * (1.0lf + x)));
}

fn double_acos(x: f64) -> f64 {
    if abs(x) > 1.0lf || double_is_nan(x) { return double_nan(); }
    let half = double_atan2(sqrt(1.0lf - x), sqrt(1.0lf + x));
    return half + half;
}

fn double_erf(x: f64) -> f64 {
    let t = abs(x);
    if t < 1.0lf {
        // erf(x) / x in x².
        let z = x * x;
        var p = 5.957176147748911e-11lf;
        p = p * z + (-1.1372848856791674e-09lf);
        p = p * z + 1.4659775274047436e-08lf;
        p = p * z + (-1.6350312701054695e-07lf);
        p = p * z + 1.6461000484121368e-06lf;
        p = p * z + (-1.4925595266831182e-05lf);
        p = p * z + 0.0001205533111164271lf;
        p = p * z + (-0.000854832698083379lf);
        p = p * z + 0.0052239776248180145lf;
        p = p * z + (-0.026866170645076792lf);
        p = p * z + 0.11283791670954879lf;
        p = p * z + (-0.3761263890318375lf);
        p = p * z + 1.1283791670955126lf;
        return p * x;
    }
    // e^(t²) (1 - erf(t)) in 1 / (t + 2) over [1, 6]; beyond, erf is 1.
    let u = 1.0lf / (min(t, 6.0lf) + 2.0lf);
    var p = 7241.832068299164lf;
    p = p * u + (-33063.86718242781lf);
    p = p * u + 69434.94504235237lf;
    p = p * u + (-88329.34593707678lf);
    p = p * u + 75374.85704999088lf;
    p = p * u + (-45167.272303337464lf);
    p = p * u + 19465.90134660232lf;
    p = p * u + (-6217.025580009104lf);
    p = p * u + 1572.5501348896155lf;
    p = p * u + (-324.985262991332lf);
    p = p * u + 41.44118196262575lf;
    p = p * u + (-6.297087139151726lf);
    p = p * u + 3.260197627055993lf;
    p = p * u + 2.77808319883345lf;
    p = p * u + 1.9770061656575117lf;
    p = p * u + 1.1282898808900577lf;
    p = p * u + 0.564191702770897lf;
    p = p * u + (-2.3585086223305642e-08lf);
    let bounded = min(t, 6.0lf);
    let y = double_signed_as(1.0lf - p * double_exp(-bounded * bounded), x);
    return select(y, x, double_is_nan(x));
}

// A sum of two numbers, of which the second is at most a rounding of the first.
struct DoubleSum { high: f64, low: f64 }

// A sum, and what rounding took from it; `a` is not smaller in size than `b`, or 0.
fn double_two_sum(a: f64, b: f64) -> DoubleSum {
    let sum = double_opaque(a + b);
    return DoubleSum(sum, b - (sum - a));
}

// A product, and what rounding took from it: by halves, whose products are exact (Dekker 1971).
fn double_two_product(a: f64, b: f64) -> DoubleSum {
    let product = double_opaque(a * b);
    let high_a = bitcast<f64>(bitcast<u64>(a) & 0xfffffffff8000000lu);
    let high_b = bitcast<f64>(bitcast<u64>(b) & 0xfffffffff8000000lu);
    let low_a = a - high_a;
    let low_b = b - high_b;
    return DoubleSum(product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b);
}

// The logarithm of a positive, finite number, to about 2^-65 of itself.
fn double_precise_log(x: f64) -> DoubleSum {
    let split = double_split_log(x);
    let f = split.f;
    // 2 artanh(s) for s = f / (2 + f), as its series: what is below a sixtieth of it needs no second number.
    let w = double_two_sum(2.0lf, f);
    let s = f / w.high;
    let back = double_two_product(s, w.high);
    let s_low = (((f - back.high) - back.low) - s * w.low) / w.high;
    var square = double_two_product(s, s);
    square.low += 2.0lf * s * s_low;
    var cube = double_two_product(square.high, s);
    cube.low += square.low * s + square.high * s_low;
    var third = double_two_product(cube.high, 0.6666666666666666lf);
    third.low += cube.low * 0.6666666666666666lf + cube.high * 3.700743415417188e-17lf;
    let z = square.high;
    var p = 0.08695652173913043lf;
    p = p * z + 0.09523809523809523lf;
    p = p * z + 0.10526315789473684lf;
    p = p * z + 0.11764705882352941lf;
    p = p * z + 0.13333333333333333lf;
    p = p * z + 0.15384615384615385lf;
    p = p * z + 0.18181818181818182lf;
    p = p * z + 0.2222222222222222lf;
    p = p * z + 0.2857142857142857lf;
    p = p * z + 0.4lf;
    let first = double_two_sum(s + s, third.high);
    let low = first.low + (s_low + s_low) + third.low + p * z * cube.high;
    let sum = double_two_sum(split.e * 0.6931471803691238lf, first.high);
    return double_two_sum(sum.high, sum.low + (split.e * 1.9082149292705877e-10lf + low));
}

fn double_pow(x: f64, y: f64) -> f64 {
    if y == 0.0lf || x == 1.0lf { return 1.0lf; }
    if double_is_nan(x) || double_is_nan(y) { return double_nan(); }
    let base = abs(x);
    let is_whole = double_floor(y) == y;
    if double_is_negative(x) && x != 0.0lf && !is_whole && !double_is_infinite(x) && !double_is_infinite(y) {
        return double_nan();
    }
    var magnitude = 1.0lf;
    if base != 1.0lf {
        let rough = y * double_log(base);
        if base == 0.0lf || double_is_infinite(base) || double_is_infinite(y) || abs(rough) > 800.0lf {
            magnitude = double_exp(rough);
        } else {
            let log = double_precise_log(base);
            var product = double_two_product(y, log.high);
            product.low += y * log.low;
            magnitude = double_exp(product.high);
            magnitude = select(magnitude + magnitude * product.low, magnitude, double_is_infinite(magnitude));
        }
    }
    let is_odd = is_whole && double_floor(y * 0.5lf) != y * 0.5lf;
    return select(magnitude, -magnitude, double_is_negative(x) && is_odd);
}

// The digits and the exponent of a positive, finite number: digits · 2^exponent, with 53 digits.
struct DoubleDigits { digits: u64, exponent: i32 }

fn double_digits(x: f64) -> DoubleDigits {
    let is_tiny = x < 2.2250738585072014e-308lf;
    let bits = bitcast<u64>(select(x, x * 18014398509481984.0lf, is_tiny));
    let digits = (bits & 0xffffffffffffflu) | 0x10000000000000lu;
    return DoubleDigits(digits, i32(bits >> 52u) - select(1075, 1129, is_tiny));
}

// Remainder with the sign of the dividend; exact, since no digit is rounded.
fn double_fmod(a: f64, b: f64) -> f64 {
    if b == 0.0lf || double_is_infinite(a) || double_is_nan(a) || double_is_nan(b) { return double_nan(); }
    if abs(a) < abs(b) { return a; }
    let divisor = double_digits(abs(b));
    let dividend = double_digits(abs(a));
    var rest = dividend.digits;
    for (var exponent = dividend.exponent; exponent > divisor.exponent; exponent -= 1) {
        if rest >= divisor.digits { rest -= divisor.digits; }
        rest = rest << 1u;
    }
    if rest >= divisor.digits { rest -= divisor.digits; }
    return double_signed_as(double_scaled(f64(rest), divisor.exponent), a);
}
