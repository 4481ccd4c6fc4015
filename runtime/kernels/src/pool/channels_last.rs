//! Pooling of images with their channels last: vectors of channels.

use super::{PoolShape, Reducer, join_row, with_counts};
use crate::simd::dispatched;
use crate::threads;
use kiln_types::{PoolOp, bf16};
use smallvec::SmallVec;

/// Lines of a window for which no memory is asked.
const LINES: usize = 16;

/// Pools `x`, `[batch, spatial…, channels]`, into `out` of the same order. A NaN in a window makes its maximum NaN.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn pool_channels_last(op: PoolOp, shape: &PoolShape, x: &[f32], out: &mut [f32]) {
    shape.check(x.len(), out.len());
    if out.is_empty() {
        return;
    }
    with_counts(op, &shape.windows, |counts| pooled(Reducer::of(op), shape, counts, x, out));
}

/// The maxima of rounded images, `[batch, spatial…, channels]`, which are rounded numbers too: what [`pool_channels_last`] yields of them. A NaN in a
/// window makes its maximum NaN.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn max_pool_rounded(shape: &PoolShape, x: &[bf16], out: &mut [bf16]) {
    shape.check(x.len(), out.len());
    if out.is_empty() {
        return;
    }
    let (x, out): (&[u16], &mut [u16]) = (bytemuck::cast_slice(x), bytemuck::cast_slice_mut(out));
    each_window(shape, x, out, |image, pixels, _, out| {
        // SAFETY: pixels lie in the image, and each has as many channels as the result's.
        unsafe { max_pixels(image.as_ptr(), pixels, out) };
    });
}

/// [`pool_channels_last`], whose operands have their sizes.
fn pooled(reducer: Reducer, shape: &PoolShape, counts: Option<[&[f32]; 3]>, x: &[f32], out: &mut [f32]) {
    each_window(shape, x, out, |image, pixels, [z, y, o], out| {
        if let Reducer::Powers(_) = reducer {
            out.fill(0.0);
            pixels.for_each(|pixel| join_row(reducer, &image[pixel..][..out.len()], out));
        } else {
            // One count for all channels of a pixel; a maximum has none.
            let count = counts.map_or(1.0, |[depths, heights, widths]| depths[z] * heights[y] * widths[o]);
            // SAFETY: pixels lie in the image, and each has as many channels as the result's.
            unsafe { reduce_pixels(matches!(reducer, Reducer::Max), image.as_ptr(), pixels, count, out) };
        }
        reducer.finish(out);
    });
}

/// Calls `visit` for each pixel of the result with its image, the pixels of its window, its place and its channels.
fn each_window<T: Send + Sync>(
    shape: &PoolShape,
    x: &[T],
    out: &mut [T],
    visit: impl Fn(&[T], &Pixels<'_>, [usize; 3], &mut [T]) + Sync,
) {
    let (w, channels) = (&shape.windows, shape.channels);
    let [od, oh, ow] = w.output;
    let row = ow * channels;
    let work = row * w.kernel_len() / 10 + 20 * ow;
    threads::parallel_chunks(out, row, work, |i, out| {
        let (n, z, y) = (i / (od * oh), i / oh % od, i % oh);
        let image = &x[n * w.input_len() * channels..][..w.input_len() * channels];
        let mut lines = SmallVec::<[usize; LINES]>::new();
        shape.for_each_row(z, y, |start| lines.push(start * channels));
        for (o, out) in out.chunks_mut(channels).enumerate() {
            let along = w.inside(2, o);
            let first = (o * w.stride[2] + along.start * w.dilation[2]).saturating_sub(w.padding[2].0);
            let pixels = Pixels {
                lines: &lines,
                first: first * channels,
                count: along.len(),
                step: w.dilation[2] * channels,
            };
            visit(image, &pixels, [z, y, o], out);
        }
    });
}

/// The pixels of a window that lie in the image: positions of their first channels.
struct Pixels<'a> {
    /// Where the lines of the image start that the window sees.
    lines: &'a [usize],
    /// From there to the first pixel.
    first: usize,
    /// Pixels in a line.
    count: usize,
    /// From one to the next.
    step: usize,
}

