//! What products of f32 are computed of.

/// What products of f32 (matrix products, linear layers, convolutions, attention) are computed of. Tensors are f32 either way, and so are sums. (A
/// backend may keep rounded what convolutions hand to others that round it anyway; who else reads it then gets f32 of as many digits.) As in f32, some ways to compute a convolution make NaN of results beside one whose window is not finite.
///
/// It holds for what runs within [`Precision::run`] on the calling thread, and backends ask for it when an operation begins. One that has no faster
/// products of bf16 may compute in f32. Gradients are always computed in f32: they run after that.
///
/// ```
/// # use kiln_types::Precision;
/// let inside = Precision::Bf16.run(Precision::current);
/// # if cfg!(feature = "std") {
/// assert_eq!(inside, Precision::Bf16);
/// # }
/// assert_eq!(Precision::current(), Precision::F32);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Operands as they are.
    #[default]
    F32,
    /// Operands rounded to bf16, with its 8 significant bits: several times as fast on CPUs with AMX.
    Bf16,
}

#[cfg(feature = "std")]
mod scope {
    use super::Precision;
    use std::cell::Cell;

    std::thread_local!(static CURRENT: Cell<Precision> = const { Cell::new(Precision::F32) });

    pub fn current() -> Precision {
        CURRENT.get()
    }

    /// Holds until it is dropped, when what held before does again: after a panic too.
    pub struct Scope(Precision);

    impl Scope {
        pub fn enter(precision: Precision) -> Self {
            Self(CURRENT.replace(precision))
        }
    }

    impl Drop for Scope {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
}

impl Precision {
    /// What holds for the calling thread; f32 without the standard library, which knows the threads.
    pub fn current() -> Self {
        #[cfg(feature = "std")]
        return scope::current();
        #[cfg(not(feature = "std"))]
        Self::F32
    }

    /// Runs `body`, whose products are computed so.
    pub fn run<R>(self, body: impl FnOnce() -> R) -> R {
        #[cfg(feature = "std")]
        let _scope = scope::Scope::enter(self);
        body()
    }

    /// Runs `body`, whose products are computed so; other work of the threads that it runs on is not.
    pub async fn run_async<F: Future>(self, body: F) -> F::Output {
        let mut body = core::pin::pin!(body);
        core::future::poll_fn(|context| self.run(|| body.as_mut().poll(context))).await
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::Precision;
    use core::task::{Context, Poll, Waker};

    #[test]
    fn what_held_before_holds_again() {
        let inner = Precision::Bf16.run(|| {
            let inner = Precision::F32.run(Precision::current);
            (inner, Precision::current())
        });
        assert_eq!((inner, Precision::current()), ((Precision::F32, Precision::Bf16), Precision::F32));
        let caught = std::panic::catch_unwind(|| Precision::Bf16.run(|| panic!("as meant")));
        assert!(caught.is_err());
        assert_eq!(Precision::current(), Precision::F32);
        let other = Precision::Bf16.run(|| std::thread::spawn(Precision::current).join());
        assert_eq!(other.ok(), Some(Precision::F32));
    }

    #[test]
    fn a_future_that_waits_leaves_the_thread_as_it_was() {
        let mut seen = Vec::new();
        let mut polls = 0;
        let body = core::future::poll_fn(|_| {
            seen.push(Precision::current());
            polls += 1;
            if polls < 2 { Poll::Pending } else { Poll::Ready(()) }
        });
        let mut future = Box::pin(Precision::Bf16.run_async(body));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert_eq!(Precision::current(), Precision::F32);
        assert!(future.as_mut().poll(&mut context).is_ready());
        drop(future);
        assert_eq!(seen, [Precision::Bf16; 2]);
    }
}
