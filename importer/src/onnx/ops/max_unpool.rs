//! `MaxUnpool`: maxima back where they came from, zeros elsewhere.

use super::super::lowering::Windows;
use super::max_pool::window_of;
use super::prelude::*;
use crate::ir::op;
use kiln_types::{PadMode, ScatterOp};

pub(super) struct MaxUnpool {
    windows: Windows,
}

impl MaxUnpool {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { windows: Windows::read(node)? })
    }
}

impl<'m> Operator<'m> for MaxUnpool {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("MaxUnpool", 9, &["X", "I", "output_shape?"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, indices) = (args.value("X")?, args.value("I")?);
        let window = window_of(to, x, &self.windows)?;
        let mut dims = to.dims(x);
        for axis in 0..window.kernel.len() {
            let (before, after) = window.explicit[axis];
            let last = &(&dims[axis + 2] - &Dim::constant(1)) * &Dim::from(window.stride[axis]);
            let full = &last + &Dim::from(window.kernel[axis]);
            dims[axis + 2] = &(&full - &Dim::from(before)) - &Dim::from(after);
        }
        let dtype = to.dtype(x);
        let flat = to.fill(vec![Dim::product(&dims)], Scalar::Int(0), dtype)?;
        let count = vec![to.ty(x).num_elements()];
        let (values, indices) = (to.reshape(x, count.clone())?, to.reshape(indices, count)?);
        let flat =
            to.add(Op::Scatter(op::Scatter { axis: 0, op: ScatterOp::Assign }), &[flat, indices, values])?;
        let mut y = to.reshape(flat, dims.clone())?;
        if let Some(shape) = args.optional("output_shape")? {
            let shape = to.host(shape, "output_shape")?;
            if shape.len() != dims.len() {
                return Err(invalid("output_shape", format!("has {} entries", shape.len())));
            }
            let padding: Vec<(Dim, Dim)> =
                shape.iter().zip(&dims).map(|(wanted, have)| (Dim::constant(0), wanted - have)).collect();
            if padding.iter().any(|(_, after)| !after.is(0)) {
                y = to.add(
                    Op::Pad(op::Pad { padding, mode: PadMode::Constant, value: Scalar::Int(0) }),
                    &[y],
                )?;
            }
        }
        Ok(y.into())
    }
}
