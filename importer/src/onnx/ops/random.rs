//! Random numbers: uniform, normal, and coin tosses. Seeds in the file are not used; the device's generator has one.

use super::super::tensor;
use super::prelude::*;
use crate::ir::{Effect, RuntimeCall};

const LIKE: &[&str] = &["input"];

pub(super) struct Random {
    /// Low and high, or mean and deviation.
    parameters: (f64, f64),
    normal: bool,
    toss: bool,
    dtype: Option<DType>,
    shape: Option<Vec<i64>>,
}

impl Random {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        node.ignore(&["seed"]);
        let operator = node.operator();
        let (normal, toss) = (operator.starts_with("RandomNormal"), operator == "Bernoulli");
        let parameters = match (normal, toss) {
            (true, _) => (node.float("mean", 0.0)?, node.float("scale", 1.0)?),
            (_, true) => (0.0, 1.0),
            _ => (node.float("low", 0.0)?, node.float("high", 1.0)?),
        };
        let dtype = node.optional_int("dtype")?.map(|code| {
            let code = i32::try_from(code).unwrap_or(-1);
            tensor::dtype(code).map_err(|reason| invalid("dtype", reason))
        });
        let like = toss || operator.ends_with("Like");
        let shape = if like { None } else { node.ints("shape")? };
        if shape.is_none() && !like {
            return Err(invalid("shape", "is missing"));
        }
        Ok(Self { parameters, normal, toss, dtype: dtype.transpose()?, shape })
    }
}

impl<'m> Operator<'m> for Random {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Bernoulli", 15, LIKE).reads(Self::read),
        Spec::onnx("RandomNormal", 1, &[]).reads(Self::read),
        Spec::onnx("RandomNormalLike", 1, LIKE).reads(Self::read),
        Spec::onnx("RandomUniform", 1, &[]).reads(Self::read),
        Spec::onnx("RandomUniformLike", 1, LIKE).reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let input = args.optional("input")?;
        let dims = match (&self.shape, input) {
            (Some(shape), _) => shape.iter().map(|&size| Dim::constant(size)).collect(),
            (None, Some(input)) => to.dims(input),
            (None, None) => Vec::new(),
        };
        let like = input.map(|input| to.dtype(input));
        let dtype = self.dtype.or(like).unwrap_or(DType::F32);
        let numbers = self.numbers(to, dims)?;
        let result = match input.filter(|_| self.toss) {
            Some(chance) => {
                let chance = to.cast(chance, DType::F32)?;
                to.compare(CompareOp::Lower, numbers, chance)?
            }
            None => numbers,
        };
        Ok(to.cast(result, dtype)?.into())
    }
}

impl Random {
    fn numbers(&self, to: &mut Lowering<'_, '_>, dims: Vec<Dim>) -> RuleResult<ValueId> {
        let kind = if self.normal { "tensor::Distribution::Normal" } else { "tensor::Distribution::Uniform" };
        let parameters = vec![Arg::Float(self.parameters.0), Arg::Float(self.parameters.1)];
        let distribution = Arg::Variant(kind.into(), parameters);
        let call = Call::new("random", [Arg::Array(Arg::sizes(&dims)), distribution]);
        let outputs = vec![TensorType { dtype: DType::F32, dims }];
        to.add(Op::Call(RuntimeCall { call, outputs, effect: Effect::Random }), &[])
    }
}
