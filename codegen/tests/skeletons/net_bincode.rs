// A skeleton that Kiln 0.1.0 made from `net.pt`. It is yours to complete: a checkpoint holds weights, but not what
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
    /// `conv`.
    pub conv: nn::conv::Conv2d<B>,
    /// `bn`.
    pub bn: nn::BatchNorm<B>,
    /// `up`.
    pub up: nn::conv::ConvTranspose2d<B>,
    /// `group_norm`: 2 groups assumed; may be LayerNorm (`--as group_norm=LayerNorm`).
    pub group_norm: nn::GroupNorm<B>,
    /// `emb`: may be Linear (`--as emb=Linear`).
    pub emb: nn::Embedding<B>,
    /// `conv1d`.
    pub conv1d: nn::conv::Conv1d<B>,
    /// `norm`: may be GroupNorm (`--as norm=GroupNorm`).
    pub norm: nn::LayerNorm<B>,
    /// `lstm`.
    pub lstm: nn::BiLstm<B>,
    /// `gru`.
    pub gru: nn::Gru<B>,
    /// `layers`.
    pub layers: Vec<nn::Linear<B>>,
    /// `fc`: may be Embedding (`--as fc=Embedding`).
    pub fc: nn::Linear<B>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// `conv`.
    pub conv: nn::conv::Conv2dConfig,
    /// `bn`.
    pub bn: nn::BatchNormConfig,
    /// `up`.
    pub up: nn::conv::ConvTranspose2dConfig,
    /// `group_norm`: 2 groups assumed; may be LayerNorm (`--as group_norm=LayerNorm`).
    pub group_norm: nn::GroupNormConfig,
    /// `emb`: may be Linear (`--as emb=Linear`).
    pub emb: nn::EmbeddingConfig,
    /// `conv1d`.
    pub conv1d: nn::conv::Conv1dConfig,
    /// `norm`: may be GroupNorm (`--as norm=GroupNorm`).
    pub norm: nn::LayerNormConfig,
    /// `lstm`.
    pub lstm: nn::BiLstmConfig,
    /// `gru`.
    pub gru: nn::GruConfig,
    /// `layers`.
    pub layers: Vec<nn::LinearConfig>,
    /// `fc`: may be Embedding (`--as fc=Embedding`).
    pub fc: nn::LinearConfig,
}

impl ModelConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            conv: self.conv.init(device),
            bn: self.bn.init(device),
            up: self.up.init(device),
            group_norm: self.group_norm.init(device),
            emb: self.emb.init(device),
            conv1d: self.conv1d.init(device),
            norm: self.norm.init(device),
            lstm: self.lstm.init(device),
            gru: self.gru.init(device),
            layers: self.layers.iter().map(|item| item.init(device)).collect(),
            fc: self.fc.init(device),
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
            conv: nn::conv::Conv2dConfig::new([3, 4], [3, 3]),
            bn: nn::BatchNormConfig::new(4),
            up: nn::conv::ConvTranspose2dConfig::new([4, 6], [2, 2]),
            group_norm: nn::GroupNormConfig::new(2, 6),
            emb: nn::EmbeddingConfig::new(10, 6),
            conv1d: nn::conv::Conv1dConfig::new(3, 6, 3),
            norm: nn::LayerNormConfig::new(6),
            lstm: nn::BiLstmConfig::new(6, 5, true),
            gru: nn::GruConfig::new(10, 4, true),
            layers: vec![nn::LinearConfig::new(4, 4); 3],
            fc: nn::LinearConfig::new(10, 3).with_bias(false),
        }
    }
}
