//! Tests of tensors, generic over the backend. A backend runs them all with `run_on!`.

pub mod arguments;
pub mod basics;
pub mod case;
pub mod dtypes;
pub mod goldens;
pub mod printing;

use kiln_tensor::TensorData;
use kiln_tensor::backend::Backend;
use kiln_tensor::{BasicOps, Tensor, Tolerance};

/// A tensor on the default device.
pub fn tensor<B: Backend, const D: usize, K: BasicOps<B>>(data: impl Into<TensorData>) -> Tensor<B, D, K> {
    Tensor::from_data(data, &B::Device::default())
}

/// Asserts shape and elements.
#[track_caller]
pub fn same<B: Backend, const D: usize, K: BasicOps<B>>(
    actual: Tensor<B, D, K>,
    expected: impl Into<TensorData>,
) {
    actual.into_data().assert_eq(&expected.into(), false);
}

/// Asserts shape and elements within a tolerance for f32.
#[track_caller]
pub fn close<B: Backend, const D: usize>(actual: Tensor<B, D>, expected: impl Into<TensorData>) {
    actual.into_data().assert_approx_eq::<f32>(&expected.into(), Tolerance::rel_abs(2e-5, 4e-6));
}

/// What a panic says.
pub fn message_of(f: impl FnOnce()) -> String {
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("it should panic");
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// Declares one test per function of the suite.
macro_rules! run_on {
    ($backend:ty) => {
        $crate::suite::run_on! { @all $backend:
            basics: creation reads transactions casts arithmetic scalars_on_both_sides comparisons shapes joins_and_parts indexing
                nd_indexing reductions sorting floats integers bools inplace_keeps_rank rank_0 traced_programs linear_algebra sums_over_letters
                quantized without_blocking long_programs nothing_left;
            dtypes: numbers fractions bits truths;
            arguments: slices reshapes failures_name_the_operation failures_name_the_shapes;
            printing: nested_lists summaries closeness;
            goldens: activations norms linear attention interpolate recurrent suppression sampling;
        }
    };
    (@all $backend:ty: $($family:ident: $($name:ident)*;)*) => {
        $(mod $family {
            $(#[test]
            fn $name() {
                $crate::suite::$family::$name::<$backend>();
            })*
        })*
    };
}
pub(crate) use run_on;
