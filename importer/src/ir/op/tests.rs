//! Types and host contents of core operations, as tables.

mod evaluation;

use crate::ir::{
    AxisRange, Builder, Cast, Concat, Conv, Dim, Graph, Linear, Op, Pad, Permute, Pool, Reduce, Repeat,
    Reshape, RuleResult, Slice, Take, TensorType, ValueId,
};
use kiln_types::{
    BinaryOp, CompareOp, ConvOptions, DType, PoolOp, PoolOptions, ReduceOp, RnnDirection, RnnKind,
    RnnOptions, TensorData, UnaryOp,
};

/// Inputs named by type text: `f32[batch, 3]`.
fn ty(text: &str) -> TensorType {
    let (dtype, dims) = text.trim_end_matches(']').split_once('[').unwrap();
    let dtype = DType::ALL.into_iter().find(|d| d.name() == dtype).unwrap();
    let dims = dims.split(',').map(str::trim).filter(|d| !d.is_empty());
    TensorType::new(dtype, dims.map(|d| d.parse::<i64>().map_or_else(|_| Dim::symbol(d), Dim::constant)))
}

fn infer(op: Op, inputs: &[&str]) -> RuleResult<String> {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let inputs: Vec<ValueId> =
        inputs.iter().enumerate().map(|(i, t)| builder.input(&format!("i{i}"), ty(t))).collect();
    let outputs = builder.add_all(op, inputs.into_iter().map(Some).collect())?;
    Ok(outputs.iter().map(|&v| graph.ty(v).to_string()).collect::<Vec<_>>().join(" "))
}

fn sizes(text: &str) -> Vec<Dim> {
    ty(&format!("f32[{text}]")).dims
}

fn conv(stride: usize, pad: usize, groups: usize) -> Op {
    let options = ConvOptions {
        stride: [stride; 2].into(),
        padding: [(pad, pad); 2].into(),
        dilation: [1; 2].into(),
        groups,
    };
    Op::Conv(Conv { options, activation: None })
}

fn pool(kernel: usize, stride: usize, pad: usize, ceil_mode: bool) -> Op {
    let options = PoolOptions {
        kernel: [kernel].into(),
        stride: [stride].into(),
        padding: [(pad, pad)].into(),
        dilation: [1].into(),
        ceil_mode,
    };
    Op::Pool(Pool { op: PoolOp::Max, options })
}

fn slice(start: i64, end: i64, step: i64) -> Op {
    Op::Slice(Slice { ranges: vec![AxisRange { start: start.into(), end: end.into(), step }] })
}

