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

/// Runs `$body` with `$T` the type in which arithmetic on `$dtype` is done ([`ComputeType`](crate::compute::ComputeType)); what the
/// kernels do for f32 can stand apart.
macro_rules! by_compute {
    ($dtype:expr, F32 => $single:expr, $T:ident => $body:expr) => {
        match $crate::compute::ComputeType::of($dtype) {
            $crate::compute::ComputeType::F32 => $single,
            $crate::compute::ComputeType::F64 => {
                type $T = f64;
                $body
            }
            $crate::compute::ComputeType::I64 => {
                type $T = i64;
                $body
            }
            $crate::compute::ComputeType::I32 => {
                type $T = i32;
                $body
            }
            $crate::compute::ComputeType::U64 => {
                type $T = u64;
                $body
            }
            $crate::compute::ComputeType::U8 => {
                type $T = u8;
                $body
            }
        }
    };
    ($dtype:expr, $T:ident => $body:expr) => {
        by_compute!(
            $dtype,
            F32 => {
                type $T = f32;
                $body
            },
            $T => $body
        )
    };
}

/// Runs `$single` for f32, which the kernels serve, or `$body` with `$T` the type in which operations on `$dtype` are done that are
/// compiled for few ([`WideType`](crate::compute::WideType)).
macro_rules! by_wide {
    ($dtype:expr, F32 => $single:expr, $T:ident => $body:expr) => {
        match $crate::compute::WideType::of($dtype) {
            $crate::compute::WideType::F32 => $single,
            $crate::compute::WideType::F64 => {
                type $T = f64;
                $body
            }
            $crate::compute::WideType::I64 => {
                type $T = i64;
                $body
            }
            $crate::compute::WideType::U64 => {
                type $T = u64;
                $body
            }
        }
    };
}
