//! Spellings of attention.

use super::*;
use crate::ir::{Arange, Builder, Cast, Expand, Fill, Permute, Reshape, Softmax, Trilu};
use crate::passes::testing::{checked, constant, graph, kinds};

fn bin(b: &mut Builder<'_>, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
    b.add(Op::Binary(op), &[x, y]).unwrap()
}

fn turn(b: &mut Builder<'_>, x: ValueId, axes: &[usize]) -> ValueId {
    b.add(Op::Permute(Permute { axes: axes.to_vec() }), &[x]).unwrap()
}

const INPUTS: [&str; 4] = ["f32[n, s, 2, 4]", "f32[n, s, 2, 4]", "f32[n, s, 2, 4]", "f32[n, 1, 1, s]"];
const SIZES: [(&str, usize); 2] = [("n", 2), ("s", 3)];

/// Scores with a mask: the root of the scale on both operands, `k` turned once. And `v`.
fn by_roots(b: &mut Builder<'_>, x: &[ValueId]) -> [ValueId; 2] {
    let root = constant(b, None, &[], &[(0.5f32).sqrt()]);
    let q = turn(b, x[0], &[0, 2, 1, 3]);
    let k = turn(b, x[1], &[0, 2, 3, 1]);
    let v = turn(b, x[2], &[0, 2, 1, 3]);
    let q = bin(b, BinaryOp::Mul, q, root);
    let k = bin(b, BinaryOp::Mul, k, root);
    let s = b.add(Op::MatMul, &[q, k]).unwrap();
    [bin(b, BinaryOp::Add, s, x[3]), v]
}

/// The dynamo exporter: a guard against NaN.
fn dynamo(b: &mut Builder<'_>, x: &[ValueId]) -> ValueId {
    let [s, v] = by_roots(b, x);
    let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[s]).unwrap();
    let nan = b.add(Op::Unary(UnaryOp::IsNan), &[p]).unwrap();
    let zero = constant(b, None, &[], &[0.0]);
    let p = b.add(Op::Where, &[nan, zero, p]).unwrap();
    b.add(Op::MatMul, &[p, v]).unwrap()
}

/// The TorchScript exporter: scores divided, `k` turned twice.
fn torchscript(b: &mut Builder<'_>, x: &[ValueId]) -> ValueId {
    let divisor = constant(b, None, &[], &[2.0]);
    let q = turn(b, x[0], &[0, 2, 1, 3]);
    let k = turn(b, x[1], &[0, 2, 1, 3]);
    let k = turn(b, k, &[0, 1, 3, 2]);
    let v = turn(b, x[2], &[0, 2, 1, 3]);
    let s = b.add(Op::MatMul, &[q, k]).unwrap();
    let s = bin(b, BinaryOp::Div, s, divisor);
    let s = bin(b, BinaryOp::Add, x[3], s);
    let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[s]).unwrap();
    b.add(Op::MatMul, &[p, v]).unwrap()
}

/// PyTorch's decompositions: rows are zeros where all scores are hidden.
fn decomposed(b: &mut Builder<'_>, x: &[ValueId]) -> ValueId {
    let [s, v] = by_roots(b, x);
    let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[s]).unwrap();
    let low = constant(b, None, &[], &[f32::NEG_INFINITY]);
    let seen = b.add(Op::Compare(CompareOp::NotEqual), &[s, low]).unwrap();
    let any = op::Reduce { op: ReduceOp::Any, axes: vec![3], keep_dims: true };
    let any = b.add(Op::Reduce(any), &[seen]).unwrap();
    let none = b.add(Op::Unary(UnaryOp::Not), &[any]).unwrap();
    let zero = constant(b, None, &[], &[0.0]);
    let p = b.add(Op::Where, &[none, zero, p]).unwrap();
    b.add(Op::MatMul, &[p, v]).unwrap()
}

