// A module of every kind of field, written once for both libraries; `root` is either.
//
// Included by the burn-compat crate and by the runtime's own tests.

use root::module::{Ignored, Module, Param, ParamId, RunningState};
use root::tensor::backend::Backend;
use root::tensor::{Bool, Int, Tensor, TensorData};
use std::marker::PhantomData;

/// A layer.
#[derive(Module, Debug)]
pub struct Dense<B: Backend> {
    pub weight: Param<Tensor<B, 2>>,
    pub bias: Option<Param<Tensor<B, 1>>>,
}

/// A layer of one of two kinds.
#[derive(Module, Debug)]
pub enum Either<B: Backend> {
    Dense(Dense<B>),
    Scale(Param<Tensor<B, 1>>),
}

/// A module without parameters.
#[derive(Module, Clone, Debug)]
pub struct Constant {
    pub factor: f64,
    pub sizes: [usize; 2],
}

/// All kinds of fields.
#[derive(Module, Debug)]
pub struct Plain<B: Backend> {
    pub dense: Dense<B>,
    pub without_bias: Dense<B>,
    pub layers: Vec<Dense<B>>,
    pub array: [Dense<B>; 2],
    pub tuple: (Dense<B>, Param<Tensor<B, 1>>),
    pub absent: Option<Dense<B>>,
    pub chosen: Either<B>,
    pub other: Either<B>,
    pub running: RunningState<Tensor<B, 1>>,
    pub indices: Param<Tensor<B, 2, Int>>,
    pub mask: Param<Tensor<B, 1, Bool>>,
    pub table: Tensor<B, 2>,
    pub constant: Constant,
    pub count: usize,
    pub maybe: Option<f64>,
    pub name: String,
    pub ignored: Ignored<Vec<u8>>,
    pub marker: PhantomData<B>,
}

/// A float tensor with values that half precision keeps.
fn floats<B: Backend, const D: usize>(shape: [usize; D], seed: usize, device: &B::Device) -> Tensor<B, D> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 7 + seed * 5) % 64) as f32 / 32.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn param<B: Backend, const D: usize>(shape: [usize; D], id: u64, device: &B::Device) -> Param<Tensor<B, D>> {
    Param::initialized(ParamId::from(id * 0x0123_4567_89ab), floats::<B, D>(shape, id as usize, device))
}

fn dense<B: Backend>(id: u64, bias: bool, device: &B::Device) -> Dense<B> {
    Dense { weight: param::<B, 2>([2, 3], id, device), bias: bias.then(|| param::<B, 1>([3], id + 1, device)) }
}

impl<B: Backend> Plain<B> {
    /// The module with fixed ids and values.
    pub fn sample(device: &B::Device) -> Self {
        let integers = TensorData::new(vec![0_i64, 1, -2, 300, 7, -8], [3, 2]);
        let bools = TensorData::new(vec![true, false, true], [3]);
        Self {
            dense: dense(1, true, device),
            without_bias: dense(3, false, device),
            layers: vec![dense(4, true, device), dense(6, false, device)],
            array: [dense(7, false, device), dense(8, false, device)],
            tuple: (dense(9, true, device), param::<B, 1>([1], 11, device)),
            absent: None,
            chosen: Either::Dense(dense(12, true, device)),
            other: Either::Scale(param::<B, 1>([4], 14, device)),
            running: RunningState::with_id(ParamId::from(15), floats::<B, 1>([5], 15, device)),
            indices: Param::initialized(ParamId::from(16), Tensor::from_data(integers, device)),
            mask: Param::initialized(ParamId::from(u64::MAX), Tensor::from_data(bools, device)),
            table: floats::<B, 2>([2, 2], 18, device),
            constant: Constant { factor: 0.5, sizes: [3, 4] },
            count: 7,
            maybe: Some(1.5),
            name: "plain".to_string(),
            ignored: Ignored(vec![1, 2, 3]),
            marker: PhantomData,
        }
    }

    /// A module of the same form with other ids and zeros.
    pub fn blank(device: &B::Device) -> Self {
        let mut module = Self::sample(device);
        module.dense = zeros(true, device);
        module.without_bias = zeros(false, device);
        module.layers = vec![zeros(true, device), zeros(false, device)];
        module.array = [zeros(false, device), zeros(false, device)];
        module.tuple = (zeros(true, device), Param::initialized(ParamId::new(), Tensor::zeros([1], device)));
        module.chosen = Either::Dense(zeros(true, device));
        module.other = Either::Scale(Param::initialized(ParamId::new(), Tensor::zeros([4], device)));
        module.running = RunningState::new(Tensor::zeros([5], device));
        module.indices = Param::initialized(ParamId::new(), Tensor::zeros([3, 2], device));
        module
    }
}

fn zeros<B: Backend>(bias: bool, device: &B::Device) -> Dense<B> {
    Dense {
        weight: Param::initialized(ParamId::new(), Tensor::zeros([2, 3], device)),
        bias: bias.then(|| Param::initialized(ParamId::new(), Tensor::zeros([3], device))),
    }
}
