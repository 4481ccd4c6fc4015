//! Host memory that the device copies from and to at full speed, while the host goes on ("Page-Locked Host Memory" of the programming guide).

use super::nvidia::{Primary, failed};
use super::{DriverError, Pending};
use cudarc::driver::result::{self, event};
use cudarc::driver::sys;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// A place in the work of a stream.
pub(super) struct Mark {
    pub event: sys::CUevent,
    pub primary: Arc<Primary>,
}

impl Mark {
    /// Whether it is reached; whoever asks has entered.
    fn is_reached(&self) -> Result<bool, DriverError> {
        // SAFETY: the event is valid until this is dropped, or the context given up.
        match unsafe { event::query(self.event) } {
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            asked => asked.map(|()| true).map_err(failed("cuEventQuery")),
        }
    }

    /// Waits until it is reached; whoever waits has entered.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the event is valid until this is dropped, or the context given up.
        unsafe { event::synchronize(self.event) }.map_err(failed("cuEventSynchronize"))
    }
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Mark {}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Ok(_entered) = self.primary.enter() {
            // SAFETY: the event is valid and not used again; who waits for it goes on to.
            let _ = unsafe { event::destroy(self.event) };
        }
    }
}

/// Staging memory that is kept for the next read, at most.
const MOST_STAGING: usize = 4;
/// Bytes of such memory at most: what is locked is nobody else's.
pub(super) const MOST_STAGING_BYTES: usize = 64 << 20;

/// Host memory that the device copies from and to.
pub(super) struct Staging(Pages);

enum Pages {
    /// Those that the device knows.
    Locked { start: *mut u8, bytes: usize, primary: Arc<Primary> },
    /// Any, where the system locks none: the driver copies from them before it returns, and to them as late as to others.
    Pageable(Vec<u8>),
}

// SAFETY: it is plain memory, owned by one.
unsafe impl Send for Staging {}

impl Staging {
    /// So many bytes that the driver gave from there on, to nobody else.
    pub fn page_locked(start: *mut u8, bytes: usize, primary: Arc<Primary>) -> Self {
        Self(Pages::Locked { start, bytes, primary })
    }

    /// So many bytes of the host's usual memory.
    pub fn pageable(bytes: usize) -> Self {
        Self(Pages::Pageable(vec![0; bytes]))
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Pages::Locked { bytes, .. } => *bytes,
            Pages::Pageable(memory) => memory.len(),
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            // SAFETY: the driver gave so many bytes from there on, which nobody else has; bytes are never uninitialized in what the
            // system hands out.
            Pages::Locked { start, bytes, .. } => unsafe { std::slice::from_raw_parts_mut(*start, *bytes) },
            Pages::Pageable(memory) => memory,
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // A context that is given up takes it along.
        if let Pages::Locked { start, primary, .. } = &self.0
            && let Ok(_entered) = primary.enter()
        {
            // SAFETY: the memory came from `malloc_host` and is not used again.
            let _ = unsafe { result::free_host(start.cast()) };
        }
    }
}

/// A copy to staging memory.
pub(super) struct Download {
    pub done: Mark,
    pub staging: Option<Staging>,
    /// Where staging memory goes when it was read.
    pub home: Arc<Mutex<Vec<Staging>>>,
    pub lengths: Vec<usize>,
}

impl Pending for Download {
    fn wait(mut self: Box<Self>) -> Result<Vec<Vec<u8>>, DriverError> {
        let primary = self.done.primary.clone();
        // The staging memory goes with the context.
        let _entered = primary.enter()?;
        self.done.synchronize()?;
        let mut parts = Vec::with_capacity(self.lengths.len());
        if let Some(mut staging) = self.staging.take() {
            let mut bytes = &*staging.bytes_mut();
            for &length in &self.lengths {
                let (part, rest) = bytes.split_at(length);
                parts.push(part.to_vec());
                bytes = rest;
            }
            let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
            if home.len() < MOST_STAGING && staging.len() <= MOST_STAGING_BYTES {
                home.push(staging);
            } else {
                // It goes when nothing is entered any more.
                drop(home);
                self.staging = Some(staging);
            }
        }
        Ok(parts)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // It may still be running where nobody waited for it: its memory goes after it.
        if let Ok(_entered) = self.done.primary.enter() {
            let _ = self.done.synchronize();
        }
    }
}

/// Copies from staging memory, oldest first, which may still be running.
#[derive(Default)]
pub(super) struct Uploads(VecDeque<Upload>);

/// How many may be running: copies are behind what was asked for before them, and the host goes on until so many wait. Their memory has as many bytes as that
/// of reads ([`MOST_STAGING_BYTES`]).
const MOST_UPLOADS: usize = MOST_STAGING_BYTES / UPLOAD_BYTES;
/// Bytes of a piece of what is copied by way of staging memory.
pub(super) const UPLOAD_BYTES: usize = 4 << 20;

struct Upload {
    done: Mark,
    staging: Option<Staging>,
}

impl Uploads {
    /// Notes a copy that was asked for.
    pub fn push(&mut self, staging: Staging, done: Mark) {
        self.0.push_back(Upload { done, staging: Some(staging) });
    }

    /// The staging memory of the oldest copy, if that is done, or once it is where there may be no more of them; else nothing.
    pub fn take(&mut self) -> Result<Option<Staging>, DriverError> {
        let Some(oldest) = self.0.front() else { return Ok(None) };
        let primary = oldest.done.primary.clone();
        let entered = primary.enter()?;
        if self.0.len() < MOST_UPLOADS && !oldest.done.is_reached()? {
            return Ok(None);
        }
        let waited = oldest.done.synchronize();
        drop(entered);
        let oldest = self.0.pop_front();
        waited.map(|()| oldest.and_then(|mut oldest| oldest.staging.take()))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Its memory goes after it.
        if self.staging.is_some()
            && let Ok(_entered) = self.done.primary.enter()
        {
            let _ = self.done.synchronize();
        }
    }
}
