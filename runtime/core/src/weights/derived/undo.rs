//! Derivations, undone: a checkpoint's tensors from the parameters that were made of them.
//!
//! Each parameter is an equation, *derivation = value*, which is solved from the outside in: what was permuted is permuted
//! back, what was joined is cut, what was added is taken away. Where two operands are unknown, as a weight and the batch
//! norm that was folded into it, the smaller one gets the value that changes nothing (0 or 1) and the other one the rest,
//! so that the network computes the same. At last every derivation is computed from what was found and compared.

mod cut;

use super::super::ImportError;
use super::super::source::Source;
use super::compute::{binary, compute, compute_parameter, reordered, scaled, widened};
use super::{Undone, Unsaved};
use crate::tensor::backend::{Backend, Primitive, SliceRange, hold};
use crate::tensor::{BinaryOp, DType, ReduceOp, Scalar, Shape, TensorData};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::{vec, vec::Vec};
use cut::{Cut, inverse, is_close, narrowed, unary, unspread};
use kiln_types::{Derivation, DerivationTarget, Misfit};

/// A parameter that is computed, and what it is now.
pub(in super::super) struct Equation<B: Backend> {
    /// The parameter.
    pub(in super::super) path: String,
    /// What it is made of.
    pub(in super::super) expression: Derivation,
    /// What it is.
    pub(in super::super) target: DerivationTarget,
    /// Its contents.
    pub(in super::super) value: B::Primitive,
}

/// The largest difference, as a part of the parameter's largest element, that rounding explains.
const TOLERANCE: f32 = 1e-5;

/// Finds the tensors that equations are about.
pub(in super::super) struct Solver<'s, B: Backend> {
    device: B::Device,
    known: &'s BTreeMap<String, TensorData>,
    original: Option<&'s Source>,
    shapes: BTreeMap<String, Vec<usize>>,
    found: BTreeMap<String, (Cut<B>, DType)>,
    /// Dtype of the parameter of the current equation.
    dtype: DType,
}

impl<'s, B: Backend> Solver<'s, B> {
    /// `known` are tensors that are parameters as they are. What an equation leaves open comes from the original.
    pub(in super::super) fn new(
        known: &'s BTreeMap<String, TensorData>,
        original: Option<&'s Source>,
        device: B::Device,
    ) -> Self {
        let shapes = known.iter().map(|(key, data)| (key.clone(), data.shape.clone())).collect();
        Self { device, known, original, shapes, found: BTreeMap::new(), dtype: DType::F32 }
    }

    /// The tensors, without those that were known; or the parameters that cannot be written as such.
    pub(in super::super) fn solve(
        mut self,
        equations: &[Equation<B>],
    ) -> Result<Vec<(String, TensorData)>, Vec<Unsaved>> {
        for Equation { expression, target, .. } in equations {
            for (key, shape) in expression.key_shapes(target) {
                self.shapes.entry(key).or_insert(shape);
            }
        }
        if let Some(original) = self.original {
            self.shapes.extend(original.iter().map(|(key, tensor)| (key.into(), tensor.shape().to_vec())));
            self.keep(equations);
        }
        let mut failed: Vec<Unsaved> = Vec::new();
        let mut fail = |equation: &Equation<B>, result: Result<(), Undone>| {
            let Equation { path, expression, .. } = equation;
            let unsaved = |reason| Unsaved { path: path.clone(), expression: expression.to_string(), reason };
            // What fails first explains what fails later.
            if failed.iter().all(|known| known.path != *path) {
                failed.extend(result.err().map(unsaved));
            }
        };
        for equation in equations {
            let Equation { expression, target, value, .. } = equation;
            self.dtype = value.dtype();
            let value = widened::<B>(value.clone());
            fail(equation, self.undo(expression, target, Cut::whole(value)));
        }
        for equation in equations {
            let result = self.complete(&equation.expression).and_then(|()| self.check(equation));
            fail(equation, result);
        }
        if !failed.is_empty() {
            return Err(failed);
        }
        let read = self.found.into_iter().map(|(key, (cut, dtype))| match B::into_data(cut.value) {
            Ok(data) => Ok((key, data.convert_dtype(dtype))),
            Err(error) => {
                let reason = Undone::Backend(error.to_string());
                Err(vec![Unsaved { path: key.clone(), expression: key, reason }])
            }
        });
        read.collect()
    }

