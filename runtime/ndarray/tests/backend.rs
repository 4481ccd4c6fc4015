//! The backend suite, run on this backend. The suite is generic over the backend, so that others can run it too.

mod suite;

use kiln_ndarray::NdArray;

/// One test per function of the suite.
macro_rules! suite {
    ($($family:ident: $($name:ident)*;)*) => {
        $(mod $family {
            $(#[test]
            fn $name() {
                super::suite::$family::$name::<super::NdArray>();
            })*
        })*
    };
}

suite! {
    layout: views views_of_views copies joins assigns pads_nothing;
    elementwise: float_arithmetic integer_arithmetic narrow_integers_wrap nan_rules broadcasting in_place_is_not_seen
        comparisons masks unary_values classes shifts halves;
    casts: every_pair special_values;
    indexing: select_rows gather_elements scatter_reductions select_assign_duplicates nonzero_positions sorting top;
    folding: reductions reduction_axes empty_reductions argument_of_extremes cumulative_folds;
    products: matrices batches integers;
    windows: convolution_1d convolution_groups convolution_3d transposed pooling ceil_mode pool_positions;
    fused: activations linears attentions masked_out softmaxes norms programs recurrent half_weights cached_weights;
    orders: elementwise programs joins folds windows;
    making: filled counted seeded distributions data_round_trip;
}

/// A panic must say what went wrong.
fn message_of(f: impl FnOnce()) -> String {
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("it should panic");
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn panics_say_what_was_wrong() {
    use kiln_tensor::BinaryOp;
    use kiln_tensor::backend::Backend;
    use suite::tensor;
    type B = NdArray;
    let indices = || tensor::<B, i64>(&[7], &[1]);
    let x = || tensor::<B, i32>(&[1, 2, 3], &[3]);
    assert_eq!(
        message_of(|| drop(B::select(x(), 0, indices()))),
        "select: index 7 is out of range for dim 0 of size 3"
    );
    assert_eq!(
        message_of(|| drop(B::gather(x(), 0, indices()))),
        "gather: index 7 is out of range for dim 0 of size 3"
    );
    let zero = || tensor::<B, i32>(&[0], &[1]);
    assert_eq!(
        message_of(|| drop(B::binary(BinaryOp::Div, x(), zero()))),
        "div: integer division by zero (i32)"
    );
    let wide = tensor::<B, i64>(&[0], &[1]);
    assert_eq!(
        message_of(|| drop(B::binary(BinaryOp::Add, x(), wide.clone()))),
        "add: operands of i32 and i64"
    );
    let beyond = tensor::<B, i64>(&[0; 4], &[1, 4]);
    let small = tensor::<B, i32>(&[1, 2], &[1, 2]);
    assert_eq!(
        message_of(|| drop(B::gather(small.clone(), 0, beyond.clone()))),
        "gather: indices [1, 4] do not fit [1, 2]"
    );
}
