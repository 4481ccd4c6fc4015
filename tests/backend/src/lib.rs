//! The numeric suite of backends.
//!
//! Every test is a function that is generic over the backend; [`suite!`] declares them all for one. A backend runs it once
//! for each pair of default dtypes that it offers:
//!
//! ```ignore
//! kiln_backend_tests::suite!(single: NdArray);
//! kiln_backend_tests::suite!(half: NdArray<f16, i32>, tensors);
//! ```
//!
//! `primitives` calls the backend's methods, `beside` compares them with the CPU backend's in every dtype, `tensors` goes through `Tensor`, `gradients` compares what training needs with
//! finite differences (in f64) and with PyTorch, `pytorch` with the latter alone; `positions` are those of the `primitives` that yield the default integers. Dtypes that a backend does not support
//! ([`Backend::supports`]) are left out.
//!
//! [`derivatives!`] does the same for tapes over a backend: every operation's derivatives against differences.

#![allow(missing_docs, reason = "tests are named by what they prove")]

pub mod beside;
pub mod case;
pub mod derivatives;
pub mod devices;
pub mod gradients;
pub mod primitives;
pub mod required;
pub mod tensors;

use std::sync::{Mutex, MutexGuard, PoisonError};

use kiln_tensor::backend::Backend;
use kiln_tensor::{DType, Element, Tolerance};

/// How far results in the backend's default float dtype may be from exact ones.
pub fn tolerance<B: Backend>() -> Tolerance<f32> {
    match B::FloatElem::DTYPE {
        DType::F16 => Tolerance::rel_abs(2e-2, 2e-2),
        DType::BF16 => Tolerance::rel_abs(6e-2, 6e-2),
        _ => Tolerance::rel_abs(2e-5, 4e-6),
    }
}

/// The dtypes that the backend's usual device supports.
pub fn supported<B: Backend>() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| B::supports(&B::Device::default(), *dtype))
}

/// What draws from a device's random numbers does so alone: tests of one process share the device, and what one draws or
/// seeds changes what another gets.
pub fn drawing() -> MutexGuard<'static, ()> {
    static DRAWING: Mutex<()> = Mutex::new(());
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Declares one test per function of the suite for a backend, in a module of the given name. Levels may
/// be left out: `tensors`, `pytorch` and `positions` are about the default dtypes, the others name dtypes themselves.
#[macro_export]
macro_rules! suite {
    ($name:ident: $backend:ty) => {
        $crate::suite!($name: $backend, primitives tensors gradients);
    };
    ($name:ident: $backend:ty, $($level:ident)*) => {
        mod $name {
            use super::*;

            /// What is tested.
            type Subject = $backend;

            $($crate::suite!(@level $level);)*
        }
    };
    (@level primitives) => {
        $crate::suite! { @families primitives:
            layout: views views_of_views copies joins assigns pads_nothing pads_long_dims products_of_turned;
            elementwise: float_arithmetic remainders whole_powers integer_arithmetic narrow_integers_wrap nan_rules very_many_elements rows_as_columns broadcasting
                in_place_is_not_seen comparisons masks unary_values classes shifts halves;
            casts: every_pair special_values;
            indexing: select_rows gather_elements scatter_reductions select_assign_duplicates last_of_duplicates nonzero_positions sorting top;
            reduction: reductions reduction_axes empty_reductions argument_of_extremes argument_of_extremes_of_long_lanes scans scans_of_long_lanes
                scans_of_long_float_lanes;
            products: matrices batches integers groups distances;
            quantized: matrices zeros_of_batches batches_of_both convolutions rescaled_matrices rescaled_convolutions;
            windows: convolution_1d convolution_groups convolution_3d transposed pooling ceil_mode pool_positions;
            fused: activations gelu_of_halves linears convolutions_added attentions long_attentions masked_out masked_out_otherwise masked_out_before_others softmaxes rows_of_all_lengths norms norm_gradients programs several_results recurrent wide_recurrent half_weights
                cached_weights;
            attention: without_keys_beside_any_values queries_that_are_no_numbers hidden_keys_may_be_any hidden_values_take_no_gradient;
            orders: elementwise operands_of_other_ranks programs joins large_joins narrow_rows reductions windows first_layers;
            making: filled counted seeded distributions data_round_trip;
        }
    };
    (@level positions) => {
        $crate::suite! { @families primitives:
            indexing: nonzero_positions sorting top;
            reduction: argument_of_extremes argument_of_extremes_of_long_lanes;
            windows: pool_positions;
        }
    };
    (@level tensors) => {
        $crate::suite! { @families tensors:
            basics: creation reads transactions casts arithmetic scalars_on_both_sides comparisons shapes joins_and_parts
                indexing nd_indexing reductions sorting floats integers bools inplace_keeps_rank rank_0 traced_programs
                linear_algebra decision_trees chances_of_pairs sums_over_letters quantized floats_of_few_bits without_blocking long_programs nothing_left;
            decompositions: triangular_systems nothing cholesky_factors orthogonal_factors pivots eigenvalues singular_values exponentials;
            dtypes: numbers numbers_out_of_range fractions bits stand_ins truths;
            arguments: slices reshapes failures_name_the_operation failures_name_the_shapes;
            printing: nested_lists summaries closeness;
            goldens: activations norms linear attention interpolate recurrent suppression sampling regions_beyond_the_image;
        }
    };
    (@level gradients) => {
        $crate::suite! { @families gradients:
            finite: activations convolutions transposed_convolutions pools adaptive_pools resizes softmaxes cross_entropies norms embeddings embeddings_of_few_rows;
            training: attentions attentions_without_keys recurrent dropout;
            pytorch: activations windows norms cross_entropies attentions recurrent;
        }
    };
    (@level beside) => {
        $crate::suite! { @beside
            arithmetic functions functions_of_halves casts sixteen_bits_are_rounded_once reductions_and_orders reductions_of_columns gradients_of_norms_by_columns statistics_of_columns sums_of_programs sums_of_what_others_read_too long_reductions_of_narrow_dtypes programs_over_many_elements places_and_numbers values_of_the_same_rows values_of_the_same_rows_of_views gradients_of_tables orders_of_long_lanes
            parameters_have_all_their_bits products_and_windows gradients_of_convolutions
            convolutions_of_bytes gradients_of_convolutions_that_are_not_finite gradients_of_poolings poolings_of_integers rows_in_double_precision rows_that_are_not_there rows_that_others_read_too the_same_seed_draws_the_same_numbers
        }
    };
    (@beside $($test:ident)*) => {
        mod beside {
            $(#[test]
            fn $test() {
                $crate::beside::$test::<super::Subject>();
            })*
        }
    };
    (@level pytorch) => {
        $crate::suite! { @families gradients:
            pytorch: activations windows norms cross_entropies attentions recurrent;
        }
    };
    (@families $level:ident: $($family:ident: $($test:ident)*;)*) => {
        mod $level {
            $(mod $family {
                $(#[test]
                fn $test() {
                    $crate::$level::$family::$test::<super::super::Subject>();
                })*
            })*
        }
    };
}
