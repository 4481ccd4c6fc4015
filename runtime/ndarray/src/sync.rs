//! A mutex, with and without an operating system.

#[cfg(feature = "std")]
mod imp {
    /// A mutex whose poisoning is ignored: what it guards here stays valid at every step.
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            f(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
        }
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    /// A spinning mutex.
    pub(crate) struct Mutex<T>(spin::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(spin::Mutex::new(value))
        }

        pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            f(&mut self.0.lock())
        }
    }
}

pub(crate) use imp::Mutex;
