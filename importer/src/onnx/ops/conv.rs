//! `Conv`: windows over one to three spatial axes, and any more that no window reaches across; ONNX Runtime's `FusedConv` adds and
//! activates as well, and its `NhwcConv` has the channels last, of the image and of the weight.

use super::super::lowering::{WindowAttributes, WindowOptions, known_padding};
use super::activation::merged;
use super::prelude::*;
use crate::ir::op;
use kiln_types::{Activation, ConvOptions, PadMode};

pub(super) struct Conv {
    windows: WindowAttributes,
    groups: usize,
    fused: FusedActivation,
    channels_last: bool,
}

/// What ONNX Runtime fused to the convolution: it is done to the result.
#[derive(Clone, Copy)]
enum FusedActivation {
    Nothing,
    Activation(Activation),
    Clip { min: f64, max: f64 },
}

impl Conv {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let (windows, groups) = (WindowAttributes::read(node)?, node.size("group", 1)?);
        Ok(Self { windows, groups, fused: FusedActivation::Nothing, channels_last: false })
    }

    fn read_channels_last(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { channels_last: true, ..Self::read(node)? })
    }

    fn read_fused(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let numbers = node.floats("activation_params")?.unwrap_or_default();
        let number = |n: usize| {
            let missing = || invalid("activation_params", format!("has {} entries", numbers.len()));
            numbers.get(n).copied().ok_or_else(missing)
        };
        let fused = match node.string("activation", "")?.as_str() {
            "" => FusedActivation::Nothing,
            "Clip" => FusedActivation::Clip { min: number(0)?, max: number(1)? },
            other => FusedActivation::Activation(merged(other, number)?),
        };
        Ok(Self { fused, ..Self::read(node)? })
    }
}

impl<'m> Operator<'m> for Conv {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Conv", 1, &["X", "W", "B?"]).reads(Self::read),
        Spec::microsoft("FusedConv", &["X", "W", "B?", "Z?"]).reads(Self::read_fused),
        Spec::microsoft("NhwcConv", &["X", "W", "B?"]).reads(Self::read_channels_last),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (mut x, mut weight) = (args.value("X")?, args.value("W")?);
        if self.channels_last {
            (x, weight) = (to.channels_first(x)?, to.channels_first(weight)?);
        }
        let spatial = to.need_rank("X", x, 3)? - 2;
        let kernel = kernel_of(to, weight, spatial, &self.windows)?;
        let mut window = self.windows.over(spatial, kernel)?;
        let mut padding = to.padding(x, self.windows.auto_pad, &window);
        let apart = match spatial {
            1..=3 => None,
            _ => Some(Apart::find(to, x, &window, &padding)),
        };
        if let Some(apart) = &apart {
            (x, weight) = (apart.to_batch(to, x)?, to.squeeze(weight, &apart.axes)?);
            apart.leave(&mut window, &mut padding);
        }
        to.spatial("X", x)?;
        let (x, padding) = match known_padding(&padding) {
            Some(padding) => (x, padding),
            None => (padded(to, x, padding, Scalar::Int(0))?, vec![(0, 0); window.kernel.len()]),
        };
        let options = ConvOptions {
            stride: window.stride.into(),
            padding: padding.into(),
            dilation: window.dilation.into(),
            groups: self.groups,
        };
        let mut inputs = vec![Some(x), Some(weight)];
        inputs.extend(args.optional("B")?.map(Some));
        let mut y = to.add_optional(Op::Conv(op::Conv { options, activation: None }), &inputs)?;
        if let Some(apart) = &apart {
            y = apart.restore(to, y)?;
        }
        if let Some(added) = args.optional("Z")? {
            y = to.binary(BinaryOp::Add, y, added)?;
        }
        let y = match self.fused {
            FusedActivation::Nothing => y,
            FusedActivation::Activation(activation) => to.activation(activation, y)?,
            FusedActivation::Clip { min, max } => {
                let (min, max) = (Some(Scalar::Float(min)), Some(Scalar::Float(max)));
                to.add(Op::Clamp(op::Clamp { min, max }), &[y])?
            }
        };
        Ok(if self.channels_last { to.channels_last(y)? } else { y }.into())
    }
}

/// Spatial axes that no window reaches across: every place along them is an image of its own.
struct Apart {
    /// Their places in `[batch, channels, spatial…]`, in order.
    axes: Vec<usize>,
    /// Their sizes, behind that of the batch.
    dims: Vec<Dim>,
}

impl Apart {
    fn find(to: &Lowering<'_, '_>, x: ValueId, window: &WindowOptions, padding: &[(Dim, Dim)]) -> Self {
        let alone = |&axis: &usize| {
            let padded = padding.get(axis).is_none_or(|(before, after)| !before.is(0) || !after.is(0));
            !padded && window.kernel.get(axis) == Some(&1) && window.stride.get(axis) == Some(&1)
        };
        let spatial = window.kernel.len();
        let mut axes: Vec<usize> = (0..spatial).filter(alone).map(|axis| axis + 2).collect();
        // A convolution has an axis that windows move along.
        axes.truncate(spatial - 1);
        let sizes = to.dims(x);
        let dims = [0].iter().chain(&axes).filter_map(|&axis| sizes.get(axis).cloned()).collect();
        Self { axes, dims }
    }

    /// The order of axes in which these lie behind that of the batch.
    fn order(&self, rank: usize) -> Vec<usize> {
        let others = (1..rank).filter(|axis| !self.axes.contains(axis));
        [0].into_iter().chain(self.axes.iter().copied()).chain(others).collect()
    }

    fn to_batch(&self, to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<ValueId> {
        let x = to.permute(x, self.order(to.rank(x)))?;
        let mut dims = to.dims(x);
        dims.splice(..self.dims.len(), [Dim::product(&self.dims)]);
        to.reshape(x, dims)
    }

    fn restore(&self, to: &mut Lowering<'_, '_>, y: ValueId) -> RuleResult<ValueId> {
        let mut dims = to.dims(y);
        dims.splice(..1, self.dims.iter().cloned());
        let y = to.reshape(y, dims)?;
        let order = self.order(to.rank(y));
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
        to.permute(y, back)
    }

    /// Takes the axes out of windows and their padding.
    fn leave(&self, window: &mut WindowOptions, padding: &mut Vec<(Dim, Dim)>) {
        let without = |sizes: &mut Vec<usize>| keep_others(sizes, &self.axes);
        [&mut window.kernel, &mut window.stride, &mut window.dilation].into_iter().for_each(without);
        keep_others(&mut window.explicit, &self.axes);
        keep_others(padding, &self.axes);
    }
}

/// Drops what belongs to some axes of `[batch, channels, spatial…]`.
fn keep_others<T>(of_spatial: &mut Vec<T>, axes: &[usize]) {
    let mut axis = 1;
    of_spatial.retain(|_| {
        axis += 1;
        !axes.contains(&axis)
    });
}

/// The kernel's size, from the weight; an attribute must agree.
pub(super) fn kernel_of(
    to: &Lowering<'_, '_>,
    weight: ValueId,
    spatial: usize,
    windows: &WindowAttributes,
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
            Err(misfit("kernel_shape", format!("is {given:?}, the weight's is {kernel:?}")))
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
