//! The thread that computes metrics.
//!
//! The training hands it what steps yield and goes on. It reads the tensors, which may mean waiting for the device,
//! computes, logs and shows. When it is far behind, the training waits for it, so that outputs do not pile up.

use super::metrics::Metrics;
use crate::logger::MetricLogger;
use crate::metric::store::{EventStoreClient, Split};
use crate::metric::{ItemLazy, MetricMetadata};
use crate::renderer::{MetricState, MetricsRenderer, TrainingProgress};
use std::panic;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

/// Outputs that may wait to be read. They are few, since those of a language model are large.
const WAITING: usize = 4;

/// What the training tells the thread.
enum Event<T, V> {
    Train(T, MetricMetadata),
    Valid(V, MetricMetadata),
    /// A part of an epoch is over.
    End(Split, usize),
    /// All before this is done when the sender says so.
    Done(SyncSender<()>),
}

/// What the thread works with, and what it gives back.
pub(super) struct Desk<T, V> {
    pub(super) train: Metrics<T>,
    pub(super) valid: Metrics<V>,
    pub(super) train_logger: Box<dyn MetricLogger>,
    pub(super) valid_logger: Box<dyn MetricLogger>,
    pub(super) renderer: Box<dyn MetricsRenderer>,
    pub(super) store: Arc<EventStoreClient>,
}

impl<T, V> Desk<T, V> {
    /// The training begins in an epoch of which so many values of each metric are known.
    pub(super) fn resume_at(&mut self, epoch: usize, entries: usize) {
        self.train_logger.resume_at(epoch, entries);
        self.valid_logger.resume_at(epoch, 0);
    }

    /// Takes an epoch's values from the logs to the store. What is not there is not known: a metric may be new, a log removed,
    /// a logger forgetful. The store is told so of an epoch that is over.
    pub(super) fn recall(&mut self, epoch: usize, is_over: bool) {
        let parts: [(Split, &[_], &mut Box<dyn MetricLogger>); 2] = [
            (Split::Train, self.train.numeric(), &mut self.train_logger),
            (Split::Valid, self.valid.numeric(), &mut self.valid_logger),
        ];
        for (split, names, logger) in parts {
            for name in names {
                let entries = match logger.read_numeric(name, epoch) {
                    Ok(entries) if entries.is_empty() => {
                        Err(format!("{name} has no values in epoch {epoch}"))
                    }
                    entries => entries,
                };
                match entries {
                    Ok(entries) => {
                        entries.into_iter().for_each(|entry| self.store.add(split, name, epoch, entry));
                    }
                    Err(reason) if is_over => self.store.lose(split, name, reason),
                    Err(_) => {}
                }
            }
        }
    }

    /// Whether the logs have values of a metric in an epoch, though the learner may not have the metric.
    pub(super) fn is_logged(&mut self, split: Split, name: &str, epoch: usize) -> bool {
        let logger = match split {
            Split::Train => &mut self.train_logger,
            Split::Valid => &mut self.valid_logger,
        };
        logger.read_numeric(name, epoch).is_ok_and(|entries| !entries.is_empty())
    }

    /// Tells the loggers and the renderer of the metrics.
    pub(super) fn register(&mut self) {
        for definition in self.train.definitions() {
            self.train_logger.register_metric(&definition);
            self.renderer.register_metric(definition);
        }
        for definition in self.valid.definitions() {
            self.valid_logger.register_metric(&definition);
            self.renderer.register_metric(definition);
        }
    }

    fn flush(&mut self) {
        self.train_logger.flush();
        self.valid_logger.flush();
    }
}

fn log(logger: &mut dyn MetricLogger, state: &MetricState) {
    match state {
        MetricState::Generic(entry) => logger.log(entry),
        MetricState::Numeric(entry, number) => logger.log_numeric(entry, *number),
    }
}

fn progress_of(metadata: &MetricMetadata) -> TrainingProgress {
    TrainingProgress {
        progress: metadata.progress,
        epoch: metadata.epoch,
        epoch_total: metadata.epoch_total,
        iteration: metadata.iteration,
    }
}

impl<T, V> Desk<T, V> {
    fn train(&mut self, item: &T, metadata: &MetricMetadata) {
        let states = self.train.update(item, metadata, Split::Train, &self.store);
        for state in states {
            log(&mut *self.train_logger, &state);
            self.renderer.update_train(state);
        }
        self.renderer.render_train(progress_of(metadata));
    }

