//! What `#[derive(Module)]` gives.
#![cfg(feature = "ndarray")]
#![allow(missing_docs)]

use kiln::module::{Ignored, Initializer, Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use kiln::tensor::backend::Backend;
use kiln::tensor::{Int, Tensor, TensorData};
use std::marker::PhantomData;

type Cpu = kiln::backend::NdArray;

#[derive(Module, Debug)]
pub struct Dense<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Option<Param<Tensor<B, 1>>>,
}

impl<B: Backend> Dense<B> {
    fn new(device: &B::Device) -> Self {
        let initializer = Initializer::Uniform { min: -1.0, max: 1.0 };
        Self { weight: initializer.init([4, 3], device), bias: Some(initializer.init([3], device)) }
    }
}

#[derive(Module, Debug)]
struct Stack<B: Backend, const N: usize> {
    #[module(rename = "0")]
    first: Dense<B>,
    rest: [Dense<B>; N],
    list: Vec<Dense<B>>,
    pair: (Dense<B>, Dense<B>),
}

#[derive(Module, Debug)]
struct Wrapper<B: Backend, M> {
    inner: M,
    marker: PhantomData<B>,
}

#[derive(Module, Debug)]
struct Tuple<B: Backend>(Dense<B>, Param<Tensor<B, 1, Int>>);

#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)]
enum Choice<B: Backend, M: Module<B>> {
    Dense(Dense<B>),
    Other(Wrapper<B, M>),
    Nothing,
}

#[derive(Module, Clone, Debug)]
enum Mode {
    Fast,
    Sized(usize),
    Named { width: f64 },
}

fn stack() -> Stack<Cpu, 2> {
    let device = Default::default();
    let dense = || Dense::new(&device);
    Stack { first: dense(), rest: [dense(), dense()], list: vec![dense()], pair: (dense(), dense()) }
}

fn values<const D: usize>(param: &Param<Tensor<Cpu, D>>) -> TensorData {
    param.val().into_data()
}

#[test]
fn parameters_are_made_on_first_use() {
    let dense = Dense::<Cpu>::new(&Default::default());
    assert_eq!(Module::<Cpu>::num_params(&dense), 15);
    assert_eq!(
        dense.to_string(),
        "Dense {\n  weight: ParamTensor {rank: 2, shape: [4, 3], kind: float}\n  bias: ParamTensor {rank: 1, shape: [3], kind: float}\n  params: 15\n}"
    );
    assert!(!dense.weight.is_initialized());
    let first = values(&dense.weight);
    assert!(dense.weight.is_initialized());
    assert_eq!(first, values(&dense.weight));
    assert_eq!(first, values(&dense.clone().weight));
}

#[test]
fn loading_does_not_make_the_values_that_it_replaces() {
    fn unwanted(_: &kiln::backend::ndarray::NdArrayDevice, _: bool) -> Tensor<Cpu, 2> {
        panic!("nobody asked for this value");
    }
    let device = kiln::backend::ndarray::NdArrayDevice::default();
    let lazy = Param::uninitialized(ParamId::new(), unwanted, Default::default(), true, [4, 3].into());
    let module = Dense { weight: lazy, bias: None };
    let source = Dense { weight: Dense::<Cpu>::new(&device).weight, bias: None };
    let expected = values(&source.weight);
    let module = module.no_grad().to_device(&device).load_record(source.into_record());
    assert_eq!(values(&module.weight), expected);
}

#[test]
fn a_record_carries_values_and_ids() {
    let (one, two) = (stack(), stack());
    let (expected, id) = (values(&one.list[0].weight), one.list[0].weight.id);
    assert_ne!(values(&two.list[0].weight), expected);
    let two = two.load_record(one.into_record());
    assert_eq!(values(&two.list[0].weight), expected);
    assert_eq!(two.list[0].weight.id, id);
}

#[test]
#[should_panic(expected = "the record holds another variant of `Choice` than the module")]
fn another_variant_does_not_load() {
    let record = Choice::<Cpu, Dense<Cpu>>::Nothing.into_record();
    let _ = Choice::<Cpu, Dense<Cpu>>::Dense(Dense::new(&Default::default())).load_record(record);
}

