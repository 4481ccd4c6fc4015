//! What a device will tell: a future without a runtime of its own.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// Something that is [kept](Self::keep) later; waiting for it yields what it was kept with.
#[derive(Debug)]
pub struct Promise<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
struct State<T> {
    kept: Option<T>,
    /// Who waits for it.
    waker: Option<Waker>,
}

impl<T> Default for Promise<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { kept: None, waker: None })))
    }
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Promise<T> {
    /// Keeps it, unless it is kept already, and wakes who waits.
    pub fn keep(&self, value: T) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.kept.get_or_insert(value);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Promise<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.kept.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut task = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut task) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
