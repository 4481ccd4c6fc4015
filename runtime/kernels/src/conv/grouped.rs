//! Convolutions of many groups of few channels: a group's channels fill too little of a product's panels, and gathering its
//! windows costs more than the product.

mod tile;

use super::lines::{Line, Lines, for_each_strip};
use super::{ConvShape, End};
use crate::bounds::Bounds;
use crate::math::{Map, map_rows};
use crate::scratch::Aligned;
use crate::threads::SharedMut;
use core::ops::Range;
use core::ptr::null;
use tile::{Kernels, Places, Tile, ZEROS, bundled, places};

/// Most channels of a group, of images and of results; products are faster for more.
const MOST: usize = 64;
/// The numbers of each channel of an image are filled up to a multiple of the widest vector.
const ALIGN: usize = 16;
/// Least channels of neighbouring groups that are computed for all rows before the next ones: whole lines of the cache.
const STRIP: usize = 32;
/// Weights (24 KiB) of these groups, of which there are more where they stay in a first-level cache: an image is then read in longer runs.
const NEAR: usize = 6 * 1024;

/// Whether this file's way is the one for a convolution that is not depthwise.
pub(super) fn suits(shape: &ConvShape) -> bool {
    let (ic, oc) = shape.group_channels();
    shape.groups > 1 && ic <= MOST && oc <= MOST
}

/// How packed weights lie: `[bundles, kernel…, in / groups, step]`, where a bundle has some groups' channels side by side.
struct Order {
    /// Groups of a bundle.
    groups: usize,
    /// Numbers for each channel of the image, with those that fill up.
    step: usize,
}

impl Order {
    fn of(shape: &ConvShape) -> Self {
        let (ic, oc) = shape.group_channels();
        Self { groups: if bundled(ic, oc) { ALIGN / oc } else { 1 }, step: oc.next_multiple_of(ALIGN) }
    }
}

/// The weights in their [`Order`]; `weight` is `[out, in / groups, kernel…]`.
pub(super) fn packed(shape: &ConvShape, weight: &[f32]) -> Aligned {
    let ((ic, oc), taps) = (shape.group_channels(), shape.windows.kernel_len());
    let Order { groups, step } = Order::of(shape);
    let mut to = Aligned::lasting(shape.groups.div_ceil(groups) * taps * ic * step);
    for (i, &number) in weight.iter().enumerate() {
        let (out, c, tap) = (i / taps / ic, i / taps % ic, i % taps);
        to[((out / (groups * oc) * taps + tap) * ic + c) * step + out % (groups * oc)] = number;
    }
    to
}

/// The result of a convolution in groups; `weight` comes from [`packed`].
pub(super) fn grouped(shape: &ConvShape, x: &[f32], weight: &[f32], end: &End<'_>, out: &mut [f32]) {
    let w = &shape.windows;
    let ((ic, oc), [od, oh, ow]) = (shape.group_channels(), w.output);
    let Bounds { low, high, rest } = end.bounds();
    let (order, kernels) = (Order::of(shape), Kernels::current());
    let each = w.kernel_len() * ic * order.step / order.groups;
    let groups = (NEAR / each.max(1)).max(STRIP.div_ceil(ic.max(oc))).next_multiple_of(order.groups);
    let groups = shape.groups.div_ceil(shape.groups.div_ceil(groups)).next_multiple_of(order.groups);
    let (rows, strips) = (shape.batch * od * oh, shape.groups.div_ceil(groups));
    let (lines, places) = (Lines::of(shape, shape.in_channels, ic * order.step), places(ic, oc));
    let work = groups * (ow * w.kernel_len() * ic * order.step / order.groups / 40 + 20);
    let out = SharedMut::new(out);
    for_each_strip(rows, strips, work, |row, strip| {
        let first = strip * groups;
        let strip = first..shape.groups.min(first + groups);
        let to = row * ow * shape.out_channels;
        let lines = lines.row(row);
        let job = Row { shape, x, weight, order: &order, places: &places, lines, bias: end.bias, low, high };
        // SAFETY: lines lie in the image, kernel elements in the weights; strips of the result's rows are disjoint.
        unsafe {
            for group in strip.clone().step_by(kernels.groups(ic, oc)) {
                let groups = group..strip.end.min(group + kernels.groups(ic, oc));
                job.fill(&kernels, groups, out.ptr(to + group * oc));
            }
            if let Some(activation) = rest {
                let columns = Range { start: first * oc, end: strip.end * oc };
                let (map, first) = (Map::Activation(activation), out.ptr(to + columns.start));
                map_rows(map, first, shape.out_channels, ow, columns.len());
            }
        }
    });
}

/// One row of the result.
struct Row<'a> {
    shape: &'a ConvShape,
    x: &'a [f32],
    weight: &'a [f32],
    order: &'a Order,
    places: &'a Places,
    /// See [`Lines`].
    lines: &'a [Line],
    bias: Option<&'a [f32]>,
    low: f32,
    high: f32,
}

impl Row<'_> {
    /// Computes the channels of some groups of the row, of which the first is at `out`: of one, or of those that a vector holds.
    ///
    /// # Safety
    /// The row's lines lie in the image and the weights; `out` holds the row.
    unsafe fn fill(&self, kernels: &Kernels, groups: Range<usize>, out: *mut f32) {
        let (w, (ic, oc)) = (&self.shape.windows, self.shape.group_channels());
        debug_assert!(ic <= ZEROS.len());
        let several = kernels.groups(ic, oc) > 1;
        let bundle = groups.start / self.order.groups * w.kernel_len() * ic * self.order.step;
        let weight = &self.weight[bundle + groups.start % self.order.groups * oc..];
        let mut x = 0;
        while x < w.output[2] {
            let windows = kernels.windows(w.output[2] - x);
            let first = (x * w.stride[2]) as isize - w.padding[2].0 as isize;
            let mut c = 0;
            while c < groups.len() * oc {
                let (kernel, lanes) = if several {
                    (kernels.of_groups(windows), groups.len() * oc)
                } else {
                    kernels.of(windows, oc - c)
                };
                // SAFETY: the caller's promise; weights are filled up to whole vectors.
                unsafe {
                    kernel(&Tile {
                        lines: self.lines,
                        x: self.x.as_ptr().add(groups.start * ic),
                        weight: weight.as_ptr().add(c),
                        weight_step: self.order.step,
                        group: ic,
                        seen: groups.len() * ic,
                        of_group: oc,
                        places: self.places,
                        channels: self.shape.in_channels,
                        first,
                        step: w.stride[2],
                        taps: w.kernel[2],
                        dilation: w.dilation[2],
                        width: w.input[2],
                        lanes,
                        bias: self.bias.map_or(null(), |bias| bias[groups.start * oc + c..].as_ptr()),
                        low: self.low,
                        high: self.high,
                        out: out.add(x * self.shape.out_channels + c),
                        out_step: self.shape.out_channels,
                    });
                }
                c += lanes;
            }
            x += windows;
        }
    }
}
