// A skeleton that Kiln 0.1.0 made from `kinds.pt`. It is yours to complete: a checkpoint holds weights, but not what
// is done with them. Strides, paddings, dilations, groups and epsilons are the layers' defaults, and every
// `forward` is missing.

use kiln::config::Config;
use kiln::module::Module;
use kiln::nn;
use kiln::record::{BinFileRecorder, HalfPrecisionSettings, Recorder, RecorderError};
use kiln::tensor::backend::Backend;

/// The model.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    /// `conv1d`.
    pub conv1d: nn::conv::Conv1d<B>,
    /// `conv3d`.
    pub conv3d: nn::conv::Conv3d<B>,
    /// `deconv1d`.
    pub deconv1d: nn::conv::ConvTranspose1d<B>,
    /// `deconv3d`: may be Conv3d (`--as deconv3d=Conv3d`).
    pub deconv3d: nn::conv::ConvTranspose3d<B>,
    /// `prelu`: may be RmsNorm (`--as prelu=RmsNorm`).
    pub prelu: nn::PRelu<B>,
    /// `rms_norm`: may be LayerNorm or PRelu (`--as rms_norm=LayerNorm|PRelu`).
    pub rms_norm: nn::RmsNorm<B>,
    /// `lstm`.
    pub lstm: nn::Lstm<B>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// `conv1d`.
    pub conv1d: nn::conv::Conv1dConfig,
    /// `conv3d`.
    pub conv3d: nn::conv::Conv3dConfig,
    /// `deconv1d`.
    pub deconv1d: nn::conv::ConvTranspose1dConfig,
    /// `deconv3d`: may be Conv3d (`--as deconv3d=Conv3d`).
    pub deconv3d: nn::conv::ConvTranspose3dConfig,
    /// `prelu`: may be RmsNorm (`--as prelu=RmsNorm`).
    pub prelu: nn::PReluConfig,
    /// `rms_norm`: may be LayerNorm or PRelu (`--as rms_norm=LayerNorm|PRelu`).
    pub rms_norm: nn::RmsNormConfig,
    /// `lstm`.
    pub lstm: nn::LstmConfig,
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
        }
    }
}
