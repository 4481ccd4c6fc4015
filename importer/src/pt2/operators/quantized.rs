//! Quantization, as `pt2e` writes it into programs (`torch.ao.quantization.fx._decomposed`, `torchao`).

use super::Table;
use super::shape::{place, reshaped};
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, int, unsupported};
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("fake_quantize_per_channel_affine.default", fake_quantize),
    ("fake_quantize_per_tensor_affine.default", fake_quantize),
    ("fake_quantize_per_tensor_affine.tensor_qparams", fake_quantize),
    ("quantized_decomposed.choose_qparams.tensor", choose),
    ("quantized_decomposed.dequantize_per_channel.default", |call| dequantize(call, "scales", "zero_points")),
    ("quantized_decomposed.dequantize_per_tensor.default", |call| dequantize(call, "scale", "zero_point")),
    ("quantized_decomposed.dequantize_per_tensor.tensor", |call| dequantize(call, "scale", "zero_point")),
    ("quantized_decomposed.quantize_per_channel.default", |call| quantize(call, "scales", "zero_points")),
    ("quantized_decomposed.quantize_per_tensor.default", |call| quantize(call, "scale", "zero_point")),
    ("quantized_decomposed.quantize_per_tensor.tensor", |call| quantize(call, "scale", "zero_point")),
];

/// A scale or a zero point in a dtype: one number, or one for each channel.
fn parameter(call: &mut Call<'_, '_>, name: &str, dtype: DType) -> Result<String> {
    let Some(tensor) = call.optional_tensor(name)?.filter(|tensor| tensor.rank() > 0) else {
        return call.operand(name, dtype);
    };
    let value = call.cast_tensor(&tensor, dtype);
    let channels = call.has("axis");
    Ok(if channels { value } else { reshaped(call, &value, &[]) })
}

/// The axis of channels, where there is one.
fn axis(call: &mut Call<'_, '_>, of: &Tensor) -> Result<Vec<crate::onnx::proto::AttributeProto>> {
    let dim = call.optional_int("axis")?;
    dim.map(|dim| of.axis(dim).map(|axis| int("axis", axis))).into_iter().collect()
}

fn fake_quantize(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let scale = parameter(call, "scale", DType::F32)?;
    // Zero points of channels may be floats, with which numbers are rounded.
    let given = call.optional_tensor("zero_point")?;
    let is_float = call.has("axis") && given.is_some_and(|zero| zero.dtype.is_float());
    let zero_point = parameter(call, "zero_point", if is_float { DType::F32 } else { DType::I32 })?;
    let mut attributes = axis(call, &x)?;
    for bound in ["quant_min", "quant_max"] {
        attributes.push(int(bound, call.int(bound)?));
    }
    Ok(vec![call.kiln("FakeQuantize", &[&x, &scale, &zero_point], attributes)])
}

/// Integers from the least to the greatest that are asked for.
fn quantize(call: &mut Call<'_, '_>, scale: &str, zero_point: &str) -> Result<Outputs> {
    let x = call.tensor("input")?;
    let dtype = call.result_dtype()?;
    if !matches!(dtype, DType::U8 | DType::I8 | DType::U16 | DType::I16) {
        return Err(unsupported(format!("quantizing to {dtype}")));
    }
    let scale = parameter(call, scale, x.dtype)?;
    let zero_point = parameter(call, zero_point, dtype)?;
    let attributes = axis(call, &x)?;
    let quantized = call.op("QuantizeLinear", &[&x, &scale, &zero_point], attributes);
    let range = (i128::from(call.int("quant_min")?), i128::from(call.int("quant_max")?));
    if dtype.integers() == Some(range) {
        return Ok(vec![quantized]);
    }
    let (least, greatest) = (call.operand("quant_min", dtype)?, call.operand("quant_max", dtype)?);
    Ok(vec![call.op("Clip", &[&quantized, &least, &greatest], Vec::new())])
}

fn dequantize(call: &mut Call<'_, '_>, scale: &str, zero_point: &str) -> Result<Outputs> {
    // All integers are within the range to which they were quantized.
    call.ignore(&["quant_min", "quant_max"]);
    let x = call.tensor("input")?;
    let dtype = call.result_dtype()?;
    let is_centered = !call.has(zero_point) || call.number(zero_point)?.known() == Some(0.0);
    let scale = parameter(call, scale, DType::F32)?;
    if x.dtype == DType::I32 && !is_centered {
        // Integers of 32 bits, which biases have, have no zero point in ONNX.
        let zero_point = parameter(call, zero_point, DType::F32)?;
        let behind: Vec<i64> = match call.optional_int("axis")? {
            Some(dim) => (1..).take(x.rank().saturating_sub(place(x.axis(dim)?) + 1)).collect(),
            None => Vec::new(),
        };
        let (zero_point, scale) = (call.unsqueeze(&zero_point, &behind), call.unsqueeze(&scale, &behind));
        let floats = call.cast_tensor(&x, DType::F32);
        let centered = call.op("Sub", &[&floats, &zero_point], Vec::new());
        let floats = call.op("Mul", &[&centered, &scale], Vec::new());
        return Ok(vec![call.cast(&floats, DType::F32, dtype)]);
    }
    let mut operands = vec![x.name.clone(), scale];
    if call.has(zero_point) && x.dtype != DType::I32 {
        operands.push(parameter(call, zero_point, x.dtype)?);
    }
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    let attributes = axis(call, &x)?;
    let floats = call.op("DequantizeLinear", &operands, attributes);
    Ok(vec![call.cast(&floats, DType::F32, dtype)])
}

/// The scale and the zero point for the range of a tensor, which holds 0.
fn choose(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("input")?;
    let (scales, zero_points) = (call.result(0)?, call.result(1)?);
    let [least, greatest] = [call.int("quant_min")?, call.int("quant_max")?];
    let zero = call.scalar(Scalar::Int(0), x.dtype);
    let low = call.op("ReduceMin", &[&x], vec![int("keepdims", 0)]);
    let low = call.op("Min", &[&low, &zero], Vec::new());
    let high = call.op("ReduceMax", &[&x], vec![int("keepdims", 0)]);
    let high = call.op("Max", &[&high, &zero], Vec::new());
    let range = call.op("Sub", &[&high, &low], Vec::new());
    let steps = call.number_of(greatest as f64 - least as f64, x.dtype);
    let scale = call.op("Div", &[&range, &steps], Vec::new());
    let eps = call.operand("eps", x.dtype)?;
    let scale = call.op("Max", &[&scale, &eps], Vec::new());
    let below = call.op("Div", &[&low, &scale], Vec::new());
    let below = call.op("Round", &[&below], Vec::new());
    let first = call.number_of(least as f64, x.dtype);
    let last = call.number_of(greatest as f64, x.dtype);
    let zero_point = call.op("Sub", &[&first, &below], Vec::new());
    let zero_point = call.op("Clip", &[&zero_point, &first, &last], Vec::new());
    let mut results = Vec::with_capacity(2);
    for (value, like) in [(scale, scales), (zero_point, zero_points)] {
        let value = call.cast(&value, x.dtype, like.dtype);
        let shape: Vec<Int> = like.sizes.iter().map(|size| Int::Known(size.unwrap_or(1))).collect();
        results.push(reshaped(call, &value, &shape));
    }
    Ok(results)
}
