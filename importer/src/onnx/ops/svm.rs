//! `SVMRegressor` and `SVMClassifier`: support vector machines, as ONNX Runtime reads LIBSVM's and liblinear's.

use super::prelude::*;
use super::scores::{Classes, PostTransform, best, both, features_of, labelled, product, samples};
use kiln_types::{Activation, TensorData};

pub(super) struct Svm {
    kernel: Kernel,
    coefficients: Vec<f64>,
    vectors: Vec<f64>,
    rho: Vec<f64>,
    transform: PostTransform,
    kind: Kind,
}

/// How alike a sample and a support vector are.
struct Kernel {
    kind: KernelKind,
    gamma: f64,
    coef0: f64,
    degree: f64,
}

#[derive(Clone, Copy)]
enum KernelKind {
    Linear,
    Poly,
    Rbf,
    Sigmoid,
}

enum Kind {
    Regressor { count: usize, one_class: bool },
    Classifier { classes: Classes, per_class: Vec<usize>, prob_a: Vec<f64>, prob_b: Vec<f64> },
}

impl Svm {
    fn read(node: &mut SourceNode<'_>, kind: Kind) -> RuleResult<Self> {
        let table = [
            ("LINEAR", KernelKind::Linear),
            ("POLY", KernelKind::Poly),
            ("RBF", KernelKind::Rbf),
            ("SIGMOID", KernelKind::Sigmoid),
        ];
        let kernel = node.choice("kernel_type", "LINEAR", &table)?;
        let parameters = node.floats("kernel_params")?.unwrap_or_default();
        let [gamma, coef0, degree] = match *parameters.as_slice() {
            [] => [0.0, 0.0, 3.0],
            [gamma, coef0, degree] => [gamma, coef0, degree],
            _ => {
                let reason = format!("has {} numbers, must have gamma, coef0 and degree", parameters.len());
                return Err(invalid("kernel_params", reason));
            }
        };
        let mut numbers = |name: &str| node.floats(name).map(Option::unwrap_or_default);
        Ok(Self {
            coefficients: numbers("coefficients")?,
            vectors: numbers("support_vectors")?,
            rho: numbers("rho")?,
            kernel: Kernel { kind: kernel, gamma, coef0, degree },
            transform: PostTransform::read(node)?,
            kind,
        })
    }

    fn read_regressor(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let kind =
            Kind::Regressor { count: node.size("n_supports", 0)?, one_class: node.flag("one_class", false)? };
        Self::read(node, kind)
    }

    fn read_classifier(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let counts = node.ints("vectors_per_class")?.unwrap_or_default();
        let count = |&count: &i64| {
            usize::try_from(count).map_err(|_| invalid("vectors_per_class", format!("has {count}")))
        };
        let kind = Kind::Classifier {
            classes: Classes::read(node, "classlabels_ints")?,
            per_class: counts.iter().map(count).collect::<RuleResult<_>>()?,
            prob_a: node.floats("prob_a")?.unwrap_or_default(),
            prob_b: node.floats("prob_b")?.unwrap_or_default(),
        };
        Self::read(node, kind)
    }

    /// How alike each sample is to each of so many support vectors.
    fn alike(&self, to: &mut Lowering<'_, '_>, x: ValueId, count: usize) -> RuleResult<ValueId> {
        let Kernel { kind, gamma, coef0, degree } = self.kernel;
        if let KernelKind::Rbf = kind {
            return self.close(to, x, count);
        }
        let product = product(to, x, ("support_vectors", &self.vectors), count)?;
        to.formula(|f| {
            let product = f.value(product);
            match kind {
                KernelKind::Poly => (product * gamma + coef0).pow(degree),
                KernelKind::Sigmoid => (product * gamma + coef0).activation(Activation::Tanh),
                KernelKind::Linear | KernelKind::Rbf => product,
            }
        })
    }

    /// `exp(-gamma · |x - v|²)`. Differences are squared as they are: lengths and products would lose what is small beside them.
    fn close(&self, to: &mut Lowering<'_, '_>, x: ValueId, count: usize) -> RuleResult<ValueId> {
        let features = features_of("support_vectors", &self.vectors, count)?;
        super::scaler::fits(to, "support_vectors", x, features)?;
        let vectors = to.parameter("support_vectors", &self.vectors, &[count, features])?;
        let distances = to.add(Op::SquaredDistances, &[x, vectors])?;
        let gamma = self.kernel.gamma;
        to.formula(|f| (f.value(distances) * -gamma).unary(UnaryOp::Exp))
    }

    /// Scores of liblinear: one for each row of coefficients.
    fn linear(&self, to: &mut Lowering<'_, '_>, x: ValueId, rows: usize) -> RuleResult<ValueId> {
        let product = product(to, x, ("coefficients", &self.coefficients), rows)?;
        let rho = self.rho.first().copied().ok_or_else(|| invalid("rho", "is missing"))?;
        to.formula(|f| f.value(product) + rho)
    }
}

