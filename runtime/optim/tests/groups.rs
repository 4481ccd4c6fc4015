//! Several optimizers on one module, and bounds on gradients, as PyTorch's parameter groups step
//! (`scripts/optimizer_goldens.py`).

use kiln_autodiff::Autodiff;
use kiln_core::Tensor;
use kiln_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use kiln_core::record::{BinBytesRecorder, DoublePrecisionSettings, Recorder};
use kiln_core::tensor::TensorData;
use kiln_core::tensor::backend::Backend;
use kiln_ndarray::NdArray;
use kiln_optim::momentum::MomentumConfig;
use kiln_optim::*;
use serde::Deserialize;
use std::collections::BTreeMap;

type Inner = NdArray<f64>;
type B = Autodiff<Inner>;

const LR: f64 = 0.05;

#[derive(Module, Debug)]
struct Part<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    body: Part<B>,
    head: Part<B>,
}

#[derive(Deserialize)]
struct Goldens {
    start: Vec<f64>,
    target: Vec<f64>,
    weight: Vec<f64>,
    cases: BTreeMap<String, Vec<Vec<f64>>>,
}

/// Takes as many numbers as a parameter has, in turn.
struct Fill<'a>(&'a [f64]);

impl Fill<'_> {
    fn take<const D: usize>(&mut self, dims: [usize; D]) -> Tensor<B, D> {
        let (taken, rest) = self.0.split_at(dims.iter().product());
        self.0 = rest;
        Tensor::from_data(TensorData::new(taken.to_vec(), dims), &Default::default())
    }
}

impl ModuleMapper<B> for Fill<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let value = self.take(param.val().dims());
        param.map(|_| value.require_grad())
    }
}

/// The numbers of all parameters.
#[derive(Default)]
struct Flat(Vec<f64>);

impl ModuleVisitor<B> for Flat {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.extend(param.val().into_data().to_vec::<f64>().expect("f64"));
    }
}

/// `Σ (p - target)² · weight / 2`.
struct Loss<'a> {
    target: Fill<'a>,
    weight: Fill<'a>,
    sum: Option<Tensor<B, 1>>,
}

impl ModuleVisitor<B> for Loss<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val();
        let away = value.clone() - self.target.take(value.dims());
        let loss = (away.clone() * away * self.weight.take(value.dims()) / 2.0).sum();
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum + loss,
            None => loss,
        });
    }
}

impl Goldens {
    fn read() -> Self {
        serde_json::from_str(include_str!("training.json")).expect("goldens")
    }

    fn model(&self) -> Model<B> {
        let part = |rows, columns| Part {
            weight: Param::from_tensor(Tensor::zeros([rows, columns], &Default::default())),
            bias: Param::from_tensor(Tensor::zeros([columns], &Default::default())),
        };
        Model { body: part(2, 3), head: part(3, 2) }.map(&mut Fill(&self.start))
    }

    fn gradients(&self, model: &Model<B>) -> GradientsParams {
        let mut loss = Loss { target: Fill(&self.target), weight: Fill(&self.weight), sum: None };
        model.visit(&mut loss);
        let gradients = GradientsParams::from_grads(loss.sum.expect("a loss").backward(), model);
        assert_eq!(gradients.len(), 4);
        gradients
    }
}

fn flat(model: &Model<B>) -> Vec<f64> {
    let mut flat = Flat::default();
    model.visit(&mut flat);
    flat.0
}

/// Ten steps, with a record in the middle.
fn check<O: Optimizer<Model<B>, B>>(
    name: &str,
    make: impl Fn() -> O,
    clip: impl Fn(&Model<B>, &mut GradientsParams),
) {
    let goldens = Goldens::read();
    let (mut optimizer, mut model) = (make(), goldens.model());
    for (n, expected) in goldens.cases[name].iter().enumerate() {
        if n == 5 {
            let recorder = BinBytesRecorder::<DoublePrecisionSettings>::default();
            let bytes = Recorder::<B>::record(&recorder, optimizer.to_record(), ()).expect("a record");
            let record = Recorder::<B>::load(&recorder, bytes, &Default::default()).expect("the same");
            optimizer = make().load_record(record);
        }
        let mut gradients = goldens.gradients(&model);
        clip(&model, &mut gradients);
        model = optimizer.step(LR, model, gradients);
        for (a, b) in flat(&model).iter().zip(expected) {
            assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "{name}, step {}: {a} instead of {b}", n + 1);
        }
    }
}

