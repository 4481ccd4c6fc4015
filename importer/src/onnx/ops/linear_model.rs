//! `LinearRegressor` and `LinearClassifier` of ONNX's domain for classical machine learning.

use super::prelude::*;
use super::scores::{Classes, PostTransform, both, labelled, product, samples};

pub(super) struct LinearModel {
    coefficients: Vec<f64>,
    intercepts: Vec<f64>,
    transform: PostTransform,
    kind: Kind,
}

enum Kind {
    Regressor { targets: usize },
    Classifier(Classes),
}

impl LinearModel {
    fn read(node: &mut SourceNode<'_>, kind: Kind) -> RuleResult<Self> {
        Ok(Self {
            coefficients: node
                .floats("coefficients")?
                .ok_or_else(|| invalid("coefficients", "is missing"))?,
            intercepts: node.floats("intercepts")?.unwrap_or_default(),
            transform: PostTransform::read(node)?,
            kind,
        })
    }

    fn read_regressor(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let targets = node.size("targets", 1)?;
        Self::read(node, Kind::Regressor { targets })
    }

    fn read_classifier(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let classes = Classes::read(node, "classlabels_ints")?;
        // Whether the classifiers were trained together.
        node.ignore(&["multi_class"]);
        Self::read(node, Kind::Classifier(classes))
    }

    /// One score for each row of coefficients.
    fn scores(&self, to: &mut Lowering<'_, '_>, x: ValueId, rows: usize) -> RuleResult<ValueId> {
        let x = samples(to, "X", x, DType::F32)?;
        let product = product(to, x, ("coefficients", &self.coefficients), rows)?;
        if self.intercepts.is_empty() {
            return Ok(product);
        }
        if self.intercepts.len() != rows {
            let reason = format!("has {} numbers, must have {rows}", self.intercepts.len());
            return Err(invalid("intercepts", reason));
        }
        let intercepts = to.parameter("intercepts", &self.intercepts, &[rows])?;
        to.binary(BinaryOp::Add, product, intercepts)
    }
}

impl<'m> Operator<'m> for LinearModel {
    const FORMS: Forms<'m, Self> = &[
        Spec::ml("LinearRegressor", 1, &["X"]).reads(Self::read_regressor),
        Spec::ml("LinearClassifier", 1, &["X"]).reads(Self::read_classifier),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        match &self.kind {
            Kind::Regressor { targets } => {
                let y = self.scores(to, x, *targets)?;
                Ok(self.transform.apply_to_targets(to, y, *targets)?.into())
            }
            // One score tells two classes apart.
            Kind::Classifier(classes) if self.intercepts.len() == 1 && classes.count() == 2 => {
                if self.transform == PostTransform::Probit {
                    return Err(invalid(
                        "post_transform",
                        "is PROBIT, which one score for two classes cannot have",
                    ));
                }
                let score = self.scores(to, x, 1)?;
                let labels = classes.above(to, score, 0.0)?;
                Ok(labelled(labels, both(to, score, self.transform, false)?))
            }
            Kind::Classifier(classes) => {
                let scores = self.scores(to, x, classes.count())?;
                let labels = classes.best(to, scores)?;
                Ok(labelled(labels, self.transform.apply(to, scores)?))
            }
        }
    }
}
