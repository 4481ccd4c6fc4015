//! Attention to a context of its own size.

use crate::config::Config;
use crate::module::Module;
use crate::nn::cache::TensorCache;
use crate::nn::{Dropout, DropoutConfig, Initializer, Linear, LinearConfig};
use crate::tensor::{Bool, Tensor, activation, backend::Backend};

/// Configuration of [`CrossAttention`].
#[derive(Config, Debug)]
pub struct CrossAttentionConfig {
    /// Size of queries and of the output.
    pub d_model: usize,
    /// Size of the context.
    pub d_context: usize,
    /// Number of heads of the queries.
    pub n_heads: usize,
    /// Number of heads of keys and values, which divides that of the queries: equal heads of queries share one.
    pub n_heads_kv: usize,
    /// Size of a head.
    pub d_head: usize,
    /// Probability of dropping a weight.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// Score of what is masked out.
    #[config(default = -1.0e4)]
    pub min_float: f64,
    /// Whether a head may attend to nothing (`exp(x) / (1 + Σ exp(x))`).
    #[config(default = false)]
    pub quiet_softmax: bool,
}

/// Attention to a context, with grouped heads of keys and values (Ainslie et al. 2023).
#[derive(Module, Debug)]
pub struct CrossAttention<B: Backend> {
    /// Makes queries.
    pub query: Linear<B>,
    /// Makes keys.
    pub key: Linear<B>,
    /// Makes values.
    pub value: Linear<B>,
    /// Mixes the heads.
    pub output: Linear<B>,
    /// Drops weights.
    pub dropout: Dropout,
    /// Number of heads of the queries.
    pub n_heads: usize,
    /// Number of heads of keys and values.
    pub n_heads_kv: usize,
    /// Size of a head.
    pub d_head: usize,
    /// Factor of the scores, `1 / sqrt(d_head)`.
    pub scale: f64,
    /// Score of what is masked out.
    pub min_float: f64,
    /// Whether a head may attend to nothing.
    pub quiet_softmax: bool,
}

/// Keys and values of a context that stays the same, which [`CrossAttention::forward_cache`] computes once.
#[derive(Clone, Debug)]
pub struct CrossAttentionCache<B: Backend> {
    /// `[batch, n_heads_kv, seq, d_head]`.
    pub k: TensorCache<B, 4>,
    /// `[batch, n_heads_kv, seq, d_head]`.
    pub v: TensorCache<B, 4>,
}

impl<B: Backend> CrossAttentionCache<B> {
    /// With nothing in it.
    pub fn new() -> Self {
        Self { k: TensorCache::empty(), v: TensorCache::empty() }
    }
}

impl<B: Backend> Default for CrossAttentionCache<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl CrossAttentionConfig {
    /// A layer whose parameters are initialized when first used.
    ///
    /// # Panics
    /// When the heads of keys and values do not divide those of the queries.
    pub fn init<B: Backend>(&self, device: &B::Device) -> CrossAttention<B> {
        assert!(
            self.n_heads_kv > 0 && self.n_heads.is_multiple_of(self.n_heads_kv),
            "CrossAttention: {} heads cannot be divided among {} of keys and values",
            self.n_heads,
            self.n_heads_kv
        );
        let scale = 1.0 / num_traits::Float::sqrt(self.d_head as f64);
        let linear = |d_input: usize, d_output: usize| {
            LinearConfig::new(d_input, d_output)
                .with_initializer(Initializer::KaimingUniform { gain: scale, fan_out_only: false })
                .init(device)
        };
        let (d_query, d_memory) = (self.n_heads * self.d_head, self.n_heads_kv * self.d_head);
        CrossAttention {
            query: linear(self.d_model, d_query),
            key: linear(self.d_context, d_memory),
            value: linear(self.d_context, d_memory),
            output: linear(d_query, self.d_model),
            dropout: DropoutConfig::new(self.dropout).init(),
            n_heads: self.n_heads,
            n_heads_kv: self.n_heads_kv,
            d_head: self.d_head,
            scale,
            min_float: self.min_float,
            quiet_softmax: self.quiet_softmax,
        }
    }
}

impl<B: Backend> CrossAttention<B> {
    /// `[batch, seq_1, d_model]`, from a query of that shape and a context `[batch, seq_2, d_context]`; where `mask`
    /// `[batch, seq_2]` is true, the context is hidden.
    pub fn forward(
        &self,
        query: Tensor<B, 3>,
        context: Tensor<B, 3>,
        mask: Option<Tensor<B, 2, Bool>>,
    ) -> Tensor<B, 3> {
        self.forward_cache(query, context, mask, &mut CrossAttentionCache::new())
    }

    /// As [`forward`](Self::forward), with the keys and values of the first context that the cache saw.
    pub fn forward_cache(
        &self,
        query: Tensor<B, 3>,
        context: Tensor<B, 3>,
        mask: Option<Tensor<B, 2, Bool>>,
        cache: &mut CrossAttentionCache<B>,
    ) -> Tensor<B, 3> {
        let [batch, seq, _] = query.dims();
        let heads = |x: Tensor<B, 3>, heads: usize| {
            let [batch, seq, _] = x.dims();
            x.reshape([batch, seq, heads, self.d_head]).swap_dims(1, 2)
        };
        let query = heads(self.query.forward(query), self.n_heads);
        let key = cache.k.or_compute(|| heads(self.key.forward(context.clone()), self.n_heads_kv));
        let value = cache.v.or_compute(|| heads(self.value.forward(context), self.n_heads_kv));
        let (key, value) = (self.shared(key), self.shared(value));
        let mut scores = query.matmul(key.transpose()) * self.scale;
        if let Some(mask) = mask {
            let [batch, keys] = mask.dims();
            let shape = scores.dims();
            scores = scores.mask_fill(mask.reshape([batch, 1, 1, keys]).expand(shape), self.min_float);
        }
        let weights = if self.quiet_softmax {
            activation::quiet_softmax(scores, 3)
        } else {
            activation::softmax(scores, 3)
        };
        let context = self.dropout.forward(weights).matmul(value);
        self.output.forward(context.swap_dims(1, 2).reshape([batch, seq, self.n_heads * self.d_head]))
    }

    /// Each head of keys or values as often as heads of queries share it.
    fn shared(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let [batch, heads, seq, size] = x.dims();
        let times = self.n_heads / self.n_heads_kv;
        if times == 1 {
            return x;
        }
        let x: Tensor<B, 5> = x.reshape([batch, heads, 1, seq, size]);
        x.expand([batch, heads, times, seq, size]).reshape([batch, heads * times, seq, size])
    }
}
