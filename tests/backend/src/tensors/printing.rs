//! How tensors print.

use super::tensor;
use kiln_tensor::backend::Backend;
use kiln_tensor::{Bool, DType, Float, Int, Tensor, closeness_report};

/// The lines between `data:` and `shape:`.
fn data_of(text: &str) -> String {
    let (_, rest) = text.split_once("  data:\n").unwrap();
    rest.split_once(",\n  shape:").unwrap().0.to_owned()
}

pub fn nested_lists<B: Backend>() {
    let x = Tensor::<B, 2>::full([2, 3], 0.123_456_789, (&B::Device::default(), DType::F32));
    let text = x.to_string();
    assert!(
        text.starts_with("Tensor {\n  data:\n[[0.12345679, 0.12345679, 0.12345679],\n [0.12345679, "),
        "{text}"
    );
    assert!(text.contains("  shape:  [2, 3],\n  device:  "), "{text}");
    assert!(text.ends_with("  kind:  \"Float\",\n  dtype:  \"f32\",\n}"), "{text}");
    assert_eq!(data_of(&format!("{x:.2}")), "[[0.12, 0.12, 0.12],\n [0.12, 0.12, 0.12]]");
    assert_eq!(
        data_of(&tensor::<B, 3, Int>([[[1], [2]], [[3], [4]]]).to_string()),
        "[[[1],\n  [2]],\n [[3],\n  [4]]]"
    );
    assert_eq!(data_of(&tensor::<B, 1, Bool>([true, false]).to_string()), "[true, false]");
    assert_eq!(data_of(&tensor::<B, 0, Float>(1.0).to_string()), "1.0");
}

pub fn summaries<B: Backend>() {
    let x = Tensor::<B, 1, Int>::arange(0..2002, &B::Device::default());
    assert_eq!(data_of(&x.to_string()), "[0, 1, 2, ..., 1999, 2000, 2001]");
    let text = data_of(&x.reshape([1001, 2]).to_string());
    assert_eq!(text, "[[0, 1],\n [2, 3],\n [4, 5],\n ...\n [1996, 1997],\n [1998, 1999],\n [2000, 2001]]");
}

pub fn closeness<B: Backend>() {
    let single = |data: [f64; 10]| Tensor::<B, 1>::from_data_dtype(data, &B::Device::default(), DType::F32);
    let a = single([1.0, 2.0, 3.0, 4.0, 5.0, 6.001, 7.002, 8.003, 9.004, 10.1]);
    let b = single([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.001, 8.002, 9.003, 10.004]);
    let report = closeness_report(&a, &b, false);
    assert!(report.contains("Epsilon: 1e-1\n  Close elements: 10/10 (100.00%)\n  [PASS]"), "{report}");
    assert!(report.contains("Epsilon: 1e-3\n  Close elements: 9/10 (90.00%)\n  [WARN]"), "{report}");
    assert!(report.contains("Epsilon: 1e-8\n  Close elements: 5/10 (50.00%)\n  [FAIL]"), "{report}");
}
