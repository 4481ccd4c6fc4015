//! Kernels as what the host's C++ compiler makes of them: blocks run one after another, their threads as coroutines that take turns at barriers.
//!
//! The last block runs first, and of it the last thread: nothing is right because what comes later in a tensor was written later.
//! Shared arrays start with NaNs, for each block anew; the order in which threads run changes from barrier to barrier: what reads what nobody
//! wrote, or does not wait for those who write, yields wrong numbers. Besides, whoever reads or writes a place of a shared array, or of a buffer that is
//! written, is noted (`traces.rs`): a launch fails where two threads meet at one with no barrier between (that lanes exchange numbers
//! is no barrier), at places beyond an array, and where a copy is read, or left, that nobody waited for. It also fails where no device takes it (`launch.rs`).

mod launch;
mod traces;

pub use launch::{Given, given};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kiln_gpu::language::cuda;
use std::ffi::c_void;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use traces::{Tracer, Traces};

/// A kernel that was loaded.
pub struct HostFunction {
    begin: extern "C" fn(*const [u32; 3], *const [u32; 3], extern "C" fn(*mut c_void), *const Tracer),
    thread: extern "C" fn(*const [u32; 3], *mut c_void),
    run: extern "C" fn(*const u64, *const u32),
    /// How many buffers and words it takes.
    pub arguments: [u32; 2],
    /// Words of the table that it takes instead.
    pub table: u32,
    /// Of each buffer, or each of a launch of the table, the bytes of an element, whether it is written, and which word is its last element.
    buffers: Vec<[u32; 3]>,
    /// Words of a launch of the table.
    launch_words: u32,
    /// Threads of a block at most, as the compiler was told.
    most_threads: u32,
    /// Whether there are barriers.
    waits: bool,
    /// Its place and its shared arrays are statics.
    turn: Mutex<()>,
}

/// What a kernel's buffers and words are called and are.
struct Arguments<'a> {
    /// Each buffer's pointer and name.
    buffers: Vec<(&'a str, &'a str)>,
    /// Each word's type and name.
    words: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    fn of(declared: &'a str) -> Self {
        let (mut buffers, mut words) = (Vec::new(), Vec::new());
        for argument in declared.split(',') {
            let Some((before, name)) = argument.trim().rsplit_once(' ') else { continue };
            match argument.trim().split_once('*') {
                Some((ty, _)) => buffers.push((ty.trim(), name.trim_start_matches('*'))),
                // The place of a launch of a table.
                None if name == "blockIdx" || name == "gridDim" => {}
                None => words.push((before, name)),
            }
        }
        Self { buffers, words }
    }

    /// C++ that says what [`HostFunction::buffers`] says. A kernel of a user's own does not say how large its buffers are.
    fn described(&self) -> String {
        let mut out = String::new();
        for (ty, name) in &self.buffers {
            let last = name.strip_prefix("buffer_").map(|n| format!("last_{n}"));
            let place = self.words.iter().position(|(_, word)| Some(*word) == last.as_deref());
            let place = place.map_or(u32::MAX, |place| place as u32);
            let _ = write!(out, "{{sizeof({ty}), {}, {place}u}}, ", u32::from(!ty.starts_with("const ")));
        }
        out
    }
}

