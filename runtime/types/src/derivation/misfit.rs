//! What does not fit.

use alloc::{string::String, vec::Vec};

/// Why a derivation cannot be computed from tensors of these shapes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// A tensor's shape is not known.
    #[error("{0} is missing")]
    Missing(String),
    /// What stands alone, or is chosen before anything is computed.
    #[error("`constant()` can stand alone only")]
    Misplaced,
    /// A rank is too low.
    #[error("there is no axis {axis} among {rank}")]
    NoAxis {
        /// The axis that is asked for.
        axis: usize,
        /// How many there are.
        rank: usize,
    },
    /// Axes are not those of a tensor, each once, or not all of size 1 where that is needed.
    #[error("{shape:?} has other axes than {axes:?}")]
    Axes {
        /// The tensor's.
        shape: Vec<usize>,
        /// Those asked for.
        axes: Vec<usize>,
    },
    /// The number of elements would change.
    #[error("{from:?} cannot be {to:?}")]
    Count {
        /// The tensor's shape.
        from: Vec<usize>,
        /// The one asked for.
        to: Vec<usize>,
    },
    /// A shape does not broadcast to another.
    #[error("{from:?} cannot be spread to {to:?}")]
    Spread {
        /// The tensor's shape.
        from: Vec<usize>,
        /// The one asked for.
        to: Vec<usize>,
    },
    /// A slice ends beyond an axis, or has no step.
    #[error("{start}..{end} is not in an axis of size {size}")]
    Range {
        /// First element.
        start: usize,
        /// One past the last.
        end: usize,
        /// The axis's.
        size: usize,
    },
    /// Two shapes do not broadcast.
    #[error("{0:?} and {1:?} do not go together")]
    Broadcast(Vec<usize>, Vec<usize>),
    /// Two shapes differ elsewhere than along the axis.
    #[error("{0:?} and {1:?} cannot be joined along axis {2}")]
    Join(Vec<usize>, Vec<usize>, usize),
    /// Two shapes differ.
    #[error("{0:?} and {1:?} cannot be stacked")]
    Stack(Vec<usize>, Vec<usize>),
    /// Nothing to join.
    #[error("nothing is joined")]
    Nothing,
    /// The first axis cannot be cut in these parts.
    #[error("{shape:?} has no parts {order:?}")]
    Parts {
        /// The tensor's.
        shape: Vec<usize>,
        /// The parts.
        order: Vec<usize>,
    },
    /// Two shapes have no matrix product.
    #[error("{0:?} and {1:?} are no matrices with a product")]
    Product(Vec<usize>, Vec<usize>),
    /// There are more or fewer factors than output channels.
    #[error("{factors:?} are not the output channels of {weight:?}")]
    Channels {
        /// Shape of the factors.
        factors: Vec<usize>,
        /// Shape of the weight.
        weight: Vec<usize>,
    },
}
