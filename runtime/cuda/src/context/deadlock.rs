//! Threads that capture, and wait for devices on which others capture.
//!
//! A thread that captures on one device and uses another waits for what is captured there. Where that waits for the first in turn, one of the two captures is
//! given up: that of the thread by whose waiting the circle would be closed. A thread that captures waits for nothing else that others hold while they wait
//! for a device: it replays no graph, and opens no device again.

use super::Context;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Who captures, and who of these waits for whom. It is locked with a device's state at hand, never the other way round.
#[derive(Default)]
struct Captures {
    begun: Vec<(ThreadId, Arc<Context>)>,
    waits: Vec<Wait>,
}

/// A thread that captures waits for what another captures.
struct Wait {
    thread: ThreadId,
    /// Who captures.
    holder: ThreadId,
    /// On which device, by its place in memory.
    device: usize,
}

fn captures() -> MutexGuard<'static, Captures> {
    static CAPTURES: Mutex<Captures> = Mutex::new(Captures { begun: Vec::new(), waits: Vec::new() });
    CAPTURES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place(context: &Context) -> usize {
    std::ptr::from_ref(context).addr()
}

/// A thread captures on a device.
pub(super) fn begin(thread: ThreadId, context: &Arc<Context>) {
    captures().begun.push((thread, context.clone()));
}

/// What was captured on a device is complete, or given up: nobody waits for it any more.
pub(super) fn end(context: &Context) {
    let mut captures = captures();
    captures.begun.retain(|(_, begun)| !std::ptr::eq(&raw const **begun, context));
    captures.waits.retain(|wait| wait.device != place(context));
}

/// The devices on which a thread captures.
pub(super) fn begun_by(thread: ThreadId) -> Vec<Arc<Context>> {
    let captures = captures();
    let of_thread = captures.begun.iter().filter(|(capturing, _)| *capturing == thread);
    of_thread.map(|(_, context)| context.clone()).collect()
}

/// Whether this thread captures, on whatever device.
pub(crate) fn is_capturing() -> bool {
    !begun_by(thread::current().id()).is_empty()
}

/// A thread is about to wait for what `holder` captures on a device. Yields the device on which it captures itself and for which that would wait in turn: then it
/// is not to wait before it gave that up.
pub(super) fn wait(thread: ThreadId, holder: ThreadId, context: &Context) -> Option<Arc<Context>> {
    let mut captures = captures();
    let Captures { begun, waits } = &mut *captures;
    // Nobody waits for who captures nothing.
    if !begun.iter().any(|(capturing, _)| *capturing == thread) {
        return None;
    }
    waits.retain(|wait| wait.thread != thread);
    let mut next = holder;
    // No circle was closed before, so that this ends.
    while let Some(wait) = waits.iter().find(|wait| wait.thread == next) {
        if wait.holder == thread {
            let own = begun.iter().find(|(_, begun)| place(begun) == wait.device);
            return own.map(|(_, context)| context.clone());
        }
        next = wait.holder;
    }
    waits.push(Wait { thread, holder, device: place(context) });
    None
}
