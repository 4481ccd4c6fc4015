//! What is computed from parameters once, rather than whenever it is used.
//!
//! A layer whose parameters lie apart, as records have them, may compute with all of them joined. The joined ones belong
//! to no record and no visitor sees them: they are kept beside the first of the parameters, and are computed anew when one
//! has another value.

use super::lock::Lock;
use alloc::{sync::Arc, vec::Vec};
use core::any::Any;

/// Names a parameter's value. A clone of the parameter has the same one, whatever replaces the value makes another.
#[derive(Clone)]
pub(crate) struct Version(Arc<()>);

impl Version {
    pub fn new() -> Self {
        Self(Arc::new(()))
    }
}

impl PartialEq for Version {
    /// Who compares holds both, so that neither address can be another's by now.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What was computed last, and from which values.
type Kept = (Vec<Version>, Arc<dyn Any + Send + Sync>);

/// Keeps one value that was computed from parameters.
#[derive(Default)]
pub(crate) struct Derived(Lock<Option<Kept>>);

impl Derived {
    /// The value, computed unless it was from these versions.
    pub fn get_or_compute<U>(&self, versions: &[&Version], compute: impl FnOnce() -> U) -> U
    where
        U: Clone + Send + Sync + 'static,
    {
        if let Some((of, value)) = &*self.0.lock()
            && of.iter().eq(versions.iter().copied())
            && let Some(value) = value.downcast_ref::<U>()
        {
            return value.clone();
        }
        // Without the lock: two threads may compute it, and the last one's is kept.
        let value = compute();
        let of = versions.iter().map(|&version| version.clone()).collect();
        *self.0.lock() = Some((of, Arc::new(value.clone())));
        value
    }
}

impl Clone for Derived {
    fn clone(&self) -> Self {
        Self(Lock::new(self.0.lock().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_computed_once_for_the_same_versions() {
        let (first, second) = (Version::new(), Version::new());
        let derived = Derived::default();
        assert_eq!(derived.get_or_compute(&[&first, &second], || 1), 1);
        assert_eq!(derived.get_or_compute(&[&first, &second], || 2), 1);
        assert_eq!(derived.clone().get_or_compute(&[&first.clone(), &second], || 2), 1);
        assert_eq!(derived.get_or_compute(&[&first, &Version::new()], || 3), 3);
        assert_eq!(derived.get_or_compute(&[&first, &second], || 4), 4);
        assert_eq!(derived.get_or_compute(&[&first], || 5), 5);
        // Another type is another value.
        assert_eq!(derived.get_or_compute(&[&first], || "six"), "six");
    }
}
