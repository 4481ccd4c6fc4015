//! Broken models on the whole way: what the importer accepts, mutated as no exporter would write it, ends in source without a runtime or in
//! an error; no name in a file becomes code. More rounds come from `KILN_MUTATIONS`.

#[path = "../../tests/hostile_names/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the other generator's own test also checks which items there are"
)]
mod hostile_names;
#[path = "../../../importer/tests/mutation/mod.rs"]
#[allow(dead_code, reason = "the importer's own test also changes bytes")]
mod mutation;

use hostile_names::{FRAGMENTS, Renaming};
use kiln_codegen::RecordPath;
use kiln_importer::ir::{Dim, Graph};
use kiln_importer::onnx::proto::ModelProto;
use kiln_importer::onnx::{LoadOptions, load_bytes};
use kiln_importer::passes;
use kiln_standalone::{Options, StandaloneError, generate};
use mutation::{Random, mutate_model};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use proptest::prelude::*;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

fn options(name: &str) -> Options {
    Options {
        model_name: "Model".to_owned(),
        source_name: name.to_owned(),
        weights: RecordPath::Given(name.to_owned()),
    }
}

/// A graph each of whose sizes is a number, where the file leaves them to the inputs.
fn load(bytes: &[u8]) -> Option<Graph> {
    let graph = load_bytes(bytes.to_vec(), &LoadOptions::default()).ok()?;
    let dims = graph.inputs.iter().flat_map(|&input| &graph.ty(input).dims);
    let bind_dims: BTreeMap<String, usize> =
        dims.filter_map(Dim::as_symbol).map(|symbol| (symbol.to_string(), 3)).collect();
    let mut graph = match bind_dims.is_empty() {
        true => graph,
        false => load_bytes(bytes.to_vec(), &LoadOptions { bind_dims, ..LoadOptions::default() }).ok()?,
    };
    passes::optimize(&mut graph, &passes::Options::default());
    Some(graph)
}

fn small_cases() -> Vec<(PathBuf, Vec<u8>)> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/cases");
    let mut models: Vec<_> = std::fs::read_dir(cases)
        .expect("the cases")
        .filter_map(|entry| {
            let folder = entry.expect("an entry").path();
            let bytes = std::fs::read(folder.join("model.onnx")).ok()?;
            (bytes.len() < 30_000).then_some((folder, bytes))
        })
        .collect();
    models.sort();
    models
}

#[test]
fn mutated_models_become_source_or_errors() {
    let rounds = std::env::var("KILN_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    let mut random = Random(7);
    let (mut generated, models) = (0, small_cases());
    for (folder, model) in &models {
        for round in 0..rounds {
            let Some(bytes) = mutate_model(model, &mut random) else { continue };
            let Some(graph) = load(&bytes) else { continue };
            let what = format!("{}, round {round}", folder.display());
            let outcome = catch_unwind(AssertUnwindSafe(|| generate(&graph, &options("model.onnx"))));
            match outcome.unwrap_or_else(|_| panic!("{what} panicked")) {
                Ok(standalone) => generated += usize::from(!standalone.source.is_empty()),
                Err(StandaloneError::Print(error)) => panic!("{what}: {error}"),
                Err(StandaloneError::Missing(part)) => panic!("{what}: {part} is missing"),
                Err(_) => {}
            }
        }
    }
    assert!(generated > models.len() / 2, "{generated}");
}

/// Cases with scopes of both exporters, and without.
const CASES: [&str; 5] =
    ["scopes_torchscript", "scopes_dynamo", "scopes_none", "net_residual_cnn", "net_lstm_tagger"];

/// The source of a renamed case; nothing where the names made it a model that cannot be imported, or sizes that are no numbers.
fn renamed(case: &str, names: &[String]) -> Option<String> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/cases").join(case).join("model.onnx");
    let bytes = std::fs::read(path).expect("the case");
    let mut proto = ModelProto::decode(bytes.as_slice()).expect("a model");
    Renaming::new(names).model(&mut proto);
    match generate(&load(&proto.encode_to_vec())?, &options(&names[0])) {
        Ok(standalone) => Some(standalone.source),
        Err(error @ (StandaloneError::Print(_) | StandaloneError::Missing(_))) => panic!("{error}"),
        Err(_) => None,
    }
}

/// The words of tokens that do something: what is called, macros, and parts of paths.
fn doing(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_punct = |at: Option<usize>, c: char| {
        at.and_then(|at| tokens.get(at))
            .is_some_and(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == c))
    };
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(name) => {
                let next = tokens.get(at + 1);
                let is_called = matches!(next, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                let is_path = is_punct(Some(at + 1), ':') && is_punct(Some(at + 2), ':')
                    || is_punct(at.checked_sub(1), ':') && is_punct(at.checked_sub(2), ':');
                if is_called || is_path || is_punct(Some(at + 1), '!') {
                    found.insert(name.to_string());
                }
            }
            TokenTree::Group(group) => doing(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// What source of these cases does under plain names.
fn plain() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for case in CASES {
        let source = renamed(case, &["plain".to_owned()]).expect("source of plain names");
        doing(source.parse().expect("tokens"), &mut found);
    }
    found
}

static PLAIN: LazyLock<BTreeSet<String>> = LazyLock::new(plain);

/// Source does nothing that it does not do under plain names, and holds nothing that nobody sees.
fn check(case: &str, names: &[String]) {
    let Some(source) = renamed(case, names) else { return };
    let file = syn::parse_file(&source).unwrap_or_else(|error| panic!("{error}:\n{source}"));
    let macros = file.items.iter().filter(|item| matches!(item, syn::Item::Macro(_))).count();
    assert!(macros == 1 && file.attrs.is_empty(), "{source}");
    let mut found = BTreeSet::new();
    doing(source.parse().expect("tokens"), &mut found);
    let other: Vec<&String> = found.difference(&PLAIN).collect();
    assert!(other.is_empty(), "{other:?}, named {names:?}:\n{source}");
    assert!(!source.contains(|c| c != '\n' && kiln_types::is_invisible(c)), "{source:?}");
}

#[test]
fn no_name_becomes_code() {
    for (fragment, case) in FRAGMENTS.iter().zip(CASES.iter().cycle()) {
        check(case, &[(*fragment).to_owned()]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn no_names_become_code(names in prop::collection::vec(any::<String>(), 1..6), case in 0..CASES.len()) {
        check(CASES[case], &names);
    }
}
