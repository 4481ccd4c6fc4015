//! Parameters by path, in memory-mapped files.
#![cfg(all(feature = "std", feature = "ndarray"))]
#![allow(missing_docs)]

use kiln::module::{Module, Param, ParamId};
use kiln::record::{
    RecorderError, Safetensors, load_parameters, load_safetensors, load_safetensors_bytes, save_safetensors,
    save_safetensors_bytes,
};
use kiln::tensor::backend::Backend;
use kiln::tensor::{DType, Int, Tensor, TensorData};
use kiln_record::safetensors::{TensorToWrite, to_vec};
use std::collections::BTreeMap;

type Cpu = kiln::backend::NdArray;

#[derive(Module, Debug)]
struct Layer<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    #[module(rename = "1")]
    second: Option<Param<Tensor<B, 1>>>,
}

#[derive(Module, Debug)]
enum Part<B: Backend> {
    Layer(Layer<B>),
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    layers: Vec<Layer<B>>,
    part: Part<B>,
    steps: Param<Tensor<B, 1, Int>>,
}

fn floats<const D: usize>(shape: [usize; D], first: f32) -> Param<Tensor<Cpu, D>> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| first + i as f32).collect();
    Param::from_data(TensorData::new(values, shape), &Default::default())
}

/// A parameter that must be loaded.
fn pending<const D: usize>(shape: [usize; D]) -> Param<Tensor<Cpu, D>> {
    let init = |_: &_, _| panic!("a loaded parameter is not initialized");
    Param::uninitialized(ParamId::new(), init, Default::default(), true, shape.into())
}

fn integers(values: Vec<i64>) -> Param<Tensor<Cpu, 1, Int>> {
    let count = values.len();
    Param::initialized(
        ParamId::new(),
        Tensor::from_data(TensorData::new(values, [count]), &Default::default()),
    )
}

fn sample() -> Model<Cpu> {
    let layer = |first: f32| Layer { weight: floats([2, 2], first), second: Some(floats([2], -first)) };
    Model {
        layers: vec![layer(1.0), layer(2.0)],
        part: Part::Layer(layer(3.0)),
        steps: integers(vec![1, 2, 3]),
    }
}

fn blank() -> Model<Cpu> {
    let layer = || Layer { weight: pending([2, 2]), second: Some(pending([2])) };
    Model { layers: vec![layer(), layer()], part: Part::Layer(layer()), steps: integers(vec![0; 3]) }
}

fn open(bytes: Vec<u8>) -> Safetensors {
    Safetensors::read(kiln::tensor::Bytes::from_vec(bytes)).unwrap()
}

