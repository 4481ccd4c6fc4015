//! `TopK`: `k` as an attribute before version 10, as an input since.

use super::prelude::*;

pub(super) struct TopK {
    axis: i64,
    largest: bool,
    k: Option<i64>,
}

impl TopK {
    fn read(node: &mut SourceNode<'_>, k: Option<i64>) -> RuleResult<Self> {
        // Any order is allowed when it is 0; the sorted one is such an order.
        node.ignore(&["sorted"]);
        Ok(Self { axis: node.int("axis", -1)?, largest: node.flag("largest", true)?, k })
    }

    /// The form with `k` as an attribute.
    fn read_old(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let k = node.required_int("k")?;
        Self::read(node, Some(k))
    }
}

impl<'m> Operator<'m> for TopK {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("TopK", 1, &["X"]).until(9).reads(Self::read_old),
        Spec::onnx("TopK", 10, &["X", "K"]).reads(|node| Self::read(node, None)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let axis = axis_of(self.axis, to.rank(x))?;
        let k = match self.k {
            Some(k) => Dim::constant(k),
            None => to.host_integer(args.value("K")?, "K")?,
        };
        let mut dims = to.dims(x);
        if k.as_constant().zip(dims[axis].as_constant()).is_some_and(|(k, size)| k < 0 || k > size) {
            return Err(misfit("k", format!("is {k} for an axis of size {}", dims[axis])));
        }
        dims[axis] = k.clone();
        let values = to.ty(x).with_dims(dims);
        let indices = values.with_dtype(DType::I64);
        let arguments = [Arg::Operand(0), Arg::Size(k), Arg::axis(axis), Arg::Bool(self.largest)];
        let found = to.call_all(Call::new("tensor::module::topk", arguments), &[x], vec![values, indices])?;
        to.positions.extend(found.last());
        Ok(found.into())
    }
}
