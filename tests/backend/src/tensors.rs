//! Tests of `Tensor` and of the functions over it.

pub mod arguments;
pub mod basics;
pub mod decompositions;
pub mod dtypes;
pub mod goldens;
pub mod printing;

use crate::tolerance;
use kiln_tensor::TensorData;
use kiln_tensor::backend::Backend;
use kiln_tensor::{BasicOps, Tensor};

/// A tensor on the default device.
pub fn tensor<B: Backend, const D: usize, K: BasicOps<B>>(data: impl Into<TensorData>) -> Tensor<B, D, K> {
    Tensor::from_data(data, &B::Device::default())
}

/// Asserts shape and elements.
#[track_caller]
pub fn same<B: Backend, const D: usize, K: BasicOps<B>>(
    actual: Tensor<B, D, K>,
    expected: impl Into<TensorData>,
) {
    actual.into_data().assert_eq(&expected.into(), false);
}

/// Asserts shape and elements within the tolerance for the backend's floats.
#[track_caller]
pub fn close<B: Backend, const D: usize>(actual: Tensor<B, D>, expected: impl Into<TensorData>) {
    actual.into_data().assert_approx_eq::<f32>(&expected.into(), tolerance::<B>());
}

/// What a future yields, which another thread may have to finish.
pub fn finished<T>(future: impl Future<Output = T>) -> T {
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake};
    use std::thread::Thread;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Arc::new(Unpark(std::thread::current())).into();
    let (mut future, mut task) = (std::pin::pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut task) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// What a panic says.
pub fn message_of(f: impl FnOnce()) -> String {
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("it should panic");
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}
