//! Transposes and reshapes that cancel, merge, or move to where they do.

use super::{Rewrite, Rule};
use crate::ir::{
    Concat, Dim, Fill, Node, Op, Permute, Provenance, Reduce, Reshape, SelectAssign, Slice, ValueId,
};
use kiln_types::TensorData;

pub(super) const RULE: Rule = Rule { apply };

/// Elementwise operations that a transpose moves through at most.
const MAX_CHAIN: usize = 8;

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op().clone() {
        Op::Permute(Permute { axes }) => permute(cx, &axes),
        Op::Reshape(Reshape { dims }) => reshape(cx, &dims),
        Op::Reduce(Reduce { op, axes, keep_dims: false }) => {
            let (x, inner) = permuted(cx, cx.input(0)?)?;
            let from: Vec<usize> = inner
                .iter()
                .copied()
                .enumerate()
                .filter_map(|(i, axis)| (!axes.contains(&i)).then_some(axis))
                .collect();
            if !from.is_sorted() {
                return None;
            }
            let mut axes: Vec<usize> = axes.iter().map(|&axis| inner[axis]).collect();
            axes.sort_unstable();
            cx.replace(Op::Reduce(Reduce { op, axes, keep_dims: false }), vec![Some(x)])?;
            Some("transpose before reduction")
        }
        Op::Binary(_) => sink_shared(cx),
        _ => None,
    }
}

/// The operand and axes of a permutation.
fn permuted(cx: &Rewrite<'_>, id: ValueId) -> Option<(ValueId, Vec<usize>)> {
    let node = cx.producer(id)?;
    match &node.op {
        Op::Permute(Permute { axes }) => Some((node.inputs.first().copied().flatten()?, axes.clone())),
        _ => None,
    }
}

/// `outer` after `inner`.
fn compose(inner: &[usize], outer: &[usize]) -> Vec<usize> {
    outer.iter().map(|&axis| inner[axis]).collect()
}

