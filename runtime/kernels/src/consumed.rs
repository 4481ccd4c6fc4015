//! Weights that are packed part by part, so that the memory of what is packed can go.

use crate::threads::parallel_for;
use core::ops::Range;

/// Is told which elements of a weight are not read any more while it is packed. Where they can be fetched again their memory may go at once: a weight
/// and its packed form then never lie whole beside each other.
pub type Consumed<'a> = &'a dyn Fn(Range<usize>);

/// For elements whose memory stays.
pub(crate) const KEPT: Consumed<'static> = &|_| {};

/// Elements of a part: 4 MiB of f32, which are worth a loop on several threads.
const PART: usize = 1 << 20;

/// [`parallel_for`], one part of the items after another: `consumed` gets each that is done. An item reads so many elements.
pub(crate) fn in_parts(
    len: usize,
    elements: usize,
    work: usize,
    body: impl Fn(Range<usize>) + Sync,
    consumed: impl Fn(Range<usize>),
) {
    let step = (PART / elements.max(1)).max(1);
    for start in (0..len).step_by(step) {
        let part = start..len.min(start + step);
        parallel_for(part.len(), work, |items| body(start + items.start..start + items.end));
        consumed(part);
    }
}

#[cfg(test)]
mod tests {
    use super::{PART, in_parts};
    use alloc::vec::Vec;
    use core::cell::RefCell;
    use core::ops::Range;
    use core::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn parts_are_consumed_in_order_once_they_are_done() {
        for elements in [0, 1, PART / 4, PART, 2 * PART] {
            let done: [AtomicUsize; 10] = Default::default();
            let parts = RefCell::new(Vec::new());
            let body = |items: Range<usize>| {
                items.for_each(|i| assert_eq!(done[i].fetch_add(1, Ordering::Relaxed), 0));
            };
            in_parts(10, elements, 10_000, body, |part| {
                assert!(done[..part.end].iter().all(|done| done.load(Ordering::Relaxed) == 1));
                assert!(part.len() == 1 || part.len() * elements <= PART);
                parts.borrow_mut().push(part);
            });
            let parts = parts.into_inner();
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, 10));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}
