//! Kernels as what the host's C++ compiler makes of them: blocks run one after another, their threads as coroutines that take turns at barriers.
//!
//! The last block runs first, and of it the last thread: nothing is right because what comes later in a tensor was written later.
//! Shared arrays start with NaNs, for each block anew; the order in which threads run changes from barrier to barrier: what reads what nobody
//! wrote, or does not wait for those who write, yields wrong numbers.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kiln_gpu::language::cuda;
use std::ffi::c_void;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A kernel that was loaded.
pub struct HostFunction {
    begin: extern "C" fn(*const [u32; 3], *const [u32; 3], extern "C" fn(*mut c_void)),
    thread: extern "C" fn(*const [u32; 3], *mut c_void),
    run: extern "C" fn(*const u64, *const u32),
    /// How many buffers and words it takes.
    pub arguments: [u32; 2],
    /// Words of the table that it takes instead.
    pub table: u32,
    /// Whether there are barriers.
    waits: bool,
    /// Its place and its shared arrays are statics.
    turn: Mutex<()>,
}

/// C++ that runs a kernel for one thread, from arrays of its arguments.
fn entry(source: &str) -> Option<String> {
    let (_, rest) = source.split_once("__global__ void ")?;
    let bounds = rest.strip_prefix("__launch_bounds__(").and_then(|rest| rest.split_once(") "));
    let (name, rest) = bounds.map_or(rest, |(_, rest)| rest).split_once('(')?;
    let (arguments, _) = rest.split_once(')')?;
    let (mut buffers, mut words) = (0, 0);
    let mut given = Vec::new();
    let mut table = 0;
    for argument in arguments.split(',') {
        given.push(match argument.split_once('*') {
            Some((ty, _)) => {
                buffers += 1;
                format!("({}*)buffers[{}]", ty.trim(), buffers - 1)
            }
            None if argument.contains("Table") => {
                table = cuda::batch::TABLE_WORDS;
                String::from("*(const Table*)words")
            }
            None => {
                words += 1;
                format!("*(const {}*)(words + {})", type_of(argument), words - 1)
            }
        });
    }
    let mut out = String::new();
    let _ = writeln!(out, "extern \"C\" void kiln_host_run(void* const* buffers, const unsigned* words) {{");
    let _ = writeln!(out, "    {name}({});", given.join(", "));
    out.push_str("}\n");
    let _ = writeln!(out, "extern \"C\" const unsigned kiln_host_arguments[2] = {{{buffers}, {words}}};");
    let _ = writeln!(out, "extern \"C\" const unsigned kiln_host_table = {table};");
    if source.contains("__syncthreads") || source.contains("exchange(") {
        out.push_str("extern \"C\" void kiln_host_waits() {}\n");
    }
    Some(out)
}

/// The type that an argument is declared with.
fn type_of(argument: &str) -> &str {
    argument.trim().rsplit_once(' ').map_or("unsigned", |(ty, _)| ty)
}

/// What the host's compiler gets in place of [`cuda::PRELUDE`].
pub const SHIM: &str = include_str!("shim.h");
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
    let text = [SHIM, matrices, kernel, &entry].concat();
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
        let function = HostFunction {
            begin: *library.get(b"kiln_host_begin").expect("the shim's function"),
            thread: *library.get(b"kiln_host_thread").expect("the shim's function"),
            run: *library.get(b"kiln_host_run").expect("the kernel"),
            arguments: **library.get::<*const [u32; 2]>(b"kiln_host_arguments").expect("their number"),
            table: **library.get::<*const u32>(b"kiln_host_table").expect("its size"),
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

/// Runs all blocks, one after another, the last first.
///
/// # Errors
/// When threads wait where others do not come.
pub fn run(
    function: &HostFunction,
    blocks: [u32; 3],
    threads: [u32; 2],
    buffers: &[u64],
    words: &[u32],
) -> Result<(), String> {
    let _turn = function.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let [columns, rows, layers] = blocks;
    for block in (0..u64::from(columns) * u64::from(rows) * u64::from(layers)).rev() {
        let place = [block % u64::from(columns), block / u64::from(columns)];
        let place =
            [place[0] as u32, (place[1] % u64::from(rows)) as u32, (place[1] / u64::from(rows)) as u32];
        (function.begin)(&raw const blocks, &raw const place, wait);
        run_block(function, threads, buffers, words)?;
    }
    Ok(())
}

/// A thread of a block, by its number, and with what it goes on after a barrier.
type Thread = (u32, Coroutine<(), (), (), DefaultStack>, *mut c_void);

fn run_block(
    function: &HostFunction,
    [width, height]: [u32; 2],
    buffers: &[u64],
    words: &[u32],
) -> Result<(), String> {
    let place = |thread: u32| [thread % width, thread / width, 0];
    if !function.waits {
        for thread in (0..width * height).rev() {
            let place = place(thread);
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
