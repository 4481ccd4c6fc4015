//! The chapter on importing ONNX models.

use book_programs::{embedded, imported};
use burn::tensor;
use burn_ndarray::{NdArray, NdArrayDevice};

#[test]
fn an_imported_model_runs() {
    let device = NdArrayDevice::default();
    let model: imported::Model<NdArray<f32>> = imported::Model::default();
    let input = tensor::Tensor::<NdArray<f32>, 4>::zeros([1, 3, 32, 32], &device);
    let output = model.forward(input);
    assert!(output.into_data().iter::<f32>().all(f32::is_finite));
}

#[test]
fn a_model_is_new_or_from_a_file_or_embedded() {
    let device = NdArrayDevice::default();
    let _fresh = imported::Model::<NdArray>::new(&device);
    let path = concat!(env!("OUT_DIR"), "/model/model");
    let _from_file = imported::Model::<NdArray>::from_file(path, &device);
    let _embedded = embedded::Model::<NdArray>::from_embedded(&device);
}

/// What a module holds is immutable while it runs, so one model serves many threads.
#[test]
fn one_model_serves_several_threads() {
    fn shared<T: Send + Sync>(value: T) -> std::sync::Arc<T> {
        std::sync::Arc::new(value)
    }
    let device = NdArrayDevice::default();
    let model = shared(imported::Model::<NdArray>::default());
    let input =
        tensor::Tensor::<NdArray, 4>::random([1, 3, 32, 32], tensor::Distribution::Normal(0.0, 1.0), &device);
    // The first run, in which weights are packed, is one of those at once.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (model, input) = (model.clone(), input.clone());
            std::thread::spawn(move || (0..3).map(|_| model.forward(input.clone()).into_data()).collect())
        })
        .collect();
    let expected = model.forward(input).into_data();
    for thread in threads {
        let results: Vec<tensor::TensorData> = thread.join().expect("no thread panics");
        assert!(results.iter().all(|result| *result == expected));
    }
}
