//! Windows that slide over spatial axes: `[batch, channels, spatial…]`, 1 to 3 spatial axes.

use super::rules::{attribute, misfit};
use crate::ir::{Dim, KernelArg, RuleError, RuleResult, TensorType};
use kiln_types::{TensorData, Windows};

/// A window along one spatial axis.
pub(super) struct AxisWindow {
    pub(super) kernel: Dim,
    pub(super) stride: usize,
    pub(super) padding: (usize, usize),
    pub(super) dilation: usize,
}

impl AxisWindow {
    /// Elements between the first and the last that the window touches, both included.
    pub(super) fn extent(&self) -> Dim {
        &(&(&self.kernel - &Dim::constant(1)) * &Dim::from(self.dilation)) + &Dim::constant(1)
    }

    /// Number of places of the window on an axis; rounded up in ceil mode, where the last may hang over but not start
    /// in the end padding.
    pub(super) fn places(&self, size: &Dim, ceil_mode: bool) -> Dim {
        let one = Dim::constant(1);
        let stride = Dim::from(self.stride);
        let before = size + &Dim::from(self.padding.0);
        let free = &(&before + &Dim::from(self.padding.1)) - &self.extent();
        if !ceil_mode {
            return &free.floor_div(&stride) + &one;
        }
        let starts_inside = &(&before - &one).floor_div(&stride) + &one;
        (&free.ceil_div(&stride) + &one).minimum(&starts_inside)
    }
}

/// The spatial rank of `x`, 1 to 3.
pub(super) fn spatial_rank(x: &TensorType) -> RuleResult<usize> {
    match x.rank() {
        rank @ 3..=5 => Ok(rank - 2),
        actual => Err(RuleError::Rank { input: "x".into(), actual, expected: "expected 3 to 5".into() }),
    }
}

/// Checks that options have one entry per spatial axis and no zero steps.
pub(super) fn check_options(rank: usize, lengths: &[usize], steps: &[&[usize]]) -> RuleResult<()> {
    if lengths.iter().any(|&n| n != rank) {
        return Err(misfit(
            "strides",
            format!("(or pads, dilations, kernel_shape) do not have {rank} entries, one per spatial axis"),
        ));
    }
    if steps.iter().any(|steps| steps.contains(&0)) {
        return Err(attribute("strides", "(or dilations) are 0"));
    }
    Ok(())
}

/// An error when a window does not fit anywhere.
pub(super) fn need_places(x: &TensorType, dims: Vec<Dim>) -> RuleResult<TensorType> {
    if dims[2..].iter().any(|dim| dim.as_constant().is_some_and(|size| size < 0)) {
        return Err(misfit("kernel_shape", format!("is larger than the padded input {x}")));
    }
    Ok(x.with_dims(dims))
}

/// Three spatial sizes, the missing ones in front.
pub(super) fn three<T: Copy>(values: &[T], missing: T) -> Option<[T; 3]> {
    let mut all = [missing; 3];
    let skip = 3usize.checked_sub(values.len())?;
    all[skip..].copy_from_slice(values);
    Some(all)
}

/// Two spatial sizes for a kernel, a missing one in front; nothing where there are three.
pub(super) fn plane(values: &[usize], missing: usize) -> Option<KernelArg> {
    match *values {
        [width] => Some(KernelArg::Sizes(vec![missing, width])),
        [height, width] => Some(KernelArg::Sizes(vec![height, width])),
        _ => None,
    }
}

/// Visits the cells of a box in row-major order.
pub(super) fn each([a, b, c]: [usize; 3], mut visit: impl FnMut([usize; 3], usize)) {
    let mut n = 0;
    for i in 0..a {
        for j in 0..b {
            for k in 0..c {
                visit([i, j, k], n);
                n += 1;
            }
        }
    }
}

/// Where an element of the window at `place` lies in a channel; nothing if it is in the padding.
pub(super) fn cell(windows: &Windows, place: [usize; 3], element: [usize; 3]) -> Option<usize> {
    let mut at = 0;
    for axis in 0..3 {
        at = at * windows.input[axis] + windows.position(axis, place[axis], element[axis])?;
    }
    Some(at)
}

/// How many elements of the window at `place` lie in the image or its padding; those of one that hangs over do not.
pub(super) fn elements_in_padding(windows: &Windows, place: [usize; 3]) -> usize {
    (0..3).map(|axis| windows.elements(axis, place[axis], true)).product()
}

/// The full shape of a result with the given channels and places, at the input's rank.
pub(super) fn result_shape(x: &TensorData, channels: usize, places: [usize; 3]) -> Vec<usize> {
    [&[x.shape[0], channels], &places[3 - (x.shape.len() - 2)..]].concat()
}
