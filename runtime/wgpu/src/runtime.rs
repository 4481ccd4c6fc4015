//! What the operations ask of a device.

use crate::device::{WgpuDevice, expect_context};
use crate::memory::Memory;
use crate::read;
use kiln_gpu::language::Storage;
use kiln_gpu::promise::block_on;
use kiln_gpu::runtime::{Amendment, Derived, Last, Launch, Limits, Runtime, Way};
use kiln_tensor::backend::ExecutionError;
use kiln_tensor::compose::Draws;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;

std::thread_local! {
    /// The random numbers of devices on which this thread has a sequence of its own.
    static OWN: RefCell<HashMap<WgpuDevice, Draws>> = RefCell::default();
}

/// GPUs by way of `wgpu`.
#[derive(Clone, Copy, Debug, Default)]
pub struct WgpuRuntime;

impl Runtime for WgpuRuntime {
    type Device = WgpuDevice;
    type Memory = Memory;

    fn name(device: &WgpuDevice) -> String {
        format!("wgpu ({})", expect_context(device).name)
    }

    fn limits(device: &WgpuDevice) -> Limits {
        expect_context(device).limits()
    }

    fn supports(device: &WgpuDevice, storage: Storage) -> bool {
        let has = |features| expect_context(device).numbers.contains(features);
        match storage {
            Storage::F16 => has(wgpu::Features::SHADER_F16),
            Storage::F64 => has(wgpu::Features::SHADER_F64 | wgpu::Features::SHADER_INT64),
            // Where shaders have no integers of 64 bits, they compute with pairs of words.
            Storage::I64 | Storage::U64 => true,
            Storage::F32 | Storage::I32 | Storage::U32 | Storage::Bool => true,
            // WGSL has none of them.
            Storage::BF16 | Storage::I16 | Storage::I8 | Storage::U16 | Storage::U8 => false,
        }
    }

    fn allocate(device: &WgpuDevice, bytes: usize) -> Memory {
        expect_context(device).allocate(bytes)
    }

    fn upload(device: &WgpuDevice, bytes: &[u8]) -> Memory {
        expect_context(device).upload(bytes)
    }

    fn bytes(memory: &Memory) -> usize {
        memory.range().len()
    }

    fn window(memory: &Memory, range: Range<usize>) -> Memory {
        memory.window(range)
    }

    fn is_unique(memory: &mut Memory) -> bool {
        memory.is_unique()
    }

    fn derived(memory: &Memory, what: Derived, make: impl FnOnce() -> Memory) -> Memory {
        memory.derived(what, make)
    }

    fn forget_derived(memory: &Memory) {
        memory.forget_derived();
    }

    fn launch(device: &WgpuDevice, launch: Launch<'_, Self>) {
        expect_context(device).record(launch);
    }

    fn amend<'a>(
        device: &WgpuDevice,
        memory: &mut Memory,
        elements: usize,
        with: impl FnOnce(Last<'_, Self>) -> Option<Amendment<'a, Self>>,
    ) -> bool {
        expect_context(device).amend(memory, elements, with)
    }

    fn fastest(
        device: &WgpuDevice,
        class: &str,
        ways: &[Way<'_>],
        run: &mut dyn FnMut(usize) -> bool,
    ) -> usize {
        expect_context(device).fastest(class, ways, run)
    }

    fn download(
        device: &WgpuDevice,
        parts: Vec<(Memory, Range<usize>)>,
    ) -> impl Future<Output = Result<Vec<Vec<u8>>, ExecutionError>> + Send {
        let context = expect_context(device);
        let copied = read::copy(&context, parts);
        #[cfg(not(target_arch = "wasm32"))]
        copied.wait_on_a_thread(&context);
        copied.bytes(context)
    }

    fn download_now(
        device: &WgpuDevice,
        parts: Vec<(Memory, Range<usize>)>,
    ) -> Result<Vec<Vec<u8>>, ExecutionError> {
        let context = expect_context(device);
        read::can_wait(&context)?;
        let copied = read::copy(&context, parts);
        if let Err(reason) = read::poll(&context.device) {
            context.check()?;
            return Err(ExecutionError { device: context.name.clone(), reason });
        }
        block_on(copied.bytes(context))
    }

    fn sync(device: &WgpuDevice) -> Result<(), ExecutionError> {
        read::wait(&expect_context(device))
    }

    fn random_key(device: &WgpuDevice) -> u64 {
        let own = OWN.with_borrow_mut(|own| own.get_mut(device).map(Draws::next_key));
        own.unwrap_or_else(|| expect_context(device).random_key())
    }

    fn seed_thread(device: &WgpuDevice, seed: Option<u64>) {
        OWN.with_borrow_mut(|own| match seed {
            Some(seed) => own.insert(*device, Draws::new(seed)),
            None => own.remove(device),
        });
    }

    fn seed(device: &WgpuDevice, seed: u64) {
        expect_context(device).seed(seed);
    }
}
