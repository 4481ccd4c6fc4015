//! `Squeeze`: axes as an attribute before version 13, as an input since.

use super::prelude::*;

pub(super) struct Squeeze<'m> {
    axes: Option<Vec<i64>>,
    result: &'m str,
}

impl<'m> Operator<'m> for Squeeze<'m> {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Squeeze", 1, &["data"])
            .until(12)
            .moves()
            .reads(|node| Ok(Self { axes: node.ints("axes")?, result: node.result() })),
        Spec::onnx("Squeeze", 13, &["data", "axes?"])
            .moves()
            .reads(|node| Ok(Self { axes: None, result: node.result() })),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let dims = to.dims(x);
        let axes = match args.optional("axes")? {
            Some(axes) => Some(to.known_ints(axes, "axes")?),
            None => self.axes.clone(),
        };
        let axes = match axes {
            Some(axes) => axes_of(&axes, dims.len())?,
            None => all_of_size_one(&dims, to.declared_rank(self.result))?,
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

/// The axes of size 1. Where it is not known whether one is, the rank that the file declares for the result tells.
fn all_of_size_one(dims: &[Dim], declared: Option<usize>) -> RuleResult<Vec<usize>> {
    let axes = |is: &dyn Fn(&Dim) -> bool| -> Vec<usize> {
        dims.iter().enumerate().filter(|(_, dim)| is(dim)).map(|(axis, _)| axis).collect()
    };
    let known = axes(&|dim| dim.is(1));
    let possible = axes(&|dim| dim.as_constant().is_none_or(|size| size == 1));
    let Some(unknown) = dims.iter().find(|dim| dim.as_constant().is_none()) else { return Ok(known) };
    match declared.and_then(|rank| dims.len().checked_sub(rank)) {
        Some(count) if count == known.len() => Ok(known),
        Some(count) if count == possible.len() => Ok(possible),
        _ => {
            let what = format!(
                "squeezing every axis of size 1 where the size {unknown} is not known; bind it with \
                 `ModelGen::bind_dim` or `--bind NAME=SIZE`"
            );
            Err(RuleError::Unsupported { what })
        }
    }
}
