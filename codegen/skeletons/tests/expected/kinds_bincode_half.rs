// A skeleton that Kiln 0.1.0 made from `kinds.pt`.
// It is yours to complete: a checkpoint holds weights, but not what is done with them. Strides,
// paddings, dilations, epsilons, and whether the batch comes first are the layers' defaults, groups
// and heads are what the sizes suggest, and every `forward` is missing.

use kiln::config::Config;
use kiln::module::Module;
use kiln::nn;
use kiln::record::{BinFileRecorder, HalfPrecisionSettings, Recorder, RecorderError};
use kiln::tensor::backend::Backend;

/// The model.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    /// `conv1d`: 3 to 4 channels, kernel 2. May be ConvTranspose1d (`--as conv1d=ConvTranspose1d`).
    pub conv1d: nn::conv::Conv1d<B>,
    /// `conv3d`: 3 to 2 channels, kernel 1 × 2 × 2.
    pub conv3d: nn::conv::Conv3d<B>,
    /// `deconv1d`: 3 to 4 channels, kernel 2.
    pub deconv1d: nn::conv::ConvTranspose1d<B>,
    /// `deconv3d`: 3 to 4 channels, kernel 1 × 2 × 2. May be Conv3d (`--as deconv3d=Conv3d`).
    pub deconv3d: nn::conv::ConvTranspose3d<B>,
    /// `prelu`: 3 channels.
    pub prelu: nn::PRelu<B>,
    /// `rms_norm`: size 5.
    pub rms_norm: nn::RmsNorm<B>,
    /// `lstm`: 3 to 2.
    pub lstm: nn::Lstm<B>,
    /// `bi_gru`: 3 to 2 in each direction.
    pub bi_gru: nn::BiGru<B>,
    /// `rnn`: 3 to 2. Tanh assumed.
    pub rnn: nn::Rnn<B>,
    /// `bi_rnn`: 3 to 2 in each direction. Tanh assumed.
    pub bi_rnn: nn::BiRnn<B>,
    /// `attention`: size 2. 2 heads assumed.
    pub attention: nn::attention::MultiHeadAttention<B>,
    /// `across`: size 2, keys of 1, values of 3. 2 heads assumed.
    pub across: nn::attention::MultiHeadAttention<B>,
    /// `inst_norm`: 4 channels. May be GroupNorm or LayerNorm (`--as inst_norm=GroupNorm`).
    pub inst_norm: nn::InstanceNorm<B>,
    /// `c_fc`: 2 to 3. Its matrix is `[in, out]` in the checkpoint.
    #[module(from(weight = "c_fc.weight"))]
    pub c_fc: nn::Linear<B>,
    /// `layers`.
    pub layers: Vec<Layer<B>>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// Of `conv1d`.
    pub conv1d: nn::conv::Conv1dConfig,
    /// Of `conv3d`.
    pub conv3d: nn::conv::Conv3dConfig,
    /// Of `deconv1d`.
    pub deconv1d: nn::conv::ConvTranspose1dConfig,
    /// Of `deconv3d`.
    pub deconv3d: nn::conv::ConvTranspose3dConfig,
    /// Of `prelu`.
    pub prelu: nn::PReluConfig,
    /// Of `rms_norm`.
    pub rms_norm: nn::RmsNormConfig,
    /// Of `lstm`.
    pub lstm: nn::LstmConfig,
    /// Of `bi_gru`.
    pub bi_gru: nn::BiGruConfig,
    /// Of `rnn`.
    pub rnn: nn::RnnConfig,
    /// Of `bi_rnn`.
    pub bi_rnn: nn::BiRnnConfig,
    /// Of `attention`.
    pub attention: nn::attention::MultiHeadAttentionConfig,
    /// Of `across`.
    pub across: nn::attention::MultiHeadAttentionConfig,
    /// Of `inst_norm`.
    pub inst_norm: nn::InstanceNormConfig,
    /// Of `c_fc`.
    pub c_fc: nn::LinearConfig,
    /// Of `layers`.
    pub layers: Vec<LayerConfig>,
}

