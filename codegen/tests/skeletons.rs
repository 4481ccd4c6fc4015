//! Skeletons of checkpoints: their text and their records, which the runtime's tests compile and load.
//!
//! `KILN_BLESS=1 cargo test -p kiln-codegen --features weights` writes the expectations anew.

use kiln_codegen::weights::{Skeleton, SkeletonError, SkeletonOptions, skeleton};
use kiln_record::safetensors::to_vec;
use kiln_types::TensorData;
use kiln_weights::{Checkpoint, LazyTensor};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn generate(file: &str) -> Skeleton {
    let path = folder("../fixtures/weights").join(file);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let tensors = checkpoint.tensors().map(|(key, tensor)| (key.to_owned(), tensor.clone())).collect();
    let source_name = path.file_name().unwrap().to_str().unwrap().to_owned();
    skeleton(tensors, &SkeletonOptions { source_name, ..SkeletonOptions::default() }).unwrap()
}

#[test]
fn the_text_and_the_record_are_as_expected() {
    for file in
        ["net.pt", "of_cases/net_bert_encoder.pt", "of_cases/net_residual_cnn_unfolded.pt", "parameters.pt"]
    {
        let made = generate(file);
        let record = to_vec(&made.tensors, &BTreeMap::new()).unwrap();
        let stem = Path::new(file).file_stem().unwrap().to_str().unwrap();
        let expected = folder("tests/skeletons");
        let (source, data) =
            (expected.join(format!("{stem}.rs")), expected.join(format!("{stem}.safetensors")));
        if std::env::var_os("KILN_BLESS").is_some() {
            std::fs::create_dir_all(&expected).unwrap();
            std::fs::write(&source, &made.source).unwrap();
            std::fs::write(&data, &record).unwrap();
        }
        assert_eq!(made.source, std::fs::read_to_string(&source).unwrap(), "{file}");
        assert!(record == std::fs::read(&data).unwrap(), "the record of {file}");
    }
}

/// Tensors of these shapes.
fn tensors(entries: &[(&str, &[usize])]) -> Vec<(String, LazyTensor)> {
    let tensor = |(key, shape): &(&str, &[usize])| {
        let data = TensorData::zeros::<f32, _>(shape.to_vec());
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
    assert!(made.source.contains("`head`: may be Embedding (`--as head=Embedding`)."), "{}", made.source);
    assert!(made.source.contains("pub up: nn::conv::ConvTranspose2d<B>"), "{}", made.source);
    let made = settled(entries, "head", "Embedding").unwrap();
    assert!(made.source.contains("pub head: nn::Embedding<B>"), "{}", made.source);
    assert!(settled(entries, "head", "Param").unwrap().source.contains("Param<Tensor<B, 2>>"));
    let error = settled(entries, "head", "LayerNorm").unwrap_err().to_string();
    assert_eq!(error, r#""head" cannot be a LayerNorm: it may be Linear, Embedding"#);
    assert!(matches!(settled(entries, "tail", "Linear"), Err(SkeletonError::NoSuchLayer(_))));
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
    assert_eq!(made.tensors.len(), entries.len());
    let file = syn::parse_file(&made.source).unwrap();
    let harmless =
        |item: &syn::Item| matches!(item, syn::Item::Use(_) | syn::Item::Struct(_) | syn::Item::Impl(_));
    assert!(file.items.iter().all(harmless), "{}", made.source);
    let deep = vec!["a"; 100].join(".");
    assert!(matches!(
        skeleton(tensors(&[(&deep, &[1])]), &SkeletonOptions::default()),
        Err(SkeletonError::TooDeep { .. })
    ));
    let both = skeleton(tensors(&[("a", &[1]), ("a.b", &[1])]), &SkeletonOptions::default());
    assert!(matches!(both, Err(SkeletonError::TensorAndModule(_))));
}
