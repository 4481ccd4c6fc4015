//! What a thread keeps for its next operations: its own, so that it costs no lock.

use alloc::vec::Vec;
use core::cell::RefCell;
use std::thread::LocalKey;

/// Most items that a thread keeps: more than a network has tensors at a time.
const MOST: usize = 4096;

/// Items that wait to be used again.
pub(crate) struct Kept<T>(RefCell<Vec<T>>);

impl<T> Kept<T> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }
}

/// An item of this thread's.
pub(crate) fn pop<T>(kept: &'static LocalKey<Kept<T>>) -> Option<T> {
    kept.try_with(|kept| kept.0.try_borrow_mut().ok()?.pop()).ok().flatten()
}

/// Leaves an item to this thread.
pub(crate) fn push<T>(kept: &'static LocalKey<Kept<T>>, item: T) {
    // A thread that ends keeps nothing any more.
    let _ = kept.try_with(|kept| {
        if let Ok(mut kept) = kept.0.try_borrow_mut()
            && kept.len() < MOST
        {
            kept.push(item);
        }
    });
}