#[test]
fn every_spelling_is_raised() {
    type Spelling = fn(&mut Builder<'_>, &[ValueId]) -> ValueId;
    let spellings: [(&str, Spelling); 3] =
        [("dynamo", dynamo), ("torchscript", torchscript), ("decomposed", decomposed)];
    for (name, spelling) in spellings {
        let g = checked(graph(&INPUTS, |b, x| vec![spelling(b, x)]), &SIZES);
        assert_eq!(kinds(&g), ["Permute", "Permute", "Permute", "Attention"], "{name}\n{g}");
        let Op::Attention(options) = &g.node(*g.root.nodes.last().unwrap()).op else { unreachable!() };
        assert_eq!(options.scale, None, "{name}");
        let zeros = (name != "torchscript").then_some(FullyMasked::Zeros);
        assert_eq!(options.fully_masked, zeros, "{name}");
    }
}

#[test]
fn capped_scores_are_an_option() {
    let g = graph(&["f32[n, 2, s, 4]", "f32[n, 2, s, 4]", "f32[n, 2, s, 4]", "f32[n, 1, s, s]"], |b, x| {
        let (scale, cap) = (constant(b, None, &[], &[0.25]), constant(b, None, &[], &[3.0]));
        let k = turn(b, x[1], &[0, 1, 3, 2]);
        let s = b.add(Op::MatMul, &[x[0], k]).unwrap();
        let s = bin(b, BinaryOp::Mul, s, scale);
        let s = bin(b, BinaryOp::Div, s, cap);
        let s = b.add(Op::Unary(UnaryOp::Tanh), &[s]).unwrap();
        let s = bin(b, BinaryOp::Mul, s, cap);
        let s = bin(b, BinaryOp::Add, s, x[3]);
        let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[s]).unwrap();
        vec![b.add(Op::MatMul, &[p, x[2]]).unwrap()]
    });
    let g = checked(g, &SIZES);
    let Op::Attention(options) = &g.node(*g.root.nodes.last().unwrap()).op else { panic!("{g}") };
    let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-6);
    assert!(near(options.softcap, 3.0) && near(options.scale, 0.25), "{options:?}");
}

/// `low` above the diagonal of `[1, 1, s, s]`, as `Trilu` makes it.
fn triangle(b: &mut Builder<'_>) -> ValueId {
    let s = Dim::symbol("s");
    let (value, dtype) = (kiln_types::Scalar::Float(1.0), DType::F32);
    let ones = b.add(Op::Fill(Fill { dims: vec![s.clone(), s.clone()], value, dtype }), &[]).unwrap();
    let lower = b.add(Op::Trilu(Trilu { upper: false, k: 0 }), &[ones]).unwrap();
    let (zero, low) = (constant(b, None, &[], &[0.0]), constant(b, None, &[], &[f32::MIN]));
    let hidden = b.add(Op::Compare(CompareOp::Equal), &[lower, zero]).unwrap();
    let mask = b.add(Op::Where, &[hidden, low, zero]).unwrap();
    b.add(Op::Reshape(Reshape { dims: vec![1.into(), 1.into(), s.clone(), s] }), &[mask]).unwrap()
}

#[test]
fn repeated_heads_and_causal_masks_are_options() {
    let inputs = ["f32[n, 4, s, 8]", "f32[n, 2, s, 8]"];
    let g = graph(&inputs, |b, x| {
        let (n, s) = (Dim::symbol("n"), Dim::symbol("s"));
        let dims = |heads: &[i64]| -> Vec<Dim> {
            let heads = heads.iter().copied().map(Dim::from);
            [n.clone()].into_iter().chain(heads).chain([s.clone(), 8.into()]).collect()
        };
        let k = b.add(Op::Reshape(Reshape { dims: dims(&[2, 1]) }), &[x[1]]).unwrap();
        let k = b.add(Op::Expand(Expand { dims: dims(&[2, 2]) }), &[k]).unwrap();
        let k = b.add(Op::Reshape(Reshape { dims: dims(&[4]) }), &[k]).unwrap();
        let turned = turn(b, k, &[0, 1, 3, 2]);
        let scores = b.add(Op::MatMul, &[x[0], turned]).unwrap();
        let mask = triangle(b);
        let scores = bin(b, BinaryOp::Add, scores, mask);
        let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[scores]).unwrap();
        vec![b.add(Op::MatMul, &[p, k]).unwrap()]
    });
    let g = checked(g, &SIZES);
    let node = crate::passes::testing::single(&g);
    let Op::Attention(options) = &node.op else { panic!("{g}") };
    assert!(options.is_causal && options.scale == Some(1.0), "{g}");
    assert_eq!(node.inputs, [Some(g.inputs[0]), Some(g.inputs[1]), Some(g.inputs[1])]);
}