impl<'m> Operator<'m> for Svm {
    const FORMS: Forms<'m, Self> = &[
        Spec::ml("SVMRegressor", 1, &["X"]).reads(Self::read_regressor),
        Spec::ml("SVMClassifier", 1, &["X"]).reads(Self::read_classifier),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = samples(to, "X", args.value("X")?, DType::F32)?;
        match &self.kind {
            Kind::Regressor { count, one_class } => {
                let y = match *count {
                    0 => self.linear(to, x, 1)?,
                    count => {
                        let alike = self.alike(to, x, count)?;
                        let y = product(to, alike, ("coefficients", &self.coefficients), 1)?;
                        let rho = self.rho.first().copied().ok_or_else(|| invalid("rho", "is missing"))?;
                        to.formula(|f| f.value(y) + rho)?
                    }
                };
                if !one_class {
                    return Ok(self.transform.apply_to_targets(to, y, 1)?.into());
                }
                // 1 for a sample like the others, -1 for an outlier.
                let inside = to.formula(|f| f.value(y).greater(0.0).cast(DType::F32) * 2.0 - 1.0)?;
                Ok(inside.into())
            }
            Kind::Classifier { classes, per_class, prob_a, prob_b } => {
                if per_class.iter().all(|&count| count == 0) {
                    return self.liblinear(to, x, classes);
                }
                let pairs = Pairs::of(per_class, classes.count())?;
                let alike = self.alike(to, x, pairs.vectors)?;
                let scores = self.pair_scores(to, alike, &pairs)?;
                let labels = pairs.vote(to, scores, classes)?;
                let scores = match (prob_a.len(), classes.count()) {
                    (0, 2) if self.transform == PostTransform::Probit => {
                        let reason = "is PROBIT, which one score for two classes cannot have";
                        return Err(invalid("post_transform", reason));
                    }
                    (0, 2) => both(to, scores, self.transform, self.transform == PostTransform::None)?,
                    (0, _) => self.transform.apply(to, scores)?,
                    _ => {
                        let chances = pairs.chances(to, scores, [prob_a, prob_b])?;
                        self.transform.apply(to, chances)?
                    }
                };
                Ok(labelled(labels, scores))
            }
        }
    }
}

impl Svm {
    fn liblinear(&self, to: &mut Lowering<'_, '_>, x: ValueId, classes: &Classes) -> RuleResult<Outputs> {
        let scores = self.linear(to, x, classes.count())?;
        let labels = if classes.count() == 2 {
            // The second class wins as soon as one score is positive, or half of what positive coefficients may yield.
            let positive = self.coefficients.iter().all(|&number| number >= 0.0);
            let best = best(to, scores)?;
            let largest = to.reduce(ReduceOp::Max, scores, &[1], false)?;
            let threshold = to.number_like(largest, if positive { 0.5 } else { 0.0 });
            let op = if positive { CompareOp::GreaterEqual } else { CompareOp::Greater };
            let wins = to.compare(op, largest, threshold)?;
            let wins = to.cast(wins, DType::I64)?;
            let best = to.cast(best, DType::I64)?;
            let class = to.binary(BinaryOp::Max, wins, best)?;
            classes.at(to, class)?
        } else {
            classes.best(to, scores)?
        };
        Ok(labelled(labels, self.transform.apply(to, scores)?))
    }

    /// A score for each pair of classes; positive ones are for the first of them.
    fn pair_scores(&self, to: &mut Lowering<'_, '_>, alike: ValueId, pairs: &Pairs) -> RuleResult<ValueId> {
        let (vectors, count) = (pairs.vectors, pairs.pairs.len());
        let rows = pairs.classes - 1;
        if self.coefficients.len() != rows * vectors {
            let reason = format!("has {} numbers for {rows} times {vectors}", self.coefficients.len());
            return Err(invalid("coefficients", reason));
        }
        if self.rho.len() < count {
            return Err(invalid(
                "rho",
                format!("has {} numbers for {count} pairs of classes", self.rho.len()),
            ));
        }
        to.reserve(vectors.saturating_mul(count).saturating_mul(8))?;
        // A vector of one class of a pair has its coefficient against the other; vectors of other classes have none.
        let mut table = vec![0.0; vectors * count];
        for (pair, &[i, j]) in pairs.pairs.iter().enumerate() {
            for (class, row) in [(i, j - 1), (j, i)] {
                for vector in pairs.range(class) {
                    if let (Some(slot), Some(&coefficient)) = (
                        table.get_mut(pair * vectors + vector),
                        self.coefficients.get(row * vectors + vector),
                    ) {
                        *slot = coefficient;
                    }
                }
            }
        }
        let scores = product(to, alike, ("coefficients", &table), count)?;
        let rho = self.rho.get(..count).unwrap_or_default();
        let rho = to.parameter("rho", rho, &[count])?;
        to.binary(BinaryOp::Add, scores, rho)
    }
}

