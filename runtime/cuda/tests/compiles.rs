//! Every family of kernels compiles for every generation of GPUs that CUDA 13 knows; no GPU is needed for that, but NVIDIA's compiler:
//! `scripts/cuda_kernels.sh` fetches it and runs this.

#[path = "../../gpu/tests/templates/mod.rs"]
mod templates;

use kiln_cuda::driver::nvidia;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::reduce::Fold;
use kiln_gpu::language::{Factors, cuda};
use kiln_tensor::DType;
use std::collections::BTreeMap;

/// Turing, Ampere, Hopper, and both Blackwells, with their compute capabilities.
const ARCHITECTURES: [(&str, (i32, i32)); 5] =
    [("sm_75", (7, 5)), ("sm_80", (8, 0)), ("sm_90a", (9, 0)), ("sm_100", (10, 0)), ("sm_120", (12, 0))];

/// Whether GPUs of a compute capability have what a kernel multiplies: for others it is not made.
fn serves((_, source): &(String, String), capability: (i32, i32)) -> bool {
    let kernel = source.strip_prefix(cuda::MATRICES).unwrap_or_default();
    let newer = kernel.contains("multiply_bf16") || kernel.contains("multiply_tf32");
    !newer || nvidia::multiplies(capability, Factors::BF16)
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
        Template::Reduce(reduce) => reduce.dtype == DType::F32 && reduce.fold == Fold::Sum,
        _ => false,
    };
    if waits {
        all.push((format!("{}_batch", kernel.name), cuda::batch::source(&kernel)));
    }
    all
}

fn resources((name, source): &(String, String), architecture: &str) -> (String, Resources) {
    let source = [cuda::PRELUDE, source].concat();
    match nvidia::compile(&source, architecture, &["--ptxas-options=-v"]) {
        Ok((code, log)) => {
            assert!(code.starts_with(b"\x7fELF"), "{name} is no cubin");
            let registers = number_before(&log, " registers");
            assert!(registers > 0, "{log}");
            let spilled =
                number_before(&log, " bytes spill stores") + number_before(&log, " bytes spill loads");
            (name.clone(), Resources { registers, spilled, shared: number_before(&log, " bytes smem") })
        }
        Err(error) => panic!("{name} for {architecture}: {error}\n{source}"),
    }
}

#[test]
#[ignore = "needs NVIDIA's compiler: scripts/cuda_kernels.sh"]
fn kernels_compile_for_all_architectures() {
    assert!(nvidia::has_compiler(), "NVRTC was not found");
    let mut all = [templates::all(), templates::of_cuda_alone()].concat();
    // For work on some of them.
    let only = std::env::var("KILN_KERNELS").ok();
    if let Some(only) = &only {
        all.retain(|template| template.kernel().name.contains(only));
    }
    let all: Vec<_> = all.iter().flat_map(sources).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let compiled: Vec<(String, &str, Resources)> = std::thread::scope(|scope| {
        // Families differ in how long they take: each thread has some of all.
        let all = &all;
        let of = |first: usize| {
            move || -> Vec<_> {
                let each = |source| {
                    let has = move |&(_, capability): &(&str, (i32, i32))| serves(source, capability);
                    ARCHITECTURES.into_iter().filter(has).map(move |(architecture, _)| {
                        let (name, needs) = resources(source, architecture);
                        (name, architecture, needs)
                    })
                };
                all.iter().skip(first).step_by(threads).flat_map(each).collect()
            }
        };
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(of(first))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("all compile")).collect()
    });
    let mut most: BTreeMap<(String, &str), Resources> = BTreeMap::new();
    for (name, architecture, needs) in compiled {
        let most = most.entry((name, architecture)).or_default();
        most.registers = most.registers.max(needs.registers);
        most.spilled = most.spilled.max(needs.spilled);
        most.shared = most.shared.max(needs.shared);
    }
    let line = |((name, architecture), needs): (&(String, &str), &Resources)| {
        let Resources { registers, spilled, shared } = needs;
        format!(
            "{name:15} {architecture:6} {registers:3} registers, {spilled:3} bytes spilled, {shared:5} bytes shared"
        )
    };
    let lines = most.iter().map(line).collect::<Vec<_>>().join("\n");
    if only.is_some() {
        return println!("{lines}");
    }
    insta::assert_snapshot!("resources", lines);
}
