//! The record of a skeleton: its parameters in the form of its structs, and of the runtime's layers.

use super::content::{Content, Part};
use super::types::{Type, Types};
use kiln_record::{ParamId, RecordNode};
use kiln_weights::{LazyTensor, WeightsError};
use std::collections::BTreeMap;

/// What a field of one of the runtime's layers is in a record.
#[derive(Clone, Copy)]
enum Slot {
    /// A parameter.
    Parameter,
    /// A parameter that may be left out.
    Optional,
    /// Numbers that the configuration has: one, or an array of as many.
    Constants(usize),
    /// The variant of an activation: its place in the runtime's enum, and its name.
    Activation(u32, &'static str),
    /// Another layer.
    Layer(&'static [(&'static str, Slot)]),
}

use Slot::{Activation, Constants, Optional, Parameter};

type Fields = [(&'static str, Slot)];

const CONSTANT: Slot = Constants(1);
const SIGMOID: Slot = Activation(5, "Sigmoid");
const TANH: Slot = Activation(6, "Tanh");

// The fields of the runtime's layers in their order, which formats without names depend on. A test loads a record of
// each and saves it again to the same bytes.
const LINEAR: &Fields = &[("weight", Parameter), ("bias", Optional)];
const EMBEDDING: &Fields = &[("weight", Parameter)];
const LAYER_NORM: &Fields = &[("gamma", Parameter), ("beta", Optional), ("epsilon", CONSTANT)];
const RMS_NORM: &Fields = &[("gamma", Parameter), ("epsilon", CONSTANT)];
const PRELU: &Fields = &[("alpha", Parameter), ("alpha_value", CONSTANT)];
const GROUP_NORM: &Fields = &[
    ("gamma", Optional),
    ("beta", Optional),
    ("num_groups", CONSTANT),
    ("num_channels", CONSTANT),
    ("epsilon", CONSTANT),
    ("affine", CONSTANT),
];
const BATCH_NORM: &Fields = &[
    ("gamma", Parameter),
    ("beta", Parameter),
    ("running_mean", Parameter),
    ("running_var", Parameter),
    ("momentum", CONSTANT),
    ("epsilon", CONSTANT),
];
const GATE: Slot =
    Slot::Layer(&[("input_transform", Slot::Layer(LINEAR)), ("hidden_transform", Slot::Layer(LINEAR))]);
const INSTANCE_NORM: &Fields = &[
    ("gamma", Optional),
    ("beta", Optional),
    ("num_channels", CONSTANT),
    ("epsilon", CONSTANT),
    ("affine", CONSTANT),
];
const MULTI_HEAD_ATTENTION: &Fields = &[
    ("query", Slot::Layer(LINEAR)),
    ("key", Slot::Layer(LINEAR)),
    ("value", Slot::Layer(LINEAR)),
    ("output", Slot::Layer(LINEAR)),
    ("dropout", CONSTANT),
    ("activation", CONSTANT),
    ("d_model", CONSTANT),
    ("n_heads", CONSTANT),
    ("d_k", CONSTANT),
    ("min_float", CONSTANT),
    ("quiet_softmax", CONSTANT),
];
const GRU: &Fields = &[
    ("update_gate", GATE),
    ("reset_gate", GATE),
    ("new_gate", GATE),
    ("d_hidden", CONSTANT),
    ("reset_after", CONSTANT),
];
const LSTM: &Fields = &[
    ("input_gate", GATE),
    ("forget_gate", GATE),
    ("output_gate", GATE),
    ("cell_gate", GATE),
    ("d_hidden", CONSTANT),
    ("batch_first", CONSTANT),
    ("reverse", CONSTANT),
    ("clip", CONSTANT),
    ("input_forget", CONSTANT),
    ("gate_activation", SIGMOID),
    ("cell_activation", TANH),
    ("hidden_activation", TANH),
];
const RNN: &Fields = &[
    ("gate", GATE),
    ("d_hidden", CONSTANT),
    ("batch_first", CONSTANT),
    ("reverse", CONSTANT),
    ("clip", CONSTANT),
    ("hidden_activation", TANH),
];
const BI_GRU: &Fields = &both(GRU);
const BI_LSTM: &Fields = &both(LSTM);
const BI_RNN: &Fields = &both(RNN);

/// The fields of a layer of two directions.
const fn both(direction: &'static Fields) -> [(&'static str, Slot); 4] {
    [
        ("forward", Slot::Layer(direction)),
        ("reverse", Slot::Layer(direction)),
        ("d_hidden", CONSTANT),
        ("batch_first", CONSTANT),
    ]
}

/// The layers that skeletons have, by name; convolutions apart.
const LAYERS: &[(&str, &Fields)] = &[
    ("BatchNorm", BATCH_NORM),
    ("BiGru", BI_GRU),
    ("BiLstm", BI_LSTM),
    ("BiRnn", BI_RNN),
    ("Embedding", EMBEDDING),
    ("GroupNorm", GROUP_NORM),
    ("Gru", GRU),
    ("InstanceNorm", INSTANCE_NORM),
    ("LayerNorm", LAYER_NORM),
    ("Linear", LINEAR),
    ("Lstm", LSTM),
    ("MultiHeadAttention", MULTI_HEAD_ATTENTION),
    ("PRelu", PRELU),
    ("RmsNorm", RMS_NORM),
    ("Rnn", RNN),
];
const CONVOLUTIONS: &[&str] =
    &["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"];

/// The names of the layers that a skeleton may have; `LinearInOut` is a `Linear` whose matrix is `[in, out]` in the
/// checkpoint.
pub fn layer_names() -> impl Iterator<Item = &'static str> {
    let layers = LAYERS.iter().map(|(name, _)| *name);
    layers.chain(CONVOLUTIONS.iter().copied()).chain(["LinearInOut"])
}

