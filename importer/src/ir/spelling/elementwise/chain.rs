//! Chains of elementwise operations, as closures.

use super::{Cx, Expr, between, compare_scalar, is_one, sign, unary, value, with_scalar};
use kiln_types::{BinaryOp, DType, DTypeKind, Expression, Step};

/// A chain as a closure: `elementwise([a, b], |[a, b]| (a - b) * 0.5)`.
pub(super) fn program(expression: &Expression, cx: &Cx<'_>) -> Expr {
    let count = cx.node.inputs.len();
    let names: Vec<String> = (0..count).map(name).collect();
    let output = cx.output().map_or(DTypeKind::Float, |ty| ty.dtype.kind());
    let uniform = (0..count).all(|n| cx.dtype(n).kind() == output);
    let closure = Expr::Closure(names.clone(), Box::new(Tracing::new(expression, &names).body()));
    if uniform {
        let operands = Expr::Array((0..count).map(Expr::Operand).collect());
        return Expr::Call("tensor::elementwise", vec![operands, closure]);
    }
    let operands = Expr::Array((0..count).map(|n| Expr::method(n, "into", Vec::new())).collect());
    Expr::Make("elementwise", vec![operands, closure])
}

/// The name of the `n`-th operand of a chain.
fn name(n: usize) -> String {
    const LETTERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    LETTERS.get(n).map_or_else(|| format!("x{n}"), |letter| (*letter).to_owned())
}

/// Writes a chain's steps as one expression; what is used more than once gets a name first.
struct Tracing<'a> {
    expression: &'a Expression,
    /// The name of each step that has one.
    names: Vec<Option<String>>,
    /// Uses of each step that are still to be written: all but the last are clones.
    uses: Vec<usize>,
}

impl<'a> Tracing<'a> {
    fn new(expression: &'a Expression, operands: &[String]) -> Self {
        let mut uses = vec![0; expression.steps.len()];
        for step in &expression.steps {
            for operand in operands_of(step) {
                if let Some(count) = uses.get_mut(usize::from(operand)) {
                    *count += 1;
                }
            }
        }
        let names = expression.steps.iter().map(|step| match step {
            Step::Input(n) => operands.get(usize::from(*n)).cloned(),
            _ => None,
        });
        Self { expression, names: names.collect(), uses }
    }

    fn body(&mut self) -> Expr {
        let mut bindings = Vec::new();
        let last = self.expression.steps.len().saturating_sub(1);
        for index in 0..last {
            let step = self.expression.steps[index];
            let simple = matches!(step, Step::Input(_) | Step::Constant(..));
            if !simple && self.uses[index] > 1 {
                let value = self.write(index);
                let name = format!("t{}", bindings.len());
                self.names[index] = Some(name.clone());
                bindings.push((name, value));
            }
        }
        let result = self.write(last);
        if bindings.is_empty() { result } else { Expr::Block(bindings, Box::new(result)) }
    }

    /// A step where it is used.
    fn step(&mut self, id: u16) -> Expr {
        let index = usize::from(id);
        if let Some(&Step::Constant(value, dtype)) = self.expression.steps.get(index) {
            // A number cannot stand for itself before a method's dot.
            return Expr::Call(
                "tensor::Traced::constant",
                vec![Expr::Scalar(value, dtype), Expr::DType(dtype)],
            );
        }
        let Some(name) = self.names.get(index).cloned().flatten() else { return self.write(index) };
        // Several steps may read one operand.
        let left: usize = (0..self.names.len())
            .filter(|&other| self.names[other].as_deref() == Some(&name))
            .map(|other| self.uses[other])
            .sum();
        self.uses[index] = self.uses[index].saturating_sub(1);
        let local = Expr::Local(name);
        if left > 1 { local.then("clone", Vec::new()) } else { local }
    }

    fn constant(&self, id: u16) -> Option<Expr> {
        match self.expression.steps.get(usize::from(id)) {
            Some(&Step::Constant(value, dtype)) => Some(Expr::Scalar(value, dtype)),
            _ => None,
        }
    }

    fn write(&mut self, index: usize) -> Expr {
        let Some(&this) = self.expression.steps.get(index) else { return Expr::Tuple(Vec::new()) };
        match this {
            Step::Input(_) => self.step(index as u16),
            Step::Constant(value, dtype) => Expr::Scalar(value, dtype),
            Step::Unary(op, x) => unary(op, self.step(x)),
            Step::Binary(op, a, b) => self.binary(op, a, b),
            Step::Compare(op, a, b) => {
                let left = self.step(a);
                match self.constant(b) {
                    Some(number) => left.then(compare_scalar(op), vec![number]),
                    None => {
                        let right = self.step(b);
                        left.then(op.name(), vec![right])
                    }
                }
            }
            Step::Activation(activation, x) => self.step(x).then("activation", vec![value(activation)]),
            Step::Where(mask, a, b) => {
                let no = self.step(b);
                let mask = self.step(mask);
                let yes = self.step(a);
                no.then("mask_where", vec![mask, yes])
            }
            Step::Cast(dtype, x) => self.step(x).then("cast", vec![Expr::DType(dtype)]),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: u16, b: u16) -> Expr {
        match (self.constant(a), self.constant(b)) {
            (None, Some(number)) => {
                let left = self.step(a);
                with_scalar(op, left.clone(), number.clone(), DType::F32)
                    .unwrap_or_else(|| between(op, left, number, DType::F32))
            }
            (Some(number), None) => {
                let right = self.step(b);
                match sign(op) {
                    Some(_) if is_one(op, &number) => right.then("recip", Vec::new()),
                    Some(sign) => number.infix(sign, right),
                    None => between(op, self.step(a), right, DType::F32),
                }
            }
            _ => {
                let left = self.step(a);
                let right = self.step(b);
                between(op, left, right, DType::F32)
            }
        }
    }
}

/// The steps that a step reads.
fn operands_of(step: &Step) -> Vec<u16> {
    match *step {
        Step::Input(_) | Step::Constant(..) => Vec::new(),
        Step::Unary(_, x) | Step::Activation(_, x) | Step::Cast(_, x) => vec![x],
        Step::Binary(_, a, b) | Step::Compare(_, a, b) => vec![a, b],
        Step::Where(mask, a, b) => vec![b, mask, a],
    }
}
