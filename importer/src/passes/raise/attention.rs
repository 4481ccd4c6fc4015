//! Scaled-dot-product attention from `softmax(scale · q kᵀ + mask) · v`.
//!
//! Exporters differ in where they scale (scores, one operand, the square root of the scale on both), in how `k` is
//! turned (a transpose of its own, or one merged with the split into heads), in how they mask (a sum, a choice, both)
//! and in whether they guard rows that are masked throughout.

use super::causal::is_causal;
use crate::ir::{Dim, Op, TensorType, ValueId};
use crate::passes::matcher::close;
use crate::passes::{Rewrite, Rule};
use kiln_types::{Activation, AttentionOptions, BinaryOp, UnaryOp};

pub(in crate::passes) const RULE: Rule = Rule { apply };

/// A number this low hides a key.
pub(super) const HIDDEN: f64 = -1e4;

/// What stands between the scores and the softmax.
enum Mask {
    /// Added.
    Sum(ValueId),
    /// Keeps where true; what stands there else.
    Keep(ValueId, ValueId),
    /// Hides where true.
    Hide(ValueId, ValueId),
}

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    if *cx.op() != Op::MatMul {
        return None;
    }
    let (probabilities, v) = (cx.input(0)?, cx.input(1)?);
    let output = cx.ty(cx.output()?).clone();
    if !(2..=4).contains(&output.rank()) || !output.dtype.is_float() {
        return None;
    }
    // Probabilities that someone else wants are computed anyway.
    if !cx.used_once(probabilities) {
        return None;
    }
    let scores = softmax(cx, probabilities, output.rank() - 1)?;
    let (masks, scores) = masks(cx, scores);
    let (softcap, scale, product) = capped(cx, scores);
    let node = cx.producer(product).filter(|node| node.op == Op::MatMul)?;
    let (q, turned) = (node.inputs.first().copied().flatten()?, node.inputs.get(1).copied().flatten()?);
    let (q_scale, q) = unscaled(cx, q);
    let (k_scale, turned) = unscaled(cx, turned);
    // A product of constants' sizes is no attention: those are linear layers.
    if [q, turned, v].iter().any(|&id| cx.constant(id).is_some()) {
        return None;
    }
    let lead = output.rank() - 2;
    let same_lead = |id: ValueId| cx.ty(id).dims[..lead] == output.dims[..lead];
    if !same_lead(q) || !same_lead(turned) || !same_lead(v) {
        return None;
    }
    let mask = combine(cx, masks, &cx.ty(product).clone())?;
    let (k, more) = unturned(cx, turned)?;
    let scale = scale * q_scale * k_scale * more;
    let size = cx.ty(q).dims.last()?.as_size();
    let usual = size.is_some_and(|size| close(scale, 1.0 / (size as f64).sqrt()));
    let (rows, keys) = (&cx.ty(q).dims[lead], &cx.ty(k).dims[lead]);
    let is_causal = rows == keys && mask.is_some_and(|mask| is_causal(cx, mask));
    let mask = mask.filter(|_| !is_causal);
    let (k, v) = ungrouped(cx, k, v);
    let options = AttentionOptions { scale: (!usual).then_some(scale), is_causal, softcap };
    let mut inputs = Vec::with_capacity(4);
    for id in [Some(q), Some(k), Some(v), mask].into_iter().flatten() {
        inputs.push(with_four_axes(cx, id)?);
    }
    let origin = Some(cx.origin_of(&[cx.output()?, probabilities, product]));
    if output.rank() == 4 {
        cx.replace_as(Op::Attention(options), inputs.into_iter().map(Some).collect(), origin)?;
    } else {
        let result = cx.insert(Op::Attention(options), &inputs)?;
        cx.replace_as(Op::Reshape { dims: output.dims }, vec![Some(result)], origin)?;
    }
    Some("attention")
}

/// `cap · tanh(scale · scores / cap)`: the cap, the scale, and the scores; without a hyperbolic tangent there is no cap.
fn capped(cx: &Rewrite<'_>, id: ValueId) -> (Option<f64>, f64, ValueId) {
    let (factor, inner) = cx.scaled(id);
    match cx.activated(inner) {
        Some((Activation::Tanh, x)) if factor > 0.0 => {
            let (scale, product) = cx.scaled(x);
            (Some(factor), scale * factor, product)
        }
        _ => (None, factor, inner),
    }
}

