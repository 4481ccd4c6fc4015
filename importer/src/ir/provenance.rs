//! Where the contents of a constant come from: which parameters of the original network, and what was done to them.
//!
//! Passes rewrite weights: they transpose them, fold normalizations into them, join them. What they did is kept beside
//! the result, so that the same can be done to other weights of the same network, those of a checkpoint.

mod derivation;

use super::Op;
use crate::data::{Elements, elements};
use crate::ir::{Permute, Reshape};
use kiln_types::{BinaryOp, TensorData, UnaryOp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(crate) use derivation::Sources;

/// How a constant was made of the original network's parameters. A constant without one is known from the graph alone.
#[expect(clippy::large_enum_variant, reason = "most are operations, and all lie behind an `Arc`")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Provenance {
    /// A tensor of the network's state, as it is there.
    Key {
        /// Its name: `layer1.0.conv1.weight`.
        key: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Contents that are known from the graph.
    Literal(TensorData),
    /// What an operation with one output makes of its operands.
    Apply {
        /// The operation.
        op: Op,
        /// All of them are there.
        operands: Vec<Arc<Provenance>>,
    },
    /// The weight of a layer, each output channel's part multiplied by its own number.
    Scaled {
        /// Where in the weight the output channels are.
        channels: Channels,
        /// The weight.
        weight: Arc<Provenance>,
        /// One number a channel.
        scale: Arc<Provenance>,
    },
    /// What a batch normalization multiplies by: `gamma / sqrt(variance + epsilon)`.
    NormScale(Arc<Norm>),
    /// What a batch normalization adds: `beta - mean * gamma / sqrt(variance + epsilon)`.
    NormShift(Arc<Norm>),
    /// Rewritten before the file was written, in a way that the file does not tell in full.
    Exporter {
        /// The tensor's name in the file.
        name: String,
        /// The keys that it was made of, as far as they are known.
        keys: Vec<String>,
    },
    /// More was done to these keys than is worth to be repeated.
    TooMuch {
        /// The keys.
        keys: Vec<String>,
    },
}

/// The parameters of a batch normalization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Norm {
    /// Factor.
    pub gamma: Arc<Provenance>,
    /// Summand.
    pub beta: Arc<Provenance>,
    /// Mean.
    pub mean: Arc<Provenance>,
    /// Variance.
    pub variance: Arc<Provenance>,
    /// Added to the variance.
    pub epsilon: f64,
}

/// Where in a layer's weight its output channels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Channels {
    /// The first axis: `[out, in / groups, …]`.
    First,
    /// The second axis: `[in, out]`.
    Second,
    /// The second axis, for each group of the first: `[in, out / groups, …]`.
    Grouped(usize),
}

/// Longer histories are not kept.
const MOST_STEPS: usize = 64;

impl Provenance {
    /// What an operation makes of operands, each with its provenance (if it has one) and contents. `None` when none of
    /// them has one.
    pub fn of_operation(op: &Op, operands: &[(Option<Arc<Self>>, &TensorData)]) -> Option<Arc<Self>> {
        if operands.iter().all(|(provenance, _)| provenance.is_none()) {
            return None;
        }
        if let (Op::Reshape(Reshape { dims }), [(Some(from), data)]) = (op, operands) {
            let same = |shape: &[usize]| {
                shape.len() == dims.len() && shape.iter().zip(dims).all(|(&size, dim)| *dim == size.into())
            };
            if same(&data.shape) {
                return Some(from.clone());
            }
            if let Self::Apply { op: Op::Reshape(_), operands } = &**from
                && let [source] = operands.as_slice()
            {
                let undone = source.shape().is_some_and(|shape| same(&shape));
                return Some(if undone {
                    source.clone()
                } else {
                    Self::apply(op.clone(), vec![source.clone()])
                });
            }
        }
        if let (Op::Permute(Permute { axes: outer }), [(Some(from), _)]) = (op, operands)
            && let Self::Apply { op: Op::Permute(Permute { axes: inner }), operands } = &**from
        {
            let axes: Option<Vec<usize>> = outer.iter().map(|&axis| inner.get(axis).copied()).collect();
            return match (axes?, operands.as_slice()) {
                (axes, [source]) if axes.is_sorted() => Some(source.clone()),
                (axes, source) => Some(Self::apply(Op::Permute(Permute { axes }), source.to_vec())),
            };
        }
        let literal = |data: &TensorData| Arc::new(Self::Literal(data.clone()));
        // What is empty adds nothing to what it is joined with.
        let counts = |(_, data): &&(Option<Arc<Self>>, &TensorData)| {
            !matches!(op, Op::Concat(_)) || data.num_elements() > 0
        };
        let operands =
            operands.iter().filter(counts).map(|(from, data)| from.clone().unwrap_or_else(|| literal(data)));
        Some(Self::apply(op.clone(), operands.collect()))
    }

