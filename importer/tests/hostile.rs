//! Broken files: mutated models, truncated models, noise. Every one ends in a graph or in an error. More models come from
//! `KILN_CASES`, more rounds from `KILN_MUTATIONS`. The files under `fixtures/fuzzed` are what fuzzing found.

mod mutation;
#[cfg(feature = "pt2")]
mod programs;

use kiln_importer::onnx::{LoadOptions, load_bytes};
use kiln_importer::passes::{Options, optimize};
use mutation::{Random, mutate_bytes, mutate_model};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

fn models() -> Vec<(String, Vec<u8>)> {
    let mut roots = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases")];
    roots.extend(std::env::var("KILN_CASES").iter().flat_map(|more| more.split(':')).map(PathBuf::from));
    let mut found = Vec::new();
    for folder in roots.iter().flat_map(|root| std::fs::read_dir(root).expect("the cases")) {
        let folder = folder.expect("an entry").path();
        if let Ok(bytes) = std::fs::read(folder.join("model.onnx")) {
            let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
            // Large files are mostly weights, which nothing interprets.
            if bytes.len() < 200_000 {
                found.push((name, bytes));
            }
        }
    }
    found.sort();
    found
}

/// Whether a file is a model: then its graph holds together, and so does what passes make of it, which meet what no exporter writes;
/// debug builds verify after each. An error says something, and nothing that a terminal would take for more than text.
fn accepts(what: &str, bytes: Vec<u8>, options: &LoadOptions) -> bool {
    match std::panic::catch_unwind(|| load_bytes(bytes, options)) {
        Ok(Ok(mut graph)) => {
            let verified = graph.verify();
            assert!(verified.is_ok(), "{what}: {:?}", verified.err());
            let passes = Options { trainable: options.trainable, ..Options::default() };
            let optimized = std::panic::catch_unwind(AssertUnwindSafe(|| optimize(&mut graph, &passes)));
            assert!(optimized.is_ok(), "{what}: the passes panicked");
            true
        }
        Ok(Err(error)) => {
            let text = error.to_string();
            assert!(!text.is_empty(), "{what}");
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{what}: {text:?}");
            false
        }
        Err(_) => panic!("{what} panicked"),
    }
}

#[test]
fn mutated_models_never_panic() {
    let models = models();
    let rounds = std::env::var("KILN_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let mut random = Random(1);
    let (mut accepted, mut refused) = (0, 0);
    for (n, (name, model)) in models.iter().enumerate() {
        let other = &models[(n * 7 + 3) % models.len()].1;
        for round in 0..rounds {
            // Every other change is one of messages, which gets past the reader more often.
            let messages = if round % 2 == 0 { mutate_model(model, &mut random) } else { None };
            let bytes = messages.unwrap_or_else(|| mutate_bytes(model, other, &mut random));
            let options = LoadOptions { trainable: round % 4 > 1, ..LoadOptions::default() };
            match accepts(&format!("{name}, round {round}"), bytes, &options) {
                true => accepted += 1,
                false => refused += 1,
            }
        }
    }
    assert!(accepted > 0 && refused > accepted, "{accepted} accepted, {refused} refused");
}

#[test]
fn every_truncation_is_an_error_or_a_graph() {
    let models = models();
    let (_, model) = models.iter().find(|(name, _)| name == "if_nested").expect("the case if_nested");
    for length in 0..model.len() {
        let _ = load_bytes(model[..length].to_vec(), &LoadOptions::default());
    }
}

#[test]
fn noise_is_refused() {
    let mut random = Random(2);
    for _ in 0..2000 {
        let length = random.below(300);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        assert!(load_bytes(bytes, &LoadOptions::default()).is_err());
    }
}

/// What fuzzing found, kept: each file once made something panic or run without end.
#[test]
fn found_files_stay_harmless() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/fuzzed");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        found += 1;
        for trainable in [false, true] {
            if let Ok(mut graph) =
                load_bytes(bytes.clone(), &LoadOptions { trainable, ..LoadOptions::default() })
            {
                assert_eq!(graph.verify(), Ok(()), "{}", path.display());
                optimize(&mut graph, &Options { trainable, ..Options::default() });
            }
        }
    }
    assert!(found > 0);
}
