//! No name in a file becomes code, whatever it is made of and wherever it stands: judged by the final text.

mod hostile_names;

use hostile_names::{FRAGMENTS, Renaming, check_source};
use kiln_codegen::{CodegenError, GoldenTest, Options, RecordPath, generate, golden_tests};
use kiln_importer::onnx::proto::ModelProto;
use kiln_importer::onnx::{LoadOptions, load_bytes};
use kiln_importer::passes;
use kiln_types::{DType, Precision};
use proptest::prelude::*;
use prost::Message;
use std::path::Path;

/// Cases with every place for names: scopes of both exporters, branches, functions, lists of modules, symbolic dims, domains,
/// strings.
const CASES: &[&str] = &[
    "hostile_names",
    "cases/functions",
    "cases/scopes_torchscript",
    "cases/scopes_none",
    "cases/if_nested",
    "cases/net_shared_layer",
    "cases/op_ml_classes",
    "cases/op_ml_strings",
];

fn model(case: &str) -> ModelProto {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(case).join("model.onnx");
    let bytes = std::fs::read(path).expect("the case");
    ModelProto::decode(bytes.as_slice()).expect("a model")
}

/// The source of a renamed model; nothing when the names made it one that cannot be imported.
fn source(case: &str, names: &[String]) -> Option<String> {
    let mut proto = model(case);
    Renaming::new(names).model(&mut proto);
    source_of(&proto, names)
}

fn source_of(proto: &ModelProto, names: &[String]) -> Option<String> {
    let mut graph = load_bytes(proto.encode_to_vec(), &LoadOptions::default()).ok()?;
    passes::optimize(&mut graph, &passes::Options::default());
    let text = |n: usize| names.get(n % names.len()).cloned().unwrap_or_default();
    let options = Options {
        source_name: text(0),
        default_record: Some(RecordPath::OutDir(text(1))),
        embed: Some(RecordPath::Given(text(2))),
        ..Options::default()
    };
    // What `kiln bench --profile` compiles has modules' names in literals.
    if let Ok(generated) = generate(&graph, &Options { profiled: true, ..options.clone() }) {
        check_source(&generated.source);
    }
    match generate(&graph, &options) {
        Ok(generated) => Some(generated.source),
        Err(error @ CodegenError::Internal(_)) => panic!("{error}"),
        Err(_) => None,
    }
}

fn names() -> impl Strategy<Value = Vec<String>> {
    let name = prop::collection::vec(prop::sample::select(FRAGMENTS), 1..5);
    prop::collection::vec(name.prop_map(|parts| parts.concat()), 1..6)
}

#[test]
fn every_fragment_stays_a_name() {
    let names: Vec<String> = FRAGMENTS.iter().map(|fragment| (*fragment).to_owned()).collect();
    for case in CASES {
        let source = source(case, &names).expect("the names are apart, so it is the same model");
        check_source(&source);
        assert!(source.contains("The model `__kiln_list(["), "the names are in it:\n{source}");
    }
}

/// The names of the fixture as they are.
#[test]
fn the_fixture_stays_names() {
    let source = source_of(&model("hostile_names"), &["model.onnx".to_owned()]).expect("a model");
    check_source(&source);
    assert!(source.contains("__kiln_list(["), "the attack is in it:\n{source}");
}

/// The attack that was found: a name closed its literal, and the next was code.
#[test]
fn markers_in_names_stay_names() {
    let names = ["__kiln_list([]".to_owned(), "]), __intruder!(), __kiln_list([".to_owned()];
    for case in CASES {
        check_source(&source(case, &names).expect("it is the same model"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_names_stay_names(names in names(), case in prop::sample::select(CASES)) {
        if let Some(source) = source(case, &names) {
            check_source(&source);
        }
    }

    #[test]
    fn golden_tests_have_checked_names(names in names()) {
        let tests: Vec<GoldenTest> = names.iter().map(|name| GoldenTest {
            name: name.clone(),
            data: RecordPath::OutDir(name.clone()),
            dtype: None,
            precision: Precision::default(),
        }).collect();
        let source = golden_tests(&tests, &[(DType::F32, 2), (DType::I64, 1)], 2, &Options::default());
        let source = source.expect("tests");
        check_source(&source);
        prop_assert_eq!(source.matches("#[test]").count(), tests.len());
    }
}
