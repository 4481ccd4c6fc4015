//! [`Response`]: where the answer to one request arrives, for a thread that blocks or a task that is polled.

use crate::ServeError;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

enum State<O> {
    /// Who is to be woken, if a task was polled.
    Waiting(Option<Waker>),
    Answered(Result<O, ServeError>),
    /// The answer went to the caller.
    Taken,
    /// The caller is gone.
    Abandoned,
}

/// What a request and its response share.
struct Slot<O> {
    state: Mutex<State<O>>,
    answered: Condvar,
    /// How many callers of this batcher left before their answer came; the queues then look which.
    abandoned: Arc<AtomicUsize>,
}

impl<O> Slot<O> {
    fn lock(&self) -> MutexGuard<'_, State<O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a request that is on its way: a future for any executor; [`wait`](Self::wait) blocks instead.
///
/// A request whose response is dropped before its batch starts is not computed.
#[must_use = "a request whose response is dropped is not computed"]
pub struct Response<O> {
    slot: Arc<Slot<O>>,
}

impl<O> Response<O> {
    /// A response that is there already.
    pub(crate) fn ready(answer: Result<O, ServeError>) -> Self {
        Self { slot: slot(State::Answered(answer), Arc::default()) }
    }

    /// Blocks the thread until the answer is there. In async code, `await` the response instead.
    ///
    /// # Errors
    /// When the request was refused or the model could not compute it.
    ///
    /// # Panics
    /// When the answer was taken before, by polling.
    pub fn wait(self) -> Result<O, ServeError> {
        let is_waiting = |state: &mut State<O>| matches!(state, State::Waiting(_));
        let state = self.slot.answered.wait_while(self.slot.lock(), is_waiting);
        take(&mut state.unwrap_or_else(PoisonError::into_inner))
    }
}

/// The answer, of a state that no longer waits.
fn take<O>(state: &mut State<O>) -> Result<O, ServeError> {
    match mem::replace(state, State::Taken) {
        State::Answered(answer) => answer,
        State::Waiting(_) | State::Taken | State::Abandoned => {
            panic!("a response was used after it was ready")
        }
    }
}

impl<O> Future for Response<O> {
    type Output = Result<O, ServeError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.lock();
        let State::Waiting(waker) = &mut *state else { return Poll::Ready(take(&mut state)) };
        match waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl<O> Drop for Response<O> {
    fn drop(&mut self) {
        let last = mem::replace(&mut *self.slot.lock(), State::Abandoned);
        if matches!(last, State::Waiting(_)) {
            self.slot.abandoned.fetch_add(1, Ordering::Release);
        }
    }
}

impl<O> fmt::Debug for Response<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_ready = matches!(*self.slot.lock(), State::Answered(_));
        f.debug_struct("Response").field("is_ready", &is_ready).finish_non_exhaustive()
    }
}

/// The other end of a [`Response`]. If it is dropped, the response is an error.
pub(crate) struct Sender<O> {
    slot: Arc<Slot<O>>,
}

impl<O> Sender<O> {
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(*self.slot.lock(), State::Abandoned)
    }

    pub(crate) fn send(self, answer: Result<O, ServeError>) {
        self.answer(answer);
    }

    /// Answers, unless it is done or nobody waits.
    fn answer(&self, answer: Result<O, ServeError>) {
        let mut state = self.slot.lock();
        let State::Waiting(waker) = &mut *state else { return };
        let waker = waker.take();
        *state = State::Answered(answer);
        // Who wakes up takes the lock.
        drop(state);
        self.slot.answered.notify_one();
        if let Some(waker) = waker {
            // What wakes one caller is that caller's: a panic in it is none of those who wait for the same batch.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
        }
    }
}

impl<O> Drop for Sender<O> {
    fn drop(&mut self) {
        let message = "its worker ended before it answered".to_owned();
        self.answer(Err(ServeError::Panicked { message }));
    }
}

fn slot<O>(state: State<O>, abandoned: Arc<AtomicUsize>) -> Arc<Slot<O>> {
    Arc::new(Slot { state: Mutex::new(state), answered: Condvar::new(), abandoned })
}

/// Both ends of an answer. `abandoned` is counted up when the response is dropped too early.
pub(crate) fn channel<O>(abandoned: &Arc<AtomicUsize>) -> (Sender<O>, Response<O>) {
    let slot = slot(State::Waiting(None), abandoned.clone());
    (Sender { slot: slot.clone() }, Response { slot })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;
    use std::thread;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_blocked_thread_gets_the_answer() {
        let (sender, response) = channel::<u8>(&Arc::default());
        let caller = thread::spawn(|| response.wait());
        sender.send(Ok(7));
        assert_eq!(caller.join().expect("no panic").expect("an answer"), 7);
    }

    #[test]
    fn the_last_task_that_polled_is_woken_once() {
        let (sender, mut response) = channel::<u8>(&Arc::default());
        let (first, last) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let mut poll = |wakes: &Arc<Wakes>| {
            Pin::new(&mut response).poll(&mut Context::from_waker(&Waker::from(wakes.clone())))
        };
        assert!(poll(&first).is_pending() && poll(&last).is_pending());
        sender.send(Ok(7));
        assert_eq!((first.0.load(Ordering::SeqCst), last.0.load(Ordering::SeqCst)), (0, 1));
        assert!(matches!(poll(&last), Poll::Ready(Ok(7))));
    }

    #[test]
    fn a_response_that_is_dropped_early_is_counted_and_one_that_came_is_not() {
        let abandoned = Arc::default();
        let (sender, response) = channel::<u8>(&abandoned);
        drop(response);
        assert!(sender.is_abandoned());
        sender.send(Ok(7));
        let (sender, response) = channel::<u8>(&abandoned);
        sender.send(Ok(7));
        drop(response);
        assert_eq!(abandoned.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_sender_that_is_lost_is_an_error_and_no_endless_wait() {
        let (sender, response) = channel::<u8>(&Arc::default());
        drop(sender);
        assert!(matches!(response.wait(), Err(ServeError::Panicked { .. })));
    }
}
