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

/// Buffers that parts were copied into, which are about to be mapped.
pub(crate) struct Copied {
    staging: Vec<Staging>,
    /// In which of the buffers the parts are, and where in it.
    parts: Vec<(usize, Range<usize>)>,
    /// Why nothing was copied, if it was not.
    missing: Option<String>,
}

/// A buffer that the CPU can read once it is mapped.
struct Staging {
    buffer: wgpu::Buffer,
    mapped: Promise<Result<(), String>>,
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Nobody else has it, and what is copied into it is submitted. A browser would keep it until it looks for what nothing refers to.
        self.buffer.destroy();
    }
}

/// Where parts of such lengths go, one behind another in as few buffers of at most so many bytes as that takes: the bytes of each buffer,
/// of which there is one at least, and in which of them and from where on each part is.
fn placed(lengths: impl Iterator<Item = usize>, most: usize) -> (Vec<usize>, Vec<(usize, usize)>) {
    let (mut full, mut last) = (Vec::new(), 0_usize);
    let place = |length: usize| {
        if last > 0 && last.saturating_add(length) > most {
            full.push(std::mem::take(&mut last));
        }
        let place = (full.len(), last);
        last += length;
        place
    };
    let places = lengths.map(place).collect();
    full.push(last);
    (full, places)
}

/// Copies parts to where the CPU can read them; nothing is waited for.
pub(crate) fn copy(context: &Context, parts: Vec<(Memory, Range<usize>)>) -> Copied {
    count(&context.counters.waits, 1);
    // Where one of the buffers is not to be had, that is what the reader is told.
    let missing = context.why_unreadable(parts.iter().map(|(memory, _)| memory));
    let none = |missing: String| Copied { staging: Vec::new(), parts: Vec::new(), missing: Some(missing) };
    if let Some(missing) = missing {
        return none(missing.to_string());
    }
    // Copies start and end at multiples of 4.
    let aligned = |range: &Range<usize>| range.start / 4 * 4..range.end.next_multiple_of(4);
    let most = usize::try_from(context.largest / 4 * 4).unwrap_or(usize::MAX);
    let (sizes, places) = placed(parts.iter().map(|(_, range)| aligned(range).len()), most);
    let made = |size: usize| {
        Ok(Staging { buffer: context.staging(size.max(4) as u64)?, mapped: Promise::default() })
    };
    let staging: Vec<Staging> = match sizes.into_iter().map(made).collect() {
        Ok(staging) => staging,
        Err(reason) => return none(reason),
    };
    let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let copy = |((memory, range), (place, at)): (&(Memory, Range<usize>), (usize, usize))| {
        let whole = aligned(range);
        if let Some(buffer) = memory.buffer().filter(|_| !whole.is_empty()) {
            let (from, size) = ((memory.range().start + whole.start) as u64, whole.len() as u64);
            let to = &staging[place].buffer;
            encoder.copy_buffer_to_buffer(&buffer.raw, from, to, at as u64, Some(size));
        }
        let start = at + range.start - whole.start;
        (place, start..start + range.len())
    };
    let places = parts.iter().zip(places).map(copy).collect();
    context.queue.submit([encoder.finish()]);
    for Staging { buffer, mapped } in &staging {
        let signal = mapped.clone();
        buffer.slice(..).map_async(wgpu::MapMode::Read, move |result| {
            signal.keep(result.map_err(|error| error.to_string()));
        });
    }
    Copied { staging, parts: places, missing: None }
}