#[test]
fn a_choice_becomes_a_bool_mask() {
    let inputs = ["f32[n, s, 4]", "f32[n, s, 4]", "f32[n, s, 4]"];
    let g = graph(&inputs, |b, x| {
        let k = turn(b, x[1], &[0, 2, 1]);
        let s = b.add(Op::MatMul, &[x[0], k]).unwrap();
        let position =
            b.add(Op::Arange(Arange { start: 0.into(), end: Dim::symbol("s"), step: 1 }), &[]).unwrap();
        let seq = Dim::symbol("s");
        let row =
            b.add(Op::Reshape(Reshape { dims: vec![1.into(), seq.clone(), 1.into()] }), &[position]).unwrap();
        let column =
            b.add(Op::Reshape(Reshape { dims: vec![1.into(), 1.into(), seq] }), &[position]).unwrap();
        // Not causal: each position sees the next one, too.
        let one = b.constant(kiln_types::TensorData::new(vec![1i64], [] as [usize; 0]));
        let row = bin(b, BinaryOp::Add, row, one);
        let causal = b.add(Op::Compare(CompareOp::LowerEqual), &[column, row]).unwrap();
        let low = constant(b, None, &[], &[f32::NEG_INFINITY]);
        let s = b.add(Op::Where, &[causal, s, low]).unwrap();
        let p = b.add(Op::Softmax(Softmax { axis: 2 }), &[s]).unwrap();
        vec![b.add(Op::MatMul, &[p, x[2]]).unwrap()]
    });
    let g = checked(g, &SIZES);
    let attention = g.root.nodes.iter().map(|&id| g.node(id)).find(|n| matches!(n.op, Op::Attention(_)));
    let attention = attention.unwrap_or_else(|| panic!("{g}"));
    assert_eq!(g.ty(attention.inputs[3].unwrap()).dtype, DType::Bool);
    let Op::Attention(options) = &attention.op else { unreachable!() };
    assert_eq!(options.scale, Some(1.0));
}

/// A triangle of halves is all zeros as integers, and one of 256 all zeros as bytes: nothing is kept.
#[test]
fn casts_may_empty_a_triangle() {
    for (number, between) in [(0.5, DType::I64), (256.0, DType::U8)] {
        let g = graph(&["f32[n, s, 4]", "f32[n, s, 4]"], |b, x| {
            let k = turn(b, x[1], &[0, 2, 1]);
            let scores = b.add(Op::MatMul, &[x[0], k]).unwrap();
            let dims = vec![1.into(), Dim::symbol("s"), Dim::symbol("s")];
            let value = kiln_types::Scalar::Float(number);
            let all = b.add(Op::Fill(Fill { dims, value, dtype: DType::F32 }), &[]).unwrap();
            let wide = b.add(Op::Cast(Cast { to: DType::I32 }), &[all]).unwrap();
            let all = if between == DType::U8 { wide } else { all };
            let lower = b.add(Op::Trilu(Trilu { upper: false, k: 0 }), &[all]).unwrap();
            let lower = b.add(Op::Cast(Cast { to: between }), &[lower]).unwrap();
            let keeps = b.add(Op::Cast(Cast { to: DType::Bool }), &[lower]).unwrap();
            let low = constant(b, None, &[], &[-1e9]);
            let s = b.add(Op::Where, &[keeps, scores, low]).unwrap();
            let p = b.add(Op::Softmax(Softmax { axis: 2 }), &[s]).unwrap();
            vec![b.add(Op::MatMul, &[p, x[1]]).unwrap()]
        });
        let g = checked(g, &SIZES);
        let is_causal = |op: &Op| matches!(op, Op::Attention(options) if options.is_causal);
        assert!(g.root.nodes.iter().all(|&id| !is_causal(&g.node(id).op)), "{number}\n{g}");
    }
}

