// The network that `scripts/weight_fixtures/network.py` saves, written once for both libraries; `root` is either.
//
// Included by the burn-compat crate and by Kiln's own tests.

use root::module::Module;
use root::nn::conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use root::nn::gru::{Gru, GruConfig};
use root::nn::{
    BatchNorm, BatchNormConfig, BiLstm, BiLstmConfig, Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig,
    LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig1d, PaddingConfig2d,
};
use root::tensor::backend::Backend;
use root::tensor::{Int, Tensor, activation};

/// The network.
#[derive(Module, Debug)]
pub struct Net<B: Backend> {
    conv: Conv2d<B>,
    bn: BatchNorm<B>,
    up: ConvTranspose2d<B>,
    group_norm: GroupNorm<B>,
    emb: Embedding<B>,
    conv1d: Conv1d<B>,
    norm: LayerNorm<B>,
    lstm: BiLstm<B>,
    gru: Gru<B>,
    layers: Vec<Linear<B>>,
    fc: Linear<B>,
}

impl<B: Backend> Net<B> {
    /// With new parameters.
    pub fn new(device: &B::Device) -> Self {
        let padding = PaddingConfig2d::Explicit(1, 1);
        let conv1d = Conv1dConfig::new(6, 6, 3).with_padding(PaddingConfig1d::Explicit(1)).with_groups(2);
        Self {
            conv: Conv2dConfig::new([3, 4], [3, 3]).with_padding(padding).init(device),
            bn: BatchNormConfig::new(4).init(device),
            up: ConvTranspose2dConfig::new([4, 6], [2, 2]).with_stride([2, 2]).init(device),
            group_norm: GroupNormConfig::new(3, 6).init(device),
            emb: EmbeddingConfig::new(10, 6).init(device),
            conv1d: conv1d.init(device),
            norm: LayerNormConfig::new(6).init(device),
            lstm: BiLstmConfig::new(6, 5, true).init(device),
            gru: GruConfig::new(10, 4, true).init(device),
            layers: (0..3).map(|_| LinearConfig::new(4, 4).init(device)).collect(),
            fc: LinearConfig::new(10, 3).with_bias(false).init(device),
        }
    }

    /// An image `[batch, 3, height, width]` and tokens `[batch, seq]` to scores `[batch, 3]`.
    pub fn forward(&self, image: Tensor<B, 4>, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let seen = self.bn.forward(self.conv.forward(image));
        let seen = self.group_norm.forward(self.up.forward(activation::relu(seen)));
        let [batch, channels, ..] = seen.dims();
        let seen = seen.mean_dim(3).mean_dim(2).reshape([batch, channels]);
        let x = self.conv1d.forward(self.emb.forward(tokens).swap_dims(1, 2)).swap_dims(1, 2);
        let (x, _) = self.lstm.forward(self.norm.forward(x), None);
        let mut x = self.gru.forward(x, None);
        for layer in &self.layers {
            x = layer.forward(x).tanh();
        }
        let [_, steps, size] = x.dims();
        let last = x.slice([0..batch, steps - 1..steps, 0..size]).reshape([batch, size]);
        self.fc.forward(Tensor::cat(vec![seen, last], 1))
    }
}
