//! Products of integers in place of products of the floats that they stand for.
//!
//! Quantized models mostly have floats between `DequantizeLinear` and `QuantizeLinear`, so that any runtime may run them. Where both
//! operands of a product are integers less a zero point, times a scale, the sum is one of integers, exact in 32 bits, times both
//! scales. Before constants are folded, which would make floats of small weights.

use super::movement::constant_as;
use super::{Rewrite, Rule};
use crate::data::uniform;
use crate::ir::{Cast, ConvInteger, Dim, Node, Op, Permute, Pool, Reshape, ValueId};
use kiln_types::{BinaryOp, ConvOptions, DType, PoolOp};

pub(super) const RULE: Rule = Rule { apply };

/// As many products of two bytes, less their zero points, fit into a sum of 32 bits.
const MOST_SUMMED: usize = (1 << 31) / (255 * 255);
/// Groups of a convolution with fewer channels are better computed in floats, but for those of one channel and one result.
const LEAST_CHANNELS: usize = 16;
/// Steps between the floats and the product that only move them.
const MOST_MOVES: usize = 4;

/// Floats `(q - zero) · scale`.
struct Floats {
    q: ValueId,
    /// An integer, or one for each entry of an axis.
    zero: Option<ValueId>,
    /// Likewise.
    scale: ValueId,
    /// What moves them to where they are used, first to last.
    moves: Vec<Op>,
}

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    if cx.options.trainable {
        return None;
    }
    match cx.op() {
        Op::MatMul => product(cx),
        Op::Conv(conv) if conv.activation.is_none() => {
            let options = conv.options.clone();
            convolution(cx, options)
        }
        Op::Quantize => requantized(cx),
        _ => None,
    }
}

/// Numbers that integers stand for, moved and quantized again as before: the integers are moved.
fn requantized(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (mut id, mut moves) = (cx.input(0)?, Vec::new());
    while let Some(node) = cx.producer(id).filter(|node| keeps_order(&node.op)) {
        if moves.len() == MOST_MOVES {
            return None;
        }
        moves.push(node.op.clone());
        id = node.inputs.first().copied().flatten()?;
    }
    let node = cx.producer(id).filter(|node| node.op == Op::Dequantize)?;
    let &[Some(mut q), Some(scale), Some(zero)] = node.inputs.as_slice() else { return None };
    let same = |a: ValueId, b: ValueId| {
        let (a, b) = (cx.constant(a)?, cx.constant(b)?);
        (a.data.dtype == b.data.dtype && a.data.bytes == b.data.bytes).then_some(())
    };
    same(cx.input(1)?, scale)?;
    same(cx.input(2)?, zero)?;
    // Under a negative scale the greatest number is that of the least integer.
    let is_positive = || Some(uniform(&cx.constant(scale)?.data)? > 0.0);
    if moves.iter().any(|op| matches!(op, Op::Pool(_))) && is_positive() != Some(true) {
        return None;
    }
    for op in moves.into_iter().rev() {
        q = cx.insert(op, &[q])?;
    }
    cx.redirect(q)?;
    Some("integers for what they stand for")
}

/// Whether an operation does to integers what it does to the numbers that they stand for.
fn keeps_order(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::Permute(_) | Op::Pool(Pool { op: PoolOp::Max, .. }))
}

fn product(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let depth = cx.ty(a).dims.last()?.as_size()?;
    let (left, right) = (floats(cx, a)?, floats(cx, b)?);
    let last = cx.ty(b).rank().checked_sub(1)?;
    if depth > MOST_SUMMED || !is_one(cx, &left) {
        return None;
    }
    let (left, right) = (moved(cx, left)?, moved(cx, right)?);
    if !varies_along(cx, &right, last) {
        return None;
    }
    let operands = vec![Some(left.q), Some(right.q), left.zero, right.zero];
    let sum = cx.insert_optional(Op::MatMulInteger, operands)?;
    let sum = cx.insert(Op::Cast(Cast { to: DType::F32 }), &[sum])?;
    let scale = both(cx, left.scale, right.scale)?;
    cx.replace(Op::Binary(BinaryOp::Mul), vec![Some(sum), Some(scale)])?;
    Some("product of integers")
}

