//! `ConstantOfShape`: one value everywhere.

use super::super::lowering::numbers;
use super::super::proto::TensorProto;
use super::super::tensor;
use super::prelude::*;

pub(super) struct ConstantOfShape<'m>(Option<&'m TensorProto>);

impl<'m> ConstantOfShape<'m> {
    fn read(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        node.tensor("value").map(Self)
    }
}

impl<'m> Operator<'m> for ConstantOfShape<'m> {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("ConstantOfShape", 9, &["input"]).reads(Self::read)];

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
