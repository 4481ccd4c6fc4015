// A skeleton that Kiln 0.1.0 made from `layers.pt`.
// It is yours to complete: a checkpoint holds weights, but not what is done with them. Strides,
// paddings, dilations, epsilons, and whether the batch comes first are the layers' defaults, groups
// and heads are what the sizes suggest, and every `forward` is missing.

use kiln::config::Config;
use kiln::module::{Module, Param, ParamId};
use kiln::nn;
use kiln::nn::Initializer;
use kiln::record::{RecorderError, load_safetensors};
use kiln::tensor::backend::Backend;
use kiln::tensor::{Bool, TensorData};
use kiln::tensor::Int;
use kiln::tensor::Tensor;

/// The model.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    /// `mask`: `[2, 2]`.
    pub mask: Param<Tensor<B, 2, Bool>>,
    /// `position`: `[4]`.
    pub position: Param<Tensor<B, 1, Int>>,
    /// `conv1d`: 4 to 6 channels, kernel 3.
    pub conv1d: nn::conv::Conv1d<B>,
    /// `conv3d`: 2 to 3 channels, kernel 2 × 2 × 2.
    pub conv3d: nn::conv::Conv3d<B>,
    /// `dw`: 6 to 6 channels, kernel 3 × 3. One channel a group assumed.
    pub dw: nn::conv::Conv2d<B>,
    /// `deconv1d`: 4 to 3 channels, kernel 2.
    pub deconv1d: nn::conv::ConvTranspose1d<B>,
    /// `deconv2d`: 4 to 6 channels, kernel 3 × 3.
    pub deconv2d: nn::conv::ConvTranspose2d<B>,
    /// `deconv3d`: 2 to 3 channels, kernel 2 × 2 × 2. May be Conv3d (`--as deconv3d=Conv3d`).
    pub deconv3d: nn::conv::ConvTranspose3d<B>,
    /// `group_norm`: 4 channels. 4 groups assumed. May be LayerNorm or InstanceNorm
    /// (`--as group_norm=LayerNorm`).
    pub group_norm: nn::GroupNorm<B>,
    /// `instance_norm`: 4 channels. May be GroupNorm or LayerNorm (`--as instance_norm=GroupNorm`).
    pub instance_norm: nn::InstanceNorm<B>,
    /// `tracked_norm`: 4 channels.
    pub tracked_norm: nn::BatchNorm<B>,
    /// `plain_norm`: 4 channels. It neither scales nor shifts.
    #[module(from(gamma = "1", beta = "0"))]
    pub plain_norm: nn::BatchNorm<B>,
    /// `rms_norm`: size 4.
    pub rms_norm: nn::RmsNorm<B>,
    /// `layer_norm`: size 4. May be LayerNorm (`--as layer_norm=LayerNorm`).
    pub layer_norm: nn::RmsNorm<B>,
    /// `prelu`: 4 channels.
    pub prelu: nn::PRelu<B>,
    /// `act`.
    pub act: nn::PRelu<B>,
    /// `embedding`: 7 rows of 4.
    pub embedding: nn::Embedding<B>,
    /// `bilinear`. May be Conv1d (`--as bilinear=Conv1d`).
    pub bilinear: Bilinear<B>,
    /// `rnn`. Tanh assumed.
    pub rnn: Vec<nn::Rnn<B>>,
    /// `bi_rnn`: 4 to 3 in each direction. Tanh assumed.
    pub bi_rnn: nn::BiRnn<B>,
    /// `gru`.
    pub gru: Vec<nn::BiGru<B>>,
    /// `lstm`.
    pub lstm: Vec<nn::Lstm<B>>,
    /// `projected`. An LSTM with projections (`proj_size`), which is no layer here.
    pub projected: Projected<B>,
    /// `rnn_cell`: 4 to 3. Tanh assumed. One step of it is PyTorch's `RNNCell`.
    pub rnn_cell: nn::Rnn<B>,
    /// `gru_cell`: 4 to 3. One step of it is PyTorch's `GRUCell`.
    pub gru_cell: nn::Gru<B>,
    /// `lstm_cell`: 4 to 3. One step of it is PyTorch's `LSTMCell`.
    pub lstm_cell: nn::Lstm<B>,
    /// `attention`: size 8. 8 heads assumed.
    pub attention: nn::attention::MultiHeadAttention<B>,
    /// `across`: size 8, keys of 3, values of 5. 8 heads assumed.
    pub across: nn::attention::MultiHeadAttention<B>,
    /// `unbiased`: size 8. 8 heads assumed.
    pub unbiased: nn::attention::MultiHeadAttention<B>,
    /// `encoder`.
    pub encoder: Encoder<B>,
    /// `weighted`: 4 to 3 channels, kernel 2. Weight normalization of its weight is applied.
    pub weighted: nn::conv::Conv1d<B>,
    /// `weighted_up`: 4 to 3 channels, kernel 2. Weight normalization of its weight is applied.
    pub weighted_up: nn::conv::ConvTranspose1d<B>,
    /// `spectral`: 4 to 3. Spectral normalization of its weight is applied.
    pub spectral: nn::Linear<B>,
    /// `weighted_before`: 4 to 3. Weight normalization of its weight is applied.
    pub weighted_before: nn::Linear<B>,
    /// `spectral_before`: 4 to 3 channels, kernel 2. Spectral normalization of its weight is applied.
    pub spectral_before: nn::conv::Conv1d<B>,
    /// `pruned`: 4 to 3. Pruning of its weight is applied.
    pub pruned: nn::Linear<B>,
    /// `blocks`.
    pub blocks: Vec<Block<B>>,
    /// `steps`.
    pub steps: Steps<B>,
    /// `lists`.
    pub lists: Vec<Param<Tensor<B, 2>>>,
    /// `dicts`.
    pub dicts: Dicts<B>,
    /// `tied`: 4 to 4.
    pub tied: nn::Linear<B>,
    /// `match`: 4 to 4. May be Embedding (`--as match=Embedding`). The same tensor as `tied.weight`.
    #[module(rename = "match")]
    pub match_: nn::Linear<B>,
    /// `größe-1`: 4 to 2.
    #[module(rename = "größe-1")]
    pub gr_e_1: nn::Linear<B>,
}

