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
        let size = to.dims(x)[axis].clone();
        if k.as_constant().zip(size.as_constant()).is_some_and(|(k, size)| k < 0 || k > size) {
            return Err(misfit("k", format!("is {k} for an axis of size {size}")));
        }
        let order = if self.largest { Order::Falling } else { Order::Rising };
        Ok(first_of_order(to, x, k, axis, order)?.to_vec().into())
    }
}

/// Whether the largest elements come first, or the smallest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Falling,
    Rising,
}

/// The first `k` elements along an axis in an order, and where they were; of equal ones the first comes first.
pub(super) fn first_of_order(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    k: Dim,
    axis: usize,
    order: Order,
) -> RuleResult<[ValueId; 2]> {
    let mut dims = to.dims(x);
    dims[axis] = k.clone();
    let values = to.ty(x).with_dims(dims);
    let indices = values.with_dtype(DType::I64);
    let arguments = [Arg::Operand(0), Arg::Size(k), Arg::axis(axis), Arg::Bool(order == Order::Falling)];
    let call = Call::new("tensor::module::topk", arguments);
    let found = to.call_all(call, &[x], vec![values, indices])?;
    to.positions.insert(found[1]);
    Ok([found[0], found[1]])
}