/// What a row yields that a choice masks throughout: equal weights, NaN, or zeros behind a guard.
#[test]
fn rows_without_keys_yield_what_they_did() {
    let inputs = ["f32[n, 2, s, 4]", "f32[n, 2, s, 4]", "bool[n, 1, 1, s]"];
    let cases = [
        (f32::MIN, false, DType::Bool, Some(FullyMasked::Mean)),
        (-1e9, true, DType::Bool, Some(FullyMasked::Mean)),
        (f32::NEG_INFINITY, true, DType::Bool, None),
        (f32::NEG_INFINITY, false, DType::F32, None),
    ];
    for (low, guarded, dtype, fully_masked) in cases {
        let g = graph(&inputs, |b, x| {
            let k = turn(b, x[1], &[0, 1, 3, 2]);
            let s = b.add(Op::MatMul, &[x[0], k]).unwrap();
            // All keys of the first row are hidden: no key is its own opposite.
            let shown = b.add(Op::Unary(UnaryOp::Not), &[x[2]]).unwrap();
            let never = bin(b, BinaryOp::And, x[2], shown);
            let low = constant(b, None, &[], &[low]);
            let s = b.add(Op::Where, &[never, s, low]).unwrap();
            let mut p = b.add(Op::Softmax(Softmax { axis: 3 }), &[s]).unwrap();
            if guarded {
                let nan = b.add(Op::Unary(UnaryOp::IsNan), &[p]).unwrap();
                let zero = constant(b, None, &[], &[0.0]);
                p = b.add(Op::Where, &[nan, zero, p]).unwrap();
            }
            vec![b.add(Op::MatMul, &[p, x[1]]).unwrap()]
        });
        let g = checked(g, &SIZES);
        let attention = g.root.nodes.iter().map(|&id| g.node(id)).find(|n| matches!(n.op, Op::Attention(_)));
        let attention = attention.unwrap_or_else(|| panic!("{g}"));
        let Op::Attention(options) = &attention.op else { unreachable!() };
        let mask = g.ty(attention.inputs[3].unwrap()).dtype;
        assert_eq!((mask, options.fully_masked), (dtype, fully_masked), "{low} {guarded}\n{g}");
    }
}

/// Beside great scores a number that is not low enough hides nothing: what is chosen stays a choice, and what is added stays a sum.
#[test]
fn numbers_like_scores_hide_nothing() {
    for (low, hides) in [(-1e4, false), (-1e9, true), (f32::MIN, true), (f32::NEG_INFINITY, true)] {
        for chosen in [false, true] {
            let inputs = ["f32[1, 2, 3, 4]", "f32[1, 2, 3, 4]"];
            let g = graph(&inputs, |b, x| {
                let k = turn(b, x[1], &[0, 1, 3, 2]);
                let s = b.add(Op::MatMul, &[x[0], k]).unwrap();
                let great = constant(b, None, &[], &[1e6]);
                let s = bin(b, BinaryOp::Mul, s, great);
                let triangle = |a: f32, z: f32| [a, z, z, a, a, z, a, a, a];
                let s = if chosen {
                    let keeps = constant(b, None, &[1, 1, 3, 3], &triangle(1.0, 0.0));
                    let keeps = b.add(Op::Cast(Cast { to: DType::Bool }), &[keeps]).unwrap();
                    let low = constant(b, None, &[], &[low]);
                    b.add(Op::Where, &[keeps, s, low]).unwrap()
                } else {
                    let mask = constant(b, None, &[1, 1, 3, 3], &triangle(0.0, low));
                    bin(b, BinaryOp::Add, s, mask)
                };
                let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[s]).unwrap();
                vec![b.add(Op::MatMul, &[p, x[1]]).unwrap()]
            });
            let g = checked(g, &[]);
            let is_causal = |op: &Op| matches!(op, Op::Attention(options) if options.is_causal);
            let found = g.root.nodes.iter().any(|&id| is_causal(&g.node(id).op));
            assert_eq!(found, hides, "{low} {chosen}\n{g}");
        }
    }
}

