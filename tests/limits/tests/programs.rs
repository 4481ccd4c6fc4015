//! Exported programs of PyTorch whose calls are translated again and again, as tensors are changed in place or loops have conditions: refused or
//! converted within limits.

use kiln_importer::onnx::{LoadOptions, load_bytes};
use kiln_importer::passes::{Options, optimize};
use kiln_limits_tests::bounded;
use serde_json::{Value, json};
use std::io::{Cursor, Read, Write};
use std::path::Path;
use zip::{ZipArchive, ZipWriter};

/// Where the text of a program stands in its archive.
const TEXT: &str = "/models/model.json";

/// The archive of a program with this graph, whose input and output have these names.
fn program(graph: Value, [input, output]: [&str; 2]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/programs/control_flow/model.pt2");
    let mut archive = ZipArchive::new(std::fs::File::open(path).expect("a program")).expect("an archive");
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).expect("an entry");
        let (name, mut bytes) = (entry.name().to_owned(), Vec::new());
        entry.read_to_end(&mut bytes).expect("its bytes");
        if name.contains("/weights/") || name.contains("/constants/") {
            continue;
        }
        if name.ends_with(TEXT) {
            let mut text: Value = serde_json::from_slice(&bytes).expect("a text");
            let module = &mut text["graph_module"];
            module["graph"] = graph.clone();
            module["signature"] = json!({
                "input_specs": [{ "user_input": { "arg": tensor(input) } }],
                "output_specs": [{ "user_output": { "arg": tensor(output) } }],
            });
            module["module_call_graph"] = json!([]);
            bytes = text.to_string().into_bytes();
        }
        writer.start_file(name, stored).expect("an entry");
        writer.write_all(&bytes).expect("its bytes");
    }
    writer.finish().expect("an archive").into_inner()
}

fn tensor(name: &str) -> Value {
    json!({ "as_tensor": { "name": name } })
}

/// What a tensor is: the number of its dtype, and its sizes.
fn meta(dtype: u8, sizes: &[i64]) -> Value {
    let all =
        |values: Vec<i64>| values.into_iter().map(|value| json!({ "as_int": value })).collect::<Vec<_>>();
    json!({
        "dtype": dtype, "sizes": all(sizes.to_vec()), "strides": all(vec![1; sizes.len()]),
        "storage_offset": { "as_int": 0 }, "requires_grad": false, "layout": 7,
        "device": { "type": "cpu", "index": null },
    })
}

fn call(target: &str, inputs: &[(&str, Value)], output: Value) -> Value {
    let inputs: Vec<Value> =
        inputs.iter().map(|(name, arg)| json!({ "name": name, "arg": arg, "kind": 1 })).collect();
    json!({ "target": format!("torch.ops.{target}"), "inputs": inputs, "outputs": [output], "metadata": {} })
}

fn graph([input, output]: [&str; 2], nodes: Vec<Value>, values: Vec<(String, Value)>) -> Value {
    json!({
        "inputs": [tensor(input)], "outputs": [tensor(output)], "nodes": nodes,
        "tensor_values": values.into_iter().collect::<serde_json::Map<_, _>>(),
        "sym_int_values": {}, "sym_bool_values": {}, "sym_float_values": {}, "custom_obj_values": {},
        "is_single_tensor_return": false,
    })
}

fn convert(bytes: Vec<u8>) -> Result<(), String> {
    let mut graph = load_bytes(bytes, &LoadOptions::default()).map_err(|error| error.to_string())?;
    optimize(&mut graph, &Options::default());
    Ok(())
}

/// So many views, each of the one before, and as many changes of the first and the last of them in turns.
fn views(count: usize) -> Vec<u8> {
    let (last, whole) = (format!("v{count}"), meta(7, &[4]));
    let mut values = vec![("p".to_owned(), whole.clone()), ("v0".to_owned(), whole.clone())];
    let first = [("self", tensor("p")), ("other", json!({ "as_int": 1 }))];
    let mut nodes = vec![call("aten.add.Tensor", &first, tensor("v0"))];
    for n in 0..count {
        let (from, to) = (format!("v{n}"), format!("v{}", n + 1));
        let inputs = [("self", tensor(&from)), ("size", json!({ "as_ints": [4] }))];
        nodes.push(call("aten.view.default", &inputs, tensor(&to)));
        values.push((to, whole.clone()));
    }
    for n in 0..count {
        let (changed, to) = (if n % 2 == 1 { "v0" } else { &last }, format!("w{n}"));
        let inputs = [("self", tensor(changed)), ("other", json!({ "as_int": 1 }))];
        nodes.push(call("aten.add_.Tensor", &inputs, tensor(&to)));
        values.push((to, whole.clone()));
    }
    program(graph(["p", "v0"], nodes, values), ["p", "v0"])
}

