//! Arguments that an operator's rule need not look at: those that make no difference here, and those that say what would be so
//! without them.
//!
//! Programs leave out what is not given, but decompositions spell much of it.

use super::schema::{Argument, SymFloat, SymInt};

/// What makes no difference to a graph: where and how elements are stored, how fast something is computed, what the program says of
/// results anyway.
const MOOT: &[&str] = &[
    "C",
    "HxW",
    "N",
    "allow_tf32",
    "assume_unique",
    "benchmark",
    "check_errors",
    "chunks",
    "compute_log_sumexp",
    "copy",
    "cudnn_enable",
    "cudnn_enabled",
    "deterministic",
    "device",
    "dtype",
    "enable_gqa",
    "generator",
    "half_to_float",
    "implicit",
    "layout",
    "memory_format",
    "non_blocking",
    "out_dtype",
    "out_int32",
    "path",
    "physical_layout",
    "pin_memory",
    "return_complex",
    "return_counts",
    "return_debug_mask",
    "return_inverse",
    "sections",
    "sorted",
    "sparse",
    "sparse_grad",
    "split_size",
    "stable",
    "unroll_dim",
    "unsafe",
];

/// What an argument is where it is not given.
#[derive(Clone, Copy)]
enum Default {
    Bool(bool),
    Number(f64),
    /// So for each axis.
    Each(i64),
    Text(&'static str),
}

/// By the names of arguments: all operators that have one of such a name have the same default.
const DEFAULTS: &[(&str, Default)] = &[
    ("accumulate", Default::Bool(false)),
    ("align_corners", Default::Bool(false)),
    ("alpha", Default::Number(1.0)),
    ("approximate", Default::Text("none")),
    ("beta", Default::Number(1.0)),
    ("ceil_mode", Default::Bool(false)),
    ("center", Default::Bool(true)),
    ("count_include_pad", Default::Bool(true)),
    ("descending", Default::Bool(false)),
    ("dilation", Default::Each(1)),
    ("dropout_p", Default::Number(0.0)),
    ("equal_nan", Default::Bool(false)),
    ("groups", Default::Number(1.0)),
    ("ignore_index", Default::Number(-100.0)),
    ("include_last_offset", Default::Bool(false)),
    ("include_self", Default::Bool(true)),
    ("increasing", Default::Bool(false)),
    ("interpolation", Default::Text("linear")),
    ("invert", Default::Bool(false)),
    ("is_causal", Default::Bool(false)),
    ("keepdim", Default::Bool(false)),
    ("label_smoothing", Default::Number(0.0)),
    ("largest", Default::Bool(true)),
    ("left", Default::Bool(true)),
    ("log_target", Default::Bool(false)),
    ("minlength", Default::Number(0.0)),
    ("normalized", Default::Bool(false)),
    ("output_padding", Default::Each(0)),
    ("padding_idx", Default::Number(-1.0)),
    ("replacement", Default::Bool(false)),
    ("right", Default::Bool(false)),
    ("scale_grad_by_freq", Default::Bool(false)),
    ("step", Default::Number(1.0)),
    ("swap", Default::Bool(false)),
    ("unbiased", Default::Bool(true)),
    ("with_replacement", Default::Bool(false)),
];

impl Default {
    fn is(self, argument: &Argument) -> bool {
        match (self, argument) {
            (Default::Bool(default), Argument::Bool(given)) => default == *given,
            (Default::Number(default), Argument::Int(given) | Argument::SymInt(SymInt::Int(given))) => {
                default == *given as f64
            }
            (
                Default::Number(default),
                Argument::Float(given) | Argument::SymFloat(SymFloat::Float(given)),
            ) => default == given.0,
            (Default::Each(default), Argument::Ints(given)) => given.iter().all(|given| *given == default),
            (Default::Text(default), Argument::String(given)) => default == given,
            _ => false,
        }
    }
}

/// Whether an argument of this name makes no difference, or says what would be so without it.
pub(super) fn is_moot(name: &str, argument: &Argument) -> bool {
    let default = || DEFAULTS.iter().find(|(known, _)| *known == name).map(|(_, default)| default);
    argument.is_none() || MOOT.contains(&name) || default().is_some_and(|default| default.is(argument))
}
