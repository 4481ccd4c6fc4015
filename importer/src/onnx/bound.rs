//! Inputs that are bound to numbers when a model is imported: they become constants.

use crate::error::ImportErrorKind;
use crate::ir::{Dim, TensorType};
use kiln_types::{Scalar, TensorData};

/// The contents of an input of a type that is bound to numbers, in row-major order.
pub(super) fn contents(
    name: &str,
    ty: &TensorType,
    numbers: &[Scalar],
) -> Result<TensorData, ImportErrorKind> {
    let fail = |reason: String| ImportErrorKind::Interface { what: "input", name: name.to_owned(), reason };
    let sizes: Option<Vec<usize>> = ty.dims.iter().map(Dim::as_size).collect();
    let shape = match (sizes, ty.dims.as_slice()) {
        (Some(shape), _) => shape,
        (None, [_]) => vec![numbers.len()],
        (None, _) => {
            return Err(fail(format!("is {ty}, and can be bound once its dims are; bind these too")));
        }
    };
    let wanted = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    if wanted != Some(numbers.len()) {
        return Err(fail(format!("is {ty}, and is bound to {} numbers", numbers.len())));
    }
    let whole = |number: &Scalar| match *number {
        Scalar::Int(number) => Some(number),
        Scalar::Bool(truth) => Some(truth.into()),
        Scalar::UInt(_) | Scalar::Float(_) => None,
    };
    let data = match numbers.iter().map(whole).collect::<Option<Vec<i64>>>() {
        Some(whole) => TensorData::new(whole, shape.as_slice()),
        None => TensorData::new(
            numbers.iter().map(|number| number.to_f64()).collect::<Vec<_>>(),
            shape.as_slice(),
        ),
    };
    let is_whole = |number: &Scalar| !matches!(number, Scalar::Float(number) if number.fract() != 0.0);
    if !data.fits(ty.dtype) || !(ty.dtype.is_float() || numbers.iter().all(is_whole)) {
        return Err(fail(format!("is {ty}, and is bound to numbers that {} does not hold", ty.dtype)));
    }
    Ok(data.convert_dtype(ty.dtype))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_types::DType;

    fn bound(dtype: DType, dims: &[Dim], numbers: &[Scalar]) -> Result<TensorData, String> {
        let ty = TensorType { dtype, dims: dims.to_vec() };
        contents("x", &ty, numbers).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_take_the_inputs_dtype_and_shape() {
        let n = Dim::symbol("n");
        let two = Dim::constant(2);
        assert_eq!(bound(DType::I64, &[], &[16_000.into()]), Ok(TensorData::new(vec![16_000i64], [])));
        assert_eq!(
            bound(DType::I32, std::slice::from_ref(&n), &[0.into(), (-2).into()]),
            Ok(TensorData::new(vec![0i32, -2], [2]))
        );
        assert_eq!(
            bound(DType::Bool, &[Dim::constant(1)], &[true.into()]),
            Ok(TensorData::new(vec![true], [1]))
        );
        assert_eq!(
            bound(DType::F32, std::slice::from_ref(&two), &[1.into(), 0.5.into()]),
            Ok(TensorData::new(vec![1.0f32, 0.5], [2]))
        );
        for (dtype, dims, numbers) in [
            (DType::I64, vec![], vec![0.5.into()]),
            (DType::U8, vec![], vec![256.into()]),
            (DType::I64, vec![two.clone()], vec![1.into()]),
            (DType::I64, vec![n.clone(), two.clone()], vec![1.into(), 2.into()]),
            (DType::I64, vec![Dim::constant(1 << 40), Dim::constant(1 << 40)], vec![1.into()]),
        ] {
            let error = bound(dtype, &dims, &numbers).unwrap_err();
            assert!(error.starts_with("input `x`: is "), "{error}");
        }
    }
}
