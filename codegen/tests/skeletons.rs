//! Skeletons of checkpoints: their text and their records, which the runtime's tests compile and load.
//!
//! `KILN_BLESS=1 cargo test -p kiln-codegen --features weights` writes the expectations anew.

use kiln_codegen::RecordFormat;
use kiln_codegen::weights::{Skeleton, SkeletonError, SkeletonOptions, skeleton};
use kiln_types::TensorData;
use kiln_weights::{Checkpoint, LazyTensor, OpenOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Reads a fixture's tensors, below a key if one is given.
fn read(file: &str, key: Option<&str>) -> Vec<(String, LazyTensor)> {
    let path = folder("../fixtures/weights").join(file);
    let options = OpenOptions { top_level_key: key.map(str::to_owned) };
    let checkpoint = Checkpoint::open_with(&path, &options).unwrap();
    checkpoint.tensors().map(|(key, tensor)| (key.to_owned(), tensor.clone())).collect()
}

/// The bytes of a record.
fn record(made: &Skeleton) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    made.write_record(file.path()).unwrap();
    std::fs::read(file.path()).unwrap()
}

/// Compares source and record with the expectation `name`, or writes it.
fn check(name: &str, made: &Skeleton) {
    let source = folder("tests/skeletons").join(format!("{name}.rs"));
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(&source, &made.generated.source).unwrap();
    }
    assert_eq!(made.generated.source, std::fs::read_to_string(&source).unwrap(), "{name}");
    check_record(name, made);
}

/// Compares a record with the expectation `name`, or writes it.
fn check_record(name: &str, made: &Skeleton) {
    let data = folder("tests/skeletons").join(format!("{name}.{}", made.generated.format.extension()));
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(&data, record(made)).unwrap();
    }
    assert!(record(made) == std::fs::read(&data).unwrap(), "the record of {name}");
}

/// Options with the file's name.
fn named(file: &str) -> SkeletonOptions {
    let source_name = Path::new(file).file_name().unwrap().to_str().unwrap().to_owned();
    SkeletonOptions { source_name, ..SkeletonOptions::default() }
}

#[test]
fn the_text_and_the_record_are_as_expected() {
    for file in
        ["net.pt", "of_cases/net_bert_encoder.pt", "of_cases/net_residual_cnn_unfolded.pt", "parameters.pt"]
    {
        let made = skeleton(read(file, None), &named(file)).unwrap();
        check(Path::new(file).file_stem().unwrap().to_str().unwrap(), &made);
    }
    // Layers that the networks above do not have.
    check("kinds", &skeleton(tensors(KINDS), &named("kinds.pt")).unwrap());
}

/// The layers that no network among the fixtures has.
const KINDS: &[(&str, &[usize])] = &[
    ("conv1d.weight", &[4, 3, 2]),
    ("conv3d.weight", &[2, 3, 1, 2, 2]),
    ("conv3d.bias", &[2]),
    ("deconv1d.weight", &[3, 4, 2]),
    ("deconv1d.bias", &[4]),
    ("deconv3d.weight", &[3, 4, 1, 2, 2]),
    ("prelu.weight", &[3]),
    ("rms_norm.weight", &[5]),
    ("lstm.weight_ih_l0", &[8, 3]),
    ("lstm.weight_hh_l0", &[8, 2]),
];

#[test]
fn records_are_of_any_format() {
    let formats = [
        ("named_mpk", RecordFormat::NamedMpk),
        ("named_mpk_gz", RecordFormat::NamedMpkGz),
        ("bincode", RecordFormat::Bincode),
        ("pretty_json", RecordFormat::PrettyJson),
    ];
    for (name, record) in formats {
        let options = SkeletonOptions { record, ..named("net.pt") };
        check(&format!("net_{name}"), &skeleton(read("net.pt", None), &options).unwrap());
    }
    // Bincode tells fields by their order, and here it is that of the names.
    let sorted = SkeletonOptions { record: RecordFormat::Bincode, ..named("net.safetensors") };
    check("net_sorted_bincode", &skeleton(read("net.safetensors", None), &sorted).unwrap());
    let half = SkeletonOptions { record: RecordFormat::Bincode, half_precision: true, ..named("kinds.pt") };
    check("kinds_bincode_half", &skeleton(tensors(KINDS), &half).unwrap());
}

