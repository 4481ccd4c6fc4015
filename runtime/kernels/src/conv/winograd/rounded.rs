//! Winograd's algorithm F(2x2, 3x3) of operands rounded to bf16: a square of 2x2 results takes 16 multiplications instead of 36.
//!
//! What is rounded are transformed pixels and filters, once each. Small squares only add four pixels and halve, so that the rounding of independent pixels
//! moves results 5/3 times as far as that of a direct product (the square root of the sums of squares, 25 to 9), that of equal ones no farther. Squares of
//! 4x4 would round them several times as much.

use super::transforms::{small_filter_transform, transform_small_pixels, transform_small_sums};
use super::{Images, Squares, is_square};
use crate::consumed::{Consumed, in_parts};
use crate::conv::{ConvShape, End};
use crate::gemm::{
    Matrix, PANEL as COLS, STEPS, WHOLE, cut, multiplies_pairs, pack_bf16_into, packed_bf16_len, panel_sums,
    round_rows, row_step,
};
use crate::scratch::{Aligned, with_scratch};
use crate::threads::{self, SharedMut, parallel_for};
use core::ops::Range;

/// Side of a square of results.
const SIDE: usize = 2;
/// Side of the square of pixels that they see.
const SEEN: usize = SIDE + 2;
/// Places in it: so many products there are.
const PLACES: usize = SEEN * SEEN;
/// Elements of a filter.
const TAPS: usize = 9;

/// Rounded elements that a block of squares has at most: half of a second-level cache of 1 MiB.
const BLOCK: usize = 256 * 1024;
/// Squares in a block at most: 16 places of a panel's sums take a fifth of that cache.
const MOST: usize = 96;
/// Squares for each thread from which on threads have blocks of their own: each reads all filters.
const SQUARES: usize = 48;

/// Whether this file's way is the one for a convolution of rounded operands: where pairs of bf16 are multiplied. Tiles are multiplied faster than squares are
/// transformed.
pub(in crate::conv) fn suits_rounded(shape: &ConvShape) -> bool {
    let channels = shape.in_channels >= STEPS && shape.out_channels >= COLS;
    is_square(shape) && channels && Squares::of(shape, SIDE).count >= WHOLE && multiplies_pairs()
}

/// Filters, transformed, rounded and packed: a panel of channels after the other, each with its 16 places.
#[derive(Clone, Debug)]
pub(in crate::conv) struct RoundedFilters {
    ic: usize,
    oc: usize,
    data: Aligned,
}

impl RoundedFilters {
    /// Of `weight`, `[out, in, 3, 3]`, which is read part by part.
    pub fn new(shape: &ConvShape, weight: &[f32], consumed: Consumed<'_>) -> Self {
        let (ic, oc) = (shape.in_channels, shape.out_channels);
        assert_eq!(weight.len(), ic * oc * TAPS, "the weights do not have the convolution's shape");
        let (panels, len) = (oc.div_ceil(COLS), packed_bf16_len(ic, COLS));
        let mut data = Aligned::lasting(panels * PLACES * len);
        let to = SharedMut::new(&mut data);
        let pack = |range: Range<usize>| {
            for panel in range {
                let filters = panel * COLS..oc.min((panel + 1) * COLS);
                // SAFETY: each panel has its own part.
                let to = unsafe { to.slice(panel * PLACES * len..(panel + 1) * PLACES * len) };
                with_scratch(PLACES * ic * COLS, |places| {
                    transform(&weight[filters.start * ic * TAPS..filters.end * ic * TAPS], ic, places);
                    for (place, to) in places.chunks_exact(ic * COLS).zip(to.chunks_exact_mut(len)) {
                        let filters = filters.len();
                        pack_bf16_into(
                            Matrix::row_major(place, COLS),
                            ic,
                            filters,
                            bytemuck::cast_slice_mut(to),
                        );
                    }
                });
            }
        };
        let panel = COLS * ic * TAPS;
        in_parts(panels, panel, PLACES * ic * COLS / 4 + 1, pack, |panels| {
            consumed(panels.start * panel..weight.len().min(panels.end * panel));
        });
        Self { ic, oc, data }
    }

    /// The operand of one place, `[in, 32]`.
    fn place(&self, panel: usize, place: usize) -> &[u16] {
        let len = packed_bf16_len(self.ic, COLS);
        bytemuck::cast_slice(&self.data[(panel * PLACES + place) * len..][..len])
    }
}

