//! How a parameter was made of those of the network that a model was generated from, as text.
//!
//! Generated modules carry such texts where a weight is not simply the original's: `#[module(from(weight = "…"))]`. Code
//! generation prints them and the runtime parses them, so both directions stand here.

mod misfit;
mod parse;
mod shape;
mod text;

use crate::{BinaryOp, ReduceOp, UnaryOp};
use alloc::{boxed::Box, collections::BTreeSet, string::String, vec::Vec};

pub use misfit::Misfit;
pub use parse::DerivationError;
pub use shape::DerivationTarget;

/// An expression over the tensors of a checkpoint.
///
/// Its text reads like arithmetic: `a.weight * (1 + b.scale)`, `cat(0, query.weight, key.weight)`,
/// `transpose(::embedding.weight)`. Names are keys below the module that holds the parameter; after `super::` below the path
/// that is one word shorter, and after `::` below the root ([`KeyBase`]). Those that are no dotted words stand in single quotes. Axes and sizes are plain numbers. Sizes stand behind a key,
/// `cls_token[1, 1, 64]`, where they do not follow from the parameter's ([`Derivation::key_shapes`]).
#[derive(Clone, Debug, PartialEq)]
pub enum Derivation {
    /// A tensor of the checkpoint.
    Key {
        /// Its name.
        path: String,
        /// Below what.
        base: KeyBase,
        /// Its sizes, if they are said.
        shape: Option<Vec<usize>>,
    },
    /// `first(a, b)`: the first whose tensors the checkpoint has. Formats that keep no ties drop one of two equal tensors.
    First(Vec<Derivation>),
    /// A number: `0.5`.
    Number(f64),
    /// What the model itself holds, since no checkpoint has it: `constant()`.
    Constant,
    /// `-x`, `sqrt(x)`: the operation's own name.
    Unary(UnaryOp, Box<Derivation>),
    /// `a + b`, `-`, `*` and `/`, others by name; broadcast.
    Binary(BinaryOp, Box<Derivation>, Box<Derivation>),
    /// `sum(x, 1)`: reduces axes, which stay with size 1.
    Reduce(ReduceOp, Box<Derivation>, Vec<usize>),
    /// `transpose(x)` of a matrix, `permute(x, 2, 0, 1)` of others.
    Permute(Box<Derivation>, Vec<usize>),
    /// `squeeze(x, 0)`: without these axes, which are of size 1.
    Squeeze(Box<Derivation>, Vec<usize>),
    /// `unsqueeze(x, 1, 2)`: with axes of size 1, which are these afterwards.
    Unsqueeze(Box<Derivation>, Vec<usize>),
    /// `reshape(x, 3, 4)`; without sizes, the parameter's shape.
    Reshape(Box<Derivation>, Option<Vec<usize>>),
    /// `expand(x, 3, 4)`: broadcast to these sizes.
    Expand(Box<Derivation>, Vec<usize>),
    /// `slice(x, axis, start, end)`, or with a step of more than 1 behind them.
    Slice {
        /// What is cut.
        of: Box<Derivation>,
        /// Along which axis.
        axis: usize,
        /// First element.
        start: usize,
        /// One past the last.
        end: usize,
        /// Distance between those kept.
        step: usize,
    },
    /// `cat(axis, a, b, …)`.
    Concat(usize, Vec<Derivation>),
    /// `parts(x, 0, 3, 1, 2)`: the equal parts of the first axis, as many as there are numbers, in this order.
    Parts(Box<Derivation>, Vec<usize>),
    /// `stack(a, b, …)`: joined along a new first axis.
    Stack(Vec<Derivation>),
    /// `matmul(a, b)`.
    MatMul(Box<Derivation>, Box<Derivation>),
    /// `scaled(weight, factors)`: the weight of the layer that holds the parameter, each output channel's part multiplied
    /// by its own factor.
    Scaled(Box<Derivation>, Box<Derivation>),
}

/// Below what the name of a tensor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyBase {
    /// The module that holds the parameter.
    Module,
    /// The module's path without its last words, as many as this says: `super::scale.weight`.
    Above(usize),
    /// Nothing; the name is whole: `::lm_head.weight`.
    Root,
}

