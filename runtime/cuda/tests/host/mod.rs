//! A device that is no GPU, for the backend to run on in place of NVIDIA's driver. Its memory starts with NaNs.

#![allow(dead_code, reason = "each test uses what it needs")]

pub mod numbers;

use kiln_cuda::cache::{Cache, FOLDER};
use kiln_cuda::driver::{
    Address, Captured, Convolution, ConvolutionShape, Driver, DriverError, Function, KernelLaunch, Matrices,
    Numbers, Pending, Product, Written,
};
use kiln_cuda::{CudaDevice, InitError};
use kiln_cuda_host::{self as kernels, HostFunction};
use kiln_gpu::language::Factors;
use kiln_tensor::{Activation, DType, bf16, f16};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// What a test says goes wrong.
#[derive(Default)]
pub struct Faults {
    /// Bytes of memory that the device has, if not as many as the host.
    pub memory: Option<u64>,
    /// Bytes of that which a kernel needs as it is loaded, and as it is launched, and a graph as it is made, beside what was allocated.
    pub code: u64,
    /// Why the next launch fails, and all that is asked for then.
    pub launch: Option<&'static str>,
    /// Whether that is a fault of a kernel.
    pub is_fault: bool,
    /// Why no kernel can be loaded, and whether for want of memory.
    pub load: Option<(&'static str, bool)>,
    /// Whether there is a library for products.
    pub library: bool,
    /// How long each of the library's ways takes, the one that it advises first before the others; it has one unless there are more.
    pub ways: Vec<Duration>,
    /// Whether there is a library that adds up over devices, or why it fails.
    pub sums: Option<Result<(), &'static str>>,
    /// How much longer than usual each kernel takes.
    pub kernels: Duration,
    /// What is done before the device opens.
    pub opening: Option<Box<dyn FnOnce() + Send>>,
    /// What is done while somebody waits for the device.
    pub waiting: Option<Box<dyn FnOnce() + Send>>,
    /// What was asked for, in words, where a test wants to know.
    pub asked: Option<Vec<String>>,
}

#[derive(Default)]
struct State {
    /// Where memory begins, and its bytes.
    allocated: BTreeMap<u64, u64>,
    used: u64,
    functions: Vec<Arc<HostFunction>>,
    written: Option<Vec<Work>>,
    /// What was written down, and not discarded.
    ended: HashMap<u64, Arc<Vec<Work>>>,
    /// What runs of it.
    graphs: HashMap<u64, Arc<Vec<Work>>>,
    next_graph: u64,
    broken: Option<&'static str>,
    /// How often the device was given up.
    closed: u64,
    pub faults: Faults,
}

/// A device on the host, for as long as it is not given up.
pub struct Host {
    state: &'static Mutex<State>,
    /// How often it had been given up before.
    opened: u64,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Host")
    }
}

/// A launch that was written down.
struct Owned {
    function: Function,
    blocks: [u32; 3],
    threads: [u32; 2],
    buffers: Vec<Address>,
    words: Vec<u32>,
}

impl Owned {
    fn run(&self, function: &HostFunction) -> Result<(), DriverError> {
        let buffers: Vec<u64> = self.buffers.iter().map(|address| address.0).collect();
        kernels::run(function, self.blocks, self.threads, &buffers, &self.words)
            .map_err(|said| error("launch", said))
    }
}

/// What was written down.
enum Work {
    Launch(Owned),
    /// With how long it takes.
    Product(Product, Duration),
}

const ALIGNMENT: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The host's devices, two of them.
fn devices() -> &'static [Mutex<State>; 2] {
    static DEVICES: OnceLock<[Mutex<State>; 2]> = OnceLock::new();
    DEVICES.get_or_init(Default::default)
}

/// Has the backend use it, before the first test runs.
#[used]
#[unsafe(link_section = ".init_array")]
static INSTALL: extern "C" fn() = install;

