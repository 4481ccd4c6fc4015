//! Optimizers step all parameters of a model with few launches, whatever they do for each.

#![cfg(target_os = "linux")]

mod host;

use kiln_autodiff::Autodiff;
use kiln_core::module::{Param, ParamId};
use kiln_cuda::{Cuda, CudaDevice, statistics};
use kiln_ndarray::NdArray;
use kiln_optim::{AdamConfig, AdamWConfig, GradientClippingConfig, GradientsParams, Optimizer, SgdConfig};
use kiln_tensor::backend::Backend;
use kiln_tensor::{Tensor, TensorData};

/// Parameters of a model.
const COUNT: usize = 60;
/// Launches of a step, of two sizes of parameters that lie in one order each: each kernel in a table or two, and those that were seen first.
const MOST: u64 = 16;

type Model<B> = Vec<Param<Tensor<Autodiff<B>, 2>>>;

fn numbers<B: Backend>(n: usize, seed: usize) -> Tensor<B, 2> {
    let (rows, columns) = (n % 5 + 2, if n == 30 { 900 } else { n % 3 + 2 });
    let values: Vec<f32> =
        (0..rows * columns).map(|at| ((at * 31 + seed * 17) % 1009 % 9) as f32 - 4.5).collect();
    Tensor::from_data(TensorData::new(values, [rows, columns]), &B::Device::default())
}

fn model<B: Backend>() -> Model<B> {
    let parameter = |n| {
        Param::initialized(ParamId::from(n as u64), Tensor::from_inner(numbers::<B>(n, n)).require_grad())
    };
    (0..COUNT).map(parameter).collect()
}

/// The parameters after three steps, and what `count` says before the first, and after each.
fn steps<B: Backend, O: Optimizer<Model<B>, Autodiff<B>>>(
    mut optimizer: O,
    count: impl Fn() -> u64,
) -> (Vec<Vec<f32>>, Vec<u64>) {
    let (mut all, mut counts) = (model::<B>(), Vec::new());
    for step in 0..3 {
        let mut gradients = GradientsParams::new();
        for n in 0..COUNT {
            gradients.register(ParamId::from(n as u64), numbers::<B>(n, n + 7 * step + 1));
        }
        B::sync(&B::Device::default()).expect("a device");
        let before = count();
        all = optimizer.step(0.25, all, gradients);
        B::sync(&B::Device::default()).expect("a device");
        counts.push(count() - before);
    }
    let read =
        |parameter: Param<Tensor<Autodiff<B>, 2>>| parameter.val().into_data().to_vec().expect("floats");
    (all.into_iter().map(read).collect(), counts)
}

macro_rules! few_launches {
    ($($name:ident: $config:expr;)*) => {
        $(
            #[test]
            fn $name() {
                // Counts are the device's: each test has one of its own process, or waits for the others.
                let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let device = CudaDevice::default();
                let config = $config;
                let (own, launches) = steps::<Cuda, _>(config.init(), || statistics(&device).launches);
                let (expected, _) = steps::<NdArray, _>(config.init(), || 0);
                assert!(launches.iter().all(|&launches| launches <= MOST), "{launches:?}");
                for (own, expected) in own.into_iter().flatten().zip(expected.into_iter().flatten()) {
                    assert!((own - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{own} and not {expected}");
                }
            }
        )*
    };
}

static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

few_launches! {
    adam: AdamConfig::new();
    adam_w_with_the_largest_average: AdamWConfig::new().with_amsgrad(true);
    sgd: SgdConfig::new();
    sgd_of_clipped_values: SgdConfig::new().with_gradient_clipping(Some(GradientClippingConfig::Value(2.0)));
    adam_of_clipped_values: AdamConfig::new().with_grad_clipping(Some(GradientClippingConfig::Value(2.0)));
    adam_of_clipped_norms: AdamConfig::new().with_grad_clipping(Some(GradientClippingConfig::Norm(2.0)));
}
