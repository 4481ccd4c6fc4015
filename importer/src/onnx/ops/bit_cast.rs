//! `BitCast`: the bits of integers, as integers of the other sign.

use super::super::tensor::DataType;
use super::cast::target;
use super::prelude::*;

pub(super) struct BitCast {
    to: DataType,
}

impl BitCast {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { to: target(node)? })
    }
}

impl<'m> Operator<'m> for BitCast {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("BitCast", 26, &["input"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let (from, DataType { dtype, narrow }) = (to.dtype(x), self.to);
        if narrow.or(to.data_type(x).narrow).is_some() {
            return Err(RuleError::Unsupported {
                what: "the bits of floats of eight bits and fewer, or of two-bit integers".to_owned(),
            });
        }
        if bits(from) != bits(dtype) {
            let reason = format!("is {dtype}, which has not as many bits as the input's {from}");
            return Err(misfit("to", reason));
        }
        let are_integers = [from, dtype].iter().all(|dtype| dtype.is_int() && !dtype.is_packed());
        if from != dtype && !are_integers {
            return Err(RuleError::Unsupported { what: format!("the bits of {from} as {dtype}") });
        }
        // Casts of integers wrap.
        Ok(to.cast(x, dtype)?.into())
    }
}

fn bits(dtype: DType) -> usize {
    if dtype.is_packed() { 4 } else { 8 * dtype.size() }
}
