//! Depthwise convolutions by the sums of four products of bytes that AVX-512-VNNI has.
//!
//! The four are of lines that lie under each other: their bytes of one pixel are laid side by side once, and serve each window that sees the
//! pixel.

use super::Convolution;
use crate::Windows;
use crate::conv::ConvShape;
use crate::quantized::pack::GROUP;
use crate::quantized::tile::{COLS, Instructions, ROWS};
use crate::scratch::with_scratch;
use crate::threads::parallel_for;
use alloc::{vec, vec::Vec};
use core::arch::x86_64::*;

/// Pixels of a line that are computed at once: what they see then stays in the first-level cache.
const PIXELS: usize = 4 * ROWS;
/// Groups of a kernel's elements at most, so that what pixels see stays in the second-level cache.
const MAX_GROUPS: usize = 64;
/// Lanes of a vector, two of which are a panel.
const LANES: usize = COLS / 2;

/// Weights as they are multiplied: panel by panel, of each four lines of the kernel and each element along them, the four bytes of each
/// channel, at its [`place`].
#[derive(Clone, Debug)]
pub(super) struct Taps {
    /// The kernel's lines and elements of a line.
    kernel: [usize; 2],
    channels: usize,
    data: Vec<[[i8; GROUP]; COLS]>,
    /// The sum of each channel's weights.
    sums: Vec<i32>,
}

impl Taps {
    /// Of weights `[channels, 1, kernel…]`; nothing where the machine has no such instructions, a weight is no signed byte, or the kernel is
    /// large.
    pub fn new(shape: &ConvShape, weight: &[i32]) -> Option<Self> {
        let [_, height, width] = shape.windows.kernel;
        let groups = height.div_ceil(GROUP).checked_mul(width).filter(|&groups| groups <= MAX_GROUPS)?;
        if Instructions::current() != Instructions::Vnni || !shape.is_depthwise_by_lines() {
            return None;
        }
        let channels = shape.out_channels;
        let mut data = vec![[[0; GROUP]; COLS]; channels.div_ceil(COLS) * groups];
        let mut sums = vec![0_i32; channels];
        for (channel, (filter, sum)) in weight.chunks_exact(height * width).zip(&mut sums).enumerate() {
            let panel = &mut data[channel / COLS * groups..][..groups];
            for (at, &weight) in filter.iter().enumerate() {
                let (y, x) = (at / width, at % width);
                panel[y / GROUP * width + x][place(channel % COLS)][y % GROUP] = i8::try_from(weight).ok()?;
                *sum += weight;
            }
        }
        Some(Self { kernel: [height, width], channels, data, sums })
    }

    /// Groups of the kernel's lines.
    fn line_groups(&self) -> usize {
        self.kernel[0].div_ceil(GROUP)
    }

    fn panel(&self, n: usize) -> &[[[i8; GROUP]; COLS]] {
        let groups = self.line_groups() * self.kernel[1];
        &self.data[n * groups..][..groups]
    }
}

/// Where the pixels that windows of a line see are kept, a place for each column of the image, or, where windows leave most columns out, one for
/// each element of each window.
#[derive(Clone, Copy)]
struct Places {
    /// From a window's first place to the next window's.
    step: usize,
    /// From one element of a window to the next.
    gap: usize,
    /// From one group of lines to the next.
    count: usize,
    /// Whether there is one a column.
    by_column: bool,
}

impl Places {
    /// For so many windows.
    fn new(w: &Windows, windows: usize) -> Self {
        let (kernel, stride, dilation) = (w.kernel[2], w.stride[2], w.dilation[2]);
        let columns = (windows - 1).saturating_mul(stride).saturating_add((kernel - 1) * dilation + 1);
        match columns <= windows * kernel {
            true => Self { step: stride, gap: dilation, count: columns, by_column: true },
            false => Self { step: kernel, gap: 1, count: windows * kernel, by_column: false },
        }
    }

    /// The column of the image, its padding before it, that is in a place if windows begin at `first`.
    fn column(&self, w: &Windows, first: usize, place: usize) -> usize {
        let start = first * w.stride[2];
        match self.by_column {
            true => start + place,
            false => start + place / self.step * w.stride[2] + place % self.step * w.dilation[2],
        }
    }
}

