//! Reading and writing by index, sorting.

use super::{counting, mask, positions as at, read, tensor};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{DType, ScatterOp};

pub fn select_rows<B: Backend>() {
    let x = counting::<B>(&[3, 2]);
    let rows = B::select(x.clone(), 0, tensor::<B, i32>(&[2, 0, 2], &[3]));
    assert_eq!(read::<B, f32>(rows), [4., 5., 0., 1., 4., 5.]);
    let columns = B::select(x.clone(), 1, tensor::<B, u8>(&[1, 1], &[2]));
    assert_eq!(read::<B, f32>(columns), [1., 1., 3., 3., 5., 5.]);
    let one = B::select(B::permute(x.clone(), &[1, 0]), 1, tensor::<B, i64>(&[1], &[1]));
    assert_eq!(read::<B, f32>(one), [2., 3.]);
    let transposed = B::select(B::permute(x, &[1, 0]), 0, tensor::<B, i64>(&[1, 0], &[2]));
    assert_eq!(read::<B, f32>(transposed), [1., 3., 5., 0., 2., 4.]);
    let middle = B::select(counting::<B>(&[2, 2, 2]), 1, tensor::<B, i64>(&[1, 0, 1], &[3]));
    assert_eq!(read::<B, f32>(middle), [2., 3., 0., 1., 2., 3., 6., 7., 4., 5., 6., 7.]);
    for width in 1..=17 {
        let wide = B::select(counting::<B>(&[2, 3, width]), 1, tensor::<B, i64>(&[2, 0, 2], &[3]));
        let row = |first: usize| (first * width..(first + 1) * width).map(|x| x as f32);
        let expected: Vec<f32> = [2, 0, 2, 5, 3, 5].into_iter().flat_map(row).collect();
        assert_eq!(read::<B, f32>(wide), expected, "rows of {width}");
    }
    let none = B::select(counting::<B>(&[2]), 0, tensor::<B, i64>(&[], &[0]));
    assert!(read::<B, f32>(none).is_empty());
}

pub fn gather_elements<B: Backend>() {
    let x = counting::<B>(&[2, 3]);
    let index = tensor::<B, i64>(&[2, 0, 1, 1], &[2, 2]);
    assert_eq!(read::<B, f32>(B::gather(x.clone(), 1, index)), [2., 0., 4., 4.]);
    let index = tensor::<B, i64>(&[1, 0, 1], &[1, 3]);
    assert_eq!(read::<B, f32>(B::gather(x, 0, index)), [3., 1., 5.]);
}

pub fn scatter_reductions<B: Backend>() {
    let run = |op| {
        let x = tensor::<B, f32>(&[1., 2., 3., 4., 5., 6.], &[2, 3]);
        let index = tensor::<B, i64>(&[0, 0, 2, 1], &[2, 2]);
        read::<B, f32>(B::scatter(x, 1, index, tensor::<B, f32>(&[10., 20., -5., 0.5], &[2, 2]), op))
    };
    assert_eq!(run(ScatterOp::Assign), [20., 2., 3., 4., 0.5, -5.]);
    assert_eq!(run(ScatterOp::Add), [31., 2., 3., 4., 5.5, 1.]);
    assert_eq!(run(ScatterOp::Mul), [200., 2., 3., 4., 2.5, -30.]);
    assert_eq!(run(ScatterOp::Max), [20., 2., 3., 4., 5., 6.]);
    assert_eq!(run(ScatterOp::Min), [1., 2., 3., 4., 0.5, -5.]);
    let small = B::scatter(
        tensor::<B, u8>(&[250, 1], &[2]),
        0,
        tensor::<B, i64>(&[0], &[1]),
        tensor::<B, u8>(&[10], &[1]),
        ScatterOp::Add,
    );
    assert_eq!(read::<B, u8>(small), [4, 1]);
}

pub fn select_assign_duplicates<B: Backend>() {
    let index = || tensor::<B, i64>(&[1, 1, 0], &[3]);
    let value = || counting::<B>(&[3, 2]);
    let sum = B::select_assign(tensor::<B, f32>(&[0.; 6], &[3, 2]), 0, index(), value(), ScatterOp::Add);
    assert_eq!(read::<B, f32>(sum), [4., 5., 2., 4., 0., 0.]);
    let last = B::select_assign(tensor::<B, f32>(&[0.; 6], &[3, 2]), 0, index(), value(), ScatterOp::Assign);
    assert_eq!(read::<B, f32>(last), [4., 5., 2., 3., 0., 0.]);
    let columns = B::select_assign(
        tensor::<B, f32>(&[0.; 4], &[2, 2]),
        1,
        tensor::<B, i64>(&[1], &[1]),
        tensor::<B, f32>(&[8., 9.], &[2, 1]),
        ScatterOp::Assign,
    );
    assert_eq!(read::<B, f32>(columns), [0., 8., 0., 9.]);
}

