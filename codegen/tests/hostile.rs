//! Broken models on the whole way: what the importer accepts, mutated as no exporter would write it, ends in source or in
//! an error. More rounds come from `KILN_MUTATIONS`.

#[path = "../../importer/tests/mutation/mod.rs"]
#[allow(dead_code, reason = "the importer's own test also changes bytes")]
mod mutation;

use kiln_codegen::{CodegenError, Options, generate};
use kiln_importer::onnx::{LoadOptions, load_bytes};
use kiln_importer::passes;
use mutation::{Random, mutate_model};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[test]
fn mutated_models_become_source_or_errors() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases");
    let mut models: Vec<_> = std::fs::read_dir(cases)
        .expect("the cases")
        .filter_map(|entry| {
            let folder = entry.expect("an entry").path();
            let bytes = std::fs::read(folder.join("model.onnx")).ok()?;
            (bytes.len() < 30_000).then_some((folder, bytes))
        })
        .collect();
    models.sort();
    let rounds = std::env::var("KILN_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let mut random = Random(3);
    let mut generated = 0;
    for (folder, model) in &models {
        for round in 0..rounds {
            let Some(bytes) = mutate_model(model, &mut random) else {
                continue;
            };
            let trainable = round % 4 == 0;
            let Ok(mut graph) = load_bytes(bytes, &LoadOptions { trainable, ..LoadOptions::default() })
            else {
                continue;
            };
            let what = format!("{}, round {round}", folder.display());
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                passes::optimize(&mut graph, &passes::Options { trainable, ..passes::Options::default() });
                generate(&graph, &Options::default())
            }));
            match outcome.unwrap_or_else(|_| panic!("{what} panicked")) {
                Ok(source) => generated += usize::from(!source.source.is_empty()),
                Err(error) => assert!(!matches!(error, CodegenError::Internal(_)), "{what}: {error}"),
            }
        }
    }
    assert!(generated > models.len(), "{generated}");
}