fn convolution(cx: &mut Rewrite<'_>, options: ConvOptions) -> Option<&'static str> {
    let (x, weight, bias) = (cx.input(0)?, cx.input(1)?, cx.input(2));
    let shape = cx.ty(weight).shape()?;
    let channels = shape.get(1).copied()?;
    let depth = shape.get(1..)?.iter().try_fold(1usize, |depth, &size| depth.checked_mul(size))?;
    let (image, filters) = (floats(cx, x)?, floats(cx, weight)?);
    let is_depthwise = channels == 1 && shape.first() == Some(&options.groups);
    let few = options.groups > 1 && channels < LEAST_CHANNELS && !is_depthwise;
    if depth > MOST_SUMMED || few || !is_one(cx, &image) {
        return None;
    }
    let (image, filters) = (moved(cx, image)?, moved(cx, filters)?);
    if !varies_along(cx, &filters, 0) {
        return None;
    }
    let operands = vec![Some(image.q), Some(filters.q), image.zero, filters.zero];
    let sum = cx.insert_optional(Op::ConvInteger(ConvInteger { options }), operands)?;
    let sum = cx.insert(Op::Cast(Cast { to: DType::F32 }), &[sum])?;
    let scale = along_channels(cx, filters.scale)?;
    let scale = both(cx, image.scale, scale)?;
    match bias {
        Some(bias) => {
            let y = cx.insert(Op::Binary(BinaryOp::Mul), &[sum, scale])?;
            let bias = along_channels(cx, bias)?;
            cx.replace(Op::Binary(BinaryOp::Add), vec![Some(y), Some(bias)])?;
        }
        None => cx.replace(Op::Binary(BinaryOp::Mul), vec![Some(sum), Some(scale)])?,
    }
    Some("convolution of integers")
}

/// What a value stands for, when it is integers less a zero point, times a scale.
fn floats(cx: &Rewrite<'_>, id: ValueId) -> Option<Floats> {
    let (mut id, mut moves) = (id, Vec::new());
    while let Some(node) = cx.producer(id).filter(|node| is_move(cx, node)) {
        if moves.len() == MOST_MOVES {
            return None;
        }
        moves.push(node.op.clone());
        id = node.inputs.first().copied().flatten()?;
    }
    moves.reverse();
    if let Some(node) = cx.producer(id).filter(|node| node.op == Op::Dequantize) {
        let &[Some(q), Some(scale), Some(zero)] = node.inputs.as_slice() else { return None };
        let bytes = matches!(cx.ty(q).dtype, DType::I8 | DType::U8);
        return bytes.then_some(Floats { q, zero: Some(zero), scale, moves });
    }
    let (a, b) = cx.binary(id, BinaryOp::Mul)?;
    [(a, b), (b, a)].into_iter().find_map(|(centered, scale)| {
        let (wide, zero) = match cx.binary(centered, BinaryOp::Sub) {
            Some((wide, zero)) => (wide, Some(zero)),
            None => (centered, None),
        };
        let q = integers(cx, wide)?;
        // The product is of the integers' dims.
        if cx.ty(q).dims != cx.ty(id).dims || !matches!(cx.ty(q).dtype, DType::I8 | DType::U8) {
            return None;
        }
        Some(Floats { q, zero, scale, moves: moves.clone() })
    })
}

/// The integers that floats are.
fn integers(cx: &Rewrite<'_>, floats: ValueId) -> Option<ValueId> {
    let node = cx.producer(floats).filter(|node| node.op == Op::Cast(Cast { to: DType::F32 }))?;
    node.inputs.first().copied().flatten().filter(|&q| !cx.ty(q).dtype.is_float())
}

/// Whether a node turns axes, or puts axes of size 1 before them.
fn is_move(cx: &Rewrite<'_>, node: &Node) -> bool {
    let before = node.inputs.first().copied().flatten().map(|id| cx.ty(id).dims.as_slice());
    match (&node.op, before) {
        (Op::Permute(_), _) => true,
        (Op::Reshape(Reshape { dims }), Some(before)) => leading_ones(dims, before).is_some(),
        _ => false,
    }
}

/// How many axes of size 1 stand before others.
fn leading_ones(dims: &[Dim], others: &[Dim]) -> Option<usize> {
    let lead = dims.strip_suffix(others)?;
    lead.iter().all(|dim| dim.is(1)).then_some(lead.len())
}

/// Whether the scale and the zero point are one number for all.
fn is_one(cx: &Rewrite<'_>, floats: &Floats) -> bool {
    let numbers = [Some(floats.scale), floats.zero];
    numbers.into_iter().flatten().all(|id| cx.ty(id).num_elements().is(1))
}

/// Whether scales and zero points are one number, or differ along an axis only.
fn varies_along(cx: &Rewrite<'_>, floats: &Floats, axis: usize) -> bool {
    let numbers = [Some(floats.scale), floats.zero];
    numbers.into_iter().flatten().all(|id| {
        let dims = &cx.ty(id).dims;
        dims.is_empty() || dims.iter().enumerate().all(|(at, dim)| at == axis || dim.is(1))
    })
}

/// The integers where the floats are used, with scales and zero points there. Zero points are integers, and none where they are 0.
fn moved(cx: &mut Rewrite<'_>, floats: Floats) -> Option<Floats> {
    let Floats { mut q, mut zero, mut scale, moves } = floats;
    zero = match zero {
        Some(zero) => integral_zero(cx, zero, cx.ty(q).dtype)?,
        None => None,
    };
    for op in &moves {
        q = cx.insert(op.clone(), &[q])?;
        for parameter in [Some(&mut scale), zero.as_mut()].into_iter().flatten() {
            *parameter = moved_along(cx, op, *parameter)?;
        }
    }
    Some(Floats { q, zero, scale, moves: Vec::new() })
}

/// A scale or zero point after what moves its operand; one number stays.
fn moved_along(cx: &mut Rewrite<'_>, op: &Op, parameter: ValueId) -> Option<ValueId> {
    let dims = cx.ty(parameter).dims.clone();
    match op {
        _ if dims.is_empty() => Some(parameter),
        Op::Permute(Permute { axes }) if axes.len() == dims.len() => cx.insert(op.clone(), &[parameter]),
        Op::Reshape(Reshape { dims: new }) => with_rank(cx, parameter, new.len()),
        _ => None,
    }
}

/// A zero point as the integers that it was made a float of; nothing where it is 0. Zero points that the bytes themselves cannot be make larger
/// products than [`MOST_SUMMED`] counts with.
fn integral_zero(cx: &mut Rewrite<'_>, zero: ValueId, bytes: DType) -> Option<Option<ValueId>> {
    if !cx.ty(zero).dtype.is_float() {
        if !is_of_bytes(cx, zero, bytes)? {
            return None;
        }
        return Some(Some(constant_as(cx, zero, Vec::new())?));
    }
    let reshaped = cx.producer(zero).filter(|node| matches!(node.op, Op::Reshape(_)));
    let wide = reshaped.map_or(Some(zero), |node| node.inputs.first().copied().flatten())?;
    let whole = integers(cx, wide)?;
    if let Some(data) = cx.constant(whole).map(|constant| &constant.data) {
        cx.look(data.num_elements())?;
        if data.bytes.iter().all(|&byte| byte == 0) {
            return Some(None);
        }
    }
    if !is_of_bytes(cx, whole, bytes)? {
        return None;
    }
    let ty = cx.ty(zero);
    let dims = if ty.num_elements().is(1) { Vec::new() } else { ty.dims.clone() };
    if cx.ty(whole).dims == dims {
        return Some(Some(whole));
    }
    Some(Some(cx.insert(Op::Reshape(Reshape { dims }), &[whole])?))
}

/// Whether integers are known to be some that a dtype of bytes has.
fn is_of_bytes(cx: &mut Rewrite<'_>, integers: ValueId, bytes: DType) -> Option<bool> {
    if cx.ty(integers).dtype == bytes {
        return Some(true);
    }
    let Some(constant) = cx.constant(integers) else { return Some(false) };
    let (data, (least, greatest)) = (constant.data.clone(), bytes.integers()?);
    cx.look(data.num_elements())?;
    let wide = data.convert_dtype(DType::I64);
    let range = i64::try_from(least).ok()?..=i64::try_from(greatest).ok()?;
    Some(wide.as_slice::<i64>().ok()?.iter().all(|zero| range.contains(zero)))
}

/// The product of two scales, of the rank of the current node's result.
fn both(cx: &mut Rewrite<'_>, a: ValueId, b: ValueId) -> Option<ValueId> {
    let rank = cx.ty(cx.output()?).rank();
    let (a, b) = (with_rank(cx, a, rank)?, with_rank(cx, b, rank)?);
    cx.insert(Op::Binary(BinaryOp::Mul), &[a, b])
}

/// A value with axes of size 1 before its own.
fn with_rank(cx: &mut Rewrite<'_>, id: ValueId, rank: usize) -> Option<ValueId> {
    let own = &cx.ty(id).dims;
    if own.len() == rank {
        return Some(id);
    }
    let mut dims = vec![Dim::constant(1); rank.checked_sub(own.len())?];
    dims.extend(own.iter().cloned());
    cx.insert(Op::Reshape(Reshape { dims }), &[id])
}

/// A number for each output channel along the channels of an image.
fn along_channels(cx: &mut Rewrite<'_>, parameter: ValueId) -> Option<ValueId> {
    if cx.ty(parameter).rank() == 0 {
        return Some(parameter);
    }
    let mut dims = vec![Dim::constant(1); cx.ty(cx.output()?).rank()];
    *dims.get_mut(1)? = cx.ty(parameter).dims.first()?.clone();
    cx.insert(Op::Reshape(Reshape { dims }), &[parameter])
}

#[cfg(test)]
mod tests {
    use crate::ir::{Builder, Cast, Conv, Dim, Graph, Op, Permute, Reshape, ValueId};
    use crate::passes::testing::{checked, constant, graph};
    use crate::passes::{Options, optimize};
    use kiln_types::{BinaryOp, ConvOptions, DType, TensorData};

    fn bytes(b: &mut Builder<'_>, shape: &[usize], dtype: DType) -> ValueId {
        let count: usize = shape.iter().product();
        let values: Vec<i64> = (0..count as i64).map(|n| n * 37 % 120).collect();
        let data = TensorData::new(values, shape).convert_dtype(dtype);
        b.graph.add_constant(Some("w_quantized".to_owned()), data)
    }

    /// `(q - zero) · scale`, with parameters of these dims.
    fn floats(b: &mut Builder<'_>, q: ValueId, zero: i64, scale: &[f32], dims: &[usize]) -> ValueId {
        let rank = b.graph.ty(q).rank();
        let wide = b.add(Op::Cast(Cast { to: DType::F32 }), &[q]).unwrap();
        let number = TensorData::new(vec![zero], Vec::<usize>::new()).convert_dtype(b.graph.ty(q).dtype);
        let zero = b.constant(number);
        let zero = b.add(Op::Cast(Cast { to: DType::F32 }), &[zero]).unwrap();
        let ones = vec![Dim::constant(1); rank];
        let zero = b.add(Op::Reshape(Reshape { dims: ones }), &[zero]).unwrap();
        let centered = b.add(Op::Binary(BinaryOp::Sub), &[wide, zero]).unwrap();
        let scale = constant(b, None, dims, scale);
        b.add(Op::Binary(BinaryOp::Mul), &[centered, scale]).unwrap()
    }

    fn count(g: &Graph, wanted: impl Fn(&Op) -> bool) -> usize {
        g.root.nodes.iter().filter(|&&id| wanted(&g.node(id).op)).count()
    }

    fn is_of_integers(op: &Op) -> bool {
        matches!(op, Op::MatMulInteger | Op::QuantizedLinear(_))
    }

    /// A layer whose weight has its outputs first, with a scale for each.
    fn layer(depth: usize) -> Graph {
        graph(&[&format!("u8[n, {depth}]")], |b, x| {
            let x = floats(b, x[0], 3, &[0.5], &[1, 1]);
            let w = bytes(b, &[3, depth], DType::I8);
            let w = floats(b, w, 0, &[0.25, 0.5, 2.0], &[3, 1]);
            let w = b.add(Op::Permute(Permute { axes: vec![1, 0] }), &[w]).unwrap();
            vec![b.add(Op::MatMul, &[x, w]).unwrap()]
        })
    }

    #[test]
    fn a_product_of_what_integers_stand_for_is_one_of_integers() {
        let g = checked(layer(6), &[("n", 2)]);
        let node = crate::passes::testing::single(&g);
        assert!(matches!(node.op, Op::QuantizedLinear(_)), "{}", g.to_text());
        // A zero point of 0 is none.
        let zero = |n: usize| node.inputs.get(n).copied().flatten();
        assert!(zero(1).is_some() && zero(4).is_none());
    }

    #[test]
    fn sums_that_may_not_fit_and_models_to_train_stay_in_floats() {
        let g = checked(layer(super::MOST_SUMMED + 1), &[("n", 1)]);
        assert_eq!(count(&g, is_of_integers), 0);
        let mut g = layer(6);
        optimize(&mut g, &Options { trainable: true, ..Options::default() });
        assert_eq!(count(&g, is_of_integers), 0);
    }

    #[test]
    fn zero_points_that_no_byte_is_stay_in_floats() {
        let of_zero = |zero: i64| {
            graph(&["u8[n, 6]"], |b, x| {
                let wide = b.add(Op::Cast(Cast { to: DType::F32 }), &[x[0]]).unwrap();
                let zero = b.constant(TensorData::new(vec![zero], vec![1, 1]));
                let zero = b.add(Op::Cast(Cast { to: DType::F32 }), &[zero]).unwrap();
                let centered = b.add(Op::Binary(BinaryOp::Sub), &[wide, zero]).unwrap();
                let scale = constant(b, None, &[1, 1], &[0.5]);
                let left = b.add(Op::Binary(BinaryOp::Mul), &[centered, scale]).unwrap();
                let right = bytes(b, &[6, 3], DType::U8);
                let right = floats(b, right, 7, &[0.25], &[1, 1]);
                vec![b.add(Op::MatMul, &[left, right]).unwrap()]
            })
        };
        for (zero, integers) in [(255, 1), (256, 0), (-1, 0), (70_000, 0)] {
            assert_eq!(count(&checked(of_zero(zero), &[("n", 2)]), is_of_integers), integers, "{zero}");
        }
    }

    #[test]
    fn a_scale_along_the_sum_stays_a_factor_of_each_product() {
        let g = graph(&["u8[n, 3]"], |b, x| {
            let x = floats(b, x[0], 3, &[0.5], &[1, 1]);
            let w = bytes(b, &[3, 4], DType::I8);
            let w = floats(b, w, 0, &[0.25, 0.5, 2.0], &[3, 1]);
            vec![b.add(Op::MatMul, &[x, w]).unwrap()]
        });
        assert_eq!(count(&checked(g, &[("n", 2)]), is_of_integers), 0);
    }

    #[test]
    fn integers_that_are_moved_as_numbers_are_moved_themselves() {
        let moved = |scale: f32, zero: u8| {
            let g = graph(&["u8[n, 6]"], |b, x| {
                let parameters = |b: &mut Builder<'_>, scale: f32, zero: u8| {
                    let scale = constant(b, Some("scale"), &[1], &[scale]);
                    [scale, b.graph.add_constant(None, TensorData::new(vec![zero], [1]))]
                };
                let [s, z] = parameters(b, 0.5, 3);
                let y = b.add(Op::Dequantize, &[x[0], s, z]).unwrap();
                let dims = vec![Dim::symbol("n"), 2.into(), 3.into()];
                let y = b.add(Op::Reshape(Reshape { dims }), &[y]).unwrap();
                let y = b.add(Op::Permute(Permute { axes: vec![0, 2, 1] }), &[y]).unwrap();
                let [s, z] = parameters(b, scale, zero);
                vec![b.add(Op::Quantize, &[y, s, z]).unwrap()]
            });
            crate::passes::testing::kinds(&checked(g, &[("n", 2)]))
        };
        assert_eq!(moved(0.5, 3), ["Reshape", "Permute"]);
        for (scale, zero) in [(0.25, 3), (0.5, 4)] {
            let kinds = moved(scale, zero);
            assert!(kinds.contains(&"Quantize".to_owned()), "{kinds:?}");
        }
    }

    #[test]
    fn a_convolution_of_integers_has_its_bias_behind_it() {
        let convolution = |channels: usize, groups: usize| {
            graph(&[&format!("u8[n, {}, 5, 4]", channels * groups)], |b, x| {
                let x = floats(b, x[0], 7, &[0.5], &[1, 1, 1, 1]);
                let w = bytes(b, &[4, channels, 3, 2], DType::U8);
                let w = floats(b, w, 9, &[0.25, 0.5, 2.0, 1.0], &[4, 1, 1, 1]);
                let bias = constant(b, Some("bias"), &[4], &[1.0, -2.0, 0.5, 0.0]);
                let options = ConvOptions {
                    stride: [1, 1].into(),
                    padding: [(1, 1), (0, 1)].into(),
                    dilation: [1, 1].into(),
                    groups,
                };
                vec![b.add(Op::Conv(Conv { options, activation: None }), &[x, w, bias]).unwrap()]
            })
        };
        let integers = |g: &Graph| count(g, |op| matches!(op, Op::ConvInteger(_)));
        assert_eq!(integers(&checked(convolution(2, 1), &[("n", 2)])), 1);
        // Groups of few channels are better computed in floats.
        assert_eq!(integers(&checked(convolution(1, 2), &[("n", 2)])), 0);
    }
}
