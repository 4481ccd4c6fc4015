//! The decoder.

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

/// Configuration of [`TransformerDecoder`].
#[derive(Config, Debug)]
pub struct TransformerDecoderConfig {
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

/// Layers of self-attention, attention to a memory, and feed-forward.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct TransformerDecoder<B: Backend> {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer<B>>,
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

/// Operands of [`TransformerDecoder::forward`].
#[derive(Clone, Debug)]
pub struct TransformerDecoderInput<B: Backend> {
    target: Tensor<B, 3>,
    target_mask_pad: Option<Tensor<B, 2, Bool>>,
    target_mask_attn: Option<Tensor<B, 3, Bool>>,
    memory: Tensor<B, 3>,
    memory_mask_pad: Option<Tensor<B, 2, Bool>>,
    memory_mask_attn: Option<Tensor<B, 3, Bool>>,
}

impl<B: Backend> TransformerDecoderInput<B> {
    /// Target `[batch, seq_1, d_model]`, memory `[batch, seq_2, d_model]`.
    pub fn new(target: Tensor<B, 3>, memory: Tensor<B, 3>) -> Self {
        Self {
            target,
            target_mask_pad: None,
            target_mask_attn: None,
            memory,
            memory_mask_pad: None,
            memory_mask_attn: None,
        }
    }

    /// `[batch, seq_1]`: true hides a position of the target.
    pub fn target_mask_pad(mut self, mask_pad: Tensor<B, 2, Bool>) -> Self {
        self.target_mask_pad = Some(mask_pad);
        self
    }

    /// `[batch, seq_1, seq_1]`: true hides a position of the target from another.
    pub fn target_mask_attn(mut self, mask_attn: Tensor<B, 3, Bool>) -> Self {
        self.target_mask_attn = Some(mask_attn);
        self
    }

    /// `[batch, seq_2]`: true hides a position of the memory.
    pub fn memory_mask_pad(mut self, mask_pad: Tensor<B, 2, Bool>) -> Self {
        self.memory_mask_pad = Some(mask_pad);
        self
    }

