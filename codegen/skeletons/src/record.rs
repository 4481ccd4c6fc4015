//! The record of a skeleton: its parameters in the form of its structs, and of the runtime's layers.

use super::content::{Content, Part, by_key};
use super::types::{Type, Types};
use kiln_record::{ParamId, RecordNode};
use kiln_types::layers::{self, Layer};
use kiln_weights::{LazyTensor, WeightsError};
use std::collections::BTreeMap;

/// The layers that skeletons have.
const LAYERS: &[&Layer] = &[
    &layers::BATCH_NORM,
    &layers::BI_GRU,
    &layers::BI_LSTM,
    &layers::BI_RNN,
    &layers::EMBEDDING,
    &layers::GROUP_NORM,
    &layers::GRU,
    &layers::INSTANCE_NORM,
    &layers::LAYER_NORM,
    &layers::LINEAR,
    &layers::LSTM,
    &layers::MULTI_HEAD_ATTENTION,
    &layers::PRELU,
    &layers::RMS_NORM,
    &layers::RNN,
    &layers::CONV_1D,
    &layers::CONV_2D,
    &layers::CONV_3D,
    &layers::CONV_TRANSPOSE_1D,
    &layers::CONV_TRANSPOSE_2D,
    &layers::CONV_TRANSPOSE_3D,
];

/// The names of the layers that a skeleton may have; `LinearInOut` is a `Linear` whose matrix is `[in, out]` in the
/// checkpoint.
pub fn layer_names() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().map(|layer| layer.name).chain(["LinearInOut"])
}

/// The record of the model. Tensors are read here; those that lie in the file as they are needed stay there.
pub(super) fn record(types: &Types, root: usize, parts: &[Part]) -> Result<RecordNode, WeightsError> {
    module(types, root, parts, "")
}

/// A struct; what this module of it has not is none.
fn module(types: &Types, id: usize, parts: &[Part], path: &str) -> Result<RecordNode, WeightsError> {
    let fields = types.structs.get(id).map(Vec::as_slice).unwrap_or_default();
    let parts = by_key(parts);
    let nodes = fields.iter().map(|field| {
        let part = parts.get(field.key.as_str());
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
            let tensors: BTreeMap<&str, &LazyTensor> =
                layer.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            RecordNode::layer(layer.declared, &mut |name| {
                tensors.get(name).map(|tensor| parameter(tensor, &join(path, name))).transpose()
            })
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

fn parameter(tensor: &LazyTensor, path: &str) -> Result<RecordNode, WeightsError> {
    Ok(RecordNode::Param(ParamId::from_path(path), tensor.data()?))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
