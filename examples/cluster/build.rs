//! Compiles the digits network.

fn main() {
    kiln_build::ModelGen::new().input("../../fixtures/digits/model.onnx").out_dir("model/").run_from_script();
}
