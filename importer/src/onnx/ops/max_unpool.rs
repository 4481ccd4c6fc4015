//! `MaxUnpool`: maxima back where they came from, zeros elsewhere.
//!
//! Positions are those of the result, as of what was pooled. The specification's example with an `output_shape` of its own has them
//! in a smaller tensor that is padded; ONNX Runtime does not, and what was pooled would not come back.

use super::super::lowering::WindowAttributes;
use super::max_pool::window_of;
use super::prelude::*;
use crate::ir::op;
use kiln_types::ScatterOp;

pub(super) struct MaxUnpool {
    windows: WindowAttributes,
}

impl MaxUnpool {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { windows: WindowAttributes::read(node)? })
    }
}

impl<'m> Operator<'m> for MaxUnpool {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("MaxUnpool", 9, &["X", "I", "output_shape?"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, indices) = (args.value("X")?, args.value("I")?);
        let dims = match args.optional("output_shape")? {
            Some(shape) => {
                let shape = to.host(shape, "output_shape")?;
                if shape.len() != to.rank(x) {
                    let expected = format!("expected the {} of `output_shape`", shape.len());
                    return Err(RuleError::Rank { input: "X".into(), actual: to.rank(x), expected });
                }
                shape
            }
            None => self.dims(to, x)?,
        };
        let dtype = to.dtype(x);
        let flat = to.fill(vec![Dim::product(&dims)], Scalar::Int(0), dtype)?;
        let count = vec![to.ty(x).num_elements()];
        let (values, indices) = (to.reshape(x, count.clone())?, to.reshape(indices, count)?);
        let flat =
            to.add(Op::Scatter(op::Scatter { axis: 0, op: ScatterOp::Assign }), &[flat, indices, values])?;
        Ok(to.reshape(flat, dims)?.into())
    }
}

impl MaxUnpool {
    /// Sizes of the smallest tensor without padding whose windows are those of `x`.
    fn dims(&self, to: &Lowering<'_, '_>, x: ValueId) -> RuleResult<Vec<Dim>> {
        let window = window_of(to, x, &self.windows)?;
        let mut dims = to.dims(x);
        for axis in 0..window.kernel.len() {
            let (before, after) = window.explicit[axis];
            let last = &(&dims[axis + 2] - &Dim::constant(1)) * &Dim::from(window.stride[axis]);
            let full = &last + &Dim::from(window.kernel[axis]);
            dims[axis + 2] = &(&full - &Dim::from(before)) - &Dim::from(after);
        }
        Ok(dims)
    }
}