extern "C" fn install() {
    // `scripts/cuda.sh` runs the suite on a GPU.
    if std::env::var_os("KILN_CUDA_TESTS").is_some_and(|value| value == "device") {
        return;
    }
    kiln_cuda::open_with(|index| match devices().get(index) {
        Some(state) => {
            let opening = lock(state).faults.opening.take();
            opening.into_iter().for_each(|opening| opening());
            Ok(Arc::new(Host { state, opened: lock(state).closed }) as Arc<dyn Driver>)
        }
        None => Err(InitError::NotFound { index, found: devices().len() }),
    });
}

/// Changes what goes wrong on a device.
pub fn faults<T>(device: &CudaDevice, change: impl FnOnce(&mut Faults) -> T) -> T {
    change(&mut lock(&devices()[device.index]).faults)
}

/// Whether the device is as good as new, and has it be so again.
pub fn mend(device: &CudaDevice) {
    let mut state = lock(&devices()[device.index]);
    state.broken = None;
    state.faults = Faults::default();
}

fn error(call: &'static str, reason: impl Into<String>) -> DriverError {
    DriverError { call, reason: reason.into(), is_out_of_memory: false, is_fault: false }
}

/// Where compiled kernels are kept between runs.
fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    std::fs::create_dir_all(&folder).expect("a folder for kernels");
    folder
}

/// The compiler's name and version, and those of what it compiles kernels with: a library of before serves those alone.
fn compiler() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let output =
            Command::new("c++").arg("--version").output().expect("a C++ compiler, as Debian's `g++` is");
        let said = String::from_utf8_lossy(&output.stdout);
        let mut hasher = DefaultHasher::new();
        (kernels::SHIM, kernels::MATRICES).hash(&mut hasher);
        format!("{}, {:016x}", said.lines().next().unwrap_or_default(), hasher.finish())
    })
}

impl Host {
    /// What is known of the device, unless it was given up.
    fn here(&self) -> Result<MutexGuard<'static, State>, DriverError> {
        let state = lock(self.state);
        if state.closed == self.opened { Ok(state) } else { Err(error("device", "it was given up")) }
    }

    /// The same, unless it failed.
    fn whole(&self) -> Result<MutexGuard<'static, State>, DriverError> {
        let state = self.here()?;
        let is_fault = state.faults.is_fault;
        state.broken.map_or(Ok(()), |reason| Err(DriverError { is_fault, ..error("device", reason) }))?;
        Ok(state)
    }
}

impl State {
    /// Whether it is memory that was not given back.
    fn is_there(&self, address: Address) -> bool {
        let before = self.allocated.range(..=address.0).next_back();
        before.is_some_and(|(start, bytes)| address.0 < start + bytes)
    }

    /// Whether all bytes of a range are such.
    fn holds(&self, range: &Range<u64>) -> bool {
        let before = self.allocated.range(..=range.start).next_back();
        before.is_some_and(|(start, bytes)| range.end <= start + bytes)
    }

    /// Whether all memory is there that a launch is given; of a table, the addresses are among the words.
    fn has_memory_of(&self, owned: &Owned) -> Result<(), DriverError> {
        let buffers: Vec<u64> = owned.buffers.iter().map(|address| address.0).collect();
        let function = &self.functions[owned.function.0 as usize];
        let given = kernels::given(function, &buffers, &owned.words);
        let all = given.iter().flatten().all(|given| self.holds(&given.memory));
        match all && owned.buffers.iter().all(|&address| self.is_there(address)) {
            true => Ok(()),
            false => Err(error("launch", "a kernel is given memory that was given back")),
        }
    }

    /// Whether there is memory for the code of a kernel.
    fn has_room(&self, call: &'static str) -> Result<(), DriverError> {
        let code = self.faults.code;
        match code > 0 && self.faults.memory.is_some_and(|memory| self.used + code > memory) {
            true => Err(DriverError { is_out_of_memory: true, ..error(call, "out of memory") }),
            false => Ok(()),
        }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(asked) = &mut self.faults.asked {
            asked.push(what());
        }
    }
}

impl Driver for Host {
    fn name(&self) -> String {
        String::from("the host")
    }

    fn architecture(&self) -> String {
        std::env::consts::ARCH.to_owned()
    }

