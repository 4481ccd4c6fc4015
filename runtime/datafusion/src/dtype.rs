//! Which types of Arrow stand for which dtypes.

use arrow_schema::{DataType, Field, FieldRef};
use kiln_core::tensor::DType;
use std::sync::Arc;

/// The type of a column of numbers of a dtype. Arrow has no bf16, of which `Float32` holds every number.
pub(crate) fn arrow_type(dtype: DType) -> DataType {
    match dtype {
        DType::F64 => DataType::Float64,
        DType::F32 | DType::BF16 => DataType::Float32,
        DType::F16 => DataType::Float16,
        DType::I64 => DataType::Int64,
        DType::I32 => DataType::Int32,
        DType::I16 => DataType::Int16,
        DType::I8 | DType::I4 => DataType::Int8,
        DType::U64 => DataType::UInt64,
        DType::U32 => DataType::UInt32,
        DType::U16 => DataType::UInt16,
        DType::U8 | DType::U4 => DataType::UInt8,
        DType::Bool => DataType::Boolean,
    }
}

/// The dtype of a column of numbers; `None` for all others.
pub(crate) fn dtype(data_type: &DataType) -> Option<DType> {
    Some(match data_type {
        DataType::Float64 => DType::F64,
        DataType::Float32 => DType::F32,
        DataType::Float16 => DType::F16,
        DataType::Int64 => DType::I64,
        DataType::Int32 => DType::I32,
        DataType::Int16 => DType::I16,
        DataType::Int8 => DType::I8,
        DataType::UInt64 => DType::U64,
        DataType::UInt32 => DType::U32,
        DataType::UInt16 => DType::U16,
        DataType::UInt8 => DType::U8,
        DataType::Boolean => DType::Bool,
        _ => return None,
    })
}

/// Whether numbers of a dtype become those of another where both hold them. Floats become no integers, and only booleans become booleans: which of several ways
/// is meant is for the query to say.
pub(crate) fn converts(from: DType, to: DType) -> bool {
    to.is_float() || to.is_int() && !from.is_float() || from.is_bool()
}

/// The elements of lists of a type.
pub(crate) fn item(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            Some(field.data_type())
        }
        _ => None,
    }
}

/// The field of a list's elements, under the name that Arrow proposes.
pub(crate) fn list_field(data_type: DataType, nullable: bool) -> FieldRef {
    Arc::new(Field::new_list_field(data_type, nullable))
}
