//! What the parameters of a field were made of.

/// How parameters of a field were made of those of another network: the one that the module was generated from, whose
/// weights were folded into each other since. Checkpoints of that network are loaded by it; see [`Module`](super::Module)
/// for the attributes that say so.
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
