//! The building blocks, block by block: what the chapters on tensors, modules, configs and records show, in a program
//! that uses the same names in the same way.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, ModuleMapper, Param, Quantizer};
use burn::nn::{Dropout, DropoutConfig, Gelu, Linear, LinearConfig};
use burn::record::{
    BinBytesRecorder, BinFileRecorder, BinGzFileRecorder, DefaultFileRecorder, DoublePrecisionSettings,
    FileRecorder, FullPrecisionSettings, HalfPrecisionSettings, JsonGzFileRecorder, NamedMpkFileRecorder,
    NamedMpkGzFileRecorder, PrecisionSettings, PrettyJsonFileRecorder, Recorder,
};
use burn::tensor::backend::Backend;
use burn::tensor::quantization::{Calibration, QuantizationMode, QuantizationScheme, QuantizationType};
use burn::tensor::{
    Bool, DType, Float, Int, PrintOptions, Tensor, TensorData, check_closeness, set_print_options,
};

// Whatever backend a chapter names.
type Wgpu = burn::backend::NdArray<f32, i32>;

#[test]
fn tensors_are_made_from_many_things() {
    type Backend = Wgpu;
    let device = Default::default();
    let floats = [1.0, 2.0, 3.0, 4.0, 5.0];
    let tensor_1 = Tensor::<Backend, 1>::from_floats(floats, &device);
    let tensor_2 = Tensor::<Backend, 1>::from_data(TensorData::from([1.0, 2.0, 3.0]), &device);
    let arr: [i32; 6] = [1, 2, 3, 4, 5, 6];
    let tensor_3 = Tensor::<Backend, 1, Int>::from_data(TensorData::from(&arr[0..3]), &device);
    assert_eq!((tensor_1.dims(), tensor_2.dims(), tensor_3.dims()), ([5], [3], [3]));
    assert_eq!(tensor_3.to_data().as_slice::<i32>().unwrap(), [1, 2, 3]);
    let mut data = tensor_2.into_data();
    data.as_mut_slice::<f32>().unwrap()[0] = 7.0;
    assert_eq!(data.to_vec::<f32>().unwrap(), [7.0, 2.0, 3.0]);
    assert_eq!(data.iter::<f64>().sum::<f64>(), 12.0);
    assert_eq!((data.shape.as_slice(), data.dtype), (&[3][..], DType::F32));

    let _: Tensor<Backend, 3, Float> = Tensor::zeros([1, 2, 3], &device);
    let _: Tensor<Backend, 3, Bool> = Tensor::<Backend, 3>::zeros([1, 2, 3], &device).bool();

    let input = Tensor::<Wgpu, 1>::from_floats([1.0, 2.0, 3.0, 4.0], &device);
    let min = input.clone().min();
    let max = input.clone().max();
    let input = (input.clone() - min.clone()).div(max - min);
    assert_eq!(format!("{}", input.to_data()), "[0.0, 0.33333334, 0.6666667, 1.0]");
}

/// One test, since the options are the process's.
#[test]
fn tensors_print_with_options() {
    let tensor = Tensor::<Wgpu, 2>::full([2, 3], 0.123456789, &Default::default());
    let printed = |data: &str| {
        let rest = "shape:  [2, 3],\n  device:  Cpu,\n  backend:  \"ndarray\",\n  kind:  \"Float\",\n  dtype:  \"f32\",";
        format!("Tensor {{\n  data:\n{data},\n  {rest}\n}}")
    };
    let row = "[0.12345679, 0.12345679, 0.12345679]";
    assert_eq!(format!("{tensor}"), printed(&format!("[{row},\n {row}]")));
    assert_eq!(format!("{tensor:.2}"), printed("[[0.12, 0.12, 0.12],\n [0.12, 0.12, 0.12]]"));
    let print_options = PrintOptions { precision: Some(2), ..Default::default() };
    set_print_options(print_options);
    assert_eq!(format!("{tensor}"), printed("[[0.12, 0.12, 0.12],\n [0.12, 0.12, 0.12]]"));
    set_print_options(PrintOptions { threshold: 4, edge_items: 1, precision: Some(1) });
    assert_eq!(format!("{tensor}"), printed("[[0.1, ..., 0.1],\n [0.1, ..., 0.1]]"));
    set_print_options(PrintOptions::default());
    let other = tensor.clone() + 1e-4;
    check_closeness(&tensor, &other);
}

