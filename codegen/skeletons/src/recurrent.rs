//! Recurrent layers: PyTorch has one matrix for all gates, and all layers of a stack in one module.

use super::layers::{Layer, Leaves};
use kiln_types::layers;
use kiln_weights::LazyTensor;
use quote::quote;

/// A cell: its layers of one and of both directions. PyTorch's gates are those that the first joins.
struct Cell {
    one: &'static layers::Layer,
    both: &'static layers::Layer,
}

const CELLS: &[Cell] = &[
    Cell { one: &layers::RNN, both: &layers::BI_RNN },
    Cell { one: &layers::GRU, both: &layers::BI_GRU },
    Cell { one: &layers::LSTM, both: &layers::BI_LSTM },
];

/// One direction of one layer.
struct Direction {
    cell: &'static Cell,
    input: usize,
    hidden: usize,
    /// Of the input and of the hidden state: weight, bias.
    transforms: [(LazyTensor, Option<LazyTensor>); 2],
}

/// The layers of a stack, if all tensors belong to one that the runtime has.
pub(super) fn recognize(leaves: &Leaves<'_>) -> Option<Vec<Layer>> {
    if !leaves.pytorch {
        return None;
    }
    let mut layers = Vec::new();
    let mut taken = 0;
    while let Some(forward) = Direction::read(leaves, &format!("_l{}", layers.len()), &mut taken) {
        let reverse = Direction::read(leaves, &format!("_l{}_reverse", layers.len()), &mut taken);
        layers.push(layer(&forward, reverse.as_ref())?);
    }
    if let (true, Some(cell)) = (layers.is_empty(), Direction::read(leaves, "", &mut taken)) {
        let mut layer = layer(&cell, None)?;
        layer.said =
            Some(format!("one step of it is PyTorch's `{}Cell`", layer.declared.name.to_uppercase()));
        layers.push(layer);
    }
    (!layers.is_empty() && taken == leaves.tensors.len()).then_some(layers)
}

/// What is to be said about tensors that are those of a recurrent layer which the runtime has not.
pub(super) fn unknown(leaves: &Leaves<'_>) -> Option<String> {
    let has = |name: &str| leaves.get(&[name]).is_some();
    let projected = has("weight_ih_l0") && has("weight_hh_l0") && has("weight_hr_l0");
    projected.then(|| "an LSTM with projections (`proj_size`), which is no layer here".to_owned())
}

/// A layer of one or two directions.
fn layer(forward: &Direction, reverse: Option<&Direction>) -> Option<Layer> {
    let (input, hidden) = (forward.input, forward.hidden);
    let biased = |direction: &Direction| direction.transforms.iter().all(|(_, bias)| bias.is_some());
    let bias = biased(forward);
    let (declared, tensors) = match reverse {
        Some(reverse) => {
            let same = (reverse.input, reverse.hidden, biased(reverse)) == (input, hidden, bias)
                && reverse.cell.one == forward.cell.one;
            if !same {
                return None;
            }
            let mut tensors = forward.tensors("forward.")?;
            tensors.extend(reverse.tensors("reverse.")?);
            (forward.cell.both, tensors)
        }
        None => (forward.cell.one, forward.tensors("")?),
    };
    let mut layer = Layer::new(declared, quote!(new(#input, #hidden, #bias)), tensors);
    let each = if reverse.is_some() { " in each direction" } else { "" };
    layer.summary = format!("{input} to {hidden}{each}");
    layer.assumed = (forward.cell.one.joined.len() == 1).then(|| "tanh".to_owned());
    Some(layer)
}

impl Direction {
    /// The tensors of one ending; `taken` counts them.
    fn read(leaves: &Leaves<'_>, ending: &str, taken: &mut usize) -> Option<Self> {
        let get = |name: &str| leaves.get(&[&format!("{name}{ending}")]);
        let (of_input, of_hidden) = (get("weight_ih")?, get("weight_hh")?);
        let (&[rows, input], &[same_rows, hidden]) = (of_input.shape(), of_hidden.shape()) else {
            return None;
        };
        let gates = rows.checked_div(hidden)?;
        let cell = CELLS.iter().find(|cell| cell.one.joined.len() == gates)?;
        let (input_bias, hidden_bias) = (get("bias_ih"), get("bias_hh"));
        let biases = [input_bias, hidden_bias];
        let fits = biases.iter().flatten().all(|bias| bias.shape() == [rows]);
        if rows != gates * hidden
            || same_rows != rows
            || !fits
            || input_bias.is_some() != hidden_bias.is_some()
        {
            return None;
        }
        *taken += 2 + biases.iter().flatten().count();
        let transforms = [(of_input.clone(), input_bias.cloned()), (of_hidden.clone(), hidden_bias.cloned())];
        Some(Self { cell, input, hidden, transforms })
    }

    /// The parameters of Kiln's layer: a linear layer for each gate and operand.
    fn tensors(&self, prefix: &str) -> Option<Vec<(String, LazyTensor)>> {
        let mut tensors = Vec::new();
        for (index, gate) in self.cell.one.joined.iter().enumerate() {
            let gate = gate.field;
            for (transform, (weight, bias)) in layers::GATE_CONTROLLER.fields.iter().zip(&self.transforms) {
                let transform = transform.name;
                let part = |tensor: &LazyTensor| tensor.narrow(0, index * self.hidden, self.hidden);
                let path = format!("{prefix}{gate}.{transform}");
                tensors.push((format!("{path}.weight"), part(weight)?.transposed()?));
                if let Some(bias) = bias {
                    tensors.push((format!("{path}.bias"), part(bias)?));
                }
            }
        }
        Some(tensors)
    }
}
