//! Layouts of tensors behind a pointer.
//!
//! A tensor is handed from function to function, and a layout is long: reading in one piece what was just written in several makes the
//! processor wait, longer than a small operation computes.

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

/// Memory of dropped layouts, each thread's own: it costs no lock.
#[cfg(feature = "std")]
mod kept {
    use super::Layout;
    use core::cell::RefCell;

    /// Most that a thread keeps: more than a network has tensors at a time.
    const MOST: usize = 4096;

    std::thread_local! {
        #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
        static FREE: RefCell<Vec<Box<Layout>>> = const { RefCell::new(Vec::new()) };
    }

    pub fn pop() -> Option<Box<Layout>> {
        FREE.try_with(|free| free.try_borrow_mut().ok()?.pop()).ok().flatten()
    }

    pub fn push(layout: Box<Layout>) {
        // A thread that ends keeps nothing any more.
        let _ = FREE.try_with(|free| {
            if let Ok(mut free) = free.try_borrow_mut()
                && free.len() < MOST
            {
                free.push(layout);
            }
        });
    }
}

impl View {
    /// Some layout, to be written.
    fn any() -> Box<Layout> {
        #[cfg(feature = "std")]
        if let Some(layout) = kept::pop() {
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
            kept::push(layout);
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
