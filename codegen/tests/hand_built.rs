//! Source for graphs built by hand.

use kiln_codegen::{Options, RecordPath, generate};
use kiln_importer::ir::{
    Builder, Conv, Dim, Expand, Graph, Linear, Op, Origin, Reshape, ScopeEntry, TensorType, ValueId,
};
use kiln_types::{Activation, BinaryOp, ConvOptions, DType, TensorData, UnaryOp};

fn scope(path: &str, class: &str) -> ScopeEntry {
    ScopeEntry { path: path.to_owned(), class: class.to_owned() }
}

fn origin(scopes: &[(&str, &str)]) -> Origin {
    Origin { scope: scopes.iter().map(|(path, class)| scope(path, class)).collect(), ..Origin::default() }
}

fn zeros(shape: &[usize]) -> TensorData {
    TensorData::new(vec![0f32; shape.iter().product()], shape.to_vec())
}

fn linear(builder: &mut Builder<'_>, x: ValueId, name: &str, [inputs, outputs]: [usize; 2]) -> ValueId {
    let weight = builder.graph.add_constant(Some(format!("{name}.weight")), zeros(&[inputs, outputs]));
    let bias = builder.graph.add_constant(Some(format!("{name}.bias")), zeros(&[outputs]));
    builder.add(Op::Linear(Linear { activation: None }), &[x, weight, bias]).unwrap()
}

fn finish(mut graph: Graph, nodes: Vec<kiln_importer::ir::NodeId>, outputs: &[ValueId]) -> Graph {
    graph.root.nodes = nodes;
    graph.root.outputs = outputs.to_vec();
    graph.output_names = (0..outputs.len()).map(|i| format!("y{i}")).collect();
    graph
}

/// A perceptron of one hidden layer, added to what it is given.
fn block(builder: &mut Builder<'_>, x: ValueId, name: &str) -> ValueId {
    builder.origin = origin(&[("", "Net"), (name, "Block"), (&format!("{name}.fc1"), "Linear")]);
    let hidden = linear(builder, x, &format!("{name}.fc1"), [16, 32]);
    builder.origin = origin(&[("", "Net"), (name, "Block")]);
    let hidden = builder.add(Op::Activation(Activation::Relu), &[hidden]).unwrap();
    builder.origin = origin(&[("", "Net"), (name, "Block"), (&format!("{name}.fc2"), "Linear")]);
    let hidden = linear(builder, hidden, &format!("{name}.fc2"), [32, 16]);
    builder.origin = origin(&[("", "Net"), (name, "Block")]);
    builder.add(Op::Binary(BinaryOp::Add), &[hidden, x]).unwrap()
}

/// Two equal blocks in a `ModuleList`, a head, a dynamic batch.
fn blocks() -> Graph {
    let mut graph = Graph { name: "blocks".into(), ..Graph::default() };
    let mut builder = Builder::new(&mut graph);
    let ty = TensorType::new(DType::F32, [Dim::symbol("batch"), Dim::constant(16)]);
    let input = builder.input("input.1", ty);
    let mut x = input;
    for i in 0..2 {
        x = block(&mut builder, x, &format!("layer.{i}"));
    }
    builder.origin = origin(&[("", "Net"), ("head", "Linear")]);
    let y = linear(&mut builder, x, "head", [16, 4]);
    let batch = builder.graph.ty(input).dims[0].clone();
    let y = builder
        .add(Op::Reshape(Reshape { dims: vec![batch, Dim::constant(2), Dim::constant(2)] }), &[y])
        .unwrap();
    let nodes = builder.nodes;
    finish(graph, nodes, &[y])
}

/// Convolutions without scopes or good names.
fn anonymous() -> Graph {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let mut x = builder.input("", TensorType::new(DType::F32, [1usize, 3, 8, 8]));
    for (channels_in, channels_out) in [(3usize, 8usize), (8, 8)] {
        let weight = builder
            .graph
            .add_constant(Some("onnx::Conv_12".into()), zeros(&[channels_out, channels_in, 3, 3]));
        let options = ConvOptions {
            stride: [1, 1].into(),
            padding: [(1, 1), (1, 1)].into(),
            dilation: [1, 1].into(),
            groups: 1,
        };
        x = builder
            .add(Op::Conv(Conv { options, activation: Some(Activation::Relu) }), &[x, weight])
            .unwrap();
    }
    let nodes = builder.nodes;
    finish(graph, nodes, &[x])
}

fn options() -> Options {
    Options {
        source_name: "net.onnx".into(),
        default_record: Some(RecordPath::OutDir("model/net.safetensors".into())),
        ..Options::default()
    }
}

