//! Recurrent networks. Weights are put into ONNX's order as PyTorch's exporter to ONNX does, so that layers keep their parameters.

use super::Table;
use super::norm::dropped;
use crate::pt2::call::{
    Call, Int, Outputs, Result, Tensor, flag, int, invalid, string, strings, unsupported,
};

pub(super) const RULES: Table = &[
    ("gru.input", |call| network(call, &GRU)),
    ("gru_cell.default", gru_cell),
    ("lstm.input", lstm),
    ("lstm_cell.default", lstm_cell),
    ("rnn_relu.input", |call| network(call, &RELU)),
    ("rnn_relu_cell.default", |call| simple_cell(call, "Relu")),
    ("rnn_tanh.input", |call| network(call, &TANH)),
    ("rnn_tanh_cell.default", |call| simple_cell(call, "Tanh")),
];

/// A kind of network.
struct Kind {
    operator: &'static str,
    /// The gates in ONNX's order, as they are numbered in PyTorch's.
    gates: &'static [i64],
    /// An activation that is not the operator's own.
    activation: Option<&'static str>,
    /// Whether there is a cell state besides the hidden one.
    cells: bool,
}

const LSTM: Kind = Kind { operator: "LSTM", gates: &[0, 3, 1, 2], activation: None, cells: true };
const GRU: Kind = Kind { operator: "GRU", gates: &[1, 0, 2], activation: None, cells: false };
const TANH: Kind = Kind { operator: "RNN", gates: &[0], activation: None, cells: false };
const RELU: Kind = Kind { operator: "RNN", gates: &[0], activation: Some("Relu"), cells: false };

/// The weights of one layer, those of each direction in turn.
struct Layer<'t> {
    inputs: Vec<&'t Tensor>,
    states: Vec<&'t Tensor>,
    /// Pairs: of the input, and of the state.
    biases: Vec<[&'t Tensor; 2]>,
}

fn layers(params: &[Tensor], count: usize, directions: usize, biased: bool) -> Result<Vec<Layer<'_>>> {
    let each = if biased { 4 } else { 2 };
    if params.len() != count.saturating_mul(directions * each) {
        return Err(invalid("params", format!("has {} tensors for {count} layers", params.len())));
    }
    Ok(params.chunks(each * directions).map(|params| layer(params, each)).collect())
}

/// The weights of a layer; each direction has so many.
fn layer(params: &[Tensor], each: usize) -> Layer<'_> {
    let mut layer = Layer { inputs: Vec::new(), states: Vec::new(), biases: Vec::new() };
    for direction in params.chunks(each) {
        if let [input, state, biases @ ..] = direction {
            layer.inputs.push(input);
            layer.states.push(state);
            if let [of_input, of_state] = biases {
                layer.biases.push([of_input, of_state]);
            }
        }
    }
    layer
}

fn network(call: &mut Call<'_, '_>, kind: &Kind) -> Result<Outputs> {
    let x = call.tensor("input")?;
    let hx = if kind.cells { call.tensors("hx")? } else { vec![call.tensor("hx")?] };
    let params = call.tensors("params")?;
    let directions: i64 = if call.bool_or("bidirectional", false)? { 2 } else { 1 };
    let batch_first = call.bool_or("batch_first", false)?;
    let biased = call.bool_or("has_biases", true)?;
    let ratio = call.float_or("dropout", 0.0)?;
    let training = call.bool_or("train", false)?;
    let count = usize::try_from(call.int_or("num_layers", 1)?).unwrap_or(0);
    let layers = layers(&params, count, usize::try_from(directions).unwrap_or(1), biased)?;
    let mut value = if batch_first { call.transpose(&x, &[1, 0, 2]) } else { x.name.clone() };
    let mut last: Vec<Vec<String>> = vec![Vec::new(); hx.len()];
    let number = i64::try_from(layers.len()).unwrap_or(i64::MAX);
    for (at, layer) in (0..).zip(&layers) {
        if at > 0 && ratio > 0.0 {
            value = dropped(call, &value, ratio, training);
        }
        let mut states = Vec::new();
        for state in &hx {
            states.push(if number == 1 {
                state.name.clone()
            } else {
                let range = [at, at + 1].map(|at: i64| Int::Known(at.saturating_mul(directions)));
                call.slice(state, 0, [&range[0], &range[1]], 1)
            });
        }
        let outputs = layer_output(call, kind, layer, &value, &states)?;
        let mut outputs = outputs.into_iter();
        let all = outputs.next().unwrap_or_default();
        value = if directions == 1 {
            call.squeeze(&all, &[1])
        } else {
            let all = call.transpose(&all, &[0, 2, 1, 3]);
            let joined = call.int64s(&[0, 0, -1]);
            call.op("Reshape", &[&all, &joined], Vec::new())
        };
        for (last, output) in last.iter_mut().zip(outputs) {
            last.push(output);
        }
    }
    if batch_first {
        value = call.transpose(&value, &[1, 0, 2]);
    }
    let mut results = vec![value];
    for states in last {
        results.push(joined(call, &states));
    }
    Ok(results)
}

