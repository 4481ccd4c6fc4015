//! `TreeEnsembleRegressor`, `TreeEnsembleClassifier` and `TreeEnsemble`: forests, and what boosting makes.

mod classes;
mod file;
mod tables;
mod targets;

use super::prelude::*;
use super::scores::{Classes, PostTransform, labelled, samples};
use crate::ir::op;
use classes::Weights;
use file::{Floats, Listed, Placed, Source};
use kiln_types::TensorData;
use tables::{Forest, Tables};
use targets::{Aggregate, Coverage, Layout, Targets, lay_out};

pub(super) struct TreeEnsemble<'m> {
    source: Source<'m>,
    base: Floats<'m>,
    transform: PostTransform,
    kind: Kind,
}

enum Kind {
    Targets { count: usize, aggregate: Aggregate },
    Classes(Classes),
}

impl<'m> TreeEnsemble<'m> {
    fn read_regressor(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        let table = [
            ("SUM", Aggregate::Sum),
            ("AVERAGE", Aggregate::Average),
            ("MIN", Aggregate::Min),
            ("MAX", Aggregate::Max),
        ];
        let aggregate = node.choice("aggregate_function", "SUM", &table)?;
        Ok(Self {
            kind: Kind::Targets { count: target_count(node)?, aggregate },
            source: Source::Listed(Listed::read(node, "target")?),
            base: Floats::read(node, "base_values")?,
            transform: PostTransform::read(node)?,
        })
    }

    fn read_classifier(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        Ok(Self {
            kind: Kind::Classes(Classes::read(node, "classlabels_int64s")?),
            source: Source::Listed(Listed::read(node, "class")?),
            base: Floats::read(node, "base_values")?,
            transform: PostTransform::read(node)?,
        })
    }

    fn read_placed(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        let aggregate = match node.int("aggregate_function", 1)? {
            0 => Aggregate::Average,
            1 => Aggregate::Sum,
            2 => Aggregate::Min,
            3 => Aggregate::Max,
            other => return Err(invalid("aggregate_function", format!("is {other}"))),
        };
        Ok(Self {
            kind: Kind::Targets { count: target_count(node)?, aggregate },
            source: Source::Placed(Placed::read(node)?),
            base: Floats::List(Vec::new()),
            transform: PostTransform::read_number(node)?,
        })
    }
}

fn target_count(node: &mut SourceNode<'_>) -> RuleResult<usize> {
    match node.size("n_targets", 1)? {
        0 => Err(invalid("n_targets", "is 0")),
        count => Ok(count),
    }
}

impl<'m> Operator<'m> for TreeEnsemble<'m> {
    const FORMS: Forms<'m, Self> = &[
        Spec::ml("TreeEnsembleRegressor", 1, &["X"]).reads(Self::read_regressor),
        Spec::ml("TreeEnsembleClassifier", 1, &["X"]).reads(Self::read_classifier),
        Spec::ml("TreeEnsemble", 5, &["X"]).reads(Self::read_placed),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let wide = to.dtype(x) == DType::F64;
        let dtype = if wide { DType::F64 } else { DType::F32 };
        let result = match self.source {
            Source::Placed(_) => to.dtype(x),
            Source::Listed(_) => DType::F32,
        };
        let x = samples(to, "X", x, dtype)?;
        let mut forest = self.source.forest(to)?;
        let base = self.base.numbers(to, "base_values")?;
        match &self.kind {
            Kind::Targets { count, aggregate } => {
                if *count == 1 {
                    forest.weigh_once();
                }
                let sums = sums(to, x, &forest, *count, *aggregate)?;
                let base = if base.len() == *count { base } else { Vec::new() };
                let y = sums.based(to, *aggregate, base)?;
                let y = self.transform.apply_to_targets(to, y, *count)?;
                Ok(to.cast(y, result)?.into())
            }
            Kind::Classes(classes) => {
                // Trees that tell of the first of two classes alone have one score.
                let one = classes.count() == 2
                    && base.len() < 2
                    && forest.weights.iter().all(|weight| weight.target == 0);
                let count = if one { 1 } else { classes.count() };
                let Sums { y, mut coverage, .. } = sums(to, x, &forest, count, Aggregate::Sum)?;
                coverage.resize(classes.count(), Coverage::Never);
                let weights = Weights { coverage: &coverage, forest: &forest, base: &base };
                let (labels, scores) = weights.classify(to, y, classes, self.transform)?;
                Ok(labelled(labels, to.cast(scores, result)?))
            }
        }
    }
}

/// What the leaves say of each target, together.
struct Sums {
    /// `[samples, targets]`.
    y: ValueId,
    coverage: Vec<Coverage>,
    /// The leaves at which samples arrive.
    leaves: ValueId,
    /// Whether each leaf says something of each target, where that differs from leaf to leaf.
    tells: Vec<bool>,
}

