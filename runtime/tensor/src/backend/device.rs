//! Devices and what can fail on them.

use alloc::string::String;
use core::fmt::Debug;

/// Names one device of a backend; `Default` is the usual one.
pub trait DeviceOps: Clone + Default + PartialEq + Send + Sync + Debug + 'static {
    /// The device's number; [`from_id`](Self::from_id) gives it back.
    fn to_id(&self) -> DeviceId;

    /// The device of a number.
    ///
    /// # Panics
    /// When no device of this kind has that number.
    fn from_id(id: DeviceId) -> Self;
}

/// A device's number among those of one backend, where its type cannot be named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The kind of device.
    pub type_id: u16,
    /// Which one of that kind.
    pub index_id: u32,
}

impl DeviceId {
    /// Both numbers.
    pub const fn new(type_id: u16, index_id: u32) -> Self {
        Self { type_id, index_id }
    }
}

/// A device failed while running or reading back.
#[derive(Debug, thiserror::Error)]
#[error("{device}: {reason}")]
pub struct ExecutionError {
    /// The device, as its backend names it.
    pub device: String,
    /// What the driver said.
    pub reason: String,
}