/// Computes it.
pub(super) fn depthwise(of: &Convolution<'_>, taps: &Taps) {
    let Convolution { shape, zero, .. } = *of;
    let (w, channels) = (&shape.windows, shape.out_channels);
    assert_eq!(
        (taps.kernel, taps.channels),
        ([w.kernel[1], w.kernel[2]], channels),
        "the weights were packed for another convolution"
    );
    assert!(Instructions::current() == Instructions::Vnni, "the weights were packed for other instructions");
    let mut panels = of.panels();
    for (columns, sums) in panels.iter_mut().zip(taps.sums.chunks(COLS)) {
        for (base, sum) in columns.base.iter_mut().zip(sums) {
            *base = base.wrapping_sub(sum.wrapping_mul(zero.into()));
        }
    }
    let windows = w.output[2].min(PIXELS).next_multiple_of(ROWS);
    let places = Places::new(w, windows);
    let line_work = w.output[2] * channels * (taps.line_groups() * w.kernel[2] + 8) / 160 + 1;
    parallel_for(shape.batch * w.output[1], line_work, |rows| {
        with_scratch(taps.line_groups() * places.count * COLS, |seen| {
            let seen: &mut [[u32; COLS]] = bytemuck::cast_slice_mut(seen);
            let mut sums = [[0; COLS]; ROWS];
            for row in rows {
                for (panel, columns) in panels.iter().enumerate() {
                    for first in (0..w.output[2]).step_by(PIXELS) {
                        let windows = PIXELS.min(w.output[2] - first);
                        let part = Part { row, panel, first, windows, places: &places };
                        // SAFETY: the machine has the instructions.
                        unsafe { bring(of, &part, seen) };
                        for at in (0..windows).step_by(ROWS) {
                            let tile = Tile { taps: taps.panel(panel), width: w.kernel[2], places: &places };
                            let seen = &seen[at * places.step..];
                            // SAFETY: the machine has the instructions.
                            unsafe {
                                match windows - at {
                                    ..=4 => tile.compute::<4>(seen, &mut sums),
                                    _ => tile.compute::<ROWS>(seen, &mut sums),
                                }
                            }
                            let pixel = row * w.output[2] + first + at;
                            let sums = &mut sums[..ROWS.min(windows - at)];
                            // SAFETY: each pixel of the result is computed once.
                            unsafe { of.out.write(sums, columns, pixel * channels + panel * COLS, channels) };
                        }
                    }
                }
            }
        });
    });
}

/// Windows of a line of the result, and a panel of channels.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// The line, counted over all images.
    row: usize,
    panel: usize,
    /// The first window, and how many there are.
    first: usize,
    windows: usize,
    places: &'a Places,
}

/// Brings what windows see: of each column the bytes of four lines side by side, outside of the image zero points.
///
/// # Safety
/// The machine has AVX-512 F, BW and VL.
unsafe fn bring(of: &Convolution<'_>, part: &Part<'_>, seen: &mut [[u32; COLS]]) {
    let Convolution { shape, x, zero, flip, .. } = *of;
    let (w, channels) = (&shape.windows, shape.out_channels);
    let (image, oy) = (part.row / w.output[1], part.row % w.output[1]);
    let border = [zero ^ flip; COLS];
    for (group, seen) in seen.chunks_exact_mut(part.places.count).enumerate() {
        let of_kernel = group * GROUP..w.kernel[1].min((group + 1) * GROUP);
        let mut lines = [(border.as_ptr(), 0); GROUP];
        for (line, n) in lines.iter_mut().zip(of_kernel.clone()) {
            // An image of one plane may be padded by others.
            if let (Some(_), Some(y)) = (w.position(0, 0, 0), w.position(1, oy, n)) {
                let at = (image * w.input[1] + y) * w.input[2] * channels + part.panel * COLS;
                // Lines without pixels are nowhere.
                *line = x.get(at..).map_or(*line, |line| (line.as_ptr(), channels));
            }
        }
        // SAFETY: lines lie in the image whole.
        unsafe {
            match of_kernel.len() {
                1 => lay_side_by_side::<1>(of, part, &lines, seen),
                2 => lay_side_by_side::<2>(of, part, &lines, seen),
                3 => lay_side_by_side::<3>(of, part, &lines, seen),
                _ => lay_side_by_side::<4>(of, part, &lines, seen),
            }
        }
    }
}