/// `G g Gᵀ` of up to 32 filters `[out, in, 3, 3]`, as `[place, in, 32]`.
fn transform(filters: &[f32], ic: usize, to: &mut [f32]) {
    let filters = filters.as_chunks::<TAPS>().0;
    for channel in 0..ic {
        let mut taps = [[0.0; COLS]; TAPS];
        for (col, filter) in filters[channel..].iter().step_by(ic).enumerate() {
            for (tap, &element) in taps.iter_mut().zip(filter) {
                tap[col] = element;
            }
        }
        let columns = [0, 1, 2].map(|x| small_filter_transform([&taps[x], &taps[3 + x], &taps[6 + x]]));
        for y in 0..SEEN {
            let row = small_filter_transform([&columns[0][y], &columns[1][y], &columns[2][y]]);
            for (x, row) in row.iter().enumerate() {
                to[((y * SEEN + x) * ic + channel) * COLS..][..COLS].copy_from_slice(row);
            }
        }
    }
}

/// The result of a convolution of rounded operands.
pub(in crate::conv) fn winograd_rounded(
    shape: &ConvShape,
    x: &[f32],
    filters: &RoundedFilters,
    end: &End<'_>,
    out: &mut [f32],
) {
    let (ic, oc) = (shape.in_channels, shape.out_channels);
    assert!(
        is_square(shape) && (filters.ic, filters.oc) == (ic, oc),
        "the weights were packed for another convolution"
    );
    let squares = Squares::of(shape, SIDE);
    let (count, threads) = (squares.count, threads::sharing());
    let most = (BLOCK / (PLACES * row_step(ic))).clamp(WHOLE, MOST);
    let blocks = count.div_ceil(most);
    let apart = threads == 1 || count / threads >= SQUARES;
    // As many blocks for each thread; otherwise each block is shared out itself.
    let blocks = if apart { blocks.next_multiple_of(threads) } else { blocks };
    let job = Job { images: Images { shape, squares, x, end, out: SharedMut::new(out) }, filters };
    let one = |i: usize| job.block(cut(count, WHOLE, blocks, i));
    if apart {
        let work = PLACES * count / blocks * ic * oc / 200 + 1;
        parallel_for(blocks, work, |range| range.for_each(one));
    } else {
        (0..blocks).for_each(one);
    }
}

/// What all blocks share.
struct Job<'a> {
    images: Images<'a>,
    filters: &'a RoundedFilters,
}

impl Job<'_> {
    /// Some squares from their pixels to their results.
    fn block(&self, squares: Range<usize>) {
        if squares.is_empty() {
            return;
        }
        let (ic, oc, count) = (self.filters.ic, self.filters.oc, squares.len());
        let row = row_step(ic);
        let step = count.next_multiple_of(WHOLE) * row;
        with_scratch(PLACES * step / 2, |space| {
            let pixels: &mut [u16] = bytemuck::cast_slice_mut(space);
            let shared = SharedMut::new(pixels);
            parallel_for(count, PLACES * ic / 4 + 1, |part| {
                with_scratch(PLACES * ic, |places| {
                    for i in part {
                        // SAFETY: there is room for the channels at each place, and each square has its own row in each place's matrix.
                        unsafe {
                            let transform = transform_small_pixels;
                            self.images.transform_pixels(
                                transform,
                                squares.start + i,
                                places.as_mut_ptr(),
                                ic,
                            );
                            round_rows(PLACES, ic, (places.as_ptr(), ic), (shared.ptr(i * row), step));
                        }
                    }
                });
            });
            let pixels = Pixels { places: bytemuck::cast_slice(space), step, row, squares };
            let work = PLACES * count * ic * COLS / 200 + 1;
            parallel_for(oc.div_ceil(COLS), work, |part| part.for_each(|panel| self.panel(&pixels, panel)));
        });
    }

    /// The results of some squares in the channels of one panel.
    fn panel(&self, pixels: &Pixels<'_>, panel: usize) {
        let count = pixels.squares.len();
        let rows = count.next_multiple_of(WHOLE) * COLS;
        // A line more, so that a square's places do not meet in few places of the cache.
        let step = rows + COLS;
        let channels = panel * COLS..self.filters.oc.min((panel + 1) * COLS);
        with_scratch(PLACES * step, |sums| {
            for place in 0..PLACES {
                let a = &pixels.places[place * pixels.step..][..pixels.step];
                panel_sums(
                    count,
                    a,
                    pixels.row,
                    self.filters.place(panel, place),
                    &mut sums[place * step..][..rows],
                );
            }
            for i in 0..count {
                // SAFETY: panels and squares of the result are disjoint.
                unsafe {
                    let (square, sums) = (pixels.squares.start + i, &sums[i * COLS..]);
                    self.images.transform_sums(transform_small_sums, square, channels.clone(), sums, step);
                }
            }
        });
    }
}

