//! The samples of the Burn Book's chapters on PyTorch and Safetensors, with Kiln under the names that they use. The
//! whole programs are files under `samples/`, as they are in the book; snippets are inside of the functions here.

use burn::module::Module;
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder, Recorder};
use burn_import::pytorch::{AdapterType, LoadArgs, PyTorchFileRecorder};
use burn_import::safetensors::SafetensorsFileRecorder;
use model::Net;
use std::path::{Path, PathBuf};

#[allow(missing_docs, reason = "a program of the book")]
mod model {
    include!("../samples/model.rs");
}

#[allow(unused_variables, reason = "a program of the book")]
mod pytorch_option_a {
    // The book leaves this import out.
    use burn::module::Module;
    include!("../samples/pytorch_option_a.rs");

    pub fn run() {
        main();
    }
}

#[allow(unused_variables, reason = "a program of the book")]
mod safetensors_option_a {
    // The book leaves this import out.
    use burn::module::Module;
    include!("../samples/safetensors_option_a.rs");

    pub fn run() {
        main();
    }
}

#[allow(clippy::uninlined_format_args, reason = "a program of the book")]
mod config {
    include!("../samples/config.rs");

    pub fn run() {
        main();
        let saved = NetConfig::load("my_config.json").unwrap();
        assert_eq!((saved.some_dict["some_key"].as_str(), saved.d_model), ("some_value", 512));
    }
}

type Backend = burn_ndarray::NdArray<f32>;
type NetRecord = <Net<Backend> as Module<Backend>>::Record;

/// The folder in which the samples run: the files that they load are there under the names that they use, and what they
/// write stays there.
fn folder() -> &'static Path {
    static FOLDER: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("book");
        std::fs::create_dir_all(folder.join("tests/key_remap")).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/weights/book");
        let files =
            ["conv2d.pt", "conv2d.safetensors", "model.safetensors", "tiny.en.pt", "weights_with_config.pt"];
        for file in files {
            std::fs::copy(fixtures.join(file), folder.join(file)).unwrap();
        }
        std::fs::copy(fixtures.join("key_remap.pt"), folder.join("tests/key_remap/key_remap.pt")).unwrap();
        std::env::set_current_dir(&folder).unwrap();
        folder
    })
}

/// That the network answers as it did in PyTorch.
fn check(model: &Net<Backend>) {
    let io = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/weights/book/conv2d.io.safetensors");
    let io = burn::record::Safetensors::open(&io).unwrap();
    let device = Default::default();
    let answer = model.forward(burn::Tensor::from_data(io.tensor("image").unwrap(), &device)).into_data();
    let expected = io.tensor("answer").unwrap();
    assert_eq!(answer.shape, expected.shape);
    for (found, expected) in answer.iter::<f64>().zip(expected.iter::<f64>()) {
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }
}

#[test]
fn weights_are_loaded_at_run_time() {
    folder();
    pytorch_option_a::run();
    safetensors_option_a::run();
    let device = Default::default();
    let record = PyTorchFileRecorder::<FullPrecisionSettings>::default()
        .load("./conv2d.pt".into(), &device)
        .expect("Should decode state successfully");
    check(&Net::<Backend>::init(&device).load_record(record));
    let record = SafetensorsFileRecorder::<FullPrecisionSettings>::default()
        .load("./conv2d.safetensors".into(), &device)
        .expect("Should decode state successfully");
    check(&Net::<Backend>::init(&device).load_record(record));
}

/// As it stands in the book, nothing says which record is converted; the annotation is ours.
#[test]
fn weights_are_converted_before() {
    folder();
    fn convert_model(name: &str) {
        let device = Default::default();
        let record: NetRecord = if name.ends_with(".pt") {
            let recorder = PyTorchFileRecorder::<FullPrecisionSettings>::default();
            recorder.load(name.into(), &device).expect("Should decode state successfully")
        } else {
            let recorder = SafetensorsFileRecorder::<FullPrecisionSettings>::default();
            recorder.load(name.into(), &device).expect("Should decode state successfully")
        };

        // Save to Burn's binary format
        let recorder = NamedMpkFileRecorder::<FullPrecisionSettings>::default();
        Recorder::<Backend>::record(&recorder, record, "model.mpk".into())
            .expect("Failed to save model record");
    }

    fn load_model() -> Net<Backend> {
        let device = Default::default();

        // Load from Burn's binary format
        let record = NamedMpkFileRecorder::<FullPrecisionSettings>::default()
            .load("./model.mpk".into(), &device)
            .expect("Should decode state successfully");

        Net::<Backend>::init(&device).load_record(record)
    }

    for name in ["./conv2d.pt", "./conv2d.safetensors"] {
        convert_model(name);
        check(&load_model());
        std::fs::remove_file("model.mpk").unwrap();
    }
}

#[test]
fn a_configuration_is_extracted() {
    folder();
    config::run();
}

#[test]
fn keys_are_remapped() {
    folder();
    let device = Default::default();
    let load_args = LoadArgs::new("tests/key_remap/key_remap.pt".into())
        // Remove "conv" prefix, e.g. "conv.conv1" -> "conv1"
        .with_key_remap("conv\\.(.*)", "$1");

    let record = PyTorchFileRecorder::<FullPrecisionSettings>::default()
        .load(load_args, &device)
        .expect("Should decode state successfully");

    let model = Net::<Backend>::init(&device).load_record(record);
    check(&model);

    let load_args = LoadArgs::new("tests/key_remap/key_remap.pt".into())
        // Remove "conv" prefix, e.g. "conv.conv1" -> "conv1"
        .with_key_remap("conv\\.(.*)", "$1")
        .with_debug_print(); // Print the keys and remapped keys

    let record = PyTorchFileRecorder::<FullPrecisionSettings>::default()
        .load(load_args, &device)
        .expect("Should decode state successfully");

    let model = Net::<Backend>::init(&device).load_record(record);
    check(&model);

    // Create load arguments with key remapping
    let load_args = LoadArgs::new("model.safetensors".into())
        // Remove "conv" prefix, e.g. "conv.conv1" -> "conv1"
        .with_key_remap("conv\\.(.*)", "$1");

    let record = SafetensorsFileRecorder::<FullPrecisionSettings>::default()
        .load(load_args, &device)
        .expect("Should decode state successfully");

    let model = Net::<Backend>::init(&device).load_record(record);
    check(&model);
}

#[test]
fn weights_lie_under_a_key() {
    folder();
    let device = Default::default();
    let load_args = LoadArgs::new("tiny.en.pt".into()).with_top_level_key("my_state_dict");

    let record = PyTorchFileRecorder::<FullPrecisionSettings>::default()
        .load(load_args, &device)
        .expect("Should decode state successfully");
    check(&Net::<Backend>::init(&device).load_record(record));
}

#[test]
fn an_adapter_is_chosen() {
    folder();
    let device = Default::default();

    // Create load arguments with framework-specific adapter
    let load_args = LoadArgs::new("conv2d.safetensors".into()).with_adapter_type(AdapterType::PyTorch); // Default adapter

    // Load with the specified adapter
    let record = SafetensorsFileRecorder::<FullPrecisionSettings>::default()
        .load(load_args, &device)
        .expect("Should decode state successfully");
    check(&Net::<Backend>::init(&device).load_record(record));
    // Convolutions are the same with and without it.
    let load_args = LoadArgs::new("conv2d.safetensors".into()).with_adapter_type(AdapterType::NoAdapter);
    let record = SafetensorsFileRecorder::<FullPrecisionSettings>::default().load(load_args, &device);
    check(&Net::<Backend>::init(&device).load_record(record.unwrap()));
}
