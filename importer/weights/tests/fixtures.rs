//! Reads every checkpoint under `fixtures/weights` and compares with what PyTorch read, or with why it must not load.

use kiln_record::safetensors::Safetensors;
use kiln_types::{DType, TensorData};
use kiln_weights::Checkpoint;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a hostile file would make if a reader ran the command in it.
const EVIDENCE: &str = "/tmp/kiln-was-here";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/weights")
}

/// The files below a folder whose names end so.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.to_str().unwrap().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
}

/// The checkpoint that an expectation is about.
fn subject(expectation: &Path) -> PathBuf {
    let name = expectation.to_str().unwrap().strip_suffix(".expected.json").unwrap();
    let candidates = [format!("{name}.pt"), format!("{name}.safetensors"), name.to_owned()];
    candidates.into_iter().map(PathBuf::from).find(|path| path.exists()).unwrap()
}

/// Everything in a checkpoint that can be read; the first error if there is one.
fn read_all(path: &Path) -> kiln_weights::Result<Checkpoint> {
    let checkpoint = Checkpoint::open(path)?;
    for (path, tensor) in checkpoint.tensors() {
        let data = checkpoint.data(path)?;
        assert_eq!(tensor.to_vec()?, data.bytes.to_vec(), "{path}");
    }
    checkpoint.plain_data()?;
    Ok(checkpoint)
}

#[test]
fn every_checkpoint_reads_as_pytorch_read_it_or_is_refused() {
    // What an older reader left says nothing of this one.
    let _ = std::fs::remove_file(EVIDENCE);
    let mut expectations = Vec::new();
    files(&root(), ".expected.json", &mut expectations);
    assert!(expectations.len() > 200);
    let problems: Vec<_> = expectations.iter().filter_map(|path| check(path).err()).collect();
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), expectations.len(), problems.join("\n"));
    assert!(!Path::new(EVIDENCE).exists());
}

