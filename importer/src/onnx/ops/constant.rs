//! `Constant`.

use super::super::proto::{SparseTensorProto, TensorProto};
use super::super::tensor::STRING;
use super::prelude::*;
use kiln_types::TensorData;

pub(super) enum Constant<'m> {
    Data(TensorData),
    /// A tensor, and the result's name.
    Tensor(&'m TensorProto, &'m str),
    Sparse(&'m SparseTensorProto),
    /// Strings and their shape.
    Strings(Vec<String>, Vec<usize>),
}

impl<'m> Constant<'m> {
    fn read(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        if let Some(tensor) = node.tensor("value")? {
            return Ok(Self::Tensor(tensor, node.result()));
        }
        if let Some(tensor) = node.sparse_tensor("sparse_value")? {
            return Ok(Self::Sparse(tensor));
        }
        if let Some(value) = node.optional_int("value_int")? {
            return Ok(Self::Data(TensorData::new(vec![value], [])));
        }
        if let Some(values) = node.ints("value_ints")? {
            let count = values.len();
            return Ok(Self::Data(TensorData::new(values, [count])));
        }
        if let Some(value) = node.optional_float("value_float")? {
            return Ok(Self::Data(TensorData::new(vec![value as f32], [])));
        }
        if let Some(values) = node.floats("value_floats")? {
            let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
            let count = values.len();
            return Ok(Self::Data(TensorData::new(values, [count])));
        }
        if let Some(text) = node.optional_string("value_string")? {
            return Ok(Self::Strings(vec![text], Vec::new()));
        }
        if let Some(texts) = node.strings("value_strings")? {
            let count = texts.len();
            return Ok(Self::Strings(texts, vec![count]));
        }
        Err(invalid("value", "is missing"))
    }
}

impl<'m> Operator<'m> for Constant<'m> {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Constant", 1, &[]).reads(Self::read)];

    fn lower(&self, _: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        let data = match self {
            Self::Data(data) => {
                to.reserve(data.bytes.len())?;
                Ok(data.clone())
            }
            Self::Tensor(proto, _) if proto.data_type == STRING => {
                let strings = to.read_strings(proto);
                let (texts, shape) = strings.map_err(|error| invalid("value", error.to_string()))?;
                return Ok(Outputs(vec![to.constant_strings(None, &texts, &shape)]));
            }
            Self::Tensor(proto, _) => to.read(proto),
            Self::Sparse(proto) => to.read_sparse(proto),
            Self::Strings(texts, shape) => {
                to.reserve(texts.len().saturating_mul(8))?;
                return Ok(Outputs(vec![to.constant_strings(None, texts, shape)]));
            }
        };
        let data = data.map_err(|error| invalid("value", error.to_string()))?;
        let Self::Tensor(proto, name) = *self else {
            return Ok(to.builder.graph.add_constant(None, data).into());
        };
        let value = to.named_constant(name, data);
        to.note_narrow(value, proto.data_type);
        Ok(value.into())
    }
}
