//! Recurrent layers against their equations, gate by gate: what the comparison with PyTorch's layers leaves out.
#![cfg(feature = "ndarray")]
#![allow(missing_docs)]

use kiln::module::{Module, Param};
use kiln::nn::{
    ActivationConfig, BiGruConfig, BiLstmConfig, GateController, Gru, GruConfig, HardSigmoidConfig,
    LeakyReluConfig, Lstm, LstmConfig, LstmState, PReluConfig, Rnn, RnnConfig, RnnState,
};
use kiln::tensor::{Distribution, Tensor, TensorData, Tolerance};

type B = kiln::backend::NdArray;

const BATCH: usize = 2;
const SEQ: usize = 5;
const INPUT: usize = 3;
const HIDDEN: usize = 4;

fn random<const D: usize>(dims: [usize; D]) -> Tensor<B, D> {
    Tensor::random(dims, Distribution::Uniform(-1.0, 1.0), &Default::default())
}

fn step(x: &Tensor<B, 3>, t: usize) -> Tensor<B, 2> {
    x.clone().slice([0..BATCH, t..t + 1]).reshape([BATCH, INPUT])
}

/// Every step's hidden state from `[batch, seq, input]` and a function of the step's input and the state.
fn scan<S>(
    x: &Tensor<B, 3>,
    reverse: bool,
    mut state: S,
    next: impl Fn(Tensor<B, 2>, S) -> S,
    hidden: impl Fn(&S) -> Tensor<B, 2>,
) -> (Tensor<B, 3>, S) {
    let mut outputs = Vec::new();
    for n in 0..SEQ {
        state = next(step(x, if reverse { SEQ - 1 - n } else { n }), state);
        outputs.push(hidden(&state));
    }
    if reverse {
        outputs.reverse();
    }
    (Tensor::stack(outputs, 1), state)
}

fn lstm(layer: &Lstm<B>, x: &Tensor<B, 3>, first: LstmState<B, 2>) -> (Tensor<B, 3>, LstmState<B, 2>) {
    let next = |x: Tensor<B, 2>, LstmState { cell, hidden }: LstmState<B, 2>| {
        let gate = |gate: &GateController<B>| gate.gate_product(x.clone(), hidden.clone());
        let input = layer.gate_activation.forward(gate(&layer.input_gate));
        let forget = match layer.input_forget {
            true => input.clone().neg() + 1.0,
            false => layer.gate_activation.forward(gate(&layer.forget_gate)),
        };
        let candidate = layer.cell_activation.forward(gate(&layer.cell_gate));
        let cell = forget * cell + input * candidate;
        let cell = layer.clip.map_or(cell.clone(), |clip| cell.clamp(-clip, clip));
        let output = layer.gate_activation.forward(gate(&layer.output_gate));
        LstmState::new(cell.clone(), output * layer.hidden_activation.forward(cell))
    };
    scan(x, layer.reverse, first, next, |state| state.hidden.clone())
}

fn gru(layer: &Gru<B>, x: &Tensor<B, 3>, first: Tensor<B, 2>) -> Tensor<B, 3> {
    let next = |x: Tensor<B, 2>, h: Tensor<B, 2>| {
        let gate = |gate: &GateController<B>| {
            kiln::tensor::activation::sigmoid(gate.gate_product(x.clone(), h.clone()))
        };
        let (update, reset) = (gate(&layer.update_gate), gate(&layer.reset_gate));
        let (from_input, from_hidden) = (&layer.new_gate.input_transform, &layer.new_gate.hidden_transform);
        let past = match layer.reset_after {
            true => reset * from_hidden.forward(h.clone()),
            false => from_hidden.forward(reset * h.clone()),
        };
        let new = (from_input.forward(x) + past).tanh();
        (update.clone().neg() + 1.0) * new + update * h
    };
    scan(x, false, first, next, Clone::clone).0
}

fn rnn(layer: &Rnn<B>, x: &Tensor<B, 3>, first: Tensor<B, 2>) -> (Tensor<B, 3>, Tensor<B, 2>) {
    let next = |x, h| {
        let h = layer.hidden_activation.forward(layer.gate.gate_product(x, h));
        layer.clip.map_or(h.clone(), |clip| h.clamp(-clip, clip))
    };
    scan(x, layer.reverse, first, next, Clone::clone)
}