#[test]
fn a_module_round_trips_through_a_file() {
    let path = std::env::temp_dir().join(format!("kiln-module-{}.safetensors", std::process::id()));
    save_safetensors::<Cpu, _, _>(&sample(), &path).unwrap();
    let file = Safetensors::open(&path).unwrap();
    let expected =
        ["layers.0.1", "layers.0.weight", "layers.1.1", "layers.1.weight", "part.1", "part.weight", "steps"];
    assert_eq!(file.paths().collect::<Vec<_>>(), expected);
    let module = load_safetensors(blank(), &path, &Default::default()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(save_safetensors_bytes::<Cpu, _>(&module).unwrap(), bytes);
}

/// An optimizer's record knows parameters by their ids.
#[test]
fn parameters_keep_their_ids() {
    let saved = sample();
    let ids = |model: &Model<Cpu>| [model.layers[1].weight.id, model.steps.id];
    let bytes = save_safetensors_bytes::<Cpu, _>(&saved).unwrap();
    let module = load_parameters(blank(), &open(bytes), "model.safetensors", &Default::default()).unwrap();
    assert_eq!(ids(&module), ids(&saved));

    // A file without ids leaves the module its own.
    let fresh = blank();
    let own = ids(&fresh);
    let stored = open(save_safetensors_bytes::<Cpu, _>(&saved).unwrap());
    let tensors = stored.paths().map(|path| TensorToWrite::new(path, stored.tensor(path).unwrap()));
    let bare = open(to_vec(&tensors.collect::<Vec<_>>(), &BTreeMap::new()).unwrap());
    let module = load_parameters(fresh, &bare, "model.safetensors", &Default::default()).unwrap();
    assert_eq!(ids(&module), own);
}

#[test]
fn a_record_that_is_part_of_the_program_loads() {
    let bytes: &'static [u8] = save_safetensors_bytes::<Cpu, _>(&sample()).unwrap().leak();
    let module = load_safetensors_bytes(blank(), bytes, &Default::default()).unwrap();
    assert_eq!(module.steps.val().into_data(), TensorData::new(vec![1_i64, 2, 3], [3]));
}

#[test]
fn everything_that_does_not_fit_is_in_one_error() {
    let tensors = [
        TensorToWrite::new("layers.0.weight", TensorData::new(vec![0.0_f32; 6], [3, 2])),
        TensorToWrite::new("layers.0.1", TensorData::new(vec![0.0_f32; 2], [2])),
        TensorToWrite::new("layers.1.weights", TensorData::new(vec![0.0_f32; 4], [2, 2])),
        TensorToWrite::new("layers.1.1", TensorData::new(vec![0_i32; 2], [2])),
        TensorToWrite::new("part.weight", TensorData::new(vec![0.0_f32; 4], [2, 2])),
        TensorToWrite::new("part.1", TensorData::new(vec![0.0_f32; 2], [2])),
    ];
    let file = open(to_vec(&tensors, &BTreeMap::new()).unwrap());
    let error = load_parameters(blank(), &file, "model.safetensors", &Default::default()).unwrap_err();
    assert!(matches!(error, RecorderError::Parameters(_)));
    let expected = "\
model.safetensors does not have the module's parameters
  missing: layers.1.weight [2, 2] (the file has layers.1.weights)
  missing: steps [3]
  wrong: layers.0.weight is float [2, 2], the file has f32 [3, 2]
  wrong: layers.1.1 is float [2], the file has i32 [2]
  unused: layers.1.weights";
    assert_eq!(error.to_string(), expected);
}

#[derive(Module, Debug)]
struct Pair<B: Backend> {
    a: Param<Tensor<B, 1>>,
    b: Param<Tensor<B, 1, Int>>,
}

#[test]
fn dtypes_come_back() {
    use kiln::tensor::f16;
    let pair = || Pair::<Cpu> { a: pending([2]), b: integers(vec![0; 2]) };
    let half = TensorData::new(vec![f16::from_f32(0.5), f16::from_f32(2.0)], [2]);
    let narrow = TensorToWrite::new("a", TensorData::new(vec![0.5_f32, 2.0], [2])).stored_as(DType::F16);
    let small = TensorToWrite::new("b", TensorData::new(vec![1_i32, 2], [2]));
    let dtypes = |tensors: &[TensorToWrite]| {
        let file = open(to_vec(tensors, &BTreeMap::new()).unwrap());
        let pair = load_parameters(pair(), &file, "a file", &Default::default()).unwrap();
        (pair.a.val().into_data().dtype, pair.b.val().into_data().dtype)
    };
    assert_eq!(dtypes(&[narrow, small.clone()]), (DType::F32, DType::I32));
    assert_eq!(dtypes(&[TensorToWrite::new("a", half), small]), (DType::F16, DType::I32));
}

#[test]
fn a_file_of_others_gets_the_backends_dtypes() {
    let header = concat!(
        r#"{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"#,
        r#""b":{"dtype":"I32","shape":[2],"data_offsets":[4,12]}}"#
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&[0, 0x3c, 0, 0x40]);
    bytes.extend_from_slice(&[5, 0, 0, 0, 6, 0, 0, 0]);
    let pair = Pair::<Cpu> { a: pending([2]), b: integers(vec![0; 2]) };
    let pair = load_parameters(pair, &open(bytes), "a file", &Default::default()).unwrap();
    assert_eq!(pair.a.val().into_data(), TensorData::new(vec![1.0_f32, 2.0], [2]));
    assert_eq!(pair.b.val().into_data(), TensorData::new(vec![5_i64, 6], [2]));
}

#[test]
fn a_weight_that_is_stored_by_columns() {
    use kiln::nn::{Linear, LinearConfig, LinearLayout};
    let device = Default::default();
    let config = LinearConfig::new(3, 5).with_bias(false);
    let by_columns = config.clone().with_layout(LinearLayout::Col);
    let linear: Linear<Cpu> = by_columns.init(&device);
    let bytes = save_safetensors_bytes::<Cpu, _>(&linear).unwrap();
    assert_eq!(open(bytes.clone()).entry("weight").unwrap().shape, [5, 3]);
    let loaded =
        load_parameters(by_columns.init::<Cpu>(&device), &open(bytes.clone()), "a file", &device).unwrap();
    assert_eq!(loaded.weight.val().into_data(), linear.weight.val().into_data());
    let x = Tensor::<Cpu, 2>::ones([2, 3], &device);
    assert_eq!(loaded.forward(x.clone()).into_data(), linear.forward(x).into_data());
    // Stored by rows it is another shape, and so is a flat one.
    assert!(load_parameters(config.init::<Cpu>(&device), &open(bytes), "a file", &device).is_err());
    for shape in [vec![3, 5], vec![15], vec![5, 3, 1]] {
        let weight = TensorToWrite::new("weight", TensorData::new(vec![0.0_f32; 15], shape));
        let file = open(to_vec(&[weight], &BTreeMap::new()).unwrap());
        let result = load_parameters(by_columns.init::<Cpu>(&device), &file, "a file", &device);
        assert!(matches!(result, Err(RecorderError::Parameters(_))));
    }
}
