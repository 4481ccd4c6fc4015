//! Skeletons of checkpoints: their text and their records, which the runtime's tests compile and load.
//!
//! `KILN_BLESS=1 cargo test -p kiln-skeletons` writes the expectations anew.

use kiln_codegen::RecordType;
use kiln_skeletons::{Skeleton, SkeletonError, SkeletonOptions, skeleton};
use kiln_types::TensorData;
use kiln_weights::{Checkpoint, LazyTensor, OpenOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Reads a fixture's tensors, below a key if one is given.
fn read(file: &str, key: Option<&str>) -> Vec<(String, LazyTensor)> {
    let path = folder("../../fixtures/weights").join(file);
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
    let source = folder("tests/expected").join(format!("{name}.rs"));
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(&source, &made.generated.source).unwrap();
    }
    assert_eq!(made.generated.source, std::fs::read_to_string(&source).unwrap(), "{name}");
    check_record(name, made);
}

/// Compares a record with the expectation `name`, or writes it.
fn check_record(name: &str, made: &Skeleton) {
    let data = folder("tests/expected").join(format!("{name}.{}", made.generated.format.extension()));
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
    let files = [
        "net.pt",
        "of_cases/net_bert_encoder.pt",
        "of_cases/net_residual_cnn_unfolded.pt",
        "parameters.pt",
        "layers.pt",
    ];
    for file in files {
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
    ("bi_gru.weight_ih_l0", &[6, 3]),
    ("bi_gru.weight_hh_l0", &[6, 2]),
    ("bi_gru.weight_ih_l0_reverse", &[6, 3]),
    ("bi_gru.weight_hh_l0_reverse", &[6, 2]),
    ("rnn.weight_ih_l0", &[2, 3]),
    ("rnn.weight_hh_l0", &[2, 2]),
    ("rnn.bias_ih_l0", &[2]),
    ("rnn.bias_hh_l0", &[2]),
    ("bi_rnn.weight_ih_l0", &[2, 3]),
    ("bi_rnn.weight_hh_l0", &[2, 2]),
    ("bi_rnn.weight_ih_l0_reverse", &[2, 3]),
    ("bi_rnn.weight_hh_l0_reverse", &[2, 2]),
    ("attention.in_proj_weight", &[6, 2]),
    ("attention.out_proj.weight", &[2, 2]),
    ("across.q_proj_weight", &[2, 2]),
    ("across.k_proj_weight", &[2, 1]),
    ("across.v_proj_weight", &[2, 3]),
    ("across.in_proj_bias", &[6]),
    ("across.out_proj.weight", &[2, 2]),
    ("across.out_proj.bias", &[2]),
    ("inst_norm.weight", &[4]),
    ("inst_norm.bias", &[4]),
    ("c_fc.weight", &[2, 3]),
    ("c_fc.bias", &[3]),
    ("layers.0.c_fc.weight", &[2, 2]),
    ("layers.0.c_fc.bias", &[2]),
    ("layers.0.norm.weight", &[2]),
    ("layers.1.c_fc.weight", &[2, 2]),
    ("layers.1.c_fc.bias", &[2]),
];

#[test]
fn records_are_of_any_format() {
    let formats = [
        ("named_mpk", RecordType::NamedMpk),
        ("named_mpk_gz", RecordType::NamedMpkGz),
        ("bincode", RecordType::Bincode),
        ("pretty_json", RecordType::PrettyJson),
    ];
    for (name, record) in formats {
        let options = SkeletonOptions { record, ..named("net.pt") };
        check(&format!("net_{name}"), &skeleton(read("net.pt", None), &options).unwrap());
    }
    // Bincode tells fields by their order, and here it is that of the names.
    let sorted = SkeletonOptions { record: RecordType::Bincode, ..named("net.safetensors") };
    check("net_sorted_bincode", &skeleton(read("net.safetensors", None), &sorted).unwrap());
    let half = SkeletonOptions { record: RecordType::Bincode, half_precision: true, ..named("kinds.pt") };
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
        RecordType::Safetensors,
        RecordType::NamedMpk,
        RecordType::NamedMpkGz,
        RecordType::Bincode,
        RecordType::PrettyJson,
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
            let other = file.contains("bfloat16") || (rounded && format == RecordType::Safetensors);
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
    let entries: &[(&str, &[usize])] = &[("table.weight", &[5, 3]), ("up.weight", &[4, 4, 2, 2])];
    let made = skeleton(tensors(entries), &SkeletonOptions::default()).unwrap();
    let keys: Vec<_> = made.ambiguous.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["table", "up"]);
    let has = |made: &Skeleton, text: &str| {
        assert!(made.generated.source.contains(text), "{text}\n{}", made.generated.source);
    };
    has(&made, "`table`: 3 to 5. May be Embedding (`--as table=Embedding`).");
    has(&made, "pub up: nn::conv::ConvTranspose2d<B>");
    let made = settled(entries, "table", "Embedding").unwrap();
    has(&made, "pub table: nn::Embedding<B>");
    has(&settled(entries, "table", "Param").unwrap(), "Param<Tensor<B, 2>>");
    let error = settled(entries, "table", "LayerNorm").unwrap_err().to_string();
    assert_eq!(error, r#""table" cannot be a LayerNorm: it may be Linear, Embedding"#);
    let error = settled(entries, "tables", "Linear").unwrap_err().to_string();
    assert_eq!(error, r#"there is no layer "tables" in the checkpoint; there are "table", "up""#);
}

/// Items of a list are settled together, and stay items of a list.
#[test]
fn a_pattern_settles_layers_of_a_list() {
    let entries: &[(&str, &[usize])] = &[
        ("layers.0.scale.weight", &[5]),
        ("layers.1.scale.weight", &[5]),
        ("rnn.weight_ih_l0", &[8, 3]),
        ("rnn.weight_hh_l0", &[8, 2]),
        ("rnn.weight_ih_l1", &[8, 2]),
        ("rnn.weight_hh_l1", &[8, 2]),
    ];
    let made = skeleton(tensors(entries), &SkeletonOptions::default()).unwrap();
    let hint = "may be RmsNorm or LayerNorm or PRelu (`--as 'layers.*.scale=RmsNorm'`)";
    assert_eq!(made.ambiguous, [("layers.*.scale".to_owned(), hint.to_owned())]);
    let made = settled(entries, "layers.*.scale", "PRelu").unwrap();
    assert!(made.generated.source.contains("pub scale: nn::PRelu<B>"), "{}", made.generated.source);
    assert!(made.generated.source.contains("pub layers: Vec<Layer<B>>"), "{}", made.generated.source);
    assert!(made.ambiguous.is_empty());
    // A stack is one branch: it is settled as what its layers are.
    assert!(settled(entries, "rnn", "Lstm").unwrap().generated.source.contains("pub rnn: Vec<nn::Lstm<B>>"));
    assert!(settled(entries, "rnn", "Param").unwrap().generated.source.contains("pub rnn: Rnn"));
    let error = settled(entries, "rnn", "Gru").unwrap_err().to_string();
    assert_eq!(error, r#""rnn" cannot be a Gru: it may be Lstm"#);
}

/// Items of lists that differ in parts which some lack are of one struct, within a list and between lists.
#[test]
fn items_that_lack_a_part_have_options() {
    let entries: &[(&str, &[usize])] = &[
        ("layer1.0.conv.weight", &[4, 4, 3, 3]),
        ("layer1.0.bias", &[4]),
        ("layer1.1.conv.weight", &[4, 4, 3, 3]),
        ("layer1.1.bias", &[4]),
        ("layer2.0.conv.weight", &[4, 4, 3, 3]),
        ("layer2.0.bias", &[4]),
        ("layer2.0.shortcut.weight", &[4, 4, 1, 1]),
        ("layer2.1.conv.weight", &[4, 4, 3, 3]),
        ("layer2.1.bias", &[4]),
        ("mixed.0.conv.weight", &[4, 4, 3, 3]),
        ("mixed.1.linear.weight", &[4, 4]),
        ("lists.0", &[1, 2]),
        ("lists.1", &[3, 4]),
    ];
    let made = skeleton(tensors(entries), &SkeletonOptions::default()).unwrap();
    let source = &made.generated.source;
    let wanted = [
        "pub layer1: Vec<Layer<B>>",
        "pub layer2: Vec<Layer<B>>",
        "pub shortcut: Option<nn::conv::Conv2d<B>>",
        "pub mixed: Mixed<B>",
        "pub lists: Vec<Param<Tensor<B, 2>>>",
        "layer1: vec![layer; 2]",
        "shortcut: None",
    ];
    for text in wanted {
        assert!(source.contains(text), "{text}\n{source}");
    }
}

/// Groups are told by the convolutions around: ResNeXt's and MobileNet's are, SqueezeNet's parallel ones are not.
#[test]
fn groups_are_assumed_where_nothing_else_explains_the_channels() {
    let entries: &[(&str, &[usize])] = &[
        ("gray.weight", &[8, 1, 3, 3]),
        ("a.conv1.weight", &[16, 8, 1, 1]),
        ("a.conv2.weight", &[16, 4, 3, 3]),
        ("b.0.weight", &[32, 16, 1, 1]),
        ("c.0.weight", &[32, 1, 3, 3]),
        ("d.expand1.weight", &[16, 4, 1, 1]),
        ("d.expand3.weight", &[16, 4, 3, 3]),
        ("d.squeeze.weight", &[4, 32, 1, 1]),
        ("e.pre.weight", &[16, 1, 1]),
    ];
    let made = skeleton(tensors(entries), &SkeletonOptions::default()).unwrap();
    let source = &made.generated.source;
    assert_eq!(source.matches("assumed").count(), 2, "{source}");
    for text in [
        "`conv2`: 16 to 16 channels, kernel 3 × 3. 4 groups assumed.",
        "One channel a group assumed.",
        "new([32, 32], [3, 3])",
    ] {
        assert!(source.contains(text), "{text}\n{source}");
    }
}

/// What is said to be typed into a shell has no commands in it, whatever a key is.
#[test]
fn hints_are_quoted() {
    let made = skeleton(tensors(&[("a'$(b)'.weight", &[3, 2])]), &SkeletonOptions::default()).unwrap();
    let hint = r"`--as 'a'\''$(b)'\''=Embedding'`";
    assert!(made.ambiguous.iter().any(|(_, said)| said.contains(hint)), "{:?}", made.ambiguous);
}

/// Many lists of which each has a wider one: every pair shares a struct, and what differs stays apart.
#[test]
fn many_lists_share_structs_in_pairs() {
    let mut entries = Vec::new();
    for n in 0..60 {
        for (key, parts) in [("a", &["x", "y"][..]), ("b", &["x", "y"]), ("b", &["x", "y", "z"])] {
            let index = usize::from(parts.len() == 3);
            entries.extend(parts.iter().map(|part| format!("{key}{n}.{index}.{part}{n}")));
        }
    }
    let entries: Vec<(&str, &[usize])> = entries.iter().map(|key| (key.as_str(), &[2][..])).collect();
    let made = skeleton(tensors(&entries), &SkeletonOptions::default()).unwrap();
    assert_eq!(made.generated.source.matches("#[derive(Module, Debug)]").count(), 61);
}

/// The adapter tells layers by the names of their types, which no struct of a skeleton may have.
#[test]
fn structs_are_not_called_like_layers() {
    let entries: &[(&str, &[usize])] = &[
        ("linear.weight", &[2, 2]),
        ("linear.other", &[2]),
        ("net.Vec.x", &[1]),
        ("default.y", &[1]),
        ("model.z", &[1]),
    ];
    let made = skeleton(tensors(entries), &SkeletonOptions::default()).unwrap();
    let file = syn::parse_file(&made.generated.source).unwrap();
    let names = file.items.iter().filter_map(|item| match item {
        syn::Item::Struct(item) => Some(item.ident.to_string()),
        _ => None,
    });
    let names: Vec<_> = names.filter(|name| !name.ends_with("Config")).collect();
    assert_eq!(names, ["Model", "LinearModule", "Net", "DefaultModule", "ModelModule", "NetVec"]);
}

#[test]
fn a_wrapper_around_the_network_is_named() {
    let wrapper = |entries| skeleton(tensors(entries), &SkeletonOptions::default()).unwrap().wrapper;
    assert_eq!(wrapper(&[("module.a.weight", &[2, 2]), ("module.b", &[1])]), Some("module"));
    assert_eq!(wrapper(&[("module.a.weight", &[2, 2]), ("b", &[1])]), None);
    assert_eq!(wrapper(&[("net.a.weight", &[2, 2])]), None);
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
