//! Images with their padding around them, so that windows need no bounds.

use crate::simd::dispatched;

/// Elements behind a padded image that vectors may read.
pub(super) const SLACK: usize = 64;

/// The size of a padded image.
pub(super) fn padded_size(size: [usize; 3], padding: [(usize, usize); 3]) -> [usize; 3] {
    core::array::from_fn(|i| size[i] + padding[i].0 + padding[i].1)
}

/// Copies one channel into its padded place, with zeros around it.
///
/// With `halves`, each row is written as its even elements followed by its odd ones, `(width + 1) / 2` places each.
pub(super) fn pad_channel(
    from: &[f32],
    size: [usize; 3],
    padding: [(usize, usize); 3],
    halves: bool,
    to: &mut [f32],
) {
    let padded = padded_size(size, padding);
    let width = if halves { padded[2].next_multiple_of(2) } else { padded[2] };
    assert_eq!(to.len(), padded[0] * padded[1] * width, "room for the padded channel");
    assert_eq!(from.len(), size.iter().product::<usize>(), "size of the channel");
    // SAFETY: both slices hold what the sizes say.
    unsafe { pad(from, size, padding, padded[1], width, halves, to) };
}

dispatched! {
    /// The loops of [`pad_channel`].
    ///
    /// # Safety
    /// `from` has `size`; `to` has rows of `width`, `height` a slice, for the padded size.
    unsafe fn pad<S>(
        s,
        from: &[f32],
        size: [usize; 3],
        padding: [(usize, usize); 3],
        height: usize,
        width: usize,
        halves: bool,
        to: &mut [f32],
    ) {
        let [depth, rows, cols] = size;
        if padding != [(0, 0); 3] || width != cols {
            let zero = s.splat(0.0);
            for i in (0..to.len()).step_by(S::LANES) {
                s.store_up_to(to.as_mut_ptr().add(i), to.len() - i, zero);
            }
        }
        for (z, y) in (0..depth * rows).map(|i| (i / rows, i % rows)) {
            let row = from.as_ptr().add((z * rows + y) * cols);
            let to = to.as_mut_ptr().add(((z + padding[0].0) * height + y + padding[1].0) * width);
            let first = padding[2].0;
            if !halves {
                for x in (0..cols).step_by(S::LANES) {
                    let count = S::LANES.min(cols - x);
                    s.store_up_to(to.add(first + x), count, s.load_up_to(row.add(x), count));
                }
                continue;
            }
            // Element x goes to place (first + x) / 2 of the half (first + x) % 2.
            let place = |x: usize| to.add((first + x) / 2 + (first + x) % 2 * (width / 2));
            let mut x = 0;
            while x + 2 * S::LANES < cols {
                s.store(place(x), s.load_even(row.add(x)));
                s.store(place(x + 1), s.load_even(row.add(x + 1)));
                x += 2 * S::LANES;
            }
            let rest = cols - x;
            let mut last = [0.0; 33];
            core::ptr::copy_nonoverlapping(row.add(x), last.as_mut_ptr(), rest);
            s.store_up_to(place(x), rest.div_ceil(2), s.load_even(last.as_ptr()));
            if rest > 1 {
                s.store_up_to(place(x + 1), rest / 2, s.load_even(last.as_ptr().add(1)));
            }
        }
    }
}
