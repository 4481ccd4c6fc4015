//! Rows that are named by index, of more elements than a thread copies at a time.

use kiln_ndarray::{NdArray, NdArrayDevice, set_threads};
use kiln_tensor::TensorData;
use kiln_tensor::backend::Backend;

type B = NdArray;

/// `[outer, size, inner]` numbers that differ, by an index of the middle dim; as they are, or seen through a permutation of the outer dims.
#[track_caller]
fn check(outer: [usize; 2], size: usize, inner: usize, permuted: bool) {
    let device = NdArrayDevice::default();
    let dims = [outer[0], outer[1], size, inner];
    let len = dims.iter().product::<usize>();
    let x = TensorData::new((0..len as i32).collect::<Vec<_>>(), dims);
    let index: Vec<i64> = (0..size as i64 * 3).map(|i| i * 7 % size as i64).collect();
    let tensor = B::from_data(x, &device);
    let tensor = if permuted { B::permute(tensor, &[1, 0, 2, 3]) } else { tensor };
    let y = B::select(tensor, 2, B::from_data(TensorData::from(index.as_slice()), &device));
    let y = B::into_data(y).expect("it is on the CPU").to_vec::<i32>().expect("it is of i32");
    let outer = if permuted { [outer[1], outer[0]] } else { outer };
    let mut y = y.into_iter();
    for (a, b) in (0..outer[0]).flat_map(|a| (0..outer[1]).map(move |b| (a, b))) {
        let [first, second] = if permuted { [b, a] } else { [a, b] };
        for &row in &index {
            let at = ((first * dims[1] + second) * size + row as usize) * inner;
            for i in 0..inner {
                assert_eq!(y.next(), Some((at + i) as i32), "row {row} of ({a}, {b})");
            }
        }
    }
    assert_eq!(y.next(), None);
}

#[test]
fn rows_of_any_size_are_copied_by_several_threads() {
    set_threads(3);
    for permuted in [false, true] {
        for inner in [0, 1, 2, 5, 12, 33] {
            check([2, 3], 601, inner, permuted);
        }
        check([1, 1], 5000, 1, permuted);
        check([3, 2], 4, 5000, permuted);
        check([3, 0], 4, 5, permuted);
    }
}