    /// Keeps the original's tensors for parameters that have not changed. One of which others have changed parts is not the original's.
    fn keep(&mut self, equations: &[Equation<B>]) {
        let (same, changed): (Vec<_>, Vec<_>) =
            equations.iter().partition(|equation| self.is_unchanged(equation));
        let changed: BTreeSet<&str> =
            changed.iter().flat_map(|equation| equation.expression.keys()).collect();
        for Equation { expression, value, .. } in same {
            self.dtype = value.dtype();
            let in_parts = keys_in_parts(expression);
            let whole = |key: &&str| !(changed.contains(key) && in_parts.contains(key));
            self.adopt(expression.keys().into_iter().filter(whole));
        }
    }

    /// Whether a parameter is what the original makes it.
    fn is_unchanged(&self, Equation { expression, target, value, .. }: &Equation<B>) -> bool {
        let same = self.original.and_then(|original| {
            expression.shape(target, &|key| Some(original.get(key)?.shape().to_vec())).ok()?;
            let fetch = |key: &str| self.original_tensor(key);
            let made = compute_parameter::<B>(expression, target, &self.device, &fetch).ok()?;
            is_close::<B>(made, value.clone(), 0.0).then_some(())
        });
        same.is_some()
    }

    /// Takes the original's tensors for what is not known of these.
    fn adopt<'k>(&mut self, keys: impl IntoIterator<Item = &'k str>) {
        for key in keys {
            if !self.known.contains_key(key)
                && !self.found.contains_key(key)
                && let Ok(tensor) = self.original_tensor(key)
            {
                self.found.insert(key.into(), (Cut::whole(tensor), self.dtype));
            }
        }
    }

    fn original_tensor(&self, key: &str) -> Result<B::Primitive, ImportError> {
        let missing = || ImportError::Record(Misfit::Missing(key.into()).to_string());
        let original = self.original.ok_or_else(missing)?;
        let data = original.data(key, original.get(key).ok_or_else(missing)?)?;
        Ok(widened::<B>(hold::<B>(data, &self.device)))
    }

    /// Whether all of a tensor is known.
    fn is_known(&self, key: &str) -> bool {
        self.known.contains_key(key) || self.found.get(key).is_some_and(|(cut, _)| cut.mask.is_none())
    }

    /// Whether something of it is not known.
    fn is_open(&self, expression: &Derivation) -> bool {
        expression.keys().into_iter().any(|key| !self.is_known(key))
    }

    fn shape(&self, expression: &Derivation, target: &DerivationTarget) -> Result<Vec<usize>, Undone> {
        Ok(expression.shape(target, &|key| self.shapes.get(key).cloned())?)
    }

    fn value(&self, expression: &Derivation, target: &DerivationTarget) -> Result<B::Primitive, Undone> {
        self.shape(expression, target)?;
        Ok(compute::<B>(expression, target, &self.device, &|key| self.tensor(key))?)
    }

    fn tensor(&self, key: &str) -> Result<B::Primitive, ImportError> {
        match (self.found.get(key), self.known.get(key)) {
            (Some((cut, _)), _) => Ok(cut.value.clone()),
            (None, Some(data)) => Ok(hold::<B>(data.clone(), &self.device)),
            (None, None) => Err(ImportError::Record(Misfit::Missing(key.into()).to_string())),
        }
    }

    /// A tensor of one number, in the shape of an expression.
    fn full(
        &self,
        expression: &Derivation,
        target: &DerivationTarget,
        number: f64,
    ) -> Result<Cut<B>, Undone> {
        let shape = Shape::from(self.shape(expression, target)?);
        Ok(Cut::whole(B::full(shape, Scalar::Float(number), DType::F32, &self.device)))
    }

    /// Makes an expression what `cut` says.
    fn undo(
        &mut self,
        expression: &Derivation,
        target: &DerivationTarget,
        cut: Cut<B>,
    ) -> Result<(), Undone> {
        if !self.is_open(expression) {
            return Ok(());
        }
        match expression {
            Derivation::Key { path, .. } => self.put(path, cut),
            Derivation::Number(_) | Derivation::Constant => Ok(()),
            // Choices are made before.
            Derivation::First(_) => Err(Misfit::Misplaced.into()),
            Derivation::Unary(op, x) => self.undo(x, target, unary(*op, cut)?),
            Derivation::Binary(op, a, b) => self.undo_binary(*op, (a, b), target, cut),
            Derivation::Permute(x, axes) => {
                let back = inverse(axes);
                self.undo(x, target, cut.moved(|x| B::permute(x, &back)))
            }
            Derivation::Parts(x, order) => {
                let back = inverse(order);
                self.undo(x, target, cut.moved(|x| reordered::<B>(x, &back)))
            }
            Derivation::Squeeze(x, _) | Derivation::Unsqueeze(x, _) | Derivation::Reshape(x, _) => {
                let shape = self.shape(x, target)?;
                self.undo(x, target, cut.reshaped(&shape))
            }
            Derivation::Expand(x, _) => {
                let shape = self.shape(x, target)?;
                self.undo(x, target, cut.moved(|x| unspread::<B>(x, &shape)))
            }
            Derivation::Slice { of, axis, start, end, step } => {
                let shape = self.shape(of, target)?;
                let mut ranges: Vec<_> = shape.iter().map(|&size| SliceRange::full(size)).collect();
                if let Some(range) = ranges.get_mut(*axis) {
                    *range = SliceRange { start: *start, end: *end, step: *step as isize };
                }
                self.undo(of, target, self.placed(cut, &shape, &ranges))
            }
            Derivation::Concat(axis, parts) => self.undo_concat(*axis, parts, target, &cut),
            Derivation::Stack(parts) => {
                for (index, part) in parts.iter().enumerate() {
                    let shape = self.shape(part, target)?;
                    let row = cut.clone().moved(|x| narrowed::<B>(x, 0, index, 1));
                    self.undo(part, target, row.reshaped(&shape))?;
                }
                Ok(())
            }
            Derivation::Reduce(op, x, _) => {
                // Along axes of size 1 nothing is folded.
                let same = self.shape(x, target)? == cut.value.dims();
                match op {
                    ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min if same => {
                        self.undo(x, target, cut)
                    }
                    _ => Err(Undone::Operation(op.name().into())),
                }
            }
            Derivation::MatMul(..) => Err(Undone::Operation("matmul".into())),
            Derivation::Scaled(weight, factors) => {
                if !self.is_open(weight) {
                    return Err(Undone::Operation("scaled".into()));
                }
                self.settle(factors, target, 1.0)?;
                let factors = self.value(factors, target)?;
                let one = B::full(Shape::from(Vec::new()), Scalar::Float(1.0), DType::F32, &self.device);
                let back = binary::<B>(BinaryOp::Div, one, factors);
                self.undo(weight, target, cut.computed(|x| scaled::<B>(target, x, back)))
            }
        }
    }

    fn undo_concat(
        &mut self,
        axis: usize,
        parts: &[Derivation],
        target: &DerivationTarget,
        cut: &Cut<B>,
    ) -> Result<(), Undone> {
        let mut start = 0;
        for part in parts {
            let size = self.shape(part, target)?.get(axis).copied().unwrap_or(0);
            let from = start;
            start += size;
            self.undo(part, target, cut.clone().moved(|x| narrowed::<B>(x, axis, from, size)))?;
        }
        Ok(())
    }

    fn undo_binary(
        &mut self,
        op: BinaryOp,
        (a, b): (&Derivation, &Derivation),
        target: &DerivationTarget,
        cut: Cut<B>,
    ) -> Result<(), Undone> {
        // The neutral element, what undoes the operation for its left operand (`result back right`), and for its right one:
        // `a - b` and `a / b` are undone by themselves, as `left op result`.
        enum ForRight {
            ResultThenLeft(BinaryOp),
            LeftThenResult(BinaryOp),
        }
        let (neutral, for_left, for_right) = match op {
            BinaryOp::Add => (0.0, BinaryOp::Sub, ForRight::ResultThenLeft(BinaryOp::Sub)),
            BinaryOp::Sub => (0.0, BinaryOp::Add, ForRight::LeftThenResult(BinaryOp::Sub)),
            BinaryOp::Mul => (1.0, BinaryOp::Div, ForRight::ResultThenLeft(BinaryOp::Div)),
            BinaryOp::Div => (1.0, BinaryOp::Mul, ForRight::LeftThenResult(BinaryOp::Div)),
            _ => return Err(Undone::Operation(op.name().into())),
        };
        if self.is_open(a) && self.is_open(b) {
            let count =
                |part: &Derivation| self.shape(part, target).map(|shape| shape.iter().product::<usize>());
            let (main, lesser) = if count(a)? < count(b)? { (b, a) } else { (a, b) };
            let shared =
                main.keys().into_iter().any(|key| !self.is_known(key) && lesser.keys().contains(key));
            if shared && !self.has_more_than(main, lesser) {
                // As if the lesser one were neutral, a norm of what it divides for example, which is made so then.
                self.undo(main, target, self.fitted(main, target, cut.clone())?)?;
                let neutral = self.full(lesser, target, neutral)?;
                return self.undo(lesser, target, neutral);
            }
            self.settle(lesser, target, neutral)?;
        }
        let shape_of = |part: &Derivation| self.shape(part, target);
        if self.is_open(a) {
            let (b, shape) = (self.value(b, target)?, shape_of(a)?);
            let cut = cut.computed(|x| binary::<B>(for_left, x, b));
            return self.undo(a, target, cut.moved(|x| unspread::<B>(x, &shape)));
        }
        let (a, shape) = (self.value(a, target)?, shape_of(b)?);
        let cut = cut.computed(|x| match for_right {
            ForRight::ResultThenLeft(back) => binary::<B>(back, x, a),
            ForRight::LeftThenResult(back) => binary::<B>(back, a, x),
        });
        self.undo(b, target, cut.moved(|x| unspread::<B>(x, &shape)))
    }

    /// Whether an expression has an open tensor that another has not.
    fn has_more_than(&self, expression: &Derivation, other: &Derivation) -> bool {
        let others = other.keys();
        expression.keys().into_iter().any(|key| !self.is_known(key) && !others.contains(key))
    }

    /// A cut of a result in the shape of an operand.
    fn fitted(
        &self,
        expression: &Derivation,
        target: &DerivationTarget,
        cut: Cut<B>,
    ) -> Result<Cut<B>, Undone> {
        let shape = self.shape(expression, target)?;
        Ok(cut.moved(|x| unspread::<B>(x, &shape)))
    }

    /// Makes an expression known: the original's, or a number everywhere.
    fn settle(
        &mut self,
        expression: &Derivation,
        target: &DerivationTarget,
        number: f64,
    ) -> Result<(), Undone> {
        self.adopt(expression.keys());
        if self.is_open(expression) {
            let full = self.full(expression, target, number)?;
            self.undo(expression, target, full)?;
        }
        Ok(())
    }

    /// Contents at their place in a larger tensor, the rest of which is not known.
    fn placed(&self, cut: Cut<B>, shape: &[usize], ranges: &[SliceRange]) -> Cut<B> {
        let empty = |dtype: DType| B::full(Shape::from(shape.to_vec()), Scalar::Int(0), dtype, &self.device);
        let all = |x: &B::Primitive| {
            let whole = Shape::from(x.dims().to_vec());
            B::full(whole, Scalar::Bool(true), DType::Bool, &self.device)
        };
        let mask = cut.mask.unwrap_or_else(|| all(&cut.value));
        Cut {
            mask: Some(B::slice_assign(empty(DType::Bool), ranges, mask)),
            value: B::slice_assign(empty(cut.value.dtype()), ranges, cut.value),
        }
    }

    /// Notes what a tensor is, beside what is known of it.
    fn put(&mut self, key: &str, cut: Cut<B>) -> Result<(), Undone> {
        let expected = self.shapes.get(key).ok_or_else(|| Misfit::Missing(key.into()))?;
        if expected != cut.value.dims() {
            let (from, to) = (cut.value.dims().to_vec(), expected.clone());
            return Err(Misfit::Spread { from, to }.into());
        }
        let merged = match (self.found.remove(key), cut) {
            (Some((Cut { value: old, mask: Some(known) }, _)), Cut { value, mask: Some(mask) }) => {
                let value = B::select_where(mask.clone(), value, old);
                Cut { value, mask: Some(B::select_where(mask.clone(), mask, known)) }
            }
            (_, cut) => cut,
        };
        let (known, all) = merged.counts()?;
        let merged = if known == all { Cut::whole(merged.value) } else { merged };
        self.found.insert(key.into(), (merged, self.dtype));
        Ok(())
    }

    /// Takes what is not known of partly known tensors from the original.
    fn complete(&mut self, expression: &Derivation) -> Result<(), Undone> {
        for key in expression.keys() {
            let Some((cut, dtype)) = self.found.get(key).cloned() else { continue };
            let (known, all) = cut.counts()?;
            let Cut { value, mask: Some(mask) } = cut else { continue };
            let partial = |_| Undone::Partial { key: key.into(), known, all };
            let original = self.original_tensor(key).map_err(partial)?;
            self.found.insert(key.into(), (Cut::whole(B::select_where(mask, value, original)), dtype));
        }
        Ok(())
    }

    /// Whether a derivation yields its parameter again.
    fn check(&self, Equation { expression, target, value, .. }: &Equation<B>) -> Result<(), Undone> {
        self.shape(expression, target)?;
        let made = compute_parameter::<B>(expression, target, &self.device, &|key| self.tensor(key))?;
        if is_close::<B>(made, value.clone(), TOLERANCE) { Ok(()) } else { Err(Undone::Changed) }
    }
}

/// The tensors of which it takes a part.
fn keys_in_parts(expression: &Derivation) -> BTreeSet<&str> {
    match expression {
        Derivation::Slice { of, .. } => of.keys(),
        other => other.parts().into_iter().flat_map(keys_in_parts).collect(),
    }
}