/// Like [`Rewrite::scaled`], also for a factor that stands before the split into heads.
fn unscaled(cx: &mut Rewrite<'_>, id: ValueId) -> (f64, ValueId) {
    /// Reshape and transpose.
    const MAX_MOVES: usize = 3;
    let (factor, source) = cx.scaled(id);
    let (mut moves, mut at) = (Vec::new(), source);
    while let Some(node) = cx.producer(at)
        && let Op::Reshape { .. } | Op::Permute { .. } = node.op
        && let Some(next) = node.inputs.first().copied().flatten()
        && moves.len() < MAX_MOVES
    {
        moves.push(node.op.clone());
        at = next;
    }
    let (early, mut value) = cx.scaled(at);
    if value == at {
        return (factor, source);
    }
    while let Some(op) = moves.pop() {
        match cx.insert(op, &[value]) {
            Some(moved) => value = moved,
            None => return (factor, source),
        }
    }
    (factor * early, value)
}

/// The scores under a softmax over the last axis; rows of NaN (all keys hidden) may be replaced by zeros after it.
fn softmax(cx: &Rewrite<'_>, id: ValueId, last: usize) -> Option<ValueId> {
    let node = cx.producer(id)?;
    match &node.op {
        Op::Softmax { axis } if *axis == last => node.inputs.first().copied().flatten(),
        // where(isnan(p), 0, p), or where(isnan(p) == false, p, 0).
        Op::Where => {
            let [condition, a, b] = node.inputs[..] else {
                return None;
            };
            let (condition, a, b) = (condition?, a?, b?);
            let (condition, zero, p) = match cx.unary(condition, UnaryOp::Not) {
                Some(condition) => (condition, b, a),
                None => (condition, a, b),
            };
            let guards = cx.unary(condition, UnaryOp::IsNan) == Some(p) && cx.uniform(zero) == Some(0.0);
            if guards { softmax(cx, p, last) } else { None }
        }
        _ => None,
    }
}

/// The masks on the scores, outermost first, and the scores without them.
fn masks(cx: &Rewrite<'_>, mut scores: ValueId) -> (Vec<Mask>, ValueId) {
    let mut masks = Vec::new();
    let is_scores = |id: ValueId| is_product(cx, id);
    while let Some(node) = cx.producer(scores) {
        let operand = |n: usize| node.inputs.get(n).copied().flatten();
        match (&node.op, operand(0), operand(1), operand(2)) {
            (Op::Binary(BinaryOp::Add), Some(_), Some(_), _) => {
                let Some((inner, mask)) = cx.commutative(scores, BinaryOp::Add, is_scores) else {
                    break;
                };
                masks.push(Mask::Sum(mask));
                scores = inner;
            }
            (Op::Where, Some(condition), Some(a), Some(b)) => {
                let low = |id: ValueId| cx.uniform(id).is_some_and(|number| number <= HIDDEN);
                if low(b) && is_scores(a) {
                    masks.push(Mask::Keep(condition, b));
                    scores = a;
                } else if low(a) && is_scores(b) {
                    masks.push(Mask::Hide(condition, a));
                    scores = b;
                } else {
                    break;
                }
            }
            _ => break,
        }
    }
    (masks, scores)
}

/// Whether a value is a product of matrices, scaled, capped or masked.
fn is_product(cx: &Rewrite<'_>, id: ValueId) -> bool {
    let (_, _, x) = capped(cx, id);
    let Some(node) = cx.producer(x) else {
        return false;
    };
    let operand = |n: usize| node.inputs.get(n).copied().flatten();
    match node.op {
        Op::MatMul => true,
        Op::Binary(BinaryOp::Add) if x == id => {
            operand(0).is_some_and(|a| is_product(cx, a)) || operand(1).is_some_and(|b| is_product(cx, b))
        }
        Op::Where if x == id => {
            operand(1).is_some_and(|a| is_product(cx, a)) || operand(2).is_some_and(|b| is_product(cx, b))
        }
        _ => false,
    }
}

/// One mask from several: sums add up, choices become sums where there is more than one mask.
fn combine(cx: &mut Rewrite<'_>, masks: Vec<Mask>, scores: &TensorType) -> Option<Option<ValueId>> {
    let mut masks = masks.into_iter().rev();
    let mut all = match masks.next() {
        None => return Some(None),
        Some(Mask::Sum(mask)) => mask,
        Some(Mask::Keep(condition, low)) => keep(cx, condition, low, masks.len() == 0, false)?,
        Some(Mask::Hide(condition, low)) => keep(cx, condition, low, masks.len() == 0, true)?,
    };
    for mask in masks {
        all = match mask {
            Mask::Sum(mask) => cx.insert(Op::Binary(BinaryOp::Add), &[all, mask])?,
            Mask::Keep(condition, low) => cx.insert(Op::Where, &[condition, all, low])?,
            Mask::Hide(condition, low) => cx.insert(Op::Where, &[condition, low, all])?,
        };
    }
    // A literal or a mask of lower rank (a constant of rank 0) is no mask of the scores.
    (cx.ty(all).rank() == scores.rank()).then_some(Some(all))
}

