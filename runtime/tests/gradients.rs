//! Which values of a module's parameters are leaves of the gradients' graph, told by a backend that keeps count.
#![cfg(feature = "ndarray")]
#![allow(missing_docs)]

#[path = "shared/tape.rs"]
mod tape;

use kiln::module::{
    AutodiffModule, Initializer, Module, ModuleMapper, ModuleVisitor, Param, ParamId, RunningState,
};
use kiln::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, LinearLayout};
use kiln::record::{
    BinBytesRecorder, FullPrecisionSettings, Recorder, load_safetensors_bytes, save_safetensors_bytes,
};
use kiln::tensor::backend::Backend;
use kiln::tensor::{DType, Tensor, TensorData};
use tape::{Cpu, Tape, recorded};

type Weight = Param<Tensor<Tape, 2>>;

fn device() -> <Cpu as Backend>::Device {
    Default::default()
}

fn data() -> TensorData {
    TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2])
}

fn weight() -> Weight {
    Param::from_data(data(), &device())
}

/// A value that was computed from a leaf, as one that leaves a training step.
fn computed() -> Tensor<Tape, 2> {
    Tensor::from_data(data(), &device()).require_grad() * 2.0
}

#[test]
fn requiring_a_gradient_makes_a_leaf_of_whatever_it_is() {
    let tensor = computed();
    assert!(tensor.is_tracked() && !tensor.is_require_grad());
    let leaf = tensor.require_grad();
    assert!(leaf.is_require_grad());
    // Who is one already stays the same: its gradient is found under the old name.
    let id = leaf.primitive().leaf;
    assert_eq!(leaf.require_grad().primitive().leaf, id);
    assert!(!computed().set_require_grad(false).is_tracked());
}

#[test]
fn what_changes_a_trained_parameter_leaves_a_leaf_and_records_nothing() {
    let before = recorded();
    for (what, change) in [
        ("cast", (|param| param.with_dtype(DType::F64)) as fn(Weight) -> Weight),
        ("moved", |param| Module::<Tape>::to_device(param, &device())),
        ("forked", |param| Module::<Tape>::fork(param, &device())),
        ("loaded", |param| param.transform_for_load(computed_silently(), ParamId::new())),
        ("loaded through its mapper", |param| {
            param.load_mapper(Tensor::transpose).transform_for_load(computed_silently(), ParamId::new())
        }),
        ("replaced", |param| param.with_value(computed_silently())),
        ("saved", |param| param.save_mapper(Tensor::transpose).transform_for_save()),
        ("made and then mapped", |_| {
            Initializer::Ones.init([2, 2], &device()).init_mapper(Tensor::transpose).with_dtype(DType::F64)
        }),
    ] {
        let trained = change(weight());
        assert!(trained.val().is_require_grad(), "{what}");
        let frozen = change(weight().set_require_grad(false));
        assert!(what.starts_with("made") || !frozen.val().is_tracked(), "{what}");
        assert_eq!(recorded(), before, "{what}: computed with a tracked value");
    }
}

/// A value that was computed from a leaf, without counting that.
fn computed_silently() -> Tensor<Tape, 2> {
    tape::uncounted(computed)
}

#[test]
fn a_function_of_a_trained_parameter_is_trained() {
    assert!(weight().map(|value| value.transpose()).val().is_require_grad());
    assert!(!weight().map(Tensor::detach).val().is_tracked());
    assert!(!weight().map(|value| value.set_require_grad(false)).val().is_tracked());
    assert!(!weight().set_require_grad(false).map(Tensor::transpose).val().is_tracked());
    // A constant that the function marks is trained from then on.
    assert!(weight().set_require_grad(false).map(Tensor::require_grad).val().is_require_grad());
    // A fork is another leaf, even where it lies already; a clone is the same one.
    let weight = weight();
    let leaf = |weight: &Weight| weight.val().primitive().leaf;
    assert_eq!(leaf(&weight.clone()), leaf(&weight));
    assert_ne!(leaf(&Module::<Tape>::fork(weight.clone(), &device())), leaf(&weight));
}

#[test]
fn a_record_loads_as_its_module_is_trained() {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = Recorder::<Tape>::record(&recorder, Module::<Tape>::into_record(weight()), ()).unwrap();
    let record = || Recorder::<Tape>::load(&recorder, bytes.clone(), &device()).unwrap();
    let before = recorded();
    assert!(weight().load_mapper(Tensor::transpose).load_record(record()).val().is_require_grad());
    assert!(!Module::<Tape>::no_grad(weight()).load_record(record()).val().is_tracked());
    assert_eq!(recorded(), before);
}

/// The parameters by id, and whether they are leaves.
#[derive(Default)]
struct Leaves(Vec<(ParamId, bool)>);

impl<B: Backend> ModuleVisitor<B> for Leaves {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push((param.id, param.val().is_require_grad()));
    }
}

fn leaves<B: Backend>(module: &impl Module<B>) -> Vec<(ParamId, bool)> {
    let mut leaves = Leaves::default();
    module.visit(&mut leaves);
    leaves.0
}

/// Computes with each parameter, as an optimizer that forgets to detach would.
struct Step;

impl<B: Backend> ModuleMapper<B> for Step {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|value| value * 0.5 + 1.0)
    }
}

#[test]
fn a_step_keeps_what_is_trained_and_under_which_id() {
    let norm: BatchNorm<Tape> = BatchNormConfig::new(3).init(&device());
    let before = leaves(&norm);
    let trained: Vec<bool> = before.iter().map(|(_, leaf)| *leaf).collect();
    assert_eq!(trained, [true, true, false, false], "running statistics are not trained");
    assert_eq!(leaves(&norm.clone().map(&mut Step)), before);
    assert!(leaves(&norm.clone().no_grad().map(&mut Step)).iter().all(|(_, leaf)| !leaf));
    let valid = leaves::<Cpu>(&norm.valid());
    assert!(valid.iter().zip(&before).all(|((valid, _), (id, _))| valid == id));
}

#[test]
fn a_statistic_forgets_the_batch_that_it_was_computed_from() {
    let state = RunningState::<Tensor<Tape, 2>>::new(computed());
    assert!(!state.value().is_tracked());
    state.update(computed());
    assert!(!state.value().is_tracked());
}

/// A layer whose weight lies the other way around in records is saved so from its copy without gradients, too.
#[test]
fn validation_keeps_how_parameters_are_stored() {
    for size in [2, 3] {
        let config = LinearConfig::new(2, size).with_layout(LinearLayout::Col);
        let trained: Linear<Tape> = config.init(&device());
        let bytes = save_safetensors_bytes::<Tape, _>(&trained).unwrap();
        let valid = trained.valid();
        assert!(!valid.weight.val().is_tracked());
        assert_eq!(save_safetensors_bytes::<Cpu, _>(&valid).unwrap(), bytes);
        // And back: the mapper that loads was kept as well.
        let expected = trained.weight.val().into_data();
        let bytes: &'static [u8] = bytes.leak();
        let loaded = load_safetensors_bytes::<Cpu, _>(valid, bytes, &device()).unwrap();
        assert_eq!(loaded.weight.val().into_data(), expected);
    }
}
