//! Networks in other float dtypes than their files' on the CUDA backend; its kernels are what the host's compiler makes of them.
#![cfg(target_os = "linux")]

#[path = "../../../runtime/cuda/tests/host/mod.rs"]
mod host;

use kiln::golden::{Golden, Tolerance, compare};
use kiln::module::{Module, ModuleVisitor, Param};
use kiln::tensor::backend::Backend;
use kiln::tensor::{DType, Int, Tensor};
use kiln_cuda::Cuda;

/// Counts parameters by whether they have a dtype.
struct Counts {
    wanted: DType,
    wanted_count: usize,
    others: usize,
}

impl<B: Backend> ModuleVisitor<B> for Counts {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        *if param.val().dtype() == self.wanted { &mut self.wanted_count } else { &mut self.others } += 1;
    }
}

macro_rules! tests {
    ($($test:ident: $name:ident($rank:literal $($kind:ident)?) in $dtype:ident;)*) => {
        $(mod $name {
            include!(concat!(env!("OUT_DIR"), "/models/", stringify!($name), "/model.rs"));
        }

        #[test]
        fn $test() {
            let path = concat!(env!("OUT_DIR"), "/models/", stringify!($name), "/model.golden_0.safetensors");
            let golden = Golden::open(path).expect("golden data");
            let model = $name::Model::<Cuda>::default();
            let mut counts = Counts { wanted: DType::$dtype, wanted_count: 0, others: 0 };
            model.visit(&mut counts);
            assert!(counts.wanted_count > 3 && counts.others == 0, "{} others", counts.others);
            let input = golden.input(0).expect("an input");
            let x = Tensor::<Cuda, $rank $(, $kind)?>::from_data(input, &Default::default());
            let output = model.forward(x).into_data();
            // Inputs and outputs are the backend's.
            assert_eq!(output.dtype, DType::F32);
            let expected = golden.output(0).expect("an output");
            let tolerance = Tolerance::computed_in(DType::$dtype);
            let difference = compare(&output, &expected, tolerance).expect("the same shape");
            assert_eq!(difference.mismatches, 0, "{difference:?}");
            // In bf16 it would be nearer if it had computed in f32.
            assert!(DType::$dtype != DType::BF16 || difference.max_abs > 1e-4, "{difference:?}");
        })*
    };
}

tests! {
    convolutions_in_bf16: net_residual_cnn_bf16(4) in BF16;
    attention_in_bf16: net_gpt_decoder_bf16(2 Int) in BF16;
    recurrence_in_bf16: net_lstm_tagger_bf16(2 Int) in BF16;
    convolutions_in_f64: net_residual_cnn_f64(4) in F64;
    attention_in_f64: net_gpt_decoder_f64(2 Int) in F64;
    recurrence_in_f64: net_lstm_tagger_f64(2 Int) in F64;
}
