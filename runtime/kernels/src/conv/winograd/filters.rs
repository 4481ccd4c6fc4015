//! The filters of Winograd's algorithm, transformed or as they are.

use super::transforms::{LINE, transform_filters, transform_panel};
use super::{PLACES, SEEN};
use crate::consumed::{Consumed, in_parts};
use crate::conv::ConvShape;
use crate::gemm::{PackedRhs, pack_columns, packed_place, panel_cols};
use crate::scratch::Aligned;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec::Vec;
use core::ops::Range;

/// Elements of transformed filters (2 MiB) from which on they come from a third-level cache or from memory at each use, where filters as they are, a
/// quarter as large, take less time to read and to transform. They take less memory as well.
const MANY: usize = 512 * 1024;

/// Filters in the order in which they are read.
#[derive(Clone, Debug)]
pub(crate) enum Filters {
    /// Transformed: one right operand a place, `[in, out]`.
    Transformed(Vec<PackedRhs>),
    /// To be transformed when they are used.
    Plain(Panels),
}

impl Filters {
    /// Of `weight`, `[out, in, 3, 3]`.
    pub fn new(shape: &ConvShape, weight: &[f32], consumed: Consumed<'_>) -> Self {
        let (ic, oc) = (shape.in_channels, shape.out_channels);
        assert_eq!(weight.len(), ic * oc * TAPS, "the weights do not have the convolution's shape");
        if PLACES * ic * oc < MANY {
            Self::Transformed(transformed(ic, oc, weight))
        } else {
            Self::Plain(Panels::new(ic, oc, weight, consumed))
        }
    }

    /// # Panics
    /// When they were packed for other channels, or another machine.
    pub fn check(&self, ic: usize, oc: usize) {
        let fit = match self {
            Self::Transformed(operands) => operands.len() == PLACES && operands[0].dims() == (ic, oc),
            Self::Plain(panels) => {
                (panels.ic, panels.cols) == (ic, panel_cols()) && panels.count() == oc.div_ceil(panels.cols)
            }
        };
        assert!(fit, "the weights were packed for another convolution");
    }
}

/// Elements of a filter.
const TAPS: usize = 9;

/// One right operand a place.
fn transformed(ic: usize, oc: usize, weight: &[f32]) -> Vec<PackedRhs> {
    let mut operands: Vec<PackedRhs> = (0..PLACES).map(|_| PackedRhs::zeros(ic, oc)).collect();
    let shared: Vec<_> = operands.iter_mut().map(|operand| SharedMut::new(operand.elements())).collect();
    let lines = oc.div_ceil(LINE);
    // Neighbouring channels lie beside each other in an operand: a thread writes pages of its own.
    parallel_for(lines * ic, 10 * LINE, |range| {
        for (first, c) in range.map(|i| (i / ic * LINE, i % ic)) {
            let count = LINE.min(oc - first);
            let mut places = [[0.0f32; LINE]; PLACES];
            // SAFETY: the filters lie inside, and there is room for a line at each place.
            unsafe {
                let from = weight.as_ptr().add((first * ic + c) * 9);
                transform_filters(from, ic * 9, count, places.as_mut_ptr().cast(), LINE);
            }
            let mut done = 0;
            while done < count {
                let (at, beside) = packed_place(ic, oc, c, first + done);
                let len = beside.min(count - done);
                for (place, to) in places.iter().zip(&shared) {
                    // SAFETY: each element of the operands is written once.
                    unsafe { to.slice(at..at + len) }.copy_from_slice(&place[done..done + len]);
                }
                done += len;
            }
        }
    });
    drop(shared);
    operands
}

/// Filters as they are, those of as many results as a panel of a product has columns side by side.
#[derive(Clone, Debug)]
pub(crate) struct Panels {
    ic: usize,
    /// Columns of a panel; those beyond the results are 0.
    cols: usize,
    /// `[panel, in, 3, 3, column]`.
    data: Aligned,
}

impl Panels {
    fn new(ic: usize, oc: usize, weight: &[f32], consumed: Consumed<'_>) -> Self {
        let (cols, depth) = (panel_cols(), ic * TAPS);
        let mut data = Aligned::lasting(oc.div_ceil(cols) * depth * cols);
        let to = SharedMut::new(&mut data);
        let pack = |panels: Range<usize>| {
            for panel in panels {
                let filters = &weight[panel * cols * depth..oc.min((panel + 1) * cols) * depth];
                // SAFETY: each panel is written by one thread.
                let to = unsafe { to.slice(panel * cols * depth..(panel + 1) * cols * depth) };
                pack_columns(filters, depth, cols, to);
            }
        };
        let panel = depth * cols;
        in_parts(oc.div_ceil(cols), panel, panel, pack, |panels| {
            consumed(panels.start * panel..weight.len().min(panels.end * panel));
        });
        Self { ic, cols, data }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.data.len() / (self.ic * TAPS * self.cols)
    }

    /// Some steps of the depth of one panel, transformed: `to[place · place_step + step · cols + column]`.
    ///
    /// # Panics
    /// When there is no room.
    pub fn transform(&self, panel: usize, steps: Range<usize>, to: &mut [f32], place_step: usize) {
        let width = TAPS * self.cols;
        let from = &self.data[(panel * self.ic + steps.start) * width..(panel * self.ic + steps.end) * width];
        assert!(
            place_step >= steps.len() * self.cols && to.len() >= SEEN * SEEN * place_step,
            "room for transformed filters"
        );
        // SAFETY: there are as many filters, and room for each at each place.
        unsafe { transform_panel(from.as_ptr(), steps.len(), self.cols, to.as_mut_ptr(), place_step) };
    }
}
