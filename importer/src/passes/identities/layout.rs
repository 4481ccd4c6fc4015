//! Movement, reductions and layers that do less than they say.

use super::same;
use crate::ir::{
    AxisRange, Clamp, Concat, Conv, Dim, Expand, Fill, Node, Op, Pad, Permute, Pool, Reduce, Reshape, Slice,
    ValueId,
};
use crate::passes::Rewrite;
use crate::passes::movement::constant_as;
use kiln_types::{Activation, BinaryOp, DType, PadMode, PoolOp, ReduceOp};

pub(super) fn expand(cx: &mut Rewrite<'_>, dims: &[Dim]) -> Option<&'static str> {
    let x = cx.input(0)?;
    if cx.ty(x).dims == dims {
        return same(cx, "expansion to itself");
    }
    let dtype = cx.ty(x).dtype;
    if cx.ty(x).num_elements().is(1)
        && let Some(value) = cx.graph().number(x)
    {
        cx.replace(Op::Fill(Fill { dims: dims.to_vec(), value, dtype }), Vec::new())?;
        return Some("expansion of one value");
    }
    let inner = cx.producer(x)?;
    match inner.op {
        Op::Fill(Fill { value, .. }) => {
            cx.replace(Op::Fill(Fill { dims: dims.to_vec(), value, dtype }), Vec::new())?
        }
        Op::Expand(_) => {
            let source = inner.inputs.clone();
            cx.replace(Op::Expand(Expand { dims: dims.to_vec() }), source)?;
        }
        _ => return None,
    }
    Some("expansion of expansion")
}

pub(super) fn slice(cx: &mut Rewrite<'_>, ranges: &[AxisRange]) -> Option<&'static str> {
    let x = cx.input(0)?;
    let whole =
        |(range, size): (&AxisRange, &Dim)| range.step == 1 && range.start.is(0) && range.end == *size;
    if ranges.iter().zip(&cx.ty(x).dims).all(whole) {
        return same(cx, "slice of everything");
    }
    let inner = match &cx.producer(x)?.op {
        &Op::Fill(Fill { value, dtype, .. }) => {
            let dims = cx.ty(cx.output()?).dims.clone();
            cx.replace(Op::Fill(Fill { dims, value, dtype }), Vec::new())?;
            return Some("slice of one value");
        }
        Op::Slice(Slice { ranges: inner }) => inner,
        Op::Conv(_) => return cropped_conv(cx, x, ranges),
        &Op::Concat(Concat { axis }) => return slice_of_joined(cx, x, axis, ranges),
        Op::Permute(Permute { axes }) => {
            let axes = axes.clone();
            return slice_of_turned(cx, x, &axes, ranges);
        }
        _ => return None,
    };
    if inner.iter().chain(ranges).any(|range| range.step != 1) {
        return None;
    }
    let merged = inner.iter().zip(ranges).map(|(inner, outer)| AxisRange {
        start: &inner.start + &outer.start,
        end: &inner.start + &outer.end,
        step: 1,
    });
    let merged = merged.collect();
    let source = cx.producer(x)?.inputs.clone();
    cx.replace(Op::Slice(Slice { ranges: merged }), source)?;
    Some("slice of slice")
}

/// A slice of what was joined that lies within one of the parts.
fn slice_of_joined(
    cx: &mut Rewrite<'_>,
    joined: ValueId,
    axis: usize,
    ranges: &[AxisRange],
) -> Option<&'static str> {
    let (part, ranges) = within_part(cx, joined, axis, ranges)?;
    cx.replace(Op::Slice(Slice { ranges }), vec![Some(part)])?;
    Some("slice of one that was joined")
}

/// The operand of a concatenation that ranges lie in, and where they are there. What another module joined stays one
/// value: the first of several layers would take parts where the others take a whole.
fn within_part(
    cx: &Rewrite<'_>,
    joined: ValueId,
    axis: usize,
    ranges: &[AxisRange],
) -> Option<(ValueId, Vec<AxisRange>)> {
    let range = ranges.get(axis).filter(|range| range.step == 1)?;
    let not_negative = |dim: Dim| dim.as_constant().is_some_and(|value| value >= 0);
    let mut start = Dim::from(0);
    let node = cx.producer(joined).filter(|node| node.origin.scope == cx.node().origin.scope)?;
    // Many slices may be of many parts, of each of which sizes are added.
    cx.look(node.inputs.len().saturating_mul(16))?;
    for &part in &node.inputs {
        let end = &start + cx.ty(part?).dims.get(axis)?;
        if not_negative(&range.start - &start) && not_negative(&end - &range.end) {
            let mut ranges = ranges.to_vec();
            ranges[axis] = AxisRange { start: &range.start - &start, end: &range.end - &start, step: 1 };
            return Some((part?, ranges));
        }
        start = end;
    }
    None
}

/// A slice of what was joined and transposed that lies within one of the parts.
fn slice_of_turned(
    cx: &mut Rewrite<'_>,
    turned: ValueId,
    axes: &[usize],
    ranges: &[AxisRange],
) -> Option<&'static str> {
    let joined = cx.producer(turned)?.inputs.first().copied().flatten()?;
    let Op::Concat(Concat { axis }) = cx.producer(joined)?.op else { return None };
    let mut ranges: Vec<_> = axes.iter().zip(ranges).collect();
    ranges.sort_by_key(|&(&axis, _)| axis);
    let ranges: Vec<AxisRange> = ranges.into_iter().map(|(_, range)| range.clone()).collect();
    let (part, ranges) = within_part(cx, joined, axis, &ranges)?;
    let sliced = cx.insert(Op::Slice(Slice { ranges }), &[part])?;
    cx.replace(Op::Permute(Permute { axes: axes.to_vec() }), vec![Some(sliced)])?;
    Some("slice of one that was joined")
}