/// A choice as a mask: a bool tensor that keeps, or, to be added to others, 0 and the low number.
fn keep(cx: &mut Rewrite<'_>, condition: ValueId, low: ValueId, alone: bool, hides: bool) -> Option<ValueId> {
    if alone {
        return if hides { cx.insert(Op::Unary(UnaryOp::Not), &[condition]) } else { Some(condition) };
    }
    let zero = crate::fold::fill(&[], kiln_types::Scalar::Float(0.0), cx.ty(low).dtype)?;
    let zero = cx.add_constant(None, zero);
    let operands = if hides { [condition, low, zero] } else { [condition, zero, low] };
    cx.insert(Op::Where, &operands)
}

/// `k` from `kᵀ`: undoes a transpose of the last two axes, alone or merged with another; and a scale under it.
fn unturned(cx: &mut Rewrite<'_>, turned: ValueId) -> Option<(ValueId, f64)> {
    let rank = cx.ty(turned).rank();
    let mut swap: Vec<usize> = (0..rank).collect();
    swap.swap(rank - 2, rank - 1);
    let node = cx.producer(turned);
    let source = node.and_then(|node| node.inputs.first().copied().flatten());
    let (Some(Op::Permute { axes }), Some(source)) = (node.map(|node| &node.op), source) else {
        return Some((cx.insert(Op::Permute { axes: swap }, &[turned])?, 1.0));
    };
    let merged: Vec<usize> = swap.iter().map(|&axis| axes[axis]).collect();
    let (scale, source) = cx.scaled(source);
    if merged.is_sorted() {
        return Some((source, scale));
    }
    Some((cx.insert(Op::Permute { axes: merged }, &[source])?, scale))
}

/// Keys and values of fewer heads than the queries, when both are repeated to as many.
fn ungrouped(cx: &Rewrite<'_>, k: ValueId, v: ValueId) -> (ValueId, ValueId) {
    match (unrepeated(cx, k), unrepeated(cx, v)) {
        (Some(few), Some(values)) if cx.ty(few).dims[1] == cx.ty(values).dims[1] => (few, values),
        _ => (k, v),
    }
}

/// `x` of a value that is `x` with each head repeated: reshaped, expanded and reshaped back.
fn unrepeated(cx: &Rewrite<'_>, id: ValueId) -> Option<ValueId> {
    let operand = |id: ValueId, kind: fn(&Op) -> bool| {
        let node = cx.producer(id).filter(|node| kind(&node.op))?;
        node.inputs.first().copied().flatten()
    };
    let is_reshape: fn(&Op) -> bool = |op| matches!(op, Op::Reshape { .. });
    let spread = operand(id, is_reshape)?;
    let split = operand(spread, |op| matches!(op, Op::Expand { .. }))?;
    let x = operand(split, is_reshape)?;
    let (dims, split, spread) = (&cx.ty(x).dims, &cx.ty(split).dims, &cx.ty(spread).dims);
    let [batch, heads, rows, size] = dims.as_slice() else {
        return None;
    };
    let one = Dim::constant(1);
    let fits = split.iter().eq([batch, heads, &one, rows, size])
        && spread.len() == 5
        && spread.iter().zip(split).enumerate().all(|(i, (to, from))| i == 2 || to == from)
        && cx.ty(id).dims.iter().eq([batch, &(heads * &spread[2]), rows, size]);
    fits.then_some(x)
}

/// Axes of size 1 in front, up to four.
fn with_four_axes(cx: &mut Rewrite<'_>, id: ValueId) -> Option<ValueId> {
    let dims = cx.ty(id).dims.clone();
    let missing = 4usize.checked_sub(dims.len())?;
    if missing == 0 {
        return Some(id);
    }
    let dims = std::iter::repeat_n(Dim::constant(1), missing).chain(dims).collect();
    cx.insert(Op::Reshape { dims }, &[id])
}

#[cfg(test)]
mod tests;
