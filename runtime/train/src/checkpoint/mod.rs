//! Checkpoints: which epochs are kept, and what goes to files.

mod files;
mod state;
mod strategy;

pub(crate) use files::{By, Recorded, Records};
pub(crate) use state::{StateFiles, TrainingPlace};
pub use strategy::{
    CheckpointingAction, CheckpointingStrategy, ComposedCheckpointingStrategy,
    ComposedCheckpointingStrategyBuilder, KeepLastNCheckpoints, MetricCheckpointingStrategy,
};
