//! Compiles the digits network to be trained: exported with `optimize=False`, so that its batch normalizations are there.

fn main() {
    kiln_build::ModelGen::new()
        .input("../../fixtures/digits/unfolded/model.onnx")
        .out_dir("model/")
        .trainable(true)
        .run_from_script();
}
