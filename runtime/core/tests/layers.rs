//! The catalogue of layers in `kiln_types` against the layers: the fields of each, their order, and what they are.
#![allow(missing_docs)]

use kiln_core::module::Module;
use kiln_core::nn::attention::MultiHeadAttentionConfig;
use kiln_core::nn::conv::{
    Conv1dConfig, Conv2dConfig, Conv3dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig,
    ConvTranspose3dConfig, DeformConv2dConfig, QuantizedConv1dConfig, QuantizedConv2dConfig,
    QuantizedConv3dConfig,
};
use kiln_core::nn::{
    BatchNormConfig, BiGruConfig, BiLstmConfig, BiRnnConfig, EmbeddingConfig, GateController,
    GroupNormConfig, GruConfig, Initializer, InstanceNormConfig, LayerNormConfig, LinearConfig, LstmConfig,
    PReluConfig, QuantizedAddConfig, QuantizedLinearConfig, QuantizedMulConfig, QuantizerConfig,
    RecurrentConfig, RmsNormConfig, RnnConfig, SwiGluConfig,
};
use kiln_core::record::{FullPrecisionSettings, Record};
use kiln_types::layers::{LAYERS, Layer, Slot};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;

type B = kiln::backend::NdArray;

/// What a record holds, with its fields in order.
#[derive(Debug)]
enum Node {
    Nothing,
    Fields(Vec<(String, Node)>),
    Items(Vec<Node>),
    Value,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Nodes;
        impl<'de> Visitor<'de> for Nodes {
            type Value = Node;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Nothing)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
                Ok(Node::Value)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
                Ok(Node::Value)
            }

            fn visit_str<E>(self, _: &str) -> Result<Node, E> {
                Ok(Node::Value)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = items.next_element()? {
                    nodes.push(node);
                }
                Ok(Node::Items(nodes))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
                let mut nodes = Vec::new();
                while let Some(field) = fields.next_entry()? {
                    nodes.push(field);
                }
                Ok(Node::Fields(nodes))
            }
        }
        deserializer.deserialize_any(Nodes)
    }
}

/// The record of a module.
fn record(module: impl Module<B>) -> Node {
    let item = module.into_record().into_item::<FullPrecisionSettings>();
    serde_json::from_str(&serde_json::to_string(&item).unwrap()).unwrap()
}

/// Holds a record with all parameters, and one with as few as the layer can have, against the catalogue.
fn check(path: &str, layer: &Layer, full: &Node, bare: &Node) {
    let (Node::Fields(full), Node::Fields(bare)) = (full, bare) else { panic!("{path} has no fields") };
    let names: Vec<&str> = full.iter().map(|(name, _)| name.as_str()).collect();
    let expected: Vec<&str> = layer.fields.iter().map(|field| field.name).collect();
    assert_eq!(names, expected, "{path}");
    for ((field, (_, full)), (_, bare)) in layer.fields.iter().zip(full).zip(bare) {
        let path = format!("{path}.{}", field.name);
        let is_parameter = |node: &Node| matches!(node, Node::Fields(parts) if parts[0].0 == "id");
        let is_nothing = |node: &Node| matches!(node, Node::Nothing);
        let fits = match field.slot {
            Slot::Parameter => is_parameter(full) && is_parameter(bare),
            Slot::Optional => is_parameter(full) && is_nothing(bare),
            Slot::Constant => is_nothing(full) && is_nothing(bare),
            Slot::Constants(count) => {
                matches!(full, Node::Items(items) if items.len() == count && items.iter().all(is_nothing))
            }
            Slot::Activation(_, name) => {
                matches!(full, Node::Fields(variant) if variant.len() == 1 && variant[0].0 == name)
            }
            Slot::Layer(inner) => {
                check(&path, inner, full, bare);
                true
            }
        };
        assert!(fits, "{path}: {full:?} and {bare:?} are no {:?}", field.slot);
    }
}

