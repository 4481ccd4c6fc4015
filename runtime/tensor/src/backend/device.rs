//! Devices and what can fail on them.

use alloc::string::String;
use core::fmt::Debug;

/// Names one device of a backend; `Default` is the usual one.
pub trait DeviceOps: Clone + Default + PartialEq + Send + Sync + Debug + 'static {}

/// A device failed while running or reading back.
#[derive(Debug, thiserror::Error)]
#[error("{device}: {reason}")]
pub struct ExecutionError {
    /// The device, as its backend names it.
    pub device: String,
    /// What the driver said.
    pub reason: String,
}