/// Every kind of checkpoint has the skeleton that `net` or `net_sorted` is, which the runtime's tests compile, and its
/// record has the same parameters, in every format.
#[test]
fn every_kind_of_checkpoint_has_the_same_skeleton() {
    let kinds = [
        ("net.pt", None, "net"),
        ("net_nested.pt", Some("model.state_dict"), "net"),
        ("net_legacy.pt", None, "net"),
        ("net_nested_legacy.pt", Some("model.state_dict"), "net"),
        ("net_tar.pt", None, "net"),
        ("net_half.pt", None, "net"),
        ("net_bfloat16.pt", None, "net"),
        ("net_torchscript.pt", None, "net"),
        ("net_traced.pt", None, "net"),
        ("net_sharded", None, "net_sorted"),
        ("net_sharded_bin", None, "net_sorted"),
        ("net.safetensors", None, "net_sorted"),
    ];
    let formats = [
        RecordFormat::Safetensors,
        RecordFormat::NamedMpk,
        RecordFormat::NamedMpkGz,
        RecordFormat::Bincode,
        RecordFormat::PrettyJson,
    ];
    check("net_sorted", &skeleton(read("net.safetensors", None), &named("net.safetensors")).unwrap());
    for (file, key, expected) in kinds {
        let source = if expected == "net" { "net.pt" } else { "net.safetensors" };
        let original = |options: &SkeletonOptions| skeleton(read(source, None), options).unwrap();
        for format in formats {
            let options = SkeletonOptions { record: format, ..named(source) };
            let made = skeleton(read(file, key), &options).unwrap();
            assert_eq!(made.generated.source, original(&options).generated.source, "{file}");
            // What was saved in fewer bits comes back rounded.
            let rounded = file.contains("half") || file.contains("bfloat16");
            assert!(rounded || record(&made) == record(&original(&options)), "{file} as {format:?}");
            let half = SkeletonOptions { half_precision: true, ..options };
            let (made, original) = (skeleton(read(file, key), &half).unwrap(), original(&half));
            // A Safetensors record also keeps the dtype that a tensor had before.
            let other = file.contains("bfloat16") || (rounded && format == RecordFormat::Safetensors);
            assert!(other || record(&made) == record(&original), "{file} as half");
        }
    }
    for name in ["net_half", "net_bfloat16"] {
        check_record(name, &skeleton(read(&format!("{name}.pt"), None), &named("net.pt")).unwrap());
    }
}

/// Tensors of these shapes, counting up.
fn tensors(entries: &[(&str, &[usize])]) -> Vec<(String, LazyTensor)> {
    let tensor = |(key, shape): &(&str, &[usize])| {
        let elements: Vec<f32> = (0..shape.iter().product()).map(|i: usize| i as f32).collect();
        let data = TensorData::new(elements, shape.to_vec());
        ((*key).to_owned(), LazyTensor::whole(data, key))
    };
    entries.iter().map(tensor).collect()
}

fn settled(entries: &[(&str, &[usize])], key: &str, layer: &str) -> Result<Skeleton, SkeletonError> {
    let settled = BTreeMap::from([(key.to_owned(), layer.to_owned())]);
    skeleton(tensors(entries), &SkeletonOptions { settled, ..SkeletonOptions::default() })
}

#[test]
fn an_ambiguous_layer_is_said_to_be_one_and_can_be_settled() {
    let entries: &[(&str, &[usize])] = &[("head.weight", &[5, 3]), ("up.weight", &[4, 4, 2, 2])];
    let made = skeleton(tensors(entries), &SkeletonOptions::default()).unwrap();
    let keys: Vec<_> = made.ambiguous.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["head", "up"]);
    assert!(
        made.generated.source.contains("`head`: may be Embedding (`--as head=Embedding`)."),
        "{}",
        made.generated.source
    );
    assert!(
        made.generated.source.contains("pub up: nn::conv::ConvTranspose2d<B>"),
        "{}",
        made.generated.source
    );
    let made = settled(entries, "head", "Embedding").unwrap();
    assert!(made.generated.source.contains("pub head: nn::Embedding<B>"), "{}", made.generated.source);
    assert!(settled(entries, "head", "Param").unwrap().generated.source.contains("Param<Tensor<B, 2>>"));
    let error = settled(entries, "head", "LayerNorm").unwrap_err().to_string();
    assert_eq!(error, r#""head" cannot be a LayerNorm: it may be Linear, Embedding"#);
    let error = settled(entries, "heat", "Linear").unwrap_err().to_string();
    assert_eq!(error, r#"there is no layer "heat" in the checkpoint; there are "head", "up""#);
}

#[test]
fn hostile_keys_become_harmless_names() {
    let entries: &[(&str, &[usize])] = &[
        ("a\"; fn main() {}.weight", &[2]),
        ("*/ bad /*", &[1]),
        ("self.B", &[1]),
        ("Self.Tensor.Vec", &[1]),
        (".x", &[1]),
        ("fn.type\n", &[1]),
        ("größe", &[1]),
    ];
    let made = skeleton(tensors(entries), &SkeletonOptions::default()).unwrap();
    assert_eq!(made.generated.tensors().len(), entries.len());
    let file = syn::parse_file(&made.generated.source).unwrap();
    let harmless =
        |item: &syn::Item| matches!(item, syn::Item::Use(_) | syn::Item::Struct(_) | syn::Item::Impl(_));
    assert!(file.items.iter().all(harmless), "{}", made.generated.source);
    let deep = vec!["a"; 100].join(".");
    assert!(matches!(
        skeleton(tensors(&[(&deep, &[1])]), &SkeletonOptions::default()),
        Err(SkeletonError::TooDeep { .. })
    ));
    let both = skeleton(tensors(&[("a", &[1]), ("a.b", &[1])]), &SkeletonOptions::default());
    assert!(matches!(both, Err(SkeletonError::TensorAndModule(_))));
}
