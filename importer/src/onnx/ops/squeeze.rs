//! `Squeeze`: axes as an attribute before version 13, as an input since.

use super::prelude::*;

pub(super) struct Squeeze {
    axes: Option<Vec<i64>>,
}

impl<'m> Operator<'m> for Squeeze {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Squeeze", 1, &["data"])
            .until(12)
            .moves()
            .reads(|node| Ok(Self { axes: node.ints("axes")? })),
        Spec::onnx("Squeeze", 13, &["data", "axes?"]).moves().reads(|_| Ok(Self { axes: None })),
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
            None => {
                if let Some(dim) = dims.iter().find(|dim| dim.as_constant().is_none()) {
                    let what =
                        format!("squeezing every axis of size 1 where the size {dim} is unknown; bind it");
                    return Err(RuleError::Unsupported { what });
                }
                (0..dims.len()).filter(|&axis| dims[axis].is(1)).collect()
            }
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
