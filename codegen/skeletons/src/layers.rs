//! Layers by the names and shapes of their tensors.

use super::{convolutions, norms, recurrent};
use kiln_types::{DTypeKind, layers};
use kiln_weights::LazyTensor;
use proc_macro2::TokenStream;
use quote::quote;
use std::collections::BTreeSet;

/// A layer that tensors may be.
#[derive(Clone)]
pub(super) struct Layer {
    /// What it is called to settle it; its name but for `LinearInOut`.
    pub(super) kind: &'static str,
    /// The runtime's layer.
    pub(super) declared: &'static layers::Layer,
    /// The config, as an expression below its path: `new(3, 4).with_bias(false)`.
    pub(super) config: TokenStream,
    /// Its sizes, for people.
    pub(super) summary: String,
    /// Its parameters by path, as Kiln holds them.
    pub(super) tensors: Vec<(String, LazyTensor)>,
    /// What was assumed.
    pub(super) assumed: Option<String>,
    /// What else is to be said.
    pub(super) said: Option<String>,
    /// Parameters that checkpoints have otherwise than such layers usually.
    pub(super) from: Vec<(&'static str, Origin)>,
}

/// Where checkpoints have a parameter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// Under this name, as it is.
    Key(&'static str),
    /// Nowhere: it is this number.
    Number(&'static str),
}

impl Layer {
    pub(super) fn new(
        declared: &'static layers::Layer,
        config: TokenStream,
        tensors: Vec<(String, LazyTensor)>,
    ) -> Self {
        let (summary, assumed, said, from) = (String::new(), None, None, Vec::new());
        Self { kind: declared.name, declared, config, summary, tensors, assumed, said, from }
    }
}

/// What a branch may be.
pub(super) enum Recognized {
    /// One layer, of these kinds, the likeliest first.
    Layer(Vec<Layer>),
    /// Layers one after the other in one module of PyTorch's.
    List(Vec<Layer>),
    /// None that is likely. These kinds fit.
    Open(Vec<&'static str>),
    /// One that the runtime has not; what is to be said about it.
    Unknown(String),
}

/// The tensors of a branch, and what is known about its surroundings.
pub(super) struct Leaves<'a> {
    /// The branch's own name; of a numbered one, the list's.
    pub(super) name: &'a str,
    pub(super) tensors: &'a [(&'a str, &'a LazyTensor)],
    /// Whether they have PyTorch's layouts.
    pub(super) pytorch: bool,
    /// Whether kinds are offered that fit but nothing speaks for.
    pub(super) all: bool,
    /// Whether branches of this name have matrices `[in, out]` elsewhere.
    pub(super) in_out: bool,
    /// Channels that the convolution before yields, wherever it is.
    pub(super) before: Option<usize>,
    /// Channels that the convolution before yields, in the same struct.
    pub(super) beside: Option<usize>,
    /// Channels that the convolutions in the same struct yield, also those behind this one: files may be sorted by name.
    pub(super) outputs: &'a BTreeSet<usize>,
}

/// Recognizes a branch that has only tensors.
pub(super) fn recognize(leaves: &Leaves<'_>) -> Option<Recognized> {
    if let Some(layers) = recurrent::recognize(leaves) {
        return Some(if layers.len() == 1 { Recognized::Layer(layers) } else { Recognized::List(layers) });
    }
    if let Some(said) = recurrent::unknown(leaves) {
        return Some(Recognized::Unknown(said));
    }
    let float = |tensor: &LazyTensor| tensor.dtype().kind() == DTypeKind::Float || tensor.shape().is_empty();
    if !leaves.tensors.iter().all(|(_, tensor)| float(tensor)) {
        return None;
    }
    if let Some(norm) = norms::batch(leaves) {
        return Some(Recognized::Layer(vec![norm]));
    }
    let weight = leaves.get(&["weight", "gamma"])?;
    if !leaves.only(&["weight", "gamma", "bias", "beta"]) {
        return None;
    }
    let layers = match weight.shape().len() {
        1 => return norms::recognize(leaves),
        2 => leaves.tables(),
        3..=5 => return convolutions::recognize(leaves),
        _ => Vec::new(),
    };
    (!layers.is_empty()).then_some(Recognized::Layer(layers))
}

/// The words of a name, without numbers behind them: `upConv2` is `up` and `conv`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphabetic() || (lower && c.is_ascii_uppercase()) {
            words.push(String::new());
        }
        lower = c.is_ascii_lowercase();
        if let (true, Some(word)) = (c.is_ascii_alphabetic(), words.last_mut()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Words in the names of what is no table of rows to be looked up.
const LINEAR: &[&str] = &[
    "classifier",
    "dense",
    "down",
    "fc",
    "gate",
    "head",
    "heads",
    "k",
    "key",
    "kv",
    "lin",
    "linear",
    "logits",
    "mlp",
    "o",
    "out",
    "output",
    "proj",
    "projection",
    "q",
    "qkv",
    "query",
    "reduction",
    "router",
    "up",
    "v",
    "value",
    "wi",
    "wk",
    "wo",
    "wq",
    "wv",
];

impl<'a> Leaves<'a> {
    /// The first tensor of these names.
    pub(super) fn get(&self, names: &[&str]) -> Option<&'a LazyTensor> {
        self.tensors.iter().find(|(name, _)| names.contains(name)).map(|entry| entry.1)
    }

    /// Whether there are no tensors of other names.
    pub(super) fn only(&self, names: &[&str]) -> bool {
        self.tensors.iter().all(|(name, _)| names.contains(name))
    }

    /// Whether one of these is a word of the branch's name.
    pub(super) fn named(&self, hints: &[&str]) -> bool {
        words(self.name).iter().any(|word| hints.contains(&word.as_str()))
    }

    /// Whether a word of the branch's name begins or ends with one of these.
    pub(super) fn named_like(&self, hints: &[&str]) -> bool {
        let like = |word: &String| hints.iter().any(|hint| word.starts_with(hint) || word.ends_with(hint));
        words(self.name).iter().any(like)
    }

    pub(super) fn bias(&self) -> Option<&'a LazyTensor> {
        self.get(&["bias", "beta"])
    }