/// Configuration of [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// Of `mask`.
    pub mask: [usize; 2],
    /// Of `position`.
    pub position: [usize; 1],
    /// Of `conv1d`.
    pub conv1d: nn::conv::Conv1dConfig,
    /// Of `conv3d`.
    pub conv3d: nn::conv::Conv3dConfig,
    /// Of `dw`.
    pub dw: nn::conv::Conv2dConfig,
    /// Of `deconv1d`.
    pub deconv1d: nn::conv::ConvTranspose1dConfig,
    /// Of `deconv2d`.
    pub deconv2d: nn::conv::ConvTranspose2dConfig,
    /// Of `deconv3d`.
    pub deconv3d: nn::conv::ConvTranspose3dConfig,
    /// Of `group_norm`.
    pub group_norm: nn::GroupNormConfig,
    /// Of `instance_norm`.
    pub instance_norm: nn::InstanceNormConfig,
    /// Of `tracked_norm`.
    pub tracked_norm: nn::BatchNormConfig,
    /// Of `plain_norm`.
    pub plain_norm: nn::BatchNormConfig,
    /// Of `rms_norm`.
    pub rms_norm: nn::RmsNormConfig,
    /// Of `layer_norm`.
    pub layer_norm: nn::RmsNormConfig,
    /// Of `prelu`.
    pub prelu: nn::PReluConfig,
    /// Of `act`.
    pub act: nn::PReluConfig,
    /// Of `embedding`.
    pub embedding: nn::EmbeddingConfig,
    /// Of `bilinear`.
    pub bilinear: BilinearConfig,
    /// Of `rnn`.
    pub rnn: Vec<nn::RnnConfig>,
    /// Of `bi_rnn`.
    pub bi_rnn: nn::BiRnnConfig,
    /// Of `gru`.
    pub gru: Vec<nn::BiGruConfig>,
    /// Of `lstm`.
    pub lstm: Vec<nn::LstmConfig>,
    /// Of `projected`.
    pub projected: ProjectedConfig,
    /// Of `rnn_cell`.
    pub rnn_cell: nn::RnnConfig,
    /// Of `gru_cell`.
    pub gru_cell: nn::GruConfig,
    /// Of `lstm_cell`.
    pub lstm_cell: nn::LstmConfig,
    /// Of `attention`.
    pub attention: nn::attention::MultiHeadAttentionConfig,
    /// Of `across`.
    pub across: nn::attention::MultiHeadAttentionConfig,
    /// Of `unbiased`.
    pub unbiased: nn::attention::MultiHeadAttentionConfig,
    /// Of `encoder`.
    pub encoder: EncoderConfig,
    /// Of `weighted`.
    pub weighted: nn::conv::Conv1dConfig,
    /// Of `weighted_up`.
    pub weighted_up: nn::conv::ConvTranspose1dConfig,
    /// Of `spectral`.
    pub spectral: nn::LinearConfig,
    /// Of `weighted_before`.
    pub weighted_before: nn::LinearConfig,
    /// Of `spectral_before`.
    pub spectral_before: nn::conv::Conv1dConfig,
    /// Of `pruned`.
    pub pruned: nn::LinearConfig,
    /// Of `blocks`.
    pub blocks: Vec<BlockConfig>,
    /// Of `steps`.
    pub steps: StepsConfig,
    /// Of `lists`.
    pub lists: Vec<[usize; 2]>,
    /// Of `dicts`.
    pub dicts: DictsConfig,
    /// Of `tied`.
    pub tied: nn::LinearConfig,
    /// Of `match`.
    pub match_: nn::LinearConfig,
    /// Of `größe-1`.
    pub gr_e_1: nn::LinearConfig,
}