    fn compiler(&self) -> String {
        compiler().to_owned()
    }

    fn cache(&self) -> Option<Cache> {
        // One that starts empty, if a test says where.
        std::env::var_os(FOLDER).map_or_else(|| Some(Cache::new(folder())), |_| Cache::of_user())
    }

    fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
        let mut state = self.whole()?;
        if state.faults.memory.is_some_and(|memory| state.used + bytes > memory) {
            return Err(DriverError { is_out_of_memory: true, ..error("allocate", "out of memory") });
        }
        let layout = Layout::from_size_align(bytes as usize, ALIGNMENT).expect("a size");
        // SAFETY: the layout has a size.
        let start = unsafe { alloc(layout) };
        assert!(!start.is_null());
        // SAFETY: there are so many bytes.
        unsafe { start.write_bytes(0xff, bytes as usize) };
        state.used += bytes;
        state.allocated.insert(start as u64, bytes);
        state.note(|| format!("allocate {bytes}"));
        Ok(Address(start as u64))
    }

    fn free(&self, address: Address) -> Result<(), DriverError> {
        let mut state = self.here()?;
        let bytes = state.allocated.remove(&address.0).expect("what was allocated");
        state.used -= bytes;
        state.note(|| format!("free {bytes}"));
        let layout = Layout::from_size_align(bytes as usize, ALIGNMENT).expect("a size");
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(address.0 as *mut u8, layout) };
        Ok(())
    }

    fn trim(&self) -> Result<(), DriverError> {
        self.synchronize()
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>, DriverError> {
        kernels::compile(source, &folder()).map_err(|said| error("compile", said))
    }

    fn load(&self, image: &[u8], _entry_point: &str) -> Result<Function, DriverError> {
        let mut state = self.here()?;
        if let Some((reason, is_out_of_memory)) = state.faults.load {
            return Err(DriverError { is_out_of_memory, ..error("load", reason) });
        }
        state.has_room("load")?;
        let function = kernels::load(image, &folder()).map_err(|said| error("load", said))?;
        state.functions.push(Arc::new(function));
        Ok(Function(state.functions.len() as u64 - 1))
    }

    fn launch(&self, launch: &KernelLaunch<'_>) -> Result<(), DriverError> {
        let mut state = self.whole()?;
        state.note(|| format!("launch {:?} × {:?}", launch.blocks, launch.threads));
        if let Some(reason) = state.faults.launch.take() {
            state.broken = Some(reason);
            return Err(DriverError { is_fault: state.faults.is_fault, ..error("launch", reason) });
        }
        let owned = Owned {
            function: launch.function,
            blocks: launch.blocks,
            threads: launch.threads,
            buffers: launch.buffers.to_vec(),
            words: launch.words.to_vec(),
        };
        state.has_memory_of(&owned)?;
        if let Some(written) = &mut state.written {
            written.push(Work::Launch(owned));
            return Ok(());
        }
        state.has_room("launch")?;
        let (function, longer) = (state.functions[launch.function.0 as usize].clone(), state.faults.kernels);
        drop(state);
        std::thread::sleep(longer);
        owned.run(&function)
    }

    fn multiprocessors(&self) -> u32 {
        // So many that products of tests are divided among them.
        16
    }

    fn multiplies(&self, _factors: Factors) -> bool {
        true
    }

    fn takes_product(&self, product: &Product) -> bool {
        // Alone and behind nothing but this.
        let has_it = product.activation.is_none_or(|activation| activation == Activation::GeluTanh);
        has_it && self.whole().is_ok_and(|state| state.faults.library)
    }

    fn product(&self, product: &Product, way: usize) -> Result<bool, DriverError> {
        let mut state = self.whole()?;
        let tf32 = if product.tf32 { " in tf32" } else { "" };
        let took = state.faults.ways.get(way).copied();
        let Some(takes) = took.or((way == 0).then_some(Duration::ZERO)) else { return Ok(false) };
        let by = if way == 0 { String::new() } else { format!(" in way {way}") };
        state.note(|| format!("product {:?} × {}{tf32}{by}", product.size, product.count));
        if let Some(written) = &mut state.written {
            written.push(Work::Product(*product, takes));
            return Ok(true);
        }
        drop(state);
        multiply(product);
        std::thread::sleep(takes);
        Ok(true)
    }

    fn channels_if_last(&self, _shape: &ConvolutionShape) -> Option<usize> {
        None
    }

    fn convolve(&self, _convolution: &Convolution, _way: usize) -> Result<bool, DriverError> {
        Ok(false)
    }

    fn libraries(&self) -> String {
        String::from("a library")
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        let _state = self.whole()?;
        // SAFETY: the memory has room for the bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.0 as *mut u8, bytes.len()) };
        Ok(())
    }

    fn download(&self, parts: &[(Address, usize)]) -> Result<Box<dyn Pending>, DriverError> {
        let state = self.whole()?;
        assert!(state.written.is_none(), "a read while launches are written down");
        // SAFETY: the memory holds so many bytes.
        let part = |&(from, bytes): &(Address, usize)| unsafe {
            std::slice::from_raw_parts(from.0 as *const u8, bytes).to_vec()
        };
        Ok(Box::new(Read { of: self.state, parts: parts.iter().map(part).collect() }))
    }

    fn copy_from(
        &self,
        to: Address,
        other: &dyn Driver,
        from: Address,
        bytes: usize,
    ) -> Result<bool, DriverError> {
        let other: &dyn std::any::Any = other;
        let other = other.downcast_ref::<Self>().expect("a device of the host's");
        drop(other.whole()?);
        self.whole()?.note(|| format!("copy {bytes}"));
        // SAFETY: both memories have room for the bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.0 as *const u8, to.0 as *mut u8, bytes) };
        Ok(true)
    }

    fn all_reduce(&self, others: &[&dyn Driver], sets: &[Vec<Numbers>]) -> Result<bool, DriverError> {
        {
            let mut state = self.whole()?;
            let Some(works) = state.faults.sums else { return Ok(false) };
            state.note(|| format!("sums of {} × {}", sets.len(), sets[0].len()));
            works.map_err(|reason| error("all_reduce", reason))?;
        }
        for &other in others {
            let other: &dyn std::any::Any = other;
            drop(other.downcast_ref::<Self>().expect("a device of the host's").whole()?);
        }
        assert!(sets.iter().all(|set| set.len() == sets[0].len()), "sets of equal lengths");
        for place in 0..sets[0].len() {
            let numbers: Vec<Numbers> = sets.iter().map(|set| set[place]).collect();
            let Numbers { count, dtype, .. } = numbers[0];
            assert!(
                numbers.iter().all(|of| (of.count, of.dtype) == (count, dtype)),
                "equally many of one dtype"
            );
            assert_eq!(dtype, DType::F32, "what tests add");
            // SAFETY: each has so many numbers, and nobody else uses them meanwhile.
            let mut slices: Vec<&mut [f32]> = numbers
                .iter()
                .map(|of| unsafe { std::slice::from_raw_parts_mut(of.start.0 as *mut f32, count) })
                .collect();
            for at in 0..count {
                let sum = slices.iter().map(|slice| slice[at]).sum();
                slices.iter_mut().for_each(|slice| slice[at] = sum);
            }
        }
        Ok(true)
    }

    fn synchronize(&self) -> Result<(), DriverError> {
        wait(self.state);
        match self.whole()?.written {
            Some(_) => Err(error("synchronize", "launches are written down")),
            None => Ok(()),
        }
    }

    fn begin_capture(&self) -> Result<(), DriverError> {
        let mut state = self.whole()?;
        state.written = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&self) -> Result<Written, DriverError> {
        let mut state = self.here()?;
        let written = state.written.take().expect("what was begun");
        state.next_graph += 1;
        let name = state.next_graph;
        state.ended.insert(name, Arc::new(written));
        Ok(Written(name))
    }

    fn instantiate(&self, written: Written) -> Result<Captured, DriverError> {
        let mut state = self.here()?;
        state.has_room("instantiate")?;
        let work = state.ended[&written.0].clone();
        state.graphs.insert(written.0, work);
        Ok(Captured(written.0))
    }

    fn discard(&self, written: Written) {
        let discarded = self.here().map(|mut state| state.ended.remove(&written.0));
        assert!(discarded.is_ok_and(|work| work.is_some()), "it was discarded before");
    }

    fn replay(&self, captured: Captured) -> Result<(), DriverError> {
        let state = self.whole()?;
        let graph = state.graphs[&captured.0].clone();
        drop(state);
        for work in &*graph {
            match work {
                Work::Launch(owned) => {
                    let state = self.here()?;
                    state.has_memory_of(owned)?;
                    let (function, longer) =
                        (state.functions[owned.function.0 as usize].clone(), state.faults.kernels);
                    drop(state);
                    std::thread::sleep(longer);
                    owned.run(&function)?;
                }
                Work::Product(product, takes) => {
                    multiply(product);
                    std::thread::sleep(*takes);
                }
            }
        }
        Ok(())
    }

    fn forget(&self, captured: Captured) {
        if let Ok(mut state) = self.here() {
            state.graphs.remove(&captured.0).expect("a graph");
        }
    }

    fn close(&self) -> Result<(), DriverError> {
        let mut state = self.here()?;
        for (start, bytes) in std::mem::take(&mut state.allocated) {
            let layout = Layout::from_size_align(bytes as usize, ALIGNMENT).expect("a size");
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(start as *mut u8, layout) };
        }
        let (closed, next_graph, faults) =
            (state.closed + 1, state.next_graph, std::mem::take(&mut state.faults));
        *state = State { closed, next_graph, faults, ..State::default() };
        Ok(())
    }
}

