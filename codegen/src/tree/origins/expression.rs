//! Expressions over a checkpoint's tensors, in few words.

use kiln_types::{BinaryOp, Derivation, DerivationTarget, KeyBase};

/// The expression without what need not be said: the parameter's own sizes, and those of keys where they follow from it.
pub(super) fn shortest(derivation: Derivation, target: &DerivationTarget) -> Derivation {
    let simple = derivation.map(&|part| unreshaped(reduced(part), target));
    let follow = shapeless(simple.clone()).key_shapes(target);
    let mut shortest = simple.map(&|part| match part {
        Derivation::Key { path, base, shape } => {
            let shape = shape.filter(|shape| follow.get(&path) != Some(shape));
            Derivation::Key { path, base, shape }
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
        Derivation::Key { path, base, .. } => Derivation::key(path, base),
        other => other,
    })
}

/// What arithmetic with 0 or 1 leaves as it is.
fn reduced(derivation: Derivation) -> Derivation {
    let Derivation::Binary(op, a, b) = derivation else { return derivation };
    let is = |part: &Derivation, number: f64| matches!(part, Derivation::Number(n) if *n == number);
    match op {
        BinaryOp::Add if is(&a, 0.0) => *b,
        BinaryOp::Mul if is(&a, 1.0) => *b,
        BinaryOp::Add | BinaryOp::Sub if is(&b, 0.0) => *a,
        BinaryOp::Mul | BinaryOp::Div if is(&b, 1.0) => *a,
        op => Derivation::Binary(op, a, b),
    }
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

/// The expression with keys as they are called in a module: modules that do the same in different places say the same.
pub(super) fn seen_from(module: &str, derivation: Derivation) -> Derivation {
    derivation.map(&|part| match part {
        Derivation::Key { path, base: KeyBase::Root, shape } => {
            let (base, path) = KeyBase::nearest(&path, module);
            Derivation::Key { path: path.to_owned(), base, shape }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str, shape: &[usize]) -> Derivation {
        Derivation::Key { path: path.into(), base: KeyBase::Root, shape: Some(shape.to_vec()) }
    }

    #[test]
    fn only_what_does_not_follow_is_said() {
        let said = |derivation: Derivation, layer: &str, shape: &[usize]| {
            let target = DerivationTarget { layer: layer.into(), shape: shape.to_vec() };
            seen_from("", shortest(derivation, &target)).to_string()
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
        let (zero, one) = (|| Derivation::Number(0.0), || Derivation::Number(1.0));
        let product = Derivation::binary(BinaryOp::Mul, key("w", &[3, 4]), one());
        let sum = Derivation::binary(BinaryOp::Add, zero(), product);
        let rest = Derivation::binary(BinaryOp::Sub, one(), Derivation::binary(BinaryOp::Div, sum, one()));
        assert_eq!(said(rest, "", &[3, 4]), "1 - w");
        let slice = Derivation::Slice { of: Box::new(key("p", &[9, 2])), axis: 0, start: 0, end: 4, step: 1 };
        assert_eq!(said(slice, "", &[4, 2]), "slice(p[9, 2], 0, 0, 4)");
        let scaled = |factors: &[usize]| {
            Derivation::Scaled(Box::new(key("w", &[4, 8, 3])), Box::new(key("s", factors)))
        };
        assert_eq!(said(scaled(&[4]), "Conv1d", &[4, 8, 3]), "scaled(w, s)");
        assert_eq!(said(scaled(&[1]), "Conv1d", &[4, 8, 3]), "scaled(w, s[1])");
    }
}