#[test]
fn types_follow_the_operands() {
    let add = || Op::Binary(BinaryOp::Add);
    let cases: Vec<(Op, &[&str], &str)> = vec![
        (add(), &["f32[n, 1, 4]", "f32[1, 3, 1]"], "f32[n, 3, 4]"),
        (add(), &["f32[n, 3]", "f32[n, 3]"], "f32[n, 3]"),
        (add(), &["f32[n]", "f32[m]"], "f32[dim]"),
        (add(), &["f32[n]", "f32[3]"], "f32[3]"),
        (Op::Compare(CompareOp::Lower), &["i64[2]", "i64[1]"], "bool[2]"),
        (Op::Where, &["bool[2, 1]", "f32[1, 3]", "f32[1, 1]"], "f32[2, 3]"),
        (Op::Unary(UnaryOp::IsNan), &["f16[2]"], "bool[2]"),
        (conv(2, 3, 1), &["f32[n, 3, 224, h]", "f32[64, 3, 7, 7]"], "f32[n, 64, 112, (h - 1) / 2 + 1]"),
        (conv(1, 1, 8), &["f32[1, 8, 5, 5]", "f32[8, 1, 3, 3]"], "f32[1, 8, 5, 5]"),
        (pool(3, 2, 1, false), &["f32[1, 2, 8]"], "f32[1, 2, 4]"),
        (pool(2, 2, 0, true), &["f32[1, 2, 7]"], "f32[1, 2, 4]"),
        // The last window would start in the end padding, so it is left out.
        (pool(2, 2, 1, true), &["f32[1, 2, 5]"], "f32[1, 2, 3]"),
        (Op::MatMul, &["f32[b, 1, 2, 3]", "f32[1, h, 3, 5]"], "f32[b, h, 2, 5]"),
        (Op::Linear(Linear { activation: None }), &["f32[n, s, 4]", "f32[4, 6]", "f32[6]"], "f32[n, s, 6]"),
        (Op::Take(Take { axis: 1, wrapped: true }), &["f32[2, 9, 4]", "i64[n, 3]"], "f32[2, n, 3, 4]"),
        (Op::Reshape(Reshape { dims: sizes("n, 12") }), &["f32[n, 3, 4]"], "f32[n, 12]"),
        (Op::Concat(Concat { axis: 0 }), &["f32[n, 3]", "f32[2, 3]"], "f32[n + 2, 3]"),
        (slice(1, 8, -3), &["f32[9]"], "f32[3]"),
        (
            Op::Reduce(Reduce { op: ReduceOp::Mean, axes: vec![1, 2], keep_dims: false }),
            &["f32[n, 3, 4]"],
            "f32[n]",
        ),
        (
            Op::Rnn(RnnOptions {
                kind: RnnKind::Lstm { input_forget: false },
                direction: RnnDirection::Bidirectional,
                hidden_size: 5,
                activations: Vec::new().into(),
                clip: None,
                state_clip: None,
                batch_first: false,
            }),
            &["f32[s, 1, 3]", "f32[2, 20, 3]", "f32[2, 20, 5]"],
            "f32[s, 2, 1, 5] f32[2, 1, 5] f32[2, 1, 5]",
        ),
    ];
    for (op, inputs, expected) in cases {
        assert_eq!(infer(op.clone(), inputs).as_deref(), Ok(expected), "{op:?} {inputs:?}");
    }
}

#[test]
fn broken_rules_are_named() {
    let cases: Vec<(Op, &[&str], &str)> = vec![
        (Op::Binary(BinaryOp::Add), &["f32[2]", "f32[3]"], "broadcast: f32[2] and f32[3] do not fit"),
        (
            Op::Binary(BinaryOp::Add),
            &["f32[2]", "i64[2]"],
            "`a` is f32 and `b` is i64; both must have one dtype",
        ),
        (
            Op::MatMul,
            &["f32[2, 3]", "f32[4, 5]"],
            "inner dims of a product: f32[2, 3] and f32[4, 5] do not fit",
        ),
        (
            conv(1, 0, 2),
            &["f32[1, 4, 5, 5]", "f32[2, 4, 3, 3]"],
            "channels of a convolution: f32[1, 4, 5, 5] and f32[2, 4, 3, 3] do not fit",
        ),
        (
            conv(1, 0, 1),
            &["f32[1, 4, 2, 2]", "f32[2, 4, 5, 5]"],
            "`kernel_shape` is larger than the padded input f32[1, 4, 2, 2]",
        ),
        (conv(0, 0, 1), &["f32[1, 4, 2, 2]", "f32[2, 4, 1, 1]"], "`strides` (or dilations) are 0"),
        (
            Op::Permute(Permute { axes: vec![0, 0] }),
            &["f32[2, 3]"],
            "`axes` [0, 0] are not a permutation of 2 axes",
        ),
        (slice(0, 10, 1), &["f32[9]"], "`ranges` 0..10 by 1 are outside 0..9"),
        (
            Op::Repeat(Repeat { times: sizes("1099511627776") }),
            &["f32[3]"],
            "a result f32[3298534883328] is too large",
        ),
        (
            Op::Reshape(Reshape { dims: sizes("5") }),
            &["f32[2, 3]"],
            "numbers of elements in a reshape: f32[2, 3] and f32[5] do not fit",
        ),
    ];
    for (op, inputs, expected) in cases {
        let error = infer(op.clone(), inputs).map_err(|error| error.to_string());
        assert_eq!(error.as_ref().map_err(String::as_str), Err(expected), "{op:?} {inputs:?}");
    }
}

