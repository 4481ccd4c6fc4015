//! `CausalConvWithState`: a depthwise convolution over what was and what is, as Mamba and Gated DeltaNet have it.

use super::prelude::*;
use crate::ir::op;
use kiln_types::{Activation, ConvOptions};

pub(super) struct CausalConvWithState {
    activation: Option<Activation>,
    dilation: usize,
}

impl CausalConvWithState {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let silu = Some(Activation::Silu);
        let activation =
            node.choice("activation", "none", &[("none", None), ("silu", silu), ("swish", silu)])?;
        Ok(Self { activation, dilation: 1 })
    }

    /// ONNX Runtime's form, which has more than ONNX's.
    fn read_contrib(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let defaults = [("ndim", 1), ("channels_last", 0), ("state_window", 0)];
        for (name, default) in defaults {
            let value = node.int(name, default)?;
            if value != default {
                return Err(RuleError::Unsupported { what: format!("`{name}` of {value}") });
            }
        }
        let dilation = node.size("dilation", 1)?;
        if dilation == 0 {
            return Err(invalid("dilation", "is 0"));
        }
        Ok(Self { dilation, ..Self::read(node)? })
    }
}

impl<'m> Operator<'m> for CausalConvWithState {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("CausalConvWithState", 27, &["input", "weight", "bias?", "past_state?"]).reads(Self::read),
        Spec::microsoft("CausalConvWithState", &["input", "weight", "bias?", "past_state?"])
            .reads(Self::read_contrib),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, weight) = (args.value("input")?, args.value("weight")?);
        for (input, value) in [("input", x), ("weight", weight)] {
            to.expect_rank(input, value, 3)?;
        }
        let known = |axis: usize| to.dims(weight)[axis].as_size().filter(|&size| size > 0);
        let not_known = || RuleError::NotConstant { input: "the kernel's size".to_owned() };
        let (groups, kernel) = known(0).zip(known(2)).ok_or_else(not_known)?;
        let before = &Dim::from(kernel - 1) * &Dim::from(self.dilation);
        let past = match args.optional("past_state")? {
            Some(past) => past,
            None => {
                let dims = to.dims(x);
                let dtype = to.dtype(x);
                to.fill(vec![dims[0].clone(), dims[1].clone(), before.clone()], Scalar::Float(0.0), dtype)?
            }
        };
        let padded = to.concat(&[past, x], 2)?;
        let options = ConvOptions {
            stride: vec![1].into(),
            padding: vec![(0, 0)].into(),
            dilation: vec![self.dilation].into(),
            groups,
        };
        let mut inputs = vec![padded, weight];
        inputs.extend(args.optional("bias")?);
        let mut y = to.add(Op::Conv(op::Conv { options, activation: None }), &inputs)?;
        if let Some(activation) = self.activation {
            y = to.activation(activation, y)?;
        }
        let length = to.dims(padded)[2].clone();
        let state = to.slice(padded, 2, &length - &before, length)?;
        Ok(vec![y, state].into())
    }
}