/// The bytes of the first `N` of some lines, each a pointer to the panel's channels of its first pixel and what is between its pixels.
///
/// # Safety
/// The lines hold as many pixels as a line of the image. The machine has AVX-512 F, BW and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn lay_side_by_side<const N: usize>(
    of: &Convolution<'_>,
    part: &Part<'_>,
    lines: &[(*const u8, usize); GROUP],
    seen: &mut [[u32; COLS]],
) {
    let (w, channels) = (&of.shape.windows, of.shape.out_channels);
    let (places, there) = (part.places, channels - part.panel * COLS);
    let mask = if there < COLS { (1 << there) - 1 } else { u32::MAX };
    let flips = _mm256_set1_epi8(of.flip as i8);
    let border = u32::from_ne_bytes([of.zero; GROUP]);
    let count = places.count.min((part.windows - 1) * places.step + (w.kernel[2] - 1) * places.gap + 1);
    for (place, seen) in seen[..count].iter_mut().enumerate() {
        // Columns are counted from the padding on.
        let column = places.column(w, part.first, place).wrapping_sub(w.padding[2].0);
        if column >= w.input[2] {
            *seen = [border; COLS];
            continue;
        }
        let mut bytes = [_mm256_setzero_si256(); GROUP];
        for (bytes, (line, step)) in bytes.iter_mut().zip(lines).take(N) {
            // SAFETY: no more is read than the pixel has.
            let line = unsafe { _mm256_maskz_loadu_epi8(mask, line.wrapping_add(column * step).cast()) };
            *bytes = _mm256_xor_si256(line, flips);
        }
        let [a, b, c, d] = bytes;
        let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
        let (low_below, high_below) = (_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d));
        let quarters = [
            _mm256_unpacklo_epi16(low, low_below),
            _mm256_unpackhi_epi16(low, low_below),
            _mm256_unpacklo_epi16(high, high_below),
            _mm256_unpackhi_epi16(high, high_below),
        ];
        for (quarter, to) in quarters.into_iter().zip(seen.as_chunks_mut::<8>().0) {
            // SAFETY: the chunk has eight words.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), quarter) };
        }
    }
}

/// Where a channel of a panel is in what [`lay_side_by_side`] makes of it: instructions of AVX2 lay the bytes of four channels of each half side
/// by side.
const fn place(channel: usize) -> usize {
    let (half, of_half) = (channel / 16, channel % 16);
    of_half / 4 * 8 + half * 4 + of_half % 4
}

/// The places of sixteen channels from one on, as lanes of two vectors.
const fn lanes(first: usize) -> [i32; LANES] {
    let mut lanes = [0; LANES];
    let mut at = 0;
    while at < LANES {
        lanes[at] = place(first + at) as i32;
        at += 1;
    }
    lanes
}

/// The sums of some windows next to each other, for a panel of channels.
struct Tile<'a> {
    taps: &'a [[[i8; GROUP]; COLS]],
    /// Elements of a line of the kernel.
    width: usize,
    places: &'a Places,
}

impl Tile<'_> {
    /// Computes the first `R` of what the windows see from the first on.
    ///
    /// # Safety
    /// The machine has AVX-512-VNNI.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn compute<const R: usize>(&self, seen: &[[u32; COLS]], sums: &mut [[i32; COLS]; ROWS]) {
        let Places { step, gap, count, .. } = *self.places;
        let mut held = [[_mm512_setzero_si512(); 2]; R];
        for (group, taps) in self.taps.chunks_exact(self.width).enumerate() {
            for (tap, taps) in taps.iter().enumerate() {
                let seen = &seen[group * count + tap * gap..][..(R - 1) * step + 1];
                let halves = |from: *const i8| {
                    // SAFETY: a panel has two vectors.
                    unsafe {
                        [_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(LANES * GROUP).cast())]
                    }
                };
                let right = halves(taps.as_ptr().cast());
                for (row, held) in held.iter_mut().enumerate() {
                    let left = halves(seen[row * step].as_ptr().cast());
                    for ((held, left), right) in held.iter_mut().zip(left).zip(right) {
                        *held = _mm512_dpbusd_epi32(*held, left, right);
                    }
                }
            }
        }
        const CHANNELS: [[i32; LANES]; 2] = [lanes(0), lanes(LANES)];
        for ([low, high], to) in held.into_iter().zip(sums) {
            for (to, channels) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(&CHANNELS) {
                // SAFETY: arrays of a vector's length.
                unsafe {
                    let channels = _mm512_loadu_si512(channels.as_ptr().cast());
                    let sums = _mm512_permutex2var_epi32(low, channels, high);
                    _mm512_storeu_si512(to.as_mut_ptr().cast(), sums);
                }
            }
        }
    }
}