    fn valid(&mut self, item: &V, metadata: &MetricMetadata) {
        let states = self.valid.update(item, metadata, Split::Valid, &self.store);
        for state in states {
            log(&mut *self.valid_logger, &state);
            self.renderer.update_valid(state);
        }
        self.renderer.render_valid(progress_of(metadata));
    }

    fn end(&mut self, split: Split, epoch: usize) {
        match split {
            Split::Train => {
                self.train.clear();
                self.train_logger.end_epoch(epoch);
            }
            Split::Valid => {
                self.valid.clear();
                self.valid_logger.end_epoch(epoch);
            }
        }
    }

    /// Does what it is told until nobody tells any more.
    fn work<TL, VL>(mut self, events: &Receiver<Event<TL, VL>>) -> Self
    where
        TL: ItemLazy<ItemSync = T>,
        VL: ItemLazy<ItemSync = V>,
    {
        loop {
            let event = match events.try_recv() {
                Ok(event) => event,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    // There is time to let others read what was logged.
                    self.flush();
                    let Ok(event) = events.recv() else { break };
                    event
                }
            };
            match event {
                Event::Train(item, metadata) => self.train(&item.sync(), &metadata),
                Event::Valid(item, metadata) => self.valid(&item.sync(), &metadata),
                Event::End(split, epoch) => self.end(split, epoch),
                Event::Done(sender) => {
                    self.flush();
                    // Who asked may be gone by now.
                    let _ = sender.send(());
                }
            }
        }
        self.flush();
        self
    }
}

/// The training's end of the thread.
pub(super) struct Worker<TL: ItemLazy, VL: ItemLazy> {
    events: Option<SyncSender<Event<TL, VL>>>,
    thread: Option<JoinHandle<Desk<TL::ItemSync, VL::ItemSync>>>,
}

impl<TL, VL> Worker<TL, VL>
where
    TL: ItemLazy + 'static,
    VL: ItemLazy + 'static,
    TL::ItemSync: 'static,
    VL::ItemSync: 'static,
{
    pub(super) fn start(desk: Desk<TL::ItemSync, VL::ItemSync>) -> Self {
        let (sender, events) = sync_channel(WAITING);
        let thread = thread::spawn(move || desk.work(&events));
        Self { events: Some(sender), thread: Some(thread) }
    }

    fn tell(&mut self, event: Event<TL, VL>) {
        let told = self.events.as_ref().map(|events| events.send(event));
        if !matches!(told, Some(Ok(()))) {
            self.join();
        }
    }

    pub(super) fn train(&mut self, item: TL, metadata: MetricMetadata) {
        self.tell(Event::Train(item, metadata));
    }

    pub(super) fn valid(&mut self, item: VL, metadata: MetricMetadata) {
        self.tell(Event::Valid(item, metadata));
    }

    pub(super) fn end(&mut self, split: Split, epoch: usize) {
        self.tell(Event::End(split, epoch));
    }

    /// Waits until all that was told is done, and logged where others can read it.
    ///
    /// # Panics
    /// With the message of a metric, logger or renderer that panicked.
    pub(super) fn wait(&mut self) {
        let (sender, done) = sync_channel(1);
        self.tell(Event::Done(sender));
        // The sender is dropped without a word by a thread that panics.
        if done.recv().is_err() {
            self.join();
        }
    }

    /// What the thread worked with.
    ///
    /// # Panics
    /// As [`Worker::wait`].
    pub(super) fn finish(mut self) -> Desk<TL::ItemSync, VL::ItemSync> {
        self.join()
    }

    fn join(&mut self) -> Desk<TL::ItemSync, VL::ItemSync> {
        self.events = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(desk)) => desk,
            Some(Err(message)) => panic::resume_unwind(message),
            None => panic!("the thread that computes metrics is gone"),
        }
    }
}

/// When the training fails, what was told is done all the same, and nothing is written after that.
impl<TL: ItemLazy, VL: ItemLazy> Drop for Worker<TL, VL> {
    fn drop(&mut self) {
        self.events = None;
        // What the training failed with is what is to be told.
        drop(self.thread.take().map(JoinHandle::join));
    }
}
