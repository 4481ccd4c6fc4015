//! Exported programs of PyTorch: broken ones end in a graph or in an error, and errors say what is wrong.

use crate::mutation::Random;
use kiln_importer::ImportErrorKind;
use kiln_importer::onnx::{LoadOptions, load_bytes};
use serde_json::{Value, json};
use std::io::{Cursor, Read, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// An archive: its entries, and which of them is the program.
struct Program {
    name: String,
    entries: Vec<(String, Vec<u8>)>,
    text: Value,
}

impl Program {
    fn read(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/programs").join(name).join("model.pt2");
        let mut archive = ZipArchive::new(std::fs::File::open(path).expect("a program")).expect("an archive");
        let (mut entries, mut text) = (Vec::new(), Value::Null);
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index).expect("an entry");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its bytes");
            if entry.name().ends_with("/models/model.json") {
                text = serde_json::from_slice(&bytes).expect("a text");
            }
            entries.push((entry.name().to_owned(), bytes));
        }
        Self { name: name.to_owned(), entries, text }
    }

    /// The archive with another text of the program.
    fn with(&self, text: &Value) -> Vec<u8> {
        self.with_entry("/models/model.json", text)
    }

    /// The archive with another text in the entry whose name ends so.
    fn with_entry(&self, entry: &str, text: &Value) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        for (name, bytes) in &self.entries {
            writer.start_file(name, stored).expect("an entry");
            let text = name.ends_with(entry).then(|| text.to_string());
            let bytes = text.as_ref().map_or(bytes.as_slice(), |text| text.as_bytes());
            writer.write_all(bytes).expect("its bytes");
        }
        writer.finish().expect("an archive").into_inner()
    }

    fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/programs");
        let folders = std::fs::read_dir(folder).expect("the programs");
        let mut names: Vec<String> = folders
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        names.sort();
        names.iter().map(|name| Self::read(name)).collect()
    }
}

/// The calls of a program; none, when the text no longer has them.
fn nodes(text: &mut Value) -> &mut [Value] {
    let nodes = text.pointer_mut("/graph_module/graph/nodes").and_then(Value::as_array_mut);
    nodes.map(Vec::as_mut_slice).unwrap_or_default()
}

fn error(program: &Program, text: &Value) -> kiln_importer::ImportError {
    load_bytes(program.with(text), &LoadOptions::default()).expect_err("a broken program")
}

/// A part of a text, by chance: the deeper the likelier.
fn part<'v>(value: &'v mut Value, random: &mut Random) -> &'v mut Value {
    let count = match value {
        Value::Array(items) => items.len(),
        Value::Object(entries) => entries.len(),
        _ => 0,
    };
    if count == 0 || random.below(12) == 0 {
        return value;
    }
    let place = random.below(count);
    match value {
        Value::Array(items) => part(&mut items[place], random),
        Value::Object(entries) => part(entries.values_mut().nth(place).expect("an entry"), random),
        _ => unreachable!("it has parts"),
    }
}

fn mutate(text: &mut Value, random: &mut Random) {
    const NUMBERS: [i64; 9] = [-1, 0, 1, 2, 7, 1 << 31, i64::MAX, i64::MIN, -3];
    let donor = part(&mut text.clone(), random).clone();
    let target = part(text, random);
    match (random.below(5), &mut *target) {
        (0, Value::Array(items)) if !items.is_empty() => {
            items.remove(random.below(items.len()));
        }
        (0 | 1, Value::Array(items)) if !items.is_empty() => {
            let item = items[random.below(items.len())].clone();
            items.insert(random.below(items.len()), item);
        }
        (0 | 1, Value::Object(entries)) if !entries.is_empty() => {
            let key = entries.keys().nth(random.below(entries.len())).expect("a key").clone();
            entries.remove(&key);
        }
        (_, Value::Number(_)) => *target = json!(NUMBERS[random.below(NUMBERS.len())]),
        (_, Value::Bool(flag)) => *flag = !*flag,
        _ => *target = donor,
    }
}

