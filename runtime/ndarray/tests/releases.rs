//! A weight of a mapped record goes part by part while it is packed: it never lies whole beside its packed form.

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_tensor::backend::Backend;
use kiln_tensor::{ConvOptions, DType, Precision, TensorData};
use kiln_types::{Bytes, Refetched};
use std::ops::Range;
use std::sync::{Arc, Mutex};

type B = NdArray;

/// The most that may be released at once before the weight as a whole is.
const MOST: usize = 5 << 20;

/// Stands in for a mapped file, and remembers what was released.
struct Mapped {
    elements: Vec<f32>,
    released: Arc<Mutex<Vec<Range<usize>>>>,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.elements)
    }
}

impl Refetched for Mapped {
    fn release(&self, range: Range<usize>) {
        self.released.lock().unwrap().push(range);
    }
}

fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.5).collect()
}

fn tensor(elements: Vec<f32>, dims: &[usize]) -> NdArrayTensor {
    B::from_data(TensorData::new(elements, dims.to_vec()), &NdArrayDevice::Cpu)
}

/// Runs `forward` with a mapped weight and with one in memory, compares the results, and looks at what was released: part behind part, then the whole.
fn released_in_parts(dims: &[usize], forward: impl Fn(NdArrayTensor) -> NdArrayTensor) {
    let elements = noise(dims.iter().product());
    let size = size_of_val(elements.as_slice());
    let released: Arc<Mutex<Vec<Range<usize>>>> = Arc::default();
    let mapped = Mapped { elements: elements.clone(), released: Arc::clone(&released) };
    let data = TensorData::from_bytes(Bytes::from_refetched(mapped), dims.to_vec(), DType::F32).unwrap();
    let weight = B::prepare(B::from_data(data, &NdArrayDevice::Cpu));
    let result = |weight| B::into_data(forward(weight)).unwrap().into_vec::<f32>().unwrap();
    assert!(result(weight.clone()) == result(B::prepare(tensor(elements, dims))), "weight {dims:?}");
    let parts = released.lock().unwrap().clone();
    let [parts @ .., whole] = parts.as_slice() else { panic!("weight {dims:?}: nothing was released") };
    assert_eq!(*whole, 0..size);
    let mut end = 0;
    for part in parts {
        assert!(part.start == end && part.len() <= MOST, "weight {dims:?}: {parts:?}");
        end = part.end;
    }
    assert_eq!(end, size, "weight {dims:?}: {parts:?}");
    // What is packed is read no more.
    drop(result(weight));
    assert_eq!(released.lock().unwrap().len(), parts.len() + 1);
}

#[test]
fn weights_are_released_while_they_are_packed() {
    let rows = |size: usize| tensor(noise(3 * size), &[3, size]);
    let image =
        |channels: usize, size: usize| tensor(noise(channels * size * size), &[1, channels, size, size]);
    let options = |stride: usize, padding: usize| ConvOptions::new([stride; 2], [padding; 2], [1; 2], 1);
    for precision in [Precision::F32, Precision::Bf16] {
        precision.run(|| {
            released_in_parts(&[1030, 2050], |weight| B::linear(rows(1030), &weight, None, None));
            let turned = |weight| B::linear(rows(1030), &B::permute(weight, &[1, 0]), None, None);
            released_in_parts(&[2050, 1030], turned);
            let points = |weight| B::conv(image(1030, 4), weight, None, &options(1, 0));
            released_in_parts(&[2050, 1030, 1, 1], points);
            // As a product of windows, and by Winograd's algorithm.
            for stride in [2, 1] {
                let windows = |weight| B::conv(image(515, 12), weight, None, &options(stride, 1));
                released_in_parts(&[520, 515, 3, 3], windows);
            }
        });
    }
}