#[test]
fn shape_arithmetic_needs_no_tensors() {
    let mut graph = Graph::default();
    let mut b = Builder::new(&mut graph);
    b.input("x", ty("f32[batch, seq, 768]"));
    let text = |b: &Builder<'_>, v: ValueId| format!("{:?}", b.graph.value(v).host);
    let shape = b.host_tensor(sizes("batch, seq, 768"), vec![3]).unwrap();
    let ints = |b: &mut Builder<'_>, v: &[i64]| b.constant(TensorData::new(v.to_vec(), [v.len()]));

    // view(batch * seq, -1 / 12): gather, multiply, divide, concatenate.
    let (zero, one, two) = (ints(&mut b, &[0]), ints(&mut b, &[1]), ints(&mut b, &[2]));
    let take =
        |b: &mut Builder<'_>, i| b.add(Op::Take(Take { axis: 0, wrapped: true }), &[shape, i]).unwrap();
    let (batch, seq, size) = (take(&mut b, zero), take(&mut b, one), take(&mut b, two));
    let tokens = b.add(Op::Binary(BinaryOp::Mul), &[batch, seq]).unwrap();
    let twelve = b.constant(TensorData::new(vec![12i64], [] as [usize; 0]));
    let head = b.add(Op::Binary(BinaryOp::Div), &[size, twelve]).unwrap();
    let dims = b.add(Op::Concat(Concat { axis: 0 }), &[tokens, twelve, head]);
    assert!(dims.is_err(), "a scalar cannot be concatenated");
    let dims = b.add(Op::Concat(Concat { axis: 0 }), &[tokens, head]).unwrap();
    assert_eq!(text(&b, dims), "Some([batch * seq, 64])");

    // (seq - 1) / 2 truncates as it floors, since a size is at least 1.
    let less = b.add(Op::Binary(BinaryOp::Sub), &[seq, one]).unwrap();
    let half = b.add(Op::Binary(BinaryOp::Div), &[less, two]).unwrap();
    assert_eq!(text(&b, half), "Some([(seq - 1) / 2])");

    // where(shape == -1, 1, shape), PyTorch's expand.
    let minus = ints(&mut b, &[-1]);
    let free = b.add(Op::Compare(CompareOp::Equal), &[shape, minus]).unwrap();
    let kept = b.add(Op::Where, &[free, one, shape]).unwrap();
    assert_eq!(text(&b, kept), "Some([batch, seq, 768])");

    let last = b.add(slice(2, 3, 1), &[shape]).unwrap();
    assert_eq!(text(&b, last), "Some([768])");
    let count =
        b.add(Op::Reduce(Reduce { op: ReduceOp::Prod, axes: vec![0], keep_dims: false }), &[shape]).unwrap();
    assert_eq!(text(&b, count), "Some([768 * batch * seq])");
    let back = b.add(slice(0, 3, -1), &[shape]).unwrap();
    assert_eq!(text(&b, back), "Some([768, seq, batch])");
    let padded = b
        .add(
            Op::Pad(Pad {
                padding: vec![(Dim::constant(1), Dim::constant(0))],
                mode: kiln_types::PadMode::Constant,
                value: kiln_types::Scalar::Int(7),
            }),
            &[size],
        )
        .unwrap();
    assert_eq!(text(&b, padded), "Some([7, 768])");
    let float = b.add(Op::Cast(Cast { to: DType::F32 }), &[shape]).unwrap();
    assert_eq!(text(&b, float), "None");
}

/// As a bound, what has no end would be that of its axis.
#[test]
fn no_operation_is_given_arithmetic_without_end() {
    let n = Dim::symbol("n");
    let mut bound = n.clone();
    for k in 0..200 {
        bound = bound.maximum(&(&n * &Dim::constant(k)).minimum(&Dim::symbol(format!("m{k}"))));
    }
    let range = AxisRange { start: 0.into(), end: bound.minimum(&n), step: 1 };
    for op in [Op::Slice(Slice { ranges: vec![range] }), Op::Reshape(Reshape { dims: vec![bound] })] {
        let error = infer(op, &["f32[n]"]).unwrap_err().to_string();
        assert_eq!(error, "the arithmetic on sizes that this needs is too large");
    }
}
