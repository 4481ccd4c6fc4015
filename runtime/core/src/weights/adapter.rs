//! What other frameworks call a layer's parameters, and how they lay them out.

use alloc::{format, string::String, vec, vec::Vec};
use kiln_types::in_pytorch;
use kiln_types::layers::{GATE_CONTROLLER, Layer, MULTI_HEAD_ATTENTION, Slot};
use kiln_weights::LazyTensor;

/// Whose conventions a file's tensors follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdapterType {
    /// PyTorch's: a `Linear`'s weight is `[d_output, d_input]`, a norm has `weight` and `bias`, a recurrent layer one
    /// matrix for all gates, attention one for query, key and value.
    #[default]
    PyTorch,
    /// Kiln's own: every tensor is taken as it is.
    NoAdapter,
}

/// A step on the way to a parameter: a field, and the type that it is a field of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// `Linear`, `Vec`, ….
    pub(super) container: String,
    /// The field's name, or an index.
    pub(super) name: String,
}

/// How a parameter is cut out of a file's tensor: first a part along the first dim, then perhaps transposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Which part, of how many equal ones.
    pub(super) part: Option<(usize, usize)>,
    /// Whether the last two dims are exchanged.
    pub(super) transpose: bool,
}

impl View {
    const WHOLE: Self = Self { part: None, transpose: false };

    /// The view of a tensor; `None` when the tensor has no such parts or dims.
    pub(super) fn of(self, tensor: &LazyTensor) -> Option<LazyTensor> {
        let part = match self.part {
            Some((index, count)) => {
                let size = *tensor.shape().first()?;
                let length = size / count;
                if length * count != size {
                    return None;
                }
                tensor.narrow(0, index * length, length)?
            }
            None => tensor.clone(),
        };
        if self.transpose { part.transposed() } else { Some(part) }
    }
}

impl View {
    /// The shape that a file's tensor has for a parameter of a shape.
    pub(super) fn whole_shape(self, shape: &[usize]) -> Vec<usize> {
        let mut shape = shape.to_vec();
        if let (true, Some(last)) = (self.transpose, shape.len().checked_sub(2)) {
            shape.get_mut(last..).unwrap_or_default().reverse();
        }
        if let (Some((_, count)), Some(first)) = (self.part, shape.first_mut()) {
            *first *= count;
        }
        shape
    }
}

/// Where a parameter may be in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The key.
    pub(super) key: String,
    /// What of the tensor.
    pub(super) view: View,
}

/// The path of a parameter: the names of its frames.
pub(super) fn path_of(frames: &[Frame]) -> String {
    let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
    names.join(".")
}

impl AdapterType {
    /// Where a parameter may be, the likeliest place first. The first is where it would be saved.
    pub(super) fn candidates(self, frames: &[Frame]) -> Vec<Candidate> {
        let whole = Candidate { key: path_of(frames), view: View::WHOLE };
        if self == AdapterType::NoAdapter {
            return vec![whole];
        }
        let Some((leaf, above)) = frames.split_last() else { return vec![whole] };
        let container = leaf.container.as_str();
        let (name, transpose) = in_pytorch(container, &leaf.name);
        let mut candidates = match container {
            "Linear" => gate(above, name).or_else(|| projection(above, name)).unwrap_or_default(),
            _ => Vec::new(),
        };
        candidates.push(Candidate { key: below(above, name), view: View { part: None, transpose } });
        if name != leaf.name {
            candidates.push(whole);
        }
        candidates
    }
}

impl AdapterType {
    /// The variant of an enum that a file of tensors says nothing of: the activations that PyTorch's layers have.
    pub(super) fn usual_variant(self, frames: &[Frame]) -> Option<&'static str> {
        let leaf = frames.last()?;
        match Layer::find(&leaf.container)?.field(&leaf.name)?.slot {
            Slot::Activation(_, variant) => Some(variant),
            Slot::Parameter | Slot::Optional | Slot::Constant | Slot::Constants(_) | Slot::Layer(_) => None,
        }
    }
}

/// A key below a path.
fn below(frames: &[Frame], name: &str) -> String {
    match frames {
        [] => name.into(),
        frames => format!("{}.{name}", path_of(frames)),
    }
}

/// The places of a gate's `Linear` in the matrices of PyTorch's recurrent layers; `above` ends with the transform.
fn gate(above: &[Frame], name: &str) -> Option<Vec<Candidate>> {
    let (transform, above) =
        above.split_last().filter(|(frame, _)| frame.container == GATE_CONTROLLER.name)?;
    let (gate, mut above) = above.split_last()?;
    let gates = Layer::find(&gate.container)?.joined;
    let index = gates.iter().position(|joined| joined.field == gate.name)?;
    let of = GATE_CONTROLLER.field(&transform.name)?.in_pytorch;
    let mut direction = "";
    let both = |frame: &Frame| matches!(frame.container.as_str(), "BiLstm" | "BiGru" | "BiRnn");
    if let Some((frame, rest)) = above.split_last().filter(|(frame, _)| both(frame)) {
        direction = if frame.name == "reverse" { "_reverse" } else { "" };
        above = rest;
    }
    let view = View { part: Some((index, gates.len())), transpose: name == "weight" };
    let candidate = |above: &[Frame], layer: &str| Candidate {
        key: below(above, &format!("{name}_{of}{layer}{direction}")),
        view,
    };
    let mut candidates = vec![candidate(above, "_l0"), candidate(above, "")];
    // A list of layers may be one layered module of PyTorch's.
    if let Some((item, rest)) = above.split_last().filter(|(frame, _)| frame.container == "Vec") {
        candidates.insert(0, candidate(rest, &format!("_l{}", item.name)));
    }
    Some(candidates)
}

