//! Imports models as the book's chapter on ONNX does.

use burn_import::onnx::{ModelGen, RecordType};

fn main() {
    // The manifest's name of the runtime is found without being told.
    ModelGen::new()
        .input("../../fixtures/cases/net_residual_cnn/model.onnx")
        .out_dir("model/")
        .golden("../../fixtures/cases/net_residual_cnn")
        .run_from_script();
    ModelGen::new()
        .input("../../fixtures/cases/net_lstm_tagger/model.onnx")
        .out_dir("embedded/")
        .record_type(RecordType::Bincode)
        .half_precision(false)
        .embed_states(true)
        .runtime_crate("burn")
        .golden("../../fixtures/cases/net_lstm_tagger")
        .run_from_script();
}
