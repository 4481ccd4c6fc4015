//! Masks for attention: true hides.

use crate::config::Config;
use crate::tensor::{Bool, Int, Tensor, TensorData, backend::Backend};
use alloc::vec::Vec;

/// Hides from each position those after it: `[batch, seq, seq]`.
pub fn generate_autoregressive_mask<B: Backend>(
    batch_size: usize,
    seq_length: usize,
    device: &B::Device,
) -> Tensor<B, 3, Bool> {
    let mask = Tensor::<B, 2, Bool>::tril_mask([seq_length, seq_length], 0, device);
    mask.unsqueeze_dim::<3>(0).expand([batch_size, seq_length, seq_length])
}

/// Sequences in one tensor, and what of it is padding.
#[derive(Clone, Debug)]
pub struct GeneratePaddingMask<B: Backend> {
    /// The tokens, padded: `[batch, seq]`.
    pub tensor: Tensor<B, 2, Int>,
    /// True where padding stands: `[batch, seq]`.
    pub mask: Tensor<B, 2, Bool>,
}

/// How long padded sequences become.
#[derive(Config, Debug, Copy)]
pub enum SeqLengthOption {
    /// As the longest.
    NoMax,
    /// As the longest, but not more.
    Max(usize),
    /// Always this.
    Fixed(usize),
}

impl From<Option<usize>> for SeqLengthOption {
    fn from(max: Option<usize>) -> Self {
        max.map_or(SeqLengthOption::NoMax, SeqLengthOption::Max)
    }
}

/// Pads (or cuts) token sequences to one length. A token equal to `pad_token` counts as padding wherever it stands.
pub fn generate_padding_mask<B: Backend>(
    pad_token: usize,
    tokens_list: Vec<Vec<usize>>,
    seq_length: impl Into<SeqLengthOption>,
    device: &B::Device,
) -> GeneratePaddingMask<B> {
    let longest = tokens_list.iter().map(Vec::len).max().unwrap_or(1);
    let size = match seq_length.into() {
        SeqLengthOption::NoMax => longest,
        SeqLengthOption::Max(max) => longest.min(max),
        SeqLengthOption::Fixed(size) => size,
    };
    let batch = tokens_list.len();
    let padded = tokens_list.into_iter().flat_map(|tokens| {
        tokens.into_iter().chain(core::iter::repeat(pad_token)).take(size).map(|token| token as i64)
    });
    let data = TensorData::new(padded.collect::<Vec<i64>>(), [batch, size]);
    let tensor = Tensor::<B, 2, Int>::from_data(data, device);
    let mask = tensor.clone().equal_elem(pad_token as i64);
    GeneratePaddingMask { tensor, mask }
}
