//! Parameters of every dtype through every recorder.
#![cfg(all(feature = "std", feature = "ndarray"))]
#![allow(missing_docs)]

use kiln::module::{Module, Param, ParamId};
use kiln::record::{
    BinBytesRecorder, BinFileRecorder, BinGzFileRecorder, DoublePrecisionSettings, FileRecorder,
    FullPrecisionSettings, HalfPrecisionSettings, JsonGzFileRecorder, NamedMpkFileRecorder,
    NamedMpkGzFileRecorder, PrecisionSettings, PrettyJsonFileRecorder, Recorder, load_named,
    load_safetensors_bytes, save_safetensors_bytes,
};
use kiln::tensor::backend::Backend;
use kiln::tensor::{Bool, DType, Int, Tensor, TensorData, TensorKind};

type Cpu = kiln::backend::NdArray;

#[derive(Module, Debug)]
struct Mixed<B: Backend> {
    usual: Param<Tensor<B, 1>>,
    double: Param<Tensor<B, 1>>,
    half: Param<Tensor<B, 1>>,
    brain: Param<Tensor<B, 1>>,
    long: Param<Tensor<B, 1, Int>>,
    short: Param<Tensor<B, 1, Int>>,
    byte: Param<Tensor<B, 1, Int>>,
    unsigned: Param<Tensor<B, 1, Int>>,
    truth: Param<Tensor<B, 1, Bool>>,
}

fn param<B: Backend, K: TensorKind<B>>(
    data: impl Into<TensorData>,
    dtype: DType,
    device: &B::Device,
) -> Param<Tensor<B, 1, K>>
where
    Tensor<B, 1, K>: kiln::module::Parameter,
{
    Param::initialized(ParamId::new(), Tensor::from_data_dtype(data, device, dtype))
}

impl<B: Backend> Mixed<B> {
    /// The dtypes are always the same; the values are zero or not.
    fn new(on: i64, device: &B::Device) -> Self {
        Self {
            // Beyond f16.
            usual: param([0.5 * on as f32, -3e38 * on as f32], DType::F32, device),
            double: param([0.25 * on as f64], DType::F64, device),
            half: param([1.5 * on as f32, f32::NEG_INFINITY], DType::F16, device),
            brain: param([1.5 * on as f32], DType::BF16, device),
            // Beyond i32, and the whole range.
            long: param([on * 5_000_000_000, on * i64::MAX], DType::I64, device),
            short: param([on * -300], DType::I16, device),
            byte: param([on * 200], DType::U8, device),
            unsigned: param([on as u64 * u64::MAX], DType::U64, device),
            truth: param([on == 1, false], DType::Bool, device),
        }
    }

    fn values(&self) -> Vec<TensorData> {
        vec![
            self.usual.val().into_data(),
            self.double.val().into_data(),
            self.half.val().into_data(),
            self.brain.val().into_data(),
            self.long.val().into_data(),
            self.short.val().into_data(),
            self.byte.val().into_data(),
            self.unsigned.val().into_data(),
            self.truth.val().into_data(),
        ]
    }
}

#[track_caller]
fn assert_loaded(loaded: &Mixed<Cpu>, how: &str) {
    let expected = Mixed::<Cpu>::new(1, &Default::default()).values();
    for (loaded, expected) in loaded.values().iter().zip(&expected) {
        assert_eq!(loaded, expected, "{how}");
    }
}

fn through<R: FileRecorder<Cpu>>(recorder: R, folder: &std::path::Path) {
    let device = Default::default();
    let path = folder.join("model");
    Mixed::<Cpu>::new(1, &device).save_file(&path, &recorder).unwrap();
    let loaded = Mixed::<Cpu>::new(0, &device).load_file(&path, &recorder, &device).unwrap();
    assert_loaded(&loaded, std::any::type_name::<R>());
}

fn every_recorder<S: PrecisionSettings>() {
    let device = Default::default();
    let folder = std::env::temp_dir().join(format!(
        "kiln-dtypes-{}-{}",
        std::process::id(),
        size_of::<S::FloatElem>()
    ));
    std::fs::create_dir_all(&folder).unwrap();
    through(NamedMpkFileRecorder::<S>::new(), &folder);
    let by_path = load_named(
        Mixed::<Cpu>::new(0, &device),
        folder.join("model"),
        kiln::record::Format::NamedMpk,
        &device,
    );
    assert_loaded(&by_path.unwrap(), "by path");
    through(NamedMpkGzFileRecorder::<S>::new(), &folder);
    through(BinFileRecorder::<S>::new(), &folder);
    through(BinGzFileRecorder::<S>::new(), &folder);
    through(JsonGzFileRecorder::<S>::new(), &folder);
    through(PrettyJsonFileRecorder::<S>::new(), &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    let recorder = BinBytesRecorder::<S>::default();
    let bytes: Vec<u8> = recorder.record(Mixed::<Cpu>::new(1, &device).into_record(), ()).unwrap();
    let record = recorder.load(bytes, &device).unwrap();
    assert_loaded(&Mixed::new(0, &device).load_record(record), "bytes");
}

#[test]
fn full_precision() {
    every_recorder::<FullPrecisionSettings>();
}

#[test]
fn double_precision() {
    every_recorder::<DoublePrecisionSettings>();
}

/// What these values lose in f16 is nothing.
#[test]
fn half_precision() {
    every_recorder::<HalfPrecisionSettings>();
}

#[test]
fn safetensors() {
    let device = Default::default();
    let bytes = save_safetensors_bytes(&Mixed::<Cpu>::new(1, &device)).unwrap();
    let loaded = load_safetensors_bytes(Mixed::<Cpu>::new(0, &device), bytes.leak(), &device).unwrap();
    assert_loaded(&loaded, "safetensors");
}

/// A dtype that is declared before there is a value is also that of the value.
#[test]
fn declared_dtypes() {
    let device = Default::default();
    let linear = kiln::nn::LinearConfig::new(2, 3).init::<Cpu>(&device).with_float_dtype(DType::F64);
    assert_eq!(linear.weight.val().dtype(), DType::F64);
    assert_eq!(linear.forward(Tensor::<Cpu, 2>::ones([1, 2], (&device, DType::F64))).dtype(), DType::F64);
    let half = linear.with_float_dtype(DType::F16);
    assert_eq!(half.bias.unwrap().val().dtype(), DType::F16);
}
