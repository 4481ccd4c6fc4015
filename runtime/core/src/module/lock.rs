//! A cell that is written once and a lock, from the standard library where there is one.

#[cfg(feature = "std")]
mod imp {
    use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

    pub struct Once<T>(OnceLock<T>);

    impl<T> Once<T> {
        pub fn new() -> Self {
            Self(OnceLock::new())
        }

        pub fn initialized(value: T) -> Self {
            Self(OnceLock::from(value))
        }

        pub fn get(&self) -> Option<&T> {
            self.0.get()
        }

        pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
            self.0.get_or_init(init)
        }

        pub fn into_inner(self) -> Option<T> {
            self.0.into_inner()
        }
    }

    pub struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        /// A panic elsewhere while the lock was held leaves the value usable: it is only ever replaced as a whole.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    pub struct Once<T>(spin::Once<T>);

    impl<T> Once<T> {
        pub fn new() -> Self {
            Self(spin::Once::new())
        }

        pub fn initialized(value: T) -> Self {
            Self(spin::Once::initialized(value))
        }

        pub fn get(&self) -> Option<&T> {
            self.0.get()
        }

        pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
            self.0.call_once(init)
        }

        pub fn into_inner(self) -> Option<T> {
            self.0.try_into_inner()
        }
    }

    pub struct Lock<T>(spin::Mutex<T>);

    impl<T> Lock<T> {
        pub fn new(value: T) -> Self {
            Self(spin::Mutex::new(value))
        }

        pub fn lock(&self) -> spin::MutexGuard<'_, T> {
            self.0.lock()
        }

        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }

        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }
}

pub(crate) use imp::{Lock, Once};

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}