#[track_caller]
fn agree<const D: usize>(found: Tensor<B, D>, expected: Tensor<B, D>) {
    let tolerance = Tolerance::<f32>::absolute(1e-5);
    found.into_data().assert_approx_eq::<f32>(&expected.into_data(), tolerance);
}

/// A state whose elements differ from each other.
fn state() -> Tensor<B, 2> {
    random([BATCH, HIDDEN])
}

#[test]
fn an_lstm_with_every_option_computes_its_equations() {
    let x = random([BATCH, SEQ, INPUT]);
    let leaky = ActivationConfig::LeakyRelu(LeakyReluConfig { negative_slope: 0.3 });
    let plain = LstmConfig::new(INPUT, HIDDEN, true);
    let configs = [
        plain.clone(),
        LstmConfig::new(INPUT, HIDDEN, false),
        plain.clone().with_reverse(true).with_clip(Some(0.2)),
        plain.clone().with_input_forget(true).with_cell_activation(leaky.clone()),
        plain.clone().with_gate_activation(ActivationConfig::HardSigmoid(HardSigmoidConfig::new())),
        // Its slopes are parameters: no operation applies it on its way.
        plain.with_clip(Some(0.3)).with_hidden_activation(ActivationConfig::PRelu(PReluConfig::new())),
    ];
    for config in configs {
        for batch_first in [true, false] {
            let layer = config.clone().with_batch_first(batch_first).init::<B>(&Default::default());
            let first = LstmState::new(state(), state());
            let (expected, last) = lstm(&layer, &x, first.clone());
            let turned = |x: Tensor<B, 3>| if batch_first { x } else { x.swap_dims(0, 1) };
            let (output, found) = layer.forward(turned(x.clone()), Some(first));
            agree(turned(output), expected);
            agree(found.cell, last.cell);
            agree(found.hidden, last.hidden);
        }
    }
}

#[test]
fn functions_that_learn_equal_those_that_do_not() {
    let x = random([BATCH, SEQ, INPUT]);
    let config = |activation| RnnConfig::new(INPUT, HIDDEN, true).with_hidden_activation(activation);
    let fixed = ActivationConfig::LeakyRelu(LeakyReluConfig { negative_slope: 0.25 });
    let mut fixed = config(fixed).with_clip(Some(0.4)).init::<B>(&Default::default());
    let learns = ActivationConfig::PRelu(PReluConfig::new());
    let mut learns = config(learns).with_clip(Some(0.4)).init::<B>(&Default::default());
    learns.gate = fixed.gate.clone();
    for reverse in [false, true] {
        (fixed.reverse, learns.reverse) = (reverse, reverse);
        let first = state();
        let (expected, last) = rnn(&fixed, &x, first.clone());
        for layer in [&fixed, &learns] {
            let (output, found) = layer.forward(x.clone(), Some(RnnState::new(first.clone())));
            agree(output, expected.clone());
            agree(found.hidden, last.clone());
        }
    }
}

#[test]
fn a_gru_resets_before_or_after_its_matrix() {
    let x = random([BATCH, SEQ, INPUT]);
    for reset_after in [false, true] {
        for bias in [false, true] {
            let config = GruConfig::new(INPUT, HIDDEN, bias).with_reset_after(reset_after);
            let mut layer = config.init::<B>(&Default::default());
            let first = state();
            agree(layer.forward(x.clone(), Some(first.clone())), gru(&layer, &x, first.clone()));
            // A gate may have one bias of two.
            layer.new_gate.hidden_transform.bias = Some(Param::from_tensor(random([HIDDEN])));
            agree(layer.forward(x.clone(), Some(first.clone())), gru(&layer, &x, first));
        }
    }
}