impl KeyBase {
    /// The nearest that a whole name lies below, seen from a module's path, and the rest of the name.
    pub fn nearest<'n>(name: &'n str, module: &str) -> (Self, &'n str) {
        let mut above = module;
        let mut levels = 0;
        while !above.is_empty() {
            if let Some(rest) = name.strip_prefix(above).and_then(|rest| rest.strip_prefix('.')) {
                return (if levels == 0 { Self::Module } else { Self::Above(levels) }, rest);
            }
            above = above.rsplit_once('.').map_or("", |(above, _)| above);
            levels += 1;
        }
        (if module.is_empty() { Self::Module } else { Self::Root }, name)
    }

    /// The whole name of what is called `path`, for a module's path; `None` where nothing is so far above it.
    pub fn whole(self, path: &str, module: &str) -> Option<String> {
        let above = match self {
            Self::Module => module,
            Self::Root => "",
            Self::Above(levels) => (0..levels).try_fold(module, |path, _| {
                (!path.is_empty()).then(|| path.rsplit_once('.').map_or("", |(above, _)| above))
            })?,
        };
        Some(if above.is_empty() { path.into() } else { alloc::format!("{above}.{path}") })
    }
}

impl Derivation {
    /// The key of a tensor.
    pub fn key(path: impl Into<String>, base: KeyBase) -> Self {
        Self::Key { path: path.into(), base, shape: None }
    }

    /// `a op b`.
    pub fn binary(op: BinaryOp, a: Self, b: Self) -> Self {
        Self::Binary(op, Box::new(a), Box::new(b))
    }

    /// The derivation with each part, the inner ones first, replaced.
    pub fn map(self, replace: &dyn Fn(Self) -> Self) -> Self {
        let inner = |part: Box<Self>| Box::new(part.map(replace));
        let each = |parts: Vec<Self>| parts.into_iter().map(|part| part.map(replace)).collect();
        let whole = match self {
            Self::First(parts) => Self::First(each(parts)),
            Self::Unary(op, x) => Self::Unary(op, inner(x)),
            Self::Binary(op, a, b) => Self::Binary(op, inner(a), inner(b)),
            Self::Reduce(op, x, axes) => Self::Reduce(op, inner(x), axes),
            Self::Permute(x, axes) => Self::Permute(inner(x), axes),
            Self::Squeeze(x, axes) => Self::Squeeze(inner(x), axes),
            Self::Unsqueeze(x, axes) => Self::Unsqueeze(inner(x), axes),
            Self::Reshape(x, sizes) => Self::Reshape(inner(x), sizes),
            Self::Expand(x, sizes) => Self::Expand(inner(x), sizes),
            Self::Slice { of, axis, start, end, step } => {
                Self::Slice { of: inner(of), axis, start, end, step }
            }
            Self::Concat(axis, parts) => Self::Concat(axis, each(parts)),
            Self::Stack(parts) => Self::Stack(each(parts)),
            Self::Parts(x, order) => Self::Parts(inner(x), order),
            Self::MatMul(a, b) => Self::MatMul(inner(a), inner(b)),
            Self::Scaled(weight, factors) => Self::Scaled(inner(weight), inner(factors)),
            leaf @ (Self::Key { .. } | Self::Number(_) | Self::Constant) => leaf,
        };
        replace(whole)
    }

    /// The derivations that it is made of.
    pub fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Key { .. } | Self::Number(_) | Self::Constant => Vec::new(),
            Self::Unary(_, x)
            | Self::Reduce(_, x, _)
            | Self::Permute(x, _)
            | Self::Squeeze(x, _)
            | Self::Unsqueeze(x, _)
            | Self::Reshape(x, _)
            | Self::Expand(x, _)
            | Self::Parts(x, _)
            | Self::Slice { of: x, .. } => [&**x].into(),
            Self::Binary(_, a, b) | Self::MatMul(a, b) | Self::Scaled(a, b) => [&**a, &**b].into(),
            Self::Concat(_, parts) | Self::Stack(parts) | Self::First(parts) => parts.iter().collect(),
        }
    }

    /// The names of the tensors that it needs.
    pub fn keys(&self) -> BTreeSet<&str> {
        match self {
            Self::Key { path, .. } => [path.as_str()].into(),
            other => other.parts().into_iter().flat_map(Self::keys).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KeyBase;

    #[test]
    fn names_are_said_from_the_nearest_module() {
        let cases = [
            ("a.b.weight", "a.b", KeyBase::Module, "weight"),
            ("weight", "", KeyBase::Module, "weight"),
            ("layer.2.scale.gamma", "layer.2.attention.out", KeyBase::Above(2), "scale.gamma"),
            ("layer.12.scale", "layer.1", KeyBase::Above(1), "12.scale"),
            ("shared.weight", "encoder.embed", KeyBase::Root, "shared.weight"),
        ];
        for (name, module, base, path) in cases {
            assert_eq!(KeyBase::nearest(name, module), (base, path), "{name} from {module}");
            assert_eq!(base.whole(path, module).as_deref(), Some(name));
        }
        assert_eq!(KeyBase::Above(2).whole("x", "a.b").as_deref(), Some("x"));
        assert_eq!(KeyBase::Above(3).whole("x", "a.b"), None);
    }
}
