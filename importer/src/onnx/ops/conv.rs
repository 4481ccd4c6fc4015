//! `Conv`: one to three spatial axes.

use super::super::lowering::{Windows, known_padding};
use super::prelude::*;
use crate::ir::op;
use kiln_types::{ConvOptions, PadMode};

pub(super) struct Conv {
    windows: Windows,
    groups: usize,
}

impl Conv {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { windows: Windows::read(node)?, groups: node.size("group", 1)? })
    }
}

impl<'m> Operator<'m> for Conv {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Conv", 1, &["X", "W", "B?"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, weight) = (args.value("X")?, args.value("W")?);
        let spatial = to.spatial("X", x)?;
        let kernel = kernel_of(to, weight, spatial, &self.windows)?;
        let window = self.windows.over(spatial, kernel)?;
        let padding = to.padding(x, self.windows.auto_pad, &window);
        let (x, padding) = match known_padding(&padding) {
            Some(padding) => (x, padding),
            None => (padded(to, x, padding, Scalar::Int(0))?, vec![(0, 0); spatial]),
        };
        let options = ConvOptions {
            stride: window.stride.into(),
            padding: padding.into(),
            dilation: window.dilation.into(),
            groups: self.groups,
        };
        let mut inputs = vec![Some(x), Some(weight)];
        inputs.extend(args.optional("B")?.map(Some));
        Ok(to.builder.add_all(Op::Conv(op::Conv { options, activation: None }), inputs)?.into())
    }
}

/// The kernel's size, from the weight; an attribute must agree.
pub(super) fn kernel_of(
    to: &Lowering<'_, '_>,
    weight: ValueId,
    spatial: usize,
    windows: &Windows,
) -> RuleResult<Vec<usize>> {
    let dims = to.dims(weight);
    if dims.len() != spatial + 2 {
        let expected = format!("expected {}, that of the input", spatial + 2);
        return Err(RuleError::Rank { input: "W".to_owned(), actual: dims.len(), expected });
    }
    let kernel: Option<Vec<usize>> = dims[2..].iter().map(Dim::as_size).collect();
    let kernel = kernel.filter(|kernel| !kernel.contains(&0));
    let kernel = kernel.ok_or_else(|| RuleError::NotConstant { input: "the kernel's size".to_owned() })?;
    match &windows.kernel {
        Some(given) if *given != kernel => {
            Err(invalid("kernel_shape", format!("is {given:?}, the weight's is {kernel:?}")))
        }
        _ => Ok(kernel),
    }
}

/// Pads the spatial axes, for sizes that only the run gives.
pub(super) fn padded(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    spatial: Vec<(Dim, Dim)>,
    value: Scalar,
) -> RuleResult<ValueId> {
    let mut padding = vec![(Dim::constant(0), Dim::constant(0)); 2];
    padding.extend(spatial);
    to.add(Op::Pad(op::Pad { padding, mode: PadMode::Constant, value }), &[x])
}
