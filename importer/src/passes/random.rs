//! Random small graphs compute the same before and after the passes, and their text reads back after each.

use super::testing::{assert_close, constant, graph, sample};
use super::{Options, optimize_observed};
use crate::interpreter;
use crate::ir::text::tests::assert_reads_back;
use crate::ir::{
    AxisRange, BatchNorm, Builder, Concat, Conv, Dim, Expand, Fill, Op, Pad, Permute, Reduce, Reshape, Slice,
    ValueId,
};
use kiln_types::{
    Activation, BinaryOp, CompareOp, ConvOptions, DType, PadMode, ReduceOp, Scalar, TensorData, UnaryOp,
};

use std::collections::BTreeMap;

/// A generator of numbers; the same seed gives the same graph.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }

    fn number(&mut self) -> f32 {
        self.pick(&[0.0, 1.0, 0.5, 2.0, 3.0, -1.0, 0.25])
    }

    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.roll(2000) as f32 / 1000.0 - 1.0).collect()
    }
}

fn sizes(b: &Builder<'_>, id: ValueId) -> Vec<usize> {
    let known = |dim: &Dim| dim.substitute(&|_| Some(Dim::constant(2))).as_size().unwrap();
    b.graph.ty(id).dims.iter().map(known).collect()
}

/// One more value from those there are; `None` when the dice ask for what does not fit.
fn grow(b: &mut Builder<'_>, dice: &mut Dice, values: &[ValueId]) -> Option<ValueId> {
    let floats: Vec<ValueId> =
        values.iter().copied().filter(|&id| b.graph.ty(id).dtype == DType::F32).collect();
    // Late values more often, so that chains form.
    let x = if dice.roll(3) > 0 { *floats.last()? } else { dice.pick(&floats) };
    let shape = sizes(b, x);
    let dims = b.graph.ty(x).dims.clone();
    let rank = shape.len();
    let axis = dice.roll(rank);
    match dice.roll(20) {
        0 => {
            let op = dice.pick(&[UnaryOp::Neg, UnaryOp::Tanh, UnaryOp::Abs, UnaryOp::Erf, UnaryOp::Sin]);
            b.add(Op::Unary(op), &[x]).ok()
        }
        1 => {
            let activation = dice.pick(&[Activation::Relu, Activation::Sigmoid, Activation::Gelu]);
            b.add(Op::Activation(activation), &[x]).ok()
        }
        2 | 3 => {
            let y = dice.pick(&floats);
            let op = dice.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min]);
            b.add(Op::Binary(op), &[x, y]).ok()
        }
        4 | 5 => {
            let number = dice.number();
            let c = constant(b, None, &[], &[number]);
            let op = dice.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min]);
            let operands = if dice.roll(2) == 0 { [x, c] } else { [c, x] };
            b.add(Op::Binary(op), &operands).ok()
        }
        6 => {
            let mut shape = vec![1; rank];
            shape[axis] = sizes(b, x)[axis];
            let count = shape[axis];
            let values = dice.values(count);
            let c = constant(b, Some(&format!("c{}", b.graph.values.len())), &shape, &values);
            let op = dice.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul]);
            b.add(Op::Binary(op), &[x, c]).ok()
        }
        7 | 8 => {
            let mut axes: Vec<usize> = (0..rank).collect();
            axes.swap(axis, dice.roll(rank));
            b.add(Op::Permute(Permute { axes }), &[x]).ok()
        }
        9 => {
            let mut dims = dims;
            match dice.roll(3) {
                0 => dims.insert(axis, Dim::constant(1)),
                1 if rank > 1 => {
                    let at = axis.min(rank - 2);
                    let merged = &dims[at] * &dims[at + 1];
                    dims.splice(at..at + 2, [merged]);
                }
                _ => dims.retain(|dim| !dim.is(1)),
            }
            if dims.is_empty() || dims.len() > 5 {
                return None;
            }
            b.add(Op::Reshape(Reshape { dims }), &[x]).ok()
        }
        10 => {
            let mut ranges: Vec<AxisRange> =
                dims.iter().map(|dim| AxisRange { start: 0.into(), end: dim.clone(), step: 1 }).collect();
            let keep = dice.roll(shape[axis]).max(1);
            if dims[axis].as_size().is_some() {
                ranges[axis] = AxisRange { start: 0.into(), end: keep.into(), step: 1 };
            }
            b.add(Op::Slice(Slice { ranges }), &[x]).ok()
        }
        11 => b.add(Op::Concat(Concat { axis }), &[x, dice.pick(&floats)]).ok(),
        12 => {
            let op = dice.pick(&[ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max]);
            let keep_dims = rank == 1 || dice.roll(2) == 0;
            b.add(Op::Reduce(Reduce { op, axes: vec![axis], keep_dims }), &[x]).ok()
        }
        13 => {
            let inner = *shape.last()?;
            let count = inner * 3;
            let mut shape = vec![1; rank.max(2) - 2];
            shape.extend([inner, 3]);
            let values = dice.values(count);
            let weight = constant(b, Some(&format!("w{}", b.graph.values.len())), &shape, &values);
            b.add(Op::MatMul, &[x, weight]).ok()
        }
        14 => {
            let c = constant(b, None, &[], &[0.25]);
            let condition = b.add(Op::Compare(CompareOp::Greater), &[x, c]).ok()?;
            let condition = b.add(Op::Unary(UnaryOp::Not), &[condition]).ok()?;
            b.add(Op::Where, &[condition, x, c]).ok()
        }
        15 => {
            let padding = (0..rank).map(|i| (Dim::from(usize::from(i == axis)), Dim::constant(0))).collect();
            b.add(Op::Pad(Pad { padding, mode: PadMode::Constant, value: Scalar::Float(0.0) }), &[x]).ok()
        }
        16 => {
            let number = dice.pick(&[0.0, 1.0]);
            let known: Vec<usize> = dims.iter().map(|dim| dim.as_size().unwrap_or(1)).collect();
            let wide: Vec<usize> = known.iter().map(|&size| if size == 1 { 3 } else { size }).collect();
            let shape = if dims.iter().all(|dim| dim.as_size().is_some()) { wide } else { known };
            let c = constant(b, None, &shape, &vec![number; shape.iter().product()]);
            let op = dice.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max]);
            let operands = if dice.roll(2) == 0 { [x, c] } else { [c, x] };
            b.add(Op::Binary(op), &operands).ok()
        }
        17 => {
            let dims =
                dims.iter().map(|dim| if dim.is(1) { Dim::constant(3) } else { dim.clone() }).collect();
            b.add(Op::Expand(Expand { dims }), &[x]).ok()
        }
        18 => {
            let value = Scalar::Float(f64::from(dice.number()));
            let filled = b.add(Op::Fill(Fill { dims, value, dtype: DType::F32 }), &[]).ok()?;
            let op = dice.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Min]);
            let operands = if dice.roll(2) == 0 { [x, filled] } else { [filled, x] };
            b.add(Op::Binary(op), &operands).ok()
        }
        _ => norm_or_conv(b, dice, x, &shape),
    }
}

