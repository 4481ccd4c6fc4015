//! Scaled-dot-product attention from `softmax(scale · q kᵀ + mask) · v`.
//!
//! Exporters differ in where they scale (scores, one operand, the square root of the scale on both), in how `k` is
//! turned (a transpose of its own, or one merged with the split into heads), in how they mask (a sum, a choice, both)
//! and in whether they guard rows that are masked throughout.
//!
//! What a row yields that is masked throughout depends on all of this: equal weights where a low number hides, NaN where
//! -∞ does, zeros where a guard follows. A bool mask by itself means zeros, so a choice becomes one only where that is so, or
//! where no such row can be.

use super::causal::{is_causal, keeps_first_key};
use crate::ir::{Dim, Op, Permute, Reshape, Softmax, TensorType, ValueId, op};
use crate::passes::matcher::close;
use crate::passes::{Rewrite, Rule};
use kiln_types::{
    Activation, AttentionOptions, BinaryOp, CompareOp, DType, FullyMasked, ReduceOp, UnaryOp, bf16, f16,
};

pub(in crate::passes) const RULE: Rule = Rule { apply };

/// Whether a number is so low that a score of it hides its key: as far from zero as that, neighbours in the dtype are further
/// apart than a softmax tells (e^-32 is a rounding error), so that scores which it would not hide could not be told apart. In
/// single precision that is below -2^28; -10000 is a score like others, and in a sum not even the lowest.
pub(super) fn hides(number: f64, dtype: DType) -> bool {
    let digits = match dtype {
        DType::F64 => f64::MANTISSA_DIGITS,
        DType::F32 => f32::MANTISSA_DIGITS,
        DType::F16 => f16::MANTISSA_DIGITS,
        DType::BF16 => bf16::MANTISSA_DIGITS,
        _ => return false,
    };
    // The first number whose neighbours are 2^5 apart.
    number <= -(2.0_f64.powi(digits as i32 - 1 + 5))
}

/// More masks are no pattern, and a sum of sums could have a great many operands.
const MAX_MASKS: usize = 8;

/// What stands between the scores and the softmax.
enum Mask {
    /// Added.
    Sum(ValueId),
    /// Chosen.
    Choice(Choice),
}

/// The scores where a condition holds (or does not, when it `hides`), a low number elsewhere.
#[derive(Clone, Copy)]
struct Choice {
    condition: ValueId,
    low: ValueId,
    hides: bool,
}

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match *cx.op() {
        Op::MatMul => from_products(cx),
        Op::Attention(options) => given(cx, options),
        _ => None,
    }
}

/// What a model attends by as a whole, as programs of PyTorch and newer opsets do: the same that is told of products, where operands tell it.
fn given(cx: &mut Rewrite<'_>, options: AttentionOptions) -> Option<&'static str> {
    let (q, k, v, mask) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3));
    let causal = mask.is_some_and(|mask| hides_what_follows(cx, q, k, mask));
    let (few, values) = ungrouped(cx, k, v);
    let scale = options.scale.filter(|&scale| !is_usual(cx, q, scale));
    let needed = mask.map(|mask| unspread(cx, mask)).filter(|&mask| !causal && !hides_nothing(cx, mask));
    if needed == mask && few == k && scale == options.scale {
        return None;
    }
    let mask = needed;
    // Without a mask, rows are hidden throughout only where there are more of them than keys.
    let told = mask.is_some() || options.is_causal && !causal;
    let fully_masked = options.fully_masked.filter(|_| told);
    let is_causal = options.is_causal || causal;
    let options = AttentionOptions { scale, is_causal, fully_masked, ..options };
    let inputs = [Some(q), Some(few), Some(values), mask];
    let count = if mask.is_some() { 4 } else { 3 };
    // It stays in its module, wherever what it takes no more was made.
    let origin = Some(cx.node().origin.clone());
    cx.replace_as(Op::Attention(options), inputs.into_iter().take(count).collect(), origin)?;
    Some("attention of what operands tell")
}

/// A mask before it was repeated to the sizes of the scores, which attention does by itself.
fn unspread(cx: &Rewrite<'_>, mask: ValueId) -> ValueId {
    let node = cx.producer(mask).filter(|node| matches!(node.op, Op::Expand(_)));
    let source = node.and_then(|node| node.inputs.first().copied().flatten());
    source.filter(|&source| cx.ty(source).rank() == cx.ty(mask).rank()).unwrap_or(mask)
}

