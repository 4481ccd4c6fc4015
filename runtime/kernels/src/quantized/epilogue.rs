//! What becomes of a tile of sums while it is still in the first-level cache.

use super::tile::{COLS, ROWS};
use crate::bounds::Bounds;
use crate::math::{Map, map_rows};
use crate::simd::dispatched;
use crate::threads::SharedMut;
use core::ops::{Range, RangeInclusive};
use kiln_types::Activation;

/// What sums stand for, `activation((sum + integer_bias) · scale + bias + residual)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// One number for all columns, or one each.
    pub scale: &'a [f32],
    /// One a column; the sums wrap.
    pub integer_bias: Option<&'a [i32]>,
    /// One a column.
    pub bias: Option<&'a [f32]>,
    /// Laid out like the result.
    pub residual: Option<&'a [f32]>,
    /// Applied last.
    pub activation: Option<Activation>,
}

/// Where a product goes, and as what.
#[derive(Debug)]
pub enum Output<'a> {
    /// The sums.
    Sums(&'a mut [i32]),
    /// The numbers that they stand for.
    Numbers(&'a mut [f32], Epilogue<'a>),
    /// The integers that stand for these: rounded, halves to even, plus a zero point, as far as a byte has them; 0 of NaN.
    U8(&'a mut [u8], Epilogue<'a>, i32),
    /// Likewise.
    I8(&'a mut [i8], Epilogue<'a>, i32),
}

/// [`Output`], for threads.
pub(super) struct Out<'a> {
    to: To<'a>,
    epilogue: Epilogue<'a>,
}

