//! How much slices have to hold. What wraps passes any comparison, so that all of it is checked: memory cannot hold what wraps.

use kiln_types::Shape;

/// The elements of dims.
///
/// # Panics
/// When they are more than memory can have.
#[inline]
#[track_caller]
pub(crate) fn elements(dims: &[usize]) -> usize {
    match Shape::count(dims) {
        Some(elements) => elements,
        None => panic!("{dims:?} are more elements than memory can have"),
    }
}

/// Elements from the first of `dims` places, which are `strides` apart, up to the last and with it; none where there is no place.
///
/// # Panics
/// When they are more than memory can have.
#[inline]
#[track_caller]
pub(crate) fn reach<const N: usize>(dims: [usize; N], strides: [usize; N]) -> usize {
    if dims.contains(&0) {
        return 0;
    }
    let last = dims
        .iter()
        .zip(strides)
        .try_fold(0_usize, |last, (dim, stride)| last.checked_add((dim - 1).checked_mul(stride)?));
    match last.and_then(|last| last.checked_add(1)).filter(|&elements| elements <= isize::MAX as usize) {
        Some(elements) => elements,
        None => panic!("{dims:?} places, {strides:?} apart, reach farther than memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::{elements, reach};
    use std::panic::catch_unwind;

    #[test]
    fn sizes_do_not_wrap() {
        assert_eq!([elements(&[2, 3]), elements(&[usize::MAX / 2, 0]), elements(&[])], [6, 0, 1]);
        assert_eq!([reach([2, 3], [10, 1]), reach([2, 0], [10, 1]), reach([1 << 60], [0])], [13, 0, 1]);
        assert!(catch_unwind(|| elements(&[1 << 33, 1 << 31])).is_err());
        assert!(catch_unwind(|| elements(&[1 << 33, 1 << 31, 0])).is_err());
        assert!(catch_unwind(|| reach([4], [usize::MAX / 3 + 1])).is_err());
        assert!(catch_unwind(|| reach([2, 2], [isize::MAX as usize, 1])).is_err());
    }
}
