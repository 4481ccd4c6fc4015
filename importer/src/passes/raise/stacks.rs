//! Products of stacks of matrices, as attention has them, that were turned around or folded on the way.
//!
//! Exporters that write `einsum` out fold the leading axes of both sides into one and take them apart behind the product, and compute
//! scores with the keys first where that saves them a transpose.

use crate::ir::{Dim, Op, Permute, Reshape, Softmax, ValueId};
use crate::passes::{Rewrite, Rule};

pub(in crate::passes) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op().clone() {
        Op::Reshape(Reshape { dims }) => folded(cx, &dims),
        Op::Permute(Permute { axes }) => turned_product(cx, &axes)
            .or_else(|| before_softmax(cx, &axes))
            .or_else(|| across_operands(cx, &axes)),
        _ => None,
    }
}

/// `reshape(fold(a) · fold(b))`, where the leading axes of both are folded alike and the reshape takes them apart.
fn folded(cx: &mut Rewrite<'_>, dims: &[Dim]) -> Option<&'static str> {
    let y = cx.input(0)?;
    let product = cx.producer(y).filter(|node| node.op == Op::MatMul && cx.used_once(y))?.clone();
    let [Some(a), Some(b)] = product.inputs[..] else { return None };
    let [(a, a_turned), (b, b_turned)] = [unfolded(cx, a)?, unfolded(cx, b)?];
    let [a_dims, b_dims] = [two_leading(&cx.ty(a).dims)?, two_leading(&cx.ty(b).dims)?];
    let (lead, _) = a_dims.split_last_chunk::<2>()?;
    let (between, _) = dims.split_last_chunk::<2>()?;
    let wide = |dims: &[Dim]| -> Vec<Dim> { dims.iter().filter(|dim| !dim.is(1)).cloned().collect() };
    let same = lead == b_dims.split_last_chunk::<2>()?.0 && wide(lead) == wide(between);
    if !same || !dims.ends_with(cx.ty(y).dims.split_first()?.1) {
        return None;
    }
    let turn = |cx: &mut Rewrite<'_>, x: ValueId, dims: Vec<Dim>, turned: bool| {
        let x = if cx.ty(x).dims == dims { x } else { cx.insert(Op::Reshape(Reshape { dims }), &[x])? };
        match turned {
            true => cx.insert(Op::Permute(Permute { axes: swap(cx.ty(x).rank())? }), &[x]),
            false => Some(x),
        }
    };
    let (a, b) = (turn(cx, a, a_dims, a_turned)?, turn(cx, b, b_dims, b_turned)?);
    let product = cx.insert_as(Op::MatMul, &[a, b], product.origin)?;
    cx.replace(Op::Reshape(Reshape { dims: dims.to_vec() }), vec![Some(product)])?;
    Some("product of folded stacks")
}

/// What a stack of matrices was before all its leading axes were folded into one, and whether its matrices were turned since.
fn unfolded(cx: &Rewrite<'_>, id: ValueId) -> Option<(ValueId, bool)> {
    let source = |id: ValueId| {
        let node = cx.producer(id)?;
        Some((&node.op, node.inputs.first().copied().flatten()?))
    };
    let (op, x) = source(id)?;
    let (folded, x, turned) = match op {
        Op::Permute(Permute { axes }) if *axes == [0, 2, 1] => match source(x)? {
            (Op::Reshape(_), inner) => (x, inner, true),
            _ => return None,
        },
        Op::Reshape(_) => (id, x, false),
        _ => return None,
    };
    let (lead, matrix) = cx.ty(x).dims.split_last_chunk::<2>()?;
    let [_, rows, columns] = cx.ty(folded).dims.as_slice() else { return None };
    let folds = two_leading(&cx.ty(x).dims).is_some();
    (folds && !lead.is_empty() && matrix == &[rows.clone(), columns.clone()]).then_some((x, turned))
}

/// The dims of a stack of matrices with two leading axes, of one that may have more of size 1.
fn two_leading(dims: &[Dim]) -> Option<Vec<Dim>> {
    let (lead, matrix) = dims.split_last_chunk::<2>()?;
    let mut lead = lead.to_vec();
    while lead.len() > 2 {
        let one = lead.iter().position(|dim| dim.is(1))?;
        lead.remove(one);
    }
    lead.extend(matrix.iter().cloned());
    (lead.len() == 4).then_some(lead)
}

/// The axes with the last two exchanged.
fn swap(rank: usize) -> Option<Vec<usize>> {
    let lead = rank.checked_sub(2)?;
    Some((0..lead).chain([lead + 1, lead]).collect())
}

