//! Parameters that are computed from a checkpoint's tensors: what was folded when a module was generated is folded again.

mod compute;
mod undo;
mod undone;

pub(super) use undo::{Equation, Solver};
pub use undone::{Undone, Unsaved};

use super::ImportError;
use super::load::From;
use super::source::Source;
use crate::module::{Derivation, DerivationError, Origin};
use crate::tensor::backend::{Backend, hold};
use crate::tensor::{BinaryOp, TensorData, UnaryOp};
use alloc::string::{String, ToString};
use alloc::{boxed::Box, format, vec, vec::Vec};
use compute::compute_parameter;
use core::cell::Cell;
use kiln_types::{DerivationTarget, KeyBase, Misfit};

/// A computation of a parameter, its keys being the checkpoint's.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// What to compute.
    pub(super) expression: Derivation,
    /// For what.
    pub(super) target: DerivationTarget,
}

/// What a parameter is made of, as far as its origin tells.
pub(super) enum Made {
    /// The model holds it already.
    Before,
    /// By a computation over keys below a path.
    By(Derivation),
}

/// A key of PyTorch's, with what must be done to its tensor so that it lies as the parameter does.
fn laid_out(path: &str, turned: bool) -> Derivation {
    let key = Derivation::key(path, KeyBase::Root);
    if turned { Derivation::Permute(Box::new(key), vec![1, 0]) } else { key }
}

/// What an origin says of the parameter at `below` its field. `own` is where the parameter would be without the origin,
/// and whether it is transposed; `base` is the path of the struct.
pub(super) fn made(
    origin: Origin,
    below: &str,
    own: (&str, bool),
    base: &str,
) -> Result<Option<Made>, String> {
    match origin {
        Origin::Constant => Ok(Some(Made::Before)),
        Origin::Derived { parameter, from } if parameter == Origin::parameter(below) => {
            let from = Origin::text_for(from, below);
            let parsed: Derivation = from.parse().map_err(|error: DerivationError| error.to_string())?;
            Ok(Some(match parsed {
                Derivation::Constant => Made::Before,
                other => Made::By(rooted(other, base)?),
            }))
        }
        Origin::BatchNorm { path, epsilon, biased } => {
            let path = Origin::text_for(path, below);
            let norm = |name: &str| Derivation::key(join(base, &format!("{path}.{name}")), KeyBase::Root);
            let variance =
                Derivation::binary(BinaryOp::Add, norm("running_var"), Derivation::Number(epsilon));
            let root = Derivation::Unary(UnaryOp::Sqrt, Box::new(variance));
            let scale = Derivation::binary(BinaryOp::Div, norm("weight"), root);
            let moved = Derivation::binary(BinaryOp::Mul, norm("running_mean"), scale.clone());
            let shift = Derivation::binary(BinaryOp::Sub, norm("bias"), moved);
            Ok(match Origin::parameter(below) {
                "weight" => {
                    let weight = laid_out(own.0, own.1);
                    Some(Made::By(Derivation::Scaled(Box::new(weight), Box::new(scale))))
                }
                "bias" if biased => {
                    let scaled = Derivation::binary(BinaryOp::Mul, laid_out(own.0, own.1), scale);
                    Some(Made::By(Derivation::binary(BinaryOp::Add, scaled, shift)))
                }
                "bias" => Some(Made::By(shift)),
                _ => None,
            })
        }
        Origin::Derived { .. } => Ok(None),
    }
}

fn join(base: &str, path: &str) -> String {
    if base.is_empty() { path.to_string() } else { format!("{base}.{path}") }
}

/// The derivation with whole keys.
fn rooted(derivation: Derivation, module: &str) -> Result<Derivation, String> {
    let outside = Cell::new(None);
    let rooted = derivation.map(&|part| match part {
        Derivation::Key { path, base, shape } => match base.whole(&path, module) {
            Some(path) => Derivation::Key { path, base: KeyBase::Root, shape },
            None => {
                let key = Derivation::Key { path, base, shape };
                outside.set(Some(format!("`{key}` is above the root, seen from `{module}`")));
                key
            }
        },
        other => other,
    });
    outside.into_inner().map_or(Ok(rooted), Err)
}

/// The derivation with every choice made: the first that the file has, or the first at all.
pub(super) fn settled(derivation: Derivation, source: &Source) -> Derivation {
    let there = |part: &Derivation| part.keys().into_iter().all(|key| source.get(key).is_some());
    derivation.map(&|part| match part {
        Derivation::First(mut parts) if !parts.is_empty() => {
            let at = parts.iter().position(there).unwrap_or(0);
            parts.swap_remove(at)
        }
        other => other,
    })
}

impl Recipe {
    /// Whether it is one number, everywhere.
    pub(super) fn is_number(&self) -> bool {
        matches!(self.expression, Derivation::Number(_))
    }

    /// The key, or the expression.
    pub(super) fn name(&self) -> String {
        match &self.expression {
            Derivation::Key { path, .. } => path.clone(),
            other => other.to_string(),
        }
    }

    /// A tensor as it is in the file, or transposed: nothing is computed then.
    pub(super) fn view(&self, source: &Source) -> Option<From> {
        let (path, turned) = match &self.expression {
            Derivation::Key { path, .. } => (path, false),
            Derivation::Permute(of, axes) if axes.as_slice() == [1, 0] => match &**of {
                Derivation::Key { path, .. } => (path, true),
                _ => return None,
            },
            _ => return None,
        };
        let tensor = source.get(path)?;
        let tensor = if turned { tensor.transposed()? } else { tensor.clone() };
        Some(From::Tensor(path.clone(), tensor))
    }

    /// The shape of what it yields.
    pub(super) fn shape(&self, source: &Source) -> Result<Vec<usize>, Misfit> {
        self.expression.shape(&self.target, &|key| Some(source.get(key)?.shape().to_vec()))
    }

    /// Computes the parameter, floats in `f32` at least.
    ///
    /// # Errors
    /// When a tensor cannot be read. The shapes were checked by [`Recipe::shape`].
    pub(super) fn compute<B: Backend>(
        &self,
        source: &Source,
        device: &B::Device,
    ) -> Result<TensorData, ImportError> {
        let computed = compute_parameter::<B>(&self.expression, &self.target, device, &|key| {
            let tensor = source.get(key).ok_or_else(|| ImportError::Record(format!("{key} is missing")))?;
            Ok(hold::<B>(source.data(key, tensor)?, device))
        })?;
        B::into_data(computed).map_err(|error| ImportError::Record(error.to_string()))
    }
}
