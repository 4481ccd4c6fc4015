// A skeleton that Kiln 0.1.0 made from `net.pt`.
// It is yours to complete: a checkpoint holds weights, but not what is done with them. Strides,
// paddings, dilations, epsilons, and whether the batch comes first are the layers' defaults, groups
// and heads are what the sizes suggest, and every `forward` is missing.

use kiln::config::Config;
use kiln::module::Module;
use kiln::nn;
use kiln::record::{Format, RecorderError, load_named};
use kiln::tensor::backend::Backend;

/// The model.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    /// `conv`: 3 to 4 channels, kernel 3 × 3.
    pub conv: nn::conv::Conv2d<B>,
    /// `bn`: 4 channels.
    pub bn: nn::BatchNorm<B>,
    /// `up`: 4 to 6 channels, kernel 2 × 2.
    pub up: nn::conv::ConvTranspose2d<B>,
    /// `group_norm`: 6 channels. 2 groups assumed. May be LayerNorm or InstanceNorm
    /// (`--as group_norm=LayerNorm`).
    pub group_norm: nn::GroupNorm<B>,
    /// `emb`: 10 rows of 6.
    pub emb: nn::Embedding<B>,
    /// `conv1d`: 6 to 6 channels, kernel 3. 2 groups assumed.
    pub conv1d: nn::conv::Conv1d<B>,
    /// `norm`: size 6. May be GroupNorm or InstanceNorm (`--as norm=GroupNorm`).
    pub norm: nn::LayerNorm<B>,
    /// `lstm`: 6 to 5 in each direction.
    pub lstm: nn::BiLstm<B>,
    /// `gru`: 10 to 4.
    pub gru: nn::Gru<B>,
    /// `layers`: 3 of 4 to 4.
    pub layers: Vec<nn::Linear<B>>,
    /// `fc`: 10 to 3.
    pub fc: nn::Linear<B>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// Of `conv`.
    pub conv: nn::conv::Conv2dConfig,
    /// Of `bn`.
    pub bn: nn::BatchNormConfig,
    /// Of `up`.
    pub up: nn::conv::ConvTranspose2dConfig,
    /// Of `group_norm`.
    pub group_norm: nn::GroupNormConfig,
    /// Of `emb`.
    pub emb: nn::EmbeddingConfig,
    /// Of `conv1d`.
    pub conv1d: nn::conv::Conv1dConfig,
    /// Of `norm`.
    pub norm: nn::LayerNormConfig,
    /// Of `lstm`.
    pub lstm: nn::BiLstmConfig,
    /// Of `gru`.
    pub gru: nn::GruConfig,
    /// Of `layers`.
    pub layers: Vec<nn::LinearConfig>,
    /// Of `fc`.
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
        load_named(Self::new(device), path, Format::NamedMpkGz, device)
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
            conv1d: nn::conv::Conv1dConfig::new(6, 6, 3).with_groups(2),
            norm: nn::LayerNormConfig::new(6),
            lstm: nn::BiLstmConfig::new(6, 5, true),
            gru: nn::GruConfig::new(10, 4, true),
            layers: vec![nn::LinearConfig::new(4, 4); 3],
            fc: nn::LinearConfig::new(10, 3).with_bias(false),
        }
    }
}