#[test]
fn the_catalogue_has_what_the_layers_have() {
    let device = &Default::default();
    let mut checked = BTreeMap::new();
    macro_rules! layers {
        ($($name:literal: $full:expr, $bare:expr;)*) => {
            $(checked.insert($name, (record($full), record($bare)));)*
        };
    }
    // Of a layer of integers with a bias of either kind.
    macro_rules! of_integers {
        ($config:expr) => {{
            let zeros = Some(kiln_core::tensor::DType::U8);
            let config = $config.with_weight_zero_point(true).with_input_zero_point(zeros);
            let config = config.with_output_zero_point(zeros);
            let biased = config.clone().init::<B>(device);
            let mut layer = config.with_integer_bias(true).init::<B>(device);
            layer.bias = biased.bias;
            layer
        }};
    }
    let gate = |bias| GateController::<B>::new(2, 3, bias, Initializer::Zeros, device);
    layers! {
        "BatchNorm": BatchNormConfig::new(2).init::<B>(device), BatchNormConfig::new(2).init::<B>(device);
        "BiGru": BiGruConfig::new(2, 3, true).init::<B>(device), BiGruConfig::new(2, 3, false).init::<B>(device);
        "BiLstm": BiLstmConfig::new(2, 3, true).init::<B>(device), BiLstmConfig::new(2, 3, false).init::<B>(device);
        "BiRnn": BiRnnConfig::new(2, 3, true).init::<B>(device), BiRnnConfig::new(2, 3, false).init::<B>(device);
        "Conv1d": Conv1dConfig::new(2, 3, 2).init::<B>(device),
            Conv1dConfig::new(2, 3, 2).with_bias(false).init::<B>(device);
        "Conv2d": Conv2dConfig::new([2, 3], [2, 2]).init::<B>(device),
            Conv2dConfig::new([2, 3], [2, 2]).with_bias(false).init::<B>(device);
        "Conv3d": Conv3dConfig::new([2, 3], [2, 2, 2]).init::<B>(device),
            Conv3dConfig::new([2, 3], [2, 2, 2]).with_bias(false).init::<B>(device);
        "ConvTranspose1d": ConvTranspose1dConfig::new([2, 3], 2).init::<B>(device),
            ConvTranspose1dConfig::new([2, 3], 2).with_bias(false).init::<B>(device);
        "ConvTranspose2d": ConvTranspose2dConfig::new([2, 3], [2, 2]).init::<B>(device),
            ConvTranspose2dConfig::new([2, 3], [2, 2]).with_bias(false).init::<B>(device);
        "ConvTranspose3d": ConvTranspose3dConfig::new([2, 3], [2, 2, 2]).init::<B>(device),
            ConvTranspose3dConfig::new([2, 3], [2, 2, 2]).with_bias(false).init::<B>(device);
        "DeformConv2d": DeformConv2dConfig::new([2, 3], [2, 2]).init::<B>(device),
            DeformConv2dConfig::new([2, 3], [2, 2]).with_bias(false).init::<B>(device);
        "Embedding": EmbeddingConfig::new(2, 3).init::<B>(device), EmbeddingConfig::new(2, 3).init::<B>(device);
        "GateController": gate(true), gate(false);
        "GroupNorm": GroupNormConfig::new(1, 2).init::<B>(device),
            GroupNormConfig::new(1, 2).with_affine(false).init::<B>(device);
        "Gru": GruConfig::new(2, 3, true).init::<B>(device), GruConfig::new(2, 3, false).init::<B>(device);
        "InstanceNorm": InstanceNormConfig::new(2).init::<B>(device),
            InstanceNormConfig::new(2).with_affine(false).init::<B>(device);
        "LayerNorm": LayerNormConfig::new(2).init::<B>(device),
            LayerNormConfig::new(2).with_bias(false).init::<B>(device);
        "Linear": LinearConfig::new(2, 3).init::<B>(device),
            LinearConfig::new(2, 3).with_bias(false).init::<B>(device);
        "Lstm": LstmConfig::new(2, 3, true).init::<B>(device), LstmConfig::new(2, 3, false).init::<B>(device);
        "MultiHeadAttention": MultiHeadAttentionConfig::new(4, 2).init::<B>(device),
            MultiHeadAttentionConfig::new(4, 2).with_bias(Some(false)).init::<B>(device);
        "PRelu": PReluConfig::new().init::<B>(device), PReluConfig::new().init::<B>(device);
        "QuantizedAdd": QuantizedAddConfig::new().init::<B>(device),
            QuantizedAddConfig::new().init::<B>(device);
        "QuantizedConv1d": of_integers!(QuantizedConv1dConfig::new(2, 3, 2)),
            QuantizedConv1dConfig::new(2, 3, 2).with_bias(false).init::<B>(device);
        "QuantizedConv2d": of_integers!(QuantizedConv2dConfig::new([2, 3], [2, 2])),
            QuantizedConv2dConfig::new([2, 3], [2, 2]).with_bias(false).init::<B>(device);
        "QuantizedConv3d": of_integers!(QuantizedConv3dConfig::new([2, 3], [2, 2, 2])),
            QuantizedConv3dConfig::new([2, 3], [2, 2, 2]).with_bias(false).init::<B>(device);
        "QuantizedLinear": of_integers!(QuantizedLinearConfig::new(2, 3)),
            QuantizedLinearConfig::new(2, 3).with_bias(false).init::<B>(device);
        "QuantizedMul": QuantizedMulConfig::new().init::<B>(device),
            QuantizedMulConfig::new().init::<B>(device);
        "Quantizer": QuantizerConfig::new().init::<B>(device),
            QuantizerConfig::new().with_scale(false).init::<B>(device);
        "Recurrent": RecurrentConfig::gru(2, 3).init::<B>(device),
            RecurrentConfig::gru(2, 3).with_bias(false).init::<B>(device);
        "RmsNorm": RmsNormConfig::new(2).init::<B>(device), RmsNormConfig::new(2).init::<B>(device);
        "Rnn": RnnConfig::new(2, 3, true).init::<B>(device), RnnConfig::new(2, 3, false).init::<B>(device);
        "SwiGlu": SwiGluConfig::new(2, 3).with_bias(true).init::<B>(device),
            SwiGluConfig::new(2, 3).init::<B>(device);
    }
    for layer in LAYERS {
        let (full, bare) =
            checked.remove(layer.name).unwrap_or_else(|| panic!("{} is not checked", layer.name));
        check(layer.name, layer, &full, &bare);
    }
    assert!(checked.is_empty(), "not in the catalogue: {:?}", checked.keys());
}
