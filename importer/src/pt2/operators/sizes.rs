//! Sizes, and Python's operators on them: what is computed on the host.

use super::Table;
use super::pointwise::{floored_quotient, remainder_of};
use crate::pt2::call::{Call, Number, Outputs, Result, int};
use kiln_types::{DType, Scalar};

macro_rules! arithmetic {
    ($operator:literal) => {
        |call| arithmetic(call, $operator)
    };
}

pub(super) const RULES: Table = &[
    ("sym_size.int", |call| {
        let x = call.tensor("self")?;
        let axis = call.axis("dim", 0, &x)?;
        let size = call.size_of(&x, axis);
        call.yields_count();
        Ok(vec![call.size_value(&size)])
    }),
    ("sym_numel.default", |call| {
        let x = call.tensor("self")?;
        Ok(vec![call.op("Size", &[&x], Vec::new())])
    }),
    // Each value of a graph has elements of its own, from the first on.
    ("sym_storage_offset.default", |call| {
        call.ignore(&["self"]);
        Ok(vec![call.int64(0)])
    }),
    ("sym_constrain_range.default", unchecked),
    ("sym_constrain_range_for_size.default", unchecked),
    ("_assert_async.default", unchecked),
    ("_assert_async.msg", unchecked),
    ("_assert_scalar.default", unchecked),
    ("_assert_tensor_metadata.default", unchecked),
    // The dtypes that follow from it stand in the calls that use them.
    ("promote_types.default", unchecked),
    ("_is_all_true.default", |call| {
        let x = call.tensor("self")?;
        let counted = call.cast_tensor(&x, DType::I64);
        let least = call.op("ReduceMin", &[&counted], vec![int("keepdims", 0)]);
        Ok(vec![call.cast(&least, DType::I64, DType::Bool)])
    }),
    ("item.default", item),
    ("_local_scalar_dense.default", item),
    ("_operator.add", arithmetic!("Add")),
    ("_operator.and_", |call| logical(call, "And")),
    ("_operator.eq", arithmetic!("Equal")),
    ("_operator.floordiv", floor_divide),
    ("_operator.ge", arithmetic!("GreaterOrEqual")),
    ("_operator.gt", arithmetic!("Greater")),
    ("_operator.le", arithmetic!("LessOrEqual")),
    ("_operator.lt", arithmetic!("Less")),
    ("_operator.mod", |call| {
        let (a, b, dtype) = operands(call)?;
        Ok(vec![remainder_of(call, &a, &b, dtype)])
    }),
    ("_operator.mul", arithmetic!("Mul")),
    ("_operator.ne", |call| {
        let equal = arithmetic(call, "Equal")?;
        Ok(equal.iter().map(|equal| call.op("Not", &[equal], Vec::new())).collect())
    }),
    ("_operator.neg", |call| {
        let (a, _) = operand(call)?;
        Ok(vec![call.op("Neg", &[&a], Vec::new())])
    }),
    ("_operator.or_", |call| logical(call, "Or")),
    ("_operator.pow", arithmetic!("Pow")),
    ("_operator.sub", arithmetic!("Sub")),
    ("_operator.truediv", |call| {
        let (a, b) = (call.operand("a", DType::F64)?, call.operand("b", DType::F64)?);
        Ok(vec![call.op("Div", &[&a, &b], Vec::new())])
    }),
    ("_operator.pos", |call| {
        let (a, _) = operand(call)?;
        Ok(vec![a])
    }),
    ("math.ceil", |call| rounded(call, "Ceil")),
    ("math.floor", |call| rounded(call, "Floor")),
    ("math.trunc", truncated),
    ("round", |call| rounded(call, "Round")),
    ("torch.sym_float", |call| Ok(vec![call.operand("a", DType::F64)?])),
    ("torch.sym_int", truncated),
    ("torch.sym_ite", |call| {
        let condition = call.operand("b", DType::Bool)?;
        let dtype = widest(call, ["t", "f"])?;
        let (then, other) = (call.operand("t", dtype)?, call.operand("f", dtype)?);
        Ok(vec![call.op("Where", &[&condition, &then, &other], Vec::new())])
    }),
    ("torch.sym_max", arithmetic!("Max")),
    ("torch.sym_min", arithmetic!("Min")),
    ("torch.sym_not", |call| {
        let a = call.operand("a", DType::Bool)?;
        Ok(vec![call.op("Not", &[&a], Vec::new())])
    }),
    ("torch._sym_sqrt", |call| {
        let a = call.operand("a", DType::F64)?;
        Ok(vec![call.op("Sqrt", &[&a], Vec::new())])
    }),
    ("torch.sym_sum", |call| {
        let sizes = call.sizes("args")?;
        let parts: Vec<String> = sizes.iter().map(|size| call.size_value(size)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(vec![call.op("Sum", &parts, Vec::new())])
    }),
];

/// What a program asserts held when it was made.
fn unchecked(call: &mut Call<'_, '_>) -> Result<Outputs> {
    call.ignore_all();
    Ok(Vec::new())
}

/// The one element of a tensor as a number.
fn item(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let value = if x.rank() == 0 {
        x.name.clone()
    } else {
        let none = call.int64s(&[]);
        call.op("Reshape", &[&x, &none], Vec::new())
    };
    let dtype = call.result_dtype()?;
    if x.dtype == dtype && x.rank() == 0 {
        return Ok(vec![call.op("Identity", &[&value], Vec::new())]);
    }
    Ok(vec![call.cast(&value, x.dtype, dtype)])
}

/// Python computes with integers, or with floats of 64 bits.
fn kind(number: &Number) -> DType {
    match number {
        Number::Known(Scalar::Float(_)) => DType::F64,
        Number::Known(_) => DType::I64,
        Number::Value(_, dtype) if dtype.is_float() => DType::F64,
        Number::Value(..) => DType::I64,
    }
}

fn widest(call: &mut Call<'_, '_>, names: [&str; 2]) -> Result<DType> {
    for name in names {
        if kind(&call.number(name)?).is_float() {
            return Ok(DType::F64);
        }
    }
    Ok(DType::I64)
}

fn operand(call: &mut Call<'_, '_>) -> Result<(String, DType)> {
    let dtype = kind(&call.number("a")?);
    Ok((call.operand("a", dtype)?, dtype))
}

fn operands(call: &mut Call<'_, '_>) -> Result<(String, String, DType)> {
    let dtype = widest(call, ["a", "b"])?;
    Ok((call.operand("a", dtype)?, call.operand("b", dtype)?, dtype))
}

/// Arithmetic, and comparisons.
fn arithmetic(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let (a, b, _) = operands(call)?;
    if operator != "Sub" && call.is_count("a") && call.is_count("b") {
        call.yields_count();
    }
    Ok(vec![call.op(operator, &[&a, &b], Vec::new())])
}

fn logical(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let (a, b) = (call.operand("a", DType::Bool)?, call.operand("b", DType::Bool)?);
    Ok(vec![call.op(operator, &[&a, &b], Vec::new())])
}

/// Sizes are not negative, and what is made of them seldom is: then the quotient of integers is rounded down as it is.
fn floor_divide(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (a, b, dtype) = operands(call)?;
    let positive = call.number("b")?.known().is_some_and(|b| b > 0.0);
    if positive && !dtype.is_float() && call.is_count("a") {
        call.yields_count();
        return Ok(vec![call.op("Div", &[&a, &b], Vec::new())]);
    }
    Ok(vec![floored_quotient(call, &a, &b, dtype)])
}

fn rounded(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let (a, dtype) = operand(call)?;
    if !dtype.is_float() {
        return Ok(vec![a]);
    }
    let whole = call.op(operator, &[&a], Vec::new());
    Ok(vec![call.cast(&whole, dtype, DType::I64)])
}

/// Casts to integers round towards zero.
fn truncated(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (a, dtype) = operand(call)?;
    Ok(vec![call.cast(&a, dtype, DType::I64)])
}
