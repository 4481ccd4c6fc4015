//! Attention.

use super::Table;
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, flag, float, unsupported};

pub(super) const RULES: Table = &[
    ("scaled_dot_product_attention.default", |call| attention(call, "attn_mask")),
    ("_scaled_dot_product_attention_math.default", |call| attention(call, "attn_mask")),
    ("_scaled_dot_product_attention_math_for_mps.default", |call| attention(call, "attn_mask")),
    ("_scaled_dot_product_cudnn_attention.default", |call| attention(call, "attn_bias")),
    ("_scaled_dot_product_efficient_attention.default", |call| attention(call, "attn_bias")),
    ("_scaled_dot_product_flash_attention.default", |call| attention(call, "attn_mask")),
    ("_scaled_dot_product_flash_attention_for_cpu.default", |call| attention(call, "attn_mask")),
    ("_scaled_dot_product_fused_attention_overrideable.default", |call| attention(call, "attn_bias")),
];

/// The operator of ONNX has a batch and heads: other tensors get these axes, or have several of them in one.
fn attention(call: &mut Call<'_, '_>, mask: &str) -> Result<Outputs> {
    if call.float_or("dropout_p", 0.0)? > 0.0 {
        return Err(unsupported(
            "attention that drops weights at random (`dropout_p`); call `model.eval()` before the export, or give 0.0",
        ));
    }
    let (q, k, v) = (call.tensor("query")?, call.tensor("key")?, call.tensor("value")?);
    let (q, k, v) = (call.as_result(q)?, call.as_result(k)?, call.as_result(v)?);
    let mask = call.optional_tensor(mask)?.map(|mask| call.as_result(mask)).transpose()?;
    let rank = q.rank().max(k.rank()).max(v.rank());
    let query = of_rank_four(call, &q, rank)?;
    let key = of_rank_four(call, &k, rank)?;
    let value = of_rank_four(call, &v, rank)?;
    let mask = match &mask {
        Some(mask) if rank > 4 && mask.rank() > 3 => Some(stretched(call, mask, &q, rank)?),
        mask => mask.as_ref().map(|mask| mask.name.clone()),
    };
    let mut attributes = vec![flag("is_causal", call.bool_or("is_causal", false)?)];
    if call.has("scale") {
        attributes.push(float("scale", call.float("scale")?));
    }
    let mut inputs: Vec<&str> = vec![&query, &key, &value];
    inputs.extend(mask.as_deref());
    let result = call.op("Attention", &inputs, attributes);
    Ok(vec![match rank {
        2 => call.squeeze(&result, &[0, 1]),
        3 => call.squeeze(&result, &[0]),
        4 => result,
        _ => {
            let mut sizes = Vec::new();
            for axis in 0..i64::try_from(rank).unwrap_or(i64::MAX) - 1 {
                sizes.push(call.size_of(&q, axis));
            }
            sizes.push(call.size_of(&v, i64::try_from(rank).unwrap_or(i64::MAX) - 1));
            let sizes = call.sizes_value(&sizes);
            call.op("Reshape", &[&result, &sizes], Vec::new())
        }
    }])
}

fn of_rank_four(call: &mut Call<'_, '_>, x: &Tensor, rank: usize) -> Result<String> {
    if x.rank() != rank || rank < 2 {
        return Err(unsupported("attention of tensors of different ranks"));
    }
    Ok(match rank {
        2 => call.unsqueeze(x, &[0, 1]),
        3 => call.unsqueeze(x, &[0]),
        4 => x.name.clone(),
        _ => {
            let last = i64::try_from(rank).unwrap_or(i64::MAX);
            let mut sizes = vec![Int::Known(-1)];
            for axis in last - 3..last {
                sizes.push(call.size_of(x, axis));
            }
            let sizes = call.sizes_value(&sizes);
            call.op("Reshape", &[x, &sizes], Vec::new())
        }
    })
}

/// A mask for each batch: it may be one of several along some axes, which become one.
fn stretched(call: &mut Call<'_, '_>, mask: &Tensor, query: &Tensor, rank: usize) -> Result<String> {
    let missing = rank
        .checked_sub(mask.rank())
        .ok_or_else(|| unsupported("a mask that has more axes than attention"))?;
    let missing: Vec<i64> = (0..).take(missing).collect();
    let mut sizes = Vec::new();
    for axis in (0..).take(rank.saturating_sub(3)) {
        sizes.push(call.size_of(query, axis));
    }
    sizes.extend([Int::Known(1), Int::Known(1), Int::Known(1)]);
    let sizes = call.sizes_value(&sizes);
    let value = call.unsqueeze(mask, &missing);
    let value = call.op("Expand", &[&value, &sizes], Vec::new());
    let mut sizes = vec![Int::Known(-1)];
    let last = i64::try_from(mask.rank()).unwrap_or(i64::MAX);
    for axis in last - 3..last {
        sizes.push(call.size_of(mask, axis));
    }
    let sizes = call.sizes_value(&sizes);
    Ok(call.op("Reshape", &[&value, &sizes], Vec::new()))
}
