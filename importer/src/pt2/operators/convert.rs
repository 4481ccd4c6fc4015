//! Operators that yield what they are given, in another dtype or as it is.

use super::{Sharing, Table, ViewTable};
use crate::pt2::call::{Call, Outputs, Result, unsupported};
use crate::pt2::views::put_back;
use kiln_types::Scalar;

pub(super) const RULES: Table = &[
    ("_conj_physical.default", converted),
    ("_to_copy.default", converted),
    ("clone.default", converted),
    ("conj_physical.default", converted),
    ("copy.default", copied),
    ("fill.Scalar", filled),
    ("fill.Tensor", filled),
    ("zero.default", filled),
];

/// Operators whose results share elements with what they are given.
pub(super) const VIEWS: ViewTable = &[
    ("_conj.default", converted, Sharing::Always, put_back::same),
    ("alias.default", converted, Sharing::Always, put_back::same),
    ("bfloat16.default", converted, Sharing::AsItIs, put_back::same),
    ("bool.default", converted, Sharing::AsItIs, put_back::same),
    ("conj.default", converted, Sharing::Always, put_back::same),
    ("contiguous.default", converted, Sharing::AsItIs, put_back::same),
    ("detach.default", detached, Sharing::Always, put_back::same),
    ("double.default", converted, Sharing::AsItIs, put_back::same),
    ("float.default", converted, Sharing::AsItIs, put_back::same),
    ("half.default", converted, Sharing::AsItIs, put_back::same),
    ("int.default", converted, Sharing::AsItIs, put_back::same),
    ("lift_fresh.default", converted, Sharing::Always, put_back::same),
    ("long.default", converted, Sharing::AsItIs, put_back::same),
    ("positive.default", converted, Sharing::Always, put_back::same),
    ("real.default", converted, Sharing::Always, put_back::same),
    ("resolve_conj.default", converted, Sharing::UnlessConjugated, put_back::same),
    ("resolve_neg.default", converted, Sharing::UnlessNegated, put_back::same),
    ("to.device", converted, Sharing::AsItIs, put_back::same),
    ("to.dtype", converted, Sharing::AsItIs, put_back::same),
    ("to.dtype_layout", converted, Sharing::AsItIs, put_back::same),
    ("to.other", converted, Sharing::AsItIs, put_back::same),
    ("to.prim_Device", converted, Sharing::AsItIs, put_back::same),
    ("to.prim_dtype", converted, Sharing::AsItIs, put_back::same),
    ("type_as.default", converted, Sharing::AsItIs, put_back::same),
    ("view.dtype", reinterpreted, Sharing::Always, put_back::same),
];

/// The dtype of the result tells to what.
fn converted(call: &mut Call<'_, '_>) -> Result<Outputs> {
    call.ignore(&["other"]);
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
