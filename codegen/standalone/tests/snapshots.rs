//! Source without a runtime, as people read it.

use kiln_codegen::RecordPath;
use kiln_importer::onnx::{LoadOptions, load};
use kiln_importer::passes;
use kiln_standalone::{Options, StandaloneError, generate};
use std::path::Path;

fn generated(model: &str, sizes: &[(&str, usize)]) -> Result<kiln_standalone::Standalone, StandaloneError> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(model).join("model.onnx");
    let bind_dims = sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect();
    let mut graph = load(&path, &LoadOptions { bind_dims, ..LoadOptions::default() }).expect("a model");
    passes::optimize(&mut graph, &passes::Options::default());
    let options = Options {
        model_name: "Model".to_owned(),
        source_name: "model.onnx".to_owned(),
        weights: RecordPath::Given("model.weights".to_owned()),
    };
    generate(&graph, &options)
}

#[test]
fn an_image_network() {
    insta::assert_snapshot!(generated("digits", &[("batch", 1)]).expect("source").source);
}

#[test]
fn a_quantized_network() {
    insta::assert_snapshot!(generated("cases/quantized_cnn_around", &[("n", 1)]).expect("source").source);
}

#[test]
fn errors_name_what_is_in_the_way() {
    let cases: [(&str, &[(&str, usize)]); 4] = [
        ("digits", &[]),
        ("cases/dtype_f64", &[]),
        ("cases/op_deform_conv", &[]),
        ("cases/op_grid_sample", &[("n", 2)]),
    ];
    let errors = cases.map(|(model, sizes)| match generated(model, sizes) {
        Ok(_) => format!("{model} has source"),
        Err(error) => error.to_string(),
    });
    insta::assert_snapshot!(errors.join("\n\n"));
}

#[test]
fn the_same_model_gives_the_same_bytes() {
    let [one, other] = [(); 2].map(|()| generated("cases/net_lstm_tagger", &[]).expect("source"));
    assert!(one.source == other.source && one.weights == other.weights);
}
