// A skeleton that Kiln 0.1.0 made from `net_bert_encoder.pt`.
// It is yours to complete: a checkpoint holds weights, but not what is done with them. Strides,
// paddings, dilations, epsilons, and whether the batch comes first are the layers' defaults, groups
// and heads are what the sizes suggest, and every `forward` is missing.

use kiln::config::Config;
use kiln::module::Module;
use kiln::nn;
use kiln::record::{RecorderError, load_safetensors};
use kiln::tensor::backend::Backend;

/// The model.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    /// `word`: 32 to 50. May be Embedding (`--as word=Embedding`).
    pub word: nn::Linear<B>,
    /// `position`: 32 to 32. May be Embedding (`--as position=Embedding`).
    pub position: nn::Linear<B>,
    /// `norm`: size 32.
    pub norm: nn::LayerNorm<B>,
    /// `layer`.
    pub layer: Vec<Layer<B>>,
    /// `pooler`: 32 to 32.
    pub pooler: nn::Linear<B>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// Of `word`.
    pub word: nn::LinearConfig,
    /// Of `position`.
    pub position: nn::LinearConfig,
    /// Of `norm`.
    pub norm: nn::LayerNormConfig,
    /// Of `layer`.
    pub layer: Vec<LayerConfig>,
    /// Of `pooler`.
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
        let layer = LayerConfig {
            attention: AttentionConfig {
                query: nn::LinearConfig::new(32, 32),
                key: nn::LinearConfig::new(32, 32),
                value: nn::LinearConfig::new(32, 32),
            },
            output: nn::LinearConfig::new(32, 32),
            norm1: nn::LayerNormConfig::new(32),
            intermediate: nn::LinearConfig::new(32, 128),
            down: nn::LinearConfig::new(128, 32),
            norm2: nn::LayerNormConfig::new(32),
        };
        ModelConfig {
            word: nn::LinearConfig::new(32, 50).with_bias(false),
            position: nn::LinearConfig::new(32, 32).with_bias(false),
            norm: nn::LayerNormConfig::new(32),
            layer: vec![layer; 2],
            pooler: nn::LinearConfig::new(32, 32),
        }
    }
}

/// `layer.*`.
#[derive(Module, Debug)]
pub struct Layer<B: Backend> {
    /// `attention`.
    pub attention: Attention<B>,
    /// `output`: 32 to 32.
    pub output: nn::Linear<B>,
    /// `norm1`: size 32.
    pub norm1: nn::LayerNorm<B>,
    /// `intermediate`: 32 to 128.
    pub intermediate: nn::Linear<B>,
    /// `down`: 128 to 32.
    pub down: nn::Linear<B>,
    /// `norm2`: size 32.
    pub norm2: nn::LayerNorm<B>,
}

/// Configuration of [`Layer`].
#[derive(Config, Debug)]
pub struct LayerConfig {
    /// Of `attention`.
    pub attention: AttentionConfig,
    /// Of `output`.
    pub output: nn::LinearConfig,
    /// Of `norm1`.
    pub norm1: nn::LayerNormConfig,
    /// Of `intermediate`.
    pub intermediate: nn::LinearConfig,
    /// Of `down`.
    pub down: nn::LinearConfig,
    /// Of `norm2`.
    pub norm2: nn::LayerNormConfig,
}

impl LayerConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Layer<B> {
        Layer {
            attention: self.attention.init(device),
            output: self.output.init(device),
            norm1: self.norm1.init(device),
            intermediate: self.intermediate.init(device),
            down: self.down.init(device),
            norm2: self.norm2.init(device),
        }
    }
}

/// `layer.*.attention`.
#[derive(Module, Debug)]
pub struct Attention<B: Backend> {
    /// `query`: 32 to 32.
    pub query: nn::Linear<B>,
    /// `key`: 32 to 32.
    pub key: nn::Linear<B>,
    /// `value`: 32 to 32.
    pub value: nn::Linear<B>,
}

/// Configuration of [`Attention`].
#[derive(Config, Debug)]
pub struct AttentionConfig {
    /// Of `query`.
    pub query: nn::LinearConfig,
    /// Of `key`.
    pub key: nn::LinearConfig,
    /// Of `value`.
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
