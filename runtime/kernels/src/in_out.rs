//! Where a kernel reads and where it writes.

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

    /// The destination, into which the operands have been copied if they were elsewhere.
    pub(crate) fn into_place(self) -> &'a mut [f32] {
        match self {
            InOut::InPlace(x) => x,
            InOut::Copy { from, to } => {
                to.copy_from_slice(from);
                to
            }
        }
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
