//! Records that do not fit a module: errors where there is a `Result`, everything named at once.
#![cfg(all(feature = "std", feature = "ndarray"))]
#![allow(missing_docs)]

use kiln::module::{Module, Param, RunningState};
use kiln::nn::{Initializer, Linear, LinearConfig, LinearLayout, Relu};
use kiln::record::{
    BinFileRecorder, FullPrecisionSettings, HalfPrecisionSettings, NamedMpkFileRecorder, RecorderError,
};
use kiln::tensor::{Int, Tensor, TensorData, backend::Backend};
use std::path::PathBuf;

type Cpu = kiln::backend::NdArray;

#[derive(Module, Debug)]
enum Part<B: Backend> {
    Linear(Linear<B>),
    Relu(Relu),
    Table(Param<Tensor<B, 2>>),
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    layers: Vec<Linear<B>>,
    pair: (Linear<B>, [Linear<B>; 2]),
    #[module(rename = "0")]
    part: Part<B>,
    optional: Option<Linear<B>>,
    mean: RunningState<Tensor<B, 1>>,
    steps: Param<Tensor<B, 1, Int>>,
}

/// What the parts of a network are like.
#[derive(Clone)]
struct Sizes {
    layers: Vec<[usize; 2]>,
    pair: [usize; 2],
    part: usize,
    mean: usize,
    steps: usize,
    layout: LinearLayout,
}

impl Default for Sizes {
    fn default() -> Self {
        let layers = vec![[2, 3], [3, 2]];
        Self { layers, pair: [2, 2], part: 0, mean: 4, steps: 1, layout: LinearLayout::Row }
    }
}

fn net(sizes: &Sizes) -> Net<Cpu> {
    let device = Default::default();
    let linear = |[from, to]: [usize; 2]| LinearConfig::new(from, to).init(&device);
    Net {
        layers: sizes.layers.iter().copied().map(linear).collect(),
        pair: (linear(sizes.pair), [linear([1, 1]), linear(sizes.pair)]),
        part: match sizes.part {
            0 => Part::Linear(LinearConfig::new(3, 2).with_layout(sizes.layout).init(&device)),
            1 => Part::Relu(Relu::new()),
            _ => Part::Table(Initializer::Zeros.init([3, 2], &device)),
        },
        optional: None,
        mean: RunningState::new(Tensor::zeros([sizes.mean], &device)),
        steps: Param::initialized(
            kiln::module::ParamId::new(),
            Tensor::from_data(TensorData::new(vec![0_i64; sizes.steps], [sizes.steps]), &device),
        ),
    }
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kiln-misfits-{name}-{}", std::process::id()))
}

#[test]
fn what_does_not_fit_is_one_error_of_load_file() {
    let device = Default::default();
    let (path, recorder) = (temporary("all"), NamedMpkFileRecorder::<FullPrecisionSettings>::new());
    let other = Sizes {
        layers: vec![[2, 3], [3, 4], [1, 1]],
        pair: [2, 5],
        part: 2,
        mean: 3,
        steps: 2,
        ..Sizes::default()
    };
    net(&other).save_file(&path, &recorder).unwrap();
    let error = net(&Sizes::default()).load_file(&path, &recorder, &device).unwrap_err();
    assert!(matches!(&error, RecorderError::Parameters(_)));
    let expected = format!(
        "{} does not have the module's parameters
  wrong: layers.1.weight is float [3, 2], the file has f32 [3, 4]
  wrong: layers.1.bias is float [2], the file has f32 [4]
  wrong: pair.0.weight is float [2, 2], the file has f32 [2, 5]
  wrong: pair.0.bias is float [2], the file has f32 [5]
  wrong: pair.1.1.weight is float [2, 2], the file has f32 [2, 5]
  wrong: pair.1.1.bias is float [2], the file has f32 [5]
  wrong: mean is float [4], the file has f32 [3]
  wrong: steps is int [1], the file has i64 [2]
  wrong: layers is a list of 2, the file has 3
  wrong: 0 is another variant than the file has",
        path.with_extension("mpk").display()
    );
    assert_eq!(error.to_string(), expected);
    let record = net(&other).into_record();
    let error = net(&Sizes::default()).try_load_record(record).unwrap_err().to_string();
    assert!(
        error.starts_with("the record does not have the module's parameters\n  wrong: layers.1"),
        "{error}"
    );
    std::fs::remove_file(path.with_extension("mpk")).unwrap();
}

