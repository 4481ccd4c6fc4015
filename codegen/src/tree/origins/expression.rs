//! Provenances as expressions over a checkpoint's tensors.

use super::super::placement::relative;
use kiln_importer::data::uniform;
use kiln_importer::ir::{
    Cast, Clamp, Concat, Expand, Norm, Op, Permute, Provenance, Reduce, Reshape, Slice, is_small_table,
};
use kiln_types::{
    Activation, BinaryOp, DType, Derivation, DerivationTarget, ReduceOp, Scalar, TensorData, UnaryOp,
};

/// A provenance without casts between floats: parameters get the backend's dtype anyway.
pub(super) fn plain(made: &Provenance) -> &Provenance {
    match made {
        Provenance::Apply { op: Op::Cast(Cast { to }), operands } if to.is_float() => {
            match operands.first() {
                Some(of) => plain(of),
                None => made,
            }
        }
        made => made,
    }
}

/// Epsilons come as f32: `9.999999747378752e-6` is meant to be `1e-5`.
pub(super) fn short(value: f64) -> f64 {
    (value as f32)
        .to_string()
        .parse()
        .ok()
        .filter(|short: &f64| *short as f32 == value as f32)
        .unwrap_or(value)
}

/// The expression without what need not be said: the parameter's own sizes, and those of keys where they follow from it.
pub(super) fn shortest(derivation: Derivation, target: &DerivationTarget) -> Derivation {
    let simple = derivation.map(&|part| unreshaped(part, target));
    let follow = shapeless(simple.clone()).key_shapes(target);
    let mut shortest = simple.map(&|part| match part {
        Derivation::Key { path, absolute, shape } => {
            let shape = shape.filter(|shape| follow.get(&path) != Some(shape));
            Derivation::Key { path, absolute, shape }
        }
        other => other,
    });
    if let Derivation::Reshape(_, sizes) = &mut shortest {
        *sizes = None;
    }
    shortest
}

/// The expression without its keys' sizes.
pub(super) fn shapeless(derivation: Derivation) -> Derivation {
    derivation.map(&|part| match part {
        Derivation::Key { path, absolute, .. } => Derivation::key(path, absolute),
        other => other,
    })
}

/// A reshape as what it does to axes of size 1, where it does no more.
fn unreshaped(derivation: Derivation, target: &DerivationTarget) -> Derivation {
    let Derivation::Reshape(of, sizes) = derivation else { return derivation };
    // Only the last of several counts.
    let of = match *of {
        Derivation::Reshape(inner, _) | Derivation::Squeeze(inner, _) | Derivation::Unsqueeze(inner, _) => {
            inner
        }
        other => Box::new(other),
    };
    let to = sizes.as_ref().unwrap_or(&target.shape);
    let Ok(from) = of.shape(target, &|_| None) else { return Derivation::Reshape(of, sizes) };
    if from == *to {
        *of
    } else if let Some(axes) = units_beyond(&from, to) {
        Derivation::Unsqueeze(of, axes)
    } else if let Some(axes) = units_beyond(to, &from) {
        Derivation::Squeeze(of, axes)
    } else {
        Derivation::Reshape(of, sizes)
    }
}

/// The axes of `more` that are of size 1 and not in `less`, when the others are the same.
fn units_beyond(less: &[usize], more: &[usize]) -> Option<Vec<usize>> {
    let mut rest = less.iter().peekable();
    let mut axes = Vec::new();
    for (axis, size) in more.iter().enumerate() {
        if rest.next_if_eq(&size).is_none() {
            if *size != 1 {
                return None;
            }
            axes.push(axis);
        }
    }
    rest.next().is_none().then_some(axes)
}

