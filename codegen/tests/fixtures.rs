//! Source for the cases under `fixtures/`: some as snapshots, all of them twice.

use kiln_codegen::{Generated, Options, RecordPath, generate};
use kiln_importer::onnx::{LoadOptions, load};
use kiln_importer::passes;
use kiln_types::Precision;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

fn source_of(model: &Path, trainable: bool) -> Generated {
    let mut graph = load(model, &LoadOptions { trainable, ..LoadOptions::default() })
        .unwrap_or_else(|error| panic!("{error}"));
    passes::optimize(&mut graph, &passes::Options { trainable, ..passes::Options::default() });
    let options = Options {
        source_name: "model.onnx".into(),
        default_record: Some(RecordPath::OutDir("model/model.safetensors".into())),
        trainable,
        ..Options::default()
    };
    generate(&graph, &options).unwrap_or_else(|error| panic!("{}: {error}", model.display()))
}

fn case(name: &str) -> PathBuf {
    fixtures().join("cases").join(name).join("model.onnx")
}

macro_rules! snapshots {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(source_of(&case(stringify!($name)), false).source);
            }
        )*
    };
}

snapshots! {
    if_nested
    lists_optional
    lists_order
    lists_pairs
    lists_perceptron
    lists_pyramid
    loop_branches
    loop_counted
    loop_counters
    loop_decoder
    loop_growing
    loop_nested
    loop_scan
    loop_undefined_variables
    loop_until
    loop_weights
    loop_while
    net_bert_encoder
    net_cached_decoder
    net_gpt_decoder
    net_llama_four_bits
    net_residual_cnn
    net_lstm_tagger
    net_shared_head
    net_shared_layer
    op_assign_everywhere
    op_data_dependent
    op_gather_counted
    op_ml_classes
    scopes_without_tensors
    op_resize_dynamic
    quantized_blocks
    quantized_blocks_around
    quantized_blocks_dynamic
    quantized_encoder
    quantized_encoder_around
    rounds_lists
    rounds_optical_flow
    rounds_recurrence
    rounds_recursive
    rounds_sparse_code
    rounds_without_names
    scopes_none
    scopes_slashes
    scopes_slim
    scopes_torchscript
    unnamed_dims
    weights_of_helpers
}

/// All that runs is within the precision, blocking or not.
#[test]
fn models_compute_in_the_precision_that_was_asked_for() {
    let mut graph = load(&case("op_data_dependent"), &LoadOptions::default()).expect("a model");
    passes::optimize(&mut graph, &passes::Options::default());
    let with =
        |precision| generate(&graph, &Options { precision, ..Options::default() }).expect("source").source;
    let (plain, source) = (with(Precision::F32), with(Precision::Bf16));
    assert!(!plain.contains("Precision"));
    for line in [
        "let run = || {",
        "Ok(Precision::Bf16.run(run))",
        "let run = async {",
        "Ok(Precision::Bf16.run_async(run).await)",
    ] {
        assert!(source.contains(line), "{line} is not in\n{source}");
    }
}

#[test]
fn trainable_models_keep_their_parameters() {
    let generated = source_of(&case("net_residual_cnn_unfolded"), true);
    let mut paths: Vec<String> = generated.tensors().into_iter().map(|tensor| tensor.path).collect();
    paths.sort();
    insta::assert_snapshot!(paths.join("\n"));
}

/// What the network does not train stays as it is: a norm without parameters, a buffer.
#[test]
fn trainable_models_have_no_parameters_of_their_own() {
    let source = source_of(&fixtures().join("training/mlp_tiny/model.onnx"), true).source;
    insta::assert_snapshot!(source);
}

#[test]
fn a_module_that_is_called_again_has_its_parameters_once() {
    let paths = |name: &str| {
        let tensors = source_of(&case(name), false).tensors();
        let mut paths: Vec<String> = tensors.into_iter().map(|tensor| tensor.path).collect();
        paths.sort();
        paths
    };
    let (dynamo, torchscript) = (paths("net_shared_layer"), paths("net_shared_layer_torchscript"));
    assert_eq!(dynamo, torchscript);
    // A table, which the head reads too, six linear layers and two norms.
    assert_eq!(dynamo.len(), 1 + 6 * 2 + 2 * 2, "{dynamo:?}");
    assert!(dynamo.iter().all(|path| path == "embedding.weight" || path.starts_with("layer.")), "{dynamo:?}");
}

#[test]
fn hostile_names_stay_names() {
    let generated = source_of(&fixtures().join("hostile_names/model.onnx"), false);
    insta::assert_snapshot!(generated.source);
}

#[test]
fn every_case_gives_the_same_bytes_twice() {
    let cases = std::fs::read_dir(fixtures().join("cases")).unwrap();
    let mut models: Vec<PathBuf> = cases.map(|entry| entry.unwrap().path().join("model.onnx")).collect();
    models.sort();
    assert!(models.len() > 50);
    for model in models.iter().filter(|model| model.exists()) {
        let (a, b) = (source_of(model, false), source_of(model, false));
        assert_eq!(a.source, b.source, "{}", model.display());
        assert_eq!(a.record, b.record, "{}", model.display());
        // The importer computes nothing from parameters that code generation has no words for.
        assert!(!a.source.contains("it cannot be repeated"), "{}", model.display());
    }
}
