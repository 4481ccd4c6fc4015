//! What classical models make of scores: numbers that are probabilities, and the class that won.

use super::prelude::*;
use crate::ir::{Key, op};
use kiln_types::{Activation, ArgReduceOp, TensorData};

/// What is done to scores last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostTransform {
    None,
    Softmax,
    Logistic,
    /// A softmax that scores of 0 do not count in.
    SoftmaxZero,
    Probit,
}

impl PostTransform {
    pub(super) fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let table = [
            ("NONE", Self::None),
            ("SOFTMAX", Self::Softmax),
            ("LOGISTIC", Self::Logistic),
            ("SOFTMAX_ZERO", Self::SoftmaxZero),
            ("PROBIT", Self::Probit),
        ];
        node.choice("post_transform", "NONE", &table)
    }

    /// As newer operators have it.
    pub(super) fn read_number(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(match node.int("post_transform", 0)? {
            0 => Self::None,
            1 => Self::Softmax,
            2 => Self::Logistic,
            3 => Self::SoftmaxZero,
            4 => Self::Probit,
            other => return Err(invalid("post_transform", format!("is {other}"))),
        })
    }

    /// Scores `[samples, scores]`, transformed.
    pub(super) fn apply(self, to: &mut Lowering<'_, '_>, scores: ValueId) -> RuleResult<ValueId> {
        match self {
            Self::None => Ok(scores),
            Self::Softmax => to.add(Op::Softmax(op::Softmax { axis: 1 }), &[scores]),
            Self::Logistic => to.activation(Activation::Sigmoid, scores),
            Self::SoftmaxZero => to.formula(|f| softmax_zero(f.value(scores))),
            Self::Probit => to.formula(|f| probit(f.value(scores))),
        }
    }

    /// What a regressor makes of its targets. ONNX Runtime transforms a single target by PROBIT alone.
    pub(super) fn apply_to_targets(
        self,
        to: &mut Lowering<'_, '_>,
        targets: ValueId,
        count: usize,
    ) -> RuleResult<ValueId> {
        if count == 1 && self != Self::Probit { Ok(targets) } else { self.apply(to, targets) }
    }
}