impl ModelConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            conv1d: self.conv1d.init(device),
            conv3d: self.conv3d.init(device),
            deconv1d: self.deconv1d.init(device),
            deconv3d: self.deconv3d.init(device),
            prelu: self.prelu.init(device),
            rms_norm: self.rms_norm.init(device),
            lstm: self.lstm.init(device),
            bi_gru: self.bi_gru.init(device),
            rnn: self.rnn.init(device),
            bi_rnn: self.bi_rnn.init(device),
            attention: self.attention.init(device),
            across: self.across.init(device),
            inst_norm: self.inst_norm.init(device),
            c_fc: self.c_fc.init(device),
            layers: self.layers.iter().map(|item| item.init(device)).collect(),
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
        let recorder = BinFileRecorder::<HalfPrecisionSettings>::new();
        let record = recorder.load(path.as_ref().to_path_buf(), device)?;
        Self::new(device).try_load_record(record)
    }
}

impl ModelConfig {
    /// The sizes of the checkpoint.
    pub fn of_checkpoint() -> Self {
        ModelConfig {
            conv1d: nn::conv::Conv1dConfig::new(3, 4, 2).with_bias(false),
            conv3d: nn::conv::Conv3dConfig::new([3, 2], [1, 2, 2]),
            deconv1d: nn::conv::ConvTranspose1dConfig::new([3, 4], 2),
            deconv3d: nn::conv::ConvTranspose3dConfig::new([3, 4], [1, 2, 2])
                .with_bias(false),
            prelu: nn::PReluConfig::new().with_num_parameters(3),
            rms_norm: nn::RmsNormConfig::new(5),
            lstm: nn::LstmConfig::new(3, 2, false),
            bi_gru: nn::BiGruConfig::new(3, 2, false),
            rnn: nn::RnnConfig::new(3, 2, true),
            bi_rnn: nn::BiRnnConfig::new(3, 2, false),
            attention: nn::attention::MultiHeadAttentionConfig::new(2, 2)
                .with_dropout(0.0)
                .with_bias(Some(false)),
            across: nn::attention::MultiHeadAttentionConfig::new(2, 2)
                .with_dropout(0.0)
                .with_d_key(Some(1))
                .with_d_value(Some(3)),
            inst_norm: nn::InstanceNormConfig::new(4),
            c_fc: nn::LinearConfig::new(2, 3),
            layers: Vec::from([
                LayerConfig {
                    c_fc: nn::LinearConfig::new(2, 2),
                    norm: Some(nn::RmsNormConfig::new(2)),
                },
                LayerConfig {
                    c_fc: nn::LinearConfig::new(2, 2),
                    norm: None,
                },
            ]),
        }
    }
}

/// `layers.*`.
#[derive(Module, Debug)]
pub struct Layer<B: Backend> {
    /// `c_fc`: 2 to 2. Its matrix is `[in, out]` in the checkpoint. May be Linear
    /// (`--as 'layers.*.c_fc=Linear'`).
    #[module(from(weight = "c_fc.weight"))]
    pub c_fc: nn::Linear<B>,
    /// `norm`: size 2. May be LayerNorm (`--as 'layers.*.norm=LayerNorm'`).
    pub norm: Option<nn::RmsNorm<B>>,
}

/// Configuration of [`Layer`].
#[derive(Config, Debug)]
pub struct LayerConfig {
    /// Of `c_fc`.
    pub c_fc: nn::LinearConfig,
    /// Of `norm`.
    pub norm: Option<nn::RmsNormConfig>,
}

impl LayerConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Layer<B> {
        Layer {
            c_fc: self.c_fc.init(device),
            norm: self.norm.as_ref().map(|item| item.init(device)),
        }
    }
}