#[test]
fn a_few_views_that_change() {
    bounded(|| convert(views(30)).expect("a program"));
}

#[test]
fn many_views_that_change() {
    bounded(|| {
        let error = convert(views(1000)).expect_err("too much");
        assert!(error.contains("out of proportion"), "{error}");
    });
}

/// A loop whose condition is a loop, whose condition is a loop, and so on.
fn conditions(depth: usize) -> Vec<u8> {
    let less = |of: &str| {
        call("aten.lt.Scalar", &[("self", tensor(of)), ("other", json!({ "as_int": 5 }))], tensor("b"))
    };
    let values = |names: &[&str]| {
        let numbers = names.iter().map(|name| ((*name).to_owned(), meta(5, &[])));
        numbers.chain([("b".to_owned(), meta(12, &[]))]).collect::<Vec<_>>()
    };
    let next = [("self", tensor("q")), ("other", json!({ "as_int": 1 }))];
    let round = graph(["q", "r"], vec![call("aten.add.Tensor", &next, tensor("r"))], values(&["q", "r"]));
    let mut condition = graph(["p", "b"], vec![less("p")], values(&["p"]));
    for _ in 0..depth {
        let inner = |name: &str, graph: &Value| json!({ "as_graph": { "name": name, "graph": graph } });
        let inputs = [
            ("cond_fn", inner("c", &condition)),
            ("body_fn", inner("b", &round)),
            ("carried_inputs", json!({ "as_tensors": [{ "name": "p" }] })),
            ("additional_inputs", json!({ "as_tensors": [] })),
        ];
        let looped = call("higher_order.while_loop", &inputs, json!({ "as_tensors": [{ "name": "w" }] }));
        condition = graph(["p", "b"], vec![looped, less("w")], values(&["p", "w"]));
    }
    program(condition, ["p", "b"])
}

#[test]
fn loops_that_are_conditions() {
    bounded(|| {
        convert(conditions(2)).expect("a program");
        let error = convert(conditions(14)).expect_err("too deep");
        assert!(error.contains("loops within the conditions of loops"), "{error}");
    });
}

fn tensors(names: &[String]) -> Value {
    json!({ "as_tensors": names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>() })
}

/// The value that a program begins with: its input and one.
fn first(values: &mut Vec<(String, Value)>, sizes: &[i64]) -> Value {
    values.extend(["p", "x", "y"].map(|name| (name.to_owned(), meta(7, sizes))));
    call("aten.add.Tensor", &[("self", tensor("p")), ("other", json!({ "as_int": 1 }))], tensor("x"))
}

/// The change of that value in place.
fn change() -> Value {
    call("aten.add_.Tensor", &[("self", tensor("x")), ("other", json!({ "as_int": 1 }))], tensor("y"))
}

/// Views of one tensor, each in the shape of the one before.
fn views_by_each_other(count: usize) -> Vec<u8> {
    let mut values = Vec::new();
    let mut nodes = vec![first(&mut values, &[4])];
    let mut last = "x".to_owned();
    for n in 0..count {
        let names = [format!("v{n}"), format!("w{n}")];
        values.extend(names.iter().map(|name| (name.clone(), meta(7, &[4]))));
        let list = tensors(&["x".to_owned(), last]);
        nodes.push(call("aten.broadcast_tensors.default", &[("tensors", list)], tensors(&names)));
        [last, _] = names;
    }
    nodes.push(change());
    program(graph(["p", &last], nodes, values), ["p", &last])
}

#[test]
fn views_that_are_made_again_for_each_other() {
    bounded(|| {
        convert(views_by_each_other(8)).expect("a program");
        let error = convert(views_by_each_other(3000)).expect_err("too deep");
        assert!(error.contains("have to be made again for each other"), "{error}");
    });
}