impl Sums {
    /// With the base values on top. As in ONNX Runtime a target is 0, without its base value, where no leaf says anything of it.
    fn based(
        self,
        to: &mut Lowering<'_, '_>,
        aggregate: Aggregate,
        mut base: Vec<f64>,
    ) -> RuleResult<ValueId> {
        let Self { y, coverage, leaves, tells } = self;
        let count = coverage.len();
        let mut asks = !aggregate.is_sum() && coverage.iter().any(|coverage| *coverage != Coverage::Always);
        for (base, coverage) in base.iter_mut().zip(&coverage) {
            match coverage {
                Coverage::Always => {}
                Coverage::Never => *base = 0.0,
                Coverage::Sometimes => asks |= *base != 0.0,
            }
        }
        if !asks {
            return plus(to, y, &base);
        }
        let tells: Vec<f32> = tells.into_iter().map(|tells| f32::from(u8::from(tells))).collect();
        let shape = [tells.len().checked_div(count).unwrap_or(0), count];
        let tells = to.fixed("tells", TensorData::new(tells, shape))?;
        let tells = to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[tells, leaves])?;
        let tells = to.reduce(ReduceOp::Max, tells, &[1], false)?;
        let zero = to.number_like(tells, 0.0);
        let is_covered = to.compare(CompareOp::Greater, tells, zero)?;
        let based = plus(to, y, &base)?;
        let untold = to.number_like(based, 0.0);
        to.select(is_covered, based, untold)
    }
}

/// What the leaves say, one after another or as their trees are grouped, summed up.
fn sums(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    forest: &Forest,
    count: usize,
    aggregate: Aggregate,
) -> RuleResult<Sums> {
    let wide = to.dtype(x) == DType::F64;
    let mut tables = Tables::of(forest, wide)?;
    let features = to.dims(x).last().and_then(Dim::as_size);
    if let (Some(last), Some(features)) = (tables.last_feature(), features)
        && last >= features
    {
        return Err(misfit("nodes_featureids", format!("has {last} for {features} features")));
    }
    let Targets { weights, layout, coverage, tells } = lay_out(to, forest, &mut tables, count, aggregate)?;
    let leaves = leaves(to, x, &tables)?;
    let shape = match layout {
        Layout::Grouped { .. } => vec![weights.len()],
        Layout::Dense => vec![tables.leaves, count],
    };
    let weights = floats(weights, shape, wide);
    let weights = to.parameter_of("leaf_weights", weights)?;
    let mut y = to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[weights, leaves])?;
    y = match layout {
        Layout::Grouped { .. } if count == 1 => to.reduce(aggregate.reduction(), y, &[1], true)?,
        Layout::Grouped { trees } => {
            let samples = to.dims(x).first().cloned().unwrap_or_else(|| Dim::constant(1));
            let grouped = to.reshape(y, vec![samples, Dim::from(count), Dim::from(trees)])?;
            to.reduce(aggregate.reduction(), grouped, &[2], false)?
        }
        Layout::Dense => to.reduce(aggregate.reduction(), y, &[1], false)?,
    };
    if aggregate == Aggregate::Average {
        let trees = to.number_like(y, forest.roots.len() as f64);
        y = to.binary(BinaryOp::Div, y, trees)?;
    }
    Ok(Sums { y, coverage, leaves, tells })
}

/// The leaves at which samples arrive: `[samples, trees]`.
fn leaves(to: &mut Lowering<'_, '_>, x: ValueId, tables: &Tables) -> RuleResult<ValueId> {
    let wide = to.dtype(x) == DType::F64;
    let count = tables.rows.len();
    let ways = if tables.tells_missing() { 3 } else { 2 };
    let integers = |numbers: Vec<usize>, shape: Vec<usize>| {
        let numbers: Vec<i64> = numbers.into_iter().map(|number| number as i64).collect();
        TensorData::new(numbers, shape)
    };
    let features = integers(tables.rows.iter().map(|row| row.feature).collect(), vec![count]);
    let thresholds = floats(tables.rows.iter().map(|row| row.threshold).collect(), vec![count], wide);
    let children = tables.rows.iter().flat_map(|row| row.children.into_iter().take(ways)).collect();
    let children = integers(children, vec![count, ways]);
    let roots = integers(tables.roots.clone(), vec![tables.roots.len()]);
    let operands = [
        x,
        to.fixed("features", features)?,
        to.fixed("thresholds", thresholds)?,
        to.fixed("children", children)?,
        to.fixed("roots", roots)?,
    ];
    to.add(Op::TreeLeaves(op::TreeLeaves { depth: tables.depth }), &operands)
}

fn floats(numbers: Vec<f64>, shape: Vec<usize>, wide: bool) -> TensorData {
    if wide {
        return TensorData::new(numbers, shape);
    }
    let numbers: Vec<f32> = numbers.into_iter().map(|number| number as f32).collect();
    TensorData::new(numbers, shape)
}

/// Scores with a number for each of them on top.
fn plus(to: &mut Lowering<'_, '_>, scores: ValueId, base: &[f64]) -> RuleResult<ValueId> {
    if base.iter().all(|&number| number == 0.0) {
        return Ok(scores);
    }
    let base = match *base {
        [one] => to.number_like(scores, one),
        _ => {
            let data = floats(base.to_vec(), vec![base.len()], to.dtype(scores) == DType::F64);
            to.parameter_of("base_values", data)?
        }
    };
    to.binary(BinaryOp::Add, scores, base)
}
