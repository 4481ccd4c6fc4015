//! Models of a few kilobytes or megabytes that ask for all time, memory or stack: refused or converted within limits.

#[path = "models/build.rs"]
mod build;

use build::*;
use kiln_importer::onnx::proto::*;
use kiln_importer::onnx::{LoadOptions, load, load_bytes};
use kiln_importer::passes::{Options, optimize};
use kiln_limits_tests::bounded;
use prost::Message;
use std::path::Path;

/// What must become of a file.
enum Fate {
    /// It converts.
    Converts,
    /// It is refused with this among the words.
    Refused(&'static str),
}
use Fate::{Converts, Refused};

impl Fate {
    fn check(&self, result: Result<(), String>) {
        match (result, self) {
            (Ok(()), Converts) => {}
            (Ok(()), Refused(words)) => panic!("converts, and should be refused: {words}"),
            (Err(error), Converts) => panic!("{error}"),
            (Err(error), Refused(words)) => assert!(error.contains(words), "{error}"),
        }
    }
}

/// Imports and optimizes.
fn convert(bytes: Vec<u8>) -> Result<(), String> {
    let mut graph = load_bytes(bytes, &LoadOptions::default()).map_err(|error| error.to_string())?;
    optimize(&mut graph, &Options::default());
    Ok(())
}

macro_rules! limits {
    ($($(#[doc = $doc:literal])* $name:ident $fate:expr => $model:expr;)*) => {$(
        $(#[doc = $doc])*
        #[test]
        fn $name() {
            bounded(|| {
                let model: ModelProto = $model;
                $fate.check(convert(model.encode_to_vec()));
            });
        }
    )*};
}

const LONG: i64 = 1 << 40;

/// Two constants without elements, `a` and `b`, of which a node makes `y`.
fn empty(dims: [&[i64]; 2], operator: &str, attributes: Vec<AttributeProto>) -> ModelProto {
    let inputs: &[&str] = if matches!(operator, "Softmax" | "LogSoftmax") { &["a"] } else { &["a", "b"] };
    let node = node(operator, inputs, &["y"], attributes);
    model(graph(vec![node], vec![floats("a", dims[0], &[]), floats("b", dims[1], &[])], &["y"]))
}

/// Nodes that make `counter` of `x`: `0, 1, …`, one for each row; they need [`numbers`].
fn counter() -> Vec<NodeProto> {
    vec![
        node("Shape", &["x"], &["dims"], Vec::new()),
        node("Gather", &["dims", "zero"], &["rows"], Vec::new()),
        node("Range", &["zero", "rows", "one"], &["counter"], Vec::new()),
    ]
}

fn numbers() -> Vec<TensorProto> {
    vec![integers("zero", &[], &[0]), integers("one", &[], &[1]), integers("last", &[1], &[-1])]
}

limits! {
    joins_of_long_empty_tensors Converts => empty([&[LONG, 0], &[LONG, 0]], "Concat", vec![int("axis", 1)]);
    softmax_of_long_empty_tensors Converts => empty([&[LONG, 0], &[0]], "Softmax", vec![int("axis", 1)]);
    softmax_along_long_empty_tensors Converts => empty([&[LONG, 0], &[0]], "LogSoftmax", vec![int("axis", 0)]);
    products_of_long_empty_tensors Refused("too large") =>
        empty([&[LONG, 0], &[0, LONG]], "MatMul", Vec::new());
    products_along_long_empty_tensors Converts => empty([&[0, LONG], &[LONG, 0]], "MatMul", Vec::new());
    running_sums_of_long_empty_tensors Converts => {
        let data = vec![floats("a", &[LONG, 0], &[]), integers("axis", &[], &[0])];
        model(graph(vec![node("CumSum", &["a", "axis"], &["y"], Vec::new())], data, &["y"]))
    };
    rows_of_long_empty_tensors Converts => {
        let data = vec![floats("a", &[0, LONG], &[]), integers("i", &[LONG, 0], &[])];
        model(graph(vec![node("Gather", &["a", "i"], &["y"], vec![int("axis", 1)])], data, &["y"]))
    };

    /// Each module of a path repeats the path of those around it.
    names_like_deep_paths Converts => {
        let mut relu = node("Relu", &["x"], &["y"], Vec::new());
        relu.name = format!("{}/Relu", "/a".repeat(100_000));
        model(graph(vec![relu], Vec::new(), &["y"]))
    };
    scopes_like_deep_paths Converts => {
        let mut relu = node("Relu", &["x"], &["y"], Vec::new());
        let value = format!("['', {}'relu']", "'a', ".repeat(100_000));
        for key in ["pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"] {
            relu.metadata_props.push(StringStringEntryProto { key: key.into(), value: value.clone() });
        }
        model(graph(vec![relu], Vec::new(), &["y"]))
    };

    /// Each sum adds the one before it to itself; all of them are 0, and a counter is added at last.
    sums_of_sums_that_index Converts => {
        let mut nodes = counter();
        nodes.push(node("Mul", &["counter", "zero"], &["v0"], Vec::new()));
        nodes.extend((0..60).map(|n| {
            let (from, to) = (format!("v{n}"), format!("v{}", n + 1));
            node("Add", &[&from, &from], &[&to], Vec::new())
        }));
        nodes.push(node("Add", &["v60", "counter"], &["index"], Vec::new()));
        nodes.push(node("Gather", &["x", "index"], &["y"], Vec::new()));
        model(graph(nodes, numbers(), &["y"]))
    };
    /// A counter that is cast again and again, as tuples.
    casts_of_tuples Converts => {
        let mut nodes = counter();
        nodes[2].output[0] = "v0".to_owned();
        nodes.extend((0..5_000).map(|n| {
            let (from, to) = (format!("v{n}"), format!("v{}", n + 1));
            node("Cast", &[&from], &[&to], vec![int("to", if n % 2 == 0 { 6 } else { 7 })])
        }));
        nodes.push(node("Unsqueeze", &["v5000", "last"], &["column"], Vec::new()));
        nodes.push(node("Concat", &["column", "column"], &["tuples"], vec![int("axis", -1)]));
        nodes.push(node("GatherND", &["x", "tuples"], &["y"], Vec::new()));
        let x = vec![input("x", &[param("n"), size(1)])];
        with_inputs(x, graph(nodes, numbers(), &["y"]))
    };

    /// Each joins all before it and one more.
    joins_of_joins Converts => {
        let nodes = (0..16_000).map(|n| {
            let (from, to) = (if n == 0 { "x".to_owned() } else { format!("v{n}") }, format!("v{}", n + 1));
            let to = if n == 15_999 { "y".to_owned() } else { to };
            node("Concat", &[&from, "x"], &[&to], vec![int("axis", 0)])
        });
        model(graph(nodes.collect(), Vec::new(), &["y"]))
    };
    /// As many slices of a value as it has parts that it was joined of.
    slices_of_many_parts Converts => {
        const COUNT: usize = 3_000;
        let names: Vec<String> = (0..COUNT).map(|n| format!("p{n}")).collect();
        let parts: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut nodes: Vec<NodeProto> = parts.iter().map(|part| node("Relu", &["x"], &[part], Vec::new())).collect();
        nodes.push(node("Concat", &parts, &["all"], vec![int("axis", 0)]));
        nodes.extend((0..COUNT).map(|n| {
            node("Slice", &["all", &format!("from{n}"), &format!("to{n}")], &[&format!("y{n}")], Vec::new())
        }));
        let bound = |name: &str, n: usize, of: usize| integers(&format!("{name}{n}"), &[1], &[(2 * n + of) as i64]);
        let bounds = (0..COUNT).flat_map(|n| [bound("from", n, 0), bound("to", n, 1)]).collect();
        let outputs: Vec<String> = (0..COUNT).map(|n| format!("y{n}")).collect();
        let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
        with_inputs(vec![input("x", &[size(2)])], graph(nodes, bounds, &outputs))
    };

    loops_without_nodes Converts => nested_loops(4);
    /// Written out, the rounds would have more nodes than a model may have.
    loops_of_many_nodes Converts => long_loop(false);
    scans_of_many_nodes Converts => long_loop(true);
    repeated_names Refused("out of proportion") => {
        let mut model = doubling(17, node("Relu", &["x"], &["y"], Vec::new()));
        let last = model.functions.last_mut().expect("a function");
        last.node[0].name = "n".repeat(200_000);
        let value = "v".repeat(200_000);
        last.output[0].clone_from(&value);
        last.node[0].output[0] = value;
        model
    };
    functions_with_many_inputs Refused("out of proportion") => {
        let names: Vec<String> = (0..2000).map(|n| format!("i{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut model = doubling(16, call("wide", &["x"], &["y"]));
        let mut wide = function("wide", &names, &["y"], vec![node("Relu", &["i0"], &["y"], Vec::new())]);
        wide.attribute_proto = names.iter().map(|name| int(name, 1)).collect();
        model.functions.push(wide);
        model
    };

    /// Of 4096 samples, one-sided, each with a table of its own.
    many_transforms Refused("too large") => {
        let length = integers("length", &[], &[4096]);
        let one = |n: usize| node("DFT", &["x", "length"], &[&format!("y{n}")], vec![int("onesided", 1)]);
        let input = vec![input("x", &[size(1), size(1), size(1)])];
        with_inputs(input, graph((0..100).map(one).collect(), vec![length], &["y0"]))
    };
    many_short_transforms Refused("too large") => {
        let data = vec![integers("step", &[], &[1]), integers("length", &[], &[2048])];
        let one = |n: usize| {
            let attributes = vec![int("onesided", 1)];
            node("STFT", &["x", "step", "", "length"], &[&format!("y{n}")], attributes)
        };
        let input = vec![input("x", &[size(1), size(10_000), size(1)])];
        with_inputs(input, graph((0..100).map(one).collect(), data, &["y0"]))
    };
    many_filter_banks Refused("too large") => {
        let number = |name: &str, value: f32| floats(name, &[], &[value]);
        let data = vec![
            integers("bands", &[], &[4096]),
            integers("length", &[], &[8192]),
            integers("rate", &[], &[48_000]),
            number("low", 0.0),
            number("high", 24_000.0),
        ];
        let inputs = ["bands", "length", "rate", "low", "high"];
        let one = |n: usize| node("MelWeightMatrix", &inputs, &[&format!("y{n}")], Vec::new());
        model(graph((0..100).map(one).collect(), data, &["y0"]))
    };
    filter_banks_of_no_frequency Converts => {
        let number = |name: &str, value: f32| floats(name, &[], &[value]);
        let data = vec![
            integers("bands", &[], &[8]),
            integers("length", &[], &[16]),
            number("rate", 1e-38),
            number("low", -699.0),
            number("high", 3e38),
        ];
        let inputs = ["bands", "length", "rate", "low", "high"];
        let bank = node("MelWeightMatrix", &inputs, &["m"], Vec::new());
        model(graph(vec![bank], data, &["m"]))
    };
    many_sparse_tensors Refused("too large") => {
        let sparse = |n: usize| SparseTensorProto {
            values: Some(floats(&format!("s{n}"), &[1], &[1.0])),
            indices: Some(integers("", &[1], &[0])),
            dims: vec![1 << 12, 1 << 10],
        };
        let mut graph = graph(Vec::new(), Vec::new(), &["s0"]);
        graph.sparse_initializer = (0..100).map(sparse).collect();
        model(graph)
    };
    many_filled_tensors Converts => {
        let shape = integers("shape", &[2], &[1 << 12, 1 << 12]);
        let fill = |n: usize| node("ConstantOfShape", &["shape"], &[&format!("c{n}")], Vec::new());
        let sine = |n: usize| node("Sin", &[&format!("c{n}")], &[&format!("y{n}")], Vec::new());
        let nodes = (0..200).flat_map(|n| [fill(n), sine(n)]).collect();
        let names: Vec<String> = (0..200).map(|n| format!("y{n}")).collect();
        model(graph(nodes, vec![shape], &names.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    sums_of_one_large_constant Converts => {
        let data = floats("c", &[1 << 16], &vec![0.5; 1 << 16]);
        let sum = |n: usize| node("ReduceSum", &["c"], &[&format!("y{n}")], Vec::new());
        let names: Vec<String> = (0..10_000).map(|n| format!("y{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        model(graph((0..10_000).map(sum).collect(), vec![data], &names))
    };
    products_of_constants Converts => {
        let data = |name: &str, dims: &[i64]| floats(name, dims, &vec![0.5; 1 << 18]);
        let product = node("MatMul", &["a", "b"], &["y"], Vec::new());
        let (a, b) = (data("a", &[1 << 9, 1 << 9]), data("b", &[1 << 9, 1 << 9]));
        let squared = |n: usize| {
            let [from, to] = [n, n + 1].map(|n| format!("y{n}"));
            node("MatMul", &[&from, "b"], &[&to], Vec::new())
        };
        let mut nodes = vec![NodeProto { output: vec!["y0".into()], ..product }];
        nodes.extend((0..100).map(squared));
        model(graph(nodes, vec![a, b], &["y100"]))
    };

    /// Unused, so that taking the last away takes all away.
    a_dead_chain Converts => {
        let mut nodes = chain(20_000, |_, from, to| node("Relu", &[from], &[to], Vec::new()));
        nodes.push(node("Mul", &["v20000", "zero"], &["z"], Vec::new()));
        nodes.push(node("Shape", &["z"], &["s"], Vec::new()));
        model(graph(nodes, vec![floats("zero", &[1], &[0.0])], &["s"]))
    };
    deep_functions_with_deep_choices Refused("inside each other") => deep(60, 30);
    deep_functions Refused("inside each other") => deep(2000, 1);
    deep_choices Converts => deep(1, 30);
    as_deep_as_may_be Converts => deep(15, 2);

    many_attributes Refused("attribute") => {
        let attributes = (0..60_000).map(|n| int(&format!("a{n}"), 1)).collect();
        model(graph(vec![node("Relu", &["x"], &["y"], attributes)], Vec::new(), &["y"]))
    };
    many_attributes_of_functions Refused("attribute") => {
        let names: Vec<String> = (0..30_000).map(|n| format!("a{n}")).collect();
        let refer = |name: &String| AttributeProto { ref_attr_name: name.clone(), ..int(name, 0) };
        let inner = node("Relu", &["x"], &["y"], names.iter().map(refer).collect());
        let mut call = call("g", &["x"], &["y"]);
        call.attribute = names.iter().map(|name| int(name, 1)).collect();
        let mut model = model(graph(vec![call], Vec::new(), &["y"]));
        model.functions = vec![function("g", &["x"], &["y"], vec![inner])];
        model
    };
    many_operator_sets Converts => {
        let set = |n: usize| OperatorSetIdProto { domain: format!("d{n}"), version: 1 };
        let call_one = |n: usize, from: &str, to: &str| call(&format!("g{n}"), &[from], &[to]);
        let mut model = model(graph(chain(2000, call_one), Vec::new(), &["v2000"]));
        model.opset_import.extend((0..30_000).map(set));
        let relu = || vec![node("Relu", &["x"], &["y"], Vec::new())];
        model.functions = (0..2000).map(|n| function(&format!("g{n}"), &["x"], &["y"], relu())).collect();
        model
    };
    growing_sequences Refused("out of proportion") => {
        let mut nodes = vec![node("SequenceEmpty", &[], &["v0"], Vec::new())];
        nodes.extend(chain(60_000, |n, from, to| {
            node("SequenceInsert", &[if n == 0 { "v0" } else { from }, "x"], &[to], Vec::new())
        }));
        nodes.push(node("SequenceLength", &["v60000"], &["y"], Vec::new()));
        model(graph(nodes, Vec::new(), &["y"]))
    };
    many_choices Converts => {
        let branch = |operator: &str| graph(vec![node(operator, &["x"], &["r"], Vec::new())], Vec::new(), &["r"]);
        let choose = |n: usize| {
            let branches = vec![graph_attribute("then_branch", branch("Sin")), graph_attribute("else_branch", branch("Cos"))];
            node("If", &["c"], &[&format!("y{n}")], branches)
        };
        let mut nodes = vec![
            node("Size", &["x"], &["s"], Vec::new()),
            node("Greater", &["s", "three"], &["c"], Vec::new()),
        ];
        nodes.extend(chain(4000, |_, from, to| node("Relu", &[from], &[to], Vec::new())));
        nodes.extend((0..500).map(choose));
        let names: Vec<String> = (0..500).map(|n| format!("y{n}")).collect();
        let mut outputs: Vec<&str> = names.iter().map(String::as_str).collect();
        outputs.push("v4000");
        model(graph(nodes, vec![integers("three", &[], &[3])], &outputs))
    };

    /// Many nodes that look at every element of one constant.
    many_lookups_in_one_table Converts => {
        let table = integers("i", &[1 << 14], &(0..1 << 14).map(|i| i * 7 % (1 << 14)).collect::<Vec<_>>());
        let nodes = chain(2000, |_, from, to| node("Gather", &[from, "i"], &[to], vec![int("axis", 1)]));
        let inputs = vec![input("x", &[param("n"), size(1 << 14)])];
        with_inputs(inputs, graph(nodes, vec![table], &["v2000"]))
    };
    many_operations_on_one_value Converts => {
        let data = floats("c", &[1 << 16], &vec![1.5; 1 << 16]);
        let operation = |n: usize| if n.is_multiple_of(2) { "Mul" } else { "Add" };
        let nodes = chain(2000, |n, from, to| node(operation(n), &[from, "c"], &[to], Vec::new()));
        let inputs = vec![input("x", &[param("n"), size(1 << 16)])];
        with_inputs(inputs, graph(nodes, vec![data], &["v2000"]))
    };
    /// Each layer would get a weight of its own.
    many_layers_with_one_weight Converts => {
        let weight = floats("c.weight", &[256, 256, 1, 1], &vec![0.5; 1 << 16]);
        let scale = floats("s", &[256, 1, 1], &(0..256).map(|i| i as f32).collect::<Vec<_>>());
        let nodes = chain(2000, |n, from, to| match n % 2 {
            0 => node("Conv", &[from, "c.weight"], &[to], Vec::new()),
            _ => node("Mul", &[from, "s"], &[to], Vec::new()),
        });
        let inputs = vec![input("x", &[size(1), size(256), size(2), size(2)])];
        with_inputs(inputs, graph(nodes, vec![weight, scale], &["v2000"]))
    };
    many_transposes_of_one_constant Converts => {
        let data = floats("c", &[512, 512], &(0..1 << 18).map(|i| (i % 97) as f32).collect::<Vec<_>>());
        let nodes = chain(2000, |n, from, to| match n % 4 {
            0 | 2 => node("Transpose", &[from], &[to], vec![ints("perm", &[1, 0])]),
            1 => node("Add", &[from, "c"], &[to], Vec::new()),
            _ => node("Relu", &[from], &[to], Vec::new()),
        });
        with_inputs(vec![input("x", &[size(512), size(512)])], graph(nodes, vec![data], &["v2000"]))
    };
    constants_in_loops Converts => {
        let mut body = graph(Vec::new(), vec![truth("on", true)], &["on", "y"]);
        let value = AttributeProto { ints: vec![1; 1 << 15], ..attribute("value_ints", attribute_type::INTS) };
        body.node = vec![node("Constant", &[], &["y"], vec![value])];
        body.input = vec![named("round"), named("condition")];
        let data = vec![integers("rounds", &[], &[1000]), truth("go", true)];
        let body = vec![graph_attribute("body", body)];
        model(graph(vec![node("Loop", &["rounds", "go"], &["y"], body)], data, &["y"]))
    };
    /// Of each loop the body is lowered again and again, and in each of these times that of the loop in it.
    loops_of_unknown_rounds_in_loops Refused("out of proportion") => nested_unknown_loops(24);
    loops_of_few_unknown_rounds_in_loops Converts => nested_unknown_loops(4);
    /// Each attempt at the body finds one more size that rounds change.
    sizes_that_change_one_by_one Converts => {
        let width = 60;
        let names: Vec<String> = (0..width).map(|n| format!("h{n}")).collect();
        let mut body = graph(Vec::new(), vec![truth("on", true)], &["on"]);
        body.input = vec![named("i"), named("c")];
        for (n, name) in names.iter().enumerate() {
            body.input.push(named(name));
            let other = names.get(n + 1).map_or("x", String::as_str);
            let next = format!("next{n}");
            body.node.push(node("Concat", &[other, other], &[&next], vec![int("axis", 0)]));
            body.output.push(named(&next));
        }
        let mut inputs = vec!["rounds", ""];
        inputs.extend(names.iter().map(|_| "x"));
        let outputs: Vec<String> = (0..width).map(|n| format!("o{n}")).collect();
        let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let repeated = node("Loop", &inputs, &outputs, vec![graph_attribute("body", body)]);
        model(graph(vec![rounds_of_data(), repeated], Vec::new(), &["o0"]))
    };
    /// Each of what rounds hand on has a size that the round before another had.
    sizes_that_change_places Converts => {
        let width = 500;
        let names: Vec<String> = (0..width).map(|n| format!("h{n}")).collect();
        let mut body = graph(Vec::new(), vec![truth("on", true)], &["on"]);
        body.input = vec![named("i"), named("c")];
        for (n, name) in names.iter().enumerate() {
            body.input.push(named(name));
            let next = format!("next{}", (n + 1) % width);
            body.node.push(node("Sin", &[name], &[&next], Vec::new()));
        }
        body.output.extend((0..width).map(|n| named(&format!("next{n}"))));
        let first: Vec<String> = (0..width).map(|n| format!("x{n}")).collect();
        let inputs: Vec<&str> = ["rounds", ""].into_iter().chain(first.iter().map(String::as_str)).collect();
        let outputs: Vec<String> = (0..width).map(|n| format!("o{n}")).collect();
        let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let repeated = node("Loop", &inputs, &outputs, vec![graph_attribute("body", body)]);
        let sizes = first.iter().enumerate().map(|(n, name)| input(name, &[param(&format!("n{n}")), size(3)]));
        let x = input("x", &[param("n"), size(3)]);
        let inputs = sizes.chain([x]).collect();
        with_inputs(inputs, graph(vec![rounds_of_data(), repeated], Vec::new(), &outputs))
    };
    /// What is halved more often than numbers have bits.
    halves_of_halves Converts => {
        let nodes = chain(4000, |_, from, to| {
            node("Slice", &[from, "start", "end", "axis", "step"], &[to], Vec::new())
        });
        let bounds = [("start", 0), ("end", i64::MAX), ("axis", 0), ("step", 2)];
        let data = bounds.iter().map(|(name, value)| integers(name, &[1], &[*value])).collect();
        model(graph(nodes, data, &["v4000"]))
    };
    parts_of_one_element Refused("out of proportion") => {
        let nodes = vec![
            node("SplitToSequence", &["x", "one"], &["parts"], Vec::new()),
            node("ConcatFromSequence", &["parts"], &["y"], vec![int("axis", 0)]),
        ];
        let data = vec![integers("one", &[], &[1])];
        with_inputs(vec![input("x", &[size(100_000)])], graph(nodes, data, &["y"]))
    };
    some_parts_of_one_element Converts => {
        let nodes = vec![
            node("SplitToSequence", &["x", "one"], &["parts"], Vec::new()),
            node("ConcatFromSequence", &["parts"], &["y"], vec![int("axis", 0)]),
        ];
        let data = vec![integers("one", &[], &[1])];
        with_inputs(vec![input("x", &[size(4_000)])], graph(nodes, data, &["y"]))
    };
    more_rounds_than_are_written_out Converts => {
        let mut body = graph(Vec::new(), vec![truth("on", true)], &["on", "r"]);
        body.node = vec![node("Relu", &["h"], &["r"], Vec::new())];
        body.input = vec![named("i"), named("c"), named("h")];
        let data = vec![integers("rounds", &[], &[i64::MAX - 1])];
        let repeated = node("Loop", &["rounds", "", "x"], &["y"], vec![graph_attribute("body", body)]);
        model(graph(vec![repeated], data, &["y"]))
    };
    tensors_of_many_axes Refused("axes") => {
        let axes: Vec<i64> = (0..4000).collect();
        let mut nodes = vec![node("Unsqueeze", &["x", "axes"], &["v0"], Vec::new())];
        nodes.extend(chain(4000, |n, from, to| {
            node("Relu", &[if n == 0 { "v0" } else { from }], &[to], Vec::new())
        }));
        model(graph(nodes, vec![integers("axes", &[4000], &axes)], &["v4000"]))
    };
    /// A size of as many terms as there are inputs, at every node of a chain.
    long_sizes Refused("too large") => {
        let inputs = (0..1000).map(|n| input(&format!("x{n}"), &[param(&format!("n{n}")), size(3)])).collect();
        let mut nodes: Vec<NodeProto> = (1..1000).map(|n| {
            let [from, other, to] = [format!("y{}", n - 1), format!("x{n}"), format!("y{n}")];
            node("Concat", &[if n == 1 { "x0" } else { &from }, &other], &[&to], vec![int("axis", 0)])
        }).collect();
        nodes.push(node("Relu", &["y999"], &["z"], Vec::new()));
        with_inputs(inputs, graph(nodes, Vec::new(), &["z"]))
    };
    deep_sizes Refused("too large") => {
        let ends = (0..3000).map(|n| integers(&format!("b{n}"), &[1], &[5000 - n]));
        let data = [integers("a", &[1], &[0])].into_iter().chain(ends).collect();
        let nodes = chain(3000, |n, from, to| {
            node("Slice", &[from, "a", &format!("b{n}"), "a"], &[to], Vec::new())
        });
        model(graph(nodes, data, &["v3000"]))
    };
    /// Of each an element less is kept, which is one size however often.
    parts_of_parts Converts => {
        let data = vec![integers("a", &[1], &[0]), integers("b", &[1], &[-1])];
        let nodes = chain(3000, |_, from, to| node("Slice", &[from, "a", "b", "a"], &[to], Vec::new()));
        model(graph(nodes, data, &["v3000"]))
    };
    deep_types Refused("sequence") => {
        let mut ty = input("", &[size(1)]).r#type.expect("a type");
        for _ in 0..44 {
            let elem_type = Some(Box::new(ty));
            ty = TypeProto { value: Some(TypeValue::Sequence(Box::new(ElementTypeProto { elem_type }))), ..TypeProto::default() };
        }
        let input = ValueInfoProto { r#type: Some(ty), ..named("x") };
        with_inputs(vec![input], graph(vec![node("Relu", &["x"], &["y"], Vec::new())], Vec::new(), &["y"]))
    };
    many_undefined_names Refused("nothing defines") => {
        let names: Vec<String> = (0..60_000).map(|n| format!("u{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut sum = node("Sum", &names, &["y"], Vec::new());
        sum.name = "n".repeat(100_000);
        model(graph(vec![sum], Vec::new(), &["y"]))
    };
    joins_of_everything_before Converts => {
        let names: Vec<String> = (0..200).map(|n| if n == 0 { "x".into() } else { format!("z{n}") }).collect();
        let mut nodes = Vec::new();
        for n in 1..200 {
            let all: Vec<&str> = names[..n].iter().map(String::as_str).collect();
            nodes.push(node("Concat", &all, &[&format!("y{n}")], vec![int("axis", 1)]));
            nodes.push(node("ReduceSum", &[&format!("y{n}"), "axis"], &[&names[n]], Vec::new()));
        }
        model(graph(nodes, vec![integers("axis", &[1], &[1])], &["z199"]))
    };
    chains_of_nodes Converts => {
        let nodes = chain(5000, |n, from, to| {
            let scope = format!("/layers/layers.{}/act/Sin_{n}", n / 4);
            NodeProto { name: scope, ..node("Sin", &[from], &[to], Vec::new()) }
        });
        model(graph(nodes, Vec::new(), &["v5000"]))
    };

    blocks_that_overflow Refused("block_shape") => {
        let data = vec![integers("image", &[3], &[5, 5, 5]), integers("block", &[3], &[1 << 24; 3])];
        let one = node("Col2Im", &["x", "image", "block"], &["y"], Vec::new());
        with_inputs(vec![input("x", &[size(1), size(8), size(4)])], graph(vec![one], data, &["y"]))
    };
    places_that_overflow Refused("too large") => {
        let data = vec![integers("i", &[2, 2], &[0, 0, (1 << 32) - 1, (1 << 31) - 1])];
        let dims = [size(1 << 32), size(1 << 31)];
        let one = node("ScatterND", &["x", "i", "u"], &["y"], Vec::new());
        let inputs = vec![input("x", &dims), input("u", &[size(2)])];
        with_inputs(inputs, graph(vec![one], data, &["y"]))
    };
    windows_that_overflow Refused("") => {
        let inputs = vec![input("x", &[size(1), size(1), size(8)]), input("w", &[size(1), size(0), size(1 << 62)])];
        let attributes = vec![string("auto_pad", "SAME_UPPER"), ints("dilations", &[i64::from(i32::MAX)])];
        let one = node("Conv", &["x", "w"], &["y"], attributes);
        with_inputs(inputs, graph(vec![one], Vec::new(), &["y"]))
    };
}

/// A number of rounds that only the run tells.
fn rounds_of_data() -> NodeProto {
    node("Size", &["x"], &["rounds"], Vec::new())
}

/// Loops whose number of rounds only the run tells, inside each other; each carries a tensor that grows, and
/// leaves it.
fn nested_unknown_loops(levels: usize) -> ModelProto {
    let mut inner: Option<GraphProto> = None;
    for level in 0..levels {
        let [h, r] = ["h", "r"].map(|name| format!("{name}{level}"));
        let last = format!("r{}", level.wrapping_sub(1));
        let mut body = graph(Vec::new(), vec![truth("on", true)], &["on", &r, &h]);
        body.input = vec![named(&format!("i{level}")), named(&format!("c{level}")), named(&h)];
        let from = match inner {
            Some(inner) => {
                let deeper =
                    node("Loop", &["rounds", "", &h], &[&last], vec![graph_attribute("body", inner)]);
                body.node.push(deeper);
                last.as_str()
            }
            None => h.as_str(),
        };
        body.node.push(node("Concat", &[from, &h], &[&r], vec![int("axis", 0)]));
        inner = Some(body);
    }
    let body = graph_attribute("body", inner.expect("a level"));
    let nodes = vec![rounds_of_data(), node("Loop", &["rounds", "", "x"], &["y"], vec![body])];
    model(graph(nodes, Vec::new(), &["y"]))
}

/// A loop (or a scan) of a thousand rounds over a body of as many nodes.
fn long_loop(scans: bool) -> ModelProto {
    let relu =
        |n: usize, from: &str, to: &str| node("Relu", &[if n == 0 { "h" } else { from }], &[to], Vec::new());
    let mut body = graph(chain(1000, relu), Vec::new(), &["v1000"]);
    body.input = vec![named("h")];
    if scans {
        body.input.push(named("row"));
        let attributes = vec![graph_attribute("body", body), int("num_scan_inputs", 1)];
        let rows = floats("rows", &[1000], &[0.5; 1000]);
        return model(graph(vec![node("Scan", &["x", "rows"], &["y"], attributes)], vec![rows], &["y"]));
    }
    body.input.splice(..0, [named("i"), named("c")]);
    body.output.insert(0, named("c"));
    let data = vec![integers("rounds", &[], &[1000])];
    let repeated = node("Loop", &["rounds", "", "x"], &["y"], vec![graph_attribute("body", body)]);
    model(graph(vec![repeated], data, &["y"]))
}

/// Loops of a thousand rounds inside each other, with nothing in the innermost.
fn nested_loops(levels: usize) -> ModelProto {
    let data = || vec![integers("rounds", &[], &[1000]), truth("go", true)];
    let mut inner: Option<GraphProto> = None;
    for level in 0..levels {
        let nodes = inner.into_iter().map(|body| {
            let body = graph_attribute("body", body);
            node("Loop", &["rounds", "go"], &[], vec![body])
        });
        let condition = format!("condition{level}");
        let mut body = graph(nodes.collect(), vec![truth("on", true)], &["on"]);
        body.input = vec![named(&format!("round{level}")), named(&condition)];
        inner = Some(body);
    }
    let body = graph_attribute("body", inner.expect("a level"));
    let mut nodes = vec![node("Loop", &["rounds", "go"], &[], vec![body])];
    nodes.push(node("Relu", &["x"], &["y"], Vec::new()));
    model(graph(nodes, data(), &["y"]))
}

/// Functions that each call the next one twice; the last is the given node.
fn doubling(levels: usize, last: NodeProto) -> ModelProto {
    let name = |n: usize| format!("f{n}");
    let twice = |n: usize| vec![call(&name(n + 1), &["x"], &["z"]), call(&name(n + 1), &["z"], &["y"])];
    let mut model = model(graph(vec![call("f0", &["x"], &["y"])], Vec::new(), &["y"]));
    model.functions = (0..levels).map(|n| function(&name(n), &["x"], &["y"], twice(n))).collect();
    model.functions.push(function(&name(levels), &["x"], &["y"], vec![last]));
    model
}

/// Functions inside each other, each in choices inside each other whose conditions are known.
fn deep(functions: usize, choices: usize) -> ModelProto {
    let body = |n: usize| {
        let next = if n + 1 == functions {
            node("Relu", &["x"], &["r"], Vec::new())
        } else {
            call(&format!("f{}", n + 1), &["x"], &["r"])
        };
        let mut inner = graph(vec![next], vec![truth("c", true)], &["r"]);
        for _ in 1..choices {
            inner = graph(vec![choice(inner)], vec![truth("c", true)], &["r"]);
        }
        let condition = AttributeProto {
            t: Some(Box::new(truth("", true))),
            ..attribute("value", attribute_type::TENSOR)
        };
        vec![node("Constant", &[], &["c"], vec![condition]), choice(inner)]
    };
    let mut model = model(graph(vec![call("f0", &["x"], &["y"])], Vec::new(), &["y"]));
    model.functions = (0..functions).map(|n| function(&format!("f{n}"), &["x"], &["r"], body(n))).collect();
    model
}

fn choice(branch: GraphProto) -> NodeProto {
    let other = graph(vec![node("Identity", &["x"], &["r"], Vec::new())], Vec::new(), &["r"]);
    let branches = vec![graph_attribute("then_branch", branch), graph_attribute("else_branch", other)];
    node("If", &["c"], &["r"], branches)
}

/// 200 initializers that are the same megabyte of one data file.
#[test]
fn overlapping_external_data() {
    bounded(|| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("w.bin"), vec![1u8; 1 << 22]).expect("a file");
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        let tensor = |n: usize| TensorProto {
            external_data: vec![entry("location", "w.bin")],
            data_location: 1,
            ..floats(&format!("w{n}"), &[1 << 20], &[])
        };
        let names: Vec<String> = (0..200).map(|n| format!("w{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let model = model(graph(Vec::new(), (0..200).map(tensor).collect(), &names));
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, model.encode_to_vec()).expect("a file");
        Refused("too large").check(convert_file(&path));
    });
}

/// Messages of two bytes in the file and some hundred in memory.
#[test]
fn empty_messages() {
    bounded(|| {
        // The graph, the node in it for attributes, and the empty message again and again.
        for (around, field) in [(&[0x3a][..], 0x0a), (&[0x3a], 0x2a), (&[0x3a, 0x0a], 0x2a)] {
            let mut bytes: Vec<u8> = [field, 0].repeat(1 << 21);
            for key in around.iter().rev() {
                let mut message = vec![*key];
                prost::encode_length_delimiter(bytes.len(), &mut message).expect("a vector grows");
                message.append(&mut bytes);
                bytes = message;
            }
            Refused("out of proportion").check(convert(bytes));
        }
    });
}

fn convert_file(path: &Path) -> Result<(), String> {
    let mut graph = load(path, &LoadOptions::default()).map_err(|error| error.to_string())?;
    optimize(&mut graph, &Options::default());
    Ok(())
}

/// Trees of one branch over so many different samples, two over each, all of which are added one after the other.
#[test]
fn sums_of_many_trees() {
    let tree = |samples: &str, result: &str, value: f32| {
        let floats = |name: &str, floats: &[f32]| AttributeProto {
            floats: floats.to_vec(),
            ..attribute(name, attribute_type::FLOATS)
        };
        let modes = AttributeProto {
            strings: ["BRANCH_LEQ", "LEAF", "LEAF"].map(|mode| mode.to_owned().into()).to_vec(),
            ..attribute("nodes_modes", attribute_type::STRINGS)
        };
        let attributes = vec![
            int("n_targets", 1),
            ints("nodes_treeids", &[0, 0, 0]),
            ints("nodes_nodeids", &[0, 1, 2]),
            ints("nodes_featureids", &[0, 0, 0]),
            ints("nodes_truenodeids", &[1, 0, 0]),
            ints("nodes_falsenodeids", &[2, 0, 0]),
            ints("target_treeids", &[0, 0]),
            ints("target_nodeids", &[1, 2]),
            ints("target_ids", &[0, 0]),
            floats("nodes_values", &[value, 0.0, 0.0]),
            floats("target_weights", &[value, value + 1.0]),
            modes,
        ];
        let ensemble = node("TreeEnsembleRegressor", &[samples], &[result], attributes);
        NodeProto { domain: "ai.onnx.ml".to_owned(), ..ensemble }
    };
    bounded(move || {
        let count = 600;
        let mut nodes = chain(count, |_, from, to| node("Sin", &[from], &[to], Vec::new()));
        let samples: Vec<String> = nodes.iter().map(|node| node.output[0].clone()).collect();
        let mut sum = String::new();
        for (n, samples) in samples.iter().flat_map(|samples| [samples; 2]).enumerate() {
            let (tree_of, next) = (format!("t{n}"), format!("s{n}"));
            nodes.push(tree(samples, &tree_of, n as f32));
            if n > 0 {
                nodes.push(node("Add", &[&sum, &tree_of], &[&next], Vec::new()));
            }
            sum = if n > 0 { next } else { tree_of };
        }
        convert(model(graph(nodes, Vec::new(), &[&sum])).encode_to_vec()).expect("a model");
    });
}
