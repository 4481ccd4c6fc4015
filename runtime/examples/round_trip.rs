//! Loads a checkpoint into a module written by hand and saves it under PyTorch's names: what `scripts/round_trip.py` runs
//! between two halves in Python.
//!
//! `round_trip net|stack IN OUT.safetensors`

use kiln as root;
use kiln::backend::NdArray;
use kiln::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use kiln::nn::{
    BiGru, BiGruConfig, Lstm, LstmConfig, PRelu, PReluConfig, RmsNorm, RmsNormConfig, Rnn, RnnConfig,
};
use kiln::weights::{AdapterType, ImportError, LoadArgs, load_weights, save_weights};

include!("../../tests/burn-compat/src/net.rs");

/// A block of a [`Stack`].
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    attention: MultiHeadAttention<B>,
    norm: LayerNorm<B>,
    mlp: Vec<Linear<B>>,
    scale: RmsNorm<B>,
    act: PRelu<B>,
}

/// Nested lists, attention, and recurrent layers on top of each other, which are one module in PyTorch.
#[derive(Module, Debug)]
pub struct Stack<B: Backend> {
    blocks: Vec<Block<B>>,
    lstm: Vec<Lstm<B>>,
    gru: Vec<BiGru<B>>,
    rnn: Rnn<B>,
    across: MultiHeadAttention<B>,
    lookup: Embedding<B>,
    image: Conv2d<B>,
    image_norm: BatchNorm<B>,
    head: Option<Linear<B>>,
}

impl<B: Backend> Stack<B> {
    /// With new parameters.
    pub fn new(device: &B::Device) -> Self {
        let block = || Block {
            attention: MultiHeadAttentionConfig::new(8, 2).init(device),
            norm: LayerNormConfig::new(8).init(device),
            mlp: vec![
                LinearConfig::new(8, 12).init(device),
                LinearConfig::new(12, 8).with_bias(false).init(device),
            ],
            scale: RmsNormConfig::new(8).init(device),
            act: PReluConfig::new().with_num_parameters(12).init(device),
        };
        Self {
            blocks: (0..3).map(|_| block()).collect(),
            lstm: vec![LstmConfig::new(8, 5, true).init(device), LstmConfig::new(5, 5, true).init(device)],
            gru: vec![BiGruConfig::new(5, 3, true).init(device), BiGruConfig::new(6, 3, true).init(device)],
            rnn: RnnConfig::new(6, 8, true).init(device),
            across: MultiHeadAttentionConfig::new(8, 2)
                .with_d_key(Some(6))
                .with_d_value(Some(5))
                .init(device),
            lookup: EmbeddingConfig::new(11, 8).init(device),
            image: Conv2dConfig::new([1, 2], [3, 3]).with_bias(false).init(device),
            image_norm: BatchNormConfig::new(2).init(device),
            head: Some(LinearConfig::new(8, 4).init(device)),
        }
    }
}

/// Loads every tensor of a file into a module and saves them.
fn copy<M: Module<NdArray>>(module: M, from: String, to: String) -> Result<(), ImportError> {
    let loaded = load_weights(module, LoadArgs::from(from).with_strict(true), &Default::default())?;
    save_weights(&loaded, to, AdapterType::PyTorch)
}

fn main() -> Result<(), ImportError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(from), Some(to)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err(ImportError::Record("usage: round_trip net|stack IN OUT.safetensors".to_owned()));
    };
    let device = Default::default();
    match name.as_str() {
        "stack" => copy(Stack::<NdArray>::new(&device), from, to),
        _ => copy(Net::<NdArray>::new(&device), from, to),
    }
}