#[test]
fn equal_blocks_share_a_struct_and_a_loop() {
    let generated = generate(&blocks(), &options()).unwrap();
    insta::assert_snapshot!(generated.source);
    let paths: Vec<String> = generated.tensors().into_iter().map(|tensor| tensor.path).collect();
    assert_eq!(
        paths,
        [
            "layer.0.fc1.weight",
            "layer.0.fc1.bias",
            "layer.0.fc2.weight",
            "layer.0.fc2.bias",
            "layer.1.fc1.weight",
            "layer.1.fc1.bias",
            "layer.1.fc2.weight",
            "layer.1.fc2.bias",
            "head.weight",
            "head.bias",
        ]
    );
}

/// A loop goes on with the variable that it begins with, and that is called as the file calls what comes of it.
#[test]
fn what_a_loop_begins_with_has_the_name_of_its_result() {
    let ty = || TensorType::new(DType::F32, [2usize, 16]);
    let source = |lists: &[&str]| {
        let mut graph = Graph::default();
        let mut builder = Builder::new(&mut graph);
        let [a, b] = ["a", "b"].map(|name| builder.input(name, ty()));
        builder.origin = origin(&[("", "Net"), ("head", "Linear")]);
        let a = linear(&mut builder, a, "first", [16, 16]);
        builder.origin = origin(&[("", "Net")]);
        let b = builder.add(Op::Unary(UnaryOp::Exp), &[b]).unwrap();
        let mut x = builder.add(Op::Binary(BinaryOp::Add), &[a, b]).unwrap();
        for list in lists {
            for i in 0..2 {
                x = block(&mut builder, x, &format!("{list}.{i}"));
            }
        }
        builder.origin = origin(&[("", "Net"), ("head", "Linear")]);
        let y = linear(&mut builder, x, "head", [16, 4]);
        let nodes = builder.nodes;
        let mut graph = finish(graph, nodes, &[y, x]);
        graph.output_names = vec!["scores".into(), "type".into()];
        generate(&graph, &options()).unwrap().source
    };
    for lists in [&["layer"] as &[_], &["layer", "more"]] {
        let source = source(lists);
        assert_eq!(source.matches("let mut type_ = ").count(), 1, "{source}");
        assert_eq!(source.matches("type_ = ").count(), 1 + lists.len(), "{source}");
        assert!(source.contains("Ok((scores, type_))"), "{source}");
    }
}

#[test]
fn without_names_the_model_is_flat() {
    insta::assert_snapshot!(generate(&anonymous(), &options()).unwrap().source);
}

#[test]
fn the_same_graph_gives_the_same_bytes() {
    let (a, b) = (generate(&blocks(), &options()).unwrap(), generate(&blocks(), &options()).unwrap());
    assert_eq!(a.source, b.source);
    assert_eq!(a.record, b.record);
}

/// Types that stand in the places where modules may differ are imported, and no module is called as they are.
#[test]
fn a_module_is_not_called_as_an_imported_type() {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let mut x = builder.input("x", TensorType::new(DType::F32, [2usize, 8]));
    for (module, name) in [("a", "a.up"), ("a", "a.down"), ("b", "b.up"), ("b", "b.down")] {
        builder.origin = origin(&[("", "Net"), (module, "Activation")]);
        let weight = builder.graph.add_constant(Some(format!("{name}.weight")), zeros(&[8, 8]));
        let bias = builder.graph.add_constant(Some(format!("{name}.bias")), zeros(&[8]));
        let activation = Some(Activation::Silu);
        x = builder.add(Op::Linear(Linear { activation }), &[x, weight, bias]).unwrap();
    }
    let nodes = builder.nodes;
    let source = generate(&finish(graph, nodes, &[x]), &options()).unwrap().source;
    assert!(source.contains("Activation::Silu") && source.contains("pub struct Activation2<B"), "{source}");
}

/// One of two numbers for each element of a mask is a mask only where it hides scores.
#[test]
fn what_a_mask_chooses_is_no_mask() {
    let source = |yes: f32| {
        let mut graph = Graph::default();
        let mut builder = Builder::new(&mut graph);
        let x = builder.input("x", TensorType::new(DType::F32, [2usize, 4]));
        let mask = builder.input("mask", TensorType::new(DType::Bool, [2usize, 4]));
        let [yes, no] = [yes, 0.0].map(|n| builder.constant(TensorData::new(vec![n], Vec::<usize>::new())));
        let chosen = builder.add(Op::Where, &[mask, yes, no]).unwrap();
        let scores = builder.add(Op::Binary(BinaryOp::Div), &[x, chosen]).unwrap();
        let y = builder.add(Op::Binary(BinaryOp::Sub), &[chosen, scores]).unwrap();
        let nodes = builder.nodes;
        generate(&finish(graph, nodes, &[y]), &options()).unwrap().source
    };
    assert!(source(f32::MIN).contains("let mask = Tensor"), "{}", source(f32::MIN));
    assert!(!source(2.0).contains("let mask"), "{}", source(2.0));
}

