//! Compiles two models whose records become part of the program.

use kiln_build::{ModelGen, RecordType};

fn main() {
    for (case, record_type) in
        [("net_residual_cnn", RecordType::Safetensors), ("net_lstm_tagger", RecordType::Bincode)]
    {
        let case = format!("../../fixtures/cases/{case}");
        ModelGen::new()
            .input(format!("{case}/model.onnx"))
            .out_dir(&case["../../fixtures/cases/".len()..])
            .record_type(record_type)
            .embed_states(true)
            // A target without an operating system says so itself; here the tests run on one that has it.
            .no_std(true)
            .run_from_script();
    }
}