/// The places of a projection's `Linear` in PyTorch's attention.
fn projection(above: &[Frame], name: &str) -> Option<Vec<Candidate>> {
    let (field, above) =
        above.split_last().filter(|(frame, _)| frame.container == MULTI_HEAD_ATTENTION.name)?;
    let projections = MULTI_HEAD_ATTENTION.joined;
    let transpose = name == "weight";
    let candidate = |key: &str, part| Candidate { key: below(above, key), view: View { part, transpose } };
    let Some(index) = projections.iter().position(|joined| joined.field == field.name) else {
        let output = MULTI_HEAD_ATTENTION.field(&field.name)?.in_pytorch;
        return Some(vec![candidate(&format!("{output}.{name}"), None)]);
    };
    let mut candidates = vec![candidate(&format!("in_proj_{name}"), Some((index, projections.len())))];
    if let (true, Some(alone)) = (transpose, projections.get(index).and_then(|joined| joined.alone)) {
        candidates.push(candidate(alone, None));
    }
    Some(candidates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(steps: &[(&str, &str)]) -> Vec<Frame> {
        let frame =
            |(container, name): &(&str, &str)| Frame { container: (*container).into(), name: (*name).into() };
        steps.iter().map(frame).collect()
    }

    /// A key, which part of how many, and whether it is transposed.
    type Place = (String, Option<(usize, usize)>, bool);

    fn keys(steps: &[(&str, &str)]) -> Vec<Place> {
        let candidates = AdapterType::PyTorch.candidates(&frames(steps));
        candidates.into_iter().map(|c| (c.key, c.view.part, c.view.transpose)).collect()
    }

    #[test]
    fn layers_have_pytorchs_names() {
        let case = |steps: &[(&str, &str)]| keys(steps).remove(0);
        assert_eq!(case(&[("Model", "fc"), ("Linear", "weight")]), ("fc.weight".into(), None, true));
        assert_eq!(case(&[("Model", "fc"), ("Linear", "bias")]), ("fc.bias".into(), None, false));
        assert_eq!(case(&[("Model", "conv"), ("Conv2d", "weight")]), ("conv.weight".into(), None, false));
        assert_eq!(case(&[("Model", "bn"), ("BatchNorm", "gamma")]), ("bn.weight".into(), None, false));
        assert_eq!(case(&[("LayerNorm", "beta")]), ("bias".into(), None, false));
        assert_eq!(case(&[("Mine", "gamma")]), ("gamma".into(), None, false));
    }

    #[test]
    fn gates_are_parts_of_one_matrix() {
        let gate = [("Lstm", "cell_gate"), ("GateController", "hidden_transform"), ("Linear", "weight")];
        let mut path = vec![("Model", "rnn"), ("BiLstm", "reverse")];
        path.extend(gate);
        assert_eq!(keys(&path).remove(0), ("rnn.weight_hh_l0_reverse".into(), Some((2, 4)), true));
        let mut path = vec![("Model", "rnn"), ("Vec", "3")];
        path.extend(gate);
        assert_eq!(keys(&path).remove(0), ("rnn.weight_hh_l3".into(), Some((2, 4)), true));
        let gru = [("Gru", "update_gate"), ("GateController", "input_transform"), ("Linear", "bias")];
        assert_eq!(keys(&gru).remove(0), ("bias_ih_l0".into(), Some((1, 3)), false));
        let mut path = vec![("Model", "rnn"), ("Vec", "1"), ("BiGru", "reverse")];
        path.extend(gru);
        assert_eq!(keys(&path).remove(0), ("rnn.bias_ih_l1_reverse".into(), Some((1, 3)), false));
        let plain = [("Rnn", "gate"), ("GateController", "hidden_transform"), ("Linear", "weight")];
        assert_eq!(keys(&plain).remove(0), ("weight_hh_l0".into(), Some((0, 1)), true));
    }

    #[test]
    fn projections_are_parts_of_one_matrix_or_have_their_own() {
        let key = keys(&[("Model", "attn"), ("MultiHeadAttention", "key"), ("Linear", "weight")]);
        let places: Vec<_> = key.iter().map(|(key, part, _)| (key.as_str(), *part)).collect();
        assert_eq!(
            places,
            [("attn.in_proj_weight", Some((1, 3))), ("attn.k_proj_weight", None), ("attn.key.weight", None)]
        );
        let bias = keys(&[("MultiHeadAttention", "value"), ("Linear", "bias")]);
        assert_eq!(bias.first(), Some(&("in_proj_bias".into(), Some((2, 3)), false)));
    }
}
