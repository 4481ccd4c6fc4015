//! Loops, and branches of an `If`.

use super::*;

/// A loop without a bound, whose condition is `x > 0`; the body takes and yields these names.
fn loop_model(body: (&[&str], Vec<NodeProto>, &[&str]), carried: &[&str], outputs: &[&str]) -> ModelProto {
    let (inputs, nodes, yielded) = body;
    let named = |name: &&str| ValueInfoProto { name: (*name).into(), ..ValueInfoProto::default() };
    let data = |name: &str, data_type: i32, dims: Vec<i64>, raw: Vec<u8>| TensorProto {
        name: name.into(),
        data_type,
        dims,
        raw_data: raw.into(),
        ..TensorProto::default()
    };
    let graph = GraphProto {
        node: nodes,
        input: inputs.iter().map(named).collect(),
        output: yielded.iter().map(named).collect(),
        ..GraphProto::default()
    };
    let body = AttributeProto {
        name: "body".into(),
        r#type: attribute_type::GRAPH,
        g: Some(Box::new(graph)),
        ..AttributeProto::default()
    };
    let names: Vec<&str> = ["", "go"].iter().chain(carried).copied().collect();
    let mut repeated = node("loop", "Loop", &names, outputs);
    repeated.attribute = vec![body];
    let nodes = vec![
        node("sum", "ReduceMax", &["x"], &["largest"]),
        node("flat", "Squeeze", &["largest"], &["scalar"]),
        node("first", "Greater", &["scalar", "zero"], &["go"]),
        repeated,
    ];
    let mut model = model(vec![value("x", &[size(2), size(3)])], nodes, &outputs[..1]);
    let graph = model.graph.as_mut().expect("a graph");
    graph.initializer = vec![
        data("zero", 1, vec![], vec![0; 4]),
        data("on", 9, vec![], vec![1]),
        data("axis", 7, vec![1], vec![0; 8]),
    ];
    model
}

#[test]
fn loops_are_checked() {
    let condition = || {
        vec![
            node("max", "ReduceMax", &["h"], &["most"]),
            node("scalar_in", "Squeeze", &["most"], &["most_scalar"]),
            node("again", "Greater", &["most_scalar", "zero"], &["more"]),
        ]
    };
    let with = |others: Vec<NodeProto>| condition().into_iter().chain(others).collect::<Vec<_>>();
    let body: &[&str] = &["i", "c", "h"];
    let sequence = vec![node("list", "SequenceConstruct", &["h"], &["next"])];
    let cases = [
        (loop_model((&["i", "c"], condition(), &["more", "h"]), &["x"], &["y"]), "has 2 inputs, 3 are given"),
        (loop_model((body, condition(), &["more"]), &["x"], &["y"]), "yields too few values"),
        (
            loop_model(
                (body, with(vec![node("up", "Unsqueeze", &["h", "axis"], &["next"])]), &["more", "next"]),
                &["x"],
                &["y"],
            ),
            "a loop that makes a tensor of rank 3 of one of rank 2",
        ),
        (
            loop_model(
                (body, with(vec![node("sign", "Greater", &["h", "zero"], &["next"])]), &["more", "next"]),
                &["x"],
                &["y"],
            ),
            "`what the loop begins with` is f32 and `what a round yields for it` is bool",
        ),
        (
            loop_model((body, with(sequence), &["more", "next"]), &["x"], &["y"]),
            "a sequence that a loop changes",
        ),
        (
            loop_model(
                (body, vec![node("next", "Relu", &["h"], &["next"])], &["on", "next"]),
                &["x"],
                &["y"],
            ),
            "a loop without an end",
        ),
        (
            loop_model(
                (body, with(vec![node("next", "Softplus", &["more"], &["next"])]), &["more", "next"]),
                &["x"],
                &["y"],
            ),
            "(Softplus",
        ),
    ];
    for (model, text) in cases {
        let found = error(&model);
        assert!(found.contains(text), "{text}: {found}");
    }
    // A number may have another rank from the first round on, and no other in each.
    let mut rounds = with(vec![node("up", "Unsqueeze", &["h", "axis"], &["next"])]);
    rounds[0].input = vec!["x".into()];
    let mut growing = loop_model((body, rounds, &["more", "next"]), &["zero"], &["y"]);
    let nodes = &mut growing.graph.as_mut().expect("a graph").node;
    nodes.iter_mut().filter(|node| node.op_type == "Loop").for_each(|node| node.input[1].clear());
    let found = error(&growing);
    assert!(found.contains("a loop that makes a tensor of rank 2 of one of rank 1"), "{found}");
    let fine = loop_model(
        (body, with(vec![node("next", "Neg", &["h"], &["next"])]), &["more", "next"]),
        &["x"],
        &["y"],
    );
    assert!(import(&fine).is_ok());
}

