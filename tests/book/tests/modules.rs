//! The chapters on modules, configs and records.

use book_programs::{Model, ModelConfig};
use burn::backend::NdArray;
use burn::module::{Content, DisplaySettings, ModuleDisplay, ModuleMapper, ModuleVisitor, Param};
use burn::nn::{Gelu, Linear, LinearConfig};
use burn::prelude::*;
use burn::record::{
    BinBytesRecorder, BinFileRecorder, CompactRecorder, DefaultRecorder, FullPrecisionSettings,
    NamedMpkFileRecorder, Recorder,
};
use burn::tensor::Distribution;

type MyBackend = NdArray;

fn model() -> Model<MyBackend> {
    ModelConfig::new(10, 512).init(&Default::default())
}

#[test]
fn a_model_prints_its_structure() {
    let expected = "\
Model {
  conv1: Conv2d {stride: [1, 1], kernel_size: [3, 3], dilation: [1, 1], groups: 1, padding: Valid, params: 80}
  conv2: Conv2d {stride: [1, 1], kernel_size: [3, 3], dilation: [1, 1], groups: 1, padding: Valid, params: 1168}
  pool: AdaptiveAvgPool2d {output_size: [8, 8]}
  dropout: Dropout {prob: 0.5}
  linear1: Linear {d_input: 1024, d_output: 512, bias: true, params: 524800}
  linear2: Linear {d_input: 512, d_output: 10, bias: true, params: 5130}
  activation: Relu
  params: 531178
}";
    assert_eq!(model().to_string(), expected);
}

#[derive(Module, Debug)]
#[module(custom_display)]
struct FeedForward<B: Backend> {
    inner: Linear<B>,
    outer: Linear<B>,
    gelu: Gelu,
}

impl<B: Backend> FeedForward<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            inner: LinearConfig::new(4, 8).init(device),
            outer: LinearConfig::new(8, 4).with_bias(false).init(device),
            gelu: Gelu::new(),
        }
    }

    fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        self.outer.forward(self.gelu.forward(self.inner.forward(input)))
    }
}

impl<B: Backend> ModuleDisplay for FeedForward<B> {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_show_all_attributes(false)
            .with_new_line_after_attribute(true)
            .with_show_num_parameters(true)
            .with_indentation_size(4)
            .with_show_param_id(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content.add("inner", &self.inner).add("anything", "anything_else").optional()
    }
}

/// What a module sets holds for all that it contains, even where that has settings of its own.
#[test]
fn the_display_can_be_changed() {
    let module = FeedForward::<MyBackend>::new(&Default::default());
    let expected = "\
FeedForward {
    inner: Linear {
        d_input: 4
        d_output: 8
        bias: true
        params: 40
    }
    anything: anything_else
    params: 72
}";
    assert_eq!(module.to_string(), expected);
    let settings = DisplaySettings::new().with_show_all_attributes(true).with_new_line_after_attribute(false);
    let expected = "FeedForward {inner: Linear {weight: ParamTensor {rank: 2, shape: [4, 8], kind: float}, \
                    bias: ParamTensor {rank: 1, shape: [8], kind: float}, params: 40}, \
                    outer: Linear {weight: ParamTensor {rank: 2, shape: [8, 4], kind: float}, bias: None, \
                    params: 32}, gelu: Gelu, params: 72}";
    assert_eq!(module.format(settings), expected);
}

/// Clamps all float parameters.
struct Clamp {
    min: f32,
    max: f32,
}

impl<B: Backend> ModuleMapper<B> for Clamp {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| tensor.clamp(self.min, self.max))
    }
}

/// The largest absolute value of all float parameters.
struct Largest(f32);

impl<B: Backend> ModuleVisitor<B> for Largest {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0 = self.0.max(param.val().abs().max().into_scalar().elem());
    }
}

#[test]
fn mappers_and_visitors_see_all_parameters() {
    let module = FeedForward::<MyBackend>::new(&Default::default()).map(&mut Clamp { min: -0.01, max: 0.01 });
    let mut largest = Largest(0.0);
    module.visit(&mut largest);
    assert_eq!(largest.0, 0.01);
    assert_eq!(Module::<MyBackend>::devices(&module).len(), 1);
}

/// Asserts that two modules compute the same.
fn assert_same(one: &FeedForward<MyBackend>, other: &FeedForward<MyBackend>) {
    let input =
        Tensor::<MyBackend, 3>::random([2, 3, 4], Distribution::Normal(0.0, 1.0), &Default::default());
    assert_eq!(one.forward(input.clone()).into_data(), other.forward(input).into_data());
}

#[test]
fn a_module_is_saved_and_loaded() {
    let device = Default::default();
    let path = std::env::temp_dir().join(format!("book-model-{}", std::process::id()));
    let model = FeedForward::<MyBackend>::new(&device);

    let recorder = NamedMpkFileRecorder::<FullPrecisionSettings>::new();
    model.clone().save_file(path.clone(), &recorder).expect("Should be able to save the model");
    let loaded = FeedForward::<MyBackend>::new(&device)
        .load_file(path.clone(), &recorder, &device)
        .expect("Should be able to load the model weights from the provided file");
    assert_same(&model, &loaded);

    let record: FeedForwardRecord<MyBackend> = DefaultRecorder::new().load(path.clone(), &device).unwrap();
    assert_same(&model, &FeedForward::new(&device).load_record(record));

    let recorder = BinFileRecorder::<FullPrecisionSettings>::new();
    model.save_file(&path, &recorder).unwrap();
    let bytes = std::fs::read(path.with_extension("bin")).unwrap();
    let record = BinBytesRecorder::<FullPrecisionSettings>::default().load(bytes, &device).unwrap();
    assert_same(&model, &FeedForward::new(&device).load_record(record));

    let recorder = CompactRecorder::new();
    recorder.record(model.into_record(), path.clone()).unwrap();
    FeedForward::<MyBackend>::new(&device).load_file(&path, &recorder, &device).unwrap();

    for extension in ["mpk", "bin"] {
        std::fs::remove_file(path.with_extension(extension)).unwrap();
    }
}

#[test]
fn a_model_runs() {
    let images = Tensor::<MyBackend, 3>::random([2, 28, 28], Distribution::Default, &Default::default());
    assert_eq!(model().forward(images).dims(), [2, 10]);
}