/// C++ that runs a kernel for one thread, from arrays of its arguments.
fn entry(source: &str) -> Option<String> {
    let (_, rest) = source.split_once("__global__ void ")?;
    let bounds = rest.strip_prefix("__launch_bounds__(").and_then(|rest| rest.split_once(") "));
    let most_threads = bounds.and_then(|(bounds, _)| bounds.split(',').next()).unwrap_or("1024");
    let (name, rest) = bounds.map_or(rest, |(_, rest)| rest).split_once('(')?;
    let (declared, _) = rest.split_once(')')?;
    let mut out = String::new();
    let is_table = declared.contains("Table");
    let (given, described, table) = if is_table {
        let (_, one) = source.split_once(" void one_")?;
        let described = Arguments::of(one.split_once('(')?.1.split_once(')')?.0);
        (vec![String::from("*(const Table*)words")], described, cuda::batch::TABLE_WORDS)
    } else {
        let arguments = Arguments::of(declared);
        let (mut buffers, mut words) = (0, 0);
        let given = declared.split(',').map(|argument| match argument.split_once('*') {
            Some((ty, _)) => {
                buffers += 1;
                format!("({}*)buffers[{}]", ty.trim(), buffers - 1)
            }
            None => {
                words += 1;
                format!("*(const {}*)(words + {})", type_of(argument), words - 1)
            }
        });
        (given.collect(), arguments, 0)
    };
    let _ = writeln!(out, "extern \"C\" void kiln_host_run(void* const* buffers, const unsigned* words) {{");
    let _ = writeln!(out, "    {name}({});\n    tell(END);", given.join(", "));
    out.push_str("}\n");
    let (buffers, words) = (described.buffers.len(), described.words.len());
    let taken = if is_table { [0, 0] } else { [buffers, words] };
    let launch_words = if is_table { 2 * buffers + words } else { 0 };
    let _ =
        writeln!(out, "extern \"C\" const unsigned kiln_host_arguments[2] = {{{}, {}}};", taken[0], taken[1]);
    let _ = writeln!(out, "extern \"C\" const unsigned kiln_host_threads = {most_threads};");
    let _ = writeln!(out, "extern \"C\" const unsigned kiln_host_table[2] = {{{table}, {launch_words}}};");
    let _ = writeln!(
        out,
        "extern \"C\" const unsigned kiln_host_buffers[][3] = {{{}{{0, 0, 0}}}};",
        described.described()
    );
    if source.contains("__syncthreads") || source.contains("exchange(") {
        out.push_str("extern \"C\" void kiln_host_waits() {}\n");
    }
    Some(out)
}

/// Bytes of arrays that a kernel may share whose sizes it says itself ("CUDA C++ Programming Guide", "Technical Specifications per Compute Capability").
const MOST_SHARED: usize = 48 << 10;

/// A kernel whose shared arrays, and buffers that it writes, note who uses them.
fn traced(kernel: &str) -> String {
    let mut out = String::with_capacity(kernel.len());
    let mut bytes = String::from("0");
    for line in kernel.lines() {
        let shared = line.strip_prefix("__shared__ __align__(16) ").and_then(|rest| rest.strip_suffix("];"));
        let array = shared.and_then(|rest| rest.split_once(" shared_")).and_then(|(ty, rest)| {
            let (n, length) = rest.split_once('[')?;
            let _ = write!(bytes, " + {length} * sizeof({})", ty.trim());
            Some(format!("__shared__ Shared<{}, {length}> shared_{n};", ty.trim()))
        });
        let argument = line.strip_prefix("    ").map(|rest| rest.trim_end_matches(','));
        let buffer = argument.filter(|rest| !rest.starts_with("const ")).and_then(|rest| {
            let (ty, name) = rest.split_once("* ")?;
            let n = name.strip_prefix("__restrict__ ").unwrap_or(name).strip_prefix("buffer_")?;
            let is_number = n.chars().all(|digit| digit.is_ascii_digit());
            let comma = if line.ends_with(',') { "," } else { "" };
            is_number.then(|| format!("    Global<{ty}> buffer_{n}{comma}"))
        });
        out.push_str(array.or(buffer).as_deref().unwrap_or(line));
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "static_assert({bytes} <= {MOST_SHARED}, \"more shared memory than a kernel may have\");"
    );
    out
}

/// The type that an argument is declared with.
fn type_of(argument: &str) -> &str {
    argument.trim().rsplit_once(' ').map_or("unsigned", |(ty, _)| ty)
}

/// What the host's compiler gets in place of [`cuda::PRELUDE`].
pub const SHIM: &str = concat!(include_str!("shim.h"), include_str!("traces.h"));
/// And of [`cuda::MATRICES`].
pub const MATRICES: &str = include_str!("matrix.h");

/// Without libraries, whose search is a third of the time: what is used of them the test has loaded. Not optimized, since most kernels run
/// once: that takes longer than they do.
const FLAGS: [&str; 6] =
    ["-O0", "-shared", "-fPIC", "-nostdlib", "-ffp-contract=off", "-fno-strict-aliasing"];

