//! Layouts of tensors behind a pointer.
//!
//! A tensor is handed from function to function, and a layout is long: reading in one piece what was just written in several makes the
//! processor wait, longer than a small operation computes.

#[cfg(feature = "std")]
use crate::kept::{self, Kept};
use alloc::boxed::Box;
use core::fmt;
use core::ops::Deref;
use kiln_tensor::Shape;
use kiln_tensor::backend::{Layout, row_major_into};

/// A layout that is moved as a pointer, with what every operation asks of it. The memory of one that is dropped waits for another.
pub(crate) struct View(
    /// There until it is dropped.
    Option<Box<Known>>,
);

struct Known {
    layout: Layout,
    /// Number of elements.
    len: usize,
    /// See [`Layout::is_contiguous`].
    contiguous: bool,
}

// Memory of dropped layouts.
#[cfg(feature = "std")]
std::thread_local!(static FREE: Kept<Box<Known>> = const { Kept::new() });

impl View {
    /// Some layout, to be written.
    fn any() -> Box<Known> {
        #[cfg(feature = "std")]
        if let Some(known) = kept::pop(&FREE) {
            return known;
        }
        Box::new(Known { layout: Layout::contiguous(Shape::default()), len: 1, contiguous: true })
    }

    /// Row-major from offset 0.
    pub(crate) fn contiguous(shape: Shape) -> Self {
        let mut known = Self::any();
        known.len = shape.num_elements();
        known.contiguous = true;
        row_major_into(&shape.dims, &mut known.layout.strides);
        known.layout.shape = shape;
        known.layout.offset = 0;
        Self(Some(known))
    }

    /// Changes the layout.
    pub(crate) fn change(&mut self, change: impl FnOnce(Layout) -> Layout) {
        let Some(known) = &mut self.0 else { unreachable!("only `drop` takes the layout") };
        let layout = change(core::mem::replace(&mut known.layout, Layout::contiguous(Shape::default())));
        **known = Known { len: layout.len(), contiguous: layout.is_contiguous(), layout };
    }

    fn known(&self) -> &Known {
        match &self.0 {
            Some(known) => known,
            None => unreachable!("only `drop` takes the layout"),
        }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.known().len
    }

    /// Whether there are no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements stand in row-major order without gaps (from any offset).
    pub(crate) fn is_contiguous(&self) -> bool {
        self.known().contiguous
    }
}

impl Deref for View {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        &self.known().layout
    }
}

impl Clone for View {
    fn clone(&self) -> Self {
        let mut copy = Self::any();
        let Known { layout, len, contiguous } = self.known();
        copy.layout.shape.dims.clone_from(&layout.shape.dims);
        copy.layout.strides.clone_from(&layout.strides);
        copy.layout.offset = layout.offset;
        (copy.len, copy.contiguous) = (*len, *contiguous);
        Self(Some(copy))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        #[cfg(feature = "std")]
        if let Some(known) = self.0.take() {
            kept::push(&FREE, known);
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
