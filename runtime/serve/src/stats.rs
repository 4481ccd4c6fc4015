//! What a batcher counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What happened since a batcher was made, and what waits; see [`DynamicBatcher::stats`](crate::DynamicBatcher::stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatcherStats {
    /// Requests that went into batches.
    pub requests: u64,
    /// Rows of these.
    pub rows: u64,
    /// Batches.
    pub batches: u64,
    /// Rows that batches were filled up with.
    pub padding_rows: u64,
    /// Requests that were refused since the queue was full.
    pub refused: u64,
    /// Requests that were dropped by their callers before they were computed.
    pub abandoned: u64,
    /// Requests that went into batches and were answered with an error.
    pub failed: u64,
    /// Forward passes that panicked.
    pub panics: u64,
    /// Rows that wait now.
    pub waiting_rows: usize,
    /// The time from a request to the start of its batch, summed over all requests that went into batches.
    pub total_queue_delay: Duration,
    /// The longest such time.
    pub max_queue_delay: Duration,
}

impl BatcherStats {
    /// Rows of a batch, on average.
    pub fn mean_batch_size(&self) -> f64 {
        self.rows as f64 / self.batches.max(1) as f64
    }

    /// The time from a request to the start of its batch, on average.
    pub fn mean_queue_delay(&self) -> Duration {
        self.total_queue_delay.div_f64(self.requests.max(1) as f64)
    }
}

/// The counters behind [`BatcherStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    rows: AtomicU64,
    batches: AtomicU64,
    padding_rows: AtomicU64,
    refused: AtomicU64,
    abandoned: AtomicU64,
    failed: AtomicU64,
    panics: AtomicU64,
    /// In nanoseconds, which fill 64 bits after 584 years of waiting.
    total_delay: AtomicU64,
    max_delay: AtomicU64,
}

impl Counters {
    pub(crate) fn batch(&self, rows: usize, delays: impl Iterator<Item = Duration>) {
        let (mut requests, mut total, mut max) = (0, 0_u64, 0);
        for delay in delays {
            let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
            (requests, total, max) = (requests + 1, total.saturating_add(nanos), nanos.max(max));
        }
        self.batches.fetch_add(1, Relaxed);
        self.requests.fetch_add(requests, Relaxed);
        self.rows.fetch_add(rows as u64, Relaxed);
        self.total_delay.fetch_add(total, Relaxed);
        self.max_delay.fetch_max(max, Relaxed);
    }

    pub(crate) fn padding(&self, rows: usize) {
        self.padding_rows.fetch_add(rows as u64, Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn abandoned(&self, requests: usize) {
        self.abandoned.fetch_add(requests as u64, Relaxed);
    }

    pub(crate) fn failed(&self, requests: usize) {
        self.failed.fetch_add(requests as u64, Relaxed);
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self, waiting_rows: usize) -> BatcherStats {
        BatcherStats {
            requests: self.requests.load(Relaxed),
            rows: self.rows.load(Relaxed),
            batches: self.batches.load(Relaxed),
            padding_rows: self.padding_rows.load(Relaxed),
            refused: self.refused.load(Relaxed),
            abandoned: self.abandoned.load(Relaxed),
            failed: self.failed.load(Relaxed),
            panics: self.panics.load(Relaxed),
            waiting_rows,
            total_queue_delay: Duration::from_nanos(self.total_delay.load(Relaxed)),
            max_queue_delay: Duration::from_nanos(self.max_delay.load(Relaxed)),
        }
    }
}