impl Pixels<'_> {
    #[inline(always)]
    fn for_each(&self, mut visit: impl FnMut(usize)) {
        for line in self.lines {
            let first = line + self.first;
            (0..self.count).for_each(
                #[inline(always)]
                |i| visit(first + i * self.step),
            );
        }
    }
}

dispatched! {
    /// `out[c] = (reduction of image[pixel + c]) / count`: the maximum, in which NaN wins, or the sum.
    ///
    /// # Safety
    /// The image holds as many channels as `out` from each pixel on.
    unsafe fn reduce_pixels<S>(s, max: bool, image: *const f32, pixels: &Pixels<'_>, count: f32, out: &mut [f32]) {
        const V: usize = 4;
        let (channels, out) = (out.len(), out.as_mut_ptr());
        let neutral = s.splat(if max { f32::NEG_INFINITY } else { 0.0 });
        let count = s.splat(count);
        let mut c = 0;
        while c + V * S::LANES <= channels {
            let mut reductions = [neutral; V];
            pixels.for_each(#[inline(always)] |pixel| {
                for v in 0..V {
                    let x = s.load(image.add(pixel + c + v * S::LANES));
                    reductions[v] = if max { s.select(s.eq(reductions[v], reductions[v]), s.max(reductions[v], x), reductions[v]) } else { s.add(reductions[v], x) };
                }
            });
            for v in 0..V {
                s.store(out.add(c + v * S::LANES), s.div(reductions[v], count));
            }
            c += V * S::LANES;
        }
        while c < channels {
            let lanes = S::LANES.min(channels - c);
            let mut reducer = neutral;
            pixels.for_each(#[inline(always)] |pixel| {
                let x = s.load_up_to(image.add(pixel + c), lanes);
                reducer = if max { s.select(s.eq(reducer, reducer), s.max(reducer, x), reducer) } else { s.add(reducer, x) };
            });
            s.store_up_to(out.add(c), lanes, s.div(reducer, count));
            c += S::LANES;
        }
    }
}

/// Numbers of bf16 as integers in the same order, any NaN above all others.
#[inline(always)]
fn ordered(bits: u16) -> i16 {
    let nan = bits & 0x7fff > bf16::INFINITY.to_bits();
    let signed = bits as i16;
    if nan { i16::MAX } else { signed ^ ((signed >> 15) & i16::MAX) }
}

/// What [`ordered`] made of a number, as bits again.
#[inline(always)]
fn bits_of(ordered: i16) -> u16 {
    (ordered ^ ((ordered >> 15) & i16::MAX)) as u16
}

dispatched! {
    /// `out[c] = max(image[pixel + c])` of bf16; NaN wins. The compiler makes vectors of it, of each instruction set's width.
    ///
    /// # Safety
    /// The image holds as many channels as `out` from each pixel on.
    unsafe fn max_pixels<S>(s, image: *const u16, pixels: &Pixels<'_>, out: &mut [u16]) {
        const BLOCK: usize = 64;
        let _ = s;
        let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
        let tail = blocks.len() * BLOCK;
        for (b, out) in blocks.iter_mut().enumerate() {
            let mut most = [ordered(bf16::NEG_INFINITY.to_bits()); BLOCK];
            pixels.for_each(#[inline(always)] |pixel| {
                let from = &*image.add(pixel + b * BLOCK).cast::<[u16; BLOCK]>();
                for (most, &x) in most.iter_mut().zip(from) {
                    *most = (*most).max(ordered(x));
                }
            });
            *out = most.map(bits_of);
        }
        rest.fill(bits_of(ordered(bf16::NEG_INFINITY.to_bits())));
        pixels.for_each(#[inline(always)] |pixel| {
            for (c, most) in rest.iter_mut().enumerate() {
                *most = bits_of(ordered(*most).max(ordered(*image.add(pixel + tail + c))));
            }
        });
    }
}
