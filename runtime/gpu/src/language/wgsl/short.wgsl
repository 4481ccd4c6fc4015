// e^x for what is rounded to 16 bits: nothing that devices have is as exact on all of them, so that it is what exp of 32-bit floats is.
fn short_exp(x: f32) -> f32 {
    let t = min(max(x, -105.0f), 89.0f);
    let n = round(t * 1.442695f);
    let r = (t - n * 0.69314575f) - n * 1.4286068e-6f;
    let rest = 0.5f + r * (0.16666518f + r * (0.041666202f + r * (0.008369025f + r * 0.0013950721f)));
    let is_nan = (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
    let whole = i32(select(n, 0.0f, is_nan));
    let half = whole >> 1u;
    let scaled = (1.0f + (r + r * r * rest)) * bitcast<f32>((half + 127) << 23u);
    return select(scaled * bitcast<f32>((whole - half + 127) << 23u), x, is_nan);
}