/// The pairs of classes that are told apart by a score each.
struct Pairs {
    classes: usize,
    /// Support vectors of all classes.
    vectors: usize,
    /// The first vector of each class, and the number of all.
    starts: Vec<usize>,
    pairs: Vec<[usize; 2]>,
}

impl Pairs {
    fn of(per_class: &[usize], classes: usize) -> RuleResult<Self> {
        if per_class.len() != classes || classes < 2 {
            let reason = format!("has {} numbers for {classes} classes", per_class.len());
            return Err(invalid("vectors_per_class", reason));
        }
        let mut starts = vec![0usize];
        let mut vectors = 0usize;
        for &count in per_class {
            vectors =
                vectors.checked_add(count).ok_or_else(|| invalid("vectors_per_class", "is too large"))?;
            starts.push(vectors);
        }
        // Thousands of classes would have millions of pairs.
        const MOST: usize = 1 << 10;
        if classes > MOST {
            return Err(RuleError::TooLarge { what: format!("the pairs of {classes} classes") });
        }
        let pairs = (0..classes).flat_map(|i| (i + 1..classes).map(move |j| [i, j])).collect();
        Ok(Self { classes, vectors, starts, pairs })
    }

    fn range(&self, class: usize) -> std::ops::Range<usize> {
        let at = |n: usize| self.starts.get(n).copied().unwrap_or(0);
        at(class)..at(class + 1)
    }

    /// The labels of the classes that won most pairs.
    fn vote(&self, to: &mut Lowering<'_, '_>, scores: ValueId, classes: &Classes) -> RuleResult<Operand> {
        let zero = to.number_like(scores, 0.0);
        if self.classes == 2 {
            let lost = to.compare(CompareOp::LowerEqual, scores, zero)?;
            let lost = to.squeeze(lost, &[1])?;
            let class = to.cast(lost, DType::I64)?;
            return classes.at(to, class);
        }
        let count = self.pairs.len();
        // A pair that is won adds one to the first class and takes one from the second, which had it to begin with.
        to.reserve((count * self.classes).saturating_mul(4))?;
        let mut gains = vec![0.0; count * self.classes];
        let mut given = vec![0.0; self.classes];
        for (pair, &[i, j]) in self.pairs.iter().enumerate() {
            for (class, gain) in [(i, 1.0), (j, -1.0)] {
                if let Some(slot) = gains.get_mut(pair * self.classes + class) {
                    *slot = gain;
                }
            }
            if let Some(slot) = given.get_mut(j) {
                *slot += 1.0;
            }
        }
        let won = to.compare(CompareOp::Greater, scores, zero)?;
        let won = to.cast(won, DType::F32)?;
        let floats = |numbers: Vec<f32>, shape: &[usize]| TensorData::new(numbers, shape);
        let gains = to.fixed("gains", floats(gains, &[count, self.classes]))?;
        let given = to.fixed("given", floats(given, &[self.classes]))?;
        let votes = to.add(Op::MatMul, &[won, gains])?;
        let votes = to.binary(BinaryOp::Add, votes, given)?;
        classes.best(to, votes)
    }

    /// Probabilities of classes from the scores of pairs, by the logistic curves of `prob_a` and `prob_b`.
    fn chances(
        &self,
        to: &mut Lowering<'_, '_>,
        scores: ValueId,
        [a, b]: [&[f64]; 2],
    ) -> RuleResult<ValueId> {
        let (count, classes) = (self.pairs.len(), self.classes);
        if a.len() != count || b.len() != count {
            let reason = format!("and `prob_b` have {} and {} numbers for {count} pairs", a.len(), b.len());
            return Err(invalid("prob_a", reason));
        }
        let a = to.parameter("prob_a", a, &[count])?;
        let b = to.parameter("prob_b", b, &[count])?;
        let chances = to.formula(|f| {
            let [scores, a, b] = f.values([scores, a, b]);
            (-(scores * a + b)).activation(Activation::Sigmoid).clamp(1e-7, 1.0 - 1e-7)
        })?;
        // The chance of `i` against `j` at `[i, j]`, what is left at `[j, i]`, and anything on the diagonal.
        let mut places = vec![0i64; classes * classes];
        for (pair, &[i, j]) in self.pairs.iter().enumerate() {
            for (place, from) in [(i * classes + j, pair), (j * classes + i, count + pair)] {
                if let Some(slot) = places.get_mut(place) {
                    *slot = from as i64;
                }
            }
        }
        let rest = to.formula(|f| -f.value(chances) + 1.0)?;
        let all = to.concat(&[chances, rest], 1)?;
        let places = to.fixed("pairs", TensorData::new(places, [classes, classes]))?;
        let take = crate::ir::op::Take { axis: 1, wrapped: false };
        let matrices = to.add(Op::Take(take), &[all, places])?;
        let samples = to.dims(scores).first().cloned().unwrap_or_else(|| Dim::constant(1));
        let ty = to.ty(scores).with_dims(vec![samples, Dim::from(classes)]);
        to.call(Call::new("tensor::classes::pairwise_coupling", [Arg::Operand(0)]), &[matrices], ty)
    }
}
