//! Models in a crate without the standard library.
#![no_std]

#[cfg(test)]
extern crate std;

use kiln::backend::NdArray;
use kiln::tensor::backend::Backend as _;
use kiln::tensor::{Int, Tensor, TensorData};

mod residual {
    include!(concat!(env!("OUT_DIR"), "/net_residual_cnn/model.rs"));
}

mod tagger {
    include!(concat!(env!("OUT_DIR"), "/net_lstm_tagger/model.rs"));
}

type Cpu = NdArray<f32>;
type Device = <Cpu as kiln::tensor::backend::Backend>::Device;

/// The class of a grey image of 32 × 32 in three equal channels.
pub fn classify(pixels: [[f32; 32]; 32]) -> i64 {
    let device = Device::default();
    let image = Tensor::<Cpu, 2>::from_floats(pixels, &device).reshape([1, 1, 32, 32]).repeat_dim(1, 3);
    let scores = residual::Model::<Cpu>::default().forward(image);
    scores.argmax(1).into_scalar()
}

/// The scores of the tags of two sequences of nine words.
pub fn tag(words: [[i64; 9]; 2]) -> TensorData {
    let device = Device::default();
    Cpu::seed(&device, 0);
    let words = Tensor::<Cpu, 2, Int>::from_data(words, &device);
    tagger::Model::<Cpu>::from_embedded(&device).forward(words).into_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_run() {
        assert!((0..10).contains(&classify([[0.5; 32]; 32])));
        let scores = tag([[1; 9], [2; 9]]);
        assert_eq!(scores.shape[..2], [2, 9]);
        assert!(scores.iter::<f32>().all(f32::is_finite));
    }
}