/// Compiles a kernel to a library, which a folder keeps.
///
/// # Errors
/// With what the compiler says.
pub fn compile(source: &str, folder: &Path) -> Result<Vec<u8>, String> {
    // What kernels call is the shim's.
    let kernel = source.strip_prefix(cuda::PRELUDE).unwrap_or(source);
    let (matrices, kernel) = match kernel.strip_prefix(cuda::MATRICES) {
        Some(kernel) => (MATRICES, kernel),
        None => ("", kernel),
    };
    let entry = entry(kernel).ok_or("no kernel whose arguments are pointers and words")?;
    let text = [SHIM, matrices, &traced(kernel), &entry].concat();
    // What was compiled before serves again, whoever asked for it.
    let mut hasher = DefaultHasher::new();
    (&text, FLAGS).hash(&mut hasher);
    let kept = folder.join(format!("{:016x}-{}.so", hasher.finish(), text.len()));
    if let Ok(library) = std::fs::read(&kept) {
        return Ok(library);
    }
    let aside = tempfile::tempdir_in(folder).expect("a folder");
    let (source, library) = (aside.path().join("kernel.cc"), aside.path().join("kernel.so"));
    std::fs::write(&source, text).expect("a file");
    let output =
        Command::new("c++").args(FLAGS).arg("-o").args([&library, &source]).output().expect("a C++ compiler");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let compiled = std::fs::read(&library).expect("a library");
    std::fs::rename(&library, &kept).expect("a file");
    Ok(compiled)
}

/// Loads what [`compile`] made; it stays loaded.
///
/// # Errors
/// When it is no library.
pub fn load(image: &[u8], folder: &Path) -> Result<HostFunction, String> {
    let file = tempfile::NamedTempFile::new_in(folder).expect("a file");
    std::fs::write(file.path(), image).expect("a file");
    // SAFETY: the library is what `compile` made; it stays loaded.
    unsafe {
        let library = libloading::Library::new(file.path()).map_err(|said| said.to_string())?;
        let [table, launch_words] =
            **library.get::<*const [u32; 2]>(b"kiln_host_table").expect("its size, and that of a launch");
        let mut buffer = *library.get::<*const [u32; 3]>(b"kiln_host_buffers").expect("the buffers");
        let mut buffers = Vec::new();
        // The last has no size.
        while (*buffer)[0] > 0 {
            buffers.push(*buffer);
            buffer = buffer.add(1);
        }
        let function = HostFunction {
            begin: *library.get(b"kiln_host_begin").expect("the shim's function"),
            thread: *library.get(b"kiln_host_thread").expect("the shim's function"),
            run: *library.get(b"kiln_host_run").expect("the kernel"),
            arguments: **library.get::<*const [u32; 2]>(b"kiln_host_arguments").expect("their number"),
            table,
            buffers,
            launch_words,
            most_threads: **library.get::<*const u32>(b"kiln_host_threads").expect("their number"),
            waits: library.get::<extern "C" fn()>(b"kiln_host_waits").is_ok(),
            turn: Mutex::new(()),
        };
        std::mem::forget(library);
        Ok(function)
    }
}

std::thread_local! {
    /// Stacks for the threads of a block.
    static STACKS: std::cell::RefCell<Vec<DefaultStack>> = const { std::cell::RefCell::new(Vec::new()) };
}

std::thread_local! {
    /// What the thread of a block that waited last goes on with.
    static LAST_YIELDER: std::cell::Cell<*mut c_void> = const { std::cell::Cell::new(std::ptr::null_mut()) };
}

const STACK_BYTES: usize = 128 << 10;

extern "C" fn wait(yielder: *mut c_void) {
    LAST_YIELDER.set(yielder);
    // SAFETY: the thread that runs now said where its yielder is, which lives as long as it.
    let yielder = unsafe { &*yielder.cast::<Yielder<(), ()>>() };
    yielder.suspend(());
}

std::thread_local! {
    /// What is known of the launch that runs.
    static TRACES: std::cell::RefCell<Box<Traces>> = std::cell::RefCell::new(Box::new(Traces::new()));
}