fn lstm(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (states, params) = (call.tensors("hx")?, call.tensors("params")?);
    let biased = call.bool_or("has_biases", true)?;
    let directions: usize = if call.bool_or("bidirectional", false)? { 2 } else { 1 };
    let count = usize::try_from(call.int_or("num_layers", 1)?).unwrap_or(0);
    let each = if biased { 5 } else { 3 };
    match states.as_slice() {
        [hidden, cell] if params.len() == count.saturating_mul(directions * each) => {
            projected_lstm(call, [hidden, cell], &params, [directions, each])
        }
        _ => network(call, &LSTM),
    }
}

/// Steps that a network of projected states may have, of which ONNX has none: each step is written on its own.
const STEPS: i64 = 256;
/// Steps of all its layers and directions.
const ALL_STEPS: i64 = 16 * STEPS;

fn projected_lstm(
    call: &mut Call<'_, '_>,
    [hidden, cell]: [&Tensor; 2],
    params: &[Tensor],
    [directions, each]: [usize; 2],
) -> Result<Outputs> {
    let x = call.tensor("input")?;
    let batch_first = call.bool_or("batch_first", false)?;
    let ratio = call.float_or("dropout", 0.0)?;
    let training = call.bool_or("train", false)?;
    let passes = i64::try_from(params.len() / each).unwrap_or(i64::MAX);
    let fits = |&steps: &i64| steps <= STEPS && steps.saturating_mul(passes) <= ALL_STEPS;
    let steps = x.size(i64::from(batch_first)).filter(fits);
    let steps = steps.ok_or_else(|| {
        unsupported("recurrent networks with projections (`proj_size`) of sequences that are long, or whose length varies")
    })?;
    let mut value = if batch_first { call.transpose(&x, &[1, 0, 2]) } else { x.name.clone() };
    let mut last = [Vec::new(), Vec::new()];
    let mut at = 0;
    for (layer, params) in params.chunks(each * directions).enumerate() {
        if layer > 0 && ratio > 0.0 {
            value = dropped(call, &value, ratio, training);
        }
        let mut outputs = Vec::new();
        for (direction, params) in params.chunks(each).enumerate() {
            let index = call.int64(at);
            at += 1;
            let hidden = call.op("Gather", &[hidden, &index], vec![int("axis", 0)]);
            let cell = call.op("Gather", &[cell, &index], vec![int("axis", 0)]);
            let order: Vec<i64> =
                if direction == 0 { (0..steps).collect() } else { (0..steps).rev().collect() };
            let ([hidden, cell], all) = projected_steps(call, &value, [hidden, cell], params, &order)?;
            last[0].push(call.unsqueeze(&hidden, &[0]));
            last[1].push(call.unsqueeze(&cell, &[0]));
            outputs.push(all);
        }
        let all: Vec<&str> = outputs.iter().map(String::as_str).collect();
        value =
            if directions == 1 { outputs.concat() } else { call.op("Concat", &all, vec![int("axis", 2)]) };
    }
    if batch_first {
        value = call.transpose(&value, &[1, 0, 2]);
    }
    let [hidden, cell] = last;
    Ok(vec![value, joined(call, &hidden), joined(call, &cell)])
}

