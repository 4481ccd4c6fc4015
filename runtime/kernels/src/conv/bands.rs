//! Depthwise convolutions band by band: of the image only a band of lines is ever there, which its maker leaves in the second-level cache for the
//! convolution. An image that is larger than that would be written to memory and read back, which takes longer than computing it.

use super::{ConvShape, ConvWay};
use crate::scratch::with_scratch;
use crate::threads::{self, parallel_for};
use core::ops::Range;

/// Elements of a band: half of a second-level cache of 1 MiB.
const BAND: usize = 128 * 1024;
/// Ranges of lines for each thread, if they share few lines.
const RANGES: usize = 2;

impl ConvShape {
    /// Whether it can be computed line by line: a depthwise convolution in one or two dims, with one result for each channel.
    pub fn is_depthwise_by_lines(&self) -> bool {
        let w = &self.windows;
        self.way() == ConvWay::Depthwise
            && self.in_channels == self.out_channels
            && (w.input[0], w.kernel[0], w.output[0]) == (1, 1, 1)
    }

    /// Lines of the image that two neighbouring windows see. Two ranges of lines that are computed apart both need them.
    pub(super) fn shared_lines(&self) -> usize {
        let w = &self.windows;
        ((w.kernel[1] - 1) * w.dilation[1] + 1).saturating_sub(w.stride[1])
    }
}

type Bring<'a> = dyn Fn(usize, Range<usize>, &mut [f32]) + Sync + 'a;
type Compute<'a> = dyn Fn(usize, Range<usize>, *const f32) + Sync + 'a;

/// A depthwise convolution, as one range of lines needs it.
pub(crate) struct Bands<'a> {
    /// Its geometry.
    pub shape: &'a ConvShape,
    /// The cost of all of it in nanoseconds, roughly.
    pub work: usize,
    /// Writes some lines of an image.
    pub bring: &'a Bring<'a>,
    /// Computes some lines of an image of the result. The lines that they see lie where they would if the images began at the pointer.
    pub compute: &'a Compute<'a>,
}

impl Bands<'_> {
    pub fn run(&self) {
        let w = &self.shape.windows;
        let (lines, height) = (self.shape.batch * w.output[1], w.output[1]);
        let ranges = match threads::sharing() {
            1 => 1,
            threads => {
                let seen = self.shape.batch * w.input[1];
                let few_shared = 1 + seen / (8 * self.shape.shared_lines()).max(1);
                (threads * RANGES).min(few_shared).max(threads).min(lines)
            }
        };
        parallel_for(ranges, self.work / ranges.max(1) + 1, |jobs| {
            let at = |job: usize| lines * job / ranges;
            let mut lines = at(jobs.start)..at(jobs.end);
            while !lines.is_empty() {
                // No further than the image.
                let (image, first) = (lines.start / height, lines.start % height);
                let end = height.min(first + lines.len());
                self.lines(image, first..end);
                lines.start += end - first;
            }
        });
    }

    /// The lines of the image that a line of the result sees.
    fn seen(&self, line: usize) -> Range<usize> {
        let w = &self.shape.windows;
        let first = line * w.stride[1];
        let clip = |position: usize| position.saturating_sub(w.padding[1].0).min(w.input[1]);
        clip(first)..clip(first + (w.kernel[1] - 1) * w.dilation[1] + 1)
    }

    /// Computes some lines of an image of the result.
    fn lines(&self, image: usize, lines: Range<usize>) {
        let (w, channels) = (&self.shape.windows, self.shape.out_channels);
        let line = w.input[2] * channels;
        let at_once = (w.kernel[1] - 1) * w.dilation[1] + w.stride[1];
        let room = (BAND / line.max(1)).max(at_once).min(self.seen(lines.start).start.abs_diff(w.input[1]));
        with_scratch(room * line, |band| {
            // The lines that are in the band.
            let mut there = 0..0usize;
            let mut next = lines.start;
            while next < lines.end {
                let first = self.seen(next).start;
                let fits = |&line: &usize| self.seen(line).end <= first + room;
                let end = (next..lines.end).take_while(fits).last().map_or(next + 1, |last| last + 1);
                let wanted = first..self.seen(end - 1).end.max(first);
                let kept = there.end.saturating_sub(first).min(there.len());
                band.copy_within((there.len() - kept) * line..there.len() * line, 0);
                (self.bring)(image, first + kept..wanted.end, &mut band[kept * line..]);
                there = wanted;
                let images = band.as_ptr().wrapping_sub((image * w.input[1] + there.start) * line);
                (self.compute)(image, next..end, images);
                next = end;
            }
        });
    }
}