/// `(a · b)ᵀ` is `bᵀ · aᵀ`, which costs nothing where both are turned already.
fn turned_product(cx: &mut Rewrite<'_>, axes: &[usize]) -> Option<&'static str> {
    let y = cx.input(0)?;
    let product = cx.producer(y).filter(|node| node.op == Op::MatMul && cx.used_once(y))?.clone();
    let [Some(a), Some(b)] = product.inputs[..] else { return None };
    let is_turned = |id: ValueId| {
        cx.used_once(id) && cx.producer(id).is_some_and(|node| matches!(node.op, Op::Permute(_)))
    };
    let rank = cx.ty(y).rank();
    let stacks = cx.ty(a).rank() == rank && cx.ty(b).rank() == rank;
    if swap(rank)? != axes || !stacks || !is_turned(a) || !is_turned(b) {
        return None;
    }
    let turn = Op::Permute(Permute { axes: axes.to_vec() });
    let (a, b) = (cx.insert(turn.clone(), &[a])?, cx.insert(turn, &[b])?);
    cx.replace_as(Op::MatMul, vec![Some(b), Some(a)], Some(product.origin))?;
    Some("transpose of a product")
}

/// `permute(softmax(x))`, where the axis of the softmax becomes the last: the softmax of what is turned.
fn before_softmax(cx: &mut Rewrite<'_>, axes: &[usize]) -> Option<&'static str> {
    let y = cx.input(0)?;
    let node = cx.producer(y).filter(|_| cx.used_once(y))?.clone();
    let Op::Softmax(Softmax { axis }) = node.op else { return None };
    let last = axes.len().checked_sub(1)?;
    if axis == last || axes.last() != Some(&axis) {
        return None;
    }
    let x = node.inputs.first().copied().flatten()?;
    let turned = cx.insert(Op::Permute(Permute { axes: axes.to_vec() }), &[x])?;
    cx.replace_as(Op::Softmax(Softmax { axis: last }), vec![Some(turned)], Some(node.origin))?;
    Some("transpose before softmax")
}

/// `permute(x + permute(y))` is `permute(x) + y`, where the transposes of matrices cancel: scores and their mask. What skips a block is
/// added in the layout that the block has.
fn across_operands(cx: &mut Rewrite<'_>, axes: &[usize]) -> Option<&'static str> {
    let z = cx.input(0)?;
    if axes.len() != 4 || swap(axes.len())? != axes {
        return None;
    }
    let node = cx.producer(z).filter(|_| cx.used_once(z))?.clone();
    let (Op::Binary(_), &[Some(a), Some(b)]) = (&node.op, &node.inputs[..]) else { return None };
    let unturned = |id: ValueId| {
        let node = cx.producer(id)?;
        let Op::Permute(Permute { axes: inner }) = &node.op else { return None };
        let cancels = axes.iter().enumerate().all(|(i, &axis)| inner.get(axis) == Some(&i));
        node.inputs.first().copied().flatten().filter(|_| cancels)
    };
    let rank = axes.len();
    if cx.ty(a).rank() != rank || cx.ty(b).rank() != rank {
        return None;
    }
    let turn = Op::Permute(Permute { axes: axes.to_vec() });
    let operands = match (unturned(a), unturned(b)) {
        (Some(a), Some(b)) => [a, b],
        (Some(a), None) => [a, cx.insert(turn, &[b])?],
        (None, Some(b)) => [cx.insert(turn, &[a])?, b],
        (None, None) => return None,
    };
    cx.replace_as(node.op, operands.map(Some).to_vec(), Some(node.origin))?;
    Some("transpose across operands")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Op;
    use crate::passes::testing::{checked, graph, kinds};
    use kiln_types::BinaryOp;

    fn permute(axes: &[usize]) -> Op {
        Op::Permute(Permute { axes: axes.to_vec() })
    }

    fn reshape(dims: &[Dim]) -> Op {
        Op::Reshape(Reshape { dims: dims.to_vec() })
    }

    #[test]
    fn attention_with_keys_first_is_attention() {
        let (n, s) = (Dim::symbol("n"), Dim::symbol("s"));
        let heads = "f32[n, s, 2, 4]";
        let g = graph(&[heads, heads, heads, "f32[1, 1, s, s]"], |b, x| {
            let stack = |size: [Dim; 2]| [vec![&n * &Dim::from(2)], size.to_vec()].concat();
            let one = Dim::from(1);
            let wide = [n.clone(), one.clone(), s.clone(), 2.into(), 4.into()];
            let q = b.add(reshape(&wide), &[x[0]]).unwrap();
            let q = b.add(permute(&[0, 3, 1, 2, 4]), &[q]).unwrap();
            let q = b.add(reshape(&stack([s.clone(), 4.into()])), &[q]).unwrap();
            let q = b.add(permute(&[0, 2, 1]), &[q]).unwrap();
            let k = b.add(permute(&[0, 2, 1, 3]), &[x[1]]).unwrap();
            let k = b.add(reshape(&stack([s.clone(), 4.into()])), &[k]).unwrap();
            let scores = b.add(Op::MatMul, &[k, q]).unwrap();
            let scores = b.add(reshape(&[n.clone(), 2.into(), s.clone(), s.clone()]), &[scores]).unwrap();
            let mask = b.add(permute(&[0, 1, 3, 2]), &[x[3]]).unwrap();
            let scores = b.add(Op::Binary(BinaryOp::Add), &[scores, mask]).unwrap();
            let weights = b.add(Op::Softmax(Softmax { axis: 2 }), &[scores]).unwrap();
            let weights = b.add(permute(&[0, 1, 3, 2]), &[weights]).unwrap();
            let weights = b.add(reshape(&stack([s.clone(), s.clone()])), &[weights]).unwrap();
            // One more axis, as a part of a stack has it.
            let v = b.add(permute(&[0, 2, 1, 3]), &[x[2]]).unwrap();
            let v = b.add(reshape(&[one.clone(), n.clone(), 2.into(), s.clone(), 4.into()]), &[v]).unwrap();
            let v = b.add(reshape(&stack([s.clone(), 4.into()])), &[v]).unwrap();
            let y = b.add(Op::MatMul, &[weights, v]).unwrap();
            vec![b.add(reshape(&[n.clone(), one, 2.into(), s.clone(), 4.into()]), &[y]).unwrap()]
        });
        let g = checked(g, &[("n", 2), ("s", 3)]);
        assert!(g.to_text().contains("ttention"), "{}", g.to_text());
        assert_eq!(kinds(&g).len(), 5, "{}", g.to_text());
    }
}
