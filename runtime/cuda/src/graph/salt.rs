//! What makes random numbers others in each replay of a graph.
//!
//! Keys are parameters of launches, which a graph repeats as they were. While a computation is captured, its kernels mix a number into
//! them that is in memory of the graph's, and that each replay sets anew.

use crate::{Cuda, CudaDevice, CudaRuntime, CudaTensor};
use kiln_gpu::kernels::random::SALT;
use kiln_gpu::runtime::Runtime;
use kiln_tensor::backend::Backend;
use kiln_tensor::{Scalar, Shape};
use std::cell::RefCell;
use std::marker::PhantomData;

/// The salt of what this thread captures.
struct Salt {
    tensor: CudaTensor,
    is_used: bool,
}

std::thread_local! {
    static SALT_OF_CAPTURE: RefCell<Option<Salt>> = const { RefCell::new(None) };
}

/// A new salt; it follows from the random numbers of the device, or of the thread if it has a sequence of its own.
pub(super) fn drawn(device: &CudaDevice) -> CudaTensor {
    let bits = CudaRuntime::random_key(device).cast_signed();
    Cuda::<f32, i64>::full(Shape::from([1]), Scalar::Int(bits), SALT, device)
}

/// The salt for kernels that this thread launches, if it captures.
pub(crate) fn current(device: &CudaDevice) -> Option<CudaTensor> {
    SALT_OF_CAPTURE.with_borrow_mut(|salt| {
        let salt = salt.as_mut().filter(|salt| salt.tensor.device() == device)?;
        salt.is_used = true;
        Some(salt.tensor.clone())
    })
}

/// While it lives, what this thread launches is salted.
pub(super) struct Salted {
    before: Option<Salt>,
    of_thread: PhantomData<*const ()>,
}

impl Salted {
    pub fn begin(device: &CudaDevice) -> Self {
        // What is in it does not matter before the first replay.
        let salt = Salt { tensor: CudaTensor::empty(Shape::from([1]), SALT, device), is_used: false };
        let before = SALT_OF_CAPTURE.with_borrow_mut(|current| current.replace(salt));
        Self { before, of_thread: PhantomData }
    }

    /// The salt, if a kernel was given it.
    pub fn end(self) -> Option<CudaTensor> {
        let salt = SALT_OF_CAPTURE.with_borrow_mut(Option::take)?;
        salt.is_used.then_some(salt.tensor)
    }
}

impl Drop for Salted {
    fn drop(&mut self) {
        SALT_OF_CAPTURE.with_borrow_mut(|current| *current = self.before.take());
    }
}
