//! From a run-time dtype to a Rust type.

/// Runs `$body` with `$T` the unsigned integer as large as an element of `$dtype`: for moving data about.
macro_rules! by_size {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype.size() {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            _ => {
                type $T = u64;
                $body
            }
        }
    };
}

/// Runs `$body` with `$T` the [`Compute`](crate::compute::Compute) type of `$dtype`, which must be one that
/// [`compute_dtype`](crate::compute::compute_dtype) yields.
macro_rules! by_compute {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            kiln_tensor::DType::F32 => {
                type $T = f32;
                $body
            }
            dtype => by_rest!(dtype, $T => $body),
        }
    };
}

/// [`by_compute`] without f32, for what the kernels do for f32.
macro_rules! by_rest {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            kiln_tensor::DType::I32 => {
                type $T = i32;
                $body
            }
            kiln_tensor::DType::U8 | kiln_tensor::DType::Bool => {
                type $T = u8;
                $body
            }
            dtype => by_wide!(dtype, $T => $body),
        }
    };
}

/// Runs `$body` with `$T` one of f64, u64 and i64, into which [`wide_dtype`](crate::compute::wide_dtype) leads all dtypes
/// that the f32 kernels do not serve.
macro_rules! by_wide {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            kiln_tensor::DType::F64 => {
                type $T = f64;
                $body
            }
            kiln_tensor::DType::U64 => {
                type $T = u64;
                $body
            }
            _ => {
                type $T = i64;
                $body
            }
        }
    };
}