    fn apply(op: Op, operands: Vec<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self::Apply { op, operands }.bounded())
    }

    /// `a op b`.
    pub fn binary(op: BinaryOp, a: Arc<Self>, b: Arc<Self>) -> Arc<Self> {
        Self::apply(Op::Binary(op), vec![a, b])
    }

    /// `-a`.
    pub fn negated(a: Arc<Self>) -> Arc<Self> {
        Self::apply(Op::Unary(UnaryOp::Neg), vec![a])
    }

    /// A layer's weight with its output channels scaled.
    pub fn scaled(channels: Channels, weight: Arc<Self>, scale: Arc<Self>) -> Arc<Self> {
        Arc::new(Self::Scaled { channels, weight, scale }.bounded())
    }

    /// What a batch normalization multiplies by, and what it adds then.
    pub fn of_norm(norm: Norm) -> (Arc<Self>, Arc<Self>) {
        let norm = Arc::new(norm);
        (Arc::new(Self::NormScale(norm.clone()).bounded()), Arc::new(Self::NormShift(norm).bounded()))
    }

    /// Itself, unless it is too long.
    fn bounded(self) -> Self {
        let mut budget = MOST_STEPS;
        if self.fits(&mut budget) { self } else { Self::TooMuch { keys: self.keys() } }
    }

    fn fits(&self, budget: &mut usize) -> bool {
        let Some(rest) = budget.checked_sub(1) else { return false };
        *budget = rest;
        !matches!(self, Self::TooMuch { .. }) && self.parts().into_iter().all(|part| part.fits(budget))
    }

    /// What it is made of directly.
    pub fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Key { .. } | Self::Literal(_) | Self::Exporter { .. } | Self::TooMuch { .. } => Vec::new(),
            Self::Apply { operands, .. } => operands.iter().map(|operand| &**operand).collect(),
            Self::Scaled { weight, scale, .. } => vec![weight, scale],
            Self::NormScale(norm) => vec![&norm.gamma, &norm.variance],
            Self::NormShift(norm) => vec![&norm.gamma, &norm.beta, &norm.mean, &norm.variance],
        }
    }

    /// Whether the exporter had a hand in it, so that nobody can tell what was done.
    pub fn is_exporters(&self) -> bool {
        matches!(self, Self::Exporter { .. }) || self.parts().into_iter().any(Self::is_exporters)
    }

    /// Whether parameters that checkpoints have are in it, for all that is known: under their keys, or behind what PyTorch's
    /// older exporter made of them.
    pub fn is_of_checkpoints(&self) -> bool {
        let own = match self {
            Self::Key { .. } => true,
            Self::Exporter { name, keys } => !keys.is_empty() || name.starts_with("onnx::"),
            Self::TooMuch { keys } => !keys.is_empty(),
            Self::Literal(_)
            | Self::Apply { .. }
            | Self::Scaled { .. }
            | Self::NormScale(_)
            | Self::NormShift(_) => false,
        };
        own || self.parts().into_iter().any(Self::is_of_checkpoints)
    }

    /// The keys in it, each once, in order of appearance.
    pub fn keys(&self) -> Vec<String> {
        /// More would help nobody.
        const MOST: usize = 64;
        let mut found: Vec<String> = Vec::new();
        let mut waiting = vec![self];
        while let Some(part) = waiting.pop()
            && found.len() < MOST
        {
            let own: &[String] = match part {
                Self::Key { key, .. } => std::slice::from_ref(key),
                Self::Exporter { keys, .. } | Self::TooMuch { keys } => keys,
                Self::Literal(_)
                | Self::Apply { .. }
                | Self::Scaled { .. }
                | Self::NormScale(_)
                | Self::NormShift(_) => &[],
            };
            let new: Vec<String> = own.iter().filter(|key| !found.contains(key)).cloned().collect();
            found.extend(new);
            waiting.extend(part.parts().into_iter().rev());
        }
        found
    }

    /// The contents that follow from the contents of keys. `None` when a key is missing, contents do not fit, or the
    /// provenance does not tell.
    pub fn evaluate(&self, lookup: &dyn Fn(&str) -> Option<TensorData>) -> Option<TensorData> {
        match self {
            Self::Key { key, .. } => lookup(key),
            Self::Literal(data) => Some(data.clone()),
            Self::Apply { op, operands } => {
                let operands: Vec<TensorData> =
                    operands.iter().map(|operand| operand.evaluate(lookup)).collect::<Option<_>>()?;
                op.evaluate(&operands.iter().map(Some).collect::<Vec<_>>())?.pop()
            }
            Self::Scaled { channels, weight, scale } => {
                let scale = Elements::load(&scale.evaluate(lookup)?).floats();
                channels.scaled(&weight.evaluate(lookup)?, &scale)
            }
            Self::NormScale(norm) => {
                let gamma = norm.gamma.evaluate(lookup)?;
                let scale = norm.scale(lookup)?;
                Some(Elements::Float(scale).store(gamma.dtype, gamma.shape))
            }
            Self::NormShift(norm) => {
                let beta = norm.beta.evaluate(lookup)?;
                let mean = Elements::load(&norm.mean.evaluate(lookup)?).floats();
                let products = mean.iter().zip(norm.scale(lookup)?).map(|(m, s)| m * s);
                let shift = Elements::load(&beta).floats().iter().zip(products).map(|(b, p)| b - p).collect();
                Some(Elements::Float(shift).store(beta.dtype, beta.shape))
            }
            Self::Exporter { .. } | Self::TooMuch { .. } => None,
        }
    }
}

