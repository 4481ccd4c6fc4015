//! Encodings of positions.

use super::display::layer_display;
use crate::config::Config;
use crate::module::Module;
use crate::tensor::{Tensor, TensorData, backend::Backend, elementwise};
use alloc::vec::Vec;
use core::ops::Range;
use num_traits::Float;

/// Configuration of [`PositionalEncoding`].
#[derive(Config, Debug)]
pub struct PositionalEncodingConfig {
    /// Longest sequence.
    #[config(default = "5_000")]
    pub max_sequence_size: usize,
    /// Size of each vector; even.
    pub d_model: usize,
    /// Longest wavelength over 2π.
    #[config(default = "10_000")]
    pub max_timescale: usize,
}

/// Adds sines and cosines of the position (Vaswani et al. 2017, section 3.5).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct PositionalEncoding<B: Backend> {
    /// `[1, max_sequence_size, d_model]`.
    pub sinusoids: Tensor<B, 3>,
    /// Longest sequence.
    pub max_sequence_size: usize,
    /// Longest wavelength over 2π.
    pub max_timescale: usize,
}

impl PositionalEncodingConfig {
    /// The layer.
    pub fn init<B: Backend>(&self, device: &B::Device) -> PositionalEncoding<B> {
        let table = generate_sinusoids::<B>(self.max_sequence_size, self.d_model, self.max_timescale, device);
        PositionalEncoding {
            sinusoids: table.unsqueeze_dim(0),
            max_sequence_size: self.max_sequence_size,
            max_timescale: self.max_timescale,
        }
    }
}

impl<B: Backend> PositionalEncoding<B> {
    /// `[batch, seq, d_model]`, same shape.
    ///
    /// # Panics
    /// When the sequence is too long or the vectors have another size.
    pub fn forward(&self, input: Tensor<B, 3>) -> Tensor<B, 3> {
        let [_, seq, size] = input.dims();
        let [_, longest, d_model] = self.sinusoids.dims();
        assert!(seq <= longest, "PositionalEncoding: a sequence of {seq} is longer than {longest}");
        assert!(size == d_model, "PositionalEncoding: vectors of size {size}, expected {d_model}");
        // A table is no parameter: it stays f32 in a module that computes in 16 bits.
        let dtype = input.dtype();
        input + self.sinusoids.clone().slice([0..1, 0..seq, 0..size]).cast(dtype)
    }
}

layer_display!(PositionalEncoding<B>, |layer| {
    "d_model" => layer.sinusoids.dims()[2],
    "max_sequence_size" => layer.max_sequence_size,
    "max_timescale" => layer.max_timescale,
});

/// The table of [`PositionalEncoding`]: `[length, d_model]`, sines at even, cosines at odd places.
///
/// # Panics
/// When `d_model` is odd or `max_timescale` shorter than `length`.
pub fn generate_sinusoids<B: Backend>(
    length: usize,
    d_model: usize,
    max_timescale: usize,
    device: &B::Device,
) -> Tensor<B, 2> {
    assert!(d_model.is_multiple_of(2), "generate_sinusoids: d_model {d_model} must be even");
    assert!(
        max_timescale >= length,
        "generate_sinusoids: max_timescale {max_timescale} must not be less than the length {length}"
    );
    let decay = -Float::ln(max_timescale as f32) / d_model as f32;
    let mut table = Vec::with_capacity(length * d_model);
    for position in 0..length {
        for k in (0..d_model).step_by(2) {
            let angle = Float::exp(k as f32 * decay) * position as f32;
            table.push(Float::sin(angle));
            table.push(Float::cos(angle));
        }
    }
    Tensor::from_data(TensorData::new(table, [length, d_model]), device)
}

/// Configuration of [`RotaryEncoding`].
#[derive(Config, Debug)]
pub struct RotaryEncodingConfig {
    /// Longest sequence.
    pub max_sequence_length: usize,
    /// Size of each vector; even.
    pub d_model: usize,
    /// Base of the wavelengths.
    #[config(default = "10000.0")]
    pub theta: f32,
}

/// Rotates neighbouring pairs by angles that grow with the position (Su et al. 2021).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct RotaryEncoding<B: Backend> {
    /// Cosine and sine of every angle, each twice: `[max_sequence_length, d_model, 2]`.
    pub freq_complex: Tensor<B, 3>,
    /// Angle of position 1, `[d_model / 2]`.
    pub theta: Tensor<B, 1>,
    /// Position of the table's first row.
    start_offset: usize,
}

impl RotaryEncodingConfig {
    /// The layer.
    ///
    /// # Panics
    /// When `d_model` is odd or `theta` not positive.
    pub fn init<B: Backend>(&self, device: &B::Device) -> RotaryEncoding<B> {
        self.init_with_frequency_scaling(|angles| angles, device)
    }

