//! Layers by the names and shapes of their tensors.

use super::recurrent;
use kiln_types::DTypeKind;
use kiln_weights::LazyTensor;
use proc_macro2::TokenStream;
use quote::quote;

/// A layer that tensors may be.
#[derive(Clone)]
pub(super) struct Layer {
    /// Its name, `Conv2d`.
    pub(super) name: &'static str,
    /// The path of its type below the runtime; the config's has `Config` behind it.
    pub(super) path: &'static str,
    /// The config, as an expression below its path: `new(3, 4).with_bias(false)`.
    pub(super) config: TokenStream,
    /// Its parameters by path, as Kiln holds them.
    pub(super) tensors: Vec<(String, LazyTensor)>,
    /// What was assumed.
    pub(super) assumed: Option<String>,
}

/// What a branch may be, the likeliest first.
pub(super) enum Recognized {
    /// One layer, of these kinds.
    Layer(Vec<Layer>),
    /// Layers one after the other in one module of PyTorch's.
    List(Vec<Layer>),
}

/// The tensors of a branch.
pub(super) struct Leaves<'a> {
    /// The branch's own name.
    pub(super) name: &'a str,
    pub(super) tensors: &'a [(&'a str, &'a LazyTensor)],
    /// Whether they have PyTorch's layouts.
    pub(super) pytorch: bool,
}

/// Recognizes a branch that has only tensors. With `all`, kinds are offered that fit but nothing speaks for.
pub(super) fn recognize(leaves: &Leaves<'_>, all: bool) -> Option<Recognized> {
    if let Some(layers) = recurrent::recognize(leaves) {
        return Some(if layers.len() == 1 { Recognized::Layer(layers) } else { Recognized::List(layers) });
    }
    if !leaves
        .tensors
        .iter()
        .all(|(_, tensor)| tensor.dtype().kind() == DTypeKind::Float || is_scalar(tensor))
    {
        return None;
    }
    let weight = leaves.get(&["weight", "gamma"])?;
    let layers = match (leaves.only(&["weight", "gamma", "bias", "beta"]), weight.shape().len()) {
        (false, _) => leaves.batch_norm().into_iter().collect(),
        (true, 1) => leaves.norms(all),
        (true, 2) => leaves.tables(),
        (true, 3..=5) => leaves.convolutions(all),
        _ => Vec::new(),
    };
    (!layers.is_empty()).then_some(Recognized::Layer(layers))
}

fn is_scalar(tensor: &LazyTensor) -> bool {
    tensor.shape().is_empty()
}

