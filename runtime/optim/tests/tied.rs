//! A parameter in two places of a module is one, as in PyTorch: its gradients add up, and a step moves it in both places.

use kiln_autodiff::Autodiff;
use kiln_core::Tensor;
use kiln_core::module::{Module, Param};
use kiln_core::tensor::backend::Backend;
use kiln_ndarray::NdArray;
use kiln_optim::*;

type Inner = NdArray<f64>;
type B = Autodiff<Inner>;

#[derive(Module, Debug)]
struct Tied<B: Backend> {
    words: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
    head: Param<Tensor<B, 2>>,
}

impl Tied<B> {
    fn new() -> Self {
        let words = Param::from_data([[1.0, -2.0], [3.0, 0.5]], &Default::default());
        let bias = Param::from_data([0.5, -0.5], &Default::default());
        Self { head: words.clone(), bias, words }
    }

    /// As a record leaves it: equal values in both places, but not one tensor.
    fn apart() -> Self {
        let tied = Self::new();
        let record = tied.clone().into_record();
        tied.load_record(record)
    }

    fn gradients(&self) -> GradientsParams {
        let (words, bias, head) = (self.words.val(), self.bias.val(), self.head.val());
        let loss = (words.clone() * words).sum() + (head * 3.0).sum() + bias.sum();
        GradientsParams::from_grads(loss.backward(), self)
    }
}

fn numbers<const D: usize>(param: &Param<Tensor<B, D>>) -> Vec<f64> {
    param.val().into_data().to_vec().expect("f64")
}

fn close(found: &[f64], expected: &[f64]) {
    let differ = found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 1e-6 * (1.0 + b.abs()));
    assert!(!differ && found.len() == expected.len(), "{found:?} instead of {expected:?}");
}

#[test]
fn a_step_moves_both_places() {
    for start in [Tied::new(), Tied::apart()] {
        let mut optimizer = SgdConfig::new().init::<B, Tied<B>>();
        let mut model = start;
        let mut expected = vec![1.0, -2.0, 3.0, 0.5];
        for _ in 0..3 {
            let gradients = model.gradients();
            assert_eq!(gradients.len(), 2);
            model = optimizer.step(0.1, model, gradients);
            expected.iter_mut().for_each(|w| *w -= 0.1 * (2.0 * *w + 3.0));
            close(&numbers(&model.words), &expected);
            assert_eq!(numbers(&model.head), numbers(&model.words));
            assert!(model.head.val().is_require_grad() && model.words.val().is_require_grad());
        }
        close(&numbers(&model.bias), &[0.2, -0.8]);
    }
}

/// As a teacher is, that a module keeps beside the student that it was once.
#[test]
fn a_frozen_place_stays() {
    let beginnings = [1.0, -2.0, 3.0, 0.5];
    let places = [Tied::apart().freeze("words"), Tied::apart().freeze("head")];
    for (model, gradient) in places.into_iter().zip([[3.0; 4], [2.0, -4.0, 6.0, 1.0]]) {
        let model = model.expect("a parameter");
        let frozen = [&model.words, &model.head].map(|place| !place.val().is_require_grad());
        let gradients = model.gradients();
        let model = SgdConfig::new().init::<B, Tied<B>>().step(0.1, model, gradients);
        let moved: Vec<f64> = beginnings.iter().zip(gradient).map(|(w, g)| w - 0.1 * g).collect();
        for (place, is_frozen) in [&model.words, &model.head].into_iter().zip(frozen) {
            close(&numbers(place), if is_frozen { &beginnings } else { &moved });
        }
        assert_eq!([&model.words, &model.head].map(|place| !place.val().is_require_grad()), frozen);
    }
}

/// It counts once in the norm of all, and is scaled once.
#[test]
fn the_total_norm_has_it_once() {
    let model = Tied::apart();
    let mut gradients = model.gradients();
    let squares: f64 = [5.0, -1.0, 9.0, 4.0, 1.0, 1.0].iter().map(|g| g * g).sum();
    let norm = gradients.clip_total_norm(&model, 1.0).expect("gradients").into_scalar();
    close(&[norm], &[squares.sqrt()]);
    let gradient = gradients.get::<Inner, 2>(model.words.id).expect("a gradient");
    let expected: Vec<f64> = [5.0, -1.0, 9.0, 4.0].iter().map(|g| g / squares.sqrt()).collect();
    close(&gradient.into_data().to_vec::<f64>().expect("f64"), &expected);
}
