//! Every family of kernels compiles for every generation of GPUs that CUDA 13 knows; no GPU is needed for that, but NVIDIA's compiler:
//! `scripts/cuda_kernels.sh` fetches it and runs this.
//!
//! What a family needs stands on record with a hash of its sources, the compiler's version and its options: the same yield the same. Of the families
//! whose hash is that on record, one of [`ONE_OF`] is compiled anew, for [`ALWAYS`]: the record is no mere claim.

#[path = "../../gpu/tests/templates/mod.rs"]
mod templates;

use kiln_cuda::driver::nvidia;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::reduce::Reducer;
use kiln_gpu::language::{Factors, cuda};
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Turing, Ampere, Hopper, and both Blackwells, with their compute capabilities.
const ARCHITECTURES: [(&str, (i32, i32)); 5] =
    [("sm_75", (7, 5)), ("sm_80", (8, 0)), ("sm_90a", (9, 0)), ("sm_100", (10, 0)), ("sm_120", (12, 0))];

/// The generation that some families are compiled for each time, whatever is on record.
const ALWAYS: &str = "sm_90a";

/// Of how many families that is one.
const ONE_OF: usize = 5;

/// What is on record.
const RECORD: &str = include_str!("snapshots/compiles__resources.snap");

/// The line of a family's sources, with an FNV-1a hash of what they are compiled by and of them (Fowler, Noll and Vo; IETF draft "The FNV Non-Cryptographic Hash Algorithm").
fn line_of_sources(family: &str, units: &[&Unit]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let compiler = [nvidia::compiler_version(), nvidia::OPTIONS.join(" ")].into_iter();
    for byte in compiler.chain(units.iter().map(|unit| unit.source())).flat_map(String::into_bytes) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{family:15} sources {hash:016x}")
}

/// Kernels of a family that are compiled at once: to start the compiler takes longer than most of them do.
#[derive(Default)]
struct Unit {
    family: String,
    kernels: Vec<String>,
    /// Whether they begin with [`cuda::MATRICES`].
    has_matrices: bool,
    /// Whether they multiply what the first GPUs with matrices cannot: for those they are not made.
    is_newer: bool,
}

impl Unit {
    /// Kernels to compile at once, at most.
    const MOST: usize = 24;

    /// All kernels, in as many units as it takes.
    fn of(sources: Vec<(String, String)>) -> Vec<Self> {
        let mut units: Vec<Self> = Vec::new();
        // Some templates differ, and their kernels do not.
        let sources: BTreeSet<(String, String)> = sources.into_iter().collect();
        for (family, source) in sources {
            let (has_matrices, kernel) = match source.strip_prefix(cuda::MATRICES) {
                Some(kernel) => (true, kernel),
                None => (false, source.as_str()),
            };
            let is_newer = kernel.contains("multiply_bf16") || kernel.contains("multiply_tf32");
            let fits = |unit: &&mut Self| {
                (&unit.family, unit.has_matrices, unit.is_newer) == (&family, has_matrices, is_newer)
                    && unit.kernels.len() < Self::MOST
            };
            match units.iter_mut().find(fits) {
                Some(unit) => unit.kernels.push(kernel.to_owned()),
                None => units.push(Self { family, kernels: vec![kernel.to_owned()], has_matrices, is_newer }),
            }
        }
        units
    }

    /// Kernels have names of their family: each has a namespace of its own.
    fn source(&self) -> String {
        let mut source = String::from(cuda::PRELUDE);
        if self.has_matrices {
            source.push_str(cuda::MATRICES);
        }
        for (n, kernel) in self.kernels.iter().enumerate() {
            let kernel = kernel.replacen("extern \"C\" __global__", "__global__", 1);
            source.push_str(&format!("namespace kernel_{n} {{\n{kernel}}}\n"));
        }
        source
    }
}

/// What a kernel needs of a multiprocessor, at most of all of its family.
#[derive(Debug, Default)]
struct Resources {
    registers: u32,
    /// Bytes that did not find a register, written and read.
    spilled: u32,
    shared: u32,
}

/// The largest number before a word of what `ptxas -v` says, such as `42 registers`: it tells of the kernel, and of functions that it calls.
fn number_before(log: &str, words: &str) -> u32 {
    let before = log.match_indices(words).filter_map(|(at, _)| log[..at].split_whitespace().next_back());
    before.filter_map(|number| number.parse().ok()).max().unwrap_or(0)
}

/// What is compiled of a template: its kernel, and where launches of it wait for others the one that does several, by their names.
fn sources(template: &Template) -> Vec<(String, String)> {
    let kernel = template.kernel();
    let mut all = vec![(kernel.name.clone(), cuda::source(&kernel))];
    let waits = match template {
        Template::Elementwise(program) => program.results.len() > 1,
        // One of all that differ little.
        Template::Reduce(reduce) => {
            let alone = reduce.joins || reduce.computed.is_some();
            reduce.dtype == DType::F32 && reduce.reducer == Reducer::Sum && !alone
        }
        Template::Gemv(product) => product.dtype == DType::BF16 && product.wide[1],
        _ => false,
    };
    if waits {
        all.push((format!("{}_batch", kernel.name), cuda::batch::source(&kernel)));
    }
    all
}