/// Whether a mask keeps every key as it is.
fn hides_nothing(cx: &Rewrite<'_>, mask: ValueId) -> bool {
    cx.uniform(mask) == Some(if cx.ty(mask).dtype.is_bool() { 1.0 } else { 0.0 })
}

/// Whether a scale is the root of the head's size, by which scores are divided where nothing is said.
fn is_usual(cx: &Rewrite<'_>, q: ValueId, scale: f64) -> bool {
    let size = cx.ty(q).dims.last().and_then(Dim::as_size);
    size.is_some_and(|size| close(scale, 1.0 / (size as f64).sqrt()))
}

/// Whether a mask hides from each query exactly the keys after it, where there are as many of both.
fn hides_what_follows(cx: &Rewrite<'_>, q: ValueId, k: ValueId, mask: ValueId) -> bool {
    let length = |id: ValueId| cx.ty(id).dims.iter().nth_back(1);
    length(q) == length(k) && is_causal(cx, mask)
}

fn from_products(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (probabilities, v) = (cx.input(0)?, cx.input(1)?);
    let output = cx.ty(cx.output()?).clone();
    if !(2..=4).contains(&output.rank()) || !output.dtype.is_float() {
        return None;
    }
    // Probabilities that someone else wants are computed anyway.
    if !cx.used_once(probabilities) {
        return None;
    }
    let (scores, guarded) = softmax(cx, probabilities, output.rank() - 1)?;
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
    // All heads of the queries may share one of the keys and values.
    let one_head = |id: ValueId| match (&cx.ty(id).dims[..lead], &output.dims[..lead]) {
        ([batch, heads], [all, _]) => batch == all && heads.is(1),
        _ => false,
    };
    let each_has_its_own = same_lead(turned) && same_lead(v);
    if !same_lead(q) || !(each_has_its_own || one_head(turned) && one_head(v)) {
        return None;
    }
    let (mask, fully_masked) = combine(cx, masks, guarded, &cx.ty(product).clone())?;
    let (k, more) = unturned(cx, turned)?;
    let scale = scale * q_scale * k_scale * more;
    let is_causal = mask.is_some_and(|mask| hides_what_follows(cx, q, k, mask));
    let (mask, fully_masked) = if is_causal { (None, None) } else { (mask, fully_masked) };
    let (k, v) = ungrouped(cx, k, v);
    let options = AttentionOptions {
        scale: Some(scale).filter(|&scale| !is_usual(cx, q, scale)),
        is_causal,
        softcap,
        fully_masked,
    };
    let mut inputs = Vec::with_capacity(4);
    for id in [Some(q), Some(k), Some(v), mask].into_iter().flatten() {
        inputs.push(with_four_axes(cx, id)?);
    }
    let mut origin = cx.origin_of(&[cx.output()?, probabilities, product]);
    if [cx.output()?, product]
        .iter()
        .all(|&id| cx.producer(id).is_none_or(|node| node.origin.scope.is_empty()))
    {
        // That of the softmax alone, which is a part of what attends.
        origin.scope.pop();
    }
    let origin = Some(origin);
    if output.rank() == 4 {
        cx.replace_as(Op::Attention(options), inputs.into_iter().map(Some).collect(), origin)?;
    } else {
        let result = cx.insert(Op::Attention(options), &inputs)?;
        cx.replace_as(Op::Reshape(Reshape { dims: output.dims }), vec![Some(result)], origin)?;
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
        && let Op::Reshape(_) | Op::Permute(_) = node.op
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

/// The scores under a softmax over the last axis, and whether rows of NaN (all keys hidden) are replaced by zeros after it.
fn softmax(cx: &Rewrite<'_>, id: ValueId, last: usize) -> Option<(ValueId, bool)> {
    let plain = |id: ValueId| {
        let node = cx.producer(id).filter(|node| node.op == Op::Softmax(Softmax { axis: last }))?;
        node.inputs.first().copied().flatten()
    };
    let node = cx.producer(id)?;
    match &node.op {
        Op::Softmax(_) => Some((plain(id)?, false)),
        // where(isnan(p), 0, p), or where(isnan(p) == false, p, 0).
        Op::Where => {
            let [condition, a, b] = node.inputs[..] else {
                return None;
            };
            let (condition, a, b) = (condition?, a?, b?);
            // where(not any(scores != -inf), 0, p): PyTorch's attention in small operations.
            if let (Some(scores), Some(any)) = (plain(b), cx.unary(condition, UnaryOp::Not))
                && cx.uniform(a) == Some(0.0)
                && any_is_seen(cx, any, scores, last)
            {
                return Some((scores, true));
            }
            let (condition, zero, p) = match cx.unary(condition, UnaryOp::Not) {
                Some(condition) => (condition, b, a),
                None => (condition, a, b),
            };
            let guards = cx.unary(condition, UnaryOp::IsNan) == Some(p) && cx.uniform(zero) == Some(0.0);
            if guards { Some((plain(p)?, true)) } else { None }
        }
        _ => None,
    }
}

/// Whether a value tells of each row that some of its scores are not hidden.
fn any_is_seen(cx: &Rewrite<'_>, any: ValueId, scores: ValueId, last: usize) -> bool {
    let seen = cx.producer(any).filter(|node| {
        node.op == Op::Reduce(op::Reduce { op: ReduceOp::Any, axes: vec![last], keep_dims: true })
    });
    let seen = seen.and_then(|node| cx.producer(node.inputs.first().copied().flatten()?));
    seen.is_some_and(|node| match (&node.op, &node.inputs[..]) {
        (Op::Compare(CompareOp::NotEqual), &[Some(x), Some(low)]) => {
            x == scores && cx.uniform(low) == Some(f64::NEG_INFINITY)
        }
        _ => false,
    })
}

/// The masks on the scores, outermost first, and the scores without them.
fn masks(cx: &Rewrite<'_>, mut scores: ValueId) -> (Vec<Mask>, ValueId) {
    let mut masks = Vec::new();
    let is_scores = |id: ValueId| is_product(cx, id, MAX_MASKS);
    while let Some(node) = cx.producer(scores)
        && masks.len() < MAX_MASKS
    {
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
                let low = |id: ValueId| cx.uniform(id).is_some_and(|number| hides(number, cx.ty(id).dtype));
                if low(b) && is_scores(a) {
                    masks.push(Mask::Choice(Choice { condition, low: b, hides: false }));
                    scores = a;
                } else if low(a) && is_scores(b) {
                    masks.push(Mask::Choice(Choice { condition, low: a, hides: true }));
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

/// Whether a value is a product of matrices, scaled, capped or under no more than so many masks.
fn is_product(cx: &Rewrite<'_>, id: ValueId, masks: usize) -> bool {
    let (_, _, x) = capped(cx, id);
    let Some(node) = cx.producer(x) else {
        return false;
    };
    let sides = match node.op {
        Op::MatMul => return true,
        Op::Binary(BinaryOp::Add) if x == id => [0, 1],
        Op::Where if x == id => [1, 2],
        _ => return false,
    };
    let Some(masks) = masks.checked_sub(1) else {
        return false;
    };
    let operand = |n: usize| node.inputs.get(n).copied().flatten();
    sides.into_iter().filter_map(operand).any(|side| is_product(cx, side, masks))
}

/// One mask from several, and what a row yields that it hides throughout: sums add up, choices become sums where there is
/// more than one mask.
fn combine(
    cx: &mut Rewrite<'_>,
    mut masks: Vec<Mask>,
    guarded: bool,
    scores: &TensorType,
) -> Option<(Option<ValueId>, Option<FullyMasked>)> {
    let zeros = guarded.then_some(FullyMasked::Zeros);
    let Some(innermost) = masks.pop() else {
        return Some((None, None));
    };
    let (all, fully_masked) = match innermost {
        Mask::Sum(mask) => (mask, zeros),
        Mask::Choice(choice) if masks.is_empty() => alone(cx, choice, guarded)?,
        Mask::Choice(choice) => (added(cx, &choice, scores.dtype)?, zeros),
    };
    let mut all = all;
    for mask in masks.into_iter().rev() {
        all = match mask {
            Mask::Sum(mask) => cx.insert(Op::Binary(BinaryOp::Add), &[all, mask])?,
            Mask::Choice(choice) => {
                choice.can_be_added(cx, scores.dtype)?;
                let operands = choice.operands(all);
                cx.insert(Op::Where, &operands)?
            }
        };
    }
    // A literal or a mask of lower rank (a constant of rank 0) is no mask of the scores.
    (cx.ty(all).rank() == scores.rank()).then_some((Some(all), fully_masked))
}

/// A choice that is the only mask: a bool tensor that keeps, unless softmax gives NaN for rows without a key.
fn alone(cx: &mut Rewrite<'_>, choice: Choice, guarded: bool) -> Option<(ValueId, Option<FullyMasked>)> {
    let infinite = cx.uniform(choice.low)? == f64::NEG_INFINITY;
    let never_empty = choice.always_keeps(cx);
    if infinite && !guarded && !never_empty {
        return Some((added(cx, &choice, cx.ty(choice.low).dtype)?, None));
    }
    let keeps = match choice.hides {
        true => cx.insert(Op::Unary(UnaryOp::Not), &[choice.condition])?,
        false => choice.condition,
    };
    Some((keeps, (!infinite && !never_empty).then_some(FullyMasked::Mean)))
}

/// A choice as a mask to be added: 0, or the low number.
fn added(cx: &mut Rewrite<'_>, choice: &Choice, scores: DType) -> Option<ValueId> {
    choice.can_be_added(cx, scores)?;
    let zero = crate::data::fill(&[], kiln_types::Scalar::Float(0.0), cx.ty(choice.low).dtype)?;
    let zero = cx.add_constant(None, zero);
    cx.insert(Op::Where, &choice.operands(zero))
}

impl Choice {
    /// The choice between something and the low number.
    fn operands(&self, kept: ValueId) -> [ValueId; 3] {
        if self.hides { [self.condition, self.low, kept] } else { [self.condition, kept, self.low] }
    }

    /// Whether each row keeps a key, as far as can be told.
    fn always_keeps(&self, cx: &Rewrite<'_>) -> bool {
        keeps_first_key(cx, self.condition, !self.hides)
    }

    /// `None` where a row that is hidden throughout would keep differences of its scores, which the choice takes away: a
    /// number that is low enough takes them too, by rounding.
    fn can_be_added(&self, cx: &Rewrite<'_>, scores: DType) -> Option<()> {
        /// Scores of less than 2^100 / 2^24 vanish beside it in single precision.
        const ABSORBING: f64 = -1.2e30;
        let low = cx.uniform(self.low)?;
        let absorbs = low == f64::NEG_INFINITY || (low <= ABSORBING && scores == DType::F32);
        (absorbs || self.always_keeps(cx)).then_some(())
    }
}

/// `k` from `kᵀ`: undoes a transpose of the last two axes, alone or merged with another; and a scale under it.
fn unturned(cx: &mut Rewrite<'_>, turned: ValueId) -> Option<(ValueId, f64)> {
    let rank = cx.ty(turned).rank();
    let mut swap: Vec<usize> = (0..rank).collect();
    swap.swap(rank - 2, rank - 1);
    let node = cx.producer(turned);
    let source = node.and_then(|node| node.inputs.first().copied().flatten());
    let (Some(Op::Permute(Permute { axes })), Some(source)) = (node.map(|node| &node.op), source) else {
        return Some((cx.insert(Op::Permute(Permute { axes: swap }), &[turned])?, 1.0));
    };
    let merged: Vec<usize> = swap.iter().map(|&axis| axes[axis]).collect();
    let (scale, source) = cx.scaled(source);
    if merged.is_sorted() {
        return Some((source, scale));
    }
    Some((cx.insert(Op::Permute(Permute { axes: merged }), &[source])?, scale))
}

/// Keys and values of fewer heads than the queries, when both are repeated to as many.
fn ungrouped(cx: &Rewrite<'_>, k: ValueId, v: ValueId) -> (ValueId, ValueId) {
    match (unrepeated(cx, k), unrepeated(cx, v)) {
        (Some(few), Some(values)) if cx.ty(few).dims[1] == cx.ty(values).dims[1] => (few, values),
        _ => (k, v),
    }
}

/// `x` of a value that is `x` with each head repeated: reshaped, expanded and reshaped back, or expanded where it has one head.
fn unrepeated(cx: &Rewrite<'_>, id: ValueId) -> Option<ValueId> {
    let operand = |id: ValueId, kind: fn(&Op) -> bool| {
        let node = cx.producer(id).filter(|node| kind(&node.op))?;
        node.inputs.first().copied().flatten()
    };
    let all = cx.ty(id).dims.as_slice();
    let of_one_head = |x: &ValueId| match (cx.ty(*x).dims.as_slice(), all) {
        ([batch, head, rows, size], [of, _, to, wide]) => head.is(1) && (batch, rows, size) == (of, to, wide),
        _ => false,
    };
    if let Some(x) = operand(id, |op| matches!(op, Op::Expand(_))).filter(of_one_head) {
        return Some(x);
    }
    let is_reshape: fn(&Op) -> bool = |op| matches!(op, Op::Reshape(_));
    let spread = operand(id, is_reshape)?;
    let split = operand(spread, |op| matches!(op, Op::Expand(_)))?;
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
    cx.insert(Op::Reshape(Reshape { dims }), &[id])
}

#[cfg(test)]
mod tests;
