//! The encoder.

use super::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use crate::config::Config;
use crate::module::Module;
use crate::nn::attention::{
    Memory, MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, mask_from, rows_from,
};
use crate::nn::cache::TensorCache;
use crate::nn::{Dropout, DropoutConfig, Initializer, LayerNorm, LayerNormConfig, display::layer_display};
use crate::tensor::{Bool, Tensor, backend::Backend};
use alloc::vec::Vec;

/// Configuration of [`TransformerEncoder`].
#[derive(Config, Debug)]
pub struct TransformerEncoderConfig {
    /// Size of the model.
    pub d_model: usize,
    /// Size of the feed-forward parts.
    pub d_ff: usize,
    /// Number of heads.
    pub n_heads: usize,
    /// Number of layers.
    pub n_layers: usize,
    /// Probability of dropping a value.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// Whether normalization comes before each part instead of after it.
    #[config(default = false)]
    pub norm_first: bool,
    /// See [`MultiHeadAttentionConfig`].
    #[config(default = false)]
    pub quiet_softmax: bool,
    /// How the parameters start.
    #[config(default = "crate::nn::layer_initializer()")]
    pub initializer: Initializer,
}

/// Layers of self-attention and feed-forward.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct TransformerEncoder<B: Backend> {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer<B>>,
    /// Size of the model.
    pub d_model: usize,
    /// Size of the feed-forward parts.
    pub d_ff: usize,
    /// Number of heads.
    pub n_heads: usize,
    /// Number of layers.
    pub n_layers: usize,
    /// Probability of dropping a value.
    pub dropout: f64,
    /// Whether normalization comes first.
    pub norm_first: bool,
    /// Whether a head may attend to nothing.
    pub quiet_softmax: bool,
}

/// Operands of [`TransformerEncoder::forward`].
#[derive(Clone, Debug)]
pub struct TransformerEncoderInput<B: Backend> {
    tensor: Tensor<B, 3>,
    mask_pad: Option<Tensor<B, 2, Bool>>,
    mask_attn: Option<Tensor<B, 3, Bool>>,
}

impl<B: Backend> TransformerEncoderInput<B> {
    /// `[batch, seq, d_model]`.
    pub fn new(tensor: Tensor<B, 3>) -> Self {
        Self { tensor, mask_pad: None, mask_attn: None }
    }

    /// `[batch, seq]`: true hides a position.
    pub fn mask_pad(mut self, mask_pad: Tensor<B, 2, Bool>) -> Self {
        self.mask_pad = Some(mask_pad);
        self
    }

    /// `[batch, seq, seq]`: true hides a position from another.
    pub fn mask_attn(mut self, mask_attn: Tensor<B, 3, Bool>) -> Self {
        self.mask_attn = Some(mask_attn);
        self
    }
}

impl TransformerEncoderConfig {
    /// An encoder whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> TransformerEncoder<B> {
        TransformerEncoder {
            layers: (0..self.n_layers).map(|_| TransformerEncoderLayer::new(self, device)).collect(),
            d_model: self.d_model,
            d_ff: self.d_ff,
            n_heads: self.n_heads,
            n_layers: self.n_layers,
            dropout: self.dropout,
            norm_first: self.norm_first,
            quiet_softmax: self.quiet_softmax,
        }
    }
}

impl<B: Backend> TransformerEncoder<B> {
    /// `[batch, seq, d_model]`, same shape.
    pub fn forward(&self, input: TransformerEncoderInput<B>) -> Tensor<B, 3> {
        self.layers
            .iter()
            .fold(input.tensor, |x, layer| layer.forward(x, &input.mask_pad, &input.mask_attn, None))
    }

