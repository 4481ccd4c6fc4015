//! The whole way of a model: any bytes end in an error, or in a graph that verifies after every pass and in source.

#![no_main]

#[path = "../../importer/tests/mutation/mod.rs"]
mod mutation;

use kiln_importer::onnx::{LoadOptions, load_bytes};
use kiln_importer::passes::{Options, optimize};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use mutation::{Random, mutate_model};

fuzz_target!(|data: &[u8]| {
    // The first byte of a file decides nothing in the format (it is a tag), so the length picks the options.
    let trainable = data.len() % 2 == 1;
    let options = LoadOptions { trainable, ..LoadOptions::default() };
    if let Ok(mut graph) = load_bytes(data.to_vec(), &options) {
        assert_eq!(graph.verify(), Ok(()));
        // Debug assertions are on here, so the graph is verified after every pass.
        optimize(&mut graph, &Options { trainable });
        if let Err(error) = kiln_codegen::generate(&graph, &kiln_codegen::Options::default()) {
            assert!(!matches!(error, kiln_codegen::CodegenError::Internal(_)), "{error}");
        }
    }
});

// Changes of messages mostly: bytes changed blindly seldom read as a model.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = Random(u64::from(seed));
    if random.below(5) > 0
        && let Some(mutated) = mutate_model(&data[..size], &mut random)
        && mutated.len() <= max_size
    {
        data[..mutated.len()].copy_from_slice(&mutated);
        return mutated.len();
    }
    fuzzer_mutate(data, size, max_size)
});
