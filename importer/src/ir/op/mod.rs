//! The core operations.
//!
//! ONNX's operators lower into these. An operation stands here when a pass looks at it or shape inference of another
//! depends on it; everything else is an [`Op::Call`] of a runtime function, and needs no entry in any list.
//!
//! What Kiln knows of an operation stands in one file: attributes, operands, inference, shape arithmetic, its value at build
//! time, and the call of the runtime, as one `impl` of `Operation`. The table below makes the enum and every dispatch.
//!
//! Conventions: axes are non-negative; broadcasting operands have equal rank, except that either may be a constant of
//! rank 0 (a scalar, spelt as a literal); sizes are [`Dim`]s, never operands.

mod activation;
mod attention;
mod binary;
mod broadcast;
mod call;
mod compare;
mod control;
mod convert;
mod convolution;
mod creation;
mod cumulative;
mod detach;
mod distance;
mod elementwise;
mod host;
mod indexing;
mod interpolate;
mod join;
mod layout;
mod linear;
mod norms;
mod operation;
mod pad;
mod pooling;
mod quantized;
mod quantized_layers;
mod recurrence;
mod reduce;
mod root;
mod rules;
mod site;
mod slice;
mod softmax;
mod tree;
mod unary;
mod windows;

/// What the file of every operation needs.
mod prelude {
    pub(super) use super::host::Host;
    pub(super) use super::operation::{Known, Operation, attributes, facts, none};
    pub(super) use super::rules::*;
    pub(super) use super::site::Site;
    pub(super) use super::{Folding, Outcome};
    pub(super) use crate::data::{Elements, Strided, elements, fill};
    pub(super) use crate::ir::{
        Arg, Config, Dim, Effect, ElementLoop, Implementation, Infer, KernelArg, Layer, Loops, Reduction,
        RuleError, RuleResult, Sources, TensorType,
    };
    pub(super) use kiln_types::{Derivation, TensorData, layers};
}

pub use activation::activation_call;
pub use compare::Where;
pub use control::{HostRead, If, Loop, LoopCondition};
pub use convert::{Cast, Clamp, RoundTo};
pub use convolution::Conv;
pub use creation::{Arange, Fill, HostTensor};
pub use cumulative::{Cumulative, Trilu};
pub use detach::Detach;
pub use distance::SquaredDistances;
pub use indexing::{Gather, Scatter, SelectAssign, Take};
pub use interpolate::{Interpolate, KeptRatio};
pub use join::{Concat, Repeat};
pub(crate) use layout::moved_by_ones;
pub use layout::{Expand, Permute, Reshape};
pub use linear::{Linear, MatMul};
pub(crate) use norms::ScaledAxes;
pub use norms::{BatchNorm, Dropout, GroupNorm, LayerNorm, RmsNorm};
pub use pad::Pad;
pub use pooling::{AdaptiveAvgPool, MaxPoolWithIndices, Pool};
pub use quantized::{ConvInteger, Dequantize, FakeQuantize, MatMulInteger, Quantize, QuantizeDynamic};
pub(crate) use quantized_layers::LayerOperands;
pub use quantized_layers::{QuantizedAdd, QuantizedConv, QuantizedLinear, QuantizedMul};
pub use reduce::{ArgReduce, Reduce};
pub use root::RootOfSquares;
pub(crate) use rules::may_equal;
pub use slice::{AxisRange, Slice};
pub use softmax::{LogSoftmax, Softmax};
pub use tree::TreeLeaves;

use super::builder::MAX_HOST_ELEMENTS;
use super::{
    Dim, Effect, Graph, Implementation, Infer, Loops, Node, Region, RuleResult, RuntimeCall, Sources, Symbol,
    TensorType, ValueId,
};
use crate::data::{is_long_and_empty, release};
use host::Host;
use kiln_types::{
    Activation, AttentionOptions, BinaryOp, CompareOp, ConvTransposeOptions, Derivation, Expression,
    RnnOptions, TensorData, UnaryOp,
};
use operation::{Field, Known, Operation};
use serde::{Deserialize, Serialize};
use site::Site;
use std::collections::BTreeSet;