#[derive(Module, Debug)]
#[module(custom_display)]
struct PositionWiseFeedForward<B: Backend> {
    linear_inner: Linear<B>,
    linear_outer: Linear<B>,
    dropout: Dropout,
    gelu: Gelu,
    scale: Param<Tensor<B, 1>>,
    constant: Tensor<B, 1>,
    kinds: Option<Param<Tensor<B, 1, Int>>>,
}

impl<B: Backend> ModuleDisplay for PositionWiseFeedForward<B> {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_show_all_attributes(false)
            .with_new_line_after_attribute(true)
            .with_show_num_parameters(true)
            .with_indentation_size(2)
            .with_show_param_id(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("linear_inner", &self.linear_inner)
            .add("linear_outer", &self.linear_outer)
            .add("anything", "anything_else")
            .optional()
    }
}

#[derive(Config)]
struct MyModuleConfig {
    d_model: usize,
    d_ff: usize,
    #[config(default = 0.1)]
    dropout: f64,
}

impl MyModuleConfig {
    /// Create a module on the given device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> PositionWiseFeedForward<B> {
        PositionWiseFeedForward {
            linear_inner: LinearConfig::new(self.d_model, self.d_ff).init(device),
            linear_outer: LinearConfig::new(self.d_ff, self.d_model).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            gelu: Gelu::new(),
            scale: Param::from_data([2.0], device).set_require_grad(false),
            constant: Tensor::ones([1], device),
            kinds: None,
        }
    }
}

impl<B: Backend> PositionWiseFeedForward<B> {
    /// Normal method added to a struct.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let x = self.linear_inner.forward(input);
        let x = self.gelu.forward(x);
        let x = self.dropout.forward(x);
        self.linear_outer.forward(x)
    }
}