/// Between several masks, a number that leaves differences of scores is no mask to be added.
#[test]
fn low_numbers_among_other_masks_stay() {
    for (low, raised) in [(f32::MIN, true), (-1e4, false)] {
        let inputs = ["f32[n, 2, s, 4]", "f32[n, 2, s, 4]", "bool[n, 1, 1, s]", "f32[n, 1, s, s]"];
        let g = graph(&inputs, |b, x| {
            let k = turn(b, x[1], &[0, 1, 3, 2]);
            let s = b.add(Op::MatMul, &[x[0], k]).unwrap();
            let low = constant(b, None, &[], &[low]);
            let s = b.add(Op::Where, &[x[2], s, low]).unwrap();
            let s = bin(b, BinaryOp::Add, s, x[3]);
            let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[s]).unwrap();
            vec![b.add(Op::MatMul, &[p, x[1]]).unwrap()]
        });
        let g = checked(g, &SIZES);
        assert_eq!(kinds(&g).contains(&"Attention".to_owned()), raised, "{g}");
    }
}

/// Sums of `x[0]` with itself, or of a chain: no attention, found out in a moment.
#[test]
fn sums_of_sums_are_no_masks() {
    const LEVELS: usize = 64;
    const CHAIN: usize = 4000;
    let under_softmax = |b: &mut Builder<'_>, s: ValueId, v: ValueId| {
        let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[s]).unwrap();
        vec![b.add(Op::MatMul, &[p, v]).unwrap()]
    };
    let inputs = ["f32[n, 2, 3, 3]", "f32[n, 2, 3, 4]"];
    let doubled = graph(&inputs, |b, x| {
        let s = (0..LEVELS).fold(x[0], |s, _| bin(b, BinaryOp::Add, s, s));
        under_softmax(b, s, x[1])
    });
    let chosen = graph(&["f32[n, 2, 3, 3]", "f32[n, 2, 3, 4]", "bool[n, 2, 3, 3]"], |b, x| {
        let low = constant(b, None, &[], &[f32::MIN]);
        let s = (0..LEVELS).fold(x[0], |s, _| {
            let a = b.add(Op::Where, &[x[2], s, low]).unwrap();
            bin(b, BinaryOp::Add, a, s)
        });
        under_softmax(b, s, x[1])
    });
    let chain = graph(&inputs, |b, x| {
        let s = (0..CHAIN).fold(x[0], |s, _| bin(b, BinaryOp::Add, s, x[0]));
        under_softmax(b, s, x[1])
    });
    let products = graph(&inputs, |b, x| {
        let product = b.add(Op::MatMul, &[x[0], x[0]]).unwrap();
        let s = (0..CHAIN).fold(product, |s, _| bin(b, BinaryOp::Add, s, product));
        under_softmax(b, s, x[1])
    });
    for g in [doubled, chosen, chain, products] {
        let g = crate::passes::testing::optimized(g);
        assert!(!kinds(&g).iter().any(|kind| kind == "Attention"));
    }
}

