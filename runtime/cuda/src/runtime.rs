//! What the operations ask of a device.

use crate::CudaTensor;
use crate::context::Context;
use crate::device::{CudaDevice, expect, expect_context};
use crate::graph::salt;
use crate::memory::Memory;
use kiln_gpu::language::{Factors, Storage};
use kiln_gpu::promise::Promise;
use kiln_gpu::runtime::{
    Amendment, Convolution, ConvolutionShape, Derived, Last, Launch, Limits, MatrixProduct, Numbers, Runtime,
    Way,
};
use kiln_tensor::DType;
use kiln_tensor::backend::ExecutionError;
use kiln_tensor::compose::Draws;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;

std::thread_local! {
    /// The random numbers of devices on which this thread has a sequence of its own.
    static OWN: RefCell<HashMap<CudaDevice, Draws>> = RefCell::default();
}

/// GPUs by way of CUDA.
#[derive(Clone, Copy, Debug, Default)]
pub struct CudaRuntime;

impl Runtime for CudaRuntime {
    type Device = CudaDevice;
    type Memory = Memory;

    fn name(device: &CudaDevice) -> String {
        format!("cuda ({})", expect_context(device).name)
    }

    fn limits(device: &CudaDevice) -> Limits {
        expect(device, |context| context.limits())
    }

    fn supports(_device: &CudaDevice, storage: Storage) -> bool {
        match storage {
            Storage::F64
            | Storage::F32
            | Storage::F16
            | Storage::BF16
            | Storage::I64
            | Storage::I32
            | Storage::I16
            | Storage::I8
            | Storage::U64
            | Storage::U32
            | Storage::U16
            | Storage::U8
            | Storage::Bool => true,
        }
    }

    fn allocate(device: &CudaDevice, bytes: usize) -> Memory {
        expect_context(device).allocate(bytes)
    }

    fn upload(device: &CudaDevice, bytes: &[u8]) -> Memory {
        expect_context(device).upload(bytes)
    }

    fn copy_between(from: &CudaDevice, part: &(Memory, Range<usize>), to: &CudaDevice) -> Option<Memory> {
        expect_context(to).copy_from(&expect_context(from), part)
    }

    fn all_reduce(devices: &[CudaDevice], sets: &[Vec<Numbers<Self>>]) -> bool {
        let contexts: Vec<_> = devices.iter().map(expect_context).collect();
        Context::all_reduce(&contexts, sets)
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

    fn launch(device: &CudaDevice, launch: Launch<'_, Self>) {
        expect_context(device).record(launch);
    }

    fn product(device: &CudaDevice, product: &MatrixProduct<'_, Self>) -> bool {
        expect_context(device).product(product)
    }

    fn convolution(device: &CudaDevice, convolution: &Convolution<'_, Self>) -> bool {
        expect_context(device).convolution(convolution)
    }

    fn channels_if_last(device: &CudaDevice, shape: &ConvolutionShape<'_>) -> Option<usize> {
        expect_context(device).channels_if_last(shape)
    }

    fn fastest(
        device: &CudaDevice,
        class: &str,
        ways: &[Way<'_>],
        run: &mut dyn FnMut(usize) -> bool,
    ) -> usize {
        expect_context(device).fastest(class, ways, run)
    }

    fn factors(device: &CudaDevice, dtype: DType) -> Option<Factors> {
        expect(device, |context| context.factors(dtype))
    }

    fn amend<'a>(
        device: &CudaDevice,
        memory: &mut Memory,
        elements: usize,
        with: impl FnOnce(Last<'_, Self>) -> Option<Amendment<'a, Self>>,
    ) -> bool {
        expect_context(device).amend(memory, elements, with)
    }

    fn download(
        device: &CudaDevice,
        parts: Vec<(Memory, Range<usize>)>,
    ) -> impl Future<Output = Result<Vec<Vec<u8>>, ExecutionError>> + Send {
        let context = expect_context(device);
        let pending = context.read(&parts);
        let promise = Promise::default();
        let kept = promise.clone();
        // The driver has no future: a thread waits for it.
        let device = context.clone();
        let waiting = std::thread::Builder::new().spawn(move || kept.keep(device.finish(pending)));
        if let Err(error) = waiting {
            promise.keep(Err(context.error(format!("the system has no thread to wait for it: {error}"))));
        }
        promise
    }

    fn download_now(
        device: &CudaDevice,
        parts: Vec<(Memory, Range<usize>)>,
    ) -> Result<Vec<Vec<u8>>, ExecutionError> {
        let context = expect_context(device);
        context.finish(context.read(&parts))
    }

    fn sync(device: &CudaDevice) -> Result<(), ExecutionError> {
        expect_context(device).sync()
    }

    fn random_key(device: &CudaDevice) -> u64 {
        let own = OWN.with_borrow_mut(|own| own.get_mut(device).map(Draws::next_key));
        own.unwrap_or_else(|| expect_context(device).random_key())
    }

    fn salt(device: &CudaDevice) -> Option<CudaTensor> {
        salt::current(device)
    }

    fn seed_thread(device: &CudaDevice, seed: Option<u64>) {
        OWN.with_borrow_mut(|own| match seed {
            Some(seed) => own.insert(*device, Draws::new(seed)),
            None => own.remove(device),
        });
    }

    fn seed(device: &CudaDevice, seed: u64) {
        expect_context(device).seed(seed);
    }
}
