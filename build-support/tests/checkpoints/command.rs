//! The options, and what is said when they are wrong.

use super::{fixture, kiln, printed};
use kiln::record::Safetensors;
use kiln::tensor::DType;
use std::path::Path;

/// Runs `kiln convert FILE -o FOLDER …`; yields the skeleton, the record and what was said on standard error.
fn convert(file: &Path, options: &[&str]) -> (String, Safetensors, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["convert", file.to_str().unwrap(), "-o", folder.path().to_str().unwrap()];
    arguments.extend(options);
    let output = kiln(&arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (source, record) = printed.trim_end().split_once('\n').unwrap();
    (std::fs::read_to_string(source).unwrap(), Safetensors::open(Path::new(record)).unwrap(), said)
}

/// The status and the message of a run that fails.
fn failing(arguments: &[&str]) -> (i32, String) {
    let output = kiln(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn keys_are_mapped_in_order() {
    let (source, record, said) = convert(
        &fixture("net.pt"),
        &["--map", r"^(conv|bn|up)\.=body.$1.", "--map", "^body=trunk", "--map", "nothing=at all"],
    );
    assert!(source.contains("pub trunk: Trunk<B>"), "{source}");
    assert!(source.contains("pub up: nn::conv::ConvTranspose2d<B>"), "{source}");
    assert!(record.tensor("trunk.bn.running_mean").is_some());
    assert!(record.tensor("conv.weight").is_none());
    assert!(said.contains("note: --map `nothing` finds nothing in any key"), "{said}");
}

#[test]
fn an_adapter_turns_linear_layers_or_leaves_them() {
    let original = Safetensors::open(&fixture("net.safetensors")).unwrap().tensor("fc.weight").unwrap();
    assert_eq!(original.shape.as_slice(), [3, 10]);
    let (source, record, _) = convert(&fixture("net.safetensors"), &["--adapter", "pytorch"]);
    assert!(source.contains("LinearConfig::new(10, 3)"), "{source}");
    assert_eq!(record.tensor("fc.weight").unwrap().shape.as_slice(), [10, 3]);
    let (source, record, _) = convert(&fixture("net.safetensors"), &["--adapter", "none"]);
    assert!(source.contains("LinearConfig::new(3, 10)"), "{source}");
    assert_eq!(record.tensor("fc.weight").unwrap(), original);
}

#[test]
fn an_ambiguous_layer_is_settled() {
    let (source, _, said) = convert(&fixture("net.pt"), &[]);
    let hint = "may be GroupNorm or InstanceNorm (`--as norm=GroupNorm`)";
    assert!(said.contains(&format!("note: norm: {hint}\n")), "{said}");
    assert!(source.contains("`norm`: size 6. May be GroupNorm or InstanceNorm"), "{source}");
    // What is called an embedding is one, unless it is settled.
    assert!(source.contains("pub emb: nn::Embedding<B>"), "{source}");
    let (source, record, said) =
        convert(&fixture("net.pt"), &["--as", "emb=Linear", "--as", "norm=Param", "--as", "fc=Linear"]);
    assert!(source.contains("pub emb: nn::Linear<B>"), "{source}");
    assert!(source.contains("pub norm: Norm<B>"), "{source}");
    assert_eq!(record.tensor("emb.weight").unwrap().shape.as_slice(), [6, 10]);
    assert!(!said.contains("note: emb") && !said.contains("note: norm"), "{said}");
    assert!(!said.contains("note: fc"), "{said}");
}

#[test]
fn what_no_tensor_holds_is_left_out_and_said() {
    let (source, record, said) = convert(&fixture("unsupported.pt"), &["--map", "^other=rest"]);
    assert!(source.contains("pub linear: nn::Linear<B>") && !source.contains("freqs"), "{source}");
    assert_eq!(record.paths().collect::<Vec<_>>(), ["linear.bias", "linear.weight"]);
    let note = "note: other.freqs is left out: it is a tensor of complex numbers (complex64); convert it before saving";
    assert!(said.contains(note), "{said}");
    // A rule that finds only such tensors finds something.
    assert_eq!(said.lines().count(), 5, "{said}");
    let inspected = printed(&["inspect", fixture("unsupported.pt").to_str().unwrap()]);
    assert!(inspected.contains("cannot read other.sparse: a sparse tensor\n"), "{inspected}");
    let folder = tempfile::tempdir().unwrap();
    let alone = fixture("complex.pt");
    let (status, said) =
        failing(&["convert", alone.to_str().unwrap(), "-o", folder.path().to_str().unwrap()]);
    assert_eq!(
        (status, said.contains("a tensor of complex numbers (complex64) cannot be read")),
        (1, true),
        "{said}"
    );
}

#[test]
fn floats_of_eight_bits_become_parameters() {
    let (_, record, said) = convert(&fixture("float8.pt"), &[]);
    assert_eq!(said, "");
    let widened = Safetensors::open(&fixture("float8.expected.safetensors")).unwrap();
    assert_eq!(record.entry("e5m2").unwrap().dtype(), Some(DType::F16));
    let numbers = |file: &Safetensors| {
        let data = file.tensor("e4m3fn_part").unwrap();
        data.iter::<f32>().filter(|x| !x.is_nan()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&record), numbers(&widened));
    let inspected = printed(&["inspect", fixture("float8.pt").to_str().unwrap()]);
    assert!(inspected.contains("f8_e8m0fnu"), "{inspected}");
}

#[test]
fn a_top_level_key_selects_a_part() {
    let (_, record, _) = convert(&fixture("net_nested.pt"), &["--top-level-key", "model.ema.state_dict"]);
    assert!(record.tensor("module.fc.weight").is_some());
}

#[test]
fn help_says_what_the_command_is_for() {
    let help = printed(&["--help"]);
    assert!(
        help.starts_with("Compile trained networks to Rust, and prove that the import is right\n"),
        "{help}"
    );
    assert!(help.contains("Exit status: 0 all well"), "{help}");
}

#[test]
fn wrong_usage_is_told_from_failure() {
    let (net, folder) = (fixture("net.pt"), tempfile::tempdir().unwrap());
    let (net, folder) = (net.to_str().unwrap(), folder.path().to_str().unwrap());
    let model = "model.onnx";
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--map", "no equals sign"], 2, "expected REGEX=REPLACEMENT, for example"),
        (&["--map", "(=x"], 2, "the pattern \"(\" cannot be used: it is no regular expression"),
        (&["--map", "a(.)=$1_x"], 2, "refers to a group \"1_x\", which it does not have"),
        (&["--map", "conv.*=same"], 1, "both become \"same\""),
        (&["--adapter", "burn"], 2, "[possible values: pytorch, none]"),
        (&["--as", "fc"], 2, "expected KEY=TYPE, for example head=Embedding"),
        (&["--as", "fc=Dense"], 2, "`Dense` is no layer; there are BatchNorm, BiGru, BiLstm"),
        (&["--as", "=Linear"], 2, "the key is empty"),
        (&["--as", "fc=Linear", "--as", "fc=Embedding"], 2, "--as says that fc is Linear, and that it is"),
        (&["--as", "fc=Gru"], 1, "\"fc\" cannot be a Gru: it may be Linear, Embedding"),
        (&["--as", "fcc=Linear"], 1, "there is no layer \"fcc\" in the checkpoint; there are \"fc\""),
        (&["--top-level-key", "model"], 1, "there is no key \"model\""),
        (&["--record-type", "gguf"], 2, "[possible values: safetensors, named-mpk"),
        (&["--runtime-crate", "not a name"], 1, "the runtime crate cannot be called \"not a name\""),
        (&["--bind", "batch=1"], 2, "--bind does not apply"),
        (&["--embed"], 2, "--embed does not apply"),
        (&["--trainable"], 2, "--trainable does not apply"),
    ];
    for (options, status, message) in cases {
        let arguments: Vec<&str> = ["convert", net, "-o", folder].iter().chain(*options).copied().collect();
        let (found, said) = failing(&arguments);
        assert_eq!((found, said.contains(message)), (*status, true), "{options:?}: {said}");
    }
    for option in
        [&["--map", "a=b"], &["--adapter", "none"], &["--top-level-key", "x"], &["--as", "fc=Linear"]]
    {
        let arguments: Vec<&str> = ["convert", model, "-o", folder].iter().chain(option).copied().collect();
        let (status, said) = failing(&arguments);
        let expected = format!("{} does not apply: {model} is a model, not a checkpoint", option[0]);
        assert_eq!((status, said.contains(&expected)), (2, true), "{said}");
    }
    assert_eq!(failing(&["convert", net]).0, 2);
    assert_eq!(failing(&["inspect", net, "--passes"]).0, 2);
    assert_eq!(failing(&["inspect", model, "--top-level-key", "x"]).0, 2);
    assert_eq!(failing(&["inspect", model, "--all"]).0, 2);
    // What the object does not have is not left out in silence.
    for option in ["--passes", "--graph"] {
        assert_eq!(failing(&["inspect", model, "--json", option]).0, 2);
    }
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/net_residual_cnn/model.onnx");
    let small = printed(&["inspect", small.to_str().unwrap()]);
    assert!(small.contains("in 24 tensors, 47.9 kB"), "{small}");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn options_of_one_backend_are_refused_on_others() {
    let cases: [(&[&str], &str); 4] = [
        (&["--captured"], "`--captured` is for `--backend cuda`: others have no graphs"),
        (&["--floats", "bf16"], "`--floats` is for `--backend cuda`: others are tried with 32-bit floats"),
        (&["--tf32"], "`--tf32` is for `--backend cuda`: others have no such products"),
        (&["--library-relu"], "`--library-relu` is for `--backend cuda`: others ask no library"),
    ];
    for (options, message) in cases {
        for command in ["verify", "bench"] {
            for backend in ["ndarray", "wgpu"] {
                let arguments = [&[command, "no_such_case", "--backend", backend], options].concat();
                let (status, said) = failing(&arguments);
                assert_eq!(
                    (status, said.as_str()),
                    (2, format!("error: {message}\n").as_str()),
                    "{arguments:?}"
                );
            }
        }
    }
}

#[test]
fn what_nobody_can_measure_with_is_refused() {
    let numbers = [("--threads", ["0", "99999999999", "1025"]), ("--seconds", ["-1", "NaN", "inf"])];
    for (option, values) in numbers {
        for value in values {
            let (status, said) = failing(&["bench", "no_such_case", &format!("{option}={value}")]);
            assert_eq!(status, 2, "{option} {value}: {said}");
            assert!(said.contains(&format!("invalid value '{value}' for '{option}")), "{said}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_failures() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("no_such.pt", "No such file"),
        ("net_whole_module.pt", "save the weights alone"),
        ("hostile/run_os.pt", "os.system"),
        ("hostile/not_a_checkpoint.pt", "this is no checkpoint"),
        ("quantized.pt", "quantized"),
        ("no_tensors.pt", "the checkpoint has no tensors"),
    ];
    for (file, message) in cases {
        let path = fixture(file);
        let (status, said) =
            failing(&["convert", path.to_str().unwrap(), "-o", folder.path().to_str().unwrap()]);
        assert_eq!((status, said.contains(message)), (1, true), "{file}: {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_record_does_not_replace_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("net.safetensors");
    std::fs::copy(fixture("net.safetensors"), &copy).unwrap();
    let before = std::fs::read(&copy).unwrap();
    let (status, said) = failing(&["convert", copy.to_str().unwrap(), "-o", folder.path().to_str().unwrap()]);
    assert_eq!((status, said.contains("give another folder")), (2, true), "{said}");
    assert_eq!(std::fs::read(&copy).unwrap(), before);
}

/// A skeleton that somebody works on stays, and the record beside it is written.
#[test]
fn a_skeleton_that_was_completed_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (source, record) = (folder.path().join("net.rs"), folder.path().join("net.safetensors"));
    let file = fixture("net.pt");
    let arguments = ["convert", file.to_str().unwrap(), "-o", folder.path().to_str().unwrap()];
    let both = format!("{}\n{}\n", source.display(), record.display());
    assert_eq!(printed(&arguments), both);
    assert_eq!(printed(&arguments), both, "what nobody touched is written again");
    let completed = std::fs::read_to_string(&source).unwrap() + "// completed\n";
    std::fs::write(&source, &completed).unwrap();
    std::fs::remove_file(&record).unwrap();
    let output = kiln(&arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("net.rs is left as it is"), "{said}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", record.display()));
    assert_eq!(std::fs::read_to_string(&source).unwrap(), completed);
    assert!(record.is_file());
}

/// A model's source and record replace those of Kiln alone.
#[test]
fn a_conversion_replaces_nothing_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (source, record) = (folder.path().join("model.rs"), folder.path().join("model.safetensors"));
    let model = fixture("../cases/op_conv_2d/model.onnx");
    let arguments = ["convert", model.to_str().unwrap(), "-o", folder.path().to_str().unwrap()];
    printed(&arguments);
    printed(&arguments);
    std::fs::write(&source, "fn mine() {}\n").unwrap();
    let (status, said) = failing(&arguments);
    assert_eq!((status, said.contains("model.rs, which does not begin with")), (2, true), "{said}");
    assert_eq!(std::fs::read_to_string(&source).unwrap(), "fn mine() {}\n");
    std::fs::remove_file(&source).unwrap();
    std::fs::copy(fixture("net.safetensors"), &record).unwrap();
    let (status, said) = failing(&arguments);
    assert_eq!((status, said.contains("which Kiln did not write")), (2, true), "{said}");
    assert_eq!(std::fs::read(&record).unwrap(), std::fs::read(fixture("net.safetensors")).unwrap());
}

/// A wrapper's prefix is pointed out, with what takes it off.
#[test]
fn a_wrapper_is_pointed_out() {
    let key = ["--top-level-key", "model.ema.state_dict"];
    let (_, _, said) = convert(&fixture("net_nested.pt"), &key);
    assert!(said.contains(r"every key begins with `module.`; --map '^module\.=' takes that off"), "{said}");
    let (source, _, said) =
        convert(&fixture("net_nested.pt"), &[&key[..], &["--map", r"^module\.="]].concat());
    assert!(source.contains("    pub conv: nn::conv::Conv2d<B>") && !said.contains("every key"), "{said}");
}

/// Where an ending tells nothing, a checkpoint is told from a model by its first bytes.
#[test]
fn a_checkpoint_may_have_any_ending() {
    let folder = tempfile::tempdir().unwrap();
    for (fixture_name, name) in
        [("net.pt", "net.pth.tar"), ("net_legacy.pt", "net.pkl"), ("net_tar.pt", "net")]
    {
        let copy = folder.path().join(name);
        std::fs::copy(fixture(fixture_name), &copy).unwrap();
        assert!(printed(&["inspect", copy.to_str().unwrap()]).contains("1177 in 35 tensors"), "{name}");
    }
}

/// Parts that are alike are printed once, unless all are asked for.
#[test]
fn an_outline_leaves_out_what_is_alike() {
    let file = fixture("of_cases/net_bert_encoder.pt");
    let shown = printed(&["inspect", file.to_str().unwrap()]);
    assert!(shown.contains("\n    layer.0…1 (2 alike)   "), "{shown}");
    assert!(
        shown.ends_with("  16 tensors of parts that are alike are left out; --all prints them\n"),
        "{shown}"
    );
    let rows = |text: &str| text.lines().filter(|line| line.contains(" f32 ")).count();
    let all = printed(&["inspect", file.to_str().unwrap(), "--all"]);
    assert_eq!((rows(&shown), rows(&all)), (22, 38), "{all}");
    assert!(!all.contains("alike"), "{all}");
}

#[test]
fn an_outline_shows_the_tree() {
    let file = fixture("tied.pt");
    let shown = printed(&["inspect", file.to_str().unwrap()]);
    let lines: Vec<&str> = shown.lines().skip(1).collect();
    let expected = "  format      PyTorch
  parameters  41 in 4 tensors, 164 B (80 B stored)
  tensors
    embedding.weight                         f32   [5, 3]                     60 B
    head                                                                      80 B
      weight                                 f32   [5, 3]                     60 B
      bias                                   f32   [5]                        20 B
    part.weight                              f32   [2, 3]                     24 B
  shared      embedding.weight, head.weight, part.weight";
    assert_eq!(lines.join("\n"), expected);
    let json: serde_json::Value =
        serde_json::from_str(&printed(&["inspect", file.to_str().unwrap(), "--json"])).unwrap();
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture("tied.expected.json")).unwrap()).unwrap();
    assert_eq!(json["shared"], expected["shared"]);
    assert_eq!(
        (&json["format"], &json["bytes"], &json["stored"]),
        (&"PytorchZip".into(), &164.into(), &80.into())
    );
    for tensor in json["tensors"].as_array().unwrap() {
        let entry = &expected["tensors"][tensor["key"].as_str().unwrap()];
        assert_eq!((&tensor["dtype"], &tensor["shape"]), (&entry["dtype"], &entry["shape"]));
    }
    assert_eq!(json["tensors"].as_array().unwrap().len(), expected["tensors"].as_object().unwrap().len());
}
