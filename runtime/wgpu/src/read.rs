//! Reading back.

use crate::context::Context;
use crate::memory::Memory;
use crate::statistics::count;
use kiln_gpu::promise::Promise;
use kiln_tensor::backend::ExecutionError;
use std::fmt::Display;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A buffer that parts were copied into, which is about to be mapped.
pub(crate) struct Copied {
    staging: wgpu::Buffer,
    /// Where in it the parts are.
    parts: Vec<Range<usize>>,
    mapped: Promise<Result<(), String>>,
}

/// Copies parts to where the CPU can read them; nothing is waited for.
pub(crate) fn copy(context: &Context, parts: Vec<(Memory, Range<usize>)>) -> Copied {
    // Where one of the buffers is not to be had, that is what the reader is told.
    let missing = context.why_unreadable(parts.iter().map(|(memory, _)| memory));
    count(&context.counters.waits, 1);
    // Copies start and end at multiples of 4.
    let aligned = |range: &Range<usize>| range.start / 4 * 4..range.end.next_multiple_of(4);
    let read = if missing.is_none() { &parts[..] } else { &[] };
    let total: usize = read.iter().map(|(_, range)| aligned(range).len()).sum();
    let staging = context.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("read"),
        size: total.max(4) as u64,
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let (mut places, mut at) = (Vec::with_capacity(parts.len()), 0);
    for (memory, range) in read {
        let Some(buffer) = memory.buffer() else { continue };
        let whole = aligned(range);
        if !whole.is_empty() {
            let (from, size) = ((memory.range().start + whole.start) as u64, whole.len() as u64);
            encoder.copy_buffer_to_buffer(&buffer.raw, from, &staging, at as u64, Some(size));
        }
        let start = at + range.start - whole.start;
        places.push(start..start + range.len());
        at += whole.len();
    }
    context.queue.submit([encoder.finish()]);
    let mapped = Promise::default();
    if let Some(reason) = missing {
        mapped.keep(Err(reason.to_string()));
    }
    let signal = mapped.clone();
    staging.slice(..).map_async(wgpu::MapMode::Read, move |result| {
        signal.keep(result.map_err(|error| error.to_string()));
    });
    Copied { staging, parts: places, mapped }
}

impl Copied {
    /// Waits for the device on a thread of its own, as only browsers do by themselves.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn wait_on_a_thread(&self, context: &Context) {
        let (device, mapped) = (context.device.clone(), self.mapped.clone());
        std::thread::spawn(move || {
            if let Err(reason) = poll(&device) {
                mapped.keep(Err(reason));
            }
        });
    }

    /// What was copied, once it is there.
    pub async fn bytes(self, context: Arc<Context>) -> Result<Vec<Vec<u8>>, ExecutionError> {
        let mapped = self.mapped.await;
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
    let waited = poll(&context.device);
    context.check()?;
    waited.map_err(|reason| ExecutionError { device: context.name.clone(), reason })
}

/// Waits until a device has done all that was submitted.
pub(crate) fn poll(device: &wgpu::Device) -> Result<(), String> {
    answered(|| device.poll(wgpu::PollType::wait_indefinitely()))
}

/// What came of waiting. `wgpu` panics where a driver says meanwhile that the device is lost, which is an error like others here.
fn answered<T, E: Display>(wait: impl FnOnce() -> Result<T, E>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(wait)) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(payload) => {
            let message = payload.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| payload.downcast_ref::<&str>().copied());
            Err(message.unwrap_or("the driver gave up while it was waited for").to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::answered;

    #[test]
    fn a_device_that_is_lost_while_it_is_waited_for_is_an_error() {
        assert_eq!(answered(|| Ok::<_, String>(1)), Ok(()));
        assert_eq!(answered(|| Err::<u8, _>("a timeout")), Err("a timeout".to_owned()));
        let lost = answered(|| -> Result<u8, String> { panic!("Error in Device::poll: it is lost") });
        assert_eq!(lost, Err("Error in Device::poll: it is lost".to_owned()));
    }
}
