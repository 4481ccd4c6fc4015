//! Normalizations, and other layers with one number a channel.

use super::layers::{Layer, Leaves, Origin, Recognized};
use kiln_types::{TensorData, layers};
use kiln_weights::LazyTensor;
use quote::quote;

/// A batch normalization: what has running statistics.
pub(super) fn batch(leaves: &Leaves<'_>) -> Option<Layer> {
    let names = ["weight", "gamma", "bias", "beta", "running_mean", "running_var", "num_batches_tracked"];
    let (mean, variance) = (leaves.get(&["running_mean"])?, leaves.get(&["running_var"])?);
    let &[size] = mean.shape() else { return None };
    let weight = leaves.get(&["weight", "gamma"]);
    let fit = leaves.only(&names)
        && weight.is_none_or(|weight| weight.shape() == [size])
        && weight.is_some() == leaves.bias().is_some()
        && leaves.bias_fits(size)
        && variance.shape() == [size];
    if !fit {
        return None;
    }
    let mut tensors = leaves.renamed("gamma", "beta");
    let affine = weight.is_some();
    if !affine {
        tensors = vec![
            ("gamma".to_owned(), numbers(TensorData::ones::<f32, _>([size]), mean)),
            ("beta".to_owned(), numbers(TensorData::zeros::<f32, _>([size]), mean)),
        ];
    }
    tensors.push(("running_mean".to_owned(), mean.clone()));
    tensors.push(("running_var".to_owned(), variance.clone()));
    let mut layer = Layer::new(&layers::BATCH_NORM, quote!(new(#size)), tensors);
    layer.summary = format!("{size} channels");
    if !affine {
        layer.said = Some("it neither scales nor shifts".to_owned());
        layer.from = vec![("gamma", Origin::Number("1")), ("beta", Origin::Number("0"))];
    }
    Some(layer)
}

/// Elements that a checkpoint leaves out, in the dtype of another tensor.
fn numbers(data: TensorData, like: &LazyTensor) -> LazyTensor {
    LazyTensor::whole(data.convert_dtype(like.dtype()), "constant")
}

/// Layers with a weight of rank 1, and perhaps a bias.
pub(super) fn recognize(leaves: &Leaves<'_>) -> Option<Recognized> {
    let &[size] = leaves.get(&["weight", "gamma"])?.shape() else { return None };
    if !leaves.bias_fits(size) {
        return None;
    }
    let layer = |declared, config, (weight, bias): (&str, &str), summary: String| {
        let mut layer = Layer::new(declared, config, leaves.renamed(weight, bias));
        layer.summary = summary;
        layer
    };
    let norm = ("gamma", "beta");
    if leaves.bias().is_some() {
        let groups = [32_usize, 16, 8, 4, 2].into_iter().find(|groups| size % groups == 0).unwrap_or(1);
        let channels = format!("{size} channels");
        let config = quote!(new(#groups, #size));
        let mut group = layer(&layers::GROUP_NORM, config, norm, channels.clone());
        group.assumed = Some(format!("{groups} {}", if groups == 1 { "group" } else { "groups" }));
        let instance = layer(&layers::INSTANCE_NORM, quote!(new(#size)), norm, channels);
        let plain = layer(&layers::LAYER_NORM, quote!(new(#size)), norm, format!("size {size}"));
        let grouped = leaves.named(&["group", "gn", "groupnorm"]);
        let instanced = leaves.named(&["instance", "inst", "instancenorm"]);
        let layered = leaves.named(&["layer", "ln", "layernorm"]) || leaves.outputs.is_empty();
        return Some(Recognized::Layer(match (grouped, instanced) {
            (true, false) => vec![group, plain, instance],
            (false, true) => vec![instance, group, plain],
            _ if layered && !leaves.all => vec![plain],
            _ => vec![plain, group, instance],
        }));
    }
    if leaves.pytorch && leaves.get(&["weight"]).is_none() {
        // PyTorch's norms have a `weight`; a `gamma` alone scales what a block adds.
        return None;
    }
    let rms = layer(&layers::RMS_NORM, quote!(new(#size)), ("gamma", ""), format!("size {size}"));
    let config = quote!(new(#size).with_bias(false));
    let plain = layer(&layers::LAYER_NORM, config, ("gamma", ""), format!("size {size}"));
    let config = quote!(new().with_num_parameters(#size));
    let summary = if size == 1 { String::new() } else { format!("{size} channels") };
    let prelu = layer(&layers::PRELU, config, ("alpha", ""), summary);
    let activation = leaves.named_like(&["relu", "act"]) || size == 1;
    let normalizing = leaves.named_like(&["norm", "rms"]) || leaves.named(&["ln"]);
    Some(match (activation, normalizing) {
        (true, false) if !leaves.all => Recognized::Layer(vec![prelu]),
        (true, _) => Recognized::Layer(vec![prelu, rms, plain]),
        (false, true) if leaves.named_like(&["rms"]) && !leaves.all => Recognized::Layer(vec![rms]),
        (false, true) if !leaves.all => Recognized::Layer(vec![rms, plain]),
        _ if leaves.all => Recognized::Layer(vec![rms, plain, prelu]),
        _ if !leaves.outputs.is_empty() => Recognized::Layer(vec![prelu, rms, plain]),
        _ => Recognized::Open(vec![rms.kind, plain.kind, prelu.kind]),
    })
}
