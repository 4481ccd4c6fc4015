//! Compiles the digits network, its weights within the program.

fn main() {
    kiln_build::ModelGen::new()
        .input("../../fixtures/digits/model.onnx")
        .out_dir("model/")
        .embed_states(true)
        .run_from_script();
}
