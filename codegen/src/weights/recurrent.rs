//! Recurrent layers: PyTorch has one matrix for all gates, and all layers of a stack in one module.

use super::layers::{Layer, Leaves};
use kiln_weights::LazyTensor;
use quote::quote;

/// The gates in PyTorch's order.
const LSTM_GATES: &[&str] = &["input_gate", "forget_gate", "cell_gate", "output_gate"];
const GRU_GATES: &[&str] = &["reset_gate", "update_gate", "new_gate"];

/// One direction of one layer.
struct Direction {
    gates: &'static [&'static str],
    input: usize,
    hidden: usize,
    /// Of the input and of the hidden state: weight, bias.
    transforms: [(LazyTensor, Option<LazyTensor>); 2],
}

/// The layers of a stack, if all tensors belong to one that Kiln has.
pub(super) fn recognize(leaves: &Leaves<'_>) -> Option<Vec<Layer>> {
    if !leaves.pytorch {
        return None;
    }
    let mut layers = Vec::new();
    let mut taken = 0;
    while let Some(forward) = Direction::read(leaves, &format!("_l{}", layers.len()), &mut taken) {
        let reverse = Direction::read(leaves, &format!("_l{}_reverse", layers.len()), &mut taken);
        layers.push(layer(forward, reverse)?);
    }
    (!layers.is_empty() && taken == leaves.tensors.len()).then_some(layers)
}

/// A layer of one or two directions. Kiln has no GRU of two.
fn layer(forward: Direction, reverse: Option<Direction>) -> Option<Layer> {
    let (input, hidden) = (forward.input, forward.hidden);
    let bias = forward.transforms.first()?.1.is_some();
    let config = quote!(new(#input, #hidden, #bias));
    let lstm = forward.gates.len() == LSTM_GATES.len();
    let (name, path, tensors) = match reverse {
        Some(reverse) => {
            if !lstm || (reverse.input, reverse.hidden) != (input, hidden) || reverse.gates != forward.gates {
                return None;
            }
            let mut tensors = forward.tensors("forward.")?;
            tensors.extend(reverse.tensors("reverse.")?);
            ("BiLstm", "nn::BiLstm", tensors)
        }
        None if lstm => ("Lstm", "nn::Lstm", forward.tensors("")?),
        None => ("Gru", "nn::Gru", forward.tensors("")?),
    };
    Some(Layer { name, path, config, tensors, assumed: None })
}

impl Direction {
    /// The tensors of one ending; `taken` counts them.
    fn read(leaves: &Leaves<'_>, ending: &str, taken: &mut usize) -> Option<Self> {
        let get = |name: &str| leaves.get(&[&format!("{name}{ending}")]);
        let (of_input, of_hidden) = (get("weight_ih")?, get("weight_hh")?);
        let (&[rows, input], &[same_rows, hidden]) = (of_input.shape(), of_hidden.shape()) else {
            return None;
        };
        let gates = match rows.checked_div(hidden)? {
            4 => LSTM_GATES,
            3 => GRU_GATES,
            _ => return None,
        };
        let (input_bias, hidden_bias) = (get("bias_ih"), get("bias_hh"));
        let biases = [input_bias, hidden_bias];
        let fits = biases.iter().flatten().all(|bias| bias.shape() == [rows]);
        if rows != gates.len() * hidden
            || same_rows != rows
            || !fits
            || input_bias.is_some() != hidden_bias.is_some()
        {
            return None;
        }
        *taken += 2 + biases.iter().flatten().count();
        let transforms = [(of_input.clone(), input_bias.cloned()), (of_hidden.clone(), hidden_bias.cloned())];
        Some(Self { gates, input, hidden, transforms })
    }

    /// The parameters of Kiln's layer: a linear layer for each gate and operand.
    fn tensors(&self, prefix: &str) -> Option<Vec<(String, LazyTensor)>> {
        let mut tensors = Vec::new();
        for (index, gate) in self.gates.iter().enumerate() {
            for (transform, (weight, bias)) in
                ["input_transform", "hidden_transform"].iter().zip(&self.transforms)
            {
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