fn permute(cx: &mut Rewrite<'_>, axes: &[usize]) -> Option<&'static str> {
    let x = cx.input(0)?;
    if axes.is_sorted() {
        cx.redirect(x)?;
        return Some("transpose of nothing");
    }
    if let Some(what) = around_slice(cx, axes) {
        return Some(what);
    }
    // Only axes of size 1 move: nothing does.
    let dims = &cx.ty(x).dims;
    if axes.iter().filter(|&&axis| !dims[axis].is(1)).is_sorted() {
        let dims = axes.iter().map(|&axis| dims[axis].clone()).collect();
        cx.replace(Op::Reshape(Reshape { dims }), vec![Some(x)])?;
        return Some("transpose as reshape");
    }
    if let Some((source, inner)) = permuted(cx, x) {
        let merged = compose(&inner, axes);
        if merged.is_sorted() {
            cx.redirect(source)?;
            return Some("transposes that cancel");
        }
        cx.replace(Op::Permute(Permute { axes: merged }), vec![Some(source)])?;
        return Some("transposes that merge");
    }
    if let Some(what) =
        around_join(cx, axes).or_else(|| over_unit_reshape(cx, axes)).or_else(|| around_assignment(cx, axes))
    {
        return Some(what);
    }
    if let Op::Fill(Fill { value, dtype, .. }) = cx.producer(x)?.op {
        let dims = cx.ty(cx.output()?).dims.clone();
        cx.replace(Op::Fill(Fill { dims, value, dtype }), Vec::new())?;
        return Some("transpose of one value");
    }
    through_elementwise(cx, axes)
}

/// `permute(slice(permute(x)))`: the transposes meet behind the slice.
fn around_slice(cx: &mut Rewrite<'_>, axes: &[usize]) -> Option<&'static str> {
    let sliced = cx.input(0).filter(|&sliced| cx.used_once(sliced))?;
    let node = cx.producer(sliced)?;
    let Op::Slice(Slice { ranges }) = &node.op else { return None };
    let (source, inner) = permuted(cx, node.inputs.first().copied().flatten()?)?;
    let mut by_source: Vec<_> = inner.iter().zip(ranges.clone()).collect();
    by_source.sort_by_key(|&(&axis, _)| axis);
    let ranges = by_source.into_iter().map(|(_, range)| range).collect();
    let moved = cx.insert(Op::Slice(Slice { ranges }), &[source])?;
    cx.replace(Op::Permute(Permute { axes: compose(&inner, axes) }), vec![Some(moved)])?;
    Some("transposes around a slice")
}

/// `permute(concat(…))` of transposes, or slices of some, of which it cancels at least one and merges with the others: the rest is joined
/// along another axis.
fn around_join(cx: &mut Rewrite<'_>, axes: &[usize]) -> Option<&'static str> {
    let joined = cx.input(0).filter(|&joined| cx.used_once(joined))?;
    let node = cx.producer(joined)?;
    let Op::Concat(Concat { axis }) = node.op else { return None };
    let parts = node.inputs.iter().copied().collect::<Option<Vec<ValueId>>>()?;
    let cancels = |&part: &ValueId| {
        let sliced = cx.producer(part).filter(|node| matches!(node.op, Op::Slice(_)) && cx.used_once(part));
        let turned = sliced.map_or(Some(part), |node| node.inputs.first().copied().flatten());
        let inner = turned.and_then(|turned| permuted(cx, turned));
        inner.is_some_and(|(_, inner)| compose(&inner, axes).is_sorted())
    };
    let costs_nothing = |&part: &ValueId| match cx.producer(part).map(|node| &node.op) {
        Some(Op::Permute(_)) => cx.used_once(part),
        Some(Op::Fill(_)) => true,
        _ => false,
    };
    if !parts.iter().any(cancels) || !parts.iter().all(|part| cancels(part) || costs_nothing(part)) {
        return None;
    }
    let turn = |&part: &ValueId| cx.insert(Op::Permute(Permute { axes: axes.to_vec() }), &[part]).map(Some);
    let parts = parts.iter().map(turn).collect::<Option<Vec<_>>>()?;
    let axis = axes.iter().position(|&from| from == axis)?;
    cx.replace(Op::Concat(Concat { axis }), parts)?;
    Some("transposes around a concatenation")
}

/// `permute(reshape(permute(x)))`, where the reshape only puts in or takes out axes of size 1: the transposes meet.
fn over_unit_reshape(cx: &mut Rewrite<'_>, axes: &[usize]) -> Option<&'static str> {
    let (x, inner) = through_unit_reshape(cx, cx.input(0)?, axes)?;
    permuted(cx, x)?;
    let dims = cx.ty(cx.output()?).dims.clone();
    let turned = cx.insert(Op::Permute(Permute { axes: inner }), &[x])?;
    cx.replace(Op::Reshape(Reshape { dims }), vec![Some(turned)])?;
    Some("transpose through reshape")
}

/// `reshape(permute(reshape(x)))`, where the inner one only puts in or takes out axes of size 1, and the outer one too unless both are of one
/// module: the reshapes meet.
fn around_transpose(cx: &mut Rewrite<'_>, y: ValueId, dims: &[Dim]) -> Option<&'static str> {
    let (turned, axes) = permuted(cx, y).filter(|_| cx.used_once(y))?;
    let wide = |dims: &[Dim]| -> Vec<Dim> { dims.iter().filter(|dim| !dim.is(1)).cloned().collect() };
    let of_one_module = cx.producer(turned)?.origin.scope == cx.node().origin.scope;
    if !of_one_module && wide(&cx.ty(y).dims) != wide(dims) {
        return None;
    }
    let (x, inner) = through_unit_reshape(cx, turned, &axes)?;
    let turned = cx.insert(Op::Permute(Permute { axes: inner }), &[x])?;
    cx.replace(Op::Reshape(Reshape { dims: dims.to_vec() }), vec![Some(turned)])?;
    Some("reshapes around a transpose")
}

/// For `y`, a reshape used once that only puts in or takes out axes of size 1: what it is of, and how that is transposed
/// as `axes` do it with `y`.
fn through_unit_reshape(cx: &Rewrite<'_>, y: ValueId, axes: &[usize]) -> Option<(ValueId, Vec<usize>)> {
    let node = cx.producer(y).filter(|node| matches!(node.op, Op::Reshape(_)) && cx.used_once(y))?;
    let x = node.inputs.first().copied().flatten()?;
    let wide = |id: ValueId| -> Vec<usize> {
        cx.ty(id).dims.iter().enumerate().filter_map(|(i, dim)| (!dim.is(1)).then_some(i)).collect()
    };
    let (from, to) = (wide(x), wide(y));
    let same =
        from.len() == to.len() && from.iter().zip(&to).all(|(&i, &j)| cx.ty(x).dims[i] == cx.ty(y).dims[j]);
    if !same {
        return None;
    }
    // Axes of size 1 stay in front; the others come in the order in which `axes` takes them.
    let order = axes.iter().filter_map(|axis| to.iter().position(|j| j == axis)).map(|n| from[n]);
    Some((x, (0..cx.ty(x).rank()).filter(|i| !from.contains(i)).chain(order).collect()))
}

/// `permute(select_assign(permute(x)))`, where the transposes cancel: parts of another axis are assigned.
fn around_assignment(cx: &mut Rewrite<'_>, axes: &[usize]) -> Option<&'static str> {
    let y = cx.input(0)?;
    let node = cx.producer(y).filter(|_| cx.used_once(y))?.clone();
    let (Op::SelectAssign(SelectAssign { axis, op }), &[x, indices, updates]) = (&node.op, &*node.inputs)
    else {
        return None;
    };
    let (source, inner) = permuted(cx, x?)?;
    if !compose(&inner, axes).is_sorted() {
        return None;
    }
    let updates = cx.insert(Op::Permute(Permute { axes: axes.to_vec() }), &[updates?])?;
    let assign = SelectAssign { axis: *inner.get(*axis)?, op: *op };
    cx.replace(Op::SelectAssign(assign), vec![Some(source), indices, Some(updates)])?;
    Some("transposes around an assignment")
}

/// `permute(f(permute(x)))` is `f(permute(permute(x)))`, for any chain `f` of elementwise operations with constants: one
/// transpose less, or two.
fn through_elementwise(cx: &mut Rewrite<'_>, axes: &[usize]) -> Option<&'static str> {
    // The chain, last operation first, with the place of the operand that is no constant.
    let mut chain: Vec<(Node, usize)> = Vec::new();
    let mut at = cx.input(0)?;
    let (source, inner) = loop {
        if let Some(found) = permuted(cx, at).filter(|_| !chain.is_empty()) {
            break found;
        }
        let node = cx.producer(at).filter(|_| cx.used_once(at) && chain.len() < MAX_CHAIN)?.clone();
        match node.op {
            Op::Unary(_) | Op::Activation(_) | Op::Clamp(_) | Op::Cast(_) | Op::Binary(_) => {}
            _ => return None,
        }
        let mut moving =
            (0..node.inputs.len()).filter(|&n| node.inputs[n].is_some_and(|id| cx.constant(id).is_none()));
        let (n, None) = (moving.next()?, moving.next()) else {
            return None;
        };
        at = node.inputs[n]?;
        chain.push((node, n));
    };
    let merged = compose(&inner, axes);
    let mut value = match merged.is_sorted() {
        true => source,
        false => cx.insert(Op::Permute(Permute { axes: merged }), &[source])?,
    };
    while let Some((node, n)) = chain.pop() {
        let mut operands = Vec::with_capacity(node.inputs.len());
        for (i, id) in node.inputs.iter().enumerate() {
            operands.push(if i == n { value } else { permuted_constant(cx, (*id)?, axes)? });
        }
        if chain.is_empty() {
            cx.replace(node.op, operands.into_iter().map(Some).collect())?;
        } else {
            value = cx.insert(node.op, &operands)?;
        }
    }
    Some("transpose through elementwise")
}

/// A constant operand as it must be when everything is permuted.
fn permuted_constant(cx: &mut Rewrite<'_>, id: ValueId, axes: &[usize]) -> Option<ValueId> {
    if cx.ty(id).rank() == 0 {
        return Some(id);
    }
    let constant = cx.constant(id)?;
    let name = constant.name.clone();
    let op = Op::Permute(Permute { axes: axes.to_vec() });
    cx.remake(&constant.data)?;
    let data = op.evaluate(&[Some(&constant.data)])?.pop()?;
    let provenance = Provenance::of_operation(&op, &[(constant.provenance.clone(), &constant.data)]);
    Some(cx.add_derived(name, data, provenance))
}

/// `permute(x) + permute(y)` is `permute(x + y)`.
fn sink_shared(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let ((x, axes), (y, other)) = (permuted(cx, a)?, permuted(cx, b)?);
    if axes != other || !cx.used_once(a) || !cx.used_once(b) || a == b {
        return None;
    }
    let op = cx.op().clone();
    let result = cx.insert(op, &[x, y])?;
    cx.replace(Op::Permute(Permute { axes }), vec![Some(result)])?;
    Some("transpose after both operands")
}

fn reshape(cx: &mut Rewrite<'_>, dims: &[Dim]) -> Option<&'static str> {
    let x = cx.input(0)?;
    if cx.ty(x).dims == dims {
        cx.redirect(x)?;
        return Some("reshape to itself");
    }
    let node = cx.producer(x)?;
    let source = node.inputs.first().copied().flatten();
    match node.op {
        Op::Reshape(_) => {
            let source = source?;
            if cx.ty(source).dims == dims {
                cx.redirect(source)?;
                return Some("reshapes that cancel");
            }
            cx.replace(Op::Reshape(Reshape { dims: dims.to_vec() }), vec![Some(source)])?;
            Some("reshapes that merge")
        }
        Op::Fill(Fill { value, dtype, .. }) => {
            cx.replace(Op::Fill(Fill { dims: dims.to_vec(), value, dtype }), Vec::new())?;
            Some("reshape of one value")
        }
        Op::Linear(_) => around_linear(cx, x, dims),
        Op::Permute(_) => before_matrix_transpose(cx, x, dims).or_else(|| around_transpose(cx, x, dims)),
        Op::Reduce(Reduce { keep_dims: false, .. }) => keeps_axes(cx, x, dims),
        _ => None,
    }
}

/// A reduction that drops its axes and a reshape that puts them back.
fn keeps_axes(cx: &mut Rewrite<'_>, y: ValueId, dims: &[Dim]) -> Option<&'static str> {
    let node = cx.producer(y).filter(|_| cx.used_once(y))?.clone();
    let Op::Reduce(Reduce { op, axes, .. }) = node.op else {
        return None;
    };
    let x = node.inputs.first().copied().flatten()?;
    let kept = cx.ty(x).dims.iter().enumerate();
    let kept: Vec<Dim> =
        kept.map(|(i, dim)| if axes.contains(&i) { Dim::constant(1) } else { dim.clone() }).collect();
    if kept != dims {
        return None;
    }
    cx.replace(Op::Reduce(Reduce { op, axes, keep_dims: true }), vec![Some(x)])?;
    Some("reduction that keeps its axes")
}

/// `reshape(permute(reshape(x)))` that regroups axes before the matrices that the transpose turns: the reshapes meet.
fn before_matrix_transpose(cx: &mut Rewrite<'_>, y: ValueId, dims: &[Dim]) -> Option<&'static str> {
    let (x, axes) = permuted(cx, y).filter(|_| cx.used_once(y))?;
    let (lead, &[row, column]) = axes.split_last_chunk::<2>()?;
    let turns = lead.is_sorted() && row == lead.len() + 1 && column == lead.len();
    let source = cx.producer(x).filter(|node| matches!(node.op, Op::Reshape(_)))?;
    let source = source.inputs.first().copied().flatten()?;
    let (lead, [rows, columns]) = dims.split_last_chunk::<2>()?;
    let keeps = cx.ty(y).dims.ends_with(&[rows.clone(), columns.clone()]);
    if !turns || !keeps || !cx.used_once(x) {
        return None;
    }
    let wanted: Vec<Dim> = lead.iter().chain([columns, rows]).cloned().collect();
    let source = match cx.ty(source).dims == wanted {
        true => source,
        false => cx.insert(Op::Reshape(Reshape { dims: wanted }), &[source])?,
    };
    let n = lead.len();
    let axes = (0..n).chain([n + 1, n]).collect();
    cx.replace(Op::Permute(Permute { axes }), vec![Some(source)])?;
    Some("reshape through transpose")
}

/// `reshape(linear(reshape(x)))` that folds leading axes together and apart again: a linear layer takes any.
fn around_linear(cx: &mut Rewrite<'_>, y: ValueId, dims: &[Dim]) -> Option<&'static str> {
    let linear = cx.producer(y)?.clone();
    let x = linear.inputs.first().copied().flatten()?;
    let inner = cx.producer(x).filter(|node| matches!(node.op, Op::Reshape(_)))?;
    let source = inner.inputs.first().copied().flatten()?;
    let (features, rows) = cx.ty(x).dims.split_last()?;
    let (out, lead) = dims.split_last()?;
    let same_rows = Dim::product(rows) == Dim::product(lead) && cx.ty(y).dims.last() == Some(out);
    if !cx.used_once(y) {
        return None;
    }
    if !same_rows {
        return before_parts(cx, linear, source, dims);
    }
    let wanted: Vec<Dim> = lead.iter().chain([features]).cloned().collect();
    let source = match cx.ty(source).dims == wanted {
        true => source,
        // The layer's module holds the layer alone.
        false => {
            let origin = cx.producer(source).unwrap_or(cx.node()).origin.clone();
            cx.insert_as(Op::Reshape(Reshape { dims: wanted }), &[source], origin)?
        }
    };
    let mut inputs = linear.inputs;
    inputs[0] = Some(source);
    cx.replace_as(linear.op, inputs, Some(linear.origin))?;
    Some("reshapes around a linear layer")
}

/// `reshape(linear(reshape(x)))` that folds leading axes together and apart again, and splits what the layer yields into parts.
fn before_parts(cx: &mut Rewrite<'_>, linear: Node, source: ValueId, dims: &[Dim]) -> Option<&'static str> {
    let x = linear.inputs.first().copied().flatten()?;
    let (features, lead) = cx.ty(source).dims.split_last()?;
    let folds = cx.ty(x).dims.last() == Some(features) && lead.len() + 1 != cx.ty(x).rank();
    if !folds || lead.is_empty() || !dims.starts_with(lead) || dims.len() < lead.len() + 2 {
        return None;
    }
    let mut inputs = linear.inputs.iter().copied().collect::<Option<Vec<ValueId>>>()?;
    *inputs.first_mut()? = source;
    let layer = cx.insert_as(linear.op, &inputs, linear.origin)?;
    cx.replace(Op::Reshape(Reshape { dims: dims.to_vec() }), vec![Some(layer)])?;
    Some("reshape around a linear layer")
}

/// A constant with the given dims; keeps its name.
pub(super) fn constant_as(cx: &mut Rewrite<'_>, id: ValueId, shape: Vec<usize>) -> Option<ValueId> {
    let constant = cx.constant(id)?;
    if constant.data.shape == shape {
        return Some(id);
    }
    let (name, old) = (constant.name.clone(), &constant.data);
    let op = Op::Reshape(Reshape { dims: shape.iter().map(|&size| size.into()).collect() });
    let provenance = Provenance::of_operation(&op, &[(constant.provenance.clone(), old)]);
    let data = TensorData::from_bytes(old.bytes.clone(), shape, old.dtype).ok()?;
    Some(cx.add_derived(name, data, provenance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Arange, AxisRange, Permute, Reshape};
    use crate::passes::testing::{checked, constant, graph, kinds, optimized};
    use kiln_types::{BinaryOp, UnaryOp};

    fn turn(axes: &[usize]) -> Op {
        Op::Permute(Permute { axes: axes.to_vec() })
    }

    /// A cache `[batch, heads, positions, size]` whose positions are assigned as `index_put` writes it: by the first axis of a transpose.
    fn cache(back: &[usize]) -> crate::ir::Graph {
        graph(&["f32[1, 3, 5, 2]", "f32[1, 3, 2, 2]"], |g, x| {
            let list = Op::Arange(Arange { start: 2.into(), end: 4.into(), step: 1 });
            let list = g.add(list, &[]).unwrap();
            let [cache, new] = [x[0], x[1]].map(|x| g.add(turn(&[2, 0, 1, 3]), &[x]).unwrap());
            let assign = SelectAssign { axis: 0, op: kiln_types::ScatterOp::Assign };
            let assigned = g.add(Op::SelectAssign(assign), &[cache, list, new]).unwrap();
            vec![g.add(turn(back), &[assigned]).unwrap()]
        })
    }

    #[test]
    fn transposes_around_an_assignment_cancel() {
        let g = checked(cache(&[1, 2, 0, 3]), &[]);
        assert_eq!(kinds(&g), ["Arange", "SelectAssign"], "{g}");
        let g = checked(cache(&[0, 2, 1, 3]), &[]);
        assert!(kinds(&g).contains(&"Permute".to_owned()), "{g}");
    }

    #[test]
    fn transposes_around_a_slice_cancel() {
        let g = graph(&["f32[n, 3, 4]"], |b, x| {
            let turned = b.add(turn(&[2, 0, 1]), &[x[0]]).unwrap();
            let range = |start: i64, end: Dim| AxisRange { start: start.into(), end, step: 1 };
            let ranges = vec![range(1, 3.into()), range(0, Dim::symbol("n")), range(2, 3.into())];
            let part = b.add(Op::Slice(Slice { ranges }), &[turned]).unwrap();
            vec![b.add(turn(&[1, 2, 0]), &[part]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[("n", 2)])), ["Slice"]);
    }

    #[test]
    fn transposes_around_a_concatenation_cancel() {
        // `x[:, 1:3] += 1`, as exporters write it.
        let g = graph(&["f32[n, 4]"], |b, x| {
            let range = |start: i64, end: Dim| AxisRange { start: start.into(), end, step: 1 };
            let columns = |start: i64, end: i64| vec![range(start, end.into()), range(0, Dim::symbol("n"))];
            let turned = b.add(turn(&[1, 0]), &[x[0]]).unwrap();
            let [first, middle, last] = [(0, 1), (1, 3), (3, 4)].map(|(start, end)| {
                b.add(Op::Slice(Slice { ranges: columns(start, end) }), &[turned]).unwrap()
            });
            let middle = b.add(turn(&[1, 0]), &[middle]).unwrap();
            let middle = b.add(Op::Unary(UnaryOp::Exp), &[middle]).unwrap();
            let middle = b.add(turn(&[1, 0]), &[middle]).unwrap();
            let joined = b.add(Op::Concat(Concat { axis: 0 }), &[first, middle, last]).unwrap();
            vec![b.add(turn(&[1, 0]), &[joined]).unwrap()]
        });
        let g = checked(g, &[("n", 2)]);
        assert!(!kinds(&g).contains(&"Permute".to_owned()), "{g}");
    }

    #[test]
    fn a_transpose_of_joined_transposes_meets_them() {
        let g = graph(&["f32[n, 2, s, 4]", "f32[n, s, 2, 6]"], |b, x| {
            let kept = b.add(turn(&[3, 1, 2, 0]), &[x[0]]).unwrap();
            let turned = b.add(turn(&[3, 2, 1, 0]), &[x[1]]).unwrap();
            let joined = b.add(Op::Concat(Concat { axis: 0 }), &[kept, turned]).unwrap();
            vec![b.add(turn(&[3, 1, 2, 0]), &[joined]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[("n", 2), ("s", 3)])), ["Permute", "Concat"]);
    }

    #[test]
    fn reshapes_around_a_transpose_meet() {
        let g = graph(&["f32[n, 3, 4]"], |b, x| {
            let shaped = |dims: &[Dim]| Op::Reshape(Reshape { dims: dims.to_vec() });
            let n = Dim::symbol("n");
            let wide = b.add(shaped(&[n.clone(), 3.into(), 4.into(), 1.into()]), &[x[0]]).unwrap();
            let turned = b.add(turn(&[0, 2, 1, 3]), &[wide]).unwrap();
            vec![b.add(shaped(&[n, 4.into(), 3.into()]), &[turned]).unwrap()]
        });
        assert_eq!(kinds(&checked(g, &[("n", 2)])), ["Permute"]);
    }

    #[test]
    fn transposes_cancel_through_elementwise() {
        let g = graph(&["f32[n, 3, 4, 5]"], |b, x| {
            let back = b.add(turn(&[0, 2, 3, 1]), &[x[0]]).unwrap();
            let bias = constant(b, Some("bias"), &[1, 1, 1, 3], &[1.0, 2.0, 3.0]);
            let sum = b.add(Op::Binary(BinaryOp::Add), &[back, bias]).unwrap();
            let y = b.add(Op::Unary(UnaryOp::Exp), &[sum]).unwrap();
            vec![b.add(turn(&[0, 3, 1, 2]), &[y]).unwrap()]
        });
        let g = optimized(g);
        assert_eq!(kinds(&g), ["Binary(Add)", "Unary(Exp)"], "{g}");
    }

    #[test]
    fn reshapes_cancel() {
        let g = graph(&["f32[n, 3, 4]"], |b, x| {
            let dims = vec![Dim::symbol("n"), 12.into()];
            let flat = b.add(Op::Reshape(Reshape { dims }), &[x[0]]).unwrap();
            let dims = vec![Dim::symbol("n"), 3.into(), 4.into()];
            let y = b.add(Op::Reshape(Reshape { dims }), &[flat]).unwrap();
            vec![b.add(Op::Unary(UnaryOp::Exp), &[y]).unwrap()]
        });
        assert_eq!(kinds(&optimized(g)), ["Unary(Exp)"]);
    }
}
