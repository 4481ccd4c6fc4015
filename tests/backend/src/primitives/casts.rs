//! Conversions.

use super::{bits, has, read, tensor};
use kiln_tensor::DType;
use kiln_tensor::backend::{Backend, Primitive};

pub fn every_pair<B: Backend>() {
    for from in crate::supported::<B>() {
        for to in crate::supported::<B>() {
            let x = B::cast(tensor::<B, i64>(&[0, 1, 5, 100], &[4]), from);
            let x = B::cast(x, to);
            assert_eq!(x.dtype(), to);
            let expected = if from.is_bool() || to.is_bool() { [0., 1., 1., 1.] } else { [0., 1., 5., 100.] };
            assert_eq!(read::<B, f32>(B::cast(x, DType::F32)), expected, "{from} to {to}");
        }
    }
}

pub fn special_values<B: Backend>() {
    let x = tensor::<B, f32>(&[f32::NAN, 1e20, -1e20, 2.9, -2.9], &[5]);
    assert_eq!(read::<B, i32>(B::cast(x.clone(), DType::I32)), [0, i32::MAX, i32::MIN, 2, -2]);
    assert_eq!(bits::<B>(B::cast(x.clone(), DType::Bool)), [1, 1, 1, 1, 1]);
    if has::<B>(DType::U32) {
        assert_eq!(read::<B, u32>(B::cast(x.clone(), DType::U32)), [0, u32::MAX, 0, 2, 0]);
    }
    if !has::<B>(DType::I64) {
        return;
    }
    assert_eq!(read::<B, i64>(B::cast(x.clone(), DType::I64)), [0, i64::MAX, i64::MIN, 2, -2]);
    let wide = tensor::<B, i64>(&[300, -1, 1 << 40], &[3]);
    if has::<B>(DType::U8) {
        assert_eq!(read::<B, u8>(B::cast(x, DType::U8)), [0, 255, 0, 2, 0]);
        assert_eq!(read::<B, u8>(B::cast(wide.clone(), DType::U8)), [44, 255, 0]);
    }
    assert_eq!(read::<B, i32>(B::cast(wide, DType::I32)), [300, -1, 0]);
    if has::<B>(DType::F64) {
        let x = tensor::<B, u64>(&[u64::MAX], &[1]);
        assert_eq!(read::<B, f64>(B::cast(x, DType::F64)), [u64::MAX as f64]);
    }
}
