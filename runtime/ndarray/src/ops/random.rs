//! Random numbers: Philox, by keys that follow from a seed.

use crate::sync::Mutex;
use crate::tensor::NdArrayTensor;
use kiln_kernels::dropout::Dropout;
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::{Draws, random_data};
use kiln_tensor::{DType, Distribution, Shape, bf16, f16};

static DRAWS: Mutex<Draws> = Mutex::new(Draws::unseeded());

#[cfg(feature = "std")]
std::thread_local! {
    /// The sequence of a thread that has one of its own.
    static OWN: core::cell::Cell<Option<Draws>> = const { core::cell::Cell::new(None) };
}

/// Draws from this thread's sequence, or the device's.
fn with<R>(draw: impl FnOnce(&mut Draws) -> R) -> R {
    #[cfg(feature = "std")]
    if let Some(mut own) = OWN.take() {
        let drawn = draw(&mut own);
        OWN.set(Some(own));
        return drawn;
    }
    DRAWS.with(draw)
}

/// Restarts the sequence.
pub(crate) fn seed(seed: u64) {
    DRAWS.with(|draws| *draws = Draws::new(seed));
}

/// Begins a sequence of this thread's own, or ends it. Without an operating system there is one thread.
pub(crate) fn seed_thread(seed: Option<u64>) {
    #[cfg(feature = "std")]
    OWN.set(seed.map(Draws::new));
    #[cfg(not(feature = "std"))]
    let _ = seed;
}

/// A key of its own for each call, reproducible like all that is drawn.
pub(crate) fn key() -> u64 {
    with(Draws::next_key)
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
    NdArrayTensor::from_data(random_data(key(), shape, distribution, dtype))
}
