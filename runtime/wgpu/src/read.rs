//! Reading back.

use crate::context::Context;
use crate::memory::Memory;
use crate::statistics::count;
use kiln_tensor::backend::ExecutionError;
use std::future::Future;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::Thread;

/// A buffer that parts were copied into, which is about to be mapped.
pub(crate) struct Copied {
    staging: wgpu::Buffer,
    /// Where in it the parts are.
    parts: Vec<Range<usize>>,
    mapped: Mapped,
}

/// Copies parts to where the CPU can read them; nothing is waited for.
pub(crate) fn copy(context: &Context, parts: Vec<(Memory, Range<usize>)>) -> Copied {
    context.submit();
    count(&context.counters.waits, 1);
    // Copies start and end at multiples of 4.
    let aligned = |range: &Range<usize>| range.start / 4 * 4..range.end.next_multiple_of(4);
    let total: usize = parts.iter().map(|(_, range)| aligned(range).len()).sum();
    let staging = context.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("read"),
        size: total.max(4) as u64,
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let (mut places, mut at) = (Vec::with_capacity(parts.len()), 0);
    for (memory, range) in &parts {
        let whole = aligned(range);
        if let Some(buffer) = memory.block.buffer().filter(|_| !whole.is_empty()) {
            let (from, size) = ((memory.range.start + whole.start) as u64, whole.len() as u64);
            encoder.copy_buffer_to_buffer(&buffer.raw, from, &staging, at as u64, Some(size));
        }
        let start = at + range.start - whole.start;
        places.push(start..start + range.len());
        at += whole.len();
    }
    context.queue.submit([encoder.finish()]);
    let mapped = Mapped::default();
    let signal = mapped.clone();
    staging.slice(..).map_async(wgpu::MapMode::Read, move |result| {
        signal.set(result.map_err(|error| error.to_string()));
    });
    Copied { staging, parts: places, mapped }
}

impl Copied {
    /// What was copied, once it is there.
    pub async fn bytes(self, context: Arc<Context>) -> Result<Vec<Vec<u8>>, ExecutionError> {
        let mapped = self.mapped.clone().await;
        // What failed before explains why a buffer cannot be mapped.
        context.check()?;
        let failed = |reason: String| ExecutionError { device: context.name.clone(), reason };
        mapped.map_err(failed)?;
        let view = self.staging.slice(..).get_mapped_range().map_err(|error| failed(error.to_string()))?;
        let bytes: Vec<u8> = view.to_vec();
        Ok(self.parts.into_iter().map(|part| bytes[part].to_vec()).collect())
    }
}

/// An error where a thread cannot wait for the device: in browsers, where only what is asynchronous reads.
pub(crate) fn can_wait(context: &Context) -> Result<(), ExecutionError> {
    if cfg!(target_arch = "wasm32") {
        let reason = String::from(
            "a browser lets no thread wait for the GPU: read with `into_data_async`, and run models whose shapes depend \
             on their data with `forward_async`",
        );
        return Err(ExecutionError { device: context.name.clone(), reason });
    }
    Ok(())
}

/// Waits until everything that was submitted has run.
pub(crate) fn wait(context: &Context) -> Result<(), ExecutionError> {
    context.submit();
    context.check()?;
    can_wait(context)?;
    count(&context.counters.waits, 1);
    let waited = context.device.poll(wgpu::PollType::wait_indefinitely());
    context.check()?;
    waited.map_err(|error| ExecutionError { device: context.name.clone(), reason: error.to_string() })?;
    Ok(())
}

/// Tells when a buffer is mapped.
#[derive(Clone, Default)]
struct Mapped(Arc<Mutex<Signal>>);

#[derive(Default)]
struct Signal {
    result: Option<Result<(), String>>,
    /// Who waits for it.
    waker: Option<Waker>,
}

impl Mapped {
    fn set(&self, result: Result<(), String>) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.result = Some(result);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Mapped {
    type Output = Result<(), String>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.result.take() {
            Some(result) => Poll::Ready(result),
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
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut task = TaskContext::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut task) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
