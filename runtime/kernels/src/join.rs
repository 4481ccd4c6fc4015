//! Joins of rows: what several tensors hold side by side, in one pass. With a pass for each tensor, an output that is larger than the caches would be
//! fetched and written back each time.

use crate::simd::dispatched;
use crate::size::{elements, reach};
use crate::threads::{SharedMut, parallel_for};
use bytemuck::Pod;
use core::ops::Range;
use kiln_types::InlineVec;

/// Rows of one length.
#[derive(Clone, Copy, Debug)]
pub struct JoinedRows<'a, T> {
    /// The elements, from the first row on.
    pub data: &'a [T],
    /// Elements from one row to the next.
    pub step: usize,
    /// Elements of a row.
    pub len: usize,
}

/// Where rows are, for threads.
struct Place {
    data: *const u8,
    /// In bytes.
    step: usize,
    /// In bytes.
    len: usize,
}

// SAFETY: read only, and only while the slice it was made from is borrowed.
unsafe impl Sync for Place {}

/// Writes `rows` rows, each made of one row of each source, in their order.
///
/// # Panics
/// When a source does not hold its rows, or `out` is not as large as all of them.
pub fn join_rows<T: Pod + Send + Sync>(rows: usize, sources: &[JoinedRows<'_, T>], out: &mut [T]) {
    let size = size_of::<T>();
    let width = sources.iter().fold(0, |width: usize, source| width.saturating_add(source.len));
    assert_eq!(out.len(), elements(&[rows, width]), "size of the joined rows");
    for JoinedRows { data, step, len } in sources {
        let end = if *len > 0 { reach([rows, *len], [*step, 1]) } else { 0 };
        assert!(end <= data.len(), "{} elements do not hold {rows} rows of {len}, {step} apart", data.len());
    }
    let place = |source: &JoinedRows<'_, T>| Place {
        data: source.data.as_ptr().cast(),
        step: source.step * size,
        len: source.len * size,
    };
    let places: InlineVec<Place> = sources.iter().map(place).collect();
    let out: SharedMut<'_, u8> = SharedMut::new(bytemuck::cast_slice_mut(out));
    let work = width * size / 32 + 2 * sources.len() + 1;
    parallel_for(rows, work, |range| {
        // SAFETY: sources hold all rows, as was checked; each row of the output is written once.
        unsafe {
            let to = out.ptr(range.start * width * size);
            if size == size_of::<f32>() && align_of::<T>() == align_of::<f32>() {
                join_f32(&places, range, to)
            } else {
                join_bytes(&places, range, to)
            }
        }
    });
}

/// # Safety
/// Places hold the rows of the range, the output has room for as many.
unsafe fn join_bytes(places: &[Place], rows: Range<usize>, mut to: *mut u8) {
    for row in rows {
        for place in places {
            // SAFETY: the caller's promise.
            unsafe {
                core::ptr::copy_nonoverlapping(place.data.add(row * place.step), to, place.len);
                to = to.add(place.len);
            }
        }
    }
}

dispatched! {
    /// [`join_bytes`] of elements of four bytes, which travel as f32, whose bits vectors leave alone.
    ///
    /// # Safety
    /// As for [`join_bytes`]; places and output are aligned to four bytes, and so are steps and lengths.
    unsafe fn join_f32<S>(s, places: &[Place], rows: Range<usize>, to: *mut u8) {
        let mut to = to.cast::<f32>();
        for row in rows {
            for place in places {
                let (from, n) = (place.data.add(row * place.step).cast::<f32>(), place.len / size_of::<f32>());
                let mut i = 0;
                while i + S::LANES <= n {
                    s.store(to.add(i), s.load(from.add(i)));
                    i += S::LANES;
                }
                if i < n {
                    s.store_first(to.add(i), n - i, s.load_first(from.add(i), n - i));
                }
                to = to.add(n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Pod + Send + Sync + PartialEq + core::fmt::Debug>(of: impl Fn(usize) -> T) {
        for (rows, sources) in [
            (1, &[(3, 3), (5, 4)][..]),
            (700, &[(8, 8), (40, 24), (1, 1), (0, 0)]),
            (57, &[(58, 58), (116, 58)]),
            (30, &[(17, 33), (0, 5)]),
            (0, &[(4, 4)]),
        ] {
            let data: Vec<T> = (0..100_000).map(&of).collect();
            // Steps and lengths of rows; a step may be less than the length.
            let sources: Vec<_> = sources
                .iter()
                .enumerate()
                .map(|(i, &(step, len))| JoinedRows { data: &data[100 * i..], step, len })
                .collect();
            let row = |row| {
                sources
                    .iter()
                    .flat_map(move |source| source.data[row * source.step..][..source.len].iter().copied())
            };
            let want: Vec<T> = (0..rows).flat_map(row).collect();
            let mut got = vec![of(0); want.len()];
            join_rows(rows, &sources, &mut got);
            assert!(got == want, "{rows} rows");
        }
    }

    #[test]
    fn rows_are_joined() {
        let run = || {
            check(|i| i as u8);
            check(|i| i as f32);
            check(|i| i as i64);
        };
        crate::simd::forced::at_each_level(|_| run());
        run();
    }

    #[test]
    #[should_panic(expected = "3 elements do not hold 2 rows of 2, 2 apart")]
    fn rows_beyond_a_source_are_refused() {
        join_rows(2, &[JoinedRows { data: &[0u8; 3], step: 2, len: 2 }], &mut [0; 4]);
    }
}