/// All rows of a tensor, which is changed before they are read.
fn rows(count: usize) -> Vec<u8> {
    let mut values = Vec::new();
    let mut nodes = vec![first(&mut values, &[i64::try_from(count).expect("few rows"), 1])];
    let names: Vec<String> = (0..count).map(|n| format!("r{n}")).collect();
    values.extend(names.iter().map(|name| (name.clone(), meta(7, &[1]))));
    let inputs = [("self", tensor("x")), ("dim", json!({ "as_int": 0 }))];
    nodes.push(call("aten.unbind.int", &inputs, tensors(&names)));
    nodes.push(change());
    values.push(("z".to_owned(), meta(7, &[i64::try_from(count).expect("few rows"), 1])));
    nodes.push(call("aten.stack.default", &[("tensors", tensors(&names))], tensor("z")));
    program(graph(["p", "z"], nodes, values), ["p", "z"])
}

#[test]
fn many_results_of_a_call_that_are_made_again() {
    bounded(|| convert(rows(1000)).expect("a program"));
}

#[test]
fn many_choices() {
    bounded(|| {
        let mut values = Vec::new();
        let mut nodes = vec![first(&mut values, &[1 << 40])];
        for n in 0..16 {
            let name = format!("c{n}");
            values.push((name.clone(), meta(7, &[1, 8])));
            let inputs = [("self", tensor("x")), ("r", json!({ "as_int": 8 }))];
            nodes.push(call("aten.combinations.default", &inputs, tensor(&name)));
        }
        let error = convert(program(graph(["p", "x"], nodes, values), ["p", "x"])).expect_err("too many");
        assert!(error.contains("combinations of 8 of 1099511627776 elements"), "{error}");
    });
}

/// A call with one result, of a tensor that is as large as the numbers of a shape say.
fn one_call(target: &str, inputs: &[(&str, Value)], sizes: &[i64]) -> Vec<u8> {
    let mut values = Vec::new();
    let nodes = vec![first(&mut values, sizes), call(target, inputs, tensor("z"))];
    values.push(("z".to_owned(), meta(7, &[1])));
    program(graph(["p", "z"], nodes, values), ["p", "z"])
}

/// Axes that no tensor has, and products of as many tensors.
#[test]
fn many_axes() {
    bounded(|| {
        let list = tensors(&vec!["x".to_owned(); 100_000]);
        let product = one_call("aten.cartesian_prod.default", &[("tensors", list)], &[4]);
        let error = convert(product).expect_err("too many");
        assert!(error.contains("are 100000, too many for a product"), "{error}");
        let zeros = json!({ "as_ints": vec![0; 100_000] });
        let strided = [("self", tensor("x")), ("size", zeros.clone()), ("stride", zeros)];
        let error = convert(one_call("aten.as_strided.default", &strided, &[4])).expect_err("too many");
        assert!(error.contains("a tensor of rank 100000"), "{error}");
    });
}

/// A name that all nodes bear which are made of a call.
#[test]
fn a_long_name() {
    bounded(|| {
        let name = "x".repeat(4 << 20);
        let mut values = Vec::new();
        let mut nodes = vec![first(&mut values, &[3000, 1])];
        let names: Vec<String> = (0..3000).map(|n| format!("r{n}")).collect();
        let mut unbound = call("aten.unbind.int", &[("self", tensor("x"))], tensors(&names));
        unbound["name"] = json!(name);
        nodes.push(unbound);
        let error = convert(program(graph(["p", "x"], nodes, values), ["p", "x"])).expect_err("too long");
        assert!(error.contains("a name of 4194304 bytes, and the limit is 1024"), "{error}");
    });
}

/// Windows of different sizes along an axis, before another one for which there are too many.
#[test]
fn many_tables_that_come_to_nothing() {
    bounded(|| {
        let mut values = Vec::new();
        let mut nodes = vec![first(&mut values, &[1, 1, 1 << 20, 3])];
        for n in 0..400 {
            let names = [format!("v{n}"), format!("w{n}")];
            values.extend(names.iter().map(|name| (name.clone(), meta(7, &[1]))));
            let inputs = [("self", tensor("x")), ("output_size", json!({ "as_ints": [1_048_575, 2] }))];
            let mut pooled = call("aten.adaptive_max_pool2d.default", &inputs, tensor(&names[0]));
            pooled["outputs"] = json!([tensor(&names[0]), tensor(&names[1])]);
            nodes.push(pooled);
        }
        let error = convert(program(graph(["p", "x"], nodes, values), ["p", "x"])).expect_err("too much");
        assert!(error.contains("out of proportion"), "{error}");
    });
}