#[test]
fn ranks_of_unrolled_cells_are_checked() {
    let sizes = |sizes: &[i64]| sizes.iter().map(|&n| size(n)).collect::<Vec<_>>();
    let inputs = vec![
        value("x", &sizes(&[5, 3, 4])),
        value("w", &sizes(&[1, 3, 4])),
        value("r", &sizes(&[1, 3, 3])),
        value("b", &sizes(&[6])),
    ];
    let mut rnn = node("rnn", "RNN", &["x", "w", "r", "b"], &["y"]);
    // With parameters of its own, so that it is unrolled.
    let function = AttributeProto {
        name: "activations".into(),
        r#type: attribute_type::STRINGS,
        strings: vec!["Affine".into()],
        ..AttributeProto::default()
    };
    rnn.attribute = vec![int("hidden_size", 3), function];
    let message = error(&model(inputs, vec![rnn], &["y"]));
    assert_eq!(message, "node `rnn` (RNN, opset 18): `B` has rank 1, expected 2");
}

/// An `If` over `c` that yields `y`, and what follows.
fn if_model(then_nodes: Vec<NodeProto>, else_nodes: Vec<NodeProto>, rest: Vec<NodeProto>) -> ModelProto {
    let branch = |name: &str, nodes: Vec<NodeProto>| AttributeProto {
        name: name.into(),
        r#type: attribute_type::GRAPH,
        g: Some(Box::new(GraphProto {
            output: nodes.last().map(|last| value(&last.output[0], &[])).into_iter().collect(),
            node: nodes,
            ..GraphProto::default()
        })),
        ..AttributeProto::default()
    };
    let typed = |elem_type: i32, mut port: ValueInfoProto| {
        if let Some(TypeProto { value: Some(TypeValue::Tensor(tensor)), .. }) = &mut port.r#type {
            tensor.elem_type = elem_type;
        }
        port
    };
    let mut choice = node("choice", "If", &["c"], &["y"]);
    choice.attribute = vec![branch("then_branch", then_nodes), branch("else_branch", else_nodes)];
    let inputs = vec![
        typed(9, value("c", &[])),
        value("x", &[DimensionValue::Param("n".into()), size(4)]),
        typed(7, value("a", &[])),
    ];
    let nodes = std::iter::once(choice).chain(rest).collect();
    model(inputs, nodes, &["z"])
}

#[test]
fn branches_are_lost_to_shapes_only() {
    let identity = || vec![node("same", "Identity", &["x"], &["e"])];
    // Its axis is no constant.
    let sums = || vec![node("sums", "CumSum", &["x", "a"], &["t"])];
    let relu = || vec![node("after", "Relu", &["y"], &["z"])];
    for (a, b) in [(sums(), identity()), (identity(), sums())] {
        let found = error(&if_model(a, b, relu()));
        assert!(found.contains("node `sums`") && found.contains("must be a constant"), "{found}");
    }
    // The same after the `If`, for one of its ranks.
    let total = || {
        let mut total = node("total", "ReduceSum", &["x"], &["t"]);
        total.attribute = vec![int("keepdims", 0)];
        vec![total]
    };
    let flat = || vec![node("flat", "CumSum", &["y", "a"], &["z"])];
    for (a, b) in [(total(), identity()), (identity(), total())] {
        let found = error(&if_model(a, b, flat()));
        assert!(found.contains("node `flat`") && found.contains("must be a constant"), "{found}");
    }
    // What cannot be done with one of the ranks says which branch runs.
    let transpose = || {
        let mut turned = node("turned", "Transpose", &["y"], &["z"]);
        let ints = vec![1, 0];
        let attribute_type = attribute_type::INTS;
        turned.attribute = vec![AttributeProto {
            name: "perm".into(),
            r#type: attribute_type,
            ints,
            ..AttributeProto::default()
        }];
        vec![turned]
    };
    for (a, b) in [(total(), identity()), (identity(), total())] {
        let graph = import(&if_model(a, b, transpose())).unwrap();
        assert!(graph.root.nodes.iter().all(|&id| !matches!(graph.node(id).op, ir::Op::If(_))), "{graph}");
    }
    let found = error(&if_model(total(), total(), transpose()));
    assert!(found.contains("node `turned`") && found.contains("rank 0"), "{found}");
    // So does an attribute that the shapes contradict, but no attribute that nobody can read.
    let sums = |equation: &str| {
        let mut sums = node("sums", "Einsum", &["x"], &["t"]);
        sums.attribute = vec![AttributeProto {
            name: "equation".into(),
            r#type: attribute_type::STRING,
            s: equation.as_bytes().to_vec().into(),
            ..AttributeProto::default()
        }];
        vec![sums]
    };
    for (a, b) in [(sums("abc->ab"), identity()), (identity(), sums("abc->ab"))] {
        let graph = import(&if_model(a, b, relu())).unwrap();
        assert!(graph.root.nodes.iter().all(|&id| !matches!(graph.node(id).op, ir::Op::If(_))), "{graph}");
    }
    for (a, b) in [(sums("a1->a"), identity()), (identity(), sums("a1->a"))] {
        let found = error(&if_model(a, b, relu()));
        assert!(found.contains("node `sums`") && found.contains("`equation`"), "{found}");
    }
}
