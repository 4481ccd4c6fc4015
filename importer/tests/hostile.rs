//! Broken files: mutated models, truncated models, noise. Every one ends in a graph or in an error. More models come from
//! `KILN_CASES`, more rounds from `KILN_MUTATIONS`.

use kiln_importer::onnx::{LoadOptions, load_bytes};
use kiln_importer::passes::{Options, optimize};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

/// SplitMix64: the same mutations on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

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

/// One to four changes of a kind that breaks lengths, tags, numbers or names.
fn mutate(model: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = model.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(7) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            3 => {
                let end = (at + 1 + random.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let piece: Vec<u8> = bytes[at..].iter().take(1 + random.below(64)).copied().collect();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            5 => {
                let from = random.below(other.len());
                let piece: Vec<u8> = other[from..].iter().take(1 + random.below(200)).copied().collect();
                bytes.splice(at..at, piece);
            }
            // The greatest varint, where a length or a dim may stand.
            _ => {
                bytes.splice(at..at, [0xff; 9].into_iter().chain([0x01]));
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
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
            let bytes = mutate(model, other, &mut random);
            let options = LoadOptions { trainable: round % 2 == 1, ..LoadOptions::default() };
            let result = std::panic::catch_unwind(|| load_bytes(bytes, &options));
            match result {
                Ok(Ok(mut graph)) => {
                    accepted += 1;
                    let verified = graph.verify();
                    assert!(verified.is_ok(), "{name}, round {round}: {:?}", verified.err());
                    // The passes, too, meet what no exporter writes; debug builds verify after each.
                    let passes = Options { trainable: options.trainable };
                    let optimized =
                        std::panic::catch_unwind(AssertUnwindSafe(|| optimize(&mut graph, &passes)));
                    assert!(optimized.is_ok(), "{name}, round {round}: the passes panicked");
                }
                Ok(Err(error)) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
                Err(_) => panic!("{name}, round {round} panicked"),
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
