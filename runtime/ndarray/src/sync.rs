//! A mutex and a value that is made once, with and without an operating system.

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

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    /// A value that is made when it is first wanted.
    pub(crate) struct Once<T>(std::sync::OnceLock<T>);

    impl<T> Once<T> {
        pub(crate) const fn new() -> Self {
            Self(std::sync::OnceLock::new())
        }

        pub(crate) fn get_or(&self, make: impl FnOnce() -> T) -> &T {
            self.0.get_or_init(make)
        }

        pub(crate) fn get(&self) -> Option<&T> {
            self.0.get()
        }

        pub(crate) fn into_inner(self) -> Option<T> {
            self.0.into_inner()
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

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    /// A value that is made when it is first wanted.
    pub(crate) struct Once<T>(spin::Once<T>);

    impl<T> Once<T> {
        pub(crate) const fn new() -> Self {
            Self(spin::Once::new())
        }

        pub(crate) fn get_or(&self, make: impl FnOnce() -> T) -> &T {
            self.0.call_once(make)
        }

        pub(crate) fn get(&self) -> Option<&T> {
            self.0.get()
        }

        pub(crate) fn into_inner(self) -> Option<T> {
            self.0.try_into_inner()
        }
    }
}

pub(crate) use imp::{Mutex, Once};
