//! Recordings that were run: the next programs of their thread are recorded in their memory.

use super::{Dtypes, Program, Recording};

#[cfg(feature = "std")]
mod kept {
    use super::Program;
    use alloc::vec::Vec;
    use core::cell::RefCell;

    /// Most recordings that a thread keeps: a backend that records programs while it runs one has few at a time.
    const MOST: usize = 8;

    std::thread_local!(static FREE: RefCell<Vec<Program>> = const { RefCell::new(Vec::new()) });

    pub fn pop() -> Option<Program> {
        FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten()
    }

    pub fn push(program: Program) {
        // A thread that ends keeps nothing any more.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MOST {
                free.push(program);
            }
        });
    }
}

/// An empty recording that nobody else has.
pub(super) fn take(dtypes: Dtypes) -> Program {
    #[cfg(feature = "std")]
    if let Some(mut program) = kept::pop()
        && let Some(recording) = Program::get_mut(&mut program)
    {
        recording.dtypes = dtypes;
        return program;
    }
    Program::new(Recording::new(dtypes))
}

/// Leaves a recording that was run to the next program, unless the closure kept a value of it.
pub(super) fn give(mut program: Program) {
    if let Some(recording) = Program::get_mut(&mut program) {
        recording.clear();
        #[cfg(feature = "std")]
        kept::push(program);
    }
}
