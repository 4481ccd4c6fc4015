//! Random numbers: xoshiro256++ (Blackman & Vigna 2019), seeded by SplitMix64.

use crate::ops::cast;
use crate::sync::Mutex;
use crate::tensor::NdArrayTensor;
use kiln_kernels::dropout::Dropout;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{DType, Distribution, Shape, bf16, f16};
use num_traits::Float;

static STATE: Mutex<Generator> = Mutex::new(Generator::seeded(0x6b69_6c6e));

struct Generator([u64; 4]);

impl Generator {
    const fn seeded(seed: u64) -> Self {
        let mut state = [0; 4];
        let mut x = seed;
        let mut i = 0;
        while i < 4 {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            state[i] = z ^ (z >> 31);
            i += 1;
        }
        Self(state)
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform over `[0, 1)`.
    fn unit(&mut self) -> f64 {
        // 24 bits, so that the value is exact in f32 too and never rounds up to 1.
        (self.next() >> 40) as f64 / (1u64 << 24) as f64
    }

    /// Standard normal (Box & Muller 1958).
    fn normal(&mut self) -> f64 {
        let radius = Float::sqrt(-2.0 * Float::ln(1.0 - self.unit()));
        radius * Float::cos(core::f64::consts::TAU * self.unit())
    }
}

#[cfg(feature = "std")]
std::thread_local! {
    /// The sequence of a thread that has one of its own.
    static OWN: core::cell::Cell<Option<Generator>> = const { core::cell::Cell::new(None) };
}

/// Draws from this thread's sequence, or the device's.
fn with<R>(draw: impl FnOnce(&mut Generator) -> R) -> R {
    #[cfg(feature = "std")]
    if let Some(mut own) = OWN.take() {
        let drawn = draw(&mut own);
        OWN.set(Some(own));
        return drawn;
    }
    STATE.with(draw)
}

/// Restarts the sequence.
pub(crate) fn seed(seed: u64) {
    STATE.with(|state| *state = Generator::seeded(seed));
}

/// Begins a sequence of this thread's own, or ends it. Without an operating system there is one thread.
pub(crate) fn seed_thread(seed: Option<u64>) {
    #[cfg(feature = "std")]
    OWN.set(seed.map(Generator::seeded));
    #[cfg(not(feature = "std"))]
    let _ = seed;
}

/// A key of its own for each call, reproducible like all that is drawn.
pub(crate) fn key() -> u64 {
    with(Generator::next)
}

/// Drops floats by the words that belong to a key and their positions, and scales the others. The scale has the tensor's dtype, as
/// the operand of any operation has.
pub(crate) fn dropout(x: NdArrayTensor, probability: f64, key: u64) -> NdArrayTensor {
    let scale = if probability < 1.0 { 1.0 / (1.0 - probability) } else { 0.0 };
    let dropout = Dropout::new(probability, key);
    match x.dtype() {
        DType::F16 => {
            let scale = f16::from_f64(scale).to_f32();
            x.edit(|elements| dropout.mapped(elements, |x: f16| f16::from_f32(x.to_f32() * scale)))
        }
        DType::BF16 => {
            let scale = bf16::from_f64(scale).to_f32();
            x.edit(|elements| dropout.mapped(elements, |x: bf16| bf16::from_f32(x.to_f32() * scale)))
        }
        DType::F64 => x.edit(|elements| dropout.mapped(elements, |x: f64| x * scale)),
        DType::F32 => x.transform(|data| dropout.scaled(scale as f32, data)),
        dtype => unreachable!("dropout of {dtype}"),
    }
}

/// Random values, reproducible after [`seed`] as long as tensors are asked for in the same order.
pub(crate) fn random(shape: Shape, distribution: Distribution, dtype: DType) -> NdArrayTensor {
    if distribution == Distribution::Default && !dtype.is_float() {
        return integers(shape, dtype);
    }
    let draw = |generator: &mut Generator| match distribution {
        Distribution::Default => generator.unit(),
        Distribution::Bernoulli(probability) => f64::from(u8::from(generator.unit() < probability)),
        Distribution::Uniform(low, high) => low + (high - low) * generator.unit(),
        Distribution::Normal(mean, deviation) => mean + deviation * generator.normal(),
    };
    let values = NdArrayTensor::build(shape, DType::F64, |out: &mut [f64]| {
        with(|state| out.iter_mut().for_each(|x| *x = draw(state)));
    });
    let floored = dtype.is_int() && matches!(distribution, Distribution::Uniform(..));
    let values = if floored { crate::ops::unary::unary(kiln_tensor::UnaryOp::Floor, values) } else { values };
    cast::cast(values, dtype)
}

/// Uniform over all values of an integer dtype, or over false and true.
fn integers(shape: Shape, dtype: DType) -> NdArrayTensor {
    let mask = if dtype == DType::Bool { 1 } else { u64::MAX };
    by_size!(dtype, T => NdArrayTensor::build(shape, dtype, |out: &mut [T]| {
        with(|state| out.iter_mut().for_each(|x| *x = state.next() as T & mask as T));
    }))
}
