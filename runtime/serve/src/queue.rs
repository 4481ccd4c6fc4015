//! Who waits, and which of them are the next batch. Nothing here runs a model, waits or asks for the time, so tests need no clock.

use crate::ServeError;
use crate::batch::Signature;
use crate::response::{Response, Sender, channel};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A request that was taken.
pub(crate) struct Request<I, O> {
    pub(crate) input: I,
    pub(crate) rows: usize,
    pub(crate) since: Instant,
    /// Counts up over all queues: who came first.
    ticket: u64,
    pub(crate) sender: Sender<O>,
}

/// How much may wait, how long, and how much goes at once; see [`DynamicBatcherConfig`](crate::DynamicBatcherConfig).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_batch_size: usize,
    pub(crate) max_queue_delay: Duration,
    pub(crate) max_queue_size: usize,
}

/// What a free worker does.
pub(crate) enum Next<I, O> {
    /// It runs this batch.
    Run(Vec<Request<I, O>>),
    /// It waits for more requests, but not longer than this.
    WaitUntil(Instant),
    /// It waits for requests.
    Wait,
    /// It ends: nothing waits, and nothing will come.
    End,
}

/// Requests of one signature, in the order in which they came. There is at least one.
struct Queue<I, O> {
    requests: VecDeque<Request<I, O>>,
    rows: usize,
}

/// All requests that wait. Those of one signature are a queue; of the queues that are ready the one whose first request is the oldest goes
/// next, so that none starves.
pub(crate) struct Queues<I, O> {
    by_signature: HashMap<Signature, Queue<I, O>>,
    limits: Limits,
    /// Rows in all queues.
    waiting: usize,
    tickets: u64,
    is_open: bool,
    /// How many responses were dropped since the queues were last searched for them.
    abandoned: Arc<AtomicUsize>,
    /// How many requests were removed for it, until [`take_removed`](Self::take_removed) asks.
    removed: usize,
}

impl<I, O> Queues<I, O> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            by_signature: HashMap::new(),
            limits,
            waiting: 0,
            tickets: 0,
            is_open: true,
            abandoned: Arc::default(),
            removed: 0,
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// From now on requests are refused; those that wait are all ready.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// Requests that were removed since their callers left, since the last call.
    pub(crate) fn take_removed(&mut self) -> usize {
        std::mem::take(&mut self.removed)
    }

    /// Takes a request. Also says whether a free worker should look: not if it would find nothing that it did not know.
    pub(crate) fn push(
        &mut self,
        (signature, rows): (Signature, usize),
        input: I,
        now: Instant,
    ) -> Result<(Response<O>, bool), ServeError> {
        let Limits { max_batch_size, max_queue_size, .. } = self.limits;
        if !self.is_open {
            return Err(ServeError::ShutDown);
        }
        if rows > max_batch_size {
            return Err(ServeError::TooManyRows { rows, max_batch_size });
        }
        self.remove_abandoned();
        if rows > max_queue_size - self.waiting {
            return Err(ServeError::Overloaded { rows, waiting: self.waiting, max_queue_size });
        }
        let (sender, response) = channel(&self.abandoned);
        let request = Request { input, rows, since: now, ticket: self.tickets, sender };
        self.tickets += 1;
        self.waiting += rows;
        let empty = || Queue { requests: VecDeque::new(), rows: 0 };
        let queue = self.by_signature.entry(signature).or_insert_with(empty);
        let was_full = queue.rows >= max_batch_size;
        queue.rows += rows;
        queue.requests.push_back(request);
        let news = queue.requests.len() == 1 || (!was_full && queue.rows >= max_batch_size);
        Ok((response, news))
    }

    /// What a worker that is free now does.
    pub(crate) fn next(&mut self, now: Instant) -> Next<I, O> {
        self.remove_abandoned();
        let ready = self.by_signature.iter().filter(|(_, queue)| self.is_ready(queue, now));
        let oldest = ready.min_by_key(|(_, queue)| queue.requests.front().map(|first| first.ticket));
        if let Some(signature) = oldest.map(|(signature, _)| signature.clone()) {
            return Next::Run(self.take(&signature));
        }
        if self.by_signature.is_empty() {
            return if self.is_open { Next::Wait } else { Next::End };
        }
        // A deadline that no clock reaches is none.
        let deadlines = self.by_signature.values().filter_map(|queue| self.deadline(queue));
        deadlines.min().map_or(Next::Wait, Next::WaitUntil)
    }

    fn is_ready(&self, queue: &Queue<I, O>, now: Instant) -> bool {
        let is_full = queue.rows >= self.limits.max_batch_size;
        is_full || !self.is_open || self.deadline(queue).is_some_and(|deadline| deadline <= now)
    }

    /// When the first request has waited long enough.
    fn deadline(&self, queue: &Queue<I, O>) -> Option<Instant> {
        queue.requests.front()?.since.checked_add(self.limits.max_queue_delay)
    }

    /// The first requests of a queue, as many as one batch takes.
    fn take(&mut self, signature: &Signature) -> Vec<Request<I, O>> {
        let Some(queue) = self.by_signature.get_mut(signature) else { return Vec::new() };
        let mut rows = 0;
        let fits = |request: &&Request<I, O>| {
            rows += request.rows;
            rows <= self.limits.max_batch_size
        };
        let count = queue.requests.iter().take_while(fits).count();
        let batch: Vec<_> = queue.requests.drain(..count).collect();
        let rows: usize = batch.iter().map(|request| request.rows).sum();
        queue.rows -= rows;
        self.waiting -= rows;
        if queue.requests.is_empty() {
            self.by_signature.remove(signature);
        }
        batch
    }

    /// Removes the requests whose callers left, if there may be any: they take no room of those who wait.
    fn remove_abandoned(&mut self) {
        if self.abandoned.swap(0, Ordering::Acquire) == 0 {
            return;
        }
        let (waiting, removed) = (&mut self.waiting, &mut self.removed);
        self.by_signature.retain(|_, queue| {
            queue.requests.retain(|request| {
                let is_abandoned = request.sender.is_abandoned();
                if is_abandoned {
                    queue.rows -= request.rows;
                    *waiting -= request.rows;
                    *removed += 1;
                }
                !is_abandoned
            });
            !queue.requests.is_empty()
        });
    }
}

#[cfg(test)]
mod tests;