/// A number is read back in the first lines and used in the last: a local variable, which no other function sees.
#[test]
fn a_function_is_not_cut_between_a_read_and_its_uses() {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let mut x = builder.input("x", TensorType::new(DType::F32, [1usize, 4]));
    let rows = builder.input("rows", TensorType::new(DType::I64, [1usize]));
    // Nothing repeats, so that functions are cut by length.
    let mut seed = 1u32;
    let mut steps = |builder: &mut Builder<'_>, mut x: ValueId, count: usize| {
        let ops = [UnaryOp::Tanh, UnaryOp::Exp, UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sin, UnaryOp::Cos];
        for _ in 0..count {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let weight = builder.graph.add_constant(None, zeros(&[4, 4]));
            x = builder.add(Op::MatMul, &[x, weight]).unwrap();
            x = builder.add(Op::Unary(ops[(seed >> 16) as usize % ops.len()]), &[x]).unwrap();
        }
        x
    };
    x = steps(&mut builder, x, 10);
    let rows = builder.host(rows, "rows").unwrap();
    x = steps(&mut builder, x, 60);
    x = builder.add(Op::Expand(Expand { dims: vec![rows[0].clone(), Dim::constant(4)] }), &[x]).unwrap();
    x = steps(&mut builder, x, 60);
    let nodes = builder.nodes;
    let graph = finish(graph, nodes, &[x]);
    let source = generate(&graph, &options()).unwrap().source;
    assert!(source.matches("pub struct").count() > 1, "the function is cut elsewhere:\n{source}");
}

/// A layer that is called again in another way is written out; those between its calls stay modules.
#[test]
fn a_layer_that_does_two_things_leaves_the_others() {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let mut x = builder.input("x", TensorType::new(DType::F32, [2usize, 16]));
    let calls = [(0, UnaryOp::Sin), (1, UnaryOp::Sin), (2, UnaryOp::Sin), (0, UnaryOp::Cos)];
    let weights = [0, 1, 2].map(|i| {
        let names = ["a", "b"].map(|name| format!("layers.{i}.{name}"));
        names.map(|name| builder.graph.add_constant(Some(name), zeros(&[16, 16])))
    });
    for (i, what) in calls {
        builder.origin = origin(&[("", "Net"), (&format!("layers.{i}"), "Block")]);
        let [a, b] = weights[i];
        x = builder.add(Op::MatMul, &[x, a]).unwrap();
        x = builder.add(Op::Unary(what), &[x]).unwrap();
        x = builder.add(Op::MatMul, &[x, b]).unwrap();
    }
    let nodes = builder.nodes;
    let source = generate(&finish(graph, nodes, &[x]), &Options::default()).unwrap().source;
    assert!(source.contains("pub struct Block<B: Backend>"), "{source}");
    // Both calls of the first, and the one function of the others.
    assert_eq!(source.matches(".sin()").count() + source.matches(".cos()").count(), 3, "{source}");
}

/// A part of one module that another calls, too, has its parameters in one place.
#[test]
fn a_part_of_another_module_is_called_from_outside() {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let x = builder.input("x", TensorType::new(DType::F32, [2usize, 16]));
    let weights = ["block.part.fc.weight", "block.part.fc.bias", "block.fc.weight", "block.fc.bias"];
    let shapes: [&[usize]; 4] = [&[16, 16], &[16], &[16, 16], &[16]];
    let mut weights = weights.into_iter().zip(shapes);
    let mut constant = |b: &mut Builder<'_>| {
        let (name, shape) = weights.next().unwrap();
        b.graph.add_constant(Some(name.to_owned()), zeros(shape))
    };
    let part = [constant(&mut builder), constant(&mut builder)];
    let block = [constant(&mut builder), constant(&mut builder)];
    let of_part = |b: &mut Builder<'_>, x: ValueId, outer: &[(&str, &str)]| {
        let scopes = [outer, &[("block.part", "Part")]].concat();
        b.origin = origin(&[&scopes[..], &[("block.part.fc", "Linear")]].concat());
        let y = b.add(Op::Linear(Linear { activation: None }), &[x, part[0], part[1]]).unwrap();
        b.origin = origin(&scopes);
        b.add(Op::Unary(UnaryOp::Sin), &[y]).unwrap()
    };
    let inside = of_part(&mut builder, x, &[("", "Net"), ("block", "Block")]);
    builder.origin = origin(&[("", "Net"), ("block", "Block"), ("block.fc", "Linear")]);
    let y = builder.add(Op::Linear(Linear { activation: None }), &[inside, block[0], block[1]]).unwrap();
    let outside = of_part(&mut builder, y, &[("", "Net")]);
    let nodes = builder.nodes;
    let generated = generate(&finish(graph, nodes, &[outside]), &Options::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    generated.write_record(&folder.path().join("model.safetensors")).unwrap();
}