fn softmax_zero(scores: Value<'_>) -> Value<'_> {
    let largest = scores.reduce(ReduceOp::Max, &[1]);
    // ONNX Runtime takes what is closer to 0 for 0.
    let counts = scores.abs().greater(1e-7);
    let weights = (scores - largest).unary(UnaryOp::Exp);
    let sum = counts.where_(weights, weights.number(0.0)).sum(&[1]);
    counts.where_(weights, scores * (-largest).unary(UnaryOp::Exp)) / sum
}

/// The quantile of the normal distribution, by Winitzki's approximation of the inverse error function, as ONNX Runtime finds it.
#[expect(clippy::approx_constant, reason = "ONNX Runtime has these digits")]
fn probit(p: Value<'_>) -> Value<'_> {
    let x = p * 2.0 - 1.0;
    let log = ((-x + 1.0) * (x + 1.0)).unary(UnaryOp::Log);
    let a = 0.147;
    let v = log * 0.5 + 2.0 / (3.14159 * a);
    let size = ((v.square() - log / a).sqrt() - v).sqrt();
    x.less(0.0).where_(-size, size) * std::f64::consts::SQRT_2
}

/// Samples `[samples, features]` in a dtype; a line of features is one sample.
pub(super) fn samples(
    to: &mut Lowering<'_, '_>,
    input: &str,
    x: ValueId,
    dtype: DType,
) -> RuleResult<ValueId> {
    let x = match to.rank(x) {
        1 => to.unsqueeze(x, &[0])?,
        2 => x,
        actual => {
            let expected = "expected 1 or 2".to_owned();
            return Err(RuleError::Rank { input: input.to_owned(), actual, expected });
        }
    };
    to.cast(x, dtype)
}

/// How many numbers of a list are for each of so many rows, at least one.
pub(super) fn features_of(name: &str, numbers: &[f64], rows: usize) -> RuleResult<usize> {
    let features = numbers.len().checked_div(rows).filter(|features| features * rows == numbers.len());
    features.filter(|&features| features > 0).ok_or_else(|| {
        invalid(name, format!("has {} numbers, must have as many for each of {rows}", numbers.len()))
    })
}

/// Samples times the transposed rows of a matrix of the file, `[samples, rows]`.
pub(super) fn product(
    to: &mut Lowering<'_, '_>,
    samples: ValueId,
    (name, numbers): (&str, &[f64]),
    rows: usize,
) -> RuleResult<ValueId> {
    let columns = features_of(name, numbers, rows)?;
    if let Some(features) = to.dims(samples).last().and_then(Dim::as_size)
        && features != columns
    {
        return Err(misfit(name, format!("is for {columns} features, the samples have {features}")));
    }
    let matrix = to.parameter(name, numbers, &[rows, columns])?;
    let matrix = to.permute(matrix, vec![1, 0])?;
    to.add(Op::MatMul, &[samples, matrix])
}

/// Integers or strings that classes, categories and columns are known by; at least one.
pub(super) enum Labels {
    Integers(Vec<i64>),
    Strings(Vec<String>),
}

impl Labels {
    /// Reads two attributes, one of which has elements.
    pub(super) fn read(node: &mut SourceNode<'_>, strings: &str, integers: &str) -> RuleResult<Self> {
        let strings = node.strings(strings)?.unwrap_or_default();
        let numbers = node.ints(integers)?.unwrap_or_default();
        match (strings.is_empty(), numbers.is_empty()) {
            (true, true) => Err(invalid(integers, "is missing")),
            (true, false) => Ok(Self::Integers(numbers)),
            (false, true) => Ok(Self::Strings(strings)),
            (false, false) => Err(invalid(integers, "stands beside strings for the same")),
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Self::Integers(labels) => labels.len(),
            Self::Strings(labels) => labels.len(),
        }
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Integers(labels) => labels.iter().copied().map(Key::Integer).collect(),
            Self::Strings(labels) => labels.iter().cloned().map(Key::String).collect(),
        }
    }

    /// What tensors hold for them: strings' places.
    pub(super) fn numbers(&self, to: &mut Lowering<'_, '_>) -> Vec<i64> {
        match self {
            Self::Integers(labels) => labels.clone(),
            Self::Strings(labels) => to.places(labels),
        }
    }

    /// An input that is compared with them.
    pub(super) fn input(&self, args: &Args, name: &str) -> RuleResult<ValueId> {
        match self {
            Self::Integers(_) => args.value(name),
            Self::Strings(_) => args.strings(name),
        }
    }

    /// A tensor of their numbers as what they are.
    pub(super) fn operand(&self, numbers: ValueId) -> Operand {
        match self {
            Self::Integers(_) => Operand::Tensor(numbers),
            Self::Strings(_) => Operand::Strings(numbers),
        }
    }
}

/// The labels of a classifier's classes.
pub(super) struct Classes {
    labels: Labels,
}

impl Classes {
    /// Reads `classlabels_strings`, or the integers under a name.
    pub(super) fn read(node: &mut SourceNode<'_>, integers: &str) -> RuleResult<Self> {
        Ok(Self { labels: Labels::read(node, "classlabels_strings", integers)? })
    }

    pub(super) fn count(&self) -> usize {
        self.labels.count()
    }

    /// The labels of classes by their numbers.
    pub(super) fn at(&self, to: &mut Lowering<'_, '_>, classes: ValueId) -> RuleResult<Operand> {
        let labels = self.labels.numbers(to);
        let places = match first_of_run(&labels) {
            Some(first) => {
                let classes = to.cast(classes, DType::I64)?;
                let first = to.number_like(classes, first);
                to.binary(BinaryOp::Add, classes, first)?
            }
            None => {
                let count = labels.len();
                let labels = to.listed("labels", TensorData::new(labels, [count]))?;
                to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[labels, classes])?
            }
        };
        Ok(self.labels.operand(places))
    }

    /// The labels of the largest scores of `[samples, classes]`.
    pub(super) fn best(&self, to: &mut Lowering<'_, '_>, scores: ValueId) -> RuleResult<Operand> {
        let best = best(to, scores)?;
        self.at(to, best)
    }

    /// The second label where the only score of `[samples, 1]` is above a threshold, else the first.
    pub(super) fn above(
        &self,
        to: &mut Lowering<'_, '_>,
        score: ValueId,
        threshold: f64,
    ) -> RuleResult<Operand> {
        let score = to.squeeze(score, &[1])?;
        let threshold = to.number_like(score, threshold);
        let wins = to.compare(CompareOp::Greater, score, threshold)?;
        let place = to.cast(wins, DType::I64)?;
        self.at(to, place)
    }
}

/// The first of integers that each are one more than the last.
pub(super) fn first_of_run(numbers: &[i64]) -> Option<i64> {
    let first = *numbers.first()?;
    let steps = numbers.iter().map(|number| number.wrapping_sub(first));
    steps.eq(0..numbers.len() as i64).then_some(first)
}

/// What classifiers yield.
pub(super) fn labelled(labels: Operand, scores: ValueId) -> Outputs {
    Outputs(vec![labels, Operand::Tensor(scores)])
}

/// The place of the first largest score along the second axis of a matrix.
pub(super) fn best(to: &mut Lowering<'_, '_>, scores: ValueId) -> RuleResult<ValueId> {
    let op = op::ArgReduce { op: ArgReduceOp::Max, axis: 1, keep_dims: false, select_last: false };
    to.add(Op::ArgReduce(op), &[scores])
}

/// Scores of two classes of one score: `[1 - s, s]`, or with `mixed` weights `[-s, s]`. Of the transforms ONNX Runtime does the logistic
/// one alone, to `s` and `-s`.
pub(super) fn both(
    to: &mut Lowering<'_, '_>,
    score: ValueId,
    transform: PostTransform,
    mixed: bool,
) -> RuleResult<ValueId> {
    let [no, yes] = to.formulas(|f| {
        let s = f.value(score);
        match (transform, mixed) {
            (PostTransform::Logistic, _) => [-s, s].map(|s| s.activation(Activation::Sigmoid)),
            (_, true) => [-s, s],
            (_, false) => [-s + 1.0, s],
        }
    })?;
    to.concat(&[no, yes], 1)
}
