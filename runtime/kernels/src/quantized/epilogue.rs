//! What becomes of a tile of sums while it is still in the first-level cache.

use super::tile::{COLS, ROWS};
use crate::math::{Map, map_slice};
use crate::simd::dispatched;
use crate::threads::SharedMut;
use core::ops::RangeInclusive;
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
        let count = columns.count;
        let place = |row: usize| start + row * step..start + row * step + count;
        if let To::Sums(to) = &self.to {
            // SAFETY: a slice.
            unsafe { add(sums, &columns.base) };
            for (row, sums) in sums.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { to.slice(place(row)) }.copy_from_slice(&sums[..count]);
            }
            return;
        }
        let mut space = [[0.0; COLS]; ROWS];
        for (at, sums) in sums.chunks(ROWS).enumerate() {
            let (first, numbers) = (at * ROWS, &mut space[..sums.len()]);
            if let Some(residual) = self.epilogue.residual {
                for (row, to) in numbers.iter_mut().enumerate() {
                    to[..count].copy_from_slice(&residual[place(first + row)]);
                }
            }
            self.numbers(sums, columns, numbers);
            match &self.to {
                To::Sums(_) => {}
                To::Numbers(to) => {
                    for (row, numbers) in numbers.iter().enumerate() {
                        // SAFETY: the caller's promise.
                        unsafe { to.slice(place(first + row)) }.copy_from_slice(&numbers[..count]);
                    }
                }
                To::Bytes(to, steps) => {
                    let mut bytes = [[0; COLS]; ROWS];
                    let bytes = &mut bytes[..numbers.len()];
                    // SAFETY: slices.
                    unsafe { round(numbers, *steps, bytes) };
                    for (row, bytes) in bytes.iter().enumerate() {
                        // SAFETY: the caller's promise.
                        unsafe { to.slice(place(first + row)) }.copy_from_slice(&bytes[..count]);
                    }
                }
            }
        }
    }

    /// The numbers that sums stand for; in their place is the residual, if there is one.
    fn numbers(&self, sums: &[[i32; COLS]], columns: &Columns, to: &mut [[f32; COLS]]) {
        let (low, high, rest) = match self.epilogue.activation {
            Some(Activation::Relu) => (0.0, f32::INFINITY, None),
            Some(Activation::Clamp { min, max }) => (min as f32, max as f32, None),
            rest => (f32::NEG_INFINITY, f32::INFINITY, rest),
        };
        let adds = self.epilogue.residual.is_some();
        // SAFETY: slices.
        unsafe { numbers(sums, columns, adds, low, high, to) };
        if let Some(activation) = rest {
            let to = to.as_flattened_mut();
            // SAFETY: the slice, in place.
            unsafe { map_slice(Map::Activation(activation), to.as_ptr(), to.as_mut_ptr(), to.len()) };
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

dispatched! {
    /// Adds to each row.
    unsafe fn add<S>(_s, sums: &mut [[i32; COLS]], base: &[i32; COLS]) {
        for row in sums {
            for (sum, &base) in row.iter_mut().zip(base) {
                *sum = sum.wrapping_add(base);
            }
        }
    }
}

dispatched! {
    /// Numbers within bounds.
    unsafe fn numbers<S>(
        _s,
        sums: &[[i32; COLS]],
        columns: &Columns,
        adds: bool,
        low: f32,
        high: f32,
        to: &mut [[f32; COLS]],
    ) {
        let bounded = |y: f32| if y < low { low } else if y > high { high } else { y };
        for (sums, to) in sums.iter().zip(to) {
            for col in 0..COLS {
                let sum = sums[col].wrapping_add(columns.base[col]);
                let y = sum as f32 * columns.scale[col] + columns.bias[col];
                to[col] = bounded(if adds { y + to[col] } else { y });
            }
        }
    }
}

/// The sum of a number between ±2^22 and this has the number in its lower bits, rounded to an integer, halves to even.
const ROUNDING: f32 = 12_582_912.0;

dispatched! {
    /// The bytes that stand for numbers.
    unsafe fn round<S>(_s, numbers: &[[f32; COLS]], steps: Steps, to: &mut [[u8; COLS]]) {
        let Steps { zero, of_nan, low, high } = steps;
        for (numbers, to) in numbers.iter().zip(to) {
            for (&y, to) in numbers.iter().zip(to) {
                let y = if y.is_nan() { of_nan } else { y.max(low).min(high) };
                *to = ((y + ROUNDING).to_bits() as u8).wrapping_add(zero);
            }
        }
    }
}
