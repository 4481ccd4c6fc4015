//! Layouts of tensors behind a pointer.
//!
//! A tensor is handed from function to function, and a layout is long: reading in one piece what was just written in several makes the
//! processor wait, longer than a small operation computes.

#[cfg(feature = "std")]
use crate::kept::{self, Kept};
use alloc::boxed::Box;
use core::fmt;
use core::ops::{Deref, DerefMut};
use kiln_tensor::Shape;
use kiln_tensor::backend::{Layout, row_major};

/// A layout that is moved as a pointer. The memory of one that is dropped waits for another.
pub(crate) struct View(
    /// There until it is dropped.
    Option<Box<Layout>>,
);

// Memory of dropped layouts.
#[cfg(feature = "std")]
std::thread_local!(static FREE: Kept<Box<Layout>> = const { Kept::new() });

impl View {
    /// Some layout, to be written.
    fn any() -> Box<Layout> {
        #[cfg(feature = "std")]
        if let Some(layout) = kept::pop(&FREE) {
            return layout;
        }
        Box::new(Layout::contiguous(Shape::default()))
    }

    /// Row-major from offset 0.
    pub(crate) fn contiguous(shape: Shape) -> Self {
        let mut layout = Self::any();
        layout.strides = row_major(&shape.dims);
        layout.shape = shape;
        layout.offset = 0;
        Self(Some(layout))
    }

    /// Changes the layout.
    pub(crate) fn change(&mut self, change: impl FnOnce(Layout) -> Layout) {
        let layout = core::mem::replace(&mut **self, Layout::contiguous(Shape::default()));
        **self = change(layout);
    }
}

impl Deref for View {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        match &self.0 {
            Some(layout) => layout,
            None => unreachable!("only `drop` takes the layout"),
        }
    }
}

impl DerefMut for View {
    fn deref_mut(&mut self) -> &mut Layout {
        match &mut self.0 {
            Some(layout) => layout,
            None => unreachable!("only `drop` takes the layout"),
        }
    }
}

impl Clone for View {
    fn clone(&self) -> Self {
        let mut layout = Self::any();
        layout.shape.dims.clone_from(&self.shape.dims);
        layout.strides.clone_from(&self.strides);
        layout.offset = self.offset;
        Self(Some(layout))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        #[cfg(feature = "std")]
        if let Some(layout) = self.0.take() {
            kept::push(&FREE, layout);
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