/// A provenance as an expression, its keys relative to a module, with all their sizes. The error says what cannot be
/// expressed.
pub(super) fn derivation(made: &Provenance, base: &str) -> Result<Derivation, String> {
    let of = |part: &Provenance| derivation(part, base);
    let boxed = |part: &Provenance| of(part).map(Box::new);
    Ok(match plain(made) {
        Provenance::Key { key, shape } => {
            let (path, absolute) = match relative(key, base) {
                Some(key) => (key, false),
                None => (key.as_str(), true),
            };
            Derivation::Key { path: path.to_owned(), absolute, shape: Some(shape.clone()) }
        }
        Provenance::Literal(data) => match uniform(data) {
            Some(number) => Derivation::Number(number),
            None => table(data).ok_or_else(|| format!("a table of {} numbers", data.num_elements()))?,
        },
        Provenance::Apply { op, operands } => {
            let parts: Vec<&Provenance> = operands.iter().map(|operand| &**operand).collect();
            applied(op, &parts, base)?
        }
        Provenance::Scaled { weight, scale, .. } => Derivation::Scaled(boxed(weight)?, boxed(scale)?),
        Provenance::NormScale(norm) => scale_of(norm, base)?,
        Provenance::NormShift(norm) => {
            let moved = Derivation::binary(BinaryOp::Mul, of(&norm.mean)?, scale_of(norm, base)?);
            Derivation::binary(BinaryOp::Sub, of(&norm.beta)?, moved)
        }
        Provenance::Exporter { .. } => return Err("what the exporter did".into()),
        Provenance::TooMuch { .. } => return Err("a long computation".into()),
    })
}

fn scale_of(norm: &Norm, base: &str) -> Result<Derivation, String> {
    let variance = derivation(&norm.variance, base)?;
    let sum = Derivation::binary(BinaryOp::Add, variance, Derivation::Number(short(norm.epsilon)));
    let root = Derivation::Unary(UnaryOp::Sqrt, Box::new(sum));
    Ok(Derivation::binary(BinaryOp::Div, derivation(&norm.gamma, base)?, root))
}

