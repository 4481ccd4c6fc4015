//! Activations with constants, which are attributes where these have enough digits.

use super::{computed, exp_less_one};
use crate::onnx::proto::AttributeProto;
use crate::pt2::call::{Call, Outputs, Result, float, int, unsupported};
use kiln_types::DType;

pub(super) fn activation(
    call: &mut Call<'_, '_>,
    operator: &str,
    attributes: impl FnOnce(DType) -> Vec<AttributeProto>,
) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    Ok(vec![call.op(operator, &[&x], attributes(dtype))])
}

/// Whether a number can be an attribute, which has 32 bits, of what is computed in the dtype of the result.
fn fits(call: &Call<'_, '_>, number: f64) -> Result<bool> {
    Ok(call.result_dtype()? != DType::F64 || f64::from(number as f32) == number)
}

/// `slope · x`, and below 0 `factor · (exp(x / width) − 1)`.
fn exponential_below(call: &mut Call<'_, '_>, [slope, factor, width]: [f64; 3]) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    let [zero, slope, factor, width] =
        [0.0, slope, factor, width].map(|number| call.number_of(number, dtype));
    let above = call.op("Mul", &[&x, &slope], Vec::new());
    let part = call.op("Div", &[&x, &width], Vec::new());
    let power = exp_less_one(call, &part, dtype);
    let below = call.op("Mul", &[&power, &factor], Vec::new());
    let is_below = call.op("Less", &[&x, &zero], Vec::new());
    Ok(vec![call.op("Where", &[&is_below, &below, &above], Vec::new())])
}

pub(super) fn leaky_relu(call: &mut Call<'_, '_>, slope: f64) -> Result<Outputs> {
    if fits(call, slope)? {
        return activation(call, "LeakyRelu", |_| vec![float("alpha", slope)]);
    }
    let (x, dtype) = computed(call)?;
    let (zero, slope) = (call.number_of(0.0, dtype), call.number_of(slope, dtype));
    let below = call.op("Mul", &[&x, &slope], Vec::new());
    let is_below = call.op("Less", &[&x, &zero], Vec::new());
    Ok(vec![call.op("Where", &[&is_below, &below, &x], Vec::new())])
}

/// Only of the input's scale 1 is it ONNX's `Elu`; `scale` is a factor.
pub(super) fn elu(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    let (alpha, scale) = (call.float_or("alpha", 1.0)?, call.float_or("scale", 1.0)?);
    if call.float_or("input_scale", 1.0)? != 1.0 {
        return Err(unsupported("`elu` with another `input_scale` than 1"));
    }
    if !fits(call, alpha)? {
        return exponential_below(call, [scale, scale * alpha, 1.0]);
    }
    let result = call.op("Elu", &[&x], vec![float("alpha", alpha)]);
    if scale == 1.0 {
        return Ok(vec![result]);
    }
    let scale = call.number_of(scale, dtype);
    Ok(vec![call.op("Mul", &[&result, &scale], Vec::new())])
}

pub(super) fn softplus(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    let (beta, threshold) = (call.float_or("beta", 1.0)?, call.float_or("threshold", 20.0)?);
    let mut scaled = x.clone();
    let factor = call.number_of(beta, dtype);
    if beta != 1.0 {
        scaled = call.op("Mul", &[&x, &factor], Vec::new());
    }
    let mut result = call.op("Softplus", &[&scaled], Vec::new());
    if beta != 1.0 {
        result = call.op("Div", &[&result, &factor], Vec::new());
    }
    // Above the threshold PyTorch takes the argument itself, which from 20 on differs by less than its rounding.
    if threshold < 20.0 {
        let threshold = call.number_of(threshold, dtype);
        let above = call.op("Greater", &[&scaled, &threshold], Vec::new());
        result = call.op("Where", &[&above, &x, &result], Vec::new());
    }
    Ok(vec![result])
}

pub(super) fn glu(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let axis = call.axis("dim", -1, &x)?;
    let halves = call.ops("Split", &[&x], vec![int("axis", axis), int("num_outputs", 2)], 2);
    let [value, gate] = halves.as_slice() else { return Ok(Vec::new()) };
    let gate = call.op("Sigmoid", &[gate], Vec::new());
    Ok(vec![call.op("Mul", &[value, &gate], Vec::new())])
}

/// A slope for each channel, the second axis.
pub(super) fn prelu(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, weight) = (call.tensor("self")?, call.tensor("weight")?);
    let axes: Vec<i64> = (1..).take(x.rank().saturating_sub(2)).collect();
    let weight = match (x.rank(), weight.rank()) {
        (0, 1) => call.squeeze(&weight, &[0]),
        (_, 1) => call.unsqueeze(&weight, &axes),
        _ => weight.name,
    };
    Ok(vec![call.op("PRelu", &[&x, &weight], Vec::new())])
}

pub(super) fn celu(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let alpha = call.float_or("alpha", 1.0)?;
    if !fits(call, alpha)? {
        return exponential_below(call, [1.0, alpha, alpha]);
    }
    activation(call, "Celu", |_| vec![float("alpha", alpha)])
}

pub(super) fn hard_sigmoid(call: &mut Call<'_, '_>) -> Result<Outputs> {
    if !fits(call, 1.0 / 6.0)? {
        let (x, dtype) = computed(call)?;
        let [zero, three, six] = [0.0, 3.0, 6.0].map(|number| call.number_of(number, dtype));
        let shifted = call.op("Add", &[&x, &three], Vec::new());
        let clipped = call.op("Clip", &[&shifted, &zero, &six], Vec::new());
        return Ok(vec![call.op("Div", &[&clipped, &six], Vec::new())]);
    }
    activation(call, "HardSigmoid", |_| vec![float("alpha", 1.0 / 6.0), float("beta", 0.5)])
}

pub(super) fn selu(call: &mut Call<'_, '_>) -> Result<Outputs> {
    const ALPHA: f64 = 1.673_263_242_354_377_2;
    const SCALE: f64 = 1.050_700_987_355_480_5;
    if !fits(call, ALPHA)? {
        return exponential_below(call, [SCALE, SCALE * ALPHA, 1.0]);
    }
    activation(call, "Selu", |_| Vec::new())
}
