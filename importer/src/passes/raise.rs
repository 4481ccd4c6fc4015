//! Recognizes operations that exporters spell in small steps. One file a raise.

mod absorb;
mod attention;
mod causal;
mod distances;
mod group_norm;
mod layer_norm;
mod linear;
mod products;
mod quantized;
mod rotary;
mod softmax;
mod stacks;

use super::Rule;

/// All raises, in the order in which they are tried on a node.
pub(super) const RULES: [Rule; 11] = [
    products::RULE,
    distances::RULE,
    softmax::RULE,
    rotary::RULE,
    layer_norm::RULE,
    absorb::RULE,
    group_norm::RULE,
    linear::RULE,
    quantized::RULE,
    stacks::RULE,
    attention::RULE,
];
