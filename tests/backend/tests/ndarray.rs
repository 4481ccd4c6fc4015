//! The suite on the CPU backend, with its usual dtypes.

use kiln_ndarray::NdArray;

kiln_backend_tests::suite!(usual: NdArray);

/// Doubles have no kernel: so many differences that not all are made at once.
#[test]
fn distances_of_doubles_go_by_blocks() {
    use kiln_tensor::backend::{Backend, Primitive};
    use kiln_tensor::{DType, Scalar, Shape};
    let device = Default::default();
    let (rows, columns, size) = (7, 1 << 16, 64);
    let x = NdArray::<f32>::cast(NdArray::<f32>::arange(0, rows, 1, DType::I64, &device), DType::F64);
    let x = NdArray::<f32>::reshape(x, Shape::from([rows as usize, 1]));
    let x = NdArray::<f32>::expand(x, Shape::from([rows as usize, size]));
    let y = NdArray::<f32>::full(Shape::from([columns, size]), Scalar::Float(0.5), DType::F64, &device);
    let found = NdArray::<f32>::squared_distances(x, y);
    assert_eq!(found.shape().dims, [rows as usize, columns]);
    let found = NdArray::<f32>::into_data(found).expect("a device").to_vec::<f64>().expect("f64");
    for (row, found) in found.chunks_exact(columns).enumerate() {
        let wanted = size as f64 * (row as f64 - 0.5).powi(2);
        assert!(found.iter().all(|found| *found == wanted), "row {row}");
    }
}
