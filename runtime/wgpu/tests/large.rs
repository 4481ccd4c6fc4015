//! Tensors of which kernels do not see all at once: drivers bind 128 MiB of a buffer at least, and some no more.

use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{DType, ReduceOp, Scalar, Shape, TensorData, UnaryOp};
use kiln_wgpu::{WgpuDevice, statistics};

type Wgpu = kiln_wgpu::Wgpu;
type T = <Wgpu as Backend>::Primitive;

const ROWS: usize = 40_000;
const WIDTH: usize = 1024;

fn read(tensor: T) -> Vec<f32> {
    Wgpu::into_data(tensor).expect("a device").to_vec().expect("floats")
}

/// Each row of 160 MB holds its number.
fn table() -> T {
    let device = WgpuDevice::default();
    let numbers = Wgpu::cast(Wgpu::arange(0, ROWS as i64, 1, DType::I32, &device), DType::F32);
    let column = Wgpu::reshape(numbers, [ROWS, 1].into());
    Wgpu::unary(UnaryOp::Neg, Wgpu::expand(column, [ROWS, WIDTH].into()))
}

#[test]
fn tables_beyond_a_binding_are_used_in_parts() {
    let device = WgpuDevice::default();
    let table = table();
    let rows = [0_i32, 39_999, 32_767, 32_768, 5];
    let indices = Wgpu::from_data(TensorData::new(rows.to_vec(), [5]), &device);
    let picked = read(Wgpu::select(table.clone(), 0, indices));
    for (row, values) in rows.iter().zip(picked.chunks(WIDTH)) {
        assert!(values.iter().all(|&x| x == -*row as f32), "row {row}: {values:?}");
    }

    // As the head of a language model: a product with the transposed table.
    let x = Wgpu::full(Shape::from([2, WIDTH]), Scalar::Float(0.5), DType::F32, &device);
    let scores = read(Wgpu::matmul(x, Wgpu::permute(table.clone(), &[1, 0])));
    assert_eq!(scores.len(), 2 * ROWS);
    for (n, score) in scores.iter().enumerate() {
        let expected = -((n % ROWS) as f32) * 512.0;
        // A thousand equal numbers, one after another: each rounding may add up.
        assert!((score - expected).abs() <= expected.abs() * 6e-5, "{n}: {score}");
    }

    // And as a layer from so many inputs.
    let x = Wgpu::full(Shape::from([1, ROWS]), Scalar::Float(1e-3), DType::F32, &device);
    let sums = read(Wgpu::linear(x, &table, None, None));
    let expected = -(ROWS as f32 * (ROWS as f32 - 1.0) / 2.0) * 1e-3;
    assert!(sums.iter().all(|sum| (sum - expected).abs() <= expected.abs() * 1e-4), "{:?}", &sums[..4]);

    // As a batch of matrices, and as rows; a part of it is a tensor like any other.
    let batch = Wgpu::reshape(table.clone(), [40, 1000, WIDTH].into());
    let ones = |shape: &[usize]| Wgpu::full(Shape::from(shape), Scalar::Float(1.0), DType::F32, &device);
    let sums = read(Wgpu::matmul(ones(&[40, 2, 1000]), batch));
    for (n, sum) in sums.iter().enumerate() {
        let first = (n / (2 * WIDTH) * 1000) as f32;
        let expected = -(1000.0 * first + 499_500.0);
        assert!((sum - expected).abs() <= expected.abs() * 6e-5, "{n}: {sum}, not {expected}");
    }
    let sums = read(Wgpu::matmul(table.clone(), ones(&[WIDTH, 3])));
    for (n, sum) in sums.iter().enumerate() {
        let expected = -((n / 3) as f32) * WIDTH as f32;
        assert!((sum - expected).abs() <= expected.abs() * 6e-5, "{n}: {sum}, not {expected}");
    }
    let last = SliceRange { start: ROWS - 2, end: ROWS, step: 1 };
    let rows = Wgpu::slice(table.clone(), &[last, SliceRange::full(WIDTH)]);
    let largest = read(Wgpu::reduce(ReduceOp::Max, rows, &[1]));
    assert_eq!(largest, [-39_998.0, -39_999.0]);
    // Halves are of the dim along which it reaches far.
    let before = statistics(&device).dispatches;
    let turned = Wgpu::unary(UnaryOp::Neg, Wgpu::permute(table.clone(), &[1, 0]));
    assert!(statistics(&device).dispatches - before <= 4);
    assert_eq!(read(turned)[..3], [0.0, 1.0, 2.0]);
    drop(table);

    let one = Wgpu::full(Shape::from([1]), Scalar::Float(3.0), DType::F32, &device);
    assert_eq!(read(Wgpu::reduce(ReduceOp::Sum, one, &[0])), [3.0]);
}