/// Checkpoints of other programs say nothing of a part without parameters.
#[test]
fn a_variant_without_parameters_takes_any_record() {
    let record = Choice::<Cpu, Dense<Cpu>>::Dense(Dense::new(&Default::default())).into_record();
    let loaded = Choice::<Cpu, Dense<Cpu>>::Nothing.load_record(record);
    assert!(matches!(loaded, Choice::Nothing));
}

#[derive(Default)]
struct Paths {
    path: Vec<String>,
    found: Vec<String>,
}

impl<B: Backend> ModuleVisitor<B> for Paths {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_string());
        let known = ["Struct:", "Enum:", "Vec", "Array", "Tuple"];
        assert!(known.iter().any(|known| container_type.starts_with(known)), "{container_type}");
    }

    fn exit_module(&mut self, name: &str, _container_type: &str) {
        assert_eq!(self.path.pop().as_deref(), Some(name));
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<B, D>>) {
        self.found.push(self.path.join("."));
    }

    fn visit_int<const D: usize>(&mut self, _param: &Param<Tensor<B, D, Int>>) {
        self.found.push(format!("{} (int)", self.path.join(".")));
    }
}

fn paths(module: &impl Module<Cpu>) -> Vec<String> {
    let mut paths = Paths::default();
    module.visit(&mut paths);
    paths.found
}

#[test]
fn visitors_see_paths() {
    let expected = [
        "0.weight",
        "0.bias",
        "rest.0.weight",
        "rest.0.bias",
        "rest.1.weight",
        "rest.1.bias",
        "list.0.weight",
        "list.0.bias",
        "pair.0.weight",
        "pair.0.bias",
        "pair.1.weight",
        "pair.1.bias",
    ];
    assert_eq!(paths(&stack()), expected);

    let device = Default::default();
    let indices = Tensor::from_data(TensorData::new(vec![1_i64, 2], [2]), &device);
    let tuple = Tuple(Dense::new(&device), Param::initialized(ParamId::new(), indices));
    assert_eq!(paths(&tuple), ["0.weight", "0.bias", "1 (int)"]);

    let inner = Wrapper { inner: tuple, marker: PhantomData };
    let choice = Choice::Other(inner);
    assert_eq!(paths(&choice), ["Other.inner.0.weight", "Other.inner.0.bias", "Other.inner.1 (int)"]);
    assert_eq!(Module::<Cpu>::num_params(&choice), 15);
}

/// Replaces every parameter by its id's number.
struct Numbers;

impl<B: Backend> ModuleMapper<B> for Numbers {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let tensor = Tensor::full(tensor.shape(), 7.0, &tensor.device());
        Param::from_mapped_value(id, tensor, mapper)
    }
}

#[test]
fn mappers_replace_values_and_keep_ids() {
    let one = stack();
    let id = one.first.weight.id;
    let one = one.map(&mut Numbers);
    assert_eq!(one.first.weight.id, id);
    assert_eq!(values(&one.pair.1.bias.unwrap()), TensorData::new(vec![7.0_f32; 3], [3]));
}

#[test]
fn mappers_of_parameters_apply_on_load_and_save() {
    let device = Default::default();
    let param = || {
        let ones = Tensor::<Cpu, 1>::from_data(TensorData::new(vec![1.0_f32], [1]), &device);
        Param::from_tensor(ones)
            .save_mapper(|tensor| Tensor::full(tensor.shape(), 2.0, &tensor.device()))
            .load_mapper(|tensor| Tensor::full(tensor.shape(), 3.0, &tensor.device()))
    };
    let record = Module::<Cpu>::into_record(param());
    assert_eq!(values(&record), TensorData::new(vec![2.0_f32], [1]));
    assert_eq!(values(&Module::<Cpu>::load_record(param(), record)), TensorData::new(vec![3.0_f32], [1]));
}

#[test]
fn constants_have_no_state() {
    let modes = [Mode::Fast, Mode::Sized(3), Mode::Named { width: 0.5 }];
    let texts = modes.iter().map(|mode| mode.to_string()).collect::<Vec<_>>();
    assert_eq!(texts, ["Fast", "Sized {\n  _0: 3\n}", "Named {\n  width: 0.5\n}"]);
    assert_eq!(Module::<Cpu>::num_params(&modes[1]), 0);
    assert_eq!(Ignored(vec![1, 2]).to_string(), "[1, 2]");
}

#[test]
fn modules_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&stack());
}
