//! `NegativeLogLikelihoodLoss` and `SoftmaxCrossEntropyLoss`.

use super::prelude::*;
use crate::ir::op;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reduction {
    None,
    Sum,
    Mean,
}

pub(super) struct Loss {
    softmax: bool,
    reduction: Reduction,
    ignore: Option<i64>,
}

impl Loss {
    fn read(node: &mut SourceNode<'_>, softmax: bool) -> RuleResult<Self> {
        let reductions = [("none", Reduction::None), ("sum", Reduction::Sum), ("mean", Reduction::Mean)];
        Ok(Self {
            softmax,
            reduction: node.choice("reduction", "mean", &reductions)?,
            ignore: node.optional_int("ignore_index")?,
        })
    }
}

impl<'m> Operator<'m> for Loss {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("NegativeLogLikelihoodLoss", 12, &["input", "target", "weight?"])
            .reads(|node| Self::read(node, false)),
        Spec::onnx("SoftmaxCrossEntropyLoss", 12, &["input", "target", "weight?"])
            .reads(|node| Self::read(node, true)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let mut x = args.value("input")?;
        to.need_rank("input", x, 2)?;
        if self.softmax {
            x = to.add(Op::LogSoftmax(op::LogSoftmax { axis: 1 }), &[x])?;
        }
        let dtype = to.dtype(x);
        let mut target = to.cast(args.value("target")?, DType::I64)?;
        let mut ignored = None;
        if let Some(ignore) = self.ignore {
            let ignore = to.scalar(ignore, DType::I64);
            let mask = to.compare(CompareOp::Equal, target, ignore)?;
            let zero = to.scalar(0, DType::I64);
            target = to.select(mask, zero, target)?;
            ignored = Some(mask);
        }
        let column = to.unsqueeze(target, &[1])?;
        let picked = to.add(Op::Gather(op::Gather { axis: 1 }), &[x, column])?;
        let picked = to.squeeze(picked, &[1])?;
        let mut loss = to.unary(UnaryOp::Neg, picked)?;
        if let Some(ignored) = ignored {
            // The class that stands for an ignored one may be impossible: no weight makes nothing of an infinite loss.
            let zero = to.scalar(0.0, dtype);
            loss = to.select(ignored, zero, loss)?;
        }
        let weight = self.weights(to, args, target, ignored, dtype)?;
        let axes: Vec<usize> = (0..to.rank(loss)).collect();
        let result = to.formula(|f| {
            let weight = weight.map(|weight| f.value(weight));
            let loss = f.value(loss);
            let loss = weight.map_or(loss, |weight| loss * weight);
            match (self.reduction, weight) {
                (Reduction::None, _) => loss,
                (Reduction::Sum, _) => loss.reduce_squeezed(ReduceOp::Sum, &axes),
                (Reduction::Mean, None) => loss.reduce_squeezed(ReduceOp::Mean, &axes),
                (Reduction::Mean, Some(weight)) => {
                    loss.reduce_squeezed(ReduceOp::Sum, &axes) / weight.reduce_squeezed(ReduceOp::Sum, &axes)
                }
            }
        })?;
        Ok(if self.softmax { vec![result, x].into() } else { result.into() })
    }
}

impl Loss {
    /// How much each target counts; `None` when all count 1.
    fn weights(
        &self,
        to: &mut Lowering<'_, '_>,
        args: &Args,
        target: ValueId,
        ignored: Option<ValueId>,
        dtype: DType,
    ) -> RuleResult<Option<ValueId>> {
        let given = match args.optional("weight")? {
            Some(weight) => Some(to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[weight, target])?),
            None => None,
        };
        let Some(ignored) = ignored else {
            return Ok(given);
        };
        let counted = match given {
            Some(given) => given,
            None => {
                let dims = to.dims(target);
                to.fill(dims, Scalar::Float(1.0), dtype)?
            }
        };
        let zero = to.scalar(0.0, dtype);
        to.select(ignored, zero, counted).map(Some)
    }
}