/// An operation as an expression.
fn applied(op: &Op, operands: &[&Provenance], base: &str) -> Result<Derivation, String> {
    let unknown = || format!("the operation {}", op.name());
    let of = |n: usize| operands.get(n).ok_or_else(unknown).and_then(|part| sized(part, base));
    let boxed = |n: usize| of(n).map(Box::new);
    let sizes = |dims: &[kiln_importer::ir::Dim]| -> Result<Vec<usize>, String> {
        dims.iter().map(|dim| dim.as_size().ok_or_else(unknown)).collect()
    };
    let one = Derivation::Number(1.0);
    Ok(match op {
        Op::Unary(op) => Derivation::Unary(*op, boxed(0)?),
        Op::Activation(Activation::Tanh) => Derivation::Unary(UnaryOp::Tanh, boxed(0)?),
        Op::Activation(Activation::Sigmoid) => {
            let exp = Derivation::Unary(UnaryOp::Exp, Box::new(Derivation::Unary(UnaryOp::Neg, boxed(0)?)));
            Derivation::binary(BinaryOp::Div, one.clone(), Derivation::binary(BinaryOp::Add, one, exp))
        }
        Op::Activation(Activation::Softplus) => {
            Derivation::Unary(UnaryOp::Log1p, Box::new(Derivation::Unary(UnaryOp::Exp, boxed(0)?)))
        }
        Op::Binary(op) => {
            let [a, b] = operands else { return Err(unknown()) };
            let spread = |part: &Provenance, other: &Provenance| {
                if is_spread_to(part, other) { derivation(part, base) } else { sized(part, base) }
            };
            Derivation::binary(*op, spread(a, b)?, spread(b, a)?)
        }
        Op::Permute(Permute { axes }) => Derivation::Permute(boxed(0)?, axes.clone()),
        Op::Reshape(Reshape { dims }) => Derivation::Reshape(boxed(0)?, Some(sizes(dims)?)),
        Op::Expand(Expand { dims }) => Derivation::Expand(boxed(0)?, sizes(dims)?),
        Op::Concat(Concat { axis: 0 }) => {
            joined((0..operands.len()).map(of).collect::<Result<_, _>>()?, operands)
        }
        Op::Concat(Concat { axis }) => {
            Derivation::Concat(*axis, (0..operands.len()).map(of).collect::<Result<_, _>>()?)
        }
        Op::Slice(Slice { ranges }) => {
            let mut cut = of(0)?;
            for (axis, range) in ranges.iter().enumerate() {
                let (start, end) = (range.start.as_size(), range.end.as_size());
                let (Some(start), Some(end), Ok(step @ 1..)) = (start, end, usize::try_from(range.step))
                else {
                    return Err(unknown());
                };
                let size =
                    operands.first().and_then(|of| of.shape()).and_then(|shape| shape.get(axis).copied());
                if (start, step) == (0, 1) && size == Some(end) {
                    continue;
                }
                cut = Derivation::Slice { of: Box::new(cut), axis, start, end, step };
            }
            cut
        }
        Op::Clamp(Clamp { min, max }) => {
            let bound = |x, op, bound: &Option<Scalar>| match bound {
                Some(bound) => Derivation::binary(op, x, Derivation::Number(bound.to_f64())),
                None => x,
            };
            bound(bound(of(0)?, BinaryOp::Max, min), BinaryOp::Min, max)
        }
        Op::Reduce(Reduce {
            op: reduce @ (ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min),
            axes,
            keep_dims,
        }) => {
            let kept = Derivation::Reduce(*reduce, boxed(0)?, axes.clone());
            if *keep_dims {
                return Ok(kept);
            }
            let shape = operands.first().and_then(|of| of.shape()).ok_or_else(unknown)?;
            let left = shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
            let left: Vec<usize> = left.map(|(_, size)| *size).collect();
            if left.is_empty() {
                return Err(unknown());
            }
            Derivation::Reshape(Box::new(kept), Some(left))
        }
        Op::MatMul if operands.iter().all(|of| of.shape().is_some_and(|shape| shape.len() == 2)) => {
            Derivation::MatMul(boxed(0)?, boxed(1)?)
        }
        _ => return Err(unknown()),
    })
}

/// A few numbers, one after the other.
fn table(data: &TensorData) -> Option<Derivation> {
    let numbers = data.clone().convert_dtype(DType::F64).to_vec::<f64>().ok()?;
    let one = |number| Derivation::Expand(Box::new(Derivation::Number(short(number))), vec![1]);
    let row = Derivation::Concat(0, numbers.into_iter().map(one).collect());
    let is_row = data.shape.len() == 1;
    is_small_table(data).then(|| match is_row {
        true => row,
        false => Derivation::Reshape(Box::new(row), Some(data.shape.clone())),
    })
}

/// A provenance as an expression that has its shape: a number that stands for many is spread.
fn sized(made: &Provenance, base: &str) -> Result<Derivation, String> {
    let expression = derivation(made, base)?;
    Ok(match (plain(made), expression) {
        (Provenance::Literal(data), number @ Derivation::Number(_)) if !data.shape.is_empty() => {
            Derivation::Expand(Box::new(number), data.shape.clone())
        }
        (_, expression) => expression,
    })
}

/// Whether a result has the other operand's shape, whatever this one's is.
fn is_spread_to(made: &Provenance, other: &Provenance) -> bool {
    let (Some(shape), Some(wanted)) = (made.shape(), other.shape()) else { return false };
    let fits = shape.iter().rev().zip(wanted.iter().rev()).all(|(size, wanted)| *size == 1 || size == wanted);
    shape.len() <= wanted.len() && fits
}

/// Tensors joined along the first axis, said without sizes where that is possible, so that modules of other sizes are
/// equal: the gates of recurrent layers in another order, their directions.
fn joined(parts: Vec<Derivation>, operands: &[&Provenance]) -> Derivation {
    stacked(&parts, operands).or_else(|| reordered(&parts, operands)).unwrap_or(Derivation::Concat(0, parts))
}

