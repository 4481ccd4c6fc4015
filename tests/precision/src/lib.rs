//! Networks in other float dtypes than their files', and on backends with other default dtypes.
//!
//! The generated source holds the tests against what the network computed in PyTorch, in f32. Those here run one source on backends of
//! any default dtypes, and look at the dtypes of parameters.
#![cfg(test)]

use kiln::backend::NdArray;
use kiln::golden::{Golden, Tolerance, compare};
use kiln::module::{Module, ModuleVisitor, Param};
use kiln::tensor::backend::Backend;
use kiln::tensor::{DType, Element, Int, Precision, Tensor, TensorData, f16};
use kiln_backend_tests::required::{Narrow, Required};

include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// Parameters of other dtypes than the one wanted.
struct Others {
    wanted: DType,
    found: Vec<DType>,
    parameters: usize,
}

impl<B: Backend> ModuleVisitor<B> for Others {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.parameters += 1;
        self.found.extend(Some(param.val().dtype()).filter(|dtype| *dtype != self.wanted));
    }
}

#[track_caller]
fn assert_parameters<B: Backend>(model: &impl Module<B>, wanted: DType) {
    let mut others = Others { wanted, found: Vec::new(), parameters: 0 };
    model.visit(&mut others);
    assert!(
        others.parameters > 3 && others.found.is_empty(),
        "{:?} among {}",
        others.found,
        others.parameters
    );
}

/// What came out of a model for its golden input, in whatever dtype.
#[track_caller]
fn assert_golden<B: Backend>(golden: &Golden, output: TensorData) {
    let tolerance = Tolerance::computed_in(B::FloatElem::DTYPE);
    assert_eq!(output.dtype, B::FloatElem::DTYPE);
    let expected = golden.output(0).expect("an output");
    let difference =
        compare(&output.convert_dtype(DType::F32), &expected, tolerance).expect("the same shape");
    assert_eq!(difference.mismatches, 0, "{difference:?}");
}

/// Makes a model's function that runs it on a backend as its golden data says.
macro_rules! run {
    ($name:ident($rank:literal $($kind:ident)?)) => {
        fn $name<B: Backend>() {
            let path = concat!(env!("OUT_DIR"), "/models/", stringify!($name), "/model.golden_0.safetensors");
            let golden = Golden::open(path).expect("golden data");
            let model = $name::Model::<B>::default();
            let data = golden.input(0).expect("an input");
            let x = Tensor::<B, $rank $(, $kind)?>::from_data(data, &B::Device::default());
            assert_golden::<B>(&golden, model.forward(x).into_data());
            assert_parameters(&model, B::FloatElem::DTYPE);
        }
    };
}

run!(net_residual_cnn(4));
run!(net_gpt_decoder(2 Int));
run!(net_lstm_tagger(2 Int));

/// The source that names no dtypes runs with a backend's.
macro_rules! on {
    ($($backend:ident: $ty:ty;)*) => {
        $(mod $backend {
            use super::*;

            #[test]
            fn convolutions() {
                net_residual_cnn::<$ty>();
            }

            #[test]
            fn attention() {
                net_gpt_decoder::<$ty>();
            }

            #[test]
            fn recurrence() {
                net_lstm_tagger::<$ty>();
            }
        })*
    };
}

on! {
    double: NdArray<f64, i32>;
    half: NdArray<f16, i32>;
    few_dtypes: Required<NdArray<f32, i32>, Narrow>;
}

/// Powers, roots and logarithms of integers need no f64.
#[test]
fn roots_of_integers_without_f64() {
    type Few = Required<NdArray<f32, i32>, Narrow>;
    let path = concat!(env!("OUT_DIR"), "/models/roots/model.golden_0.safetensors");
    let golden = Golden::open(path).expect("golden data");
    let device = Default::default();
    let i = Tensor::<Few, 2, Int>::from_data(golden.input(0).expect("integers"), &device);
    let y = Tensor::<Few, 1>::from_data(golden.input(1).expect("exponents"), &device);
    let (square, whole, root, given, negative, l2, log, log_exp, squares, l1) =
        roots::Model::<Few>::default().forward(i, y);
    let matrices = [square, whole, root, given, negative].map(Tensor::into_data);
    let vectors = [l2, log, log_exp, squares, l1].map(Tensor::into_data);
    for (n, actual) in matrices.into_iter().chain(vectors).enumerate() {
        golden.assert_output(n, &actual, Tolerance::default());
    }
}

/// The generated tests hold products of bf16 against the golden data; here they differ from products of f32, and nothing else does.
#[test]
fn products_of_bf16_are_rounded() {
    let path = concat!(env!("OUT_DIR"), "/models/net_residual_cnn_products/model.golden_0.safetensors");
    let golden = Golden::open(path).expect("golden data");
    let x = Tensor::<NdArray, 4>::from_data(golden.input(0).expect("an input"), &Default::default());
    let model = net_residual_cnn_products::Model::<NdArray>::default();
    assert_parameters(&model, DType::F32);
    let outputs = [model.forward(x.clone()), net_residual_cnn::Model::<NdArray>::default().forward(x)];
    let [rounded, exact] = outputs.map(Tensor::into_data);
    assert_eq!(rounded.dtype, DType::F32);
    let tolerance = Tolerance::products_of(Precision::Bf16);
    let difference = compare(&rounded, &exact, tolerance).expect("the same shape");
    assert_eq!(difference.mismatches, 0, "{difference:?}");
    assert!(difference.max_abs > 1e-5, "{difference:?}");
}

/// Every record keeps the dtype, on backends of whichever default.
macro_rules! parameters {
    ($($name:ident: $dtype:ident)*) => {
        #[test]
        fn parameters_have_the_dtype_that_was_asked_for() {
            $(
                assert_parameters(&$name::Model::<NdArray>::default(), DType::$dtype);
                assert_parameters(&$name::Model::<NdArray<f64, i32>>::default(), DType::$dtype);
            )*
        }
    };
}

parameters! {
    net_residual_cnn_f16_safetensors: F16
    net_residual_cnn_f16_named_mpk: F16
    net_residual_cnn_f16_named_mpk_gz: F16
    net_residual_cnn_f16_pretty_json: F16
    net_residual_cnn_f16_bincode: F16
    net_gpt_decoder_f16_safetensors: F16
    net_gpt_decoder_f16_bincode: F16
    net_lstm_tagger_f16_safetensors: F16
    net_lstm_tagger_f16_named_mpk: F16
    net_lstm_tagger_bf16: BF16
    net_lstm_tagger_f64: F64
}

/// A model in f16 is called like any other, with the backend's floats.
#[test]
fn a_narrow_model_runs_on_a_wide_backend() {
    type Wide = NdArray<f64, i32>;
    let path = concat!(env!("OUT_DIR"), "/models/net_gpt_decoder_f16_safetensors/model.golden_0.safetensors");
    let golden = Golden::open(path).expect("golden data");
    let x = Tensor::<Wide, 2, Int>::from_data(golden.input(0).expect("an input"), &Default::default());
    let y = net_gpt_decoder_f16_safetensors::Model::<Wide>::default().forward(x);
    assert_eq!(y.dtype(), DType::F64);
    let expected = golden.output(0).expect("an output");
    let actual = y.into_data().convert_dtype(DType::F32);
    let difference = compare(&actual, &expected, Tolerance::computed_in(DType::F16)).expect("the same shape");
    assert_eq!(difference.mismatches, 0, "{difference:?}");
    // It did compute in f16: f64 would be nearer.
    assert!(difference.max_abs > 1e-5, "{difference:?}");
}