impl ModelConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            mask: Param::initialized(
                ParamId::new(),
                Tensor::from_data(TensorData::zeros::<bool, _>(self.mask), device),
            ),
            position: Param::initialized(
                ParamId::new(),
                Tensor::zeros(self.position, device),
            ),
            conv1d: self.conv1d.init(device),
            conv3d: self.conv3d.init(device),
            dw: self.dw.init(device),
            deconv1d: self.deconv1d.init(device),
            deconv2d: self.deconv2d.init(device),
            deconv3d: self.deconv3d.init(device),
            group_norm: self.group_norm.init(device),
            instance_norm: self.instance_norm.init(device),
            tracked_norm: self.tracked_norm.init(device),
            plain_norm: self.plain_norm.init(device),
            rms_norm: self.rms_norm.init(device),
            layer_norm: self.layer_norm.init(device),
            prelu: self.prelu.init(device),
            act: self.act.init(device),
            embedding: self.embedding.init(device),
            bilinear: self.bilinear.init(device),
            rnn: self.rnn.iter().map(|item| item.init(device)).collect(),
            bi_rnn: self.bi_rnn.init(device),
            gru: self.gru.iter().map(|item| item.init(device)).collect(),
            lstm: self.lstm.iter().map(|item| item.init(device)).collect(),
            projected: self.projected.init(device),
            rnn_cell: self.rnn_cell.init(device),
            gru_cell: self.gru_cell.init(device),
            lstm_cell: self.lstm_cell.init(device),
            attention: self.attention.init(device),
            across: self.across.init(device),
            unbiased: self.unbiased.init(device),
            encoder: self.encoder.init(device),
            weighted: self.weighted.init(device),
            weighted_up: self.weighted_up.init(device),
            spectral: self.spectral.init(device),
            weighted_before: self.weighted_before.init(device),
            spectral_before: self.spectral_before.init(device),
            pruned: self.pruned.init(device),
            blocks: self.blocks.iter().map(|item| item.init(device)).collect(),
            steps: self.steps.init(device),
            lists: self
                .lists
                .iter()
                .map(|item| Initializer::Zeros.init(*item, device))
                .collect(),
            dicts: self.dicts.init(device),
            tied: self.tied.init(device),
            match_: self.match_.init(device),
            gr_e_1: self.gr_e_1.init(device),
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
            self_attn: nn::attention::MultiHeadAttentionConfig::new(8, 8)
                .with_dropout(0.0),
            linear1: nn::LinearConfig::new(8, 12),
            linear2: nn::LinearConfig::new(12, 8),
            norm1: nn::LayerNormConfig::new(8),
            norm2: nn::LayerNormConfig::new(8),
        };
        ModelConfig {
            mask: [2, 2],
            position: [4],
            conv1d: nn::conv::Conv1dConfig::new(4, 6, 3),
            conv3d: nn::conv::Conv3dConfig::new([2, 3], [2, 2, 2]),
            dw: nn::conv::Conv2dConfig::new([6, 6], [3, 3]).with_groups(6),
            deconv1d: nn::conv::ConvTranspose1dConfig::new([4, 3], 2),
            deconv2d: nn::conv::ConvTranspose2dConfig::new([4, 6], [3, 3])
                .with_groups(2),
            deconv3d: nn::conv::ConvTranspose3dConfig::new([2, 3], [2, 2, 2])
                .with_bias(false),
            group_norm: nn::GroupNormConfig::new(4, 4),
            instance_norm: nn::InstanceNormConfig::new(4),
            tracked_norm: nn::BatchNormConfig::new(4),
            plain_norm: nn::BatchNormConfig::new(4),
            rms_norm: nn::RmsNormConfig::new(4),
            layer_norm: nn::RmsNormConfig::new(4),
            prelu: nn::PReluConfig::new().with_num_parameters(4),
            act: nn::PReluConfig::new().with_num_parameters(1),
            embedding: nn::EmbeddingConfig::new(7, 4),
            bilinear: BilinearConfig {
                weight: [3, 4, 4],
                bias: [3],
            },
            rnn: Vec::from([
                nn::RnnConfig::new(4, 3, true),
                nn::RnnConfig::new(3, 3, true),
            ]),
            bi_rnn: nn::BiRnnConfig::new(4, 3, false),
            gru: Vec::from([
                nn::BiGruConfig::new(4, 3, true),
                nn::BiGruConfig::new(6, 3, true),
            ]),
            lstm: Vec::from([
                nn::LstmConfig::new(4, 3, false),
                nn::LstmConfig::new(3, 3, false),
            ]),
            projected: ProjectedConfig {
                weight_ih_l0: [12, 4],
                weight_hh_l0: [12, 2],
                bias_ih_l0: [12],
                bias_hh_l0: [12],
                weight_hr_l0: [2, 3],
            },
            rnn_cell: nn::RnnConfig::new(4, 3, true),
            gru_cell: nn::GruConfig::new(4, 3, true),
            lstm_cell: nn::LstmConfig::new(4, 3, true),
            attention: nn::attention::MultiHeadAttentionConfig::new(8, 8)
                .with_dropout(0.0),
            across: nn::attention::MultiHeadAttentionConfig::new(8, 8)
                .with_dropout(0.0)
                .with_d_key(Some(3))
                .with_d_value(Some(5)),
            unbiased: nn::attention::MultiHeadAttentionConfig::new(8, 8)
                .with_dropout(0.0)
                .with_bias(Some(false)),
            encoder: EncoderConfig {
                layers: vec![layer; 2],
            },
            weighted: nn::conv::Conv1dConfig::new(4, 3, 2),
            weighted_up: nn::conv::ConvTranspose1dConfig::new([4, 3], 2),
            spectral: nn::LinearConfig::new(4, 3),
            weighted_before: nn::LinearConfig::new(4, 3),
            spectral_before: nn::conv::Conv1dConfig::new(4, 3, 2),
            pruned: nn::LinearConfig::new(4, 3),
            blocks: Vec::from([
                BlockConfig {
                    fc: nn::LinearConfig::new(4, 4),
                    norm: nn::LayerNormConfig::new(4),
                    shortcut: Some(nn::LinearConfig::new(4, 4).with_bias(false)),
                },
                BlockConfig {
                    fc: nn::LinearConfig::new(4, 4),
                    norm: nn::LayerNormConfig::new(4),
                    shortcut: None,
                },
                BlockConfig {
                    fc: nn::LinearConfig::new(4, 4),
                    norm: nn::LayerNormConfig::new(4),
                    shortcut: None,
                },
            ]),
            steps: StepsConfig {
                layer_0: nn::LinearConfig::new(4, 6),
                layer_2: nn::LinearConfig::new(6, 4),
            },
            lists: vec![[2, 3], [3, 2]],
            dicts: DictsConfig {
                a_b: [],
                match_: [2],
            },
            tied: nn::LinearConfig::new(4, 4),
            match_: nn::LinearConfig::new(4, 4).with_bias(false),
            gr_e_1: nn::LinearConfig::new(4, 2),
        }
    }
}