    /// Whether the bias, if there is one, has this many elements.
    pub(super) fn bias_fits(&self, size: usize) -> bool {
        self.bias().is_none_or(|bias| bias.shape() == [size])
    }

    /// Parameters under these names in place of the file's.
    pub(super) fn renamed(&self, weight: &str, bias: &str) -> Vec<(String, LazyTensor)> {
        let both = [(weight, self.get(&["weight", "gamma"])), (bias, self.bias())];
        both.into_iter().filter_map(|(name, tensor)| Some((name.to_owned(), tensor?.clone()))).collect()
    }

    /// `Linear` and `Embedding`.
    fn tables(&self) -> Vec<Layer> {
        let Some(weight) = self.get(&["weight"]) else { return Vec::new() };
        let &[rows, columns] = weight.shape() else { return Vec::new() };
        let biased = self.bias().is_some();
        // Kiln's own layout is `[in, out]`, PyTorch's the other.
        let fits = self.bias_fits(if self.pytorch { rows } else { columns });
        let in_out = self.pytorch && biased && self.bias_fits(columns);
        match (fits, in_out) {
            (true, true) if self.in_out => return vec![self.linear(false), self.linear(true)],
            (true, true) if self.all => return vec![self.linear(true), self.linear(false)],
            (true, _) if biased => return vec![self.linear(true)],
            (false, true) => return vec![self.linear(false)],
            (false, false) => return Vec::new(),
            (true, _) => {}
        }
        let config = quote!(new(#rows, #columns));
        let mut embedding = Layer::new(&layers::EMBEDDING, config, self.renamed("weight", ""));
        embedding.summary = format!("{rows} rows of {columns}");
        let linear = self.linear(true);
        let lookup = self.named_like(&["emb"]) || self.named(&["wte", "wpe", "embed"]);
        match (lookup, self.named(LINEAR)) {
            (true, false) if !self.all => vec![embedding],
            (false, true) if !self.all => vec![linear],
            (true, _) => vec![embedding, linear],
            _ if self.named(&["token", "tokens", "vocab", "shared"]) => vec![embedding, linear],
            _ => vec![linear, embedding],
        }
    }

    /// A linear layer; `usual` if its matrix is as the framework's are.
    fn linear(&self, usual: bool) -> Layer {
        let mut tensors = self.renamed("weight", "bias");
        let dims = tensors.first().map(|(_, weight)| weight.shape().to_vec()).unwrap_or_default();
        let (mut input, mut output) =
            (dims.first().copied().unwrap_or_default(), dims.last().copied().unwrap_or_default());
        if let (true, Some((_, weight))) = (self.pytorch && usual, tensors.first_mut()) {
            (input, output) = (output, input);
            if let Some(turned) = weight.transposed() {
                *weight = turned;
            }
        }
        let config = match self.bias() {
            Some(_) => quote!(new(#input, #output)),
            None => quote!(new(#input, #output).with_bias(false)),
        };
        let mut linear = Layer::new(&layers::LINEAR, config, tensors);
        linear.summary = format!("{input} to {output}");
        if !usual {
            linear.kind = "LinearInOut";
            linear.said = Some("its matrix is `[in, out]` in the checkpoint".to_owned());
            linear.from = vec![("weight", Origin::Key("weight"))];
        }
        linear
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn names_have_words() {
        assert_eq!(words("upConv2_last.3x"), ["up", "conv", "last", "x"]);
        assert_eq!(words("ln1"), ["ln"]);
        assert_eq!(words("LayerNorm"), ["layer", "norm"]);
        assert_eq!(words("GROUP"), ["group"]);
        assert!(words("12").is_empty());
    }
}
