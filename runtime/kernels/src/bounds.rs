//! Activations that are no more than bounds: kernels apply these to a result while it is in a register.

use kiln_types::Activation;

/// What an activation bounds a result to, and what is left to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub low: f32,
    pub high: f32,
    /// The activation, if it is more than bounds; there are none then.
    pub rest: Option<Activation>,
}

impl Bounds {
    /// Those of an activation, or of none.
    pub fn of(activation: Option<Activation>) -> Self {
        match activation {
            Some(Activation::Relu) => Self { low: 0.0, high: f32::INFINITY, rest: None },
            Some(Activation::Clamp { min, max }) => Self { low: min as f32, high: max as f32, rest: None },
            rest => Self { low: f32::NEG_INFINITY, high: f32::INFINITY, rest },
        }
    }
}
