//! Compiles networks whose modules tell the profiler when they are called: convolutions, transformers in a loop, recurrent layers, a module that is called
//! again and again, layers in branches, and one that waits for its data.

use kiln_build::{CompileOptions, compile};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const CASES: [&str; 6] = [
    "net_residual_cnn",
    "net_bert_encoder",
    "net_lstm_tagger",
    "net_shared_layer",
    "if_network",
    "op_data_dependent",
];

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("OUT_DIR"));
    let mut modules = String::new();
    for case in CASES {
        let model = Path::new("../../fixtures/cases").join(case).join("model.onnx");
        println!("cargo::rerun-if-changed={}", model.display());
        let options = CompileOptions { profiled: true, ..CompileOptions::default() };
        let compiled = compile(&model, &options).and_then(|mut compiled| compiled.write(&out.join(case)));
        compiled.unwrap_or_else(|error| panic!("{}", error.report()));
        let path = format!("concat!(env!(\"OUT_DIR\"), \"/{case}/model.rs\")");
        writeln!(modules, "#[allow(dead_code)]\nmod {case} {{ include!({path}); }}")
            .expect("writing to a string");
    }
    std::fs::write(out.join("models.rs"), modules).expect("models.rs");
}
