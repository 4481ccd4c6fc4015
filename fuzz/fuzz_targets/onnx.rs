//! The ONNX reader: any bytes end in an error or in a graph that verifies.

#![no_main]

use kiln_importer::onnx::{LoadOptions, load_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for trainable in [false, true] {
        let options = LoadOptions { trainable, ..LoadOptions::default() };
        if let Ok(graph) = load_bytes(data.to_vec(), &options) {
            assert!(graph.verify().is_ok());
        }
    }
});