/// `bilinear`.
#[derive(Module, Debug)]
pub struct Bilinear<B: Backend> {
    /// `weight`: `[3, 4, 4]`.
    pub weight: Param<Tensor<B, 3>>,
    /// `bias`: `[3]`.
    pub bias: Param<Tensor<B, 1>>,
}

/// Configuration of [`Bilinear`].
#[derive(Config, Debug)]
pub struct BilinearConfig {
    /// Of `weight`.
    pub weight: [usize; 3],
    /// Of `bias`.
    pub bias: [usize; 1],
}

impl BilinearConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Bilinear<B> {
        Bilinear {
            weight: Initializer::Zeros.init(self.weight, device),
            bias: Initializer::Zeros.init(self.bias, device),
        }
    }
}

/// `projected`.
#[derive(Module, Debug)]
pub struct Projected<B: Backend> {
    /// `weight_ih_l0`: `[12, 4]`.
    pub weight_ih_l0: Param<Tensor<B, 2>>,
    /// `weight_hh_l0`: `[12, 2]`.
    pub weight_hh_l0: Param<Tensor<B, 2>>,
    /// `bias_ih_l0`: `[12]`.
    pub bias_ih_l0: Param<Tensor<B, 1>>,
    /// `bias_hh_l0`: `[12]`.
    pub bias_hh_l0: Param<Tensor<B, 1>>,
    /// `weight_hr_l0`: `[2, 3]`.
    pub weight_hr_l0: Param<Tensor<B, 2>>,
}

