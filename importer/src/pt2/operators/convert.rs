//! Operators that yield what they are given, in another dtype or as it is.

use super::Table;
use crate::pt2::call::{Call, Outputs, Result, unsupported};
use kiln_types::Scalar;

pub(super) const RULES: Table = &[
    ("_conj.default", converted),
    ("_conj_physical.default", converted),
    ("_to_copy.default", converted),
    ("alias.default", converted),
    ("bfloat16.default", converted),
    ("bool.default", converted),
    ("clone.default", converted),
    ("conj.default", converted),
    ("conj_physical.default", converted),
    ("contiguous.default", converted),
    ("copy.default", copied),
    ("detach.default", detached),
    ("double.default", converted),
    ("fill.Scalar", filled),
    ("fill.Tensor", filled),
    ("float.default", converted),
    ("half.default", converted),
    ("int.default", converted),
    ("lift_fresh.default", converted),
    ("long.default", converted),
    ("positive.default", converted),
    ("real.default", converted),
    ("resolve_conj.default", converted),
    ("resolve_neg.default", converted),
    ("to.device", converted),
    ("to.dtype", converted),
    ("to.dtype_layout", converted),
    ("to.other", converted),
    ("to.prim_Device", converted),
    ("to.prim_dtype", converted),
    ("type_as.default", converted),
    ("view.dtype", reinterpreted),
    ("zero.default", filled),
];

/// The dtype of the result tells to what.
fn converted(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let dtype = call.result_dtype()?;
    if x.dtype == dtype {
        return Ok(vec![call.op("Identity", &[&x], Vec::new())]);
    }
    Ok(vec![call.cast_tensor(&x, dtype)])
}

fn detached(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    Ok(vec![call.kiln("Detach", &[&x], Vec::new())])
}

fn reinterpreted(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (from, to) = (x.dtype, call.result_dtype()?);
    if from == to { converted(call) } else { Err(unsupported(format!("taking the bits of {from} for {to}"))) }
}

/// What is copied takes the dtype and shape of what it is copied into.
fn copied(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, source) = (call.tensor("self")?, call.tensor("src")?);
    let value = call.cast_tensor(&source, x.dtype);
    let known = x.sizes.iter().all(Option::is_some);
    if known && x.sizes == source.sizes {
        return Ok(vec![call.op("Identity", &[&value], Vec::new())]);
    }
    let shape = call.shape(&x);
    Ok(vec![call.op("Expand", &[&value, &shape], Vec::new())])
}

fn filled(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let value = if call.has("value") {
        call.operand("value", x.dtype)?
    } else {
        call.scalar(Scalar::Int(0), x.dtype)
    };
    let shape = call.shape(&x);
    Ok(vec![call.op("Expand", &[&value, &shape], Vec::new())])
}
