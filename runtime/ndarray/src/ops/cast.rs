//! Dtype conversion, through `f64`, `i64` or `u64` in small blocks: 3 × 12 loops instead of 12 × 12.
//!
//! Each element type is exact in one of the three, and every conversion out of them rounds or wraps once, as Rust's
//! `as` does: floats to integers truncate and saturate, integers to smaller integers wrap.

use crate::tensor::NdArrayTensor;
use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use kiln_kernels::convert;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{DType, bf16, f16};

const BLOCK: usize = 512;

/// Converts the elements. Mostly there is nothing to convert: then the tensor is not moved either.
#[inline]
pub(crate) fn cast(tensor: NdArrayTensor, dtype: DType) -> NdArrayTensor {
    if tensor.dtype() == dtype { tensor } else { converted(tensor, dtype) }
}

/// [`cast`] to another dtype.
fn converted(tensor: NdArrayTensor, dtype: DType) -> NdArrayTensor {
    let from = tensor.dtype();
    if from == DType::Bool && dtype.size() == 1 {
        return tensor.with_dtype(dtype);
    }
    if tensor.layout().is_channels_last() {
        return cast(tensor.channels_last(), dtype).channels_first();
    }
    let tensor = tensor.into_contiguous();
    if let Some(done) = direct(&tensor, dtype) {
        return done;
    }
    let (bytes_in, bytes_out) = (from.size(), dtype.size());
    let len = tensor.len();
    NdArrayTensor::build_bytes(tensor.shape(), dtype, |out| {
        let source = tensor.bytes();
        for start in (0..len).step_by(BLOCK) {
            let n = BLOCK.min(len - start);
            let source = &source[start * bytes_in..][..n * bytes_in];
            let out = &mut out[start * bytes_out..][..n * bytes_out];
            match from {
                DType::F64 | DType::F32 | DType::F16 | DType::BF16 => {
                    let mut block = [0f64; BLOCK];
                    read_float(from, source, &mut block[..n]);
                    write(dtype, out, &block[..n]);
                }
                DType::U64 => write(dtype, out, bytemuck::cast_slice::<u8, u64>(source)),
                _ => {
                    let mut block = [0i64; BLOCK];
                    read_int(from, source, &mut block[..n]);
                    write(dtype, out, &block[..n]);
                }
            }
        }
    })
}

/// The pairs that models use, in one loop.
fn direct(tensor: &NdArrayTensor, dtype: DType) -> Option<NdArrayTensor> {
    Some(match (tensor.dtype(), dtype) {
        // By the instructions that there are for slices.
        (DType::F16, DType::F32) => NdArrayTensor::build(tensor.shape(), dtype, |out: &mut [f32]| {
            tensor.slice::<f16>().convert_to_f32_slice(out);
        }),
        (DType::F32, DType::F16) => NdArrayTensor::build(tensor.shape(), dtype, |out: &mut [f16]| {
            out.convert_from_f32_slice(tensor.slice());
        }),
        (DType::BF16, DType::F32) => NdArrayTensor::build(tensor.shape(), dtype, |out: &mut [f32]| {
            tensor.slice::<bf16>().convert_to_f32_slice(out);
        }),
        (DType::F32, DType::BF16) => NdArrayTensor::build(tensor.shape(), dtype, |out: &mut [bf16]| {
            out.convert_from_f32_slice(tensor.slice());
        }),
        (DType::I64, DType::F32) => map::<i64, f32>(tensor, dtype, |x| x as f32),
        (DType::F32, DType::I64) => map::<f32, i64>(tensor, dtype, |x| x as i64),
        (DType::I64, DType::I32) => map::<i64, i32>(tensor, dtype, |x| x as i32),
        (DType::I32, DType::I64) => map::<i32, i64>(tensor, dtype, i64::from),
        (DType::F32, DType::U8) => NdArrayTensor::build(tensor.shape(), dtype, |out| {
            convert::floats_to_u8(tensor.slice(), out);
        }),
        (DType::F32, DType::I8) => NdArrayTensor::build(tensor.shape(), dtype, |out| {
            convert::floats_to_i8(tensor.slice(), out);
        }),
        (DType::I32, DType::F32) => map::<i32, f32>(tensor, dtype, |x| x as f32),
        (DType::I8, DType::F32) => map::<i8, f32>(tensor, dtype, f32::from),
        (DType::Bool | DType::U8, DType::F32) => map::<u8, f32>(tensor, dtype, f32::from),
        (DType::I8, DType::I32) => map::<i8, i32>(tensor, dtype, i32::from),
        (DType::U8, DType::I32) => map::<u8, i32>(tensor, dtype, i32::from),
        _ => return None,
    })
}

