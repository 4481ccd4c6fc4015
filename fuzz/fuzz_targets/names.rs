//! The final source text of models with any names: it parses, has the items that are generated, and no name in it is code.

#![no_main]

#[path = "../../codegen/tests/hostile_names/mod.rs"]
mod hostile_names;

use hostile_names::{FRAGMENTS, Renaming, check_source};
use kiln_codegen::{CodegenError, GoldenTest, Options, RecordPath, generate, golden_tests};
use kiln_importer::onnx::proto::ModelProto;
use kiln_importer::onnx::{LoadOptions, load_bytes};
use kiln_importer::passes;
use libfuzzer_sys::fuzz_target;
use prost::Message;

const MODELS: [&[u8]; 3] = [
    include_bytes!("../../fixtures/hostile_names/model.onnx"),
    include_bytes!("../../fixtures/cases/scopes_torchscript/model.onnx"),
    include_bytes!("../../fixtures/cases/if_nested/model.onnx"),
];

/// A byte is a fragment, or where there is none a character; 0xff ends a name.
fn names(data: &[u8]) -> Vec<String> {
    let part = |byte: &u8| FRAGMENTS.get(usize::from(*byte)).map_or_else(|| char::from(*byte).to_string(), |part| (*part).to_owned());
    data.split(|byte| *byte == 0xff).map(|name| name.iter().map(part).collect()).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let names = names(rest);
    let text = |n: usize| names.get(n % names.len()).cloned().unwrap_or_default();
    let options = Options {
        source_name: text(0),
        default_record: Some(RecordPath::OutDir(text(1))),
        ..Options::default()
    };
    let tests = names.iter().map(|name| GoldenTest { name: name.clone(), data: RecordPath::Given(name.clone()) });
    check_source(&golden_tests(&tests.collect::<Vec<_>>(), &[], 1, &options).expect("tests"));

    let model = MODELS[usize::from(*first) % MODELS.len()];
    let mut proto = ModelProto::decode(model).expect("a model");
    Renaming::new(&names).model(&mut proto);
    let Ok(mut graph) = load_bytes(proto.encode_to_vec(), &LoadOptions::default()) else { return };
    passes::optimize(&mut graph, &passes::Options::default());
    match generate(&graph, &options) {
        Ok(generated) => check_source(&generated.source),
        Err(error) => assert!(!matches!(error, CodegenError::Internal(_)), "{error}"),
    }
});