impl Norm {
    fn scale(&self, lookup: &dyn Fn(&str) -> Option<TensorData>) -> Option<Vec<f64>> {
        let gamma = Elements::load(&self.gamma.evaluate(lookup)?).floats();
        let variance = Elements::load(&self.variance.evaluate(lookup)?).floats();
        Some(gamma.iter().zip(variance).map(|(g, v)| g / (v + self.epsilon).sqrt()).collect())
    }
}

impl Channels {
    /// The output channel of each element of a weight.
    pub(crate) fn of_elements(self, shape: &[usize]) -> Option<Box<dyn Fn(usize) -> usize>> {
        let inner = |from: usize| shape.get(from..).map(|dims| elements(dims).max(1));
        Some(match self {
            Self::First => {
                let run = inner(1)?;
                Box::new(move |i| i / run)
            }
            Self::Second => {
                let (run, out) = (inner(2)?, (*shape.get(1)?).max(1));
                Box::new(move |i| i / run % out)
            }
            Self::Grouped(groups) => {
                // An input channel belongs to one group of output channels.
                let (run, out) = (inner(2)?, (*shape.get(1)?).max(1));
                let in_group = shape.first()?.checked_div(groups)?.max(1);
                Box::new(move |i| i / (run * out) / in_group * out + i / run % out)
            }
        })
    }

    /// A weight with each output channel's part multiplied; `None` when there are fewer numbers than channels.
    pub(crate) fn scaled(self, weight: &TensorData, scale: &[f64]) -> Option<TensorData> {
        let shape = &weight.shape;
        let mut values = Elements::load(weight).floats();
        let channel = self.of_elements(shape)?;
        for (i, value) in values.iter_mut().enumerate() {
            *value *= scale.get(channel(i))?;
        }
        Some(Elements::Float(values).store(weight.dtype, shape.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Permute, Reshape};

    fn key(name: &str, shape: &[usize]) -> Arc<Provenance> {
        Arc::new(Provenance::Key { key: name.into(), shape: shape.to_vec() })
    }

    fn data(shape: &[usize]) -> TensorData {
        TensorData::new((0..elements(shape)).map(|i| i as f32).collect::<Vec<_>>(), shape)
    }

    #[test]
    fn layout_changes_cancel() {
        let weight = key("w", &[2, 3]);
        let turn = Op::Permute(Permute { axes: vec![1, 0] });
        let turned = Provenance::of_operation(&turn, &[(Some(weight.clone()), &data(&[2, 3]))]).unwrap();
        let back = Provenance::of_operation(&turn, &[(Some(turned), &data(&[3, 2]))]).unwrap();
        assert_eq!(back, weight);
        let flat = Op::Reshape(Reshape { dims: vec![6.into()] });
        let flat = Provenance::of_operation(&flat, &[(Some(weight.clone()), &data(&[2, 3]))]).unwrap();
        let square = Op::Reshape(Reshape { dims: vec![2.into(), 3.into()] });
        assert_eq!(Provenance::of_operation(&square, &[(Some(flat), &data(&[6]))]).unwrap(), weight);
        assert!(Provenance::of_operation(&turn, &[(None, &data(&[2, 3]))]).is_none());
    }

    #[test]
    fn long_histories_end() {
        let mut sum = key("w", &[1]);
        for _ in 0..100 {
            sum = Provenance::binary(BinaryOp::Add, sum.clone(), sum);
        }
        assert_eq!(*sum, Provenance::TooMuch { keys: vec!["w".into()] });
    }

    #[test]
    fn histories_are_repeated_on_other_contents() {
        let (weight, scale) = (key("w", &[4, 1]), key("s", &[2]));
        let lookup = |name: &str| match name {
            "w" => Some(data(&[4, 1])),
            "s" => Some(TensorData::new(vec![2.0f32, 10.0], [2])),
            _ => None,
        };
        let scaled = Provenance::scaled(Channels::Grouped(2), weight, scale);
        let expected = TensorData::new(vec![0.0f32, 2.0, 20.0, 30.0], [4, 1]);
        assert_eq!(scaled.evaluate(&lookup).unwrap(), expected);
        assert_eq!(scaled.keys(), ["w", "s"]);
        assert!(Provenance::negated(key("other", &[1])).evaluate(&lookup).is_none());
    }
}
