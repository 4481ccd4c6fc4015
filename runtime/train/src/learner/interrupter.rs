//! [`TrainingInterrupter`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a training after the step that is under way, from any thread. Clones are one interrupter.
#[derive(Clone, Debug, Default)]
pub struct TrainingInterrupter {
    stop: Arc<AtomicBool>,
}

/// What Burn 0.19 calls it.
pub type Interrupter = TrainingInterrupter;

impl TrainingInterrupter {
    /// Nothing is to end yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The training is to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The training is not to end, or not any more.
    pub fn reset(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    /// Whether the training is to end.
    pub fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
