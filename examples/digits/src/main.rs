//! Classifies 360 handwritten digits that the network has never seen.
//!
//! `build.rs` compiled `fixtures/digits/model.onnx` to the source that is included below. The images are the held-out
//! part of scikit-learn's digits: 65 bytes each, 8×8 pixels from 0 to 16 and the label.

use kiln::backend::NdArray;
use kiln::tensor::{Tensor, TensorData};

mod digits {
    include!(concat!(env!("OUT_DIR"), "/model/model.rs"));
}

const HELD_OUT: &[u8] = include_bytes!("../../../fixtures/digits/held_out.bin");
const PIXELS: usize = 8 * 8;
const SHOWN: usize = 3;

type B = NdArray;

fn main() {
    let device = Default::default();
    let model = digits::Model::<B>::default();

    let (images, labels) = read(HELD_OUT);
    let count = labels.len();
    let input = Tensor::<B, 4>::from_data(TensorData::new(images, [count, 1, 8, 8]), &device);
    let answers: Vec<i64> = model.forward(input).argmax(1).into_data().iter::<i64>().collect();

    for (image, answer) in HELD_OUT.chunks_exact(PIXELS + 1).zip(&answers).take(SHOWN) {
        println!("{}  → {answer}\n", picture(&image[..PIXELS]));
    }
    let correct = answers.iter().zip(&labels).filter(|(answer, label)| *answer == *label).count();
    println!("{correct} of {count} right: accuracy {:.4}", correct as f64 / count as f64);
}

/// Pixels scaled to `0..=1`, as the network was trained, and labels.
fn read(records: &[u8]) -> (Vec<f32>, Vec<i64>) {
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for record in records.chunks_exact(PIXELS + 1) {
        images.extend(record[..PIXELS].iter().map(|&pixel| f32::from(pixel) / 16.0));
        labels.push(i64::from(record[PIXELS]));
    }
    (images, labels)
}

/// An image in characters, two a pixel so that it looks square.
fn picture(pixels: &[u8]) -> String {
    let shade = |&pixel: &u8| ["  ", "░░", "▒▒", "▓▓", "██"][usize::from(pixel.min(16)).div_ceil(4)];
    let rows = pixels.chunks(8).map(|row| row.iter().map(shade).collect::<String>());
    rows.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PyTorch's answers on the same images, from `scripts/train_digits.py`.
    const EXPECTED: &str = include_str!("../../../fixtures/digits/expected.json");

    #[test]
    fn answers_are_pytorchs() {
        let (images, labels) = read(HELD_OUT);
        let data = TensorData::new(images, [labels.len(), 1, 8, 8]);
        let logits = digits::Model::<B>::default().forward(Tensor::from_data(data, &Default::default()));
        let answers: String = logits.argmax(1).into_data().iter::<i64>().map(|a| a.to_string()).collect();
        assert!(EXPECTED.contains(&format!("\"predictions\": \"{answers}\"")), "answers differ: {answers}");
    }
}
