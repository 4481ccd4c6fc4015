// A skeleton that Kiln 0.1.0 made from `net_residual_cnn_unfolded.pt`.
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
    /// `conv1`: 3 to 8 channels, kernel 7 × 7.
    pub conv1: nn::conv::Conv2d<B>,
    /// `bn1`: 8 channels.
    pub bn1: nn::BatchNorm<B>,
    /// `layer1`.
    pub layer1: Vec<Layer<B>>,
    /// `layer2`.
    pub layer2: Vec<Layer<B>>,
    /// `fc`: 16 to 10.
    pub fc: nn::Linear<B>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// Of `conv1`.
    pub conv1: nn::conv::Conv2dConfig,
    /// Of `bn1`.
    pub bn1: nn::BatchNormConfig,
    /// Of `layer1`.
    pub layer1: Vec<LayerConfig>,
    /// Of `layer2`.
    pub layer2: Vec<LayerConfig>,
    /// Of `fc`.
    pub fc: nn::LinearConfig,
}

impl ModelConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            conv1: self.conv1.init(device),
            bn1: self.bn1.init(device),
            layer1: self.layer1.iter().map(|item| item.init(device)).collect(),
            layer2: self.layer2.iter().map(|item| item.init(device)).collect(),
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
        load_safetensors(Self::new(device), path, device)
    }
}

impl ModelConfig {
    /// The sizes of the checkpoint.
    pub fn of_checkpoint() -> Self {
        let layer = LayerConfig {
            conv1: nn::conv::Conv2dConfig::new([8, 8], [3, 3]).with_bias(false),
            bn1: nn::BatchNormConfig::new(8),
            conv2: nn::conv::Conv2dConfig::new([8, 8], [3, 3]).with_bias(false),
            bn2: nn::BatchNormConfig::new(8),
            downsample: None,
        };
        ModelConfig {
            conv1: nn::conv::Conv2dConfig::new([3, 8], [7, 7]).with_bias(false),
            bn1: nn::BatchNormConfig::new(8),
            layer1: vec![layer; 2],
            layer2: Vec::from([
                LayerConfig {
                    conv1: nn::conv::Conv2dConfig::new([8, 16], [3, 3]).with_bias(false),
                    bn1: nn::BatchNormConfig::new(16),
                    conv2: nn::conv::Conv2dConfig::new([16, 16], [3, 3])
                        .with_bias(false),
                    bn2: nn::BatchNormConfig::new(16),
                    downsample: Some(DownsampleConfig {
                        layer_0: nn::conv::Conv2dConfig::new([8, 16], [1, 1])
                            .with_bias(false),
                        layer_1: nn::BatchNormConfig::new(16),
                    }),
                },
                LayerConfig {
                    conv1: nn::conv::Conv2dConfig::new([16, 16], [3, 3])
                        .with_bias(false),
                    bn1: nn::BatchNormConfig::new(16),
                    conv2: nn::conv::Conv2dConfig::new([16, 16], [3, 3])
                        .with_bias(false),
                    bn2: nn::BatchNormConfig::new(16),
                    downsample: None,
                },
            ]),
            fc: nn::LinearConfig::new(16, 10),
        }
    }
}

/// `layer1.*`, `layer2.*`.
#[derive(Module, Debug)]
pub struct Layer<B: Backend> {
    /// `conv1`.
    pub conv1: nn::conv::Conv2d<B>,
    /// `bn1`.
    pub bn1: nn::BatchNorm<B>,
    /// `conv2`.
    pub conv2: nn::conv::Conv2d<B>,
    /// `bn2`.
    pub bn2: nn::BatchNorm<B>,
    /// `downsample`.
    pub downsample: Option<Downsample<B>>,
}

/// Configuration of [`Layer`].
#[derive(Config, Debug)]
pub struct LayerConfig {
    /// Of `conv1`.
    pub conv1: nn::conv::Conv2dConfig,
    /// Of `bn1`.
    pub bn1: nn::BatchNormConfig,
    /// Of `conv2`.
    pub conv2: nn::conv::Conv2dConfig,
    /// Of `bn2`.
    pub bn2: nn::BatchNormConfig,
    /// Of `downsample`.
    pub downsample: Option<DownsampleConfig>,
}

impl LayerConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Layer<B> {
        Layer {
            conv1: self.conv1.init(device),
            bn1: self.bn1.init(device),
            conv2: self.conv2.init(device),
            bn2: self.bn2.init(device),
            downsample: self.downsample.as_ref().map(|item| item.init(device)),
        }
    }
}

/// `layer2.*.downsample`.
#[derive(Module, Debug)]
pub struct Downsample<B: Backend> {
    /// `0`: 8 to 16 channels, kernel 1 × 1.
    #[module(rename = "0")]
    pub layer_0: nn::conv::Conv2d<B>,
    /// `1`: 16 channels.
    #[module(rename = "1")]
    pub layer_1: nn::BatchNorm<B>,
}

/// Configuration of [`Downsample`].
#[derive(Config, Debug)]
pub struct DownsampleConfig {
    /// Of `0`.
    pub layer_0: nn::conv::Conv2dConfig,
    /// Of `1`.
    pub layer_1: nn::BatchNormConfig,
}

impl DownsampleConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Downsample<B> {
        Downsample {
            layer_0: self.layer_0.init(device),
            layer_1: self.layer_1.init(device),
        }
    }
}
