//! Convolutions and transposed ones.

use super::layers::{Layer, Leaves, Recognized};
use kiln_types::layers;
use proc_macro2::TokenStream;
use quote::quote;

/// The runtime's layers by how many dims they move along.
const PLAIN: [&layers::Layer; 3] = [&layers::CONV_1D, &layers::CONV_2D, &layers::CONV_3D];
const TURNED: [&layers::Layer; 3] =
    [&layers::CONV_TRANSPOSE_1D, &layers::CONV_TRANSPOSE_2D, &layers::CONV_TRANSPOSE_3D];

/// Words in the names of layers that make an image larger.
const UPWARDS: &[&str] = &[
    "convt",
    "convtr",
    "convtranspose",
    "deconv",
    "tconv",
    "transpose",
    "transposed",
    "unpool",
    "up",
    "upconv",
    "ups",
    "upsample",
    "upsampler",
    "upsampling",
    "upscale",
];

/// Words in the names of layers that cut an image into patches.
const PATCHES: &[&str] = &["down", "downsample", "embed", "embedding", "patch", "patchify", "proj", "stem"];

/// A weight of rank 3 to 5, and perhaps a bias.
pub(super) fn recognize(leaves: &Leaves<'_>) -> Option<Recognized> {
    let (&[first, second], kernel) = leaves.get(&["weight"])?.shape().split_first_chunk()?;
    if first == 0 || second == 0 {
        return None;
    }
    let plain = || leaves.bias_fits(first).then(|| convolution(leaves, first, second, kernel)).flatten();
    let turned = || {
        let groups = turned_groups(leaves, first, second)?;
        // Where the bias fits a plain one, groups are no explanation that anyone needs.
        let likely = groups == 1 || !leaves.bias_fits(first);
        likely.then(|| transposed_convolution(leaves, first, second * groups, groups, kernel)).flatten()
    };
    let bilinear = leaves.named_like(&["bilinear", "biaffine"]);
    let upwards = leaves.named(UPWARDS);
    // Kernels that double an image; others are hardly ever those of transposed convolutions.
    let doubling = kernel.iter().all(|size| matches!(size, 2 | 4)) && !leaves.named(PATCHES);
    let layers: Vec<Layer> = match (plain(), turned()) {
        (Some(plain), Some(turned)) if upwards => vec![turned, plain],
        (Some(plain), Some(turned)) if leaves.all || doubling => vec![plain, turned],
        (Some(plain), _) => vec![plain],
        (None, Some(turned)) => vec![turned],
        (None, None) => return None,
    };
    Some(match layers.first() {
        Some(layer) if bilinear && !leaves.all => Recognized::Open(vec![layer.kind]),
        _ => Recognized::Layer(layers),
    })
}

/// The groups of a transposed convolution, which its bias tells: `None` if it is none.
fn turned_groups(leaves: &Leaves<'_>, first: usize, second: usize) -> Option<usize> {
    let Some(bias) = leaves.bias() else { return Some(1) };
    let &[size] = bias.shape() else { return None };
    let groups = size / second;
    (groups > 0 && groups * second == size && first.is_multiple_of(groups)).then_some(groups)
}

/// How many groups a convolution has, as far as its neighbours tell.
fn groups(leaves: &Leaves<'_>, output: usize, group_input: usize, kernel: &[usize]) -> usize {
    let wide = kernel.iter().any(|size| *size > 1);
    let follows = wide && leaves.before == Some(output);
    let depthwise = leaves.named(&["dw", "depth", "depthwise", "dwconv"]) || follows;
    if group_input == 1 && output > 1 && depthwise {
        return output;
    }
    // A grouped convolution mixes what lies near, and keeps the channels. What takes as many as another one yields may
    // stand behind that one, with no groups.
    let explained = leaves.outputs.contains(&group_input);
    match leaves.beside {
        Some(channels)
            if wide && !explained && channels == output && channels.is_multiple_of(group_input) =>
        {
            channels / group_input
        }
        _ => 1,
    }
}

fn convolution(leaves: &Leaves<'_>, output: usize, group_input: usize, kernel: &[usize]) -> Option<Layer> {
    let groups = groups(leaves, output, group_input, kernel);
    let input = group_input * groups;
    let &declared = PLAIN.get(kernel.len().checked_sub(1)?)?;
    let mut config = match kernel {
        [size] => quote!(new(#input, #output, #size)),
        _ => quote!(new([#input, #output], [#(#kernel),*])),
    };
    if groups > 1 {
        config = quote!(#config.with_groups(#groups));
    }
    let mut layer = layer(leaves, declared, config, (input, output), kernel);
    layer.assumed = match groups {
        1 => None,
        _ if group_input == 1 => Some("one channel a group".to_owned()),
        groups => Some(format!("{groups} groups")),
    };
    Some(layer)
}

fn transposed_convolution(
    leaves: &Leaves<'_>,
    input: usize,
    output: usize,
    groups: usize,
    kernel: &[usize],
) -> Option<Layer> {
    let &declared = TURNED.get(kernel.len().checked_sub(1)?)?;
    let mut config = match kernel {
        [size] => quote!(new([#input, #output], #size)),
        _ => quote!(new([#input, #output], [#(#kernel),*])),
    };
    if groups > 1 {
        config = quote!(#config.with_groups(#groups));
    }
    Some(layer(leaves, declared, config, (input, output), kernel))
}

fn layer(
    leaves: &Leaves<'_>,
    declared: &'static layers::Layer,
    mut config: TokenStream,
    (input, output): (usize, usize),
    kernel: &[usize],
) -> Layer {
    if leaves.bias().is_none() {
        config = quote!(#config.with_bias(false));
    }
    let mut layer = Layer::new(declared, config, leaves.renamed("weight", "bias"));
    let sizes: Vec<String> = kernel.iter().map(ToString::to_string).collect();
    layer.summary = format!("{input} to {output} channels, kernel {}", sizes.join(" × "));
    layer
}
