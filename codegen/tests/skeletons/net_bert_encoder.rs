// A skeleton that Kiln 0.1.0 made from `net_bert_encoder.pt`. It is yours to complete: a checkpoint holds weights, but not what
// is done with them. Strides, paddings, dilations, groups and epsilons are the layers' defaults, and every
// `forward` is missing.

use kiln::config::Config;
use kiln::module::Module;
use kiln::nn;
use kiln::record::{RecorderError, load_safetensors};
use kiln::tensor::backend::Backend;

/// The model.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    /// `word`: may be Embedding (`--as word=Embedding`).
    pub word: nn::Linear<B>,
    /// `position`: may be Embedding (`--as position=Embedding`).
    pub position: nn::Linear<B>,
    /// `norm`: may be GroupNorm (`--as norm=GroupNorm`).
    pub norm: nn::LayerNorm<B>,
    /// `layer`.
    pub layer: Vec<Layer0<B>>,
    /// `pooler`.
    pub pooler: nn::Linear<B>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// `word`: may be Embedding (`--as word=Embedding`).
    pub word: nn::LinearConfig,
    /// `position`: may be Embedding (`--as position=Embedding`).
    pub position: nn::LinearConfig,
    /// `norm`: may be GroupNorm (`--as norm=GroupNorm`).
    pub norm: nn::LayerNormConfig,
    /// `layer`.
    pub layer: Vec<Layer0Config>,
    /// `pooler`.
    pub pooler: nn::LinearConfig,
}

impl ModelConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            word: self.word.init(device),
            position: self.position.init(device),
            norm: self.norm.init(device),
            layer: self.layer.iter().map(|item| item.init(device)).collect(),
            pooler: self.pooler.init(device),
        }
    }
}

impl<B: Backend> Model<B> {
    /// The model of the checkpoint's sizes, with parameters that are made when first used.
    pub fn new(device: &B::Device) -> Self {
        ModelConfig::of_checkpoint().init(device)
    }

    /// The model with the weights of the record that was written beside this file.
    ///
    /// # Errors
    /// When the file is no such record.
    pub fn from_file(
        path: impl AsRef<std::path::Path>,
        device: &B::Device,
    ) -> Result<Self, RecorderError> {
        load_safetensors(Self::new(device), path, device)
    }
}

impl ModelConfig {
    /// The sizes of the checkpoint.
    pub fn of_checkpoint() -> Self {
        ModelConfig {
            word: nn::LinearConfig::new(32, 50).with_bias(false),
            position: nn::LinearConfig::new(32, 32).with_bias(false),
            norm: nn::LayerNormConfig::new(32),
            layer: vec![
                Layer0Config { attention : AttentionConfig { query :
                nn::LinearConfig::new(32, 32), key : nn::LinearConfig::new(32, 32), value
                : nn::LinearConfig::new(32, 32) }, output : nn::LinearConfig::new(32,
                32), norm1 : nn::LayerNormConfig::new(32), intermediate :
                nn::LinearConfig::new(32, 128), down : nn::LinearConfig::new(128, 32),
                norm2 : nn::LayerNormConfig::new(32) }; 2
            ],
            pooler: nn::LinearConfig::new(32, 32),
        }
    }
}

/// A part of the model.
#[derive(Module, Debug)]
pub struct Layer0<B: Backend> {
    /// `attention`.
    pub attention: Attention<B>,
    /// `output`.
    pub output: nn::Linear<B>,
    /// `norm1`: may be GroupNorm (`--as layer.0.norm1=GroupNorm`).
    pub norm1: nn::LayerNorm<B>,
    /// `intermediate`.
    pub intermediate: nn::Linear<B>,
    /// `down`.
    pub down: nn::Linear<B>,
    /// `norm2`: may be GroupNorm (`--as layer.0.norm2=GroupNorm`).
    pub norm2: nn::LayerNorm<B>,
}

/// Configuration of [`Layer0`].
#[derive(Config, Debug)]
pub struct Layer0Config {
    /// `attention`.
    pub attention: AttentionConfig,
    /// `output`.
    pub output: nn::LinearConfig,
    /// `norm1`: may be GroupNorm (`--as layer.0.norm1=GroupNorm`).
    pub norm1: nn::LayerNormConfig,
    /// `intermediate`.
    pub intermediate: nn::LinearConfig,
    /// `down`.
    pub down: nn::LinearConfig,
    /// `norm2`: may be GroupNorm (`--as layer.0.norm2=GroupNorm`).
    pub norm2: nn::LayerNormConfig,
}

impl Layer0Config {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Layer0<B> {
        Layer0 {
            attention: self.attention.init(device),
            output: self.output.init(device),
            norm1: self.norm1.init(device),
            intermediate: self.intermediate.init(device),
            down: self.down.init(device),
            norm2: self.norm2.init(device),
        }
    }
}

/// A part of the model.
#[derive(Module, Debug)]
pub struct Attention<B: Backend> {
    /// `query`.
    pub query: nn::Linear<B>,
    /// `key`.
    pub key: nn::Linear<B>,
    /// `value`.
    pub value: nn::Linear<B>,
}

/// Configuration of [`Attention`].
#[derive(Config, Debug)]
pub struct AttentionConfig {
    /// `query`.
    pub query: nn::LinearConfig,
    /// `key`.
    pub key: nn::LinearConfig,
    /// `value`.
    pub value: nn::LinearConfig,
}

impl AttentionConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Attention<B> {
        Attention {
            query: self.query.init(device),
            key: self.key.init(device),
            value: self.value.init(device),
        }
    }
}
