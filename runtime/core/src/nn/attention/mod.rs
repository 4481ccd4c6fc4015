//! Multi-head attention and masks.

mod cache;
mod cross;
mod mask;

pub use cache::MhaCache;
pub(super) use cache::{Memory, mask_from, rows_from};
pub use cross::{CrossAttention, CrossAttentionCache, CrossAttentionConfig};
pub use mask::{GeneratePaddingMask, SeqLengthOption, generate_autoregressive_mask, generate_padding_mask};

use super::{Dropout, DropoutConfig, Gelu, Initializer, Linear, LinearConfig, display::layer_display};
use crate::config::Config;
use crate::module::Module;
use crate::tensor::{Bool, Tensor, activation, backend::Backend};

/// Configuration of [`MultiHeadAttention`].
#[derive(Config, Debug)]
pub struct MultiHeadAttentionConfig {
    /// Size of queries, keys and values, and of the output.
    pub d_model: usize,
    /// Number of heads; divides `d_model`.
    pub n_heads: usize,
    /// Probability of dropping a score.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// Score of what is masked out.
    #[config(default = -1.0e4)]
    pub min_float: f64,
    /// Whether a head may attend to nothing (`exp(x) / (1 + Σ exp(x))`).
    #[config(default = false)]
    pub quiet_softmax: bool,
    /// How the parameters start.
    #[config(default = "crate::nn::layer_initializer()")]
    pub initializer: Initializer,
    /// Whether the projections have biases; they do where nothing is said, as in Burn's files.
    pub bias: Option<bool>,
    /// Size of keys, where it is another one than `d_model`.
    pub d_key: Option<usize>,
    /// Size of values, where it is another one than `d_model`.
    pub d_value: Option<usize>,
}

/// Scaled dot-product attention with several heads (Vaswani et al. 2017).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct MultiHeadAttention<B: Backend> {
    /// Makes queries.
    pub query: Linear<B>,
    /// Makes keys.
    pub key: Linear<B>,
    /// Makes values.
    pub value: Linear<B>,
    /// Mixes the heads.
    pub output: Linear<B>,
    /// Drops scores.
    pub dropout: Dropout,
    /// Part of Burn's record; not used.
    pub activation: Gelu,
    /// Size of queries, keys and values.
    pub d_model: usize,
    /// Number of heads.
    pub n_heads: usize,
    /// Size of a head.
    pub d_k: usize,
    /// Score of what is masked out.
    pub min_float: f64,
    /// Whether a head may attend to nothing.
    pub quiet_softmax: bool,
}

impl MultiHeadAttentionConfig {
    /// A layer whose parameters are initialized when first used.
    ///
    /// # Panics
    /// When the heads do not divide `d_model`.
    pub fn init<B: Backend>(&self, device: &B::Device) -> MultiHeadAttention<B> {
        assert!(
            self.n_heads > 0 && self.d_model.is_multiple_of(self.n_heads),
            "MultiHeadAttention: d_model {} cannot be divided into {} heads",
            self.d_model,
            self.n_heads
        );
        let linear = |d_input: usize| {
            LinearConfig::new(d_input, self.d_model)
                .with_bias(self.bias.unwrap_or(true))
                .with_initializer(self.initializer.clone())
                .init(device)
        };
        MultiHeadAttention {
            query: linear(self.d_model),
            key: linear(self.d_key.unwrap_or(self.d_model)),
            value: linear(self.d_value.unwrap_or(self.d_model)),
            output: linear(self.d_model),
            dropout: DropoutConfig::new(self.dropout).init(),
            activation: Gelu::new(),
            d_model: self.d_model,
            n_heads: self.n_heads,
            d_k: self.d_model / self.n_heads,
            min_float: self.min_float,
            quiet_softmax: self.quiet_softmax,
        }
    }
}

/// Operands of [`MultiHeadAttention::forward`].
#[derive(Clone, Debug)]
pub struct MhaInput<B: Backend> {
    query: Tensor<B, 3>,
    key: Tensor<B, 3>,
    value: Tensor<B, 3>,
    mask_pad: Option<Tensor<B, 2, Bool>>,
    mask_attn: Option<Tensor<B, 3, Bool>>,
}

impl<B: Backend> MhaInput<B> {
    /// One tensor `[batch, seq, d_model]` as query, key and value.
    pub fn self_attn(tensor: Tensor<B, 3>) -> Self {
        Self::new(tensor.clone(), tensor.clone(), tensor)
    }

