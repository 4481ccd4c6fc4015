//! Source for the exported programs of PyTorch under `fixtures/programs`.

use kiln_codegen::{Options, RecordPath, generate};
use kiln_importer::onnx::{LoadOptions, load};
use kiln_importer::passes;
use std::path::Path;

fn source_of(program: &str, trainable: bool) -> String {
    let model =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/programs").join(program).join("model.pt2");
    let options = LoadOptions { trainable, ..LoadOptions::default() };
    let mut graph = load(&model, &options).unwrap_or_else(|error| panic!("{error}"));
    passes::optimize(&mut graph, &passes::Options { trainable, ..passes::Options::default() });
    let options = Options {
        source_name: "model.pt2".into(),
        default_record: Some(RecordPath::OutDir("model/model.safetensors".into())),
        trainable,
        ..Options::default()
    };
    generate(&graph, &options).unwrap_or_else(|error| panic!("{program}: {error}")).source
}

macro_rules! snapshots {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(source_of(stringify!($name), false));
            }
        )*
    };
}

snapshots! {
    control_flow
    fourier
    in_place
    language
    layer_scale
    rotary
    sizes
    tagger
    vocoder
}

/// Dropout and batch normalization stay, which an exporter to ONNX leaves out of a network in evaluation mode.
#[test]
fn residual_trainable() {
    insta::assert_snapshot!(source_of("residual", true));
}

#[test]
fn decomposed_programs_read_as_the_networks_do() {
    assert_eq!(source_of("language_decomposed", false), source_of("language", false));
}
