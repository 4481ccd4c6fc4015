//! `Gemm`: `alpha · A · B + beta · C`; ONNX Runtime's `FusedGemm` has an activation behind it.

use super::activation::merged;
use super::limited_broadcast::LimitedBroadcast;
use super::prelude::*;
use kiln_types::Activation;

pub(super) struct Gemm {
    alpha: f64,
    beta: f64,
    transpose: [bool; 2],
    activation: Option<Activation>,
    /// How `C` met the product before version 7.
    limited: Option<LimitedBroadcast>,
}

impl Gemm {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Self::read_form(node, None)
    }

    fn read_old(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let limited = LimitedBroadcast::read(node)?;
        Self::read_form(node, limited)
    }

    fn read_form(node: &mut SourceNode<'_>, limited: Option<LimitedBroadcast>) -> RuleResult<Self> {
        Ok(Self {
            alpha: node.float("alpha", 1.0)?,
            beta: node.float("beta", 1.0)?,
            transpose: [node.int("transA", 0)? != 0, node.int("transB", 0)? != 0],
            activation: None,
            limited,
        })
    }

    fn read_fused(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let names = ["activation_alpha", "activation_beta"];
        let [alpha, beta] = names.map(|name| node.optional_float(name));
        let numbers = [alpha?, beta?];
        node.ignore(&["activation_gamma"]);
        let number = |n: usize| numbers[n].ok_or_else(|| invalid(names[n], "is missing"));
        let activation = Some(merged(&node.string("activation", "")?, number)?);
        Ok(Self { activation, ..Self::read(node)? })
    }
}

impl<'m> Operator<'m> for Gemm {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Gemm", 1, &["A", "B", "C"]).until(6).reads(Self::read_old),
        Spec::onnx("Gemm", 7, &["A", "B", "C"]).until(10).reads(Self::read),
        Spec::onnx("Gemm", 11, &["A", "B", "C?"]).reads(Self::read),
        Spec::microsoft("FusedGemm", &["A", "B", "C?"]).reads(Self::read_fused),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let y = self.sum(args, to)?;
        Ok(match self.activation {
            Some(activation) => to.activation(activation, y)?,
            None => y,
        }
        .into())
    }
}

impl Gemm {
    /// What it computes before the activation.
    fn sum(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<ValueId> {
        let [transpose_a, transpose_b] = self.transpose;
        let operands = [
            oriented(to, "A", args.value("A")?, transpose_a)?,
            oriented(to, "B", args.value("B")?, transpose_b)?,
        ];
        let product = to.add(Op::MatMul, &operands)?;
        let product = scaled(to, product, self.alpha)?;
        let Some(mut c) = args.optional("C")?.filter(|_| self.beta != 0.0) else {
            return Ok(product);
        };
        if let Some(limited) = &self.limited {
            c = limited.align(to, product, c)?;
        }
        let c = scaled(to, c, self.beta)?;
        to.binary(BinaryOp::Add, product, c)
    }
}

/// A matrix, transposed where that is asked for.
pub(super) fn oriented(
    to: &mut Lowering<'_, '_>,
    name: &str,
    matrix: ValueId,
    transpose: bool,
) -> RuleResult<ValueId> {
    let actual = to.rank(matrix);
    if actual != 2 {
        let expected = "expected 2".to_owned();
        return Err(RuleError::Rank { input: name.to_owned(), actual, expected });
    }
    if transpose { to.permute(matrix, vec![1, 0]) } else { Ok(matrix) }
}

fn scaled(to: &mut Lowering<'_, '_>, x: ValueId, factor: f64) -> RuleResult<ValueId> {
    if factor == 1.0 {
        return Ok(x);
    }
    let dtype = to.dtype(x);
    let is_whole = dtype.is_float() || factor.fract() == 0.0;
    let x = if is_whole { x } else { to.cast(x, DType::F64)? };
    let factor = to.number_like(x, factor);
    let scaled = to.binary(BinaryOp::Mul, x, factor)?;
    to.cast(scaled, dtype)
}