/// The gates' weights are joined once; a layer that gets another parameter must not compute with the old ones.
#[test]
fn another_parameter_is_used_from_then_on() {
    let x = random([BATCH, SEQ, INPUT]);
    let zeros = || LstmState::new(Tensor::zeros([BATCH, HIDDEN], &Default::default()), state() * 0.0);
    let mut layer = LstmConfig::new(INPUT, HIDDEN, true).init::<B>(&Default::default());
    let check = |layer: &Lstm<B>| {
        let expected = lstm(layer, &x, zeros()).0;
        // The second time with what the first one kept.
        for _ in 0..2 {
            agree(layer.forward(x.clone(), None).0, expected.clone());
        }
        expected.into_data()
    };
    let mut results: Vec<TensorData> = vec![check(&layer)];
    layer.cell_gate.hidden_transform.weight = Param::from_tensor(random([HIDDEN, HIDDEN]));
    results.push(check(&layer));
    let clone = layer.clone();
    layer.output_gate.input_transform.bias =
        layer.output_gate.input_transform.bias.map(|bias| bias.map(|b| b + 1.0));
    results.push(check(&layer));
    layer =
        layer.load_record(LstmConfig::new(INPUT, HIDDEN, true).init::<B>(&Default::default()).into_record());
    results.push(check(&layer));
    layer.forget_gate.input_transform.bias = None;
    results.push(check(&layer));
    for (n, result) in results.iter().enumerate() {
        assert!(results[..n].iter().all(|other| other != result), "the change before {n} did nothing");
    }
    assert_eq!(check(&clone), results[1], "a clone keeps its parameters");
}

#[test]
fn directions_agree_with_two_layers() {
    let x = random([BATCH, SEQ, INPUT]);
    let device = Default::default();
    let lstm = BiLstmConfig::new(INPUT, HIDDEN, true).init::<B>(&device);
    let states = LstmState::new(random([2, BATCH, HIDDEN]), random([2, BATCH, HIDDEN]));
    let of = |states: &Tensor<B, 3>, n: usize| states.clone().narrow(0, n, 1).reshape([BATCH, HIDDEN]);
    let first = |n| LstmState::new(of(&states.cell, n), of(&states.hidden, n));
    let there = lstm.forward.forward(x.clone(), Some(first(0)));
    let mut backwards = lstm.reverse.clone();
    backwards.reverse = true;
    let back = backwards.forward(x.clone(), Some(first(1)));
    let (output, last) = lstm.forward(x.clone(), Some(states.clone()));
    agree(output, Tensor::cat(vec![there.0, back.0], 2));
    agree(last.cell, Tensor::stack(vec![there.1.cell, back.1.cell], 0));
    agree(last.hidden, Tensor::stack(vec![there.1.hidden, back.1.hidden], 0));

    let gru = BiGruConfig::new(INPUT, HIDDEN, true).with_batch_first(false).init::<B>(&device);
    let (output, last) = gru.forward(x.clone().swap_dims(0, 1), Some(states.hidden.clone()));
    let there = gru.forward.forward(x.clone(), Some(of(&states.hidden, 0)));
    let back = gru.reverse.forward(x.flip([1]), Some(of(&states.hidden, 1))).flip([1]);
    agree(output.swap_dims(0, 1), Tensor::cat(vec![there.clone(), back.clone()], 2));
    let end = |x: Tensor<B, 3>, t: usize| x.slice([0..BATCH, t..t + 1]).reshape([BATCH, HIDDEN]);
    agree(last, Tensor::stack(vec![end(there, SEQ - 1), end(back, 0)], 0));
}

#[test]
fn no_steps_leave_the_state() {
    let device = Default::default();
    let x = Tensor::<B, 3>::zeros([BATCH, 0, INPUT], &device);
    let first = LstmState::new(state(), state());
    let (output, last) =
        LstmConfig::new(INPUT, HIDDEN, true).init::<B>(&device).forward(x.clone(), Some(first.clone()));
    assert_eq!(output.dims(), [BATCH, 0, HIDDEN]);
    agree(last.cell, first.cell);
    agree(last.hidden, first.hidden);
    let gru = GruConfig::new(INPUT, HIDDEN, false).init::<B>(&device).forward(x, None);
    assert_eq!(gru.dims(), [BATCH, 0, HIDDEN]);
}

/// It is the input that is wrong, not the layer's weight.
#[test]
#[should_panic(
    expected = "rnn: the last dim of the input [2, 1, 4] does not fit a weight [1, 8, 3], which takes 3"
)]
fn an_input_of_another_width_is_named() {
    let device = Default::default();
    let layer = LstmConfig::new(3, 2, true).init::<B>(&device);
    let _ = layer.forward(Tensor::ones([2, 1, 4], &device), None);
}
