//! What this backend says when it is handed what it cannot do.

use kiln_ndarray::{NdArray, NdArrayTensor};
use kiln_tensor::backend::Backend;
use kiln_tensor::{BinaryOp, Element, Int, ScatterOp, Tensor, TensorData, module};

fn tensor<E: Element>(elements: &[E], shape: &[usize]) -> NdArrayTensor {
    <NdArray>::from_data(TensorData::new(elements.to_vec(), shape), &Default::default())
}

/// A panic must say what went wrong.
fn message_of(f: impl FnOnce()) -> String {
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("it should panic");
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn panics_say_what_was_wrong() {
    type B = NdArray;
    let indices = || tensor::<i64>(&[7], &[1]);
    let x = || tensor::<i32>(&[1, 2, 3], &[3]);
    assert_eq!(
        message_of(|| drop(B::select(x(), 0, indices()))),
        "select: index 7 is out of range for dim 0 of size 3"
    );
    assert_eq!(
        message_of(|| drop(B::gather(x(), 0, indices()))),
        "gather: index 7 is out of range for dim 0 of size 3"
    );
    // A token that the table does not have is no other token.
    let embedding = |token: i64| {
        let table = Tensor::<B, 2>::zeros([10, 2], &Default::default());
        drop(module::embedding(table, Tensor::<B, 2, Int>::from_backend(tensor::<i64>(&[token], &[1, 1]))));
    };
    embedding(-10);
    assert_eq!(message_of(|| embedding(12)), "select: index 12 is out of range for dim 0 of size 10");
    assert_eq!(message_of(|| embedding(-11)), "select: index -11 is out of range for dim 0 of size 10");
    // Coordinates, of one dim or several, and in batches, where they would be another batch's.
    let rows = || Tensor::<B, 2, Int>::from_backend(tensor::<i64>(&[1, 2, 3, 4, 5, 6], &[2, 3]));
    let at = |at: &[i64], shape: &[usize]| Tensor::<B, 2, Int>::from_backend(tensor::<i64>(at, shape));
    let out_of_range = |message: String| assert!(message.contains("out of range"), "{message}");
    for index in [2, -3, 7] {
        assert_eq!(
            message_of(|| drop(rows().gather_nd::<2, 2>(at(&[index], &[1, 1]), 0))),
            format!("select: index {index} is out of range for dim 0 of size 2")
        );
    }
    for coordinates in [[0, 3], [0, -4], [-3, 2], [2, 0], [1 << 40, 2]] {
        out_of_range(message_of(|| drop(rows().gather_nd::<2, 1>(at(&coordinates, &[1, 2]), 0))));
        let update = Tensor::<B, 1, Int>::from_backend(tensor::<i64>(&[0], &[1]));
        let assigned = || rows().scatter_nd(at(&coordinates, &[1, 2]), update, ScatterOp::Assign);
        out_of_range(message_of(|| drop(assigned())));
    }
    for coordinates in [[3, 0], [0, 3], [-4, 0], [0, -4]] {
        out_of_range(message_of(|| drop(rows().gather_nd::<2, 1>(at(&coordinates, &[2, 1]), 1))));
    }
    let zero = || tensor::<i32>(&[0], &[1]);
    assert_eq!(
        message_of(|| drop(B::binary(BinaryOp::Div, x(), zero()))),
        "div: integer division by zero (i32)"
    );
    let wide = tensor::<i64>(&[0], &[1]);
    assert_eq!(
        message_of(|| drop(B::binary(BinaryOp::Add, x(), wide.clone()))),
        "add: operands of i32 and i64"
    );
    let beyond = tensor::<i64>(&[0; 4], &[1, 4]);
    let small = tensor::<i32>(&[1, 2], &[1, 2]);
    assert_eq!(
        message_of(|| drop(B::gather(small.clone(), 0, beyond.clone()))),
        "gather: indices [1, 4] do not fit [1, 2]"
    );
}
