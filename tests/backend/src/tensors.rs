//! Tests of `Tensor` and of the functions over it.

pub mod arguments;
pub mod basics;
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

/// Waits for nothing: what is ready at once.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    use std::task::{Context, Poll, Waker};
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the device is not done"),
    }
}

/// What a panic says.
pub fn message_of(f: impl FnOnce()) -> String {
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("it should panic");
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}
