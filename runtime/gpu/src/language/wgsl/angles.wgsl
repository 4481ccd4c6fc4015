// Sine and cosine of angles above 8,000, which devices take to few digits or none (Payne & Hanek 1983, "Radian Reduction for
// Trigonometric Functions"); 0 of others.

// 2/π behind 32 zeros, as words.
var<private> two_over_pi: array<u32, 9> = array<u32, 9>(
    0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u,
);

// The product of two words, the lower first: by halves, so that no sum overflows.
fn word_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return vec2<u32>((second << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u));
}

// sin(x + shift · π/2).
fn far_wave(x: f32, shift: u32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if bits < 0x45fa0000u || bits >= 0x7f800000u { return 0.0f; }
    let digits = (bits & 0x7fffffu) | 0x800000u;
    // 96 bits of 2/π, from the one on whose product with the lowest digit is below 4: the others make whole turns.
    let start = (bits >> 23u) - 120u;
    let by = start & 31u;
    var window: array<u32, 3>;
    for (var i = 0u; i < 3u; i += 1u) {
        let high = two_over_pi[start / 32u + i];
        let low = two_over_pi[start / 32u + i + 1u];
        window[i] = select((high << by) | (low >> ((32u - by) & 31u)), high, by == 0u);
    }
    let lowest = word_product(digits, window[2]);
    let next = word_product(digits, window[1]);
    let middle = next.x + lowest.y;
    let highest = digits * window[0] + next.y + select(0u, 1u, middle < next.x);
    // Two bits of whole quarters, then the fraction, of which one above a half is negative.
    var quarter = highest >> 30u;
    var high = (highest << 2u) | (middle >> 30u);
    var low = (middle << 2u) | (lowest.x >> 30u);
    let is_above = high >= 0x80000000u;
    if is_above {
        quarter += 1u;
        high = ~high;
        low = ~low;
    }
    let fraction = f32(high) * 2.3283064365386963e-10f + f32(low) * 5.421010862427522e-20f;
    var r = select(fraction, -fraction, is_above) * 1.5707964f;
    if x < 0.0f {
        quarter = 0u - quarter;
        r = -r;
    }
    quarter += shift;
    let z = r * r;
    let sine = (((2.7175643e-6f * z - 0.00019839256f) * z + 0.008333329f) * z - 0.16666667f) * z * r + r;
    let cosine = (((-2.7203302e-7f * z + 2.4799436e-5f) * z - 0.0013888883f) * z + 0.041666668f) * z * z - 0.5f * z + 1.0f;
    let y = select(sine, cosine, (quarter & 1u) == 1u);
    return select(y, -y, (quarter & 2u) != 0u);
}

fn far_sin(x: f32) -> f32 { return far_wave(x, 0u); }
fn far_cos(x: f32) -> f32 { return far_wave(x, 1u); }