/// Configuration of [`Projected`].
#[derive(Config, Debug)]
pub struct ProjectedConfig {
    /// Of `weight_ih_l0`.
    pub weight_ih_l0: [usize; 2],
    /// Of `weight_hh_l0`.
    pub weight_hh_l0: [usize; 2],
    /// Of `bias_ih_l0`.
    pub bias_ih_l0: [usize; 1],
    /// Of `bias_hh_l0`.
    pub bias_hh_l0: [usize; 1],
    /// Of `weight_hr_l0`.
    pub weight_hr_l0: [usize; 2],
}

impl ProjectedConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Projected<B> {
        Projected {
            weight_ih_l0: Initializer::Zeros.init(self.weight_ih_l0, device),
            weight_hh_l0: Initializer::Zeros.init(self.weight_hh_l0, device),
            bias_ih_l0: Initializer::Zeros.init(self.bias_ih_l0, device),
            bias_hh_l0: Initializer::Zeros.init(self.bias_hh_l0, device),
            weight_hr_l0: Initializer::Zeros.init(self.weight_hr_l0, device),
        }
    }
}

/// `encoder`.
#[derive(Module, Debug)]
pub struct Encoder<B: Backend> {
    /// `layers`.
    pub layers: Vec<Layer<B>>,
}

/// Configuration of [`Encoder`].
#[derive(Config, Debug)]
pub struct EncoderConfig {
    /// Of `layers`.
    pub layers: Vec<LayerConfig>,
}

impl EncoderConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Encoder<B> {
        Encoder {
            layers: self.layers.iter().map(|item| item.init(device)).collect(),
        }
    }
}

