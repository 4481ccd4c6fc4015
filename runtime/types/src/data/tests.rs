use super::*;
use crate::f16;

#[test]
fn nested_arrays_have_their_shape() {
    let data = TensorData::from([[[1i32, 2], [3, 4], [5, 6]]]);
    assert_eq!((data.shape.as_slice(), data.dtype), (&[1, 3, 2][..], DType::I32));
    assert_eq!(data.to_vec::<i32>().unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(TensorData::from(2.5f64).shape, [0usize; 0]);
    assert_eq!(TensorData::from([[0.0f32; 2]; 0]).shape, [0, 2]);
}

#[test]
fn dtypes_are_checked_and_converted() {
    let data = TensorData::from([1.5f32, -2.7, 300.0]);
    let wrong = DataError::DTypeMismatch { requested: DType::F64, actual: DType::F32 };
    assert_eq!(data.as_slice::<f64>(), Err(wrong));
    assert_eq!(data.iter::<u8>().collect::<Vec<_>>(), [1, 0, 255]);
    assert_eq!(data.clone().convert::<i64>().to_vec::<i64>().unwrap(), [1, -2, 300]);
    let half = data.convert_dtype(DType::F16);
    assert_eq!(half.as_slice::<f16>().unwrap()[0], f16::from_f32(1.5));
}

#[test]
fn unaligned_bytes_are_read_but_not_viewed() {
    let bytes = Bytes::from_vec([&[0][..], &7i64.to_ne_bytes()].concat()).slice(1..9).unwrap();
    let data = TensorData::from_bytes(bytes, vec![1], DType::I64).unwrap();
    assert_eq!(data.to_vec::<i64>().unwrap(), [7]);
}

#[test]
fn writing_copies_shared_bytes() {
    let mut data = TensorData::from([1i32, 2]);
    let shared = data.clone();
    data.as_mut_slice::<i32>().unwrap()[0] = 9;
    assert_eq!(data.to_vec::<i32>().unwrap(), [9, 2]);
    assert_eq!(shared.to_vec::<i32>().unwrap(), [1, 2]);
}

#[test]
fn a_byte_that_is_no_bool_is_refused_as_one() {
    let data = TensorData::from_bytes(Bytes::from_vec(vec![0, 1, 2]), vec![3], DType::Bool).unwrap();
    assert!(data.as_slice::<bool>().is_err());
    assert_eq!(data.iter::<bool>().collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn display_is_a_flat_list() {
    assert_eq!(format!("{}", TensorData::from([[0.1f32, 1.0]])), "[0.1, 1.0]");
    assert_eq!(format!("{}", TensorData::from([true, false])), "[true, false]");
}

#[test]
#[should_panic(expected = "1 of 2 elements differ:\n  at [0, 1]: 2.0 and 2.5")]
fn approximate_equality_names_the_place() {
    let a = TensorData::from([[1.0f32, 2.0]]);
    a.assert_approx_eq::<f32>(&TensorData::from([[1.0f32, 2.5]]), Tolerance::default());
}

#[test]
fn a_vector_comes_back_without_a_copy() {
    let elements = vec![1.0f32, 2.0];
    let address = elements.as_ptr();
    let data = TensorData::new(elements, [2]);
    let shared = data.clone();
    let copied = data.into_vec::<f32>().unwrap();
    assert_ne!(copied.as_ptr(), address);
    let elements = shared.into_vec::<f32>().unwrap();
    assert_eq!((elements.as_ptr(), elements.as_slice()), (address, &[1.0, 2.0][..]));
    let part = TensorData::from([1i32, 2, 3]).bytes.slice(4..12).unwrap();
    let part = TensorData::from_bytes(part, vec![2], DType::I32).unwrap();
    assert_eq!(part.into_vec::<i32>().unwrap(), [2, 3]);
    assert!(TensorData::from([1i32]).into_vec::<u32>().is_err());
}

#[test]
fn released_bytes_are_read_again() {
    struct Counting(std::sync::Arc<std::sync::Mutex<Vec<core::ops::Range<usize>>>>);
    impl AsRef<[u8]> for Counting {
        fn as_ref(&self) -> &[u8] {
            &[1, 2, 3, 4]
        }
    }
    impl crate::Refetched for Counting {
        fn release(&self, range: core::ops::Range<usize>) {
            self.0.lock().unwrap().push(range);
        }

        fn scattered(&self, scattered: bool) {
            self.0.lock().unwrap().push(if scattered { 0..4 } else { 4..4 });
        }
    }
    let seen = std::sync::Arc::default();
    let part = Bytes::from_refetched(Counting(std::sync::Arc::clone(&seen))).slice(1..3).unwrap();
    part.release();
    part.scattered(true);
    part.scattered(false);
    assert_eq!(*seen.lock().unwrap(), [1..3, 0..4, 4..4]);
    assert_eq!(*part, [2, 3]);
    Bytes::from_vec(vec![1]).release();
}
