//! What the parameters of a field were made of.

use alloc::borrow::Cow;

/// How parameters of a field were made of those of another network: the one that the module was generated from, whose
/// weights were folded into each other since. Checkpoints of that network are loaded by it; see [`Module`](super::Module)
/// for the attributes that say so.
///
/// Where the field is a list, `{}` in a path or in a text stands for the number of the item.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// A batch normalization was folded into the layer: its `weight` and `bias` do the work of both.
    BatchNorm {
        /// Path of the normalization, beside the field.
        path: &'static str,
        /// What is added to the variance.
        epsilon: f64,
        /// Whether the layer had a bias of its own before.
        biased: bool,
    },
    /// A parameter is computed.
    Derived {
        /// The parameter below the field; empty when the field is the parameter.
        parameter: &'static str,
        /// Text of a [`Derivation`](super::Derivation); its keys are beside the field.
        from: &'static str,
    },
    /// No checkpoint holds the field: its contents belong to the graph that the module was generated from.
    Constant,
}

impl Origin {
    /// What is said of the parameter at a path below the field: of an item of a list, with the item's number.
    pub(crate) fn text_for<'a>(text: &'a str, below: &str) -> Cow<'a, str> {
        match item(below) {
            Some((number, _)) if text.contains("{}") => Cow::Owned(text.replace("{}", number)),
            _ => Cow::Borrowed(text),
        }
    }

    /// The parameter of a layer at a path below the field, which may be a list of layers.
    pub(crate) fn parameter(below: &str) -> &str {
        item(below).map_or(below, |(_, parameter)| parameter)
    }
}

/// The number of an item of a list, and what is below it.
fn item(below: &str) -> Option<(&str, &str)> {
    let (number, rest) = below.split_once('.')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some((number, rest))
}