/// Runs all blocks, one after another, the last first.
///
/// # Errors
/// When a device would not take the launch, or not do what its kernel says: see the head of this file.
pub fn run(
    function: &HostFunction,
    blocks: [u32; 3],
    threads: [u32; 2],
    buffers: &[u64],
    words: &[u32],
) -> Result<(), String> {
    let _turn = function.turn.lock().unwrap_or_else(PoisonError::into_inner);
    launch::check_grid(function, blocks, threads)?;
    launch::check_buffers(&given(function, buffers, words))?;
    TRACES.with_borrow_mut(|traces| {
        let traces = &raw mut **traces;
        // SAFETY: nobody else has them meanwhile: a kernel tells of them while it runs, and what is done here is done between.
        unsafe { run_blocks(function, (blocks, threads), (buffers, words), traces) }
    })
}

/// # Safety
/// The traces are there, and nobody else's meanwhile.
unsafe fn run_blocks(
    function: &HostFunction,
    (blocks, threads): ([u32; 3], [u32; 2]),
    (buffers, words): (&[u64], &[u32]),
    traces: *mut Traces,
) -> Result<(), String> {
    let tracer = Tracer::of(traces);
    // SAFETY: the caller says so; no kernel runs here.
    let traces = || unsafe { &mut *traces };
    traces().begin_launch();
    let [columns, rows, layers] = blocks;
    for block in (0..u64::from(columns) * u64::from(rows) * u64::from(layers)).rev() {
        let place = [block % u64::from(columns), block / u64::from(columns)];
        let place =
            [place[0] as u32, (place[1] % u64::from(rows)) as u32, (place[1] / u64::from(rows)) as u32];
        (function.begin)(&raw const blocks, &raw const place, wait, &raw const tracer);
        traces().begin_block(block as u32, threads[0] * threads[1]);
        run_block(function, threads, (buffers, words), |thread| traces().run(thread))?;
        if let Some(fault) = traces().fault() {
            return Err(fault);
        }
    }
    Ok(())
}

/// A thread of a block, by its number, and with what it goes on after a barrier.
type Thread = (u32, Coroutine<(), (), (), DefaultStack>, *mut c_void);

fn run_block(
    function: &HostFunction,
    [width, height]: [u32; 2],
    (buffers, words): (&[u64], &[u32]),
    run_next: impl Fn(u32),
) -> Result<(), String> {
    let place = |thread: u32| [thread % width, thread / width, 0];
    if !function.waits {
        for thread in (0..width * height).rev() {
            let place = place(thread);
            run_next(thread);
            (function.thread)(&raw const place, std::ptr::null_mut());
            (function.run)(buffers.as_ptr(), words.as_ptr());
        }
        return Ok(());
    }
    let mut threads: Vec<Thread> = Vec::new();
    let take = || {
        let kept = STACKS.with_borrow_mut(Vec::pop);
        kept.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("a stack"))
    };
    for thread in 0..width * height {
        let run = function.run;
        let (buffers, words) = (buffers.as_ptr(), words.as_ptr());
        let (told, thread_place) = (function.thread, place(thread));
        let coroutine = Coroutine::with_stack(take(), move |yielder: &Yielder<(), ()>, ()| {
            told(&raw const thread_place, (&raw const *yielder).cast_mut().cast());
            run(buffers, words);
        });
        threads.push((thread, coroutine, std::ptr::null_mut()));
    }
    let mut waiting = Vec::new();
    let mut backwards = true;
    while !threads.is_empty() {
        let all = threads.len();
        if backwards {
            threads.reverse();
        }
        for (thread, mut coroutine, mut yielder) in threads.drain(..) {
            run_next(thread);
            // Where it goes on after a barrier, others were here meanwhile.
            if !yielder.is_null() {
                let place = place(thread);
                (function.thread)(&raw const place, yielder);
            }
            match coroutine.resume(()) {
                CoroutineResult::Yield(()) => {
                    yielder = LAST_YIELDER.get();
                    waiting.push((thread, coroutine, yielder));
                }
                CoroutineResult::Return(()) => {
                    STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()))
                }
            }
        }
        if !waiting.is_empty() && waiting.len() != all {
            // Their stacks are C++'s too, which no Rust unwinds.
            // SAFETY: what lies there is nobody's: the threads own nothing.
            waiting.iter_mut().for_each(|(_, coroutine, _)| unsafe { coroutine.force_reset() });
            return Err(String::from("some threads of a block wait where others do not come"));
        }
        if backwards {
            waiting.reverse();
        }
        backwards = !backwards;
        threads.append(&mut waiting);
    }
    Ok(())
}