#[test]
fn configs_build_and_are_saved() {
    let path = std::env::temp_dir().join(format!("book-config-{}.json", std::process::id()));
    let config = MyModuleConfig::new(512, 2048);
    assert_eq!((config.d_model, config.d_ff, config.dropout), (512, 2048, 0.1));
    let config = config.with_dropout(0.2);
    config.save(&path).unwrap();
    let loaded = MyModuleConfig::load(&path).expect("the config was just saved");
    assert_eq!(loaded.to_string(), config.to_string());
    assert_eq!(loaded.dropout, 0.2);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn module_methods() {
    let device = Default::default();
    let module = MyModuleConfig::new(4, 8).init::<Wgpu>(&device);
    assert_eq!(module.devices(), [device]);
    assert_eq!(module.num_params(), 40 + 36 + 1);
    let module = module.fork(&device).to_device(&device).no_grad();
    let x = Tensor::<Wgpu, 3>::ones([1, 2, 4], &device);
    let expected = module.forward(x.clone()).into_data();
    let record = module.clone().into_record();
    let other = MyModuleConfig::new(4, 8).init::<Wgpu>(&device).load_record(record);
    assert_eq!(other.forward(x).into_data(), expected);
    let text = module.to_string();
    let start = "PositionWiseFeedForward {\n  linear_inner: Linear {\n    d_input: 4\n    d_output: 8\n    bias: true\n";
    assert!(text.starts_with(start), "{text}");
    assert!(text.ends_with("  anything: anything_else\n  params: 77\n}"), "{text}");
}

/// Saves with a recorder, loads into a new module, and compares what both compute.
fn round_trip<R: FileRecorder<Wgpu>>(recorder: R, tolerance: f32) {
    let device = Default::default();
    let name = format!("book-record-{}-{}", std::process::id(), std::any::type_name::<R>().len());
    let path = std::env::temp_dir().join(name);
    let model = MyModuleConfig::new(4, 8).init::<Wgpu>(&device);
    let x = Tensor::<Wgpu, 2>::ones([2, 4], &device);
    let expected = model.forward(x.clone());
    model.clone().save_file(path.clone(), &recorder).expect("Should be able to save the model");
    let loaded = MyModuleConfig::new(4, 8).init::<Wgpu>(&device).load_file(path.clone(), &recorder, &device);
    let loaded = loaded.expect("Should be able to load the model weights from the provided file");
    let close = loaded.forward(x).all_close(expected, Some(f64::from(tolerance)), Some(f64::from(tolerance)));
    assert!(close, "{}", std::any::type_name::<R>());
    let record: PositionWiseFeedForwardRecord<Wgpu> = recorder.load(path.clone(), &device).unwrap();
    assert_eq!(record.scale.val().into_scalar(), 2.0);
    std::fs::remove_file(path.with_extension(R::file_extension())).unwrap();
}

fn every_file_recorder<S: PrecisionSettings>(tolerance: f32) {
    round_trip(DefaultFileRecorder::<S>::new(), tolerance);
    round_trip(NamedMpkFileRecorder::<S>::new(), tolerance);
    round_trip(NamedMpkGzFileRecorder::<S>::new(), tolerance);
    round_trip(BinFileRecorder::<S>::new(), tolerance);
    round_trip(BinGzFileRecorder::<S>::new(), tolerance);
    round_trip(JsonGzFileRecorder::<S>::new(), tolerance);
    round_trip(PrettyJsonFileRecorder::<S>::new(), tolerance);
}

#[test]
fn the_tables_of_recorders_and_settings() {
    every_file_recorder::<DoublePrecisionSettings>(0.0);
    every_file_recorder::<FullPrecisionSettings>(0.0);
    every_file_recorder::<HalfPrecisionSettings>(1e-2);
}

#[test]
fn bytes_in_the_program() {
    let device = Default::default();
    let model = MyModuleConfig::new(2, 3).init::<Wgpu>(&device);
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let bytes: Vec<u8> = recorder.record(model.clone().into_record(), ()).unwrap();
    let record = recorder.load(bytes.to_vec(), &device).expect("Should be able to load from bytes");
    let loaded = model.clone().load_record(record);
    assert_eq!(loaded.linear_inner.weight.val().into_data(), model.linear_inner.weight.val().into_data());
}

/// Brings quantized parameters back to floats.
struct Dequantize {}

impl<B: Backend> ModuleMapper<B> for Dequantize {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(Tensor::dequantize)
    }
}

#[test]
fn weights_are_quantized() {
    let device = Default::default();
    let model = MyModuleConfig::new(4, 8).init::<Wgpu>(&device);
    let exact = model.linear_inner.weight.val();
    let mut quantizer = Quantizer {
        calibration: Calibration::MinMax,
        scheme: QuantizationScheme::PerTensor(QuantizationMode::Symmetric, QuantizationType::QInt8),
    };
    let model = model.quantize_weights(&mut quantizer).map(&mut Dequantize {});
    let quantized = model.linear_inner.weight.val();
    let step = exact.clone().max_abs().into_scalar() / 127.0;
    let steps = (quantized.clone() / step).into_data();
    assert!(steps.iter::<f32>().all(|x| (x - x.round()).abs() < 1e-3), "{steps}");
    assert!((quantized - exact).max_abs().into_scalar() <= step * 0.51);
}

/// A structure of the user's own that holds tensors.
#[derive(serde::Serialize, serde::Deserialize)]
struct Sample {
    input: Tensor<Wgpu, 2>,
    labels: Tensor<Wgpu, 1, Int>,
}

#[test]
fn tensors_are_serialized_in_structures() {
    let device = Default::default();
    let input = Tensor::from_floats([[1.5, 2.5]], &device);
    let sample = Sample { input, labels: Tensor::from_ints([3, 4], &device) };
    let text = serde_json::to_string(&sample).unwrap();
    let read: Sample = serde_json::from_str(&text).unwrap();
    assert_eq!(read.input.into_data(), sample.input.into_data());
    assert_eq!(read.labels.into_data(), sample.labels.into_data());
}
