// A skeleton that Kiln 0.1.0 made from `parameters.pt`.
// It is yours to complete: a checkpoint holds weights, but not what is done with them. Strides,
// paddings, dilations, epsilons, and whether the batch comes first are the layers' defaults, groups
// and heads are what the sizes suggest, and every `forward` is missing.

use kiln::config::Config;
use kiln::module::{Module, Param};
use kiln::nn::Initializer;
use kiln::record::{RecorderError, load_safetensors};
use kiln::tensor::backend::Backend;
use kiln::tensor::Tensor;

/// The model.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    /// `weight`: `[2, 3]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `frozen`: `[2]`.
    pub frozen: Param<Tensor<B, 1>>,
    /// `buffer`: `[2]`.
    pub buffer: Param<Tensor<B, 1>>,
    /// `grad`: `[2]`.
    pub grad: Param<Tensor<B, 1>>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// Of `weight`.
    pub weight: [usize; 2],
    /// Of `frozen`.
    pub frozen: [usize; 1],
    /// Of `buffer`.
    pub buffer: [usize; 1],
    /// Of `grad`.
    pub grad: [usize; 1],
}

impl ModelConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            weight: Initializer::Zeros.init(self.weight, device),
            frozen: Initializer::Zeros.init(self.frozen, device),
            buffer: Initializer::Zeros.init(self.buffer, device),
            grad: Initializer::Zeros.init(self.grad, device),
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
            weight: [2, 3],
            frozen: [2],
            buffer: [2],
            grad: [2],
        }
    }
}
