//! A training loop by hand: a linear layer learns `y = 2 x₀ - x₁ + 1` by descent with momentum.
//!
//! It needs no feature but a backend and `autodiff`: `cargo run -p kiln --example training_loop --features autodiff`.

use kiln::backend::{Autodiff, NdArray};
use kiln::grad_clipping::GradientClippingConfig;
use kiln::lr_scheduler::{LrScheduler, cosine::CosineAnnealingLrSchedulerConfig};
use kiln::nn::loss::{MseLoss, Reduction};
use kiln::nn::{Linear, LinearConfig};
use kiln::optim::{GradientsParams, MomentumConfig, SgdConfig};
use kiln::prelude::*;
use kiln::tensor::Distribution;

type B = Autodiff<NdArray>;

fn main() {
    let device = Default::default();
    B::seed(&device, 1);
    let mut model: Linear<B> = LinearConfig::new(2, 1).init(&device);
    let mut optim = SgdConfig::new()
        .with_momentum(Some(MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false }))
        .with_gradient_clipping(Some(GradientClippingConfig::Norm(1.0)))
        .init();
    let steps = 200;
    let schedule = CosineAnnealingLrSchedulerConfig::new(0.1, steps).init();
    let mut schedule = schedule.expect("a rate between 0 and 1 and more than no steps");

    for step in 0..steps {
        let x = Tensor::<B, 2>::random([32, 2], Distribution::Uniform(-1.0, 1.0), &device);
        let [x0, x1] = [0, 1].map(|i| x.clone().narrow(1, i, 1));
        let y = x0 * 2.0 - x1 + 1.0;
        let loss = MseLoss::new().forward(model.forward(x), y, Reduction::Mean);
        if step % 50 == 0 {
            println!("step {step:>3}: loss {:.5}", loss.clone().into_scalar());
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optim.step(schedule.step(), model, gradients);
    }
    println!("weight {:?}", model.weight.val().into_data().iter::<f32>().collect::<Vec<f32>>());
}