/// `blocks.*`.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    /// `fc`: 4 to 4.
    pub fc: nn::Linear<B>,
    /// `norm`: size 4.
    pub norm: nn::LayerNorm<B>,
    /// `shortcut`: 4 to 4. May be Embedding (`--as 'blocks.*.shortcut=Embedding'`).
    pub shortcut: Option<nn::Linear<B>>,
}

/// Configuration of [`Block`].
#[derive(Config, Debug)]
pub struct BlockConfig {
    /// Of `fc`.
    pub fc: nn::LinearConfig,
    /// Of `norm`.
    pub norm: nn::LayerNormConfig,
    /// Of `shortcut`.
    pub shortcut: Option<nn::LinearConfig>,
}

impl BlockConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Block<B> {
        Block {
            fc: self.fc.init(device),
            norm: self.norm.init(device),
            shortcut: self.shortcut.as_ref().map(|item| item.init(device)),
        }
    }
}

/// `steps`.
#[derive(Module, Debug)]
pub struct Steps<B: Backend> {
    /// `0`: 4 to 6.
    #[module(rename = "0")]
    pub layer_0: nn::Linear<B>,
    /// `2`: 6 to 4.
    #[module(rename = "2")]
    pub layer_2: nn::Linear<B>,
}

/// Configuration of [`Steps`].
#[derive(Config, Debug)]
pub struct StepsConfig {
    /// Of `0`.
    pub layer_0: nn::LinearConfig,
    /// Of `2`.
    pub layer_2: nn::LinearConfig,
}

impl StepsConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Steps<B> {
        Steps {
            layer_0: self.layer_0.init(device),
            layer_2: self.layer_2.init(device),
        }
    }
}

/// `dicts`.
#[derive(Module, Debug)]
pub struct Dicts<B: Backend> {
    /// `a/b`: `[]`.
    #[module(rename = "a/b")]
    pub a_b: Param<Tensor<B, 0>>,
    /// `match`: `[2]`.
    #[module(rename = "match")]
    pub match_: Param<Tensor<B, 1>>,
}

/// Configuration of [`Dicts`].
#[derive(Config, Debug)]
pub struct DictsConfig {
    /// Of `a/b`.
    pub a_b: [usize; 0],
    /// Of `match`.
    pub match_: [usize; 1],
}

impl DictsConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Dicts<B> {
        Dicts {
            a_b: Initializer::Zeros.init(self.a_b, device),
            match_: Initializer::Zeros.init(self.match_, device),
        }
    }
}

/// `encoder.layers.*`.
#[derive(Module, Debug)]
pub struct Layer<B: Backend> {
    /// `self_attn`: size 8. 8 heads assumed.
    pub self_attn: nn::attention::MultiHeadAttention<B>,
    /// `linear1`: 8 to 12.
    pub linear1: nn::Linear<B>,
    /// `linear2`: 12 to 8.
    pub linear2: nn::Linear<B>,
    /// `norm1`: size 8.
    pub norm1: nn::LayerNorm<B>,
    /// `norm2`: size 8.
    pub norm2: nn::LayerNorm<B>,
}

/// Configuration of [`Layer`].
#[derive(Config, Debug)]
pub struct LayerConfig {
    /// Of `self_attn`.
    pub self_attn: nn::attention::MultiHeadAttentionConfig,
    /// Of `linear1`.
    pub linear1: nn::LinearConfig,
    /// Of `linear2`.
    pub linear2: nn::LinearConfig,
    /// Of `norm1`.
    pub norm1: nn::LayerNormConfig,
    /// Of `norm2`.
    pub norm2: nn::LayerNormConfig,
}

impl LayerConfig {
    /// A module whose parameters are made when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Layer<B> {
        Layer {
            self_attn: self.self_attn.init(device),
            linear1: self.linear1.init(device),
            linear2: self.linear2.init(device),
            norm1: self.norm1.init(device),
            norm2: self.norm2.init(device),
        }
    }
}
