//! A gate in front of a model, an executor of a few lines, and rows.

use kiln_core::Tensor;
use kiln_core::tensor::TensorData;
use kiln_ndarray::NdArray;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

pub type B = NdArray;

#[derive(Default)]
struct GateState {
    is_open: bool,
    /// The shape of each pass that began.
    shapes: Vec<[usize; 2]>,
}

/// Holds a model until it is opened, and writes down what the model was given.
#[derive(Default)]
pub struct Gate(Mutex<GateState>, Condvar);

impl Gate {
    pub fn closed() -> Arc<Self> {
        Arc::default()
    }

    pub fn open(&self) {
        self.0.lock().expect("no panic inside").is_open = true;
        self.1.notify_all();
    }

    /// Waits until a pass has begun.
    pub fn entered(&self) {
        let state = self.0.lock().expect("no panic inside");
        drop(self.1.wait_while(state, |state| state.shapes.is_empty()).expect("no panic inside"));
    }

    pub fn shapes(&self) -> Vec<[usize; 2]> {
        self.0.lock().expect("no panic inside").shapes.clone()
    }

    fn pass(&self, shape: [usize; 2]) {
        let mut state = self.0.lock().expect("no panic inside");
        state.shapes.push(shape);
        self.1.notify_all();
        drop(self.1.wait_while(state, |state| !state.is_open).expect("no panic inside"));
    }
}

/// A model behind a gate.
pub fn gated(
    gate: &Arc<Gate>,
    model: impl Fn(Tensor<B, 2>) -> Tensor<B, 2> + Send + Sync + 'static,
) -> impl Fn(Tensor<B, 2>) -> Tensor<B, 2> + Send + Sync + 'static {
    let gate = gate.clone();
    move |x| {
        gate.pass(x.dims());
        model(x)
    }
}

/// A request of one row.
pub fn row(values: &[f32]) -> Tensor<B, 2> {
    Tensor::from_data(TensorData::new(values.to_vec(), [1, values.len()]), &Default::default())
}

pub fn values(tensor: Tensor<B, 2>) -> Vec<f32> {
    tensor.into_data().iter().collect()
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
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
