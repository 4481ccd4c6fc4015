//! PyTorch's attention, which has query, key and value in one matrix.

use super::layers::Layer;
use super::tree::{Branch, Tree};
use kiln_types::layers::{JOINED_PROJECTIONS, MULTI_HEAD_ATTENTION};
use kiln_weights::LazyTensor;
use quote::quote;

/// `nn.MultiheadAttention`, if a branch is that and nothing else.
pub(super) fn recognize(branch: &Branch) -> Option<Layer> {
    let leaf = |path: &[&str]| match branch.get(path)? {
        Tree::Leaf(tensor) => Some(tensor),
        Tree::Branch(_) => None,
    };
    let (output, output_bias) = (leaf(&["out_proj", "weight"])?, leaf(&["out_proj", "bias"]));
    let &[size, same] = output.shape() else { return None };
    let bias = leaf(&["in_proj_bias"]);
    let weights: [LazyTensor; 3] = match leaf(&[JOINED_PROJECTIONS]) {
        Some(joined) if joined.shape() == [3 * size, size] => {
            [joined.narrow(0, 0, size)?, joined.narrow(0, size, size)?, joined.narrow(0, 2 * size, size)?]
        }
        Some(_) => return None,
        None => {
            let own = |index: usize| leaf(&[MULTI_HEAD_ATTENTION.joined.get(index)?.alone?]).cloned();
            [own(0)?, own(1)?, own(2)?]
        }
    };
    let joined = leaf(&[JOINED_PROJECTIONS]).is_some();
    let count = if joined { 2 } else { 4 } + 2 * usize::from(bias.is_some());
    let biases_fit = bias.is_some() == output_bias.is_some()
        && bias.is_none_or(|bias| bias.shape() == [3 * size])
        && output_bias.is_none_or(|bias| bias.shape() == [size]);
    let weights_fit = weights.iter().all(|weight| matches!(weight.shape(), &[rows, _] if rows == size));
    if size == 0 || same != size || !biases_fit || !weights_fit || branch.count() != count {
        return None;
    }
    let sizes = weights.each_ref().map(|weight| weight.shape().last().copied().unwrap_or_default());
    if sizes[0] != size {
        return None;
    }
    let mut tensors = Vec::new();
    for (index, (joined, weight)) in MULTI_HEAD_ATTENTION.joined.iter().zip(&weights).enumerate() {
        let name = joined.field;
        tensors.push((format!("{name}.weight"), weight.transposed()?));
        if let Some(bias) = bias {
            tensors.push((format!("{name}.bias"), bias.narrow(0, index * size, size)?));
        }
    }
    tensors.push(("output.weight".to_owned(), output.transposed()?));
    if let Some(bias) = output_bias {
        tensors.push(("output.bias".to_owned(), bias.clone()));
    }
    Some(layer(size, sizes, bias.is_some(), tensors))
}

/// The layer of these sizes: of the model, and of queries, keys and values.
fn layer(size: usize, sizes: [usize; 3], bias: bool, tensors: Vec<(String, LazyTensor)>) -> Layer {
    let heads = heads(size);
    let [_, key, value] = sizes;
    // Scores are not dropped in PyTorch unless one asks for it.
    let mut config = quote!(new(#size, #heads).with_dropout(0.0));
    let mut summary = format!("size {size}");
    if !bias {
        config = quote!(#config.with_bias(Some(false)));
    }
    if (key, value) != (size, size) {
        config = quote!(#config.with_d_key(Some(#key)).with_d_value(Some(#value)));
        summary = format!("{summary}, keys of {key}, values of {value}");
    }
    let mut layer = Layer::new(&MULTI_HEAD_ATTENTION, config, tensors);
    layer.summary = summary;
    layer.assumed = Some(format!("{heads} {}", if heads == 1 { "head" } else { "heads" }));
    layer
}

/// As many heads as are usual: of 64 where that divides the size.
fn heads(size: usize) -> usize {
    if size.is_multiple_of(64) {
        return size / 64;
    }
    [8, 4, 2].into_iter().find(|heads| size.is_multiple_of(*heads)).unwrap_or(1)
}
