//! PyTorch's dtypes, and ONNX's.

use super::call::{Result, unsupported};
use super::value::not_real;
use kiln_record::Stored;
use kiln_types::DType;

/// The dtype of a `ScalarType` of `schema.py`.
pub(super) fn of_scalar_type(scalar_type: u32) -> Result<DType> {
    match kiln_weights::scalar_type(scalar_type) {
        Some(Stored::DType(dtype)) => Ok(dtype),
        Some(Stored::Minifloat(_)) => Err(unsupported("computing with floats of eight bits")),
        None if complex_part(scalar_type).is_some() => Err(not_real()),
        None => Err(unsupported(format!("PyTorch's dtype {scalar_type}"))),
    }
}

/// The dtype of either part of complex numbers: `COMPLEXHALF`, `COMPLEXFLOAT`, `COMPLEXDOUBLE`.
pub(super) fn complex_part(scalar_type: u32) -> Option<DType> {
    kiln_weights::complex_part(scalar_type)
}

/// The `TensorProto.DataType` of a dtype.
pub(super) fn data_type(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
        DType::U4 => 21,
        DType::I4 => 22,
    }
}

/// Whether numbers of a dtype can be negative.
pub(super) fn is_signed(dtype: DType) -> bool {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => true,
        DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::I4 => true,
        DType::U64 | DType::U32 | DType::U16 | DType::U8 | DType::U4 | DType::Bool => false,
    }
}

/// The dtype in which PyTorch computes with tensors and numbers of these, which are in order of precedence: tensors with dims,
/// tensors without, and numbers. Those of a later group only count if they are of a higher kind than those before
/// (`torch.result_type`).
pub(super) fn promoted(groups: [&[DType]; 3]) -> DType {
    let kind = |dtype: DType| match dtype {
        DType::Bool => 0,
        dtype if dtype.is_float() => 2,
        _ => 1,
    };
    let mut found: Option<DType> = None;
    for group in groups {
        let Some(own) = group.iter().copied().reduce(widest) else { continue };
        found = match found {
            Some(before) if kind(before) >= kind(own) => Some(before),
            _ => Some(own),
        };
    }
    found.unwrap_or(DType::F32)
}

/// The narrowest dtype that holds two (`torch.promote_types`).
fn widest(a: DType, b: DType) -> DType {
    match (a.is_float(), b.is_float()) {
        (true, false) => a,
        (false, true) => b,
        // Neither of the two floats of 16 bits holds the other.
        (true, true) if a != b && a.size() == 2 && b.size() == 2 => DType::F32,
        (true, true) => {
            if a.size() >= b.size() {
                a
            } else {
                b
            }
        }
        (false, false) => match (a, b) {
            (DType::Bool, other) | (other, DType::Bool) => other,
            _ if a == b => a,
            (DType::U8, signed) | (signed, DType::U8) if signed.size() == 1 => DType::I16,
            _ if a.size() >= b.size() => a,
            _ => b,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_types_are_those_that_the_reader_knows() {
        for dtype in (0..64).filter_map(|known| crate::onnx::dtype(known).ok()) {
            assert_eq!(crate::onnx::dtype(data_type(dtype)), Ok(dtype));
        }
    }

    #[test]
    fn dtypes_are_promoted_as_pytorch_does() {
        let of = |tensors: &[DType], zero: &[DType], numbers: &[DType]| promoted([tensors, zero, numbers]);
        assert_eq!(of(&[DType::F16], &[DType::F32], &[]), DType::F16);
        assert_eq!(of(&[DType::I32], &[], &[DType::F32]), DType::F32);
        assert_eq!(of(&[DType::U8, DType::I8], &[], &[DType::I64]), DType::I16);
        assert_eq!(of(&[DType::F16, DType::BF16], &[], &[]), DType::F32);
        assert_eq!(of(&[DType::Bool], &[DType::I64], &[]), DType::I64);
        assert_eq!(of(&[DType::F64, DType::I64], &[DType::F32], &[DType::F32]), DType::F64);
    }
}
