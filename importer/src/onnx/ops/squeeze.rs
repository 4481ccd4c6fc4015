//! `Squeeze`: axes as an attribute before version 13, as an input since.

use super::super::lowering::{Branch, Choice};
use super::prelude::*;

pub(super) struct Squeeze {
    axes: Option<Vec<i64>>,
}

impl<'m> Operator<'m> for Squeeze {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Squeeze", 1, &["data"])
            .until(12)
            .moves()
            // An empty list is none: protobuf does not tell one from the other, and so ONNX's reference evaluator takes it.
            .reads(|node| Ok(Self { axes: node.ints("axes")?.filter(|axes| !axes.is_empty()) })),
        Spec::onnx("Squeeze", 13, &["data", "axes?"]).moves().reads(|_| Ok(Self { axes: None })),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let dims = to.dims(x);
        let axes = match args.optional("axes")? {
            // An empty tensor squeezes nothing, for only "if `axes` is not provided, all the single dimensions will be removed";
            // ONNX's shape inference and reference evaluator agree. ONNX Runtime takes an empty one for none.
            Some(axes) => Some(to.known_ints(axes, "axes")?),
            None => self.axes.clone(),
        };
        let axes = match axes {
            Some(axes) => axes_of(&axes, dims.len())?,
            None => all_of_size_one(to, x)?,
        };
        for &axis in &axes {
            if dims[axis].as_constant().is_some_and(|size| size != 1) {
                let mut squeezed = dims.clone();
                squeezed[axis] = 1.into();
                return Err(RuleError::Dims {
                    what: format!("axis {axis} to squeeze"),
                    left: to.ty(x).clone(),
                    right: to.ty(x).with_dims(squeezed),
                });
            }
        }
        Ok(to.squeeze(x, &axes)?.into())
    }
}

/// The axes of size 1. Where one size is not known, what follows is found for both.
fn all_of_size_one(to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<Vec<usize>> {
    let dims = to.dims(x);
    let axes = |is: &dyn Fn(&Dim) -> bool| -> Vec<usize> {
        dims.iter().enumerate().filter(|(_, dim)| is(dim)).map(|(axis, _)| axis).collect()
    };
    let known = axes(&|dim| dim.is(1));
    let mut unknown = dims.iter().filter(|dim| dim.as_constant().is_none());
    let Some(size) = unknown.next() else { return Ok(known) };
    if unknown.next().is_none() {
        let condition = to.builder.graph.compare(CompareOp::Equal, size, &Dim::constant(1));
        let possible = axes(&|dim| dim.as_constant().is_none_or(|size| size == 1));
        let branches = [Branch::Squeezed(x, possible), Branch::Squeezed(x, known)];
        to.request_choice(Choice { condition, branches });
    }
    let what = format!(
        "squeezing every axis of size 1 where the size {size} is not known; bind it with `ModelGen::bind_dim` or \
         `--bind NAME=SIZE`"
    );
    Err(RuleError::Unsupported { what })
}
