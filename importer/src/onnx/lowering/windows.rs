//! Windows that slide over spatial axes: what convolution and pooling have in common.

use super::Lowering;
use crate::ir::{Dim, RuleError, RuleResult, ValueId};
use crate::onnx::node::{MAX_SIZE, SourceNode, misfit};

/// How padding is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AutoPad {
    /// From `pads`.
    NotSet,
    /// None.
    Valid,
    /// So that the size is the input's over the stride; the odd one goes after.
    SameUpper,
    /// The odd one goes before.
    SameLower,
}

/// The attributes of a window, as given.
#[derive(Clone, Debug)]
pub(crate) struct WindowAttributes {
    pub(crate) auto_pad: AutoPad,
    pub(crate) kernel: Option<Vec<usize>>,
    pads: Option<Vec<usize>>,
    strides: Option<Vec<usize>>,
    dilations: Option<Vec<usize>>,
}

/// A window over as many axes as there are spatial ones.
#[derive(Clone, Debug)]
pub(crate) struct WindowOptions {
    pub(crate) kernel: Vec<usize>,
    pub(crate) stride: Vec<usize>,
    pub(crate) dilation: Vec<usize>,
    /// Before and after each axis, as `pads` gives them.
    pub(crate) explicit: Vec<(usize, usize)>,
}

impl WindowAttributes {
    pub(crate) fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let modes = [
            ("NOTSET", AutoPad::NotSet),
            ("VALID", AutoPad::Valid),
            ("SAME_UPPER", AutoPad::SameUpper),
            ("SAME_LOWER", AutoPad::SameLower),
        ];
        let auto_pad = if node.has("auto_pad") && node.string("auto_pad", "")?.is_empty() {
            AutoPad::NotSet
        } else {
            node.choice("auto_pad", "NOTSET", &modes)?
        };
        let kernel = node.sizes("kernel_shape", 1..=MAX_SIZE, None)?;
        Ok(Self { auto_pad, kernel, ..Self::read_places(node)? })
    }

    /// Windows whose kernel and padding no attribute finds: where they lie.
    pub(crate) fn read_places(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            auto_pad: AutoPad::NotSet,
            kernel: None,
            pads: node.sizes("pads", 0..=MAX_SIZE, None)?,
            strides: node.sizes("strides", 1..=MAX_SIZE, None)?,
            dilations: node.sizes("dilations", 1..=MAX_SIZE, None)?,
        })
    }

    /// The window for `spatial` axes and a kernel.
    pub(crate) fn over(&self, spatial: usize, kernel: Vec<usize>) -> RuleResult<WindowOptions> {
        let fit = |name: &str, given: &Option<Vec<usize>>, default: usize, count: usize| match given {
            None => Ok(vec![default; count]),
            Some(values) if values.len() == count => Ok(values.clone()),
            Some(values) => Err(misfit(name, format!("has {} entries, must have {count}", values.len()))),
        };
        if kernel.len() != spatial {
            return Err(misfit("kernel_shape", format!("has {} entries, must have {spatial}", kernel.len())));
        }
        let pads = match self.auto_pad {
            AutoPad::NotSet => fit("pads", &self.pads, 0, 2 * spatial)?,
            _ => vec![0; 2 * spatial],
        };
        Ok(WindowOptions {
            kernel,
            stride: fit("strides", &self.strides, 1, spatial)?,
            dilation: fit("dilations", &self.dilations, 1, spatial)?,
            explicit: (0..spatial).map(|axis| (pads[axis], pads[axis + spatial])).collect(),
        })
    }
}

impl WindowOptions {
    /// What a window covers of an axis.
    pub(crate) fn extent(&self, axis: usize) -> Dim {
        let steps = &Dim::from(self.kernel[axis]) - &Dim::constant(1);
        &(&steps * &Dim::from(self.dilation[axis])) + &Dim::constant(1)
    }
}

impl Lowering<'_, '_> {
    /// Number of spatial axes of `[batch, channels, spatial…]`.
    pub(crate) fn spatial(&self, input: &str, x: ValueId) -> RuleResult<usize> {
        let rank = self.rank(x);
        match rank.checked_sub(2) {
            Some(spatial @ 1..=3) => Ok(spatial),
            _ => Err(RuleError::Rank {
                input: input.to_owned(),
                actual: rank,
                expected: "expected 3 to 5 (one to three spatial axes)".to_owned(),
            }),
        }
    }

    /// The padding before and after each spatial axis.
    pub(crate) fn padding(&self, x: ValueId, mode: AutoPad, window: &WindowOptions) -> Vec<(Dim, Dim)> {
        if matches!(mode, AutoPad::NotSet | AutoPad::Valid) {
            return window.explicit.iter().map(|&(a, b)| (Dim::from(a), Dim::from(b))).collect();
        }
        let sizes = self.dims(x);
        (0..window.kernel.len())
            .map(|axis| {
                let extent = window.extent(axis);
                let stride = Dim::from(window.stride[axis]);
                let size = &sizes[axis + 2];
                let last = &(&size.ceil_div(&stride) - &Dim::constant(1)) * &stride;
                let total = self.builder.graph.maximum(&(&(&last + &extent) - size), &Dim::constant(0));
                let half = total.floor_div(&Dim::constant(2));
                let rest = &total - &half;
                if mode == AutoPad::SameUpper { (half, rest) } else { (rest, half) }
            })
            .collect()
    }
}

/// Padding as numbers, when all are known.
pub(crate) fn known_padding(padding: &[(Dim, Dim)]) -> Option<Vec<(usize, usize)>> {
    padding.iter().map(|(before, after)| Some((before.as_size()?, after.as_size()?))).collect()
}
