// Integers of 64 bits as pairs of words, the lower first.

fn pair_negated(a: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(0u - a.x, 0u - a.y - select(0u, 1u, a.x != 0u));
}

fn pair_magnitude(a: vec2<u32>) -> vec2<u32> {
    return select(a, pair_negated(a), a.y >= 0x80000000u);
}

fn pair_sum(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn pair_difference(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn pair_product(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    // The product of the lower words, by halves of 16 bits: none of the sums overflows.
    let low_a = a.x & 0xffffu;
    let high_a = a.x >> 16u;
    let low_b = b.x & 0xffffu;
    let high_b = b.x >> 16u;
    let low = low_a * low_b;
    let first = high_a * low_b + (low >> 16u);
    let second = low_a * high_b + (first & 0xffffu);
    let high = high_a * high_b + (first >> 16u) + (second >> 16u);
    return vec2<u32>((second << 16u) | (low & 0xffffu), high + a.x * b.y + a.y * b.x);
}

fn pair_below(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn pair_signed_below(a: vec2<u32>, b: vec2<u32>) -> bool {
    return pair_below(a ^ vec2<u32>(0u, 0x80000000u), b ^ vec2<u32>(0u, 0x80000000u));
}

fn pair_shifted_left(a: vec2<u32>, by: u32) -> vec2<u32> {
    if by == 0u { return a; }
    if by >= 32u { return vec2<u32>(0u, a.x << (by & 31u)); }
    return vec2<u32>(a.x << by, (a.y << by) | (a.x >> (32u - by)));
}

// From above come words of `filling`.
fn pair_shifted_right_filling(a: vec2<u32>, by: u32, filling: u32) -> vec2<u32> {
    if by == 0u { return a; }
    if by == 32u { return vec2<u32>(a.y, filling); }
    if by > 32u { return vec2<u32>((a.y >> (by - 32u)) | (filling << (64u - by)), filling); }
    return vec2<u32>((a.x >> by) | (a.y << (32u - by)), (a.y >> by) | (filling << (32u - by)));
}

fn pair_shifted_right(a: vec2<u32>, by: u32) -> vec2<u32> {
    return pair_shifted_right_filling(a, by, 0u);
}

fn pair_signed_shifted_right(a: vec2<u32>, by: u32) -> vec2<u32> {
    return pair_shifted_right_filling(a, by, select(0u, 0xffffffffu, a.y >= 0x80000000u));
}

// Quotient and remainder, bit by bit; `b` is not 0.
fn pair_divided(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    if (a.y | b.y) == 0u { return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }
    var quotient = a;
    var rest = vec2<u32>(0u, 0u);
    for (var bit = 0u; bit < 64u; bit += 1u) {
        let carry = rest.y >> 31u;
        rest = vec2<u32>((rest.x << 1u) | (quotient.y >> 31u), (rest.y << 1u) | (rest.x >> 31u));
        quotient = vec2<u32>(quotient.x << 1u, (quotient.y << 1u) | (quotient.x >> 31u));
        if carry != 0u || !pair_below(rest, b) {
            rest = pair_difference(rest, b);
            quotient.x |= 1u;
        }
    }
    return vec4<u32>(quotient, rest);
}

fn pair_quotient(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return pair_divided(a, b).xy;
}

fn pair_remainder(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return pair_divided(a, b).zw;
}

fn pair_signed_quotient(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let quotient = pair_divided(pair_magnitude(a), pair_magnitude(b)).xy;
    return select(quotient, pair_negated(quotient), ((a.y ^ b.y) & 0x80000000u) != 0u);
}

fn pair_signed_remainder(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let rest = pair_divided(pair_magnitude(a), pair_magnitude(b)).zw;
    return select(rest, pair_negated(rest), a.y >= 0x80000000u);
}

// The nearest float: the 32 highest bits, of which the last also says whether any bit below is set, are rounded once.
fn pair_float(a: vec2<u32>) -> f32 {
    if a.y == 0u { return f32(a.x); }
    let shift = countLeadingZeros(a.y);
    let highest = pair_shifted_left(a, shift);
    let rounded = f32(highest.y | select(0u, 1u, highest.x != 0u));
    return rounded * bitcast<f32>((159u - shift) << 23u);
}

fn pair_signed_float(a: vec2<u32>) -> f32 {
    let magnitude = pair_float(pair_magnitude(a));
    return select(magnitude, -magnitude, a.y >= 0x80000000u);
}

// A float below 2^64, towards zero; 0 of negative ones.
fn pair_of_float(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    if x < 1.0f { return vec2<u32>(0u, 0u); }
    let exponent = bits >> 23u;
    let digits = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);
    if exponent < 150u { return pair_shifted_right(digits, 150u - exponent); }
    return pair_shifted_left(digits, min(exponent - 150u, 63u));
}

// A float below 2^63, towards zero; the least integer of those at most -2^63.
fn pair_of_signed_float(x: f32) -> vec2<u32> {
    if x <= -9223372036854775808.0f { return vec2<u32>(0u, 0x80000000u); }
    let magnitude = pair_of_float(abs(x));
    return select(magnitude, pair_negated(magnitude), x < 0.0f);
}
