// A skeleton that Kiln 0.1.0 made from `net.safetensors`. It is yours to complete: a checkpoint holds weights, but not what
// is done with them. Strides, paddings, dilations, groups and epsilons are the layers' defaults, and every
// `forward` is missing.

use kiln::config::Config;
use kiln::module::Module;
use kiln::nn;
use kiln::record::{BinFileRecorder, FullPrecisionSettings, Recorder, RecorderError};
use kiln::tensor::backend::Backend;

/// The model.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    /// `bn`.
    pub bn: nn::BatchNorm<B>,
    /// `conv`.
    pub conv: nn::conv::Conv2d<B>,
    /// `conv1d`.
    pub conv1d: nn::conv::Conv1d<B>,
    /// `emb`: may be Linear (`--as emb=Linear`).
    pub emb: nn::Embedding<B>,
    /// `fc`: may be Embedding (`--as fc=Embedding`).
    pub fc: nn::Linear<B>,
    /// `group_norm`: 2 groups assumed; may be LayerNorm (`--as group_norm=LayerNorm`).
    pub group_norm: nn::GroupNorm<B>,
    /// `gru`.
    pub gru: nn::Gru<B>,
    /// `layers`.
    pub layers: Vec<nn::Linear<B>>,
    /// `lstm`.
    pub lstm: nn::BiLstm<B>,
    /// `norm`: may be GroupNorm (`--as norm=GroupNorm`).
    pub norm: nn::LayerNorm<B>,
    /// `up`.
    pub up: nn::conv::ConvTranspose2d<B>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// `bn`.
    pub bn: nn::BatchNormConfig,
    /// `conv`.
    pub conv: nn::conv::Conv2dConfig,
    /// `conv1d`.
    pub conv1d: nn::conv::Conv1dConfig,
    /// `emb`: may be Linear (`--as emb=Linear`).
    pub emb: nn::EmbeddingConfig,
    /// `fc`: may be Embedding (`--as fc=Embedding`).
    pub fc: nn::LinearConfig,
    /// `group_norm`: 2 groups assumed; may be LayerNorm (`--as group_norm=LayerNorm`).
    pub group_norm: nn::GroupNormConfig,
    /// `gru`.
    pub gru: nn::GruConfig,
    /// `layers`.
    pub layers: Vec<nn::LinearConfig>,
    /// `lstm`.
    pub lstm: nn::BiLstmConfig,
    /// `norm`: may be GroupNorm (`--as norm=GroupNorm`).
    pub norm: nn::LayerNormConfig,
    /// `up`.
    pub up: nn::conv::ConvTranspose2dConfig,
}

impl ModelConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            bn: self.bn.init(device),
            conv: self.conv.init(device),
            conv1d: self.conv1d.init(device),
            emb: self.emb.init(device),
            fc: self.fc.init(device),
            group_norm: self.group_norm.init(device),
            gru: self.gru.init(device),
            layers: self.layers.iter().map(|item| item.init(device)).collect(),
            lstm: self.lstm.init(device),
            norm: self.norm.init(device),
            up: self.up.init(device),
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
        let recorder = BinFileRecorder::<FullPrecisionSettings>::new();
        let record = recorder.load(path.as_ref().to_path_buf(), device)?;
        Self::new(device).try_load_record(record)
    }
}

impl ModelConfig {
    /// The sizes of the checkpoint.
    pub fn of_checkpoint() -> Self {
        ModelConfig {
            bn: nn::BatchNormConfig::new(4),
            conv: nn::conv::Conv2dConfig::new([3, 4], [3, 3]),
            conv1d: nn::conv::Conv1dConfig::new(3, 6, 3),
            emb: nn::EmbeddingConfig::new(10, 6),
            fc: nn::LinearConfig::new(10, 3).with_bias(false),
            group_norm: nn::GroupNormConfig::new(2, 6),
            gru: nn::GruConfig::new(10, 4, true),
            layers: vec![nn::LinearConfig::new(4, 4); 3],
            lstm: nn::BiLstmConfig::new(6, 5, true),
            norm: nn::LayerNormConfig::new(6),
            up: nn::conv::ConvTranspose2dConfig::new([4, 6], [2, 2]),
        }
    }
}
