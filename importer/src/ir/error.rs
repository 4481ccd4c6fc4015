//! A rule that an operation broke. Front ends add the site: file, node, operator, opset.

use super::TensorType;
use kiln_types::DType;

/// Result of inference and lowering.
pub type RuleResult<T> = Result<T, RuleError>;

/// Why an operation cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// An operand that the operation needs is absent.
    #[error("input `{input}` is missing")]
    MissingInput {
        /// Its name in the operator's specification.
        input: String,
    },
    /// An operand has a dtype that the operation does not take.
    #[error("`{input}` has dtype {actual}, {expected}")]
    DType {
        /// The operand.
        input: String,
        /// What it has.
        actual: DType,
        /// What is allowed, as a phrase: "expected a float".
        expected: String,
    },
    /// Operands that must have one dtype differ.
    #[error("`{left}` is {left_dtype} and `{right}` is {right_dtype}; both must have one dtype")]
    DTypesDiffer {
        /// One operand.
        left: String,
        /// Its dtype.
        left_dtype: DType,
        /// The other operand.
        right: String,
        /// Its dtype.
        right_dtype: DType,
    },
    /// An operand has the wrong rank.
    #[error("`{input}` has rank {actual}, {expected}")]
    Rank {
        /// The operand.
        input: String,
        /// Its rank.
        actual: usize,
        /// What is allowed, as a phrase: "expected at least 2".
        expected: String,
    },
    /// Dims contradict each other.
    #[error("{what}: {left} and {right} do not fit")]
    Dims {
        /// What was compared: "broadcast", "inner dimensions of the product".
        what: String,
        /// One type.
        left: TensorType,
        /// The other.
        right: TensorType,
    },
    /// An axis outside the rank.
    #[error("axis {axis} is outside a tensor of rank {rank}")]
    Axis {
        /// The axis as given.
        axis: i64,
        /// The rank.
        rank: usize,
    },
    /// An attribute or constant operand has a value that the specification forbids.
    #[error("`{attribute}` {reason}")]
    Attribute {
        /// Its name.
        attribute: String,
        /// What is wrong: "is 3, must be 0 or 1".
        reason: String,
    },
    /// An attribute or a constant operand contradicts the shapes of the operands, whatever the run brings.
    #[error("`{attribute}` {reason}")]
    Misfit {
        /// Its name.
        attribute: String,
        /// What is wrong: "is 3 for an axis of size 2".
        reason: String,
    },
    /// An operand must be known at build time and is not.
    #[error(
        "`{input}` must be a constant (or computed from shapes); here it is computed from the model's data"
    )]
    NotConstant {
        /// The operand.
        input: String,
    },
    /// An operand must be known at build time and is an input of the model.
    #[error(
        "`{operand}` must be a constant (or computed from shapes); here it is the model's input {}: bind that to what it \
         will be, with `ModelGen::bind_input` or `--bind-input NAME=VALUE`",
        kiln_types::quoted(name)
    )]
    UnboundInput {
        /// The operand.
        operand: String,
        /// The input.
        name: String,
    },
    /// Valid, but beyond what Kiln does.
    #[error("not supported: {what}")]
    Unsupported {
        /// What, as a noun phrase.
        what: String,
    },
    /// A mistake in Kiln itself, not in the model.
    #[error("{what}; this is a mistake in Kiln, please report it")]
    Internal {
        /// What is wrong, as a clause.
        what: String,
    },
    /// A size overflows or exceeds what one machine can hold.
    #[error("{what} is too large")]
    TooLarge {
        /// What, as a noun phrase.
        what: String,
    },
}