/// The last stays, in short lanes and in long ones, of rows, of columns that come from a view, and where each element has a place of its own.
pub fn last_of_duplicates<B: Backend>() {
    for count in [2_usize, 7, 64, 65, 600] {
        let (rows, width) = (5, 3);
        let row = |n: usize, column: usize| (n * n + n / 7 + column) % rows;
        let value = |n: usize, column: usize| (n * width + column) as f32;
        let at = |own: &[f32], shape: &[usize]| tensor::<B, f32>(own, shape);
        let numbers = |number: &dyn Fn(usize, usize) -> f32, count: usize| -> Vec<f32> {
            (0..count * width).map(|n| number(n / width, n % width)).collect()
        };
        let turned = |of: Vec<f32>, rows: usize| B::permute(at(&of, &[rows, width]), &[1, 0]);
        let values = || numbers(&value, count);
        let expected = |row: &dyn Fn(usize, usize) -> usize| {
            let mut expected = vec![-1.0; rows * width];
            for n in 0..count {
                (0..width).for_each(|column| expected[row(n, column) * width + column] = value(n, column));
            }
            expected
        };
        let nothing = vec![-1.0; rows * width];
        let positions: Vec<i64> = (0..count).map(|n| row(n, 0) as i64).collect();
        let index = || tensor::<B, i64>(&positions, &[count]);
        let assign = ScatterOp::Assign;

        let of_rows = expected(&|n, _| row(n, 0));
        let written = B::select_assign(
            at(&nothing, &[rows, width]),
            0,
            index(),
            at(&values(), &[count, width]),
            assign,
        );
        assert_eq!(read::<B, f32>(written), of_rows, "{count} rows");
        let written =
            B::select_assign(turned(nothing.clone(), rows), 1, index(), turned(values(), count), assign);
        let back = B::permute(written, &[1, 0]);
        assert_eq!(read::<B, f32>(back), of_rows, "{count} columns");

        let each: Vec<i64> =
            numbers(&|n, column| row(n, column) as f32, count).iter().map(|&n| n as i64).collect();
        let each = tensor::<B, i64>(&each, &[count, width]);
        let written =
            B::scatter(at(&nothing, &[rows, width]), 0, each, at(&values(), &[count, width]), assign);
        assert_eq!(read::<B, f32>(written), expected(&row), "{count} elements each");
    }
    let narrow = B::select_assign(
        tensor::<B, u8>(&[0; 2], &[2]),
        0,
        tensor::<B, i32>(&[1; 300], &[300]),
        tensor::<B, u8>(&core::array::from_fn::<u8, 300, _>(|n| (n % 256) as u8), &[300]),
        ScatterOp::Assign,
    );
    assert_eq!(read::<B, u8>(narrow), [0, 43]);
}

pub fn nonzero_positions<B: Backend>() {
    let nonzero = |tensor| B::nonzero(tensor).expect("a backend in these tests reads back");
    let found = nonzero(mask::<B>(&[0, 1, 1, 0, 0, 1], &[2, 3]));
    assert_eq!(found.shape().dims, [3, 2]);
    assert_eq!(at::<B>(found), [0, 1, 0, 2, 1, 2]);
    let scalar = nonzero(tensor::<B, f32>(&[2.], &[]));
    assert_eq!(scalar.shape().dims, [1, 0]);
    assert_eq!(nonzero(tensor::<B, i64>(&[0, 0], &[2])).shape().dims, [0, 1]);
}

pub fn sorting<B: Backend>() {
    let x = tensor::<B, f32>(&[3., f32::NAN, 1., 3., 2., 1.], &[2, 3]);
    let (values, positions) = B::sort(x.clone(), 1, false);
    let values = read::<B, f32>(values);
    assert!(values[2].is_nan());
    assert_eq!((&values[..2], &values[3..]), (&[1., 3.][..], &[1., 2., 3.][..]));
    assert_eq!(at::<B>(positions), [2, 0, 1, 2, 1, 0]);
    let (_, positions) = B::sort(x, 1, true);
    assert_eq!(at::<B>(positions), [1, 0, 2, 0, 1, 2]);
    let (values, positions) = B::sort(tensor::<B, i8>(&[1, 5, 1, 5], &[2, 2]), 0, true);
    assert_eq!(read::<B, i8>(values), [1, 5, 1, 5]);
    assert_eq!(at::<B>(positions), [0, 0, 1, 1]);
}

pub fn top<B: Backend>() {
    let x = B::cast(tensor::<B, f32>(&[1., 9., 3., 9., 5., 0.], &[6]), DType::F16);
    let (values, positions) = B::topk(x.clone(), 3, 0, true);
    assert_eq!(read::<B, f32>(B::cast(values, DType::F32)), [9., 9., 5.]);
    assert_eq!(at::<B>(positions), [1, 3, 4]);
    assert_eq!(at::<B>(B::topk(x, 2, 0, false).1), [5, 0]);
    // Nothing to choose from, and nothing to choose.
    assert_eq!(B::sort(counting::<B>(&[2, 0, 3]), 1, false).0.shape().dims, [2, 0, 3]);
    assert_eq!(B::topk(counting::<B>(&[2, 3]), 0, 1, true).1.shape().dims, [2, 0]);
}