/// The states after all steps in an order, and the hidden ones after each.
fn projected_steps(
    call: &mut Call<'_, '_>,
    x: &str,
    [mut hidden, mut cell]: [String; 2],
    params: &[Tensor],
    order: &[i64],
) -> Result<([String; 2], String)> {
    let (input, state, biases, projection) = match params {
        [input, state, projection] => (input, state, None, projection),
        [input, state, of_input, of_state, projection] => {
            (input, state, Some([of_input, of_state]), projection)
        }
        _ => return Err(invalid("params", "does not have weights for all directions")),
    };
    let (input, state) = (call.transpose(input, &[1, 0]), call.transpose(state, &[1, 0]));
    let projection = call.transpose(projection, &[1, 0]);
    let mut of_input = call.op("MatMul", &[x, &input], Vec::new());
    for bias in biases.iter().flatten() {
        of_input = call.op("Add", &[&of_input, bias], Vec::new());
    }
    let mut all = Vec::new();
    for &step in order {
        let index = call.int64(step);
        let part = call.op("Gather", &[&of_input, &index], vec![int("axis", 0)]);
        let of_state = call.op("MatMul", &[&hidden, &state], Vec::new());
        let sum = call.op("Add", &[&part, &of_state], Vec::new());
        let [shown, next] = lstm_step(call, &sum, &cell);
        hidden = call.op("MatMul", &[&shown, &projection], Vec::new());
        cell = next;
        all.push((step, call.unsqueeze(&hidden, &[0])));
    }
    all.sort();
    let all: Vec<String> = all.into_iter().map(|(_, hidden)| hidden).collect();
    Ok(([hidden, cell], joined(call, &all)))
}

/// Values one after the other along the first axis.
fn joined(call: &mut Call<'_, '_>, values: &[String]) -> String {
    if let [only] = values {
        return only.clone();
    }
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    call.op("Concat", &values, vec![int("axis", 0)])
}

/// All outputs of a layer, and its last states.
fn layer_output(
    call: &mut Call<'_, '_>,
    kind: &Kind,
    layer: &Layer<'_>,
    x: &str,
    states: &[String],
) -> Result<Vec<String>> {
    let hidden = layer.states.first().and_then(|weight| weight.size(1));
    let hidden = hidden.ok_or_else(|| unsupported("recurrent networks whose hidden size varies"))?;
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for (weights, parts) in [&layer.inputs, &layer.states].into_iter().zip(&mut parts) {
        for weight in weights {
            let ordered = in_order(call, weight, kind.gates, hidden);
            parts.push(call.unsqueeze(&ordered, &[0]));
        }
    }
    for pair in &layer.biases {
        let [of_input, of_state] = pair.map(|bias| in_order(call, bias, kind.gates, hidden));
        let bias = call.op("Concat", &[&of_input, &of_state], vec![int("axis", 0)]);
        parts[2].push(call.unsqueeze(&bias, &[0]));
    }
    let [weights, recurrent, biases] = parts;
    let bidirectional = weights.len() > 1;
    let (weights, recurrent) = (joined(call, &weights), joined(call, &recurrent));
    let biases = if biases.is_empty() { String::new() } else { joined(call, &biases) };
    // The input of lengths, which all are those of the sequences, is left out.
    let mut inputs: Vec<&str> = vec![x, &weights, &recurrent, &biases, ""];
    inputs.extend(states.iter().map(String::as_str));
    let mut attributes = vec![
        int("hidden_size", hidden),
        string("direction", if bidirectional { "bidirectional" } else { "forward" }),
    ];
    if kind.operator == "GRU" {
        attributes.push(flag("linear_before_reset", true));
    }
    if let Some(activation) = kind.activation {
        let each = layer.inputs.iter().map(|_| activation);
        attributes.push(strings("activations", each));
    }
    Ok(call.ops(kind.operator, &inputs, attributes, 1 + states.len()))
}

/// Rows of gates in ONNX's order.
fn in_order(call: &mut Call<'_, '_>, weight: &Tensor, gates: &[i64], hidden: i64) -> String {
    if gates.len() == 1 {
        return weight.name.clone();
    }
    let mut parts = Vec::new();
    for &gate in gates {
        let range = [gate, gate + 1].map(|gate: i64| Int::Known(gate.saturating_mul(hidden)));
        parts.push(call.slice(weight, 0, [&range[0], &range[1]], 1));
    }
    joined(call, &parts)
}