impl Copied {
    /// Waits for the device on a thread of its own, as only browsers do by themselves.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn wait_on_a_thread(&self, context: &Context) {
        let device = context.device.clone();
        let mapped: Vec<_> = self.staging.iter().map(|staging| staging.mapped.clone()).collect();
        let fail = move |reason: String| mapped.iter().for_each(|mapped| mapped.keep(Err(reason.clone())));
        let told = fail.clone();
        let waiting = std::thread::Builder::new().spawn(move || poll(&device).unwrap_or_else(told));
        if let Err(error) = waiting {
            fail(format!("the system has no thread to wait for the GPU: {error}"));
        }
    }

    /// What was copied, once it is there.
    pub async fn bytes(self, context: Arc<Context>) -> Result<Vec<Vec<u8>>, ExecutionError> {
        let mut mapped = self.missing.map_or(Ok(()), Err);
        for staging in &self.staging {
            mapped = mapped.and(staging.mapped.clone().await);
        }
        // What failed before explains why a buffer cannot be mapped.
        context.check()?;
        let failed = |reason: String| ExecutionError { device: context.name.clone(), reason };
        mapped.map_err(failed)?;
        let view = |staging: &Staging| staging.buffer.slice(..).get_mapped_range();
        let views: Result<Vec<_>, _> = self.staging.iter().map(view).collect();
        let views = views.map_err(|error| failed(error.to_string()))?;
        Ok(self.parts.into_iter().map(|(place, part)| views[place][part].to_vec()).collect())
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
    use super::{answered, copy, placed};
    use crate::context::Context;
    use crate::device::{WgpuDevice, open};
    use kiln_gpu::promise::block_on;
    use std::sync::Arc;

    /// A device whose buffers are small.
    fn small(largest: u64) -> Arc<Context> {
        let mut context = block_on(open(&WgpuDevice::default())).expect("a device");
        context.largest = largest;
        Arc::new(context)
    }

    #[test]
    fn parts_go_one_behind_another_into_buffers_that_hold_them() {
        let placed = |lengths: &[usize]| placed(lengths.iter().copied(), 100);
        assert_eq!(placed(&[]), (vec![0], vec![]));
        assert_eq!(placed(&[0, 0]), (vec![0], vec![(0, 0), (0, 0)]));
        assert_eq!(placed(&[40, 60, 4]), (vec![100, 4], vec![(0, 0), (0, 40), (1, 0)]));
        assert_eq!(placed(&[4, 100, 0, 100]), (vec![4, 100, 100], vec![(0, 0), (1, 0), (1, 100), (2, 0)]));
    }

    #[test]
    fn what_is_read_at_once_may_be_more_than_a_buffer_holds() {
        let context = small(1024);
        let tensor =
            |first: u8, bytes: usize| (0..bytes).map(|n| first.wrapping_add(n as u8)).collect::<Vec<_>>();
        let tensors = [tensor(1, 602), tensor(5, 1024), tensor(9, 8), tensor(7, 0), tensor(2, 500)];
        let parts = tensors.iter().map(|bytes| (context.upload(bytes), 0..bytes.len())).collect();
        let copied = copy(&context, parts);
        assert_eq!(copied.staging.len(), 3);
        let staging: Vec<_> = copied.staging.iter().map(|staging| staging.buffer.clone()).collect();
        copied.wait_on_a_thread(&context);
        assert_eq!(block_on(copied.bytes(context.clone())).expect("a device"), tensors);
        assert!(staging.iter().all(|buffer| context.is_destroyed(buffer)));

        // Nor is one that is not waited for left behind.
        let copied = copy(&context, vec![(context.upload(&tensors[0]), 3..5)]);
        let staging = copied.staging[0].buffer.clone();
        assert!(!context.is_destroyed(&staging));
        drop(copied);
        assert!(context.is_destroyed(&staging));
        context.check().expect("nothing went wrong");
    }

    #[test]
    fn a_device_that_is_lost_while_it_is_waited_for_is_an_error() {
        assert_eq!(answered(|| Ok::<_, String>(1)), Ok(()));
        assert_eq!(answered(|| Err::<u8, _>("a timeout")), Err("a timeout".to_owned()));
        let lost = answered(|| -> Result<u8, String> { panic!("Error in Device::poll: it is lost") });
        assert_eq!(lost, Err("Error in Device::poll: it is lost".to_owned()));
    }
}