/// What the raises and folds look for.
fn norm_or_conv(b: &mut Builder<'_>, dice: &mut Dice, x: ValueId, shape: &[usize]) -> Option<ValueId> {
    let rank = shape.len();
    let binary = |b: &mut Builder<'_>, op, x, y| b.add(Op::Binary(op), &[x, y]).ok();
    if rank != 4 || dice.roll(2) == 0 {
        let mean_of_rows = Op::Reduce(Reduce { op: ReduceOp::Mean, axes: vec![rank - 1], keep_dims: true });
        let mean = b.add(mean_of_rows.clone(), &[x]).ok()?;
        let centred = binary(b, BinaryOp::Sub, x, mean)?;
        let square = binary(b, BinaryOp::Mul, centred, centred)?;
        let variance = b.add(mean_of_rows, &[square]).ok()?;
        let epsilon = constant(b, None, &[], &[0.1]);
        let sum = binary(b, BinaryOp::Add, variance, epsilon)?;
        let root = b.add(Op::Unary(UnaryOp::Sqrt), &[sum]).ok()?;
        return binary(b, BinaryOp::Div, centred, root);
    }
    let channels = shape[1];
    let options = ConvOptions {
        stride: [1; 2].into(),
        padding: [(1, 1); 2].into(),
        dilation: [1; 2].into(),
        groups: 1,
    };
    let values = dice.values(2 * channels * 9);
    let weight =
        constant(b, Some(&format!("conv{}.weight", b.graph.values.len())), &[2, channels, 3, 3], &values);
    let y = b.add(Op::Conv(Conv { options, activation: None }), &[x, weight]).ok()?;
    let mut operands = vec![y];
    for n in 0..4 {
        let values: Vec<f32> =
            dice.values(2).into_iter().map(|v| if n == 3 { v.abs() + 0.5 } else { v }).collect();
        let name = format!("norm{}", b.graph.values.len());
        operands.push(constant(b, Some(&name), &[2], &values));
    }
    b.add(Op::BatchNorm(BatchNorm { epsilon: 1e-3, momentum: None }), &operands).ok()
}

#[test]
fn random_graphs_compute_the_same() {
    let mut ran = 0;
    let seeds = std::env::var("KILN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(600);
    for seed in 0..seeds {
        let mut dice = Dice(seed * 7919 + 1);
        let mut g = graph(&["f32[n, 3, 4]", "f32[n, 3, 4]", "f32[n, 2, 3, 4]"], |b, x| {
            let mut values = x.to_vec();
            while values.len() < 14 {
                if let Some(next) = grow(b, &mut dice, &values) {
                    values.push(next);
                } else if dice.roll(50) == 0 {
                    break;
                }
            }
            let last = values.len() - 1;
            vec![values[last], values[last.saturating_sub(1 + dice.roll(3))]]
        });
        let inputs: Vec<TensorData> =
            g.inputs.iter().enumerate().map(|(i, &id)| sample(g.ty(id), &[("n", 2)], i as u64)).collect();
        // Some ask `n` to be another size than it is.
        let Ok(before) = interpreter::run(&g, &inputs) else {
            continue;
        };
        ran += 1;
        let text = g.to_string();
        let named = g.constants.iter().filter_map(|c| Some((c.name.clone()?, c.data.clone())));
        let parameters: BTreeMap<String, TensorData> = named.collect();
        optimize_observed(
            &mut g,
            &Options { trainable: seed % 4 == 0, ..Options::default() },
            &mut |g, report| {
                if seed % 8 == 0 {
                    assert_reads_back(g, &format!("seed {seed} after {report}"));
                }
            },
        );
        let after = interpreter::run(&g, &inputs).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}\n{g}"));
        assert_close(&before, &after, &format!("seed {seed}\n{text}\n{g}"));
        for constant in &g.constants {
            if let Some(provenance) = &constant.provenance {
                let again = provenance.evaluate(&|key| parameters.get(key).cloned()).unwrap();
                assert_close(&[again], std::slice::from_ref(&constant.data), &format!("{provenance:?}\n{g}"));
            }
        }
    }
    assert!(ran > seeds / 2, "{ran}");
}
