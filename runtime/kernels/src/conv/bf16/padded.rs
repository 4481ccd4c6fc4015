//! Rounded images with their padding.

use super::super::ConvShape;
use super::{Numbers, filled, for_each_line};
use crate::gemm::STEPS;
use crate::threads::parallel_chunks;
use core::ops::Range;
use smallvec::SmallVec;

/// Runs of a window for which no memory is asked: pixels of 7x7, and more.
const INLINE: usize = 64;

/// How rounded images lie in memory with their padding, `[batch, spatial…, channels]`: windows then need no bounds.
pub(super) struct Padded<'a> {
    shape: &'a ConvShape,
    /// Pixels in each dim.
    size: [usize; 3],
    /// Elements of a window that [lie side by side](ConvShape::run).
    run: usize,
    /// Where they lie, from the window's first element on.
    runs: SmallVec<[usize; INLINE]>,
    /// Elements from one run to the next in a row of the product: as many as there are, or filled up to whole blocks.
    run_step: usize,
}

impl<'a> Padded<'a> {
    /// With runs of so many elements filled up.
    pub(super) fn new(shape: &'a ConvShape, filled_run: usize) -> Self {
        assert!(shape.pads_little(), "padding is far larger than images and results");
        let (w, channels, ic) = (&shape.windows, shape.in_channels, shape.group_channels().0);
        let size = [0, 1, 2].map(|i| w.padding[i].0 + w.input[i] + w.padding[i].1);
        let run = shape.run();
        assert!(
            [run, shape.depth()].contains(&filled_run),
            "the weights were packed for another convolution"
        );
        let run_step = if filled_run == run { filled(shape.depth(), run).1 } else { run };
        let pixels = if run == ic { w.kernel[2] } else { 1 };
        let mut runs = SmallVec::new();
        for (kz, ky) in (0..w.kernel[0]).flat_map(|kz| (0..w.kernel[1]).map(move |ky| (kz, ky))) {
            let line = (kz * w.dilation[0] * size[1] + ky * w.dilation[1]) * size[2];
            runs.extend((0..pixels).map(|kx| (line + kx * w.dilation[2]) * channels));
        }
        Self { shape, size, run, runs, run_step }
    }

    /// Elements of a row of the product.
    pub(super) fn depth(&self) -> usize {
        self.runs.len() * self.run_step
    }

    /// The bytes from a window's start to each block of [`STEPS`] elements, where windows are whole blocks or weights fill them up: then something else of the
    /// image lies behind a run, which is multiplied with 0.
    pub(super) fn block_offsets(&self) -> Option<SmallVec<[usize; INLINE]>> {
        let blocks = (0..self.run).step_by(STEPS);
        let offsets = || {
            self.runs.iter().flat_map(|run| blocks.clone().map(move |block| (run + block) * size_of::<u16>()))
        };
        self.run_step.is_multiple_of(STEPS).then(|| offsets().collect())
    }

    /// Where a window (counted over all images) starts.
    pub(super) fn start(&self, group: usize, row: usize) -> usize {
        let w = &self.shape.windows;
        let [od, oh, ow] = w.output;
        let [n, z, y, x] = [row / (od * oh * ow), row / (oh * ow) % od, row / ow % oh, row % ow];
        self.pixel(n, z, y, x) * self.shape.in_channels + group * self.shape.group_channels().0
    }

    /// The pixel at which the window of a place of the result starts.
    fn pixel(&self, n: usize, z: usize, y: usize, x: usize) -> usize {
        let stride = self.shape.windows.stride;
        let line = (n * self.size[0] + z * stride[0]) * self.size[1] + y * stride[1];
        line * self.size[2] + x * stride[2]
    }

    /// Elements of all images, and of what the last run is filled up with.
    pub(super) fn len(&self) -> usize {
        self.images() + self.run_step - self.run
    }

    /// Elements of all images.
    fn images(&self) -> usize {
        self.shape.batch * self.size.iter().product::<usize>() * self.shape.in_channels
    }

