//! `FakeQuantize`, of Kiln's own domain: numbers rounded to those which integers stand for, as networks have them that are trained to be
//! quantized.

use super::detach::detached;
use super::prelude::*;
use super::quantize_linear::straight_through;

pub(super) struct FakeQuantize {
    /// The least integer and the greatest.
    range: [i64; 2],
    /// The axis with a scale and a zero point for each entry, where these are no numbers.
    axis: i64,
}

impl FakeQuantize {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let range = [node.int("quant_min", 0)?, node.int("quant_max", 255)?];
        if range[0] > range[1] {
            return Err(invalid("quant_min", "is greater than `quant_max`"));
        }
        Ok(Self { range, axis: node.int("axis", 0)? })
    }
}

impl<'m> Operator<'m> for FakeQuantize {
    const FORMS: Forms<'m, Self> =
        &[Spec::kiln("FakeQuantize", &["x", "scale", "zero_point"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("x")?;
        let fixed = detached(to, x)?;
        let wide = to.cast(fixed, DType::F32)?;
        let [scale, zero] = ["scale", "zero_point"].map(|name| -> RuleResult<ValueId> {
            let value = to.cast(args.value(name)?, DType::F32)?;
            if to.rank(value) == 0 {
                return Ok(value);
            }
            let mut dims = vec![Dim::constant(1); to.rank(x)];
            let axis = axis_of(self.axis, dims.len())?;
            match to.dims(value).as_slice() {
                [size] => dims[axis] = size.clone(),
                sizes => {
                    return Err(misfit(
                        name,
                        format!("has rank {}, must be one number or a list", sizes.len()),
                    ));
                }
            }
            to.reshape(value, dims)
        });
        let (scale, zero) = (scale?, zero?);
        let [low, high] = self.range;
        let dtype = to.dtype(x);
        let is_whole = to.dtype(args.value("zero_point")?).is_int();
        let whole = to.formula(|f| {
            // PyTorch multiplies by the reciprocal, too, and rounds together with a zero point that is no integer.
            let scaled = f.value(wide) * f.value(scale).recip();
            if is_whole { scaled.round() + f.value(zero) } else { (scaled + f.value(zero)).round() }
        })?;
        let y = to.formula(|f| {
            let within = f.value(whole).clamp(low as f64, high as f64);
            ((within - f.value(zero)) * f.value(scale)).cast(dtype)
        })?;
        if !to.trainable {
            return Ok(y.into());
        }
        Ok(straight_through(to, x, y, whole, self.range)?.into())
    }
}
