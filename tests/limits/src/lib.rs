//! What any file may take: [`bounded`] runs a test's work in a process that has no more.
//!
//! ```ignore
//! #[test]
//! fn a_deep_graph_is_refused() {
//!     bounded(|| assert!(load_bytes(deep_graph(), &LoadOptions::default()).is_err()));
//! }
//! ```

use std::any::type_name;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What work may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time of the processor: a machine that does other things too makes no test fail.
    pub time: Duration,
    /// Bytes of address space, of which the test's own program has some.
    pub memory: usize,
    /// Bytes of stack.
    pub stack: usize,
}

/// What any file may take. The stack is what threads have where nothing else is said.
pub const ANY_FILE: Limits = Limits { time: Duration::from_secs(5), memory: 1_000_000_000, stack: 2 << 20 };

/// After this the process is stuck, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says to the child that it is one.
const CHILD: &str = "KILN_BOUNDED";

/// What a child says when its work is done.
const DONE: &str = "bounded: done";

/// Runs the work of a test within the limits of [`ANY_FILE`].
///
/// # Panics
/// As [`Limits::run`].
pub fn bounded<F: FnOnce() + Send + 'static>(work: F) {
    ANY_FILE.run(work);
}

impl Limits {
    /// Runs the work of a test within these limits, and prints what it took.
    ///
    /// The test runs once more, alone, in a process of its own, so that a stack that overflows or memory that cannot be had ends
    /// that process only. It has to call this first: what is before it runs twice. Where there is no `/proc` nor `ulimit`, time is
    /// that of the clock and memory has no limit.
    ///
    /// # Panics
    /// When the work panics or does not keep within the limits.
    pub fn run<F: FnOnce() + Send + 'static>(&self, work: F) {
        if is_child() {
            return self.run_here(work);
        }
        // A closure is called after the function it stands in: `crate::module::test::{{closure}}`.
        let path = type_name::<F>().trim_end_matches("::{{closure}}");
        let test = path.split_once("::").map_or(path, |(_, test)| test);
        let (output, status) = self.run_child(test);
        let status = status.unwrap_or_else(|| panic!("{test} is not done after {PATIENCE:?}"));
        let done = output.lines().find(|line| line.contains(DONE));
        match done.filter(|_| status.success()) {
            Some(line) => println!("{line}"),
            None => panic!("{test} went out of its bounds ({status}):\n{output}"),
        }
    }

    fn run_here<F: FnOnce() + Send + 'static>(&self, work: F) {
        let (start, clock) = (processor_time(), Instant::now());
        let thread = std::thread::Builder::new().stack_size(self.stack).spawn(work).expect("a thread");
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
        let time = match (start, processor_time()) {
            (Some(start), Some(end)) => end - start,
            _ => clock.elapsed(),
        };
        let memory = peak_memory().map_or_else(|| "unknown".to_owned(), |kb| format!("{} MB", kb / 1000));
        println!("{DONE} in {} ms, memory at most {memory}", time.as_millis());
        assert!(time <= self.time, "it took {time:?} of the processor, the limit is {:?}", self.time);
    }

    fn run_child(&self, test: &str) -> (String, Option<std::process::ExitStatus>) {
        let program = std::env::current_exe().expect("the test's program");
        let mut command = if cfg!(unix) {
            let mut shell = Command::new("sh");
            let limit = format!("ulimit -v {} && exec \"$0\" \"$@\"", self.memory / 1024);
            shell.args(["-c", &limit]).arg(program);
            shell
        } else {
            Command::new(program)
        };
        command
            .args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1");
        // Every arena of the allocator reserves address space that nobody uses.
        command
            .env("MALLOC_ARENA_MAX", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the test starts again");
        let read = |stream: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                // What was said before the stream broke off is enough.
                let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let said = [
            read(child.stdout.take().map(|stream| Box::new(stream) as Box<_>)),
            read(child.stderr.take().map(|stream| Box::new(stream) as Box<_>)),
        ];
        let start = Instant::now();
        let status = loop {
            match child.try_wait().expect("the child's state") {
                Some(status) => break Some(status),
                None if start.elapsed() > PATIENCE => {
                    child.kill().expect("the child ends");
                    child.wait().expect("the child has ended");
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        (said.map(|thread| thread.join().unwrap_or_default()).concat(), status)
    }
}

/// Whether this process runs one test, within limits.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// What the process has had of the processor, where the system tells: in ticks, 100 a second.
pub fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, in parentheses, may hold spaces.
    let mut numbers = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || numbers.next()?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
}

/// The most kilobytes that the process has had in memory, where the system tells.
fn peak_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