/// Layouts may differ, and a variant without parameters takes whatever the record has.
#[test]
fn what_fits_is_loaded() {
    let device = Default::default();
    let (path, recorder) = (temporary("fits"), BinFileRecorder::<HalfPrecisionSettings>::new());
    let stored = net(&Sizes::default());
    stored.clone().save_file(&path, &recorder).unwrap();
    let turned = net(&Sizes { layout: LinearLayout::Col, ..Sizes::default() });
    let loaded = turned.load_file(&path, &recorder, &device).unwrap();
    let (Part::Linear(loaded), Part::Linear(stored)) = (&loaded.part, &stored.part) else { panic!() };
    assert_eq!(loaded.weight.dims(), [2, 3]);
    let turned = loaded.weight.val().transpose().into_data();
    turned.assert_approx_eq::<f32>(&stored.weight.val().into_data(), Default::default());
    assert!(net(&Sizes { part: 1, ..Sizes::default() }).load_file(&path, &recorder, &device).is_ok());
    std::fs::remove_file(path.with_extension("bin")).unwrap();
}

/// A layer with optional parameters of integers.
#[derive(Module, Debug)]
struct Zeros<B: Backend> {
    zero_point: Option<Param<Tensor<B, 1, Int>>>,
    activation: Option<Relu>,
}

/// A part that one side is without is neither made nor lost in silence, and a part without parameters is of no record.
#[test]
fn optional_parts_are_on_both_sides_or_on_none() {
    let device = Default::default();
    let linear = |bias: bool| LinearConfig::new(2, 3).with_bias(bias).init::<Cpu>(&device);
    for bias in [false, true] {
        let record = linear(bias).into_record();
        linear(bias).try_load_record(record).expect("the same parts");
        let record = linear(bias).into_record();
        let error = linear(!bias).try_load_record(record).expect_err("another bias").to_string();
        let expected = if bias {
            "bias is not there, and the file has it"
        } else {
            "bias is there, and the file has nothing for it"
        };
        assert!(error.contains(expected), "{error}");
    }
    let without = Zeros::<Cpu> { zero_point: None, activation: None };
    let with = Zeros::<Cpu> { zero_point: None, activation: Some(Relu::new()) };
    let loaded = with.try_load_record(without.into_record()).expect("an activation has no parameters");
    assert!(loaded.activation.is_some());
}

#[test]
fn optional_integers_are_loaded() {
    let device = Default::default();
    let zeros = |value: i64| Zeros::<Cpu> {
        zero_point: Some(Param::initialized(
            kiln::module::ParamId::new(),
            Tensor::from_data(TensorData::from([value]), &device),
        )),
        activation: None,
    };
    let (path, recorder) = (temporary("integers"), BinFileRecorder::<FullPrecisionSettings>::new());
    zeros(7).save_file(&path, &recorder).unwrap();
    let loaded = zeros(0).load_file(&path, &recorder, &device).unwrap();
    let value = loaded.zero_point.expect("it is there").val().into_data();
    assert_eq!(value.iter::<i64>().collect::<Vec<_>>(), [7]);
    let empty = Zeros::<Cpu> { zero_point: None, activation: None };
    let error = zeros(0).try_load_record(empty.into_record()).expect_err("nothing for it").to_string();
    assert!(error.contains("zero_point is there, and the file has nothing for it"), "{error}");
}