/// The transformed and rounded pixels of some squares.
struct Pixels<'a> {
    /// `[place, square, channel]`.
    places: &'a [u16],
    /// Elements from one place's matrix to the next.
    step: usize,
    /// Elements from one square to the next.
    row: usize,
    squares: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::{RoundedFilters, winograd_rounded};
    use crate::consumed::KEPT;
    use crate::conv::{ConvShape, ConvWeight, End, conv};
    use crate::gemm::{noise, with_all_instructions};
    use kiln_types::{Activation, ConvOptions};

    fn shape(x: [usize; 4], out: usize, padding: [(usize, usize); 2]) -> ConvShape {
        let options = ConvOptions {
            stride: [1; 2].into(),
            padding: padding.into_iter().collect(),
            dilation: [1; 2].into(),
            groups: 1,
        };
        ConvShape::new(&x, &[out, x[1], 3, 3], &options)
    }

    /// Sides and channels that fill squares and panels, and not; several blocks; a depth that is summed in parts.
    fn cases() -> [ConvShape; 5] {
        [
            shape([1, 32, 8, 8], 32, [(1, 1); 2]),
            shape([2, 33, 7, 10], 35, [(1, 1), (0, 2)]),
            shape([1, 600, 3, 3], 40, [(1, 1); 2]),
            shape([1, 40, 27, 29], 70, [(0, 0); 2]),
            shape([1, 5, 5, 2], 3, [(2, 2); 2]),
        ]
    }

    /// Whole numbers of at most some size.
    fn whole(len: usize, seed: u32, size: f32) -> Vec<f32> {
        noise(len, seed).iter().map(|x| (x * size).round()).collect()
    }

    /// Of numbers that bf16 holds as they are when they are transformed, and of which f32 holds the sums.
    fn check(shape: &ConvShape, what: &str) {
        let x = whole(shape.batch * shape.in_channels * shape.windows.input_len(), 1, 16.0);
        let weight: Vec<f32> = whole(shape.weight_len(), 2, 4.0).iter().map(|x| 4.0 * x).collect();
        let bias = whole(shape.out_channels, 3, 100.0);
        let before = whole(shape.output_dims().iter().product(), 4, 100.0);
        let filters = RoundedFilters::new(shape, &weight, KEPT);
        let bounds = Some(Activation::Clamp { min: -300.0, max: 300.0 });
        let ends = [
            End { bias: None, activation: None, adds: false },
            End { bias: Some(&bias), activation: Some(Activation::Relu), adds: true },
            End { bias: Some(&bias), activation: bounds, adds: false },
        ];
        for end in ends {
            let (mut got, mut want) = (before.clone(), before.clone());
            conv(shape, &x, ConvWeight::Plain(&weight), end.bias, end.activation, end.adds, &mut want);
            winograd_rounded(shape, &x, &filters, &end, &mut got);
            let wrong = got.iter().zip(&want).position(|(got, want)| got != want);
            assert!(wrong.is_none(), "{what} {shape:?}, adds {}: element {wrong:?}", end.adds);
        }
    }

    #[test]
    fn it_is_the_convolution() {
        for shape in cases() {
            with_all_instructions(|level, instructions| {
                check(&shape, &format!("{level:?} {instructions:?}"))
            });
            // Shared out among threads.
            check(&shape, "here");
        }
    }

    #[test]
    fn pixels_and_filters_are_rounded_once() {
        with_all_instructions(|level, instructions| {
            let shape = shape([1, 64, 16, 16], 64, [(1, 1); 2]);
            let x = noise(shape.in_channels * shape.windows.input_len(), 1);
            let weight = noise(shape.weight_len(), 2);
            let mut want = vec![0.0; shape.output_dims().iter().product()];
            let (mut got, end) = (want.clone(), End { bias: None, activation: None, adds: false });
            conv(&shape, &x, ConvWeight::Plain(&weight), None, None, false, &mut want);
            winograd_rounded(&shape, &x, &RoundedFilters::new(&shape, &weight, KEPT), &end, &mut got);
            let square = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
            let apart: Vec<f32> = got.iter().zip(&want).map(|(got, want)| got - want).collect();
            // Each operand of a product is off by up to 2^-8 of the power of two below it, evenly: by 0.38 · 2^-8 of its mean square's root, both together by
            // 0.53 · 2^-8. Squares move results 5/3 times as far.
            let error = (square(&apart) / square(&want)).sqrt();
            let expected = 0.53 * 5.0 / 3.0 / 256.0;
            assert!(
                (0.7 * expected..1.3 * expected).contains(&error),
                "{level:?} {instructions:?}: {error}, {expected}"
            );
        });
    }
}