impl<'a> Leaves<'a> {
    /// The first tensor of these names.
    pub(super) fn get(&self, names: &[&str]) -> Option<&'a LazyTensor> {
        self.tensors.iter().find(|(name, _)| names.contains(name)).map(|entry| entry.1)
    }

    /// Whether there are no tensors of other names.
    fn only(&self, names: &[&str]) -> bool {
        self.tensors.iter().all(|(name, _)| names.contains(name))
    }

    /// Whether the branch's name has one of these in it.
    fn named(&self, hints: &[&str]) -> bool {
        let name = self.name.to_ascii_lowercase();
        hints.iter().any(|hint| name.contains(hint))
    }

    fn bias(&self) -> Option<&'a LazyTensor> {
        self.get(&["bias", "beta"])
    }

    /// Whether the bias, if there is one, has this many elements.
    fn bias_fits(&self, size: usize) -> bool {
        self.bias().is_none_or(|bias| bias.shape() == [size])
    }

    /// Parameters under these names in place of the file's.
    fn renamed(&self, weight: &str, bias: &str) -> Vec<(String, LazyTensor)> {
        let both = [(weight, self.get(&["weight", "gamma"])), (bias, self.bias())];
        both.into_iter().filter_map(|(name, tensor)| Some((name.to_owned(), tensor?.clone()))).collect()
    }

    fn batch_norm(&self) -> Option<Layer> {
        let names = ["weight", "gamma", "bias", "beta", "running_mean", "running_var", "num_batches_tracked"];
        let (mean, variance) = (self.get(&["running_mean"])?, self.get(&["running_var"])?);
        let weight = self.get(&["weight", "gamma"])?;
        let &[size] = weight.shape() else { return None };
        let fit = self.only(&names) && self.bias().is_some() && self.bias_fits(size);
        if !fit || mean.shape() != [size] || variance.shape() != [size] {
            return None;
        }
        let mut tensors = self.renamed("gamma", "beta");
        tensors.push(("running_mean".to_owned(), mean.clone()));
        tensors.push(("running_var".to_owned(), variance.clone()));
        let config = quote!(new(#size));
        Some(Layer { name: "BatchNorm", path: "nn::BatchNorm", config, tensors, assumed: None })
    }

    fn norms(&self, all: bool) -> Vec<Layer> {
        let Some(&[size]) = self.get(&["weight", "gamma"]).map(LazyTensor::shape) else { return Vec::new() };
        if !self.bias_fits(size) {
            return Vec::new();
        }
        let layer = |name, path, config, tensors| Layer { name, path, config, tensors, assumed: None };
        let norm = || self.renamed("gamma", "beta");
        let layer_norm = |config| layer("LayerNorm", "nn::LayerNorm", config, norm());
        if self.bias().is_some() {
            let groups =
                [32_usize, 16, 8, 4, 2, 1].into_iter().find(|groups| size % groups == 0).unwrap_or(1);
            let mut group_norm = layer("GroupNorm", "nn::GroupNorm", quote!(new(#groups, #size)), norm());
            group_norm.assumed = Some(format!("{groups} groups"));
            let layer_norm = layer_norm(quote!(new(#size)));
            return match (self.named(&["group", "gn"]), self.named(&["layer", "ln"])) {
                (true, false) => vec![group_norm, layer_norm],
                (false, true) if !all => vec![layer_norm],
                _ => vec![layer_norm, group_norm],
            };
        }
        let rms_norm = layer("RmsNorm", "nn::RmsNorm", quote!(new(#size)), self.renamed("gamma", ""));
        let no_bias = layer_norm(quote!(new(#size).with_bias(false)));
        let config = quote!(new().with_num_parameters(#size));
        let prelu = layer("PRelu", "nn::PRelu", config, self.renamed("alpha", ""));
        if self.named(&["relu", "act"]) {
            vec![prelu, rms_norm]
        } else if all || self.named(&["norm", "ln"]) {
            vec![rms_norm, no_bias, prelu]
        } else {
            Vec::new()
        }
    }

    /// `Linear` and `Embedding`.
    fn tables(&self) -> Vec<Layer> {
        let Some(weight) = self.get(&["weight"]) else { return Vec::new() };
        let &[rows, columns] = weight.shape() else { return Vec::new() };
        let (input, output) = if self.pytorch { (columns, rows) } else { (rows, columns) };
        if !self.bias_fits(output) {
            return Vec::new();
        }
        let mut tensors = self.renamed("weight", "bias");
        if let (true, Some(first)) = (self.pytorch, tensors.first_mut()) {
            first.1 = first.1.transposed().unwrap_or_else(|| weight.clone());
        }
        let config = match self.bias() {
            Some(_) => quote!(new(#input, #output)),
            None => quote!(new(#input, #output).with_bias(false)),
        };
        let linear = Layer { name: "Linear", path: "nn::Linear", config, tensors, assumed: None };
        if self.bias().is_some() {
            return vec![linear];
        }
        let config = quote!(new(#rows, #columns));
        let tensors = self.renamed("weight", "");
        let embedding = Layer { name: "Embedding", path: "nn::Embedding", config, tensors, assumed: None };
        if self.named(&["emb", "wte", "wpe", "token", "vocab"]) {
            vec![embedding, linear]
        } else {
            vec![linear, embedding]
        }
    }

    fn convolutions(&self, all: bool) -> Vec<Layer> {
        let Some((&[first, second], kernel)) =
            self.get(&["weight"]).and_then(|weight| weight.shape().split_first_chunk())
        else {
            return Vec::new();
        };
        let upwards = self.named(&["up", "deconv", "transpose"]);
        let fits = self.bias_fits(first) && first > 0 && second > 0;
        let turned_fits = self.bias_fits(second) && first > 0 && second > 0;
        let conv = || self.convolution(first, second, kernel);
        let turned = || self.transposed_convolution(first, second, kernel);
        let layers = match (fits, turned_fits) {
            (true, true) if upwards => vec![turned(), conv()],
            (true, true) if all => vec![conv(), turned()],
            (true, _) => vec![conv()],
            (false, true) => vec![turned()],
            (false, false) => Vec::new(),
        };
        layers.into_iter().flatten().collect()
    }

    fn convolution(&self, output: usize, group_input: usize, kernel: &[usize]) -> Option<Layer> {
        let depthwise = group_input == 1 && output > 1 && self.named(&["dw", "depth", "group"]);
        let groups = if depthwise { output } else { 1 };
        let input = group_input * groups;
        let (name, path, mut config) = match kernel {
            [size] => ("Conv1d", "nn::conv::Conv1d", quote!(new(#input, #output, #size))),
            [_, _] => ("Conv2d", "nn::conv::Conv2d", quote!(new([#input, #output], [#(#kernel),*]))),
            [_, _, _] => ("Conv3d", "nn::conv::Conv3d", quote!(new([#input, #output], [#(#kernel),*]))),
            _ => return None,
        };
        if depthwise {
            config = quote!(#config.with_groups(#groups));
        }
        if self.bias().is_none() {
            config = quote!(#config.with_bias(false));
        }
        let tensors = self.renamed("weight", "bias");
        let assumed = depthwise.then(|| "one channel a group".to_owned());
        Some(Layer { name, path, config, tensors, assumed })
    }

    fn transposed_convolution(&self, input: usize, output: usize, kernel: &[usize]) -> Option<Layer> {
        let (name, path, mut config) = match kernel {
            [size] => ("ConvTranspose1d", "nn::conv::ConvTranspose1d", quote!(new([#input, #output], #size))),
            [_, _] => {
                let config = quote!(new([#input, #output], [#(#kernel),*]));
                ("ConvTranspose2d", "nn::conv::ConvTranspose2d", config)
            }
            [_, _, _] => {
                let config = quote!(new([#input, #output], [#(#kernel),*]));
                ("ConvTranspose3d", "nn::conv::ConvTranspose3d", config)
            }
            _ => return None,
        };
        if self.bias().is_none() {
            config = quote!(#config.with_bias(false));
        }
        Some(Layer { name, path, config, tensors: self.renamed("weight", "bias"), assumed: None })
    }
}