fn adamw(decay: f32) -> impl Optimizer<Model<B>, B> {
    AdamWConfig::new().with_weight_decay(decay).init::<B, Model<B>>()
}

fn sgd() -> SgdConfig {
    SgdConfig::new().with_momentum(Some(MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false }))
}

fn unclipped(_: &Model<B>, _: &mut GradientsParams) {}

#[test]
fn groups_have_rates_and_decays() {
    let make = || {
        let head = ParamGroup::new(["head.weight"], adamw(0.1), adamw(0.1)).with_lr_factor(10.0);
        ParamGroup::new(["*.bias"], adamw(0.0), head)
    };
    check("adamw_groups", make, unclipped);
    // The group that was made last comes first.
    let make = || {
        let head = ParamGroup::new(["head.*"], adamw(0.1), adamw(0.1)).with_lr_factor(10.0);
        ParamGroup::new(["body.bias", "head.bias"], adamw(0.0), head)
    };
    check("adamw_groups", make, unclipped);
}

#[test]
fn groups_have_optimizers() {
    let head = || sgd().init::<B, Model<B>>();
    check("two_optimizers", || ParamGroup::new(["head"], head(), adamw(0.1)).with_lr_factor(0.5), unclipped);
    check(
        "two_optimizers",
        || {
            ParamGroup::new(
                ["body.w*", "body.b???"],
                adamw(0.1),
                ParamGroup::new(["*"], head(), adamw(9.0)).with_lr_factor(0.5),
            )
        },
        unclipped,
    );
}

#[test]
fn gradients_are_bounded_as_in_pytorch() {
    let clipped = |clipping: GradientClippingConfig| {
        move || sgd().with_gradient_clipping(Some(clipping.clone())).init::<B, Model<B>>()
    };
    check("clip_value", clipped(GradientClippingConfig::Value(0.3)), unclipped);
    check("clip_norm", clipped(GradientClippingConfig::Norm(0.5)), unclipped);
    check(
        "clip_total_norm",
        || sgd().init::<B, Model<B>>(),
        |model, gradients| {
            let before = gradients.clip_total_norm(model, 0.5).expect("gradients");
            let after = gradients.clip_total_norm(model, 1e9).expect("gradients");
            let [before, after] = [before, after].map(|norm| norm.into_scalar());
            assert!((after - before.min(0.5)).abs() < 1e-5, "{before} {after}");
        },
    );
    assert!(GradientsParams::new().clip_total_norm(&Goldens::read().model(), 1.0).is_none());
}

#[test]
fn parts_of_a_model_are_selected() {
    let model = Goldens::read().model();
    assert_eq!(model.select_params("head").expect("some"), [model.head.weight.id, model.head.bias.id]);
    assert_eq!(model.select_params("*.bias").expect("some"), [model.body.bias.id, model.head.bias.id]);
    let error = model.select_params("tail.*").expect_err("none").to_string();
    assert!(
        error.contains("no parameter fits the pattern `tail.*`") && error.contains("body.weight"),
        "{error}"
    );
    let group = ParamGroup::new(["tail.*"], adamw(0.1), adamw(0.1));
    assert!(group.params::<B, _>(&model).is_err());
}

#[test]
#[should_panic(expected = "ParamGroup: no parameter fits the pattern `tail.*`")]
fn a_group_of_nothing_is_told() {
    let goldens = Goldens::read();
    let model = goldens.model();
    let gradients = goldens.gradients(&model);
    let mut group = ParamGroup::new(["tail.*"], adamw(0.1), adamw(0.1));
    group.step(LR, model, gradients);
}