    /// Rounds images to it.
    pub(super) fn round(&self, x: Numbers<'_>, to: &mut [u16]) {
        let (w, channels) = (&self.shape.windows, self.shape.in_channels);
        let [depth, height, width] = self.size;
        let line = width * channels;
        let (to, behind) = to.split_at_mut(self.images());
        behind.fill(0);
        parallel_chunks(to, line, line / 16 + 1, |i, to| {
            let (n, z, y) = (i / (depth * height), i / height % depth, i % height);
            let inside =
                |dim: usize, at: usize| at.checked_sub(w.padding[dim].0).filter(|&at| at < w.input[dim]);
            let Some((z, y)) = inside(0, z).zip(inside(1, y)) else { return to.fill(0) };
            let from = (z * w.input[1] + y) * w.input[2];
            let (before, rest) = to.split_at_mut(w.padding[2].0 * channels);
            let (pixels, after) = rest.split_at_mut(w.input[2] * channels);
            before.fill(0);
            x.write(n, w.input_len(), from..from + w.input[2], channels, pixels);
            after.fill(0);
        });
    }

    /// Writes the windows `rows` (counted over all images), `step` elements apart, and zeros behind each up to a multiple of [`STEPS`].
    ///
    /// # Safety
    /// `x` has the size, windows lie inside of it, and `to` has room for them.
    pub(super) unsafe fn gather(
        &self,
        x: &[u16],
        group: usize,
        rows: Range<usize>,
        to: *mut u16,
        step: usize,
    ) {
        // SAFETY: the caller's promise. Few elements are copied where they are asked for, by as many words as hold them.
        unsafe {
            match self.run {
                8 => self.gather_by(x, group, rows, to, step, copy_words::<1>),
                9..=16 => self.gather_by(x, group, rows, to, step, copy_words::<2>),
                17..=24 => self.gather_by(x, group, rows, to, step, copy_words::<3>),
                25..=32 => self.gather_by(x, group, rows, to, step, copy_words::<4>),
                _ => self.gather_by(x, group, rows, to, step, core::ptr::copy_nonoverlapping),
            }
        }
    }

    /// [`Padded::gather`] with what copies a run.
    ///
    /// # Safety
    /// As for [`Padded::gather`]; `copy` copies runs of this length.
    #[inline(always)]
    unsafe fn gather_by(
        &self,
        x: &[u16],
        group: usize,
        rows: Range<usize>,
        to: *mut u16,
        step: usize,
        copy: unsafe fn(*const u16, *mut u16, usize),
    ) {
        let (channels, depth, filling) = (self.shape.in_channels, self.depth(), self.run_step - self.run);
        let (padding, first) = (depth.next_multiple_of(STEPS) - depth, group * self.shape.group_channels().0);
        for_each_line(self.shape, rows, |[n, oz, oy, ox], part| {
            for (col, row) in (ox..).zip(part) {
                // SAFETY: the caller's promise: the window's elements are in the image, and there is room for the row.
                unsafe {
                    let from = x.as_ptr().add(self.pixel(n, oz, oy, col) * channels + first);
                    let to = to.add(row * step);
                    for (i, &run) in self.runs.iter().enumerate() {
                        let to = to.add(i * self.run_step);
                        copy(from.add(run), to, self.run);
                        to.add(self.run).write_bytes(0, filling);
                    }
                    if padding > 0 {
                        to.add(depth).write_bytes(0, padding);
                    }
                }
            }
        });
    }
}

/// Copies `n` elements by so many words of 8, of which the last overlaps the one before it.
///
/// # Safety
/// Both sides hold them and do not overlap; they are as many as the words hold, or up to 7 less, and at least 8.
#[inline(always)]
unsafe fn copy_words<const WORDS: usize>(from: *const u16, to: *mut u16, n: usize) {
    const WORD: usize = size_of::<u128>() / size_of::<u16>();
    for word in 0..WORDS {
        let at = (word * WORD).min(n - WORD);
        // SAFETY: the caller's promise.
        unsafe { to.add(at).cast::<u128>().write_unaligned(from.add(at).cast::<u128>().read_unaligned()) };
    }
}