#[test]
fn mutated_programs_never_panic() {
    let rounds = std::env::var("KILN_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(25);
    let mut random = Random(3);
    let (mut accepted, mut refused) = (0, 0);
    for program in Program::all() {
        for round in 0..rounds {
            let mut text = program.text.clone();
            // Most of a text is about calls.
            for _ in 0..=random.below(3) {
                match random.below(3) {
                    0 => mutate(&mut text, &mut random),
                    _ => {
                        let nodes = nodes(&mut text);
                        let place = random.below(nodes.len().max(1));
                        nodes.get_mut(place).into_iter().for_each(|node| mutate(node, &mut random));
                    }
                }
            }
            let options = LoadOptions { trainable: round % 2 == 0, ..LoadOptions::default() };
            match crate::accepts(&format!("{}, round {round}", program.name), program.with(&text), &options) {
                true => accepted += 1,
                false => refused += 1,
            }
        }
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
}

/// What the archive says of its tensors, of which each lies in a file of its own.
#[test]
fn mutated_lists_of_tensors_never_panic() {
    const LIST: &str = "/data/weights/model_weights_config.json";
    let program = Program::read("language");
    let (_, list) = program.entries.iter().find(|(name, _)| name.ends_with(LIST)).expect("a list of weights");
    let list: Value = serde_json::from_slice(list).expect("a text");
    let mut random = Random(4);
    let mut refused = 0;
    for round in 0..300 {
        let mut changed = list.clone();
        for _ in 0..=random.below(2) {
            mutate(&mut changed, &mut random);
        }
        let bytes = program.with_entry(LIST, &changed);
        let accepted = crate::accepts(&format!("round {round}"), bytes, &LoadOptions::default());
        refused += usize::from(!accepted);
    }
    assert!(refused > 0);
}

#[test]
fn unknown_operators_are_told_all_at_once() {
    let program = Program::read("residual");
    let mut text = program.text.clone();
    for node in nodes(&mut text) {
        for (known, unknown) in [("relu_", "other_relu_"), ("linear", "other_linear")] {
            if node["target"] == format!("torch.ops.aten.{known}.default") {
                node["target"] = json!(format!("torch.ops.aten.{unknown}.default"));
            }
        }
    }
    let message = error(&program, &text).to_string();
    assert!(message.starts_with("2 operators are not supported:"), "{message}");
    assert!(
        message.contains("aten.other_relu_.default") && message.contains("aten.other_linear.default"),
        "{message}"
    );
}

/// An operator that has a rule for real numbers alone is not asked about complex ones.
#[test]
fn arguments_that_no_rule_reads_are_told() {
    let program = Program::read("residual");
    let with = |name: &str, argument: Value| {
        let mut text = program.text.clone();
        for node in
            nodes(&mut text).iter_mut().filter(|node| node["target"] == "torch.ops.aten.relu_.default")
        {
            let inputs = node["inputs"].as_array_mut().expect("arguments");
            inputs.push(json!({ "name": name, "arg": argument.clone(), "kind": 1 }));
        }
        text
    };
    for (name, argument) in [("slope", json!({ "as_float": 0.5 })), ("ceil_mode", json!({ "as_bool": true }))]
    {
        let message = error(&program, &with(name, argument)).to_string();
        let expected = format!("not supported: the argument `{name}` of this operator");
        assert!(message.contains(&expected), "{message}");
    }
    // What is not given, makes no difference, or is the default.
    for (name, argument) in [
        ("slope", json!({ "as_none": true })),
        ("memory_format", json!({ "as_memory_format": 1 })),
        ("ceil_mode", json!({ "as_bool": false })),
    ] {
        let loaded = load_bytes(program.with(&with(name, argument)), &LoadOptions::default());
        assert!(loaded.is_ok(), "{name}: {:?}", loaded.err());
    }
}

#[test]
fn operators_without_complex_numbers_are_told_so() {
    let program = Program::read("fourier");
    let mut text = program.text.clone();
    for node in nodes(&mut text) {
        for (known, unknown) in
            [("einsum.default", "fmax.default"), ("view_as_complex.default", "i0.default")]
        {
            if node["target"] == format!("torch.ops.aten.{known}") {
                node["target"] = json!(format!("torch.ops.aten.{unknown}"));
            }
        }
    }
    let message = error(&program, &text).to_string();
    assert!(message.starts_with("2 operators are not supported:"), "{message}");
    assert!(message.contains("torch.ops.aten.fmax.default of complex numbers"), "{message}");
    assert!(message.contains("torch.ops.aten.i0.default of complex numbers"), "{message}");
}

/// What a program says of a tensor is not believed of complex numbers that are real, and the other way round.
#[test]
fn complex_numbers_are_no_real_ones() {
    let program = Program::read("fourier");
    let cases = [
        (7, "einsum", "complex numbers for real ones, or real ones for complex ones, in `einsum`"),
        (10, "conv2d", "aten.conv2d.default of complex numbers"),
    ];
    for (dtype, of, wrong) in cases {
        let mut text = program.text.clone();
        text["graph_module"]["graph"]["tensor_values"][of]["dtype"] = json!(dtype);
        let message = error(&program, &text).to_string();
        assert!(message.contains(wrong), "{message}");
    }
}

#[test]
fn complex_inputs_and_outputs_are_refused() {
    let program = Program::read("fourier");
    let mut text = program.text.clone();
    text["graph_module"]["graph"]["tensor_values"]["x"]["dtype"] = json!(10);
    let message = error(&program, &text).to_string();
    assert!(message.contains("input `x`: is complex") && message.contains("torch.view_as_real"), "{message}");
    let mut text = program.text.clone();
    let outputs = &mut text["graph_module"]["signature"]["output_specs"];
    outputs[0]["user_output"]["arg"]["as_tensor"]["name"] = json!("fft_rfft2");
    let message = error(&program, &text).to_string();
    assert!(message.contains("output `fft_rfft2`: is complex"), "{message}");
    assert!(message.contains("torch.view_as_real"), "{message}");
}

/// Programs have expressions of sizes instead, as long as PyTorch knows them.
#[test]
fn strides_are_products_of_sizes() {
    let program = Program::read("operators_strides");
    let text_of = |text: &Value| {
        let options = LoadOptions::default();
        load_bytes(program.with(text), &options).expect("a program").to_text()
    };
    let mut text = program.text.clone();
    let sizes = nodes(&mut text).iter_mut().filter(|node| node["target"] == "torch.ops.aten.sym_size.int");
    let rows = sizes.last().expect("a size");
    assert_eq!(rows["inputs"][1]["arg"]["as_int"], 1);
    rows["target"] = json!("torch.ops.aten.sym_stride.int");
    rows["inputs"][1]["arg"] = json!({"as_int": 0});
    assert_eq!(text_of(&text), text_of(&program.text));
}

#[test]
fn what_lies_in_memory_beside_a_tensor_is_not_read() {
    let program = Program::read("operators_strides");
    let mut text = program.text.clone();
    let strided =
        nodes(&mut text).iter_mut().find(|node| node["target"] == "torch.ops.aten.as_strided.default");
    let inputs = strided.expect("a call of `as_strided`")["inputs"].as_array_mut().expect("its arguments");
    inputs
        .iter_mut()
        .filter(|input| input["name"] == "stride")
        .for_each(|input| input["arg"] = json!({"as_ints": [5, 1]}));
    let message = error(&program, &text).to_string();
    assert!(message.contains("`as_strided` that reads what is in memory beside its tensor"), "{message}");
}

/// How many there are is known before any is made.
#[test]
fn more_choices_than_a_graph_should_have_are_refused() {
    let program = Program::read("operators_edges");
    let mut text = program.text.clone();
    let choices =
        nodes(&mut text).iter().find(|node| node["target"] == "torch.ops.aten.combinations.default");
    let of = choices.expect("choices")["inputs"][0]["arg"]["as_tensor"]["name"].clone();
    let of = of.as_str().expect("a name");
    text["graph_module"]["graph"]["tensor_values"][of]["sizes"][0] = json!({"as_int": 1i64 << 40});
    let message = error(&program, &text).to_string();
    assert!(message.contains("combinations of 6 of 1099511627776 elements"), "{message}");
    assert!(message.contains("combinations of 3 of 1099511627776 elements"), "{message}");
}

/// A call whose results have to be made again is translated once more, not once for each.
#[test]
fn results_of_one_call_are_made_again_together() {
    const ROWS: usize = 100;
    let program = Program::read("unbound");
    let graph = load_bytes(program.with(&program.text), &LoadOptions::default()).expect("a program");
    let text = graph.to_text();
    let lines = text.lines().count();
    assert!(lines < 10 * ROWS, "{lines} lines");
}

#[test]
fn what_may_be_a_view_or_a_copy_is_not_looked_at_when_it_was_changed() {
    let program = Program::read("shared_unsized");
    let mut text = program.text.clone();
    // What the view of unknown layout is of, instead of the view.
    let turned = nodes(&mut text).iter().position(|node| node["target"] == "torch.ops.aten.relu_.default");
    let changed = &mut nodes(&mut text)[turned.expect("a change")];
    let view = changed["inputs"][0]["arg"].clone();
    let base = nodes(&mut text).iter().find(|node| node["outputs"][0] == view).expect("a view");
    assert_eq!(base["target"], "torch.ops.aten.reshape.default");
    let base = base["inputs"][0]["arg"]["as_tensor"]["name"].clone();
    let outputs = text["graph_module"]["signature"]["output_specs"].as_array_mut().expect("outputs");
    outputs[0]["user_output"]["arg"]["as_tensor"]["name"] = base;
    let message = error(&program, &text).to_string();
    assert!(message.contains("changing in place what `reshape` yields or is given"), "{message}");
}

#[test]
fn what_breaks_a_rule_names_its_call() {
    let program = Program::read("residual");
    let mut text = program.text.clone();
    let pool = nodes(&mut text).iter_mut().find(|node| node["target"] == "torch.ops.aten.flatten.using_ints");
    let inputs = pool.expect("a call of `flatten`")["inputs"].as_array_mut().expect("its arguments");
    inputs
        .iter_mut()
        .filter(|input| input["name"] == "start_dim")
        .for_each(|input| input["arg"] = json!({"as_int": 9}));
    let message = error(&program, &text).to_string();
    assert_eq!(
        message,
        "node `flatten` (aten.flatten.using_ints, opset 10): axis 9 is outside a tensor of rank 4"
    );
}

/// What follows from it, that an output is not there, is not told.
#[test]
fn a_name_that_stands_for_two_results_is_refused() {
    let program = Program::read("residual");
    let mut text = program.text.clone();
    let last = nodes(&mut text).last_mut().expect("a call");
    assert_eq!(last["target"], "torch.ops.aten.linear.default");
    last["outputs"] = json!([{"as_tensor": {"name": "flatten"}}]);
    let message = error(&program, &text).to_string();
    assert!(message.ends_with("the value `flatten` is defined more than once"), "{message}");
}

/// Dots that stand for no axis: the result is a view, and nothing is known of how to put it back.
#[test]
fn dots_of_an_equation_may_stand_for_nothing() {
    let program = Program::read("shared_of_one");
    let mut text = program.text.clone();
    let equations =
        nodes(&mut text).iter_mut().filter(|node| node["target"] == "torch.ops.aten.einsum.default");
    let arguments = equations.flat_map(|node| node["inputs"].as_array_mut().expect("its arguments"));
    arguments
        .filter(|input| input["name"] == "equation")
        .for_each(|input| input["arg"] = json!({"as_string": "...ij->ij"}));
    let message = error(&program, &text).to_string();
    assert!(message.contains("changing what `einsum` yields in place"), "{message}");
}

#[test]
fn sizes_that_are_none_are_refused() {
    let program = Program::read("residual");
    let mut text = program.text.clone();
    let tensors = text["graph_module"]["graph"]["tensor_values"].as_object_mut().expect("tensors");
    tensors["flatten"]["sizes"][1] = json!({"as_int": -3});
    let message = error(&program, &text).to_string();
    assert!(message.contains("has -3, which is no size"), "{message}");
}

/// What an operator does beside what it yields is left out where it only checks, and nowhere else.
#[test]
fn effects_are_refused_by_name() {
    let program = Program::read("residual");
    let mut text = program.text.clone();
    let last = nodes(&mut text).last_mut().expect("a call");
    last["target"] = json!("torch.ops.higher_order.with_effects");
    last["inputs"] = json!([
        {"name": "", "arg": {"as_tensor": {"name": "flatten"}}, "kind": 1},
        {"name": "", "arg": {"as_operator": "torch.ops.aten._print.default"}, "kind": 1},
    ]);
    let message = error(&program, &text).to_string();
    assert!(message.contains("the effects of `_print.default`"), "{message}");
}

#[test]
fn inputs_of_one_name_are_refused() {
    let program = Program::read("residual");
    let mut text = program.text.clone();
    let specs = text["graph_module"]["signature"]["input_specs"].as_array_mut().expect("inputs");
    let last = specs.last().expect("an input").clone();
    specs.push(last);
    let message = error(&program, &text).to_string();
    assert!(message.ends_with("is defined more than once"), "{message}");
}

#[test]
fn a_model_that_changes_itself_is_refused() {
    let program = Program::read("residual");
    let mut text = program.text.clone();
    let add = nodes(&mut text).iter_mut().find(|node| node["target"] == "torch.ops.aten.add_.Tensor");
    let inputs = add.expect("a sum in place")["inputs"].as_array_mut().expect("its arguments");
    inputs[0]["arg"] = json!({"as_tensor": {"name": "p_stem_0_bias"}});
    let message = error(&program, &text).to_string();
    assert!(message.contains("changing `stem.0.bias` in place"), "{message}");
}

/// Two parameters in one place of a file are one, but not where its bytes are other numbers.
#[test]
fn what_lies_in_one_place_as_two_dtypes_is_two() {
    const CONFIG: &str = "/weights/model_weights_config.json";
    let program = Program::read("residual");
    let (_, bytes) = program.entries.iter().find(|(name, _)| name.ends_with(CONFIG)).expect("a config");
    let mut config: Value = serde_json::from_slice(bytes).expect("a text");
    let place = config["config"]["blocks.0.conv1.weight"]["path_name"].clone();
    let second = &mut config["config"]["blocks.0.conv2.weight"];
    second["path_name"] = place;
    // 7 is f32, 4 is i32, of which there are no convolutions.
    second["tensor_meta"]["dtype"] = json!(7);
    let load =
        |config: &Value| load_bytes(program.with_entry(CONFIG, config), &LoadOptions::default()).map(drop);
    load(&config).expect("a tied parameter");
    config["config"]["blocks.0.conv2.weight"]["tensor_meta"]["dtype"] = json!(4);
    let error = load(&config).expect_err("integers").to_string();
    assert!(error.contains("i32"), "{error}");
}

#[test]
fn another_version_of_the_format_is_refused() {
    let program = Program::read("in_place");
    let mut text = program.text.clone();
    text["schema_version"]["major"] = json!(5);
    let error = error(&program, &text);
    assert!(matches!(*error.kind, ImportErrorKind::Malformed { .. }), "{error}");
    assert!(
        error.to_string().contains("version 5") && error.to_string().contains("torch.export.save"),
        "{error}"
    );
}

#[test]
fn texts_of_a_file_do_not_reach_the_terminal() {
    let program = Program::read("in_place");
    let mut text = program.text.clone();
    nodes(&mut text)[0]["inputs"][0]["arg"] = json!({"as_\u{1b}[31m\nevil": 1});
    let message = error(&program, &text).to_string();
    assert!(!message.contains('\u{1b}') && !message.contains('\n'), "{message:?}");
}
