//! Views, joins, indexing, sorting, reductions and products.

use super::laid;
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::{
    ArgReduceOp, BinaryOp, CumulativeOp, PadMode, ReduceOp, Scalar, ScatterOp, Shape, TensorData, UnaryOp,
};

/// Integers as a tensor.
fn indices<B: Backend>(values: &[i64], shape: &[usize]) -> B::Primitive {
    let data = TensorData::new(values.to_vec(), shape.to_vec()).convert::<B::IntElem>();
    laid::<B>(B::from_data(data, &B::Device::default()))
}

fn range(start: usize, end: usize, step: isize) -> SliceRange {
    SliceRange { start, end, step }
}

/// Something that is not linear, so that the second derivative is not 0.
fn square<B: Backend>(x: B::Primitive) -> B::Primitive {
    laid::<B>(B::binary(BinaryOp::Mul, x.clone(), x))
}

functions! { ($) shapes:
    reshape [[2, 6]] |B, [x]| B::reshape(square::<B>(x), Shape::from([3, 4]));
    permute [[2, 3, 4]] |B, [x]| B::permute(square::<B>(x), &[2, 0, 1]);
    permuted_operand [[2, 3]] |B, [x]| B::unary(UnaryOp::Exp, B::permute(x, &[1, 0]));
    expand [[2, 1]] |B, [x]| B::expand(square::<B>(x), Shape::from([2, 3]));
    expand_rank [[3]] |B, [x]| B::expand(square::<B>(x), Shape::from([2, 3]));
    slice [[4, 5]] |B, [x]| B::slice(square::<B>(x), &[range(1, 4, 2), range(0, 5, -2)]);
    slice_assign [[4, 5], [2, 2]] |B, [x, v]| {
        B::slice_assign(square::<B>(x), &[range(0, 4, 2), range(1, 3, 1)], square::<B>(v))
    };
    cat [[2, 3], [2, 1], [2, 2]] |B, [a, b, c]| {
        B::cat(&[square::<B>(a.clone()), b, square::<B>(c), a], 1)
    };
    pad [[2, 3]] |B, [x]| B::pad(square::<B>(x), &[(0, 1), (2, 0)], PadMode::Constant, Scalar::Float(1.0));
    pad_reflect [[2, 4]] |B, [x]| B::pad(square::<B>(x), &[(1, 1), (2, 0)], PadMode::Reflect, Scalar::Float(0.0));
    repeat [[2, 3]] |B, [x]| B::repeat(square::<B>(x), &[2, 3]);

    select [[4, 3]] |B, [x]| B::select(square::<B>(x), 0, indices::<B>(&[2, 0, 2], &[3]));
    tied_rows [[4, 3]] |B, [x]| {
        let table = square::<B>(x);
        let rows = B::select(table.clone(), 0, indices::<B>(&[2, 0, 2], &[3]));
        B::matmul(rows, B::permute(table, &[1, 0]))
    };
    rows_read_twice [[4, 3]] |B, [x]| {
        let first = B::select(x.clone(), 0, indices::<B>(&[2, 0, 2], &[3]));
        let second = B::select(x, 0, indices::<B>(&[2, 1, 1], &[3]));
        B::binary(BinaryOp::Mul, first, second)
    };
    selected_columns [[2, 3]] |B, [x]| {
        let columns = B::select(x.clone(), 1, indices::<B>(&[2, 0, 2], &[3]));
        B::binary(BinaryOp::Mul, columns, x)
    };
    parts_that_overlap [[4, 5]] |B, [x]| {
        let first = B::slice(x.clone(), &[range(0, 3, 1), range(0, 5, 2)]);
        let second = B::slice(x.clone(), &[range(1, 4, 1), range(1, 4, 1)]);
        let third = B::gather(x, 1, indices::<B>(&[2, 0, 2, 1, 1, 0, 4, 4, 4], &[3, 3]));
        B::binary(BinaryOp::Mul, B::binary(BinaryOp::Mul, first, second), third)
    };
    gather [[3, 3]] |B, [x]| B::gather(square::<B>(x), 1, indices::<B>(&[2, 0, 2, 1, 1, 0], &[3, 2]));
    select_add [[4, 3], [3, 3]] |B, [x, v]| {
        B::select_assign(square::<B>(x), 0, indices::<B>(&[2, 0, 2], &[3]), square::<B>(v), ScatterOp::Add)
    };
    select_max [[4, 3], [3, 3]] |B, [x, v]| {
        B::select_assign(square::<B>(x), 0, indices::<B>(&[2, 0, 2], &[3]), square::<B>(v), ScatterOp::Max)
    };
    scatter_add [[3, 3], [3, 2]] |B, [x, v]| {
        let places = indices::<B>(&[2, 0, 2, 1, 1, 1], &[3, 2]);
        B::scatter(square::<B>(x), 1, places, square::<B>(v), ScatterOp::Add)
    };
    scatter_assign [[3, 3], [3, 2]] |B, [x, v]| {
        let places = indices::<B>(&[2, 0, 2, 1, 1, 0], &[3, 2]);
        B::scatter(square::<B>(x), 1, places, square::<B>(v), ScatterOp::Assign)
    };
    scatter_mul [[3, 3], [3, 2]] |B, [x, v]| {
        let places = indices::<B>(&[2, 0, 2, 1, 1, 1], &[3, 2]);
        B::scatter(x, 1, places, v, ScatterOp::Mul)
    };
    scatter_min [[3, 3], [3, 2]] |B, [x, v]| {
        let places = indices::<B>(&[2, 0, 2, 1, 1, 1], &[3, 2]);
        B::scatter(square::<B>(x), 1, places, square::<B>(v), ScatterOp::Min)
    };
    sort [[2, 5]] |B, [x]| B::sort(square::<B>(x), 1, true).0;
    topk [[2, 5]] |B, [x]| B::topk(square::<B>(x), 2, 1, true).0;

    order [[2, 5]] |B, [x]| {
        let positions = B::cast(B::sort(square::<B>(x.clone()), 1, true).1, x.dtype());
        B::binary(BinaryOp::Mul, x, positions)
    };
    places_of_the_largest [[2, 5]] |B, [x]| {
        let positions = B::cast(B::topk(square::<B>(x.clone()), 1, 1, true).1, x.dtype());
        B::binary(BinaryOp::Mul, x, positions)
    };
    place_of_the_largest [[2, 5]] |B, [x]| {
        let position = B::cast(B::arg_reduce(ArgReduceOp::Max, square::<B>(x.clone()), 1, false), x.dtype());
        B::binary(BinaryOp::Mul, x, position)
    };

    sum [[2, 3, 2]] |B, [x]| B::reduce(ReduceOp::Sum, square::<B>(x), &[0, 2]);
    mean [[2, 3, 2]] |B, [x]| B::reduce(ReduceOp::Mean, square::<B>(x), &[1]);
    product [[2, 3, 2]] |B, [x]| B::reduce(ReduceOp::Prod, x, &[0, 2]);
    maximum [[2, 3, 2]] |B, [x]| B::reduce(ReduceOp::Max, square::<B>(x), &[1, 2]);
    minimum [[2, 3, 2]] |B, [x]| B::reduce(ReduceOp::Min, square::<B>(x), &[0]);
    cumsum [[2, 4]] |B, [x]| B::cumulative(CumulativeOp::Sum, square::<B>(x), 1, false, false);
    cumsum_back [[2, 4]] |B, [x]| B::cumulative(CumulativeOp::Sum, square::<B>(x), 0, true, true);
    cumprod [[2, 4]] |B, [x]| B::cumulative(CumulativeOp::Prod, x, 1, false, false);
    cumprod_back [[2, 4]] |B, [x]| B::cumulative(CumulativeOp::Prod, x, 1, true, true);
    cummax [[2, 6]] |B, [x]| B::cumulative(CumulativeOp::Max, square::<B>(x), 1, false, false);
    cummin_back [[2, 6]] |B, [x]| B::cumulative(CumulativeOp::Min, square::<B>(x), 1, false, true);

    matmul [[2, 3], [3, 4]] |B, [a, b]| B::matmul(a, b);
    matmul_of_batches [[2, 2, 3], [2, 3, 2]] |B, [a, b]| B::matmul(a, b);
    matmul_shared_right [[2, 3, 2, 3], [1, 1, 3, 2]] |B, [a, b]| B::matmul(a, b);
    matmul_shared_left [[1, 2, 3], [3, 3, 2]] |B, [a, b]| B::matmul(a, b);
    matmul_broadcast_both [[2, 1, 2, 3], [1, 3, 3, 2]] |B, [a, b]| B::matmul(a, b);
    matmul_by_itself [[3, 3]] |B, [a]| B::matmul(a.clone(), B::permute(a, &[1, 0]));
    grouped_matmul [[6, 3], [4, 3, 2]] |B, [x, w]| {
        B::grouped_matmul(square::<B>(x), w, indices::<B>(&[2, 2, 5, 5], &[4]))
    };
    squared_distances [[3, 4], [5, 4]] |B, [x, y]| B::squared_distances(x, y);
    squared_distances_of_batches [[2, 3, 2], [2, 2, 2]] |B, [x, y]| B::squared_distances(square::<B>(x), y);
    linear [[2, 3, 4], [4, 5], [5]] |B, [x, w, b]| B::linear(x, &w, Some(&b), Some(kiln_tensor::Activation::Gelu));
    linear_plain [[3, 4], [4, 2]] |B, [x, w]| B::linear(x, &w, None, None);
}
