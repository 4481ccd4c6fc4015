//! What is computed at build time, and what is not.

use crate::ir::{Concat, Cumulative, LogSoftmax, Op, Pad, Reduce, RoundTo, Softmax, Take, Trilu};
use kiln_types::{CumulativeOp, DType, Minifloat, PadMode, Scalar, TensorData, UnaryOp};

fn empty(shape: &[usize]) -> TensorData {
    TensorData { bytes: kiln_types::Bytes::default(), shape: shape.to_vec(), dtype: DType::F32 }
}

#[test]
fn nothing_walks_along_a_long_axis_without_elements() {
    const LONG: usize = 1 << 40;
    let (rows, columns) = (empty(&[LONG, 0]), empty(&[0, LONG]));
    let indices = TensorData { dtype: DType::I64, ..rows.clone() };
    let running =
        |axis| Op::Cumulative(Cumulative { op: CumulativeOp::Sum, axis, exclusive: false, reverse: false });
    let edges =
        Op::Pad(Pad { padding: vec![(1.into(), 0.into()); 2], mode: PadMode::Edge, value: Scalar::Int(0) });
    for (op, operands) in [
        (Op::Concat(Concat { axis: 1 }), vec![&rows, &rows]),
        (running(0), vec![&rows]),
        (running(1), vec![&rows]),
        (running(0), vec![&columns]),
        (Op::Softmax(Softmax { axis: 1 }), vec![&rows]),
        (Op::LogSoftmax(LogSoftmax { axis: 0 }), vec![&rows]),
        (Op::Take(Take { axis: 0, wrapped: true }), vec![&columns, &indices]),
        (Op::Take(Take { axis: 1, wrapped: true }), vec![&rows, &indices]),
        (Op::MatMul, vec![&rows, &columns]),
        (Op::MatMul, vec![&columns, &rows]),
        (Op::Reduce(Reduce { op: kiln_types::ReduceOp::Sum, axes: vec![1], keep_dims: false }), vec![&rows]),
        (edges, vec![&rows]),
        (Op::Trilu(Trilu { upper: true, k: 0 }), vec![&rows]),
        (Op::Unary(UnaryOp::Neg), vec![&rows]),
    ] {
        let operands: Vec<Option<&TensorData>> = operands.into_iter().map(Some).collect();
        assert_eq!(op.evaluate(&operands), None, "{op:?}");
    }
}

/// And not -0, of which the reciprocal has another sign.
#[test]
fn the_sum_of_nothing_is_zero() {
    let sum = Op::Reduce(Reduce { op: kiln_types::ReduceOp::Sum, axes: vec![1], keep_dims: false });
    let sums = sum.evaluate(&[Some(&empty(&[2, 0]))]).expect("sums").remove(0);
    let sums: Vec<f32> = sums.to_vec().expect("floats");
    assert_eq!(sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn floats_of_few_bits_are_those_of_their_format() {
    let x = TensorData::new(vec![1.06f32, -500.0, f32::NAN], [3]);
    let rounded = |format, saturate| {
        let results = Op::RoundTo(RoundTo { format, saturate }).evaluate(&[Some(&x)]).unwrap();
        results[0].iter::<f32>().collect::<Vec<_>>()
    };
    assert_eq!(rounded(Minifloat::E4M3Fn, true)[..2], [1.0, -448.0]);
    assert!(rounded(Minifloat::E4M3Fn, false)[1..].iter().all(|x| x.is_nan()));
    assert_eq!(rounded(Minifloat::E2M1Fn, false), [1.0, -6.0, 0.0]);
}

#[test]
fn edges_of_nothing_are_not_repeated() {
    let padding = vec![(2.into(), 0.into())];
    let op = Op::Pad(Pad { padding, mode: PadMode::Edge, value: Scalar::Int(0) });
    assert_eq!(op.evaluate(&[Some(&empty(&[0]))]), None);
}

#[test]
fn products_cost_their_terms() {
    let (a, b) = (empty(&[3, 5]), empty(&[5, 7]));
    assert_eq!(Op::MatMul.folding().cost(&[Some(&a), Some(&b)], 21), Some(3 * 5 * 7 + 3 * 5 + 5 * 7));
    let take = Op::Take(Take { axis: 0, wrapped: false });
    assert_eq!(take.folding().cost(&[Some(&a), Some(&empty(&[1]))], 5), Some(6));
}