enum To<'a> {
    Sums(SharedMut<'a, i32>),
    Numbers(SharedMut<'a, f32>),
    /// Bytes of either kind, with their zero point.
    Bytes(SharedMut<'a, u8>, Steps),
}

/// The integers that a byte has, less the zero point.
#[derive(Clone, Copy)]
struct Steps {
    zero: u8,
    /// What stands for NaN.
    of_nan: f32,
    low: f32,
    high: f32,
}

impl Steps {
    /// # Panics
    /// When the zero point is none of the bytes.
    fn new(zero: i32, bytes: RangeInclusive<i32>) -> Self {
        assert!(bytes.contains(&zero), "no byte is the zero point {zero}");
        let steps = |byte: i32| (byte - zero) as f32;
        Self { zero: zero as u8, of_nan: steps(0), low: steps(*bytes.start()), high: steps(*bytes.end()) }
    }

    /// Those of numbers that are bounded before.
    fn within(self, low: f32, high: f32) -> Self {
        let byte = |bound: f32| bound.max(self.low).min(self.high);
        Self { low: byte(low), high: byte(high), ..self }
    }

    /// The byte that stands for a number.
    #[inline(always)]
    fn byte(self, y: f32) -> u8 {
        /// The sum of a number between ±2^22 and this has the number in its lower bits, rounded to an integer, halves to even.
        const ROUNDING: f32 = 12_582_912.0;
        // Comparisons in this order are one instruction each.
        let bounded = if y > self.low { y } else { self.low };
        let bounded = if bounded < self.high { bounded } else { self.high };
        let y = if y.is_nan() { self.of_nan } else { bounded };
        ((y + ROUNDING).to_bits() as u8).wrapping_add(self.zero)
    }
}

impl<'a> Out<'a> {
    /// Of `elements` in rows of `cols`.
    ///
    /// # Panics
    /// When a slice has another size, or the zero point is no byte.
    pub fn new(output: Output<'a>, elements: usize, cols: usize) -> Self {
        let (to, epilogue, len) = match output {
            Output::Sums(to) => {
                let len = to.len();
                (To::Sums(SharedMut::new(to)), None, len)
            }
            Output::Numbers(to, epilogue) => {
                let len = to.len();
                (To::Numbers(SharedMut::new(to)), Some(epilogue), len)
            }
            Output::U8(to, epilogue, zero) => {
                let len = to.len();
                (To::Bytes(SharedMut::new(to), Steps::new(zero, 0..=255)), Some(epilogue), len)
            }
            Output::I8(to, epilogue, zero) => {
                let (len, to) = (to.len(), bytemuck::cast_slice_mut(to));
                (To::Bytes(SharedMut::new(to), Steps::new(zero, -128..=127)), Some(epilogue), len)
            }
        };
        assert_eq!(len, elements, "the result's size");
        if let Some(epilogue) = epilogue {
            let Epilogue { scale, integer_bias, bias, residual, activation: _ } = epilogue;
            assert!(scale.len() == 1 || scale.len() == cols, "{} scales for {cols} columns", scale.len());
            assert!(integer_bias.is_none_or(|bias| bias.len() == cols), "one integer bias a column");
            assert!(bias.is_none_or(|bias| bias.len() == cols), "one bias a column");
            assert!(residual.is_none_or(|residual| residual.len() == elements), "the residual's size");
        }
        Self { to, epilogue: epilogue.unwrap_or_default() }
    }

    /// What `count` columns from one on need.
    pub fn columns(&self, first: usize, count: usize) -> Columns {
        let mut columns = Columns { count, base: [0; COLS], scale: [0.0; COLS], bias: [0.0; COLS] };
        let Epilogue { scale, integer_bias, bias, .. } = self.epilogue;
        match *scale {
            [] => {}
            [scale] => columns.scale[..count].fill(scale),
            _ => columns.scale[..count].copy_from_slice(&scale[first..first + count]),
        }
        if let Some(bias) = integer_bias {
            columns.base[..count].copy_from_slice(&bias[first..first + count]);
        }
        match bias {
            Some(bias) => columns.bias[..count].copy_from_slice(&bias[first..first + count]),
            // Which changes no number, not even the sign of a zero.
            None => columns.bias.fill(-0.0),
        }
        columns
    }

    /// Writes rows of sums, each a panel wide, of which the first is at `start` and each `step` behind the last.
    ///
    /// # Safety
    /// Nobody else reads or writes this part of the output meanwhile.
    pub unsafe fn write(&self, sums: &mut [[i32; COLS]], columns: &Columns, start: usize, step: usize) {
        for (at, sums) in sums.chunks_mut(ROWS).enumerate() {
            let place =
                Place { start: start + at * ROWS * step, step, rows: sums.len(), cols: columns.count };
            // SAFETY: the caller's promise. The kernels write as many rows as there are sums.
            unsafe {
                match &self.to {
                    To::Sums(to) => place.fill(to, |to, step| add(sums, &columns.base, to, step)),
                    To::Numbers(to) => {
                        place.fill(to, |to, step| self.numbers(sums, columns, &place, to, step));
                    }
                    To::Bytes(to, steps) => {
                        let Bounds { low, high, rest } = Bounds::of(self.epilogue.activation);
                        if self.epilogue.residual.is_none() && rest.is_none() {
                            let steps = steps.within(low, high);
                            place.fill(to, |to, step| bytes(sums, columns, steps, to, step));
                            continue;
                        }
                        let mut numbers = [[0.0; COLS]; ROWS];
                        self.numbers(sums, columns, &place, numbers.as_flattened_mut().as_mut_ptr(), COLS);
                        let numbers = &numbers[..place.rows];
                        place.fill(to, |to, step| round(numbers, *steps, to, step));
                    }
                }
            }
        }
    }

    /// The numbers that sums stand for, whose rows are `step` apart.
    ///
    /// # Safety
    /// Rows of a panel from `to` on may be written.
    unsafe fn numbers(
        &self,
        sums: &[[i32; COLS]],
        columns: &Columns,
        place: &Place,
        to: *mut f32,
        step: usize,
    ) {
        let Bounds { low, high, rest } = Bounds::of(self.epilogue.activation);
        // SAFETY: the caller's promise.
        unsafe {
            match self.epilogue.residual {
                Some(residual) => {
                    let mut added = [[0.0; COLS]; ROWS];
                    for (row, added) in added.iter_mut().enumerate().take(place.rows) {
                        added[..place.cols].copy_from_slice(&residual[place.row(row)]);
                    }
                    numbers(sums, columns, Some(&added), low, high, to, step);
                }
                None => numbers(sums, columns, None, low, high, to, step),
            }
            if let Some(activation) = rest {
                map_rows(Map::Activation(activation), to, step, place.rows, COLS);
            }
        }
    }
}

/// Where a part of a result is.
struct Place {
    start: usize,
    /// From one row to the next.
    step: usize,
    rows: usize,
    cols: usize,
}

impl Place {
    fn row(&self, n: usize) -> Range<usize> {
        let start = self.start + n * self.step;
        start..start + self.cols
    }

    /// Has the rows written, each a panel wide: at a pointer, so far apart. Rows that are less are written elsewhere first.
    ///
    /// # Safety
    /// Nobody else reads or writes this part of the slice meanwhile. `write` writes no more than these rows.
    unsafe fn fill<T: Copy + Default>(&self, to: &SharedMut<'_, T>, write: impl FnOnce(*mut T, usize)) {
        let last = self.row(self.rows - 1);
        assert!(last.end <= to.len() && self.rows <= ROWS, "a part outside of the result");
        if self.cols == COLS {
            // SAFETY: it was checked that the rows are inside.
            return write(unsafe { to.ptr(self.start) }, self.step);
        }
        let mut whole = [[T::default(); COLS]; ROWS];
        write(whole.as_flattened_mut().as_mut_ptr(), COLS);
        for (n, row) in whole.iter().enumerate().take(self.rows) {
            // SAFETY: the caller's promise.
            unsafe { to.slice(self.row(n)) }.copy_from_slice(&row[..self.cols]);
        }
    }
}

/// What is done with the columns of a panel; what is behind the last is anything.
pub(super) struct Columns {
    pub count: usize,
    /// Added to the sums.
    pub base: [i32; COLS],
    scale: [f32; COLS],
    bias: [f32; COLS],
}

impl Columns {
    #[inline(always)]
    fn number(&self, sums: &[i32; COLS], col: usize) -> f32 {
        sums[col].wrapping_add(self.base[col]) as f32 * self.scale[col] + self.bias[col]
    }
}

dispatched! {
    /// Rows of sums with what is added to the columns.
    ///
    /// # Safety
    /// As many rows of a panel, `step` apart, may be written from `to` on.
    unsafe fn add<S>(_s, sums: &[[i32; COLS]], base: &[i32; COLS], to: *mut i32, step: usize) {
        for (row, sums) in sums.iter().enumerate() {
            let to = &mut *to.add(row * step).cast::<[i32; COLS]>();
            for col in 0..COLS {
                to[col] = sums[col].wrapping_add(base[col]);
            }
        }
    }
}

dispatched! {
    /// Numbers within bounds.
    ///
    /// # Safety
    /// As for [`add`].
    unsafe fn numbers<S>(
        _s,
        sums: &[[i32; COLS]],
        columns: &Columns,
        added: Option<&[[f32; COLS]; ROWS]>,
        low: f32,
        high: f32,
        to: *mut f32,
        step: usize,
    ) {
        let bounded = |y: f32| if y < low { low } else if y > high { high } else { y };
        for (row, sums) in sums.iter().enumerate() {
            let to = &mut *to.add(row * step).cast::<[f32; COLS]>();
            match added {
                Some(added) => {
                    for col in 0..COLS {
                        to[col] = bounded(columns.number(sums, col) + added[row][col]);
                    }
                }
                None => {
                    for col in 0..COLS {
                        to[col] = bounded(columns.number(sums, col));
                    }
                }
            }
        }
    }
}

dispatched! {
    /// The bytes that stand for numbers.
    ///
    /// # Safety
    /// As for [`add`].
    unsafe fn round<S>(_s, numbers: &[[f32; COLS]], steps: Steps, to: *mut u8, step: usize) {
        for (row, numbers) in numbers.iter().enumerate() {
            let to = &mut *to.add(row * step).cast::<[u8; COLS]>();
            for col in 0..COLS {
                to[col] = steps.byte(numbers[col]);
            }
        }
    }
}

dispatched! {
    /// The bytes that stand for the numbers that sums stand for.
    ///
    /// # Safety
    /// As for [`add`].
    unsafe fn bytes<S>(_s, sums: &[[i32; COLS]], columns: &Columns, steps: Steps, to: *mut u8, step: usize) {
        for (row, sums) in sums.iter().enumerate() {
            let to = &mut *to.add(row * step).cast::<[u8; COLS]>();
            for col in 0..COLS {
                to[col] = steps.byte(columns.number(sums, col));
            }
        }
    }
}
