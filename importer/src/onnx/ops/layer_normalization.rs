//! `LayerNormalization` and `RMSNormalization`, and ONNX Runtime's forms that add what skipped a block first.

use super::prelude::*;
use crate::ir::{ScopeEntry, op};

pub(super) struct LayerNormalization {
    axis: i64,
    epsilon: f64,
    /// Only the root mean square, no mean.
    rms: bool,
    /// Compute in single precision.
    stash: bool,
    statistics: bool,
    /// The sum of the input, the skip connection and a bias is normalized, and an output too.
    skip: bool,
}

impl LayerNormalization {
    fn read(node: &mut SourceNode<'_>, rms: bool) -> RuleResult<Self> {
        let stash = node.int("stash_type", 1)?;
        if ![1, 10, 11, 16].contains(&stash) {
            return Err(invalid("stash_type", format!("is {stash}, must be a float type")));
        }
        Ok(Self {
            axis: node.int("axis", -1)?,
            epsilon: node.float("epsilon", 1e-5)?,
            rms,
            stash: stash == 1,
            statistics: node.is_read(1) || node.is_read(2),
            skip: false,
        })
    }

    fn read_skip(node: &mut SourceNode<'_>, rms: bool) -> RuleResult<Self> {
        Ok(Self {
            axis: -1,
            epsilon: node.float("epsilon", 1e-12)?,
            rms,
            stash: true,
            statistics: node.is_read(1) || node.is_read(2),
            skip: true,
        })
    }
}

impl<'m> Operator<'m> for LayerNormalization {
    const FORMS: Forms<'m, Self> = &[
        // ONNX has it since operator set 17; ONNX Runtime's optimizer writes it into models of any other.
        Spec::onnx("LayerNormalization", 1, &["X", "Scale", "B?"]).reads(|node| Self::read(node, false)),
        Spec::onnx("RMSNormalization", 23, &["X", "scale"]).reads(|node| Self::read(node, true)),
        // ONNX Runtime's first form of the latter, likewise.
        Spec::onnx("SimplifiedLayerNormalization", 1, &["X", "scale"]).reads(|node| Self::read(node, true)),
        Spec::microsoft("SkipLayerNormalization", &["input", "skip", "gamma", "beta?", "bias?"])
            .reads(|node| Self::read_skip(node, false)),
        Spec::microsoft("SkipSimplifiedLayerNormalization", &["input", "skip", "gamma", "bias?"])
            .reads(|node| Self::read_skip(node, true)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        if !self.skip {
            let scale = args.value(if self.rms { "scale" } else { "Scale" })?;
            return self.normalize(to, args.value("X")?, scale, args.optional("B")?);
        }
        let (input, skip) = (args.value("input")?, args.value("skip")?);
        let scope = scope_of_sum(to, [input, skip]);
        let own = std::mem::replace(&mut to.builder.origin.scope, scope);
        let sum = to.binary(BinaryOp::Add, input, skip);
        to.builder.origin.scope = own;
        let mut sum = sum?;
        if let Some(bias) = args.optional("bias")? {
            sum = to.binary(BinaryOp::Add, sum, bias)?;
        }
        let mut outputs = self.normalize(to, sum, args.value("gamma")?, args.optional("beta")?)?;
        outputs.0.resize_with(3, || Operand::Absent);
        outputs.0.push(Operand::Tensor(sum));
        Ok(outputs)
    }
}

/// The module that a sum belongs to which was merged with the norm behind it: that of the norm if it made one of the operands, and
/// otherwise that which made both, since a block ends by adding what skipped it.
fn scope_of_sum(to: &Lowering<'_, '_>, operands: [ValueId; 2]) -> Vec<ScopeEntry> {
    let graph = &*to.builder.graph;
    let own = &to.builder.origin.scope;
    let around = own.split_last().map(|(_, around)| around).unwrap_or_default();
    let scopes = operands.map(|operand| graph.producer(operand).map(|node| &graph.node(node).origin.scope));
    let [Some(first), Some(second)] = scopes else { return around.to_vec() };
    let starts = |scope: &[ScopeEntry]| around.iter().zip(scope).take_while(|(a, b)| a == b).count();
    let common = first.iter().zip(second).take_while(|(a, b)| a == b).count();
    let inside = around.is_empty() || [first, second].iter().any(|scope| starts(scope) == around.len());
    // Modules have the root and one around them at least.
    if inside || common < 2 { around.to_vec() } else { first.iter().take(common).cloned().collect() }
}

/// A sum normalized along its last axis, in single precision.
pub(super) fn layer_norm(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    scale: ValueId,
    bias: ValueId,
    epsilon: f64,
) -> RuleResult<Outputs> {
    let own =
        LayerNormalization { axis: -1, epsilon, rms: false, stash: true, statistics: false, skip: false };
    own.normalize(to, x, scale, Some(bias))
}

impl LayerNormalization {
    fn normalize(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        scale: ValueId,
        bias: Option<ValueId>,
    ) -> RuleResult<Outputs> {
        let axis = axis_of(self.axis, to.rank(x))?;
        let normalized = to.dims(x)[axis..].to_vec();
        let fits = |value: ValueId| to.dims(value) == normalized && to.dtype(value) == to.dtype(x);
        let direct = fits(scale) && bias.is_none_or(fits) && !self.statistics;
        if !direct {
            return self.compose(to, x, scale, bias, axis);
        }
        let op = if self.rms {
            Op::RmsNorm(op::RmsNorm { epsilon: self.epsilon })
        } else {
            Op::LayerNorm(op::LayerNorm { epsilon: self.epsilon })
        };
        let mut inputs = vec![Some(x), Some(scale)];
        inputs.extend(bias.map(Some));
        Ok(to.builder.add_all(op, inputs)?.into())
    }

    /// Parameters that broadcast, other dtypes, or statistics as outputs: step by step.
    fn compose(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        scale: ValueId,
        bias: Option<ValueId>,
        axis: usize,
    ) -> RuleResult<Outputs> {
        let dtype = to.dtype(x);
        let wide = if self.stash && dtype != DType::F64 { DType::F32 } else { dtype };
        let axes: Vec<usize> = (axis..to.rank(x)).collect();
        // The parameters' dtype is the result's.
        let result = to.dtype(scale);
        let outputs = to.formulas(|f| {
            let x = f.value(x).cast(wide);
            let mean = x.mean(&axes);
            let centered = if self.rms { x } else { x - mean };
            let inverse = (centered.square().mean(&axes) + self.epsilon).sqrt().recip();
            let mut y = (centered * inverse).cast(result) * f.value(scale);
            if let Some(bias) = bias {
                y = y + f.value(bias);
            }
            [y, if self.rms { inverse } else { mean }, inverse]
        })?;
        Ok(outputs.to_vec().into())
    }
}
