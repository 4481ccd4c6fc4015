//! From sums to labels and scores. Two classes have rules of their own, which are ONNX Runtime's.

use super::super::prelude::*;
use super::super::scores::{Classes, PostTransform, both};
use super::plus;
use super::tables::Forest;
use super::targets::Coverage;

/// What is known of the weights of a classifier's leaves.
pub(super) struct Weights<'a> {
    pub(super) coverage: &'a [Coverage],
    pub(super) forest: &'a Forest,
    pub(super) base: &'a [f64],
}

impl Weights<'_> {
    /// Labels and scores.
    pub(super) fn classify(
        &self,
        to: &mut Lowering<'_, '_>,
        scores: ValueId,
        classes: &Classes,
        transform: PostTransform,
    ) -> RuleResult<(Operand, ValueId)> {
        let positive = self.forest.weights.iter().all(|weight| weight.value >= 0.0);
        match self.coverage {
            [_] => Err(RuleError::Unsupported { what: "a classifier of one class".to_owned() }),
            [first, second] => self.classify_two(to, scores, classes, transform, positive, [*first, *second]),
            _ => {
                // A class of which the leaves at hand do not tell cannot win in ONNX Runtime; here its score of 0 loses to any above it.
                if !positive
                    && self.base.is_empty()
                    && self.coverage.iter().any(|coverage| *coverage != Coverage::Always)
                {
                    return Err(unsure());
                }
                let scores = match self.base.len() {
                    0 => scores,
                    given if given <= classes.count() => {
                        let mut base = self.base.to_vec();
                        base.resize(classes.count(), 0.0);
                        plus(to, scores, &base)?
                    }
                    given => {
                        let reason = format!("has {given} numbers for {} classes", classes.count());
                        return Err(invalid("base_values", reason));
                    }
                };
                Ok((classes.best(to, scores)?, transform.apply(to, scores)?))
            }
        }
    }

    fn classify_two(
        &self,
        to: &mut Lowering<'_, '_>,
        scores: ValueId,
        classes: &Classes,
        transform: PostTransform,
        positive: bool,
        coverage: [Coverage; 2],
    ) -> RuleResult<(Operand, ValueId)> {
        if coverage.contains(&Coverage::Sometimes) {
            return Err(unsure());
        }
        let [first, second] = coverage.map(|coverage| coverage == Coverage::Always);
        let part = |to: &mut Lowering<'_, '_>, n: usize| to.slice(scores, 1, Dim::from(n), Dim::from(n + 1));
        let [zeroth, base] = match *self.base {
            [zeroth, base] => [zeroth, base],
            [zeroth] => [zeroth, 0.0],
            [] => [0.0, 0.0],
            _ => {
                let reason = format!("has {} numbers for 2 classes", self.base.len());
                return Err(invalid("base_values", reason));
            }
        };
        // What no leaf tells of stays 0, whatever its base value is; with two base values the first score counts for the second class.
        let (decisive, scores) = if second && self.base.len() == 2 {
            let score = part(to, 0)?;
            let score = plus(to, score, &[base])?;
            let other = to.formula(|f| if first { -f.value(score) } else { f.value(score) * 0.0 })?;
            (score, to.concat(&[other, score], 1)?)
        } else if second {
            let decisive = part(to, 1)?;
            (decisive, if first { plus(to, scores, &[zeroth, 0.0])? } else { scores })
        } else if self.base.len() == 2 {
            let scores = plus(to, scores, &[zeroth, 0.0])?;
            (to.slice(scores, 1, Dim::constant(0), Dim::constant(1))?, scores)
        } else {
            // One score tells both classes apart.
            if transform == PostTransform::Probit {
                let reason = "is PROBIT, which one score for two classes cannot have";
                return Err(invalid("post_transform", reason));
            }
            let score = part(to, 0)?;
            let score = plus(to, score, &[zeroth])?;
            let labels = classes.above(to, score, if positive { 0.5 } else { 0.0 })?;
            return Ok((labels, both(to, score, transform, !positive)?));
        };
        // Where leaves tell of both classes ONNX Runtime yields 1 and 0 whatever the labels are; here it is the labels.
        let halved = positive && !(first && second);
        let labels = classes.above(to, decisive, if halved { 0.5 } else { 0.0 })?;
        Ok((labels, transform.apply(to, scores)?))
    }
}

fn unsure() -> RuleError {
    RuleError::Unsupported {
        what: "classes of which only some leaves tell, beside weights below 0".to_owned(),
    }
}
