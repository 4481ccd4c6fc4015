// A module of the libraries' own layers, written once for both; `root` is either.
//
// Included by the burn-compat crate and by the runtime's own tests.

use root::module::{Module, ModuleMapper, Param, ParamId};
use root::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use root::nn::conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use root::nn::gru::{Gru, GruConfig};
use root::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use root::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use root::nn::{
    BatchNorm, BatchNormConfig, BiLstm, BiLstmConfig, Dropout, DropoutConfig, Embedding, EmbeddingConfig, GroupNorm,
    GroupNormConfig, InstanceNorm, InstanceNormConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, LinearLayout, Lstm, LstmConfig, PRelu, PReluConfig, PaddingConfig2d, Relu, RmsNorm, RmsNormConfig,
    SwiGlu, SwiGluConfig,
};
use root::tensor::backend::Backend;
use root::tensor::{Tensor, TensorData};

/// Many layers.
#[derive(Module, Debug)]
pub struct Layers<B: Backend> {
    pub linear: Linear<B>,
    pub without_bias: Linear<B>,
    pub turned: Linear<B>,
    pub conv1d: Conv1d<B>,
    pub conv2d: Conv2d<B>,
    pub transposed: ConvTranspose2d<B>,
    pub batch_norm: BatchNorm<B>,
    pub layer_norm: LayerNorm<B>,
    pub layer_norm_without_bias: LayerNorm<B>,
    pub group_norm: GroupNorm<B>,
    pub instance_norm: InstanceNorm<B>,
    pub rms_norm: RmsNorm<B>,
    pub embedding: Embedding<B>,
    pub lstm: Lstm<B>,
    pub bi_lstm: BiLstm<B>,
    pub gru: Gru<B>,
    pub attention: MultiHeadAttention<B>,
    pub encoder: TransformerEncoder<B>,
    pub prelu: PRelu<B>,
    pub swiglu: SwiGlu<B>,
    pub max_pool: MaxPool2d,
    pub average: AdaptiveAvgPool2d,
    pub dropout: Dropout,
    pub relu: Relu,
}

/// Gives each parameter an id and values by its position.
struct Number(u64);

impl<B: Backend> ModuleMapper<B> for Number {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.0 += 1;
        let (_, tensor, mapper) = param.consume();
        let shape: [usize; D] = tensor.dims();
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|i| ((i * 7 + self.0 as usize * 5) % 64) as f32 / 32.0 - 1.0).collect();
        let tensor = Tensor::from_data(TensorData::new(values, shape), &tensor.device());
        Param::from_mapped_value(ParamId::from(self.0), tensor, mapper)
    }
}

impl<B: Backend> Layers<B> {
    /// The module with new ids and values.
    pub fn blank(device: &B::Device) -> Self {
        Self {
            linear: LinearConfig::new(3, 2).init(device),
            without_bias: LinearConfig::new(2, 3).with_bias(false).init(device),
            turned: LinearConfig::new(3, 2).with_layout(LinearLayout::Col).init(device),
            conv1d: Conv1dConfig::new(2, 3, 2).init(device),
            conv2d: Conv2dConfig::new([2, 4], [3, 3]).with_groups(2).with_padding(PaddingConfig2d::Same).init(device),
            transposed: ConvTranspose2dConfig::new([2, 3], [2, 2]).with_stride([2, 2]).init(device),
            batch_norm: BatchNormConfig::new(3).init(device),
            layer_norm: LayerNormConfig::new(4).init(device),
            layer_norm_without_bias: LayerNormConfig::new(4).with_bias(false).init(device),
            group_norm: GroupNormConfig::new(2, 4).init(device),
            instance_norm: InstanceNormConfig::new(3).with_affine(false).init(device),
            rms_norm: RmsNormConfig::new(3).init(device),
            embedding: EmbeddingConfig::new(5, 2).init(device),
            lstm: LstmConfig::new(2, 3, true).init(device),
            bi_lstm: BiLstmConfig::new(2, 2, false).init(device),
            gru: GruConfig::new(2, 2, true).init(device),
            attention: MultiHeadAttentionConfig::new(4, 2).init(device),
            encoder: TransformerEncoderConfig::new(4, 6, 2, 2).init(device),
            prelu: PReluConfig::new().init(device),
            swiglu: SwiGluConfig::new(2, 3).init(device),
            max_pool: MaxPool2dConfig::new([2, 2]).init(),
            average: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            dropout: DropoutConfig::new(0.5).init(),
            relu: Relu::new(),
        }
    }

    /// The module with fixed ids and values.
    pub fn sample(device: &B::Device) -> Self {
        let module = Self::blank(device).map(&mut Number(0));
        // The ids of running statistics are not mapped everywhere.
        let mut record = module.clone().into_record();
        let mean = record.batch_norm.running_mean.val();
        record.batch_norm.running_mean = Param::initialized(ParamId::from(1001), mean);
        let variance = record.batch_norm.running_var.val();
        record.batch_norm.running_var = Param::initialized(ParamId::from(1002), variance);
        module.load_record(record)
    }
}