// ---- cells ----

/// `x · weightᵀ + bias`.
fn projected(call: &mut Call<'_, '_>, x: &str, weight: &str, bias: &str) -> Result<String> {
    let weight = call.tensor(weight)?;
    let weight = call.transpose(&weight, &[1, 0]);
    let product = call.op("MatMul", &[x, &weight], Vec::new());
    Ok(match call.optional_tensor(bias)? {
        Some(bias) => call.op("Add", &[&product, &bias], Vec::new()),
        None => product,
    })
}

/// Equal parts of the last axis.
fn gates(call: &mut Call<'_, '_>, value: &str, count: usize) -> Vec<String> {
    let attributes = vec![int("axis", -1), int("num_outputs", i64::try_from(count).unwrap_or(i64::MAX))];
    call.ops("Split", &[value], attributes, count)
}

fn lstm_cell(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("input")?;
    let states = call.tensors("hx")?;
    let [hidden, cell] = states.as_slice() else { return Err(invalid("hx", "does not have two states")) };
    let of_input = projected(call, &x, "w_ih", "b_ih")?;
    let of_state = projected(call, hidden, "w_hh", "b_hh")?;
    let sum = call.op("Add", &[&of_input, &of_state], Vec::new());
    Ok(lstm_step(call, &sum, cell).to_vec())
}

/// The hidden state and the cell's, from the sums of all gates.
fn lstm_step(call: &mut Call<'_, '_>, sum: &str, cell: &str) -> [String; 2] {
    let gates = gates(call, sum, 4);
    let [input, forget, new, output] = gates.as_slice() else { return [String::new(), String::new()] };
    let (input, forget) =
        (call.op("Sigmoid", &[input], Vec::new()), call.op("Sigmoid", &[forget], Vec::new()));
    let (new, output) = (call.op("Tanh", &[new], Vec::new()), call.op("Sigmoid", &[output], Vec::new()));
    let kept = call.op("Mul", &[&forget, cell], Vec::new());
    let added = call.op("Mul", &[&input, &new], Vec::new());
    let cell = call.op("Add", &[&kept, &added], Vec::new());
    let shown = call.op("Tanh", &[&cell], Vec::new());
    [call.op("Mul", &[&output, &shown], Vec::new()), cell]
}

fn gru_cell(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, hidden) = (call.tensor("input")?, call.tensor("hx")?);
    let of_input = projected(call, &x, "w_ih", "b_ih")?;
    let of_state = projected(call, &hidden, "w_hh", "b_hh")?;
    let (of_input, of_state) = (gates(call, &of_input, 3), gates(call, &of_state, 3));
    let ([reset_x, update_x, new_x], [reset_h, update_h, new_h]) = (of_input.as_slice(), of_state.as_slice())
    else {
        return Ok(Vec::new());
    };
    let reset = call.op("Add", &[reset_x, reset_h], Vec::new());
    let reset = call.op("Sigmoid", &[&reset], Vec::new());
    let update = call.op("Add", &[update_x, update_h], Vec::new());
    let update = call.op("Sigmoid", &[&update], Vec::new());
    let kept = call.op("Mul", &[&reset, new_h], Vec::new());
    let new = call.op("Add", &[new_x, &kept], Vec::new());
    let new = call.op("Tanh", &[&new], Vec::new());
    let difference = call.op("Sub", &[&hidden, &new], Vec::new());
    let part = call.op("Mul", &[&update, &difference], Vec::new());
    Ok(vec![call.op("Add", &[&new, &part], Vec::new())])
}

fn simple_cell(call: &mut Call<'_, '_>, activation: &str) -> Result<Outputs> {
    let (x, hidden) = (call.tensor("input")?, call.tensor("hx")?);
    let of_input = projected(call, &x, "w_ih", "b_ih")?;
    let of_state = projected(call, &hidden, "w_hh", "b_hh")?;
    let sum = call.op("Add", &[&of_input, &of_state], Vec::new());
    Ok(vec![call.op(activation, &[&sum], Vec::new())])
}