fn map<A: Pod, B: Pod>(tensor: &NdArrayTensor, dtype: DType, f: impl Fn(A) -> B) -> NdArrayTensor {
    NdArrayTensor::build(tensor.shape(), dtype, |out: &mut [B]| {
        out.iter_mut().zip(tensor.slice::<A>()).for_each(|(out, &x)| *out = f(x));
    })
}

fn read<A: Pod, B>(source: &[u8], block: &mut [B], f: impl Fn(A) -> B) {
    block.iter_mut().zip(bytemuck::cast_slice::<u8, A>(source)).for_each(|(out, &x)| *out = f(x));
}

fn read_float(dtype: DType, source: &[u8], block: &mut [f64]) {
    match dtype {
        DType::F64 => read::<f64, _>(source, block, |x| x),
        DType::F16 => read::<f16, _>(source, block, f16::to_f64),
        DType::BF16 => read::<bf16, _>(source, block, bf16::to_f64),
        _ => read::<f32, _>(source, block, f64::from),
    }
}

fn read_int(dtype: DType, source: &[u8], block: &mut [i64]) {
    match dtype {
        DType::I32 => read::<i32, _>(source, block, i64::from),
        DType::I16 => read::<i16, _>(source, block, i64::from),
        DType::I8 | DType::I4 => read::<i8, _>(source, block, i64::from),
        DType::U32 => read::<u32, _>(source, block, i64::from),
        DType::U16 => read::<u16, _>(source, block, i64::from),
        DType::U8 | DType::U4 | DType::Bool => read::<u8, _>(source, block, i64::from),
        _ => read::<i64, _>(source, block, |x| x),
    }
}

/// One of the three types between.
trait Wide: Pod {
    fn f64(self) -> f64;
    fn f32(self) -> f32;
    fn i64(self) -> i64;
    fn i32(self) -> i32;
    fn i16(self) -> i16;
    fn i8(self) -> i8;
    fn u64(self) -> u64;
    fn u32(self) -> u32;
    fn u16(self) -> u16;
    fn u8(self) -> u8;
    fn bool(self) -> u8;
}

macro_rules! wide {
    ($($wide:ty),*) => {
        $(wide!(@ $wide: f64 f32 i64 i32 i16 i8 u64 u32 u16 u8);)*
    };
    (@ $wide:ty: $($ty:ident)*) => {
        impl Wide for $wide {
            $(#[inline(always)]
            fn $ty(self) -> $ty {
                self as $ty
            })*

            #[inline(always)]
            fn bool(self) -> u8 {
                u8::from(self != 0 as $wide)
            }
        }
    };
}

wide!(f64, i64, u64);

fn store<W: Wide, B: Pod>(out: &mut [u8], block: &[W], f: impl Fn(W) -> B) {
    bytemuck::cast_slice_mut::<u8, B>(out).iter_mut().zip(block).for_each(|(out, &x)| *out = f(x));
}

fn write<W: Wide>(dtype: DType, out: &mut [u8], block: &[W]) {
    match dtype {
        DType::F64 => store(out, block, W::f64),
        DType::F32 => store(out, block, W::f32),
        DType::F16 => store(out, block, |x| f16::from_f64(x.f64())),
        DType::BF16 => store(out, block, |x| bf16::from_f64(x.f64())),
        DType::I64 => store(out, block, W::i64),
        DType::I32 => store(out, block, W::i32),
        DType::I16 => store(out, block, W::i16),
        DType::I8 | DType::I4 => store(out, block, W::i8),
        DType::U64 => store(out, block, W::u64),
        DType::U32 => store(out, block, W::u32),
        DType::U16 => store(out, block, W::u16),
        DType::U8 | DType::U4 => store(out, block, W::u8),
        DType::Bool => store(out, block, W::bool),
    }
}
