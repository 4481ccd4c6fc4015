//! What stands in for a dtype that a device has not.

use super::Backend;
use crate::check::ensure;
use crate::{DType, DTypeKind, Element, Scalar, TensorData};

/// The dtype in which a device holds what is asked for in `dtype`: that one if the device supports it, else the one that
/// stands in for it; see [`Backend::supports`].
pub fn held<B: Backend>(dtype: DType, device: &B::Device) -> DType {
    if B::supports(device, dtype) {
        return dtype;
    }
    match dtype.kind() {
        DTypeKind::Float if B::supports(device, DType::F32) => DType::F32,
        DTypeKind::Float => B::FloatElem::DTYPE,
        DTypeKind::Int if dtype.is_packed() && B::supports(device, dtype.widened()) => dtype.widened(),
        DTypeKind::Int => B::IntElem::DTYPE,
        DTypeKind::Bool => DType::Bool,
    }
}

/// Data on a device, in a dtype or what stands in for it.
///
/// # Panics
/// When another dtype stands in that does not hold all of the numbers.
#[track_caller]
pub(crate) fn from_data<B: Backend>(data: TensorData, dtype: DType, device: &B::Device) -> B::Primitive {
    let (data, held) = (data.convert_dtype(dtype), held::<B>(dtype, device));
    ensure!(
        data.fits(held),
        "from_data",
        "{device:?} has no {dtype}, and {held}, which stands in for it, does not hold all of the numbers"
    );
    B::from_data(data.convert_dtype(held), device)
}

/// The dtype in which a device holds a tensor that is asked for in `dtype` and filled with a number.
///
/// # Panics
/// When other integers stand in that do not hold the number.
#[track_caller]
pub(crate) fn held_for<B: Backend>(op: &str, value: Scalar, dtype: DType, device: &B::Device) -> DType {
    let held = held::<B>(dtype, device);
    if held != dtype && dtype.is_int() {
        let number = match value {
            Scalar::Int(x) => TensorData::from([x]),
            Scalar::UInt(x) => TensorData::from([x]),
            Scalar::Float(x) => TensorData::from([x]),
            Scalar::Bool(x) => TensorData::from([x]),
        };
        ensure!(
            number.convert_dtype(dtype).fits(held),
            op,
            "{device:?} has no {dtype}, and {held}, which stands in for it, does not hold the number"
        );
    }
    held
}

/// Data on a device, in its dtype or what stands in for that; see [`held`].
///
/// # Panics
/// When another dtype stands in that does not hold all of the numbers.
#[track_caller]
pub fn hold<B: Backend>(data: TensorData, device: &B::Device) -> B::Primitive {
    let dtype = data.dtype;
    from_data::<B>(data, dtype, device)
}
