//! Where a kernel reads and where it writes.

use crate::threads::SharedMut;

/// The data of a kernel that yields as many elements as it takes: overwritten, or read here and written there.
#[derive(Debug)]
pub enum InOut<'a> {
    /// Results replace the operands.
    InPlace(&'a mut [f32]),
    /// Results go elsewhere; both slices have one length.
    Copy {
        /// The operands.
        from: &'a [f32],
        /// The results.
        to: &'a mut [f32],
    },
}

impl<'a> InOut<'a> {
    /// Number of elements.
    ///
    /// # Panics
    /// When source and destination differ in length.
    #[allow(clippy::len_without_is_empty, reason = "a count to check against, not a container")]
    pub fn len(&self) -> usize {
        match self {
            InOut::InPlace(x) => x.len(),
            InOut::Copy { from, to } => {
                assert_eq!(from.len(), to.len(), "source and destination differ in length");
                to.len()
            }
        }
    }

    /// Source and destination, equal or apart, for threads.
    pub(crate) fn into_shared(self) -> (Shared<'a>, SharedMut<'a, f32>) {
        self.len();
        match self {
            InOut::InPlace(x) => {
                let to = SharedMut::new(x);
                // Reading goes through the pointer that writes, so that neither invalidates the other.
                // SAFETY: 0 lies inside or right behind.
                let data = unsafe { to.ptr(0) }.cast_const();
                (Shared { data, lifetime: core::marker::PhantomData }, to)
            }
            InOut::Copy { from, to } => (Shared::new(from), SharedMut::new(to)),
        }
    }
}

/// Elements that several threads read, perhaps while others of them are overwritten.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    data: *const f32,
    lifetime: core::marker::PhantomData<&'a [f32]>,
}

// SAFETY: it is read-only; that no element is read while it is overwritten is the promise of those who use `ptr`.
unsafe impl Sync for Shared<'_> {}
// SAFETY: as for `Sync`.
unsafe impl Send for Shared<'_> {}

impl Shared<'_> {
    fn new(data: &[f32]) -> Self {
        Self { data: data.as_ptr(), lifetime: core::marker::PhantomData }
    }

    /// A pointer to an element.
    ///
    /// # Safety
    /// The element lies inside of the slice, or right behind it.
    pub unsafe fn ptr(&self, at: usize) -> *const f32 {
        // SAFETY: the caller's promise.
        unsafe { self.data.add(at) }
    }
}

impl<'a> From<&'a mut [f32]> for InOut<'a> {
    fn from(x: &'a mut [f32]) -> Self {
        InOut::InPlace(x)
    }
}

impl<'a> From<(&'a [f32], &'a mut [f32])> for InOut<'a> {
    fn from((from, to): (&'a [f32], &'a mut [f32])) -> Self {
        InOut::Copy { from, to }
    }
}