pub(super) fn concat(cx: &mut Rewrite<'_>, axis: usize) -> Option<&'static str> {
    let inputs = cx.node().inputs.clone();
    if inputs.len() == 1 {
        return same(cx, "concatenation of one");
    }
    let empty =
        |id: &Option<ValueId>| id.is_some_and(|id| cx.ty(id).dims.get(axis).is_some_and(|dim| dim.is(0)));
    if inputs.iter().any(empty) && !inputs.iter().all(empty) {
        let kept = inputs.iter().copied().filter(|id| !empty(id)).collect();
        cx.replace(Op::Concat(Concat { axis }), kept)?;
        return Some("concatenation of nothing");
    }
    let filled = |id: &Option<ValueId>| match cx.producer((*id)?)?.op {
        Op::Fill(Fill { value, dtype, .. }) => Some((value, dtype)),
        _ => None,
    };
    if let Some((value, dtype)) = inputs.first().and_then(filled)
        && inputs.iter().all(|id| filled(id) == Some((value, dtype)))
    {
        let dims = cx.ty(cx.output()?).dims.clone();
        cx.replace(Op::Fill(Fill { dims, value, dtype }), Vec::new())?;
        return Some("concatenation of one value");
    }
    if let Some(what) = all_of_one_axis(cx, axis) {
        return Some(what);
    }
    // The last of several that are one in another takes the parts of all.
    let is_part = |user: &Node| user.op == Op::Concat(Concat { axis });
    let output = cx.output()?;
    if cx.used_once(output) && cx.only_user(output).is_some_and(is_part) {
        return None;
    }
    let nested = |id: Option<ValueId>| {
        let id = id.filter(|&id| cx.used_once(id))?;
        cx.producer(id).filter(|node| node.op == Op::Concat(Concat { axis })).map(|node| &node.inputs)
    };
    if !inputs.iter().any(|&id| nested(id).is_some()) {
        return None;
    }
    let (mut flat, mut waiting) = (Vec::new(), inputs.clone());
    waiting.reverse();
    while let Some(id) = waiting.pop() {
        match nested(id) {
            Some(parts) => waiting.extend(parts.iter().rev()),
            None => flat.push(id),
        }
    }
    cx.replace(Op::Concat(Concat { axis }), flat)?;
    Some("concatenation of concatenation")
}

/// `concat(x[:, 0], x[:, 1], …)` of everything along an axis, as both directions of a recurrent layer are joined: that axis is moved
/// before the one along which its parts were joined, and they are one.
fn all_of_one_axis(cx: &mut Rewrite<'_>, axis: usize) -> Option<&'static str> {
    let inputs = cx.node().inputs.iter().copied().collect::<Option<Vec<ValueId>>>()?;
    let (source, from) = part_of_axis(cx, *inputs.first()?, 0)?;
    if from == axis || !cx.ty(source).dims.get(from)?.is(i64::try_from(inputs.len()).ok()?) {
        return None;
    }
    let in_order = |(n, &part): (usize, &ValueId)| part_of_axis(cx, part, n) == Some((source, from));
    if !inputs.iter().enumerate().all(in_order) {
        return None;
    }
    let rank = cx.ty(source).rank();
    // Where the axis of the parts is in what they were taken from.
    let along = if axis < from { axis } else { axis + 1 };
    let mut axes: Vec<usize> = (0..rank).filter(|&other| other != from).collect();
    axes.insert(axes.iter().position(|&other| other == along)?, from);
    let moved = cx.insert(Op::Permute(Permute { axes }), &[source])?;
    let dims = cx.ty(cx.output()?).dims.clone();
    cx.replace(Op::Reshape(Reshape { dims }), vec![Some(moved)])?;
    Some("concatenation of all of an axis")
}

/// For the `n`-th element along some axis of a value, without the axis: the value and the axis.
fn part_of_axis(cx: &Rewrite<'_>, part: ValueId, n: usize) -> Option<(ValueId, usize)> {
    let squeezed =
        cx.producer(part).filter(|node| matches!(node.op, Op::Reshape(_)) && cx.used_once(part))?;
    let sliced = squeezed.inputs.first().copied().flatten()?;
    let node = cx.producer(sliced).filter(|_| cx.used_once(sliced))?;
    let Op::Slice(Slice { ranges }) = &node.op else { return None };
    let source = node.inputs.first().copied().flatten()?;
    let dims = &cx.ty(source).dims;
    let whole = |axis: usize| {
        let range = &ranges[axis];
        range.step == 1 && range.start.is(0) && Some(&range.end) == dims.get(axis)
    };
    let mut cut = (0..ranges.len()).filter(|&axis| !whole(axis));
    let (axis, None) = (cut.next()?, cut.next()) else { return None };
    let (range, n) = (ranges.get(axis)?, i64::try_from(n).ok()?);
    let one = range.step == 1 && range.start.is(n) && range.end.is(n + 1);
    let rest = dims.iter().enumerate().filter(|&(other, _)| other != axis).map(|(_, dim)| dim);
    (one && cx.ty(part).dims.iter().eq(rest)).then_some((source, axis))
}

pub(super) fn pad(cx: &mut Rewrite<'_>, padding: &[(Dim, Dim)]) -> Option<&'static str> {
    let nothing = padding.iter().all(|(before, after)| before.is(0) && after.is(0));
    if nothing { same(cx, "padding of nothing") } else { None }
}

pub(super) fn repeat(cx: &mut Rewrite<'_>, times: &[Dim]) -> Option<&'static str> {
    let x = cx.input(0)?;
    if times.iter().all(|times| times.is(1)) {
        return same(cx, "repetition of one");
    }
    let spreads = times.iter().zip(&cx.ty(x).dims).all(|(times, size)| times.is(1) || size.is(1));
    if !spreads {
        return None;
    }
    let dims = times.iter().zip(&cx.ty(x).dims).map(|(times, size)| times * size).collect();
    cx.replace(Op::Expand(Expand { dims }), vec![Some(x)])?;
    Some("repetition of size 1")
}

pub(super) fn reduce(cx: &mut Rewrite<'_>, op: ReduceOp, axes: &[usize]) -> Option<&'static str> {
    let x = cx.input(0)?;
    let alone = axes.iter().all(|&axis| cx.ty(x).dims.get(axis).is_some_and(|dim| dim.is(1)));
    if !alone || matches!(op, ReduceOp::Any | ReduceOp::All) {
        return None;
    }
    let dims = cx.ty(cx.output()?).dims.clone();
    cx.replace(Op::Reshape(Reshape { dims }), vec![Some(x)])?;
    Some("reduction of size 1")
}

/// A convolution pads by itself.
pub(super) fn padded_conv(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let Op::Conv(Conv { options, activation }) = cx.op() else {
        return None;
    };
    let (mut options, activation) = (options.clone(), *activation);
    let x = cx.input(0)?;
    let node = cx.producer(x)?;
    let Op::Pad(Pad { padding, mode: PadMode::Constant, value }) = &node.op else {
        return None;
    };
    let zeros = value.to_f64() == 0.0;
    let spatial_only = padding.iter().take(2).all(|(before, after)| before.is(0) && after.is(0));
    if !zeros || !spatial_only {
        return None;
    }
    for (pad, (before, after)) in options.padding.iter_mut().zip(padding.iter().skip(2)) {
        pad.0 = pad.0.checked_add(before.as_size()?)?;
        pad.1 = pad.1.checked_add(after.as_size()?)?;
    }
    let mut inputs = cx.node().inputs.clone();
    *inputs.first_mut()? = *node.inputs.first()?;
    let origin = cx.node().origin.clone();
    cx.replace_as(Op::Conv(Conv { options, activation }), inputs, Some(origin))?;
    Some("padding into convolution")
}

/// The largest of windows over zeros around numbers that are not negative: zeros are no larger than what else is in a window, and a pool's own
/// padding is none of it.
pub(super) fn padded_max_pool(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let Op::Pool(Pool { op: PoolOp::Max, options }) = cx.op() else { return None };
    let mut options = options.clone();
    let node = cx.producer(cx.input(0)?)?;
    let Op::Pad(Pad { padding, mode: PadMode::Constant, value }) = &node.op else { return None };
    let source = node.inputs.first().copied().flatten()?;
    let not_negative = match &cx.producer(source)?.op {
        Op::Activation(Activation::Relu) => true,
        Op::Clamp(Clamp { min: Some(min), .. }) => min.to_f64() >= 0.0,
        _ => false,
    };
    let spatial_only = padding.iter().take(2).all(|(before, after)| before.is(0) && after.is(0));
    // In each window is something that is no padding then.
    let dense = !options.ceil_mode && options.dilation.iter().all(|&step| step == 1);
    if !not_negative || value.to_f64() != 0.0 || !spatial_only || !dense {
        return None;
    }
    let windows = options.padding.iter_mut().zip(&options.kernel);
    for ((pad, &kernel), (before, after)) in windows.zip(padding.iter().skip(2)) {
        let wider = |pad: usize, by: &Dim| pad.checked_add(by.as_size()?).filter(|&pad| pad < kernel);
        *pad = (wider(pad.0, before)?, wider(pad.1, after)?);
    }
    cx.replace(Op::Pool(Pool { op: PoolOp::Max, options }), vec![Some(source)])?;
    Some("padding into pooling")
}

/// A convolution of images that are one line high, made of lines, is one of lines: Keras' layers for sequences are written so.
pub(super) fn conv_of_lines(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let Op::Conv(Conv { options, activation }) = cx.op() else { return None };
    let (mut options, activation) = (options.clone(), *activation);
    let (x, weight) = (cx.input(0)?, cx.input(1)?);
    // Made of lines, and perhaps turned since.
    let source = |id: ValueId, kind: fn(&Op) -> bool| {
        let node = cx.producer(id).filter(|node| kind(&node.op))?;
        node.inputs.first().copied().flatten()
    };
    let turned = source(x, |op| matches!(op, Op::Permute(_)));
    source(turned.unwrap_or(x), |op| matches!(op, Op::Reshape(_)))?;
    let shape = cx.constant(weight)?.data.shape.clone();
    let (&[_, _, height, width], 2) = (shape.as_slice(), options.stride.len()) else { return None };
    // The axis of size 1, of the image and of the kernel.
    let is_flat = |axis: usize, kernel: usize| {
        let whole = options.stride.get(axis) == Some(&1) && options.padding.get(axis) == Some(&(0, 0));
        kernel == 1 && whole && cx.ty(x).dims.get(axis + 2).is_some_and(|dim| dim.is(1))
    };
    let flat = if is_flat(0, height) { 0 } else { is_flat(1, width).then_some(1)? };
    let without = |dims: &[Dim]| -> Vec<Dim> {
        dims.iter().enumerate().filter(|&(axis, _)| axis != flat + 2).map(|(_, dim)| dim.clone()).collect()
    };
    let mut kernel = shape;
    kernel.remove(flat + 2);
    let line = 1 - flat;
    options.stride = std::iter::once(*options.stride.get(line)?).collect();
    options.padding = std::iter::once(*options.padding.get(line)?).collect();
    options.dilation = std::iter::once(*options.dilation.get(line)?).collect();
    let dims = cx.ty(cx.output()?).dims.clone();
    let mut inputs = cx.node().inputs.iter().copied().collect::<Option<Vec<ValueId>>>()?;
    // Its residual, the fourth operand, has the result's dims.
    for (n, image) in [(0, x)].into_iter().chain(inputs.get(3).map(|&residual| (3, residual))) {
        let lines = Op::Reshape(Reshape { dims: without(&cx.ty(image).dims) });
        *inputs.get_mut(n)? = cx.insert(lines, &[image])?;
    }
    *inputs.get_mut(1)? = constant_as(cx, weight, kernel)?;
    let y = cx.insert_as(Op::Conv(Conv { options, activation }), &inputs, cx.node().origin.clone())?;
    cx.replace(Op::Reshape(Reshape { dims }), vec![Some(y)])?;
    Some("convolution of lines")
}

/// A convolution pads less where its result is cut off. Causal ones are spelled so: padded at both ends, without what the
/// padding behind yields.
fn cropped_conv(cx: &mut Rewrite<'_>, x: ValueId, ranges: &[AxisRange]) -> Option<&'static str> {
    let layer = cx.producer(x).filter(|_| cx.used_once(x))?;
    let Op::Conv(Conv { options, activation }) = &layer.op else {
        return None;
    };
    // A residual, the fourth operand, has the size of the whole result.
    if layer.inputs.len() > 3 || ranges.iter().any(|range| range.step != 1) {
        return None;
    }
    let (mut options, activation) = (options.clone(), *activation);
    let mut cut = Vec::with_capacity(ranges.len());
    for (range, size) in ranges.iter().zip(&cx.ty(x).dims) {
        cut.push((range.start.as_size()?, (size - &range.end).as_size()?));
    }
    let (others, spatial) = cut.split_at_checked(2)?;
    if others.iter().any(|&cut| cut != (0, 0)) {
        return None;
    }
    for ((padding, &stride), &(before, after)) in options.padding.iter_mut().zip(&options.stride).zip(spatial)
    {
        padding.0 = padding.0.checked_sub(before.checked_mul(stride)?)?;
        padding.1 = padding.1.checked_sub(after.checked_mul(stride)?)?;
    }
    let (inputs, origin) = (layer.inputs.clone(), layer.origin.clone());
    cx.replace_as(Op::Conv(Conv { options, activation }), inputs, Some(origin))?;
    Some("slice into convolution")
}

/// A bias of zeros or a scale of ones that an exporter put where the model has none: it has no name.
pub(super) fn no_parameter(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let mut inputs = cx.node().inputs.clone();
    let is_made_up = |id: &Option<ValueId>, number: f64| {
        let unnamed = |id: ValueId| cx.constant(id).is_none_or(|constant| constant.name.is_none());
        id.is_some_and(|id| cx.uniform(id) == Some(number) && unnamed(id))
    };
    let bias = inputs.get(2).is_some_and(|id| is_made_up(id, 0.0));
    let optional_weight = matches!(cx.op(), Op::GroupNorm(_));
    let weight = optional_weight && inputs.get(1).is_some_and(|id| is_made_up(id, 1.0));
    if !bias && !weight {
        return None;
    }
    if bias && let Some(slot) = inputs.get_mut(2) {
        *slot = None;
    }
    if weight && let Some(slot) = inputs.get_mut(1) {
        *slot = None;
    }
    // A residual stays where it is.
    while inputs.last() == Some(&None) {
        inputs.pop();
    }
    let (op, origin) = (cx.op().clone(), cx.node().origin.clone());
    cx.replace_as(op, inputs, Some(origin))?;
    Some("made-up parameter")
}

/// Zero is what a recurrent layer starts from anyway.
pub(super) fn zero_state(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let mut inputs = cx.node().inputs.clone();
    let mut changed = false;
    for state in inputs.iter_mut().take(7).skip(5) {
        if state.is_some_and(|id| cx.uniform(id) == Some(0.0)) {
            *state = None;
            changed = true;
        }
    }
    if !changed {
        return None;
    }
    while inputs.last() == Some(&None) {
        inputs.pop();
    }
    let (op, origin) = (cx.op().clone(), cx.node().origin.clone());
    cx.replace_as(op, inputs, Some(origin))?;
    Some("zero initial state")
}

/// Every row in its order is the whole; one row of an axis is a slice: no index is needed.
pub(super) fn take(cx: &mut Rewrite<'_>, axis: usize) -> Option<&'static str> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    if super::rows::takes_all(cx, x, index, axis) {
        let dims = cx.ty(cx.output()?).dims.clone();
        cx.redirect(x).or_else(|| cx.replace(Op::Reshape(Reshape { dims }), vec![Some(x)]))?;
        return Some("all rows");
    }
    let index_ty = cx.ty(index);
    if index_ty.num_elements() != Dim::constant(1) || cx.constant(x).is_some() {
        return None;
    }
    let index = cx.graph().number(index)?.to_i64();
    let size = cx.ty(x).dims.get(axis)?.clone();
    let start = if index < 0 { &size + &Dim::constant(index) } else { Dim::constant(index) };
    let mut ranges: Vec<AxisRange> =
        cx.ty(x).dims.iter().map(|dim| AxisRange { start: 0.into(), end: dim.clone(), step: 1 }).collect();
    *ranges.get_mut(axis)? = AxisRange { end: &start + &Dim::constant(1), start, step: 1 };
    let dims = cx.ty(cx.output()?).dims.clone();
    let row = cx.insert(Op::Slice(Slice { ranges }), &[x])?;
    cx.replace(Op::Reshape(Reshape { dims }), vec![Some(row)])?;
    Some("row as a slice")
}

/// A sum over axes divided by their size.
pub(super) fn mean(cx: &mut Rewrite<'_>, op: BinaryOp) -> Option<&'static str> {
    if !matches!(op, BinaryOp::Mul | BinaryOp::Div) {
        return None;
    }
    let (factor, sum) = cx.scaled(cx.output()?);
    let node = cx.producer(sum).filter(|_| cx.used_once(sum))?;
    let Op::Reduce(Reduce { op: ReduceOp::Sum, axes, keep_dims }) = node.op.clone() else {
        return None;
    };
    let x = node.inputs.first().copied().flatten().filter(|&x| cx.ty(x).dtype.is_float())?;
    let count = Dim::product(axes.iter().filter_map(|&axis| cx.ty(x).dims.get(axis))).as_size()?;
    // A number of the tensor's dtype: its reciprocal is rounded to that.
    let step = match cx.ty(x).dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => f64::from(f32::EPSILON),
    };
    if (factor * count as f64 - 1.0).abs() > 2.0 * step {
        return None;
    }
    cx.replace(Op::Reduce(Reduce { op: ReduceOp::Mean, axes, keep_dims }), vec![Some(x)])?;
    Some("mean")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BatchNorm, Builder, Take};
    use crate::passes::testing::{checked, constant, graph, kinds, single};
    use kiln_types::{Activation, ConvOptions, TensorData};

    /// Numbers for a kernel, which differ.
    fn weight(b: &mut Builder<'_>, shape: &[usize]) -> ValueId {
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|i| (i % 11) as f32 * 0.1 - 0.5).collect();
        constant(b, Some("weight"), shape, &values)
    }

    /// What remains when so much is cut off the ends of the axes behind the first two.
    fn cropped(b: &mut Builder<'_>, x: ValueId, cut: &[(usize, usize)]) -> ValueId {
        let dims = b.graph.ty(x).dims.clone();
        let cut = [(0, 0), (0, 0)].iter().chain(cut);
        let range = |(size, &(before, after)): (&Dim, &(usize, usize))| AxisRange {
            start: before.into(),
            end: size - &Dim::from(after),
            step: 1,
        };
        let ranges = dims.iter().zip(cut).map(range).collect();
        b.add(Op::Slice(Slice { ranges }), &[x]).unwrap()
    }

    #[test]
    fn convolutions_leave_out_what_is_cut_off() {
        struct Case {
            stride: [usize; 2],
            cut: [(usize, usize); 2],
            /// The padding that is left of 4 and 3.
            left: [(usize, usize); 2],
        }
        let cases = [
            Case { stride: [1, 1], cut: [(0, 1), (0, 0)], left: [(4, 3), (3, 3)] },
            Case { stride: [1, 1], cut: [(2, 4), (3, 3)], left: [(2, 0), (0, 0)] },
            Case { stride: [2, 3], cut: [(0, 2), (1, 0)], left: [(4, 0), (0, 3)] },
            Case { stride: [2, 1], cut: [(1, 1), (0, 0)], left: [(2, 2), (3, 3)] },
        ];
        for activation in [None, Some(Activation::Relu)] {
            for &Case { stride, cut, left } in &cases {
                let mut options = ConvOptions::new(stride, [4, 3], [2, 1], 1);
                let g = graph(&["f32[n, 2, 9, 8]"], |b, x| {
                    let weight = weight(b, &[3, 2, 3, 4]);
                    let op = Op::Conv(Conv { options: options.clone(), activation });
                    let y = b.add(op, &[x[0], weight]).unwrap();
                    vec![cropped(b, y, &cut)]
                });
                options.padding = left.into_iter().collect();
                assert_eq!(single(&checked(g, &[("n", 2)])).op, Op::Conv(Conv { options, activation }));
            }
        }
    }

    #[test]
    fn causal_convolutions_of_any_length_pad_in_front() {
        let mut options = ConvOptions::new([1], [4], [2], 2);
        let g = graph(&["f32[n, 4, t]"], |b, x| {
            let weight = weight(b, &[4, 2, 3]);
            let op = Op::Conv(Conv { options: options.clone(), activation: None });
            let y = b.add(op, &[x[0], weight]).unwrap();
            vec![cropped(b, y, &[(0, 4)])]
        });
        options.padding = [(4, 0)].into_iter().collect();
        let g = checked(g, &[("n", 2), ("t", 7)]);
        assert_eq!(single(&g).op, Op::Conv(Conv { options, activation: None }));
    }

    #[test]
    fn what_is_cut_off_more_than_padding_or_needed_elsewhere_stays() {
        let conv = |b: &mut Builder<'_>, x: ValueId| {
            let weight = weight(b, &[2, 2, 3]);
            let options = ConvOptions::new([2], [2], [1], 1);
            b.add(Op::Conv(Conv { options, activation: None }), &[x, weight]).unwrap()
        };
        let g = graph(&["f32[2, 2, 9]"], |b, x| {
            let y = conv(b, x[0]);
            vec![cropped(b, y, &[(0, 2)])]
        });
        assert_eq!(kinds(&checked(g, &[])), ["Conv", "Slice"]);
        let g = graph(&["f32[2, 2, 9]"], |b, x| {
            let y = conv(b, x[0]);
            vec![cropped(b, y, &[(0, 1)]), y]
        });
        assert_eq!(kinds(&checked(g, &[])), ["Conv", "Slice"]);
        let g = graph(&["f32[2, 2, 9]"], |b, x| {
            let y = conv(b, x[0]);
            let ranges = [(0, 2), (0, 1), (0, 5)];
            let ranges =
                ranges.map(|(start, end)| AxisRange { start: start.into(), end: end.into(), step: 1 });
            vec![b.add(Op::Slice(Slice { ranges: ranges.to_vec() }), &[y]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[])), ["Conv", "Slice"]);
    }

    #[test]
    fn what_is_added_to_a_convolution_outlives_its_bias() {
        let g = graph(&["f32[n, 2, 5]"], |b, x| {
            let r = b.add(Op::Activation(Activation::Relu), &[x[0]]).unwrap();
            let weight = weight(b, &[2, 2, 3]);
            let op = Op::Conv(Conv { options: ConvOptions::new([1], [1], [1], 1), activation: None });
            let c = b.add(op, &[r, weight]).unwrap();
            let (one, zero) = (constant(b, None, &[2], &[1.0; 2]), constant(b, None, &[2], &[0.0; 2]));
            let norm = Op::BatchNorm(BatchNorm { epsilon: 0.0, momentum: None });
            let n = b.add(norm, &[c, one, zero, zero, one]).unwrap();
            vec![b.add(Op::Binary(BinaryOp::Add), &[n, x[0]]).unwrap()]
        });
        let g = checked(g, &[("n", 2)]);
        assert_eq!(kinds(&g), ["Activation", "Conv"]);
        let layer = g.node(g.root.nodes[1]);
        assert_eq!(layer.inputs[2..], [None, Some(g.inputs[0])]);
    }

    #[test]
    fn all_rows_in_order_need_no_index() {
        let cases = [
            ("f32[3, 2]", vec![3], vec!["Binary(Add)"]),
            ("f32[n, 3, 2]", vec![1, 3], vec!["Reshape", "Binary(Add)"]),
        ];
        for (other, shape, expected) in cases {
            let g = graph(&["f32[3, 2]", other], |b, x| {
                let rows = b.graph.add_constant(None, TensorData::new(vec![0i64, 1, 2], shape));
                let taken = b.add(Op::Take(Take { axis: 0, wrapped: false }), &[x[0], rows]).unwrap();
                vec![b.add(Op::Binary(BinaryOp::Add), &[x[1], taken]).unwrap()]
            });
            let g = checked(g, &[("n", 2)]);
            let kinds: Vec<String> = g.root.nodes.iter().map(|&id| g.node(id).op.kind()).collect();
            assert_eq!(kinds, expected);
        }
    }
}