    /// The layer with the angles of position 1, `[d_model / 2]`, that `scaling` makes of the usual ones, as what extends a model to
    /// longer sequences does.
    ///
    /// # Panics
    /// When `d_model` is odd or `theta` not positive.
    pub fn init_with_frequency_scaling<B: Backend>(
        &self,
        scaling: impl Fn(Tensor<B, 1>) -> Tensor<B, 1>,
        device: &B::Device,
    ) -> RotaryEncoding<B> {
        assert!(self.d_model.is_multiple_of(2), "RotaryEncoding: d_model {} must be even", self.d_model);
        assert!(self.theta > 0.0, "RotaryEncoding: theta must be positive, got {}", self.theta);
        let pairs = self.d_model / 2;
        let angle = |i: usize| Float::exp(-(2.0 * i as f32 / self.d_model as f32) * Float::ln(self.theta));
        let steps: Vec<f32> = (0..pairs).map(angle).collect();
        let theta = scaling(Tensor::from_data(TensorData::new(steps, [pairs]), device));
        let freq_complex = rotations(0..self.max_sequence_length, &theta);
        RotaryEncoding { freq_complex, theta, start_offset: 0 }
    }
}

impl<B: Backend> RotaryEncoding<B> {
    /// `[…, seq, d_model]`, same shape, from the table's first position, which is 0 unless it was [shifted](Self::shift).
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        self.apply(x, 0)
    }

    /// Moves the table to as many positions from `start` on, so that sequences beyond the longest can go on.
    ///
    /// # Panics
    /// When `start` is not beyond the table's first position.
    pub fn shift(&mut self, start: usize) {
        let first = self.start_offset;
        assert!(start > first, "RotaryEncoding: shifted to position {start}, which is not beyond {first}");
        let [size, _, _] = self.freq_complex.dims();
        let end = first + size;
        self.freq_complex = if start < end {
            let kept = self.freq_complex.clone().narrow(0, start - first, end - start);
            Tensor::cat(alloc::vec![kept, rotations(end..start + size, &self.theta)], 0)
        } else {
            rotations(start..start + size, &self.theta)
        };
        self.start_offset = start;
    }

    /// `[…, seq, d_model]`, same shape, from a given row of the table on.
    ///
    /// # Panics
    /// When the rank is below 2 or the sequence ends after the longest.
    pub fn apply<const D: usize>(&self, x: Tensor<B, D>, start: usize) -> Tensor<B, D> {
        assert!(D >= 2, "RotaryEncoding: a tensor of rank {D}, expected at least 2");
        let dims = x.dims();
        let (seq, size) = (dims[D - 2], dims[D - 1]);
        let [longest, _, _] = self.freq_complex.dims();
        assert!(start + seq <= longest, "RotaryEncoding: position {} is beyond {longest}", start + seq);
        let (rows, dtype) = (dims[..D - 2].iter().product::<usize>(), x.dtype());
        let pairs = x.reshape([rows, seq, size / 2, 2]);
        let part = |k: usize| {
            let table = self.freq_complex.clone().slice([start..start + seq, 0..size, k..k + 1]);
            table.cast(dtype).reshape([1, seq, size / 2, 2])
        };
        // (a, b) turned by an angle is (a cos - b sin, b cos + a sin); the other of a pair is the one that is read backwards.
        let others = pairs.clone().flip([3]);
        let turned = elementwise([pairs, others, part(0), part(1)], |[x, other, cos, sin]| {
            let is_first = x.iota(3).equal_elem(0);
            x * cos + other.clone().mask_where(is_first, -other) * sin
        });
        turned.reshape(dims)
    }
}

/// Cosine and sine of every angle at some positions, each twice: `[positions, d_model, 2]`, from the angles of position 1,
/// `[d_model / 2]`.
fn rotations<B: Backend>(positions: Range<usize>, theta: &Tensor<B, 1>) -> Tensor<B, 3> {
    let steps: Vec<f32> = theta.to_data().iter::<f32>().collect();
    let mut table = Vec::with_capacity(positions.len() * steps.len() * 4);
    for position in positions.clone() {
        for &step in &steps {
            let (sin, cos) = (position as f32 * step).sin_cos();
            table.extend([cos, sin, cos, sin]);
        }
    }
    Tensor::from_data(TensorData::new(table, [positions.len(), steps.len() * 2, 2]), &theta.device())
}

layer_display!(RotaryEncoding<B>, |layer| {
    "d_model" => layer.freq_complex.dims()[1],
    "max_sequence_length" => layer.freq_complex.dims()[0],
});
