//! `ConstantOfShape`: one value everywhere.

use super::super::lowering::{Lowering, numbers};
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use super::super::proto::TensorProto;
use super::super::tensor;
use crate::ir::RuleResult;
use kiln_types::{DType, Scalar};

pub(super) struct ConstantOfShape<'m>(Option<&'m TensorProto>);

impl<'m> Operator<'m> for ConstantOfShape<'m> {
    const SPECS: &'static [Spec] = &[Spec::onnx("ConstantOfShape", 9, &["input"])];

    fn read(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        node.tensor("value").map(Self)
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        let (value, dtype) = match self.0 {
            None => (Scalar::Float(0.0), DType::F32),
            Some(proto) => {
                let data = tensor::read(proto, to.folder()).map_err(|e| invalid("value", e.to_string()))?;
                match numbers(&data).as_slice() {
                    &[number] => (number, data.dtype),
                    other => {
                        return Err(invalid("value", format!("has {} elements, must have 1", other.len())));
                    }
                }
            }
        };
        let dims = to.host(args.value("input")?, "input")?;
        Ok(to.fill(dims, value, dtype)?.into())
    }
}