/// Makes the enum of the operations and asks the one that a value is.
macro_rules! operations {
    (
        with attributes { $($(#[$doc:meta])* $name:ident($ty:ty),)* }
        without { $($(#[$plain_doc:meta])* $plain:ident,)* }
    ) => {
        /// A core operation.
        ///
        /// The text form follows this declaration: a field of a new type needs serde's traits, and regions are skipped, since
        /// the text of a graph shows them as blocks.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Op {
            $($(#[$doc])* $name($ty),)*
            $($(#[$plain_doc])* $plain,)*
        }

        impl Op {
            /// The variant's name.
            pub(crate) fn variant(&self) -> &'static str {
                match self {
                    $(Op::$name(_) => stringify!($name),)*
                    $(Op::$plain => stringify!($plain),)*
                }
            }

            /// Names of the operands; `?` marks one that may be absent, `*` any number of them.
            pub fn operands(&self) -> &'static [&'static str] {
                match self {
                    $(Op::$name(_) => <$ty>::OPERANDS,)*
                    $(Op::$plain => $plain::OPERANDS,)*
                }
            }

            /// The operands that a layer of the runtime holds as parameters.
            pub fn parameters(&self) -> &'static [usize] {
                match self {
                    $(Op::$name(_) => <$ty>::PARAMETERS,)*
                    $(Op::$plain => $plain::PARAMETERS,)*
                }
            }

            /// What it does beside computing its results.
            pub fn effect(&self) -> Effect {
                match self {
                    $(Op::$name(operation) => operation.effect(),)*
                    $(Op::$plain => $plain.effect(),)*
                }
            }

            fn rule(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
                match self {
                    $(Op::$name(operation) => operation.infer(cx),)*
                    $(Op::$plain => $plain.infer(cx),)*
                }
            }

            fn arithmetic(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
                match self {
                    $(Op::$name(operation) => operation.host(cx),)*
                    $(Op::$plain => $plain.host(cx),)*
                }
            }

            fn compute(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
                match self {
                    $(Op::$name(operation) => operation.evaluate(operands),)*
                    $(Op::$plain => $plain.evaluate(operands),)*
                }
            }

            /// What it takes to compute it at build time.
            pub(crate) fn folding(&self) -> Folding {
                match self {
                    $(Op::$name(operation) => operation.folding(),)*
                    $(Op::$plain => $plain.folding(),)*
                }
            }

            /// What becomes of the values of its operands.
            pub(crate) fn result(&self) -> Outcome {
                match self {
                    $(Op::$name(operation) => operation.result(),)*
                    $(Op::$plain => $plain.result(),)*
                }
            }

            /// How the loader of a checkpoint repeats it; the error says what cannot be expressed.
            pub(crate) fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
                match self {
                    $(Op::$name(operation) => operation.derivation(of),)*
                    $(Op::$plain => $plain.derivation(of),)*
                }
            }

            fn implement(&self, site: &Site<'_>) -> Implementation {
                match self {
                    $(Op::$name(operation) => operation.implementation(site),)*
                    $(Op::$plain => $plain.implementation(site),)*
                }
            }

            fn without_runtime(&self, site: &Site<'_>) -> Option<Loops> {
                match self {
                    $(Op::$name(operation) => operation.loops(site),)*
                    $(Op::$plain => $plain.loops(site),)*
                }
            }

            /// Visits every dim that the operation needs at run time (not those of its results).
            pub fn for_each_dim(&self, visit: &mut dyn FnMut(&Dim)) {
                match self {
                    $(Op::$name(operation) => operation.each_dim(visit),)*
                    $(Op::$plain => $plain.each_dim(visit),)*
                }
            }

            /// Replaces every dim of the operation, but not those in the nodes of its regions.
            pub fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
                match self {
                    $(Op::$name(operation) => operation.map_dims(map),)*
                    $(Op::$plain => $plain.map_dims(map),)*
                }
            }

            /// The regions inside, in order.
            pub fn regions(&self) -> Vec<&Region> {
                match self {
                    $(Op::$name(operation) => operation.regions(),)*
                    $(Op::$plain => Vec::new(),)*
                }
            }

            /// The regions inside, to change.
            pub fn regions_mut(&mut self) -> Vec<&mut Region> {
                match self {
                    $(Op::$name(operation) => operation.regions_mut(),)*
                    $(Op::$plain => Vec::new(),)*
                }
            }
        }
    };
}

operations! {
    with attributes {
        // ---- elementwise ----
        /// One number into one.
        Unary(UnaryOp),
        /// Two numbers into one.
        Binary(BinaryOp),
        /// Two numbers into a bool.
        Compare(CompareOp),
        /// An activation.
        Activation(Activation),
        /// Bounds.
        Clamp(Clamp),
        /// Another dtype.
        Cast(Cast),
        /// The nearest values of a format of few bits.
        RoundTo(RoundTo),
        /// A raised chain.
        Elementwise(Expression),

        // ---- layout ----
        /// Other dims.
        Reshape(Reshape),
        /// Other order of axes.
        Permute(Permute),
        /// Axes of size 1 repeated.
        Expand(Expand),
        /// A part.
        Slice(Slice),
        /// Several, one behind the other.
        Concat(Concat),
        /// With a border.
        Pad(Pad),
        /// Several times.
        Repeat(Repeat),

        // ---- creating tensors ----
        /// One value everywhere.
        Fill(Fill),
        /// Numbers that count.
        Arange(Arange),
        /// Host integers as a tensor.
        HostTensor(HostTensor),
        /// A tensor as host integers.
        HostRead(HostRead),

        // ---- indexing; indices are i64 or i32 ----
        /// Parts at indices.
        Take(Take),
        /// Elements at indices.
        Gather(Gather),
        /// Where samples arrive in decision trees.
        TreeLeaves(TreeLeaves),
        /// Elements replaced at indices.
        Scatter(Scatter),
        /// Parts replaced at indices.
        SelectAssign(SelectAssign),

        // ---- folds ----
        /// Axes folded.
        Reduce(Reduce),
        /// Where the largest or smallest is.
        ArgReduce(ArgReduce),
        /// Running folds.
        Cumulative(Cumulative),
        /// A triangle.
        Trilu(Trilu),

        // ---- linear algebra ----
        /// A linear layer.
        Linear(Linear),
        /// A linear layer of quantized integers.
        QuantizedLinear(QuantizedLinear),
        /// Scaled-dot-product attention.
        Attention(AttentionOptions),

        // ---- windows: `[batch, channels, spatial…]`, 1 to 3 spatial axes ----
        /// A convolution.
        Conv(Conv),
        /// A transposed convolution.
        ConvTranspose(ConvTransposeOptions),
        /// A convolution of quantized integers.
        ConvInteger(ConvInteger),
        /// A convolution of quantized integers, whose sums are scaled.
        QuantizedConv(QuantizedConv),
        /// A pooling.
        Pool(Pool),
        /// Maxima and where they are.
        MaxPoolWithIndices(MaxPoolWithIndices),
        /// Means over windows that give a wanted size.
        AdaptiveAvgPool(AdaptiveAvgPool),
        /// Another spatial size.
        Interpolate(Interpolate),

        // ---- normalization ----
        /// Shares that sum to 1.
        Softmax(Softmax),
        /// Their logarithms.
        LogSoftmax(LogSoftmax),
        /// Normalized over the last axes.
        LayerNorm(LayerNorm),
        /// Scaled over the last axes.
        RmsNorm(RmsNorm),
        /// Normalized over groups of channels.
        GroupNorm(GroupNorm),
        /// Normalized by given statistics.
        BatchNorm(BatchNorm),
        /// Random zeros in training.
        Dropout(Dropout),

        // ---- recurrence, control, everything else ----
        /// A recurrent layer.
        Rnn(RnnOptions),
        /// One of two regions.
        If(If),
        /// A region again and again.
        Loop(Loop),
        /// Whether it runs once more.
        LoopCondition(LoopCondition),
        /// A call that no pass looks into.
        Call(RuntimeCall),
    }
    without {
        /// Elements of one or another.
        Where,
        /// The same values without their gradient.
        Detach,
        /// A root whose derivative at 0 counts as 0.
        RootOfSquares,
        /// A product of matrices.
        MatMul,
        /// Squared distances between the rows of two matrices.
        SquaredDistances,
        /// A product of matrices of quantized integers.
        MatMulInteger,
        /// Bytes for floats, by their range.
        QuantizeDynamic,
        /// Integers for floats, by a scale and a zero point that are given.
        Quantize,
        /// The floats that integers stand for.
        Dequantize,
        /// The floats that integers for floats stand for.
        FakeQuantize,
        /// The sum of what integers stand for, as integers.
        QuantizedAdd,
        /// The product of what integers stand for, as integers.
        QuantizedMul,
    }
}

/// What it takes to compute an operation at build time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Folding {
    /// It is left to run time. Layers of constants are not worth it; their options, which come from a file, can be of any
    /// size.
    Never,
    /// The bytes stay the same.
    Free,
    /// It looks at the elements of its result, and at its operands but the first.
    Picks,
    /// Each element of its result is a sum along the first operand's last axis.
    Products,
    /// It looks at each element of its operands once, and takes so many steps for each of its result.
    PerElement(usize),
}

/// What becomes of the values of an operation's operands: what folding it would do to parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There are none: it makes values of its attributes.
    Made,
    /// They are the same, in another order, shape or dtype: a parameter keeps its name.
    LaidOut,
    /// Some of them, or those of several operands: the parameters of a layer that the exporter split or joined.
    Joined,
    /// Each is there several times.
    Repeated,
    /// Some are looked up in the first operand.
    LookedUp,
    /// Others are computed of them.
    Computed,
    /// A call of the runtime or control flow decides.
    Unknown,
}

impl Folding {
    /// How many elements are looked at to compute a result of `count` elements; nothing where nothing is computed.
    pub(crate) fn cost(self, operands: &[Option<&TensorData>], count: usize) -> Option<u64> {
        let elements = |operands: &[Option<&TensorData>]| {
            operands.iter().flatten().map(|data| data.num_elements() as u64).fold(0, u64::saturating_add)
        };
        let count = count as u64;
        let times = |n: usize| count.saturating_mul(n as u64).saturating_add(elements(operands));
        match self {
            Folding::Never => None,
            Folding::Free => Some(0),
            Folding::Picks => Some(count.saturating_add(elements(operands.get(1..).unwrap_or_default()))),
            Folding::Products => {
                let terms = operands.first().copied().flatten().and_then(|x| x.shape.last().copied());
                Some(times(terms.unwrap_or(1)))
            }
            Folding::PerElement(steps) => Some(times(steps)),
        }
    }
}

impl Op {
    /// Types of the outputs, or the rule that the operands break.
    pub fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        rules::check_operands(self.operands(), cx)?;
        let types = self.rule(cx)?;
        for ty in &types {
            rules::check_size(ty)?;
        }
        Ok(types)
    }

    /// The contents of the single output as dims, when the operands' contents (or types) determine them.
    pub fn host(&self, graph: &Graph, inputs: &[Option<ValueId>]) -> Option<Vec<Dim>> {
        let values = self.arithmetic(&Host { graph, inputs })?;
        (values.len() <= MAX_HOST_ELEMENTS).then_some(values)
    }

    /// The outputs on known operands, computed plainly rather than fast; `None` when some size is a symbol, an operand is
    /// missing, or the operation has no meaning at build time (a call, random numbers).
    pub fn evaluate(&self, operands: &[Option<&TensorData>]) -> Option<Vec<TensorData>> {
        if operands.iter().flatten().any(|data| is_long_and_empty(&data.shape)) {
            return None;
        }
        let outputs = self.compute(&Known { operands });
        operands.iter().flatten().for_each(|data| release(data));
        outputs
    }

    /// What the runtime does for a node of this operation.
    pub fn implementation(&self, graph: &Graph, node: &Node) -> Implementation {
        self.implement(&Site { graph, node })
    }

    /// What source without a runtime does for a node of this operation; nothing when it cannot, or when a size is no number.
    pub fn loops(&self, graph: &Graph, node: &Node) -> Option<Loops> {
        self.without_runtime(&Site { graph, node })
    }

    /// Every symbol that the operation needs at run time.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut symbols = BTreeSet::new();
        self.for_each_dim(&mut |dim| symbols.extend(dim.symbols()));
        symbols
    }

    /// The variant's name, with the function for those that have one: `Conv`, `Binary(Add)`.
    pub fn kind(&self) -> String {
        match self {
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) => format!("{self:?}"),
            other => other.variant().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