fn check(expectation: &Path) -> Result<(), String> {
    let path = subject(expectation);
    let expected: Json = serde_json::from_slice(&std::fs::read(expectation).unwrap()).unwrap();
    let say = |what: String| format!("{}: {what}", path.display());
    // `tests/limits/tests/checkpoints.rs` reads these, within limits.
    if expected.get("bounded").is_some() {
        return Ok(());
    }
    let read = read_all(&path);
    if let Some(refused) = expected.get("refused") {
        // What is not supported is refused when it is asked for.
        let read = read.and_then(|checkpoint| match checkpoint.unsupported().next() {
            Some((path, _)) => checkpoint.data(path).map(|_| ()),
            None => Ok(()),
        });
        let error = match read {
            Ok(_) => return Err(say(format!("loads, though {}", refused["because"]))),
            Err(error) => error.to_string(),
        };
        if error.len() > 10_000 {
            return Err(say(format!("the error is {} bytes long", error.len())));
        }
        let missing = refused["mentions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|word| !error.contains(word.as_str().unwrap()));
        return match missing {
            Some(word) => Err(say(format!("the error does not mention {word}: {error}"))),
            None => Ok(()),
        };
    }
    let checkpoint = read.map_err(|error| say(error.to_string()))?;
    compare(&checkpoint, &expected, &expectation.with_extension("safetensors")).map_err(say)
}

fn compare(checkpoint: &Checkpoint, expected: &Json, tensors: &Path) -> Result<(), String> {
    let entries = expected["tensors"].as_object().unwrap();
    for (path, entry) in entries {
        let tensor = checkpoint.tensor(path).ok_or_else(|| format!("{path:?} is missing"))?;
        let found = serde_json::json!({ "dtype": tensor.dtype().name(), "shape": tensor.shape() });
        if found != *entry {
            return Err(format!("{path:?} is {found}, not {entry}"));
        }
    }
    if checkpoint.tensors().len() != entries.len() {
        return Err(format!("there are {} tensors, not {}", checkpoint.tensors().len(), entries.len()));
    }
    let unsupported: Vec<_> = checkpoint.unsupported().collect();
    let wanted = expected.get("unsupported").and_then(Json::as_object);
    if unsupported.len() != wanted.map_or(0, serde_json::Map::len) {
        return Err(format!("what is not supported is {unsupported:?}, not {wanted:?}"));
    }
    for (path, what) in unsupported {
        let said = wanted.and_then(|wanted| wanted.get(path)?.as_str());
        if said.is_none_or(|said| !what.contains(said)) {
            return Err(format!("{path:?} is {what:?}, not {said:?}"));
        }
    }
    if !entries.is_empty() && expected.get("without_elements").is_none() {
        let golden = Safetensors::open(tensors).map_err(|error| error.to_string())?;
        let there: BTreeSet<_> = golden.paths().collect();
        if !entries.keys().map(String::as_str).eq(there) {
            return Err("the golden data has other tensors".to_owned());
        }
        for path in golden.paths() {
            if !is_same(&checkpoint.data(path).unwrap(), &golden.tensor(path).unwrap()) {
                return Err(format!("{path:?} has other elements"));
            }
        }
    }
    let shared = serde_json::to_value(checkpoint.shared_storages()).unwrap();
    if let Some(expected) = expected.get("shared")
        && shared != *expected
    {
        return Err(format!("shared storages are {shared}, not {expected}"));
    }
    if let Some(data) = expected.get("data")
        && checkpoint.plain_data().unwrap() != *data
    {
        return Err(format!("the data are {}, not {data}", checkpoint.plain_data().unwrap()));
    }
    Ok(())
}

/// Whether the elements are the same. Of what is no number, bits may differ where it was widened.
fn is_same(data: &TensorData, golden: &TensorData) -> bool {
    let widened = matches!(data.dtype, DType::F16 | DType::BF16);
    let same = data.dtype == golden.dtype && data.shape == golden.shape;
    let equal = |(a, b): (f64, f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    data == golden || (widened && same && data.iter::<f64>().zip(golden.iter::<f64>()).all(equal))
}

#[test]
fn a_nested_checkpoint_is_opened_at_its_key() {
    for name in ["net_nested.pt", "net_nested_legacy.pt"] {
        let key = Some("model.state_dict".to_owned());
        let options = kiln_weights::OpenOptions { top_level_key: key };
        let nested = Checkpoint::open_with(root().join(name), &options).unwrap();
        let plain = Checkpoint::open(root().join("net.pt")).unwrap();
        assert!(plain.tensors().map(|(path, _)| path).eq(nested.tensors().map(|(path, _)| path)));
        for (path, _) in plain.tensors() {
            assert_eq!(plain.data(path).unwrap(), nested.data(path).unwrap(), "{path}");
        }
    }
    let options = kiln_weights::OpenOptions { top_level_key: Some("weights".to_owned()) };
    let error = Checkpoint::open_with(root().join("net_nested.pt"), &options).unwrap_err();
    assert!(
        error.to_string().contains(r#"there is no key "weights"; at the top there are "model", "optimizer""#),
        "{error}"
    );
}

#[test]
fn a_top_level_key_may_be_what_names_begin_with() {
    let open = |name: &str, key: &str| {
        let options = kiln_weights::OpenOptions { top_level_key: Some(key.to_owned()) };
        Checkpoint::open_with(root().join(name), &options)
    };
    for (name, key) in [
        ("net.pt", "norm"),
        ("net.safetensors", "norm"),
        ("net_sharded", "norm"),
        ("net_nested.pt", "model.state_dict.norm"),
    ] {
        let part = open(name, key).unwrap();
        let mut paths: Vec<_> = part.tensors().map(|(path, _)| path).collect();
        paths.sort_unstable();
        assert!(
            paths.contains(&"weight") && paths.iter().all(|path| !path.contains('.')),
            "{name}: {paths:?}"
        );
        assert_eq!(
            part.data("weight").unwrap(),
            Checkpoint::open(root().join("net.pt")).unwrap().data("norm.weight").unwrap()
        );
        // A whole name is no beginning, and neither is a part of a word.
        let error = open(name, &key.replace("norm", "nor")).unwrap_err().to_string();
        assert!(error.contains("there is no key"), "{name}: {error}");
    }
}

#[test]
fn a_folder_may_hold_one_checkpoint_of_any_name() {
    let folder = std::env::temp_dir().join(format!("kiln-weights-folder-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(root().join("net.safetensors"), folder.join("adapter.safetensors")).unwrap();
    std::fs::write(folder.join("config.json"), "{}").unwrap();
    let count = Checkpoint::open(root().join("net.safetensors")).unwrap().tensors().len();
    assert_eq!(Checkpoint::open(&folder).unwrap().tensors().len(), count);
    std::fs::copy(root().join("net.safetensors"), folder.join("second.safetensors")).unwrap();
    let error = Checkpoint::open(&folder).unwrap_err().to_string();
    assert!(error.contains("name one of its files: adapter.safetensors, second.safetensors"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn networks_have_the_keys_of_their_state_dict_in_order() {
    let checkpoint = Checkpoint::open(root().join("of_cases/net_residual_cnn_unfolded.pt")).unwrap();
    let norm = |at: &str| {
        ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
            .map(|name| format!("{at}.{name}"))
    };
    let mut keys = vec!["conv1.weight".to_owned()];
    keys.extend(norm("bn1"));
    for block in ["layer1.0", "layer1.1", "layer2.0", "layer2.1"] {
        for layer in ["1", "2"] {
            keys.push(format!("{block}.conv{layer}.weight"));
            keys.extend(norm(&format!("{block}.bn{layer}")));
        }
        if block == "layer2.0" {
            keys.push("layer2.0.downsample.0.weight".to_owned());
            keys.extend(norm("layer2.0.downsample.1"));
        }
    }
    keys.extend(["fc.weight", "fc.bias"].map(str::to_owned));
    let paths: Vec<_> = checkpoint.tensors().map(|(path, _)| path).collect();
    assert_eq!(paths, keys);
}

#[test]
fn a_configuration_in_a_checkpoint_becomes_a_type() {
    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Config {
        name: String,
        hidden: usize,
        dropout: f64,
        sizes: Vec<i32>,
        optional: Option<u8>,
        pair: (i64, String),
    }
    let path = root().join("net_nested.pt");
    let config: Config = kiln_weights::config_from_file(&path, Some("config")).unwrap();
    let expected = Config {
        name: "net".to_owned(),
        hidden: 4,
        dropout: 0.1,
        sizes: vec![3, 4, 6],
        optional: None,
        pair: (1, "two".to_owned()),
    };
    assert_eq!(config, expected);
    let error = kiln_weights::config_from_file::<Config>(&path, Some("model")).unwrap_err();
    assert!(error.to_string().contains("missing field `name`"), "{error}");
}

#[test]
fn what_lies_in_order_is_not_copied() {
    let checkpoint = Checkpoint::open(root().join("net.pt")).unwrap();
    let data = || checkpoint.data("conv.weight").unwrap();
    assert_eq!(data().bytes.as_ptr(), data().bytes.as_ptr());
}