fn resources(unit: &Unit, architecture: &str) -> Resources {
    let (family, source) = (&unit.family, unit.source());
    match nvidia::compile(&source, architecture, &["--ptxas-options=-v"]) {
        Ok((code, log)) => {
            assert!(code.starts_with(b"\x7fELF"), "{family} is no cubin");
            let compiled = log.matches("Compiling entry function").count();
            assert_eq!(compiled, unit.kernels.len(), "of {family}:\n{log}");
            let registers = number_before(&log, " registers");
            assert!(registers > 0, "{log}");
            let spilled =
                number_before(&log, " bytes spill stores") + number_before(&log, " bytes spill loads");
            Resources { registers, spilled, shared: number_before(&log, " bytes smem") }
        }
        Err(error) => panic!("{family} for {architecture}: {error}\n{source}"),
    }
}

#[test]
#[ignore = "needs NVIDIA's compiler: scripts/cuda_kernels.sh"]
fn kernels_compile_for_all_architectures() {
    assert!(nvidia::has_compiler(), "NVRTC was not found");
    let mut all = [templates::all(), templates::of_cuda_alone()].concat();
    for template in &mut all {
        templates::subgroups::join_by(template, Subgroups::Warps);
    }
    // For work on some of them.
    let only = std::env::var("KILN_KERNELS").ok();
    if let Some(only) = &only {
        all.retain(|template| template.kernel().name.contains(only));
    }
    let units = Unit::of(all.iter().flat_map(sources).collect());
    let mut families: BTreeMap<&str, Vec<&Unit>> = BTreeMap::new();
    units.iter().for_each(|unit| families.entry(&unit.family).or_default().push(unit));
    let of_sources: BTreeMap<&str, String> =
        families.iter().map(|(family, units)| (*family, line_of_sources(family, units))).collect();
    let anew = only.is_some() || std::env::var_os("KILN_ALL_KERNELS").is_some();
    // The line of a family for an architecture, where its sources are those on record.
    let on_record = |family: &str, architecture: &str| {
        let known = !anew && RECORD.lines().any(|line| line == of_sources[family]);
        let is_it = |line: &&str| line.split_whitespace().take(2).eq([family, architecture]);
        RECORD.lines().find(is_it).filter(|_| known)
    };
    let each_time: BTreeSet<&str> = families.keys().copied().step_by(ONE_OF).collect();
    let is_due = |family: &str, architecture: &str| {
        on_record(family, architecture).is_none() || architecture == ALWAYS && each_time.contains(family)
    };
    let has = |unit: &Unit, (architecture, capability)| {
        is_due(&unit.family, architecture)
            && (!unit.is_newer || nvidia::multiplies(capability, Factors::BF16))
    };
    let targets = |unit| {
        let of = move |target: (&'static str, _)| has(unit, target).then_some((unit, target.0));
        ARCHITECTURES.into_iter().filter_map(of)
    };
    let work: Vec<(&Unit, &str)> = units.iter().flat_map(targets).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let compiled: Vec<(&str, &str, Resources)> = std::thread::scope(|scope| {
        let compile = || {
            let mut compiled = Vec::new();
            while let Some(&(unit, architecture)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                compiled.push((unit.family.as_str(), architecture, resources(unit, architecture)));
            }
            compiled
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(compile)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("all compile")).collect()
    });
    let mut most: BTreeMap<(&str, &str), Resources> = BTreeMap::new();
    for (name, architecture, needs) in compiled {
        let most = most.entry((name, architecture)).or_default();
        most.registers = most.registers.max(needs.registers);
        most.spilled = most.spilled.max(needs.spilled);
        most.shared = most.shared.max(needs.shared);
    }
    let line = |((name, architecture), needs): (&(&str, &str), &Resources)| {
        let Resources { registers, spilled, shared } = needs;
        format!(
            "{name:15} {architecture:6} {registers:3} registers, {spilled:3} bytes spilled, {shared:5} bytes shared"
        )
    };
    let mut lines: Vec<String> = most.iter().map(line).collect();
    // What was not compiled is as it was.
    for family in families.keys() {
        let others = ARCHITECTURES.into_iter().filter(|(architecture, _)| !is_due(family, architecture));
        lines
            .extend(others.filter_map(|(architecture, _)| on_record(family, architecture)).map(String::from));
    }
    lines.extend(of_sources.into_values());
    lines.sort();
    let lines = lines.join("\n");
    if only.is_some() {
        return println!("{lines}");
    }
    insta::assert_snapshot!("resources", lines);
}
