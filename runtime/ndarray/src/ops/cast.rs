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
                DType::F64 => write::<f64>(dtype, out, bytemuck::cast_slice(source)),
                DType::F32 => through::<f32, f64>(source, dtype, out, f64::from),
                DType::F16 => through::<f16, f64>(source, dtype, out, f16::to_f64),
                DType::BF16 => through::<bf16, f64>(source, dtype, out, bf16::to_f64),
                DType::I64 => write::<i64>(dtype, out, bytemuck::cast_slice(source)),
                DType::I32 => through::<i32, i64>(source, dtype, out, i64::from),
                DType::I16 => through::<i16, i64>(source, dtype, out, i64::from),
                DType::I8 | DType::I4 => through::<i8, i64>(source, dtype, out, i64::from),
                DType::U64 => write::<u64>(dtype, out, bytemuck::cast_slice(source)),
                DType::U32 => through::<u32, i64>(source, dtype, out, i64::from),
                DType::U16 => through::<u16, i64>(source, dtype, out, i64::from),
                DType::U8 | DType::U4 | DType::Bool => through::<u8, i64>(source, dtype, out, i64::from),
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

/// At most [`BLOCK`] elements of `A` as elements of `dtype`, by way of one of the three types between.
fn through<A: Pod, W: Wide>(source: &[u8], dtype: DType, out: &mut [u8], widen: impl Fn(A) -> W) {
    let source = bytemuck::cast_slice::<u8, A>(source);
    let mut block = [W::zeroed(); BLOCK];
    block.iter_mut().zip(source).for_each(|(wide, &x)| *wide = widen(x));
    write(dtype, out, &block[..source.len()]);
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
