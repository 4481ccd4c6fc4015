//! Conversions that compilers make slow code of.

use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};

/// Elements that a thread converts at least.
const BLOCK: usize = 1 << 14;

/// Floats as unsigned bytes, as `as u8` converts: without what is behind the point, the least and the greatest where there is none
/// so small or large, 0 for NaN.
///
/// # Panics
/// When the lengths differ.
pub fn floats_to_u8(from: &[f32], to: &mut [u8]) {
    floats_to_bytes(from, to, [0.0, 255.0]);
}

/// Floats as signed bytes, as `as i8` converts.
///
/// # Panics
/// When the lengths differ.
pub fn floats_to_i8(from: &[f32], to: &mut [i8]) {
    floats_to_bytes(from, bytemuck::cast_slice_mut(to), [-128.0, 127.0]);
}

fn floats_to_bytes(from: &[f32], to: &mut [u8], [low, high]: [f32; 2]) {
    assert_eq!(from.len(), to.len(), "as many bytes as floats");
    let len = from.len();
    let to = SharedMut::new(to);
    parallel_for(len.div_ceil(BLOCK), BLOCK / 16, |range| {
        let (first, end) = (range.start * BLOCK, len.min(range.end * BLOCK));
        // SAFETY: both have these elements, which are this thread's alone; the bounds are numbers that `i32` has.
        unsafe { convert(from[first..end].as_ptr(), to.ptr(first), end - first, low, high) };
    });
}

dispatched! {
    /// Converts `n` floats to bytes after bounding them.
    ///
    /// # Safety
    /// `from` holds `n` elements, as does `to`, which nobody else reads or writes meanwhile. An `i32` has both bounds.
    unsafe fn convert<S>(_s, from: *const f32, to: *mut u8, n: usize, low: f32, high: f32) {
        for i in 0..n {
            let x = *from.add(i);
            let x = if x.is_nan() { 0.0 } else { x.max(low).min(high) };
            // Not by `as`, whose checks keep it from vectors.
            *to.add(i) = x.to_int_unchecked::<i32>() as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::forced::at_each_level;
    use alloc::{vec, vec::Vec};

    #[test]
    fn bytes_are_those_of_as() {
        let ends =
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -0.0, 1e-40, 255.0, 256.0];
        let around = (-600..600).map(|n| n as f32 * 0.5 - 0.3);
        let from: Vec<f32> = ends.into_iter().chain(around).collect();
        at_each_level(|level| {
            for n in [0, 1, 7, from.len()] {
                let (mut unsigned, mut signed) = (vec![1_u8; n], vec![1_i8; n]);
                floats_to_u8(&from[..n], &mut unsigned);
                floats_to_i8(&from[..n], &mut signed);
                let from = &from[..n];
                assert_eq!(unsigned, from.iter().map(|&x| x as u8).collect::<Vec<_>>(), "{level:?}");
                assert_eq!(signed, from.iter().map(|&x| x as i8).collect::<Vec<_>>(), "{level:?}");
            }
        });
    }
}