    /// [`forward`](Self::forward) of a sequence that grows from call to call: `input` is the whole sequence, of which only the
    /// positions are computed that the cache has not seen. An earlier position sees no later one; what several new positions must
    /// not see of each other is the mask's to say.
    ///
    /// # Panics
    /// When the sequence is shorter than what the cache has seen, or the cache another encoder's.
    pub fn forward_autoregressive_inference(
        &self,
        input: TransformerEncoderInput<B>,
        cache: &mut TransformerEncoderAutoregressiveCache<B>,
    ) -> Tensor<B, 3> {
        let (done, [_, seq, _]) = (cache.output.len(1), input.tensor.dims());
        assert!(seq >= done, "encoder: the cache has seen {done} positions, the sequence has {seq}");
        assert_eq!(cache.layers.len(), self.layers.len(), "encoder: the cache has another number of layers");
        if let Some(output) = cache.output.kept()
            && seq == done
        {
            return output;
        }
        let mask_attn = mask_from(input.mask_attn, done);
        let layers = self.layers.iter().zip(&mut cache.layers);
        let new = layers.fold(rows_from(input.tensor, done), |x, (layer, memory)| {
            layer.forward(x, &input.mask_pad, &mask_attn, Some(memory))
        });
        cache.output.append(new, 1)
    }

    /// An empty cache for [`forward_autoregressive_inference`](Self::forward_autoregressive_inference).
    pub fn new_autoregressive_cache(&self) -> TransformerEncoderAutoregressiveCache<B> {
        TransformerEncoderAutoregressiveCache {
            layers: self.layers.iter().map(|_| Memory::growing()).collect(),
            output: TensorCache::empty(),
        }
    }
}

/// What [`TransformerEncoder::forward_autoregressive_inference`] keeps of the positions that it has seen.
#[derive(Clone, Debug)]
pub struct TransformerEncoderAutoregressiveCache<B: Backend> {
    layers: Vec<Memory<B>>,
    output: TensorCache<B, 3>,
}

layer_display!(TransformerEncoder<B>, |layer| {
    "d_model" => layer.d_model,
    "d_ff" => layer.d_ff,
    "n_heads" => layer.n_heads,
    "n_layers" => layer.n_layers,
    "dropout" => layer.dropout,
    "norm_first" => layer.norm_first,
    "quiet_softmax" => layer.quiet_softmax,
});

/// One layer of the encoder.
#[derive(Module, Debug)]
pub struct TransformerEncoderLayer<B: Backend> {
    /// Self-attention.
    pub mha: MultiHeadAttention<B>,
    /// Feed-forward.
    pub pwff: PositionWiseFeedForward<B>,
    /// Before the feed-forward part when normalization comes first, else after attention.
    pub norm_1: LayerNorm<B>,
    /// Before attention when normalization comes first, else after the feed-forward part.
    pub norm_2: LayerNorm<B>,
    /// Drops values before each residual sum.
    pub dropout: Dropout,
    /// Whether normalization comes first.
    pub norm_first: bool,
}

impl<B: Backend> TransformerEncoderLayer<B> {
    fn new(config: &TransformerEncoderConfig, device: &B::Device) -> Self {
        Self {
            mha: MultiHeadAttentionConfig::new(config.d_model, config.n_heads)
                .with_initializer(config.initializer.clone())
                .with_dropout(config.dropout)
                .with_quiet_softmax(config.quiet_softmax)
                .init(device),
            pwff: PositionWiseFeedForwardConfig::new(config.d_model, config.d_ff)
                .with_initializer(config.initializer.clone())
                .with_dropout(config.dropout)
                .init(device),
            norm_1: LayerNormConfig::new(config.d_model).init(device),
            norm_2: LayerNormConfig::new(config.d_model).init(device),
            dropout: DropoutConfig::new(config.dropout).init(),
            norm_first: config.norm_first,
        }
    }

    fn forward(
        &self,
        x: Tensor<B, 3>,
        mask_pad: &Option<Tensor<B, 2, Bool>>,
        mask_attn: &Option<Tensor<B, 3, Bool>>,
        memory: Option<&mut Memory<B>>,
    ) -> Tensor<B, 3> {
        let attend = |x: Tensor<B, 3>| {
            let input = MhaInput::self_attn(x).masked(mask_pad, mask_attn);
            self.dropout.forward(self.mha.forward_over(input, memory).context)
        };
        let widen = |x: Tensor<B, 3>| self.dropout.forward(self.pwff.forward(x));
        if self.norm_first {
            let x = x.clone() + attend(self.norm_2.forward(x));
            x.clone() + widen(self.norm_1.forward(x))
        } else {
            let x = self.norm_1.forward(x.clone() + attend(x));
            self.norm_2.forward(x.clone() + widen(x))
        }
    }
}