/// Parts that have an axis of size 1 in front, which was put there.
fn stacked(parts: &[Derivation], operands: &[&Provenance]) -> Option<Derivation> {
    let inner = parts.iter().zip(operands).map(|(part, operand)| match (part, operand) {
        (Derivation::Reshape(inner, Some(sizes)), Provenance::Apply { operands, .. }) => {
            let shape = operands.first()?.shape()?;
            let (&[1], rest) = sizes.split_at_checked(1)? else { return None };
            (*rest == *shape).then(|| (**inner).clone())
        }
        _ => None,
    });
    Some(Derivation::Stack(inner.collect::<Option<_>>()?))
}

/// Slices that are all the equal parts of one tensor.
fn reordered(parts: &[Derivation], operands: &[&Provenance]) -> Option<Derivation> {
    let Provenance::Apply { operands: first, .. } = operands.first()? else { return None };
    let size = *first.first()?.shape()?.first()?;
    let length =
        size.checked_div(parts.len()).filter(|length| length * parts.len() == size && *length > 0)?;
    let mut source: Option<&Derivation> = None;
    let order = parts.iter().map(|part| match part {
        Derivation::Slice { of, axis: 0, start, end, step: 1 } if start + length == *end => {
            let one = *source.get_or_insert(of) == &**of && start % length == 0;
            one.then_some(start / length)
        }
        _ => None,
    });
    let order: Vec<usize> = order.collect::<Option<_>>()?;
    Some(Derivation::Parts(Box::new(source?.clone()), order))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str, shape: &[usize]) -> Derivation {
        Derivation::Key { path: path.into(), absolute: false, shape: Some(shape.to_vec()) }
    }

    #[test]
    fn only_what_does_not_follow_is_said() {
        let said = |derivation: Derivation, layer: &str, shape: &[usize]| {
            let target = DerivationTarget { layer: layer.into(), shape: shape.to_vec() };
            shortest(derivation, &target).to_string()
        };
        let reshaped =
            |of: Derivation, sizes: &[usize]| Derivation::Reshape(Box::new(of), Some(sizes.to_vec()));
        assert_eq!(said(key("w", &[3, 4]), "", &[3, 4]), "w");
        assert_eq!(
            said(reshaped(key("gamma", &[8]), &[1, 8, 1, 1]), "", &[1, 8, 1, 1]),
            "unsqueeze(gamma, 0, 2, 3)"
        );
        assert_eq!(said(reshaped(key("cls", &[1, 1, 8]), &[8]), "", &[8]), "squeeze(cls, 0, 1)");
        assert_eq!(said(reshaped(reshaped(key("w", &[8]), &[1, 8]), &[8]), "", &[8]), "w");
        assert_eq!(said(reshaped(key("w", &[2, 4, 8]), &[8, 8]), "", &[8, 8]), "reshape(w[2, 4, 8])");
        assert_eq!(said(reshaped(key("w", &[1, 8, 1]), &[8, 1, 1]), "", &[8, 1, 1]), "reshape(w[1, 8, 1])");
        let slice = Derivation::Slice { of: Box::new(key("p", &[9, 2])), axis: 0, start: 0, end: 4, step: 1 };
        assert_eq!(said(slice, "", &[4, 2]), "slice(p[9, 2], 0, 0, 4)");
        let scaled = |factors: &[usize]| {
            Derivation::Scaled(Box::new(key("w", &[4, 8, 3])), Box::new(key("s", factors)))
        };
        assert_eq!(said(scaled(&[4]), "Conv1d", &[4, 8, 3]), "scaled(w, s)");
        assert_eq!(said(scaled(&[1]), "Conv1d", &[4, 8, 3]), "scaled(w, s[1])");
    }
}