    /// `[batch, seq_1, seq_2]`: true hides a position of the memory from one of the target.
    pub fn memory_mask_attn(mut self, mask_attn: Tensor<B, 3, Bool>) -> Self {
        self.memory_mask_attn = Some(mask_attn);
        self
    }
}

impl TransformerDecoderConfig {
    /// A decoder whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> TransformerDecoder<B> {
        TransformerDecoder {
            layers: (0..self.n_layers).map(|_| TransformerDecoderLayer::new(self, device)).collect(),
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

impl<B: Backend> TransformerDecoder<B> {
    /// The target's shape.
    pub fn forward(&self, input: TransformerDecoderInput<B>) -> Tensor<B, 3> {
        self.layers.iter().fold(input.target.clone(), |x, layer| layer.forward(x, &input, None))
    }

    /// [`forward`](Self::forward) of a target that grows from call to call, with a memory that stays the same: `input` has the whole
    /// target, of which only the positions are computed that the cache has not seen. An earlier position sees no later one; what
    /// several new positions must not see of each other is the mask's to say.
    ///
    /// # Panics
    /// When the target is shorter than what the cache has seen, or the cache another decoder's.
    pub fn forward_autoregressive_inference(
        &self,
        mut input: TransformerDecoderInput<B>,
        cache: &mut TransformerDecoderAutoregressiveCache<B>,
    ) -> Tensor<B, 3> {
        let (done, [_, seq, _]) = (cache.output.len(1), input.target.dims());
        assert!(seq >= done, "decoder: the cache has seen {done} positions, the target has {seq}");
        assert_eq!(cache.layers.len(), self.layers.len(), "decoder: the cache has another number of layers");
        if let Some(output) = cache.output.kept()
            && seq == done
        {
            return output;
        }
        input.target_mask_attn = mask_from(input.target_mask_attn, done);
        input.memory_mask_attn = mask_from(input.memory_mask_attn, done);
        let layers = self.layers.iter().zip(&mut cache.layers);
        let new = layers.fold(rows_from(input.target.clone(), done), |x, (layer, memories)| {
            layer.forward(x, &input, Some(memories))
        });
        cache.output.append(new, 1)
    }

    /// An empty cache for [`forward_autoregressive_inference`](Self::forward_autoregressive_inference).
    pub fn new_autoregressive_cache(&self) -> TransformerDecoderAutoregressiveCache<B> {
        let layer = |_| LayerMemories { target: Memory::growing(), memory: Memory::fixed() };
        TransformerDecoderAutoregressiveCache {
            layers: self.layers.iter().map(layer).collect(),
            output: TensorCache::empty(),
        }
    }
}

/// What [`TransformerDecoder::forward_autoregressive_inference`] keeps of the positions that it has seen.
#[derive(Clone, Debug)]
pub struct TransformerDecoderAutoregressiveCache<B: Backend> {
    layers: Vec<LayerMemories<B>>,
    output: TensorCache<B, 3>,
}

/// Keys and values of one layer.
#[derive(Clone, Debug)]
struct LayerMemories<B: Backend> {
    /// Of the target.
    target: Memory<B>,
    /// Of the decoder's memory.
    memory: Memory<B>,
}

layer_display!(TransformerDecoder<B>, |layer| {
    "d_model" => layer.d_model,
    "d_ff" => layer.d_ff,
    "n_heads" => layer.n_heads,
    "n_layers" => layer.n_layers,
    "dropout" => layer.dropout,
    "norm_first" => layer.norm_first,
    "quiet_softmax" => layer.quiet_softmax,
});

/// One layer of the decoder.
#[derive(Module, Debug)]
pub struct TransformerDecoderLayer<B: Backend> {
    /// Attention to the memory.
    pub cross_attn: MultiHeadAttention<B>,
    /// Self-attention.
    pub self_attn: MultiHeadAttention<B>,
    /// Feed-forward.
    pub pwff: PositionWiseFeedForward<B>,
    /// Before attention to the memory when normalization comes first, else after self-attention.
    pub norm_1: LayerNorm<B>,
    /// Before the feed-forward part when normalization comes first, else after attention to the memory.
    pub norm_2: LayerNorm<B>,
    /// Before self-attention when normalization comes first, else after the feed-forward part.
    pub norm_3: LayerNorm<B>,
    /// Drops values before each residual sum.
    pub dropout: Dropout,
    /// Whether normalization comes first.
    pub norm_first: bool,
}

impl<B: Backend> TransformerDecoderLayer<B> {
    fn new(config: &TransformerDecoderConfig, device: &B::Device) -> Self {
        let attention = || {
            MultiHeadAttentionConfig::new(config.d_model, config.n_heads)
                .with_initializer(config.initializer.clone())
                .with_dropout(config.dropout)
                .with_quiet_softmax(config.quiet_softmax)
                .init(device)
        };
        let norm = || LayerNormConfig::new(config.d_model).init(device);
        Self {
            cross_attn: attention(),
            self_attn: attention(),
            pwff: PositionWiseFeedForwardConfig::new(config.d_model, config.d_ff)
                .with_initializer(config.initializer.clone())
                .with_dropout(config.dropout)
                .init(device),
            norm_1: norm(),
            norm_2: norm(),
            norm_3: norm(),
            dropout: DropoutConfig::new(config.dropout).init(),
            norm_first: config.norm_first,
        }
    }

    fn forward(
        &self,
        x: Tensor<B, 3>,
        input: &TransformerDecoderInput<B>,
        memories: Option<&mut LayerMemories<B>>,
    ) -> Tensor<B, 3> {
        let (before, across) = memories.map(|of| (&mut of.target, &mut of.memory)).unzip();
        let look_back = |x: Tensor<B, 3>| {
            let operands = MhaInput::self_attn(x).masked(&input.target_mask_pad, &input.target_mask_attn);
            self.dropout.forward(self.self_attn.forward_over(operands, before).context)
        };
        let look_across = |x: Tensor<B, 3>| {
            let operands = MhaInput::new(x, input.memory.clone(), input.memory.clone());
            let operands = operands.masked(&input.memory_mask_pad, &input.memory_mask_attn);
            self.dropout.forward(self.cross_attn.forward_over(operands, across).context)
        };
        let widen = |x: Tensor<B, 3>| self.dropout.forward(self.pwff.forward(x));
        if self.norm_first {
            let x = x.clone() + look_back(self.norm_3.forward(x));
            let x = x.clone() + look_across(self.norm_1.forward(x));
            x.clone() + widen(self.norm_2.forward(x))
        } else {
            let x = self.norm_1.forward(x.clone() + look_back(x));
            let x = self.norm_2.forward(x.clone() + look_across(x));
            self.norm_3.forward(x.clone() + widen(x))
        }
    }
}
