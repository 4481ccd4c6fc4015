//! Rounds that are written out: which become loops, and which stay as they are.

use kiln_codegen::{Options, generate};
use kiln_importer::ir::{Builder, Concat, Graph, Op, Origin, ScopeEntry, TensorType, ValueId};
use kiln_types::{BinaryOp, DType, TensorData, UnaryOp};

/// The `forward` of a graph over `x` and `y` in one module.
fn forward(build: impl FnOnce(&mut Builder<'_>, ValueId, ValueId) -> Vec<ValueId>) -> String {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let [x, y] = ["x", "y"].map(|name| builder.input(name, TensorType::new(DType::F32, [4usize, 4])));
    builder.origin = Origin {
        scope: vec![ScopeEntry { path: String::new(), class: "Net".to_owned() }],
        ..Origin::default()
    };
    let outputs = build(&mut builder, x, y);
    graph.root.nodes = builder.nodes;
    graph.output_names = (0..outputs.len()).map(|i| format!("y{i}")).collect();
    graph.root.outputs = outputs;
    let source = generate(&graph, &Options::default()).unwrap().source;
    let (_, body) = source.split_once("input::check_inputs").unwrap();
    body.to_owned()
}

fn weight(b: &mut Builder<'_>, name: &str) -> ValueId {
    b.graph.add_constant(Some(name.to_owned()), TensorData::new(vec![0.5f32; 16], vec![4, 4]))
}

/// `sin(x @ weight) + y`
fn round(b: &mut Builder<'_>, x: ValueId, weight: ValueId, y: ValueId) -> ValueId {
    let product = b.add(Op::MatMul, &[x, weight]).unwrap();
    let sine = b.add(Op::Unary(UnaryOp::Sin), &[product]).unwrap();
    b.add(Op::Binary(BinaryOp::Add), &[sine, y]).unwrap()
}

#[test]
fn what_rounds_carry_is_assigned() {
    let body = forward(|b, x, y| {
        let weight = weight(b, "weight");
        vec![(0..8).fold(x, |x, _| round(b, x, weight, y))]
    });
    assert!(body.contains("for _ in 0..8 {") && body.contains("x = "), "{body}");
    assert_eq!(body.matches(".sin()").count(), 1, "{body}");
}

#[test]
fn what_rounds_leave_is_a_list() {
    let body = forward(|b, x, y| {
        let weight = weight(b, "weight");
        let mut left = vec![x];
        for i in 0..8 {
            left.push(round(b, left[i], weight, y));
        }
        left.push(y);
        vec![b.add(Op::Concat(Concat { axis: 0 }), &left).unwrap()]
    });
    assert!(body.contains("let mut outputs = vec![x.clone()];"), "{body}");
    assert!(body.contains("for _ in 0..8 {") && body.contains("outputs.push(x.clone());"), "{body}");
    assert!(body.contains("outputs.push(y);") && body.contains("Tensor::cat(outputs, 0)"), "{body}");
}

#[test]
fn rounds_in_rounds_are_loops_in_loops() {
    let body = forward(|b, mut x, mut y| {
        let weight = weight(b, "weight");
        for _ in 0..5 {
            x = (0..6).fold(x, |x, _| round(b, x, weight, y));
            let difference = b.add(Op::Binary(BinaryOp::Sub), &[x, y]).unwrap();
            y = b.add(Op::Unary(UnaryOp::Cos), &[difference]).unwrap();
        }
        vec![x, y]
    });
    assert!(body.contains("for _ in 0..5 {") && body.contains("for _ in 0..6 {"), "{body}");
    assert_eq!(body.matches(".sin()").count(), 1, "{body}");
}

/// The last round does more with what it carries.
#[test]
fn a_statement_between_rounds_goes_behind_them() {
    let body = forward(|b, mut x, mut y| {
        let weight = weight(b, "weight");
        let mut more = x;
        for i in 0..8 {
            x = b.add(Op::MatMul, &[x, weight]).unwrap();
            if i == 7 {
                more = b.add(Op::Unary(UnaryOp::Exp), &[x]).unwrap();
            }
            let sine = b.add(Op::Unary(UnaryOp::Sin), &[x]).unwrap();
            y = b.add(Op::Binary(BinaryOp::Add), &[sine, y]).unwrap();
        }
        vec![x, y, more]
    });
    assert!(body.contains("for _ in 0..8 {"), "{body}");
    assert_eq!(body.matches(".sin()").count(), 1, "{body}");
}

#[test]
fn what_would_not_read_better_stays() {
    let loops = |body: String| body.matches("for _ in").count();
    // Few rounds.
    assert_eq!(
        loops(forward(|b, x, y| {
            let weight = weight(b, "weight");
            vec![(0..3).fold(x, |x, _| round(b, x, weight, y))]
        })),
        0
    );
    // Weights of their own.
    assert_eq!(
        loops(forward(|b, x, y| {
            vec![(0..8).fold(x, |x, i| {
                let weight = weight(b, &format!("weight_{i}"));
                round(b, x, weight, y)
            })]
        })),
        0
    );
    // All that rounds make is a result.
    assert_eq!(
        loops(forward(|b, mut x, y| {
            let weight = weight(b, "weight");
            (0..8)
                .map(|_| {
                    x = round(b, x, weight, y);
                    x
                })
                .collect()
        })),
        0
    );
}

/// Two of them carry two values.
#[test]
fn rounds_that_read_what_two_before_made_go_in_pairs() {
    let body = forward(|b, x, y| {
        let weight = weight(b, "weight");
        let mut last = [x, y];
        for _ in 0..8 {
            last = [last[1], round(b, last[1], weight, last[0])];
        }
        last.to_vec()
    });
    assert!(body.contains("for _ in 0..4 {"), "{body}");
}
