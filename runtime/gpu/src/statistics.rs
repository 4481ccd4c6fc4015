//! What a device was asked to do.

use core::sync::atomic::{AtomicU64, Ordering};

/// Adds to a counter.
pub fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// Declares `Statistics` of a device with the `Counters` that they are read from, of the same fields.
#[doc(hidden)]
#[macro_export]
macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the device was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub $name: ::std::sync::atomic::AtomicU64,)*
        }

        impl Counters {
            fn read(&self) -> Statistics {
                Statistics { $($name: self.$name.load(::std::sync::atomic::Ordering::Relaxed),)* }
            }
        }
    };
}