/// GELU by tanh.
fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

/// What a library computes of products, from where the driver says that its operands are.
fn multiply(product: &Product) {
    let [rows, columns, depth] = product.size;
    let size = product.dtype.size();
    let read = |from: Address, element: usize| -> f64 {
        let at = from.0 as usize + element * size;
        // SAFETY: the memory holds the element.
        unsafe {
            match product.dtype {
                DType::F64 => (at as *const f64).read(),
                DType::F32 => (at as *const f32).read().into(),
                DType::F16 => (at as *const f16).read().to_f64(),
                DType::BF16 => (at as *const bf16).read().to_f64(),
                other => panic!("no products of {other}"),
            }
        }
    };
    let element = |of: &Matrices, matrix: usize, row: usize, column: usize| {
        let within = if of.transposed { column * of.leading + row } else { row * of.leading + column };
        read(of.start, matrix * of.next + within)
    };
    for matrix in 0..product.count {
        for row in 0..rows {
            for column in 0..columns {
                let term =
                    |at| element(&product.lhs, matrix, row, at) * element(&product.rhs, matrix, at, column);
                let sum: f64 = (0..depth).map(term).sum();
                let sum = sum + product.bias.map_or(0.0, |bias| read(bias, column));
                let sum = if product.activation.is_some() { gelu(sum) } else { sum };
                let at = product.out.0 as usize + ((matrix * rows + row) * columns + column) * size;
                // SAFETY: the memory has room for the element.
                unsafe {
                    match product.dtype {
                        DType::F64 => (at as *mut f64).write(sum),
                        DType::F32 => (at as *mut f32).write(sum as f32),
                        DType::F16 => (at as *mut f16).write(f16::from_f64(sum)),
                        DType::BF16 => (at as *mut bf16).write(bf16::from_f64(sum)),
                        other => panic!("no products of {other}"),
                    }
                }
            }
        }
    }
}

struct Read {
    of: &'static Mutex<State>,
    parts: Vec<Vec<u8>>,
}

impl Pending for Read {
    fn wait(self: Box<Self>) -> Result<Vec<Vec<u8>>, DriverError> {
        wait(self.of);
        Ok(self.parts)
    }
}

/// What is to be done while somebody waits.
fn wait(state: &'static Mutex<State>) {
    let waiting = lock(state).faults.waiting.take();
    if let Some(meanwhile) = waiting {
        meanwhile();
    }
}
