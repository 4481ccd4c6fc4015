//! [`TrainingInterrupter`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ends a training after the step that is under way, from any thread. Clones are one interrupter.
#[derive(Clone, Debug, Default)]
pub struct TrainingInterrupter {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl TrainingInterrupter {
    /// Nothing is to end yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The training is to end.
    pub fn stop(&self) {
        self.state.stop.store(true, Ordering::Relaxed);
    }

    /// The training is not to end, or not any more.
    pub fn reset(&self) {
        self.state.stop.store(false, Ordering::Relaxed);
        *self.reason() = None;
    }

    /// Whether the training is to end.
    pub fn should_stop(&self) -> bool {
        self.state.stop.load(Ordering::Relaxed)
    }

    /// Why it was stopped, if that was said.
    pub(super) fn message(&self) -> Option<String> {
        self.reason().clone()
    }

    fn reason(&self) -> MutexGuard<'_, Option<String>> {
        self.state.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`TrainingInterrupter`] as Burn 0.20 has it, which takes a reason.
#[derive(Clone, Debug, Default)]
pub struct Interrupter(TrainingInterrupter);

impl Interrupter {
    /// Nothing is to end yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The training is to end. The reason is logged.
    pub fn stop(&self, reason: Option<&str>) {
        if let Some(reason) = reason {
            *self.0.reason() = Some(reason.to_owned());
        }
        self.0.stop();
    }

    /// The training is not to end, or not any more.
    pub fn reset(&self) {
        self.0.reset();
    }

    /// Whether the training is to end.
    pub fn should_stop(&self) -> bool {
        self.0.should_stop()
    }

    /// Why it was stopped, if that was said.
    pub fn get_message(&self) -> Option<String> {
        self.0.message()
    }
}

impl From<Interrupter> for TrainingInterrupter {
    fn from(interrupter: Interrupter) -> Self {
        interrupter.0
    }
}

impl From<TrainingInterrupter> for Interrupter {
    fn from(interrupter: TrainingInterrupter) -> Self {
        Self(interrupter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_one() {
        let plain = TrainingInterrupter::new();
        let other = Interrupter::from(plain.clone());
        other.stop(Some("enough"));
        assert!(plain.should_stop());
        assert_eq!(other.get_message().as_deref(), Some("enough"));
        plain.reset();
        assert_eq!((other.should_stop(), other.get_message()), (false, None));
    }
}