    /// Query `[batch, seq_1, d_model]`, key and value `[batch, seq_2, d_model]` (or of their own sizes).
    pub fn new(query: Tensor<B, 3>, key: Tensor<B, 3>, value: Tensor<B, 3>) -> Self {
        Self { query, key, value, mask_pad: None, mask_attn: None }
    }

    /// `[batch, seq_2]`: true hides a key.
    pub fn mask_pad(mut self, mask_pad: Tensor<B, 2, Bool>) -> Self {
        self.mask_pad = Some(mask_pad);
        self
    }

    /// `[batch, seq_1, seq_2]`: true hides a key from a query.
    pub fn mask_attn(mut self, mask_attn: Tensor<B, 3, Bool>) -> Self {
        self.mask_attn = Some(mask_attn);
        self
    }

    /// With the masks that there are.
    pub(crate) fn masked(
        self,
        mask_pad: &Option<Tensor<B, 2, Bool>>,
        mask_attn: &Option<Tensor<B, 3, Bool>>,
    ) -> Self {
        Self { mask_pad: mask_pad.clone(), mask_attn: mask_attn.clone(), ..self }
    }
}

/// What [`MultiHeadAttention::forward`] yields.
#[derive(Clone, Debug)]
pub struct MhaOutput<B: Backend> {
    /// How much each query attends to each key: `[batch, heads, seq_1, seq_2]`.
    pub weights: Tensor<B, 4>,
    /// `[batch, seq_1, d_model]`.
    pub context: Tensor<B, 3>,
}

impl<B: Backend> MultiHeadAttention<B> {
    /// Attends from queries `[batch, seq_1, d_model]` to keys and values `[batch, seq_2, d_model]`, under the masks of [`MhaInput`].
    ///
    /// # Panics
    /// When the shapes do not fit.
    pub fn forward(&self, input: MhaInput<B>) -> MhaOutput<B> {
        let key = self.heads(&self.key, input.key);
        let value = self.heads(&self.value, input.value);
        self.attend(input.query, key, value, input.mask_pad, input.mask_attn)
    }

    /// From queries `[batch, seq_1, d_model]` to the heads' keys and values `[batch, heads, seq_2, d_k]`.
    fn attend(
        &self,
        query: Tensor<B, 3>,
        key: Tensor<B, 4>,
        value: Tensor<B, 4>,
        mask_pad: Option<Tensor<B, 2, Bool>>,
        mask_attn: Option<Tensor<B, 3, Bool>>,
    ) -> MhaOutput<B> {
        let [batch, seq, d_model] = query.dims();
        let query = self.heads(&self.query, query);
        let scores =
            self.dropout.forward(query.matmul(key.transpose()) / num_traits::Float::sqrt(self.d_k as f64));
        let weights = self.weights(scores, mask_pad, mask_attn);
        let context = weights.clone().matmul(value).swap_dims(1, 2).reshape([batch, seq, d_model]);
        MhaOutput { weights, context: self.output.forward(context) }
    }

    /// `[batch, seq, d_model]` to `[batch, heads, seq, d_k]`.
    fn heads(&self, linear: &Linear<B>, x: Tensor<B, 3>) -> Tensor<B, 4> {
        let [batch, seq, _] = x.dims();
        linear.forward(x).reshape([batch, seq, self.n_heads, self.d_k]).swap_dims(1, 2)
    }

    fn weights(
        &self,
        mut scores: Tensor<B, 4>,
        mask_pad: Option<Tensor<B, 2, Bool>>,
        mask_attn: Option<Tensor<B, 3, Bool>>,
    ) -> Tensor<B, 4> {
        let shape = scores.dims();
        if let Some(mask) = mask_pad {
            let [batch, keys] = mask.dims();
            scores = scores.mask_fill(mask.reshape([batch, 1, 1, keys]).expand(shape), self.min_float);
        }
        if let Some(mask) = mask_attn {
            let [batch, queries, keys] = mask.dims();
            scores = scores.mask_fill(mask.reshape([batch, 1, queries, keys]).expand(shape), self.min_float);
        }
        if self.quiet_softmax { activation::quiet_softmax(scores, 3) } else { activation::softmax(scores, 3) }
    }
}

layer_display!(MultiHeadAttention<B>, |layer| {
    "d_model" => layer.d_model,
    "n_heads" => layer.n_heads,
    "d_k" => layer.d_k,
    "dropout" => layer.dropout.prob,
    "min_float" => layer.min_float,
    "quiet_softmax" => layer.quiet_softmax,
});
