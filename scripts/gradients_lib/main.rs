// The program that `scripts/gradients.py` completes: a module for each network, and a run of each.
#![allow(clippy::all, dead_code, unused)]

use kiln::backend::{Autodiff, Host};
use kiln::optim::{GradientsParams, Optimizer, SgdConfig};
use kiln::tensor::backend::AutodiffBackend;
use kiln::tensor::{Int, Tensor, TensorData};
use kiln::weights::{AdapterType, save_weights};
use kiln_record::safetensors::Safetensors;
use std::path::Path;

type B = Autodiff<Host>;
type Gradients = <B as AutodiffBackend>::Gradients;

/// How far an element may be off, relative to the largest.
const TOLERANCE: f32 = 4e-3;

fn known(case: &str) -> Safetensors {
    Safetensors::open(&Path::new(CASES_FOLDER).join(case).join("known.safetensors")).unwrap()
}

fn numbers(data: &TensorData) -> Vec<f32> {
    data.iter::<f32>().collect()
}

fn compare(what: &str, found: &[f32], expected: &[f32], rounding: f32, wrong: &mut Vec<String>) {
    let largest = expected.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    let apart = apart.fold(0.0_f32, |most, x| if x.is_nan() { f32::INFINITY } else { most.max(x) });
    if found.len() != expected.len() || apart > TOLERANCE * largest + rounding {
        wrong.push(format!("{what} is off by {apart} of {largest}"));
    }
}

trait Input: Clone {
    fn of(data: TensorData) -> Self;
    fn gradient(&self, gradients: &Gradients) -> Option<TensorData>;
}

impl<const D: usize> Input for Tensor<B, D> {
    fn of(data: TensorData) -> Self {
        Tensor::from_data(data, &Default::default()).require_grad()
    }

    fn gradient(&self, gradients: &Gradients) -> Option<TensorData> {
        self.grad(gradients).map(|gradient| gradient.into_data())
    }
}

impl<const D: usize> Input for Tensor<B, D, Int> {
    fn of(data: TensorData) -> Self {
        Tensor::from_data(data, &Default::default())
    }

    fn gradient(&self, _: &Gradients) -> Option<TensorData> {
        None
    }
}

#[allow(non_camel_case_types)]
type floats<const D: usize> = Tensor<B, D>;
#[allow(non_camel_case_types)]
type words<const D: usize> = Tensor<B, D, Int>;

fn run(case: &str, check: fn() -> Vec<String>) {
    std::panic::set_hook(Box::new(|_| {}));
    let said = |panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<String>().cloned();
        vec![text.or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned())).unwrap_or_default()]
    };
    let wrong = std::panic::catch_unwind(check).unwrap_or_else(said);
    match wrong.is_empty() {
        true => println!("equal {case}"),
        false => println!("different {case}: {}", wrong.join("; ").replace('\n', " ")),
    }
}

macro_rules! case {
    ($name:ident, $case:literal, $kind:ident, $input:literal, $output:literal) => {
        mod $name {
            use super::*;

            mod model {
                include!(concat!(env!("OUT_DIR"), "/", $case, "/model.rs"));
            }

            pub fn check() -> Vec<String> {
                let (mut wrong, known) = (Vec::new(), known($case));
                let path = |name: &str| Path::new(CASES_FOLDER).join($case).join(name);
                let model = model::Model::<B>::default();
                save_weights(&model, path("before.safetensors"), AdapterType::PyTorch).unwrap();
                let x = <$kind<$input> as Input>::of(known.tensor("input").unwrap());
                let y: Tensor<B, $output> = model.forward(x.clone());
                let expected = numbers(&known.tensor("output").unwrap());
                compare("the output", &numbers(&y.clone().into_data()), &expected, 1e-5, &mut wrong);
                let weights = Tensor::from_data(known.tensor("weights").unwrap(), &Default::default());
                let gradients = (y * weights).sum().backward();
                if let Some(expected) = known.tensor("gradient_of_input") {
                    let found = x.gradient(&gradients).map_or_else(Vec::new, |data| numbers(&data));
                    compare("the input's gradient", &found, &numbers(&expected), 2e-5, &mut wrong);
                }
                let gradients = GradientsParams::from_grads(gradients, &model);
                let model = SgdConfig::new().init().step(1.0, model, gradients);
                save_weights(&model, path("after.safetensors"), AdapterType::PyTorch).unwrap();
                let [before, after] = ["before", "after"]
                    .map(|name| Safetensors::open(&path(&format!("{name}.safetensors"))).unwrap());
                for name in known.paths() {
                    let Some(key) = name.strip_prefix("gradient.") else { continue };
                    let (Some(before), Some(after)) = (before.tensor(key), after.tensor(key)) else {
                        wrong.push(format!("{key} was not saved"));
                        continue;
                    };
                    let (before, after) = (numbers(&before), numbers(&after));
                    let largest =
                        before.iter().chain(&after).fold(0.0_f32, |largest, x| largest.max(x.abs()));
                    let found: Vec<f32> =
                        before.iter().zip(&after).map(|(before, after)| before - after).collect();
                    let expected = numbers(&known.tensor(name).unwrap());
                    compare(key, &found, &expected, 2e-6 * largest + 2e-5, &mut wrong);
                }
                wrong
            }
        }
    };
}