/// The fields of a layer, by its name.
fn fields(layer: &str) -> Vec<(&'static str, Slot)> {
    let known = LAYERS.iter().find(|(name, _)| *name == layer);
    known.map_or_else(|| convolution(layer), |(_, fields)| fields.to_vec())
}

/// The fields of a convolution: sizes are arrays, of one spatial dim numbers.
fn convolution(layer: &str) -> Vec<(&'static str, Slot)> {
    let spatial = layer.strip_suffix('d').and_then(|name| name.chars().last()).and_then(|c| c.to_digit(10));
    let sizes = Constants(spatial.unwrap_or(1) as usize);
    let mut fields = vec![
        ("weight", Parameter),
        ("bias", Optional),
        ("stride", sizes),
        ("kernel_size", sizes),
        ("dilation", sizes),
        ("groups", CONSTANT),
    ];
    if layer.starts_with("ConvTranspose") {
        fields.extend([("padding", sizes), ("padding_out", sizes), ("channels", Constants(2))]);
    } else {
        fields.push(("padding", CONSTANT));
    }
    fields
}

/// The record of the model. Tensors are read here; those that lie in the file as they are needed stay there.
pub(super) fn record(types: &Types, root: usize, parts: &[Part]) -> Result<RecordNode, WeightsError> {
    module(types, root, parts, "")
}

/// A struct; what this module of it has not is none.
fn module(types: &Types, id: usize, parts: &[Part], path: &str) -> Result<RecordNode, WeightsError> {
    let fields = types.structs.get(id).map(Vec::as_slice).unwrap_or_default();
    let nodes = fields.iter().map(|field| {
        let part = parts.iter().find(|part| part.key == field.key);
        let there = part.map(|part| node(types, &field.ty, &part.content, &join(path, &field.key)));
        let node = match (there, field.optional) {
            (Some(node), true) => RecordNode::Some(Box::new(node?)),
            (Some(node), false) => node?,
            (None, _) => RecordNode::None,
        };
        Ok((field.key.clone(), node))
    });
    Ok(RecordNode::fields(nodes.collect::<Result<Vec<_>, WeightsError>>()?))
}

fn node(types: &Types, ty: &Type, content: &Content, path: &str) -> Result<RecordNode, WeightsError> {
    match (content, ty) {
        (Content::Layer(layer), _) => {
            let tensors = layer.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            LayerRecord { path, tensors }.fields(&fields(layer.name), "")
        }
        (Content::List(items), Type::List(item)) => {
            let items = items.iter().enumerate();
            let items =
                items.map(|(index, content)| node(types, item, content, &join(path, &index.to_string())));
            Ok(RecordNode::Seq(items.collect::<Result<_, _>>()?))
        }
        (Content::Module(parts), Type::Module(id)) => module(types, *id, parts, path),
        (Content::Param(tensor), _) => parameter(tensor, path),
        // Types are made of the contents.
        (Content::List(_) | Content::Module(_), _) => Ok(RecordNode::None),
    }
}

/// A layer on its way into a record.
struct LayerRecord<'a> {
    path: &'a str,
    tensors: BTreeMap<&'a str, &'a LazyTensor>,
}

impl LayerRecord<'_> {
    /// The fields of the layer, or of one inside of it.
    fn fields(&self, fields: &Fields, below: &str) -> Result<RecordNode, WeightsError> {
        let nodes = fields.iter().map(|(name, slot)| Ok((*name, self.field(*slot, &join(below, name))?)));
        Ok(RecordNode::fields(nodes.collect::<Result<Vec<_>, WeightsError>>()?))
    }

    fn field(&self, slot: Slot, name: &str) -> Result<RecordNode, WeightsError> {
        Ok(match (slot, self.tensors.get(name)) {
            (Parameter, Some(tensor)) => parameter(tensor, &join(self.path, name))?,
            (Optional, Some(tensor)) => {
                RecordNode::Some(Box::new(parameter(tensor, &join(self.path, name))?))
            }
            (Parameter | Optional, None) => RecordNode::None,
            (Constants(1), _) => RecordNode::Constant,
            (Constants(count), _) => RecordNode::Tuple(vec![RecordNode::Constant; count]),
            (Activation(place, variant), _) => {
                RecordNode::Variant(place, variant.to_owned(), Box::new(RecordNode::Constant))
            }
            (Slot::Layer(fields), _) => self.fields(fields, name)?,
        })
    }
}

fn parameter(tensor: &LazyTensor, path: &str) -> Result<RecordNode, WeightsError> {
    Ok(RecordNode::Param(ParamId::from_path(path), tensor.data()?))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