#[test]
fn positions_whose_difference_is_compared_are_causal() {
    let g = graph(&["f32[n, 2, s, 4]", "f32[n, 2, s, 4]"], |b, x| {
        let s = Dim::symbol("s");
        let positions = b.add(Op::Arange(Arange { start: 0.into(), end: s.clone(), step: 1 }), &[]).unwrap();
        let row = b.add(Op::Reshape(Reshape { dims: vec![1.into(), s.clone()] }), &[positions]).unwrap();
        let column = b.add(Op::Reshape(Reshape { dims: vec![s, 1.into()] }), &[positions]).unwrap();
        let ahead = bin(b, BinaryOp::Sub, row, column);
        let zero = b.constant(kiln_types::TensorData::new(vec![0i64], [0; 0]));
        let seen = b.add(Op::Compare(CompareOp::LowerEqual), &[ahead, zero]).unwrap();
        let (zero, low) = (constant(b, None, &[], &[0.0]), constant(b, None, &[], &[f32::NEG_INFINITY]));
        let mask = b.add(Op::Where, &[seen, zero, low]).unwrap();
        let dims = vec![1.into(), 1.into(), Dim::symbol("s"), Dim::symbol("s")];
        let mask = b.add(Op::Reshape(Reshape { dims }), &[mask]).unwrap();
        let k = turn(b, x[1], &[0, 1, 3, 2]);
        let scores = b.add(Op::MatMul, &[x[0], k]).unwrap();
        let scores = bin(b, BinaryOp::Add, scores, mask);
        let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[scores]).unwrap();
        vec![b.add(Op::MatMul, &[p, x[1]]).unwrap()]
    });
    let g = checked(g, &SIZES);
    assert_eq!(kinds(&g), ["Attention"], "{g}");
    let Op::Attention(options) = &g.node(g.root.nodes[0]).op else { unreachable!() };
    assert!(options.is_causal, "{g}");
}

/// One head of keys and values for all of the queries: a product repeats it by itself.
#[test]
fn heads_may_share_one_head_of_keys() {
    let g = graph(&["f32[n, 4, s, 8]", "f32[n, 1, s, 8]", "f32[n, 1, s, 8]"], |b, x| {
        let turned = turn(b, x[1], &[0, 1, 3, 2]);
        let scores = b.add(Op::MatMul, &[x[0], turned]).unwrap();
        let p = b.add(Op::Softmax(Softmax { axis: 3 }), &[scores]).unwrap();
        vec![b.add(Op::MatMul, &[p, x[2]]).unwrap()]
    });
    let g = checked(g, &SIZES);
    assert_eq!(kinds(&g), ["Attention"], "{g}");
}

/// What a program has as one operation is told like what is found in products.
#[test]
fn attention_of_a_program_takes_what_its_operands_tell() {
    let g = graph(&["f32[n, 4, s, 16]", "f32[n, 2, s, 16]", "f32[n, 1, s, 16]"], |b, x| {
        let dims = |heads: &[i64]| -> Vec<Dim> {
            let heads = heads.iter().copied().map(Dim::from);
            [Dim::symbol("n")].into_iter().chain(heads).chain([Dim::symbol("s"), 16.into()]).collect()
        };
        let k = b.add(Op::Reshape(Reshape { dims: dims(&[2, 1]) }), &[x[1]]).unwrap();
        let k = b.add(Op::Expand(Expand { dims: dims(&[2, 2]) }), &[k]).unwrap();
        let k = b.add(Op::Reshape(Reshape { dims: dims(&[4]) }), &[k]).unwrap();
        let mask = triangle(b);
        let options =
            AttentionOptions { scale: Some(0.25), is_causal: false, softcap: None, fully_masked: None };
        let repeated = b.add(Op::Attention(options), &[x[0], k, k, mask]).unwrap();
        let k = b.add(Op::Expand(Expand { dims: dims(&[4]) }), &[x[2]]).unwrap();
        let shared = b.add(Op::Attention(options), &[x[0], k, k]).unwrap();
        vec![repeated, shared]
    });
    let g = checked(g, &SIZES);
    assert_eq!(kinds(&g), ["Attention", "Attention"], "{g}");
    for (&id, (key, causal)) in g.root.nodes.iter().zip([(1, true), (2, false)]) {
        let (node, key) = (g.node(id), g.inputs[key]);
        let Op::Attention(options) = &node.op else { unreachable!() };
        assert_eq!((options.scale, options.is_causal), (None, causal), "{g}");
        assert_eq!(node.inputs.iter().flatten().copied().collect::<Vec<_>>(), [g.inputs[0], key, key], "{g}");
    }
}
