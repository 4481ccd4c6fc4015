//! Random numbers: uniform, normal, coin tosses and draws of classes. Seeds in the file are not used; the device's generator has one.

use super::prelude::*;
use crate::ir::{Effect, RuntimeCall, op};
use kiln_types::ArgReduceOp;

const LIKE: &[&str] = &["input"];

#[derive(Clone, Copy)]
enum Kind {
    Normal {
        mean: f64,
        deviation: f64,
    },
    Uniform {
        low: f64,
        high: f64,
    },
    /// True with the probability that the input gives.
    CoinToss,
    /// So many classes, by the logarithms of their probabilities.
    Classes {
        samples: usize,
    },
}

pub(super) struct Random {
    kind: Kind,
    dtype: Option<DType>,
    shape: Option<Vec<i64>>,
}

impl Random {
    fn read(node: &mut SourceNode<'_>, kind: Kind) -> RuleResult<Self> {
        node.ignore(&["seed"]);
        Ok(Self { kind, dtype: node.dtype("dtype")?, shape: None })
    }

    fn read_normal(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let kind = Kind::Normal { mean: node.float("mean", 0.0)?, deviation: node.float("scale", 1.0)? };
        Self::read(node, kind)
    }

    fn read_uniform(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let kind = Kind::Uniform { low: node.float("low", 0.0)?, high: node.float("high", 1.0)? };
        Self::read(node, kind)
    }

    fn read_classes(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let kind = Kind::Classes { samples: node.size("sample_size", 1)? };
        let own = Self::read(node, kind)?;
        match own.dtype {
            None | Some(DType::I32 | DType::I64) => Ok(own),
            Some(other) => Err(invalid("dtype", format!("is {other}, must be i32 or i64"))),
        }
    }

    /// With the shape as an attribute, where another form takes an input's.
    fn shaped(self, node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let shape = node.ints("shape")?.ok_or_else(|| invalid("shape", "is missing"))?;
        Ok(Self { shape: Some(shape), ..self })
    }
}

impl<'m> Operator<'m> for Random {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Bernoulli", 15, LIKE).reads(|node| Self::read(node, Kind::CoinToss)),
        Spec::onnx("Multinomial", 7, LIKE).reads(Self::read_classes),
        Spec::onnx("RandomNormal", 1, &[]).reads(|node| Self::read_normal(node)?.shaped(node)),
        Spec::onnx("RandomNormalLike", 1, LIKE).reads(Self::read_normal),
        Spec::onnx("RandomUniform", 1, &[]).reads(|node| Self::read_uniform(node)?.shaped(node)),
        Spec::onnx("RandomUniformLike", 1, LIKE).reads(Self::read_uniform),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let input = args.optional("input")?;
        if let Kind::Classes { samples } = self.kind {
            return self.classes(to, args.value("input")?, samples);
        }
        let dims = match (&self.shape, input) {
            (Some(shape), _) => shape.iter().map(|&size| Dim::constant(size)).collect(),
            (None, Some(input)) => to.dims(input),
            (None, None) => Vec::new(),
        };
        let like = input.map(|input| to.dtype(input));
        let dtype = self.dtype.or(like).unwrap_or(DType::F32);
        let numbers = self.numbers(to, dims)?;
        let result = match self.kind {
            Kind::CoinToss => {
                let chance = to.cast(args.value("input")?, DType::F32)?;
                to.compare(CompareOp::Lower, numbers, chance)?
            }
            Kind::Normal { .. } | Kind::Uniform { .. } | Kind::Classes { .. } => numbers,
        };
        Ok(to.cast(result, dtype)?.into())
    }
}

impl Random {
    /// Draws `[batch, samples]` classes of `[batch, classes]` logarithms: the largest after each has got a number of the
    /// standard Gumbel distribution, for each sample another (Maddison et al. 2014, "A* Sampling", section 2).
    fn classes(&self, to: &mut Lowering<'_, '_>, logits: ValueId, samples: usize) -> RuleResult<Outputs> {
        to.expect_rank("input", logits, 2)?;
        let dims = to.dims(logits);
        let (batch, classes) = (dims[0].clone(), dims[1].clone());
        let numbers = self.numbers(to, vec![batch, Dim::from(samples), classes])?;
        let logits = to.cast(logits, DType::F32)?;
        let logits = to.unsqueeze(logits, &[1])?;
        let scores = to.formula(|f| {
            let [numbers, logits] = f.values([numbers, logits]);
            logits - (-numbers.unary(UnaryOp::Log)).unary(UnaryOp::Log)
        })?;
        let largest = op::ArgReduce { op: ArgReduceOp::Max, axis: 2, keep_dims: false, select_last: false };
        let drawn = to.add(Op::ArgReduce(largest), &[scores])?;
        Ok(to.cast(drawn, self.dtype.unwrap_or(DType::I32))?.into())
    }

    fn numbers(&self, to: &mut Lowering<'_, '_>, dims: Vec<Dim>) -> RuleResult<ValueId> {
        let (kind, parameters) = match self.kind {
            Kind::Normal { mean, deviation } => ("tensor::Distribution::Normal", [mean, deviation]),
            Kind::Uniform { low, high } => ("tensor::Distribution::Uniform", [low, high]),
            Kind::CoinToss | Kind::Classes { .. } => ("tensor::Distribution::Uniform", [0.0, 1.0]),
        };
        let distribution = Arg::Variant(kind.into(), parameters.map(Arg::Float).to_vec());
        let call = Call::new("random", [Arg::Array(Arg::sizes(&dims)), distribution]);
        let outputs = vec![TensorType { dtype: DType::F32, dims }];
        to.add(Op::Call(RuntimeCall { call, outputs, effect: Effect::Random }), &[])
    }
}
