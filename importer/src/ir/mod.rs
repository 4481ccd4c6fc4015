//! The intermediate representation: a typed graph in SSA form over a small core of operations.
//!
//! Invariants (checked by the verifier after every pass in tests and debug builds):
//! - every value is defined once, before its uses, in its region or an enclosing one;
//! - every value has a dtype, a rank and dims ([`Dim`]: constants or expressions over symbols); a constant has the bytes
//!   that its type needs;
//! - every symbol has an origin from which generated code can compute it before its first use;
//! - the types of a node's outputs are what [`Op::infer`] says.
//!
//! Shape arithmetic never becomes tensors: a small integer value carries its contents as [`Dim`]s
//! ([`Value::host`]), and operations take sizes as dims, not as operands (design, laws 3 and 4).

mod budget;
mod builder;
mod call;
mod dim;
mod error;
mod graph;
mod known;
mod loops;
mod naming;
pub mod op;
mod provenance;
mod quotients;
mod repeated;
mod strings;
pub(crate) mod text;
mod types;
mod verify;

pub use budget::{Allowance, Budget};
pub use builder::{Builder, Infer, OpenLoop, OuterRegion, RegionState};
pub use call::{
    Arg, Call, Chain, Config, Effect, Implementation, Layer, Name, RuntimeCall, Setting, scalars,
};
pub use dim::{Atom, Bounds, Dim, Symbol};
pub use error::{RuleError, RuleResult};
pub use graph::{
    BoundInput, Constant, ConstantId, Graph, Node, NodeId, Origin, Region, ScopeEntry, SymbolOrigin, Value,
    ValueDef, ValueId,
};
pub(crate) use known::known;
pub(crate) use loops::MAX_TABLE;
pub use loops::{ElementLoop, Kernel, KernelArg, Loops, Reduction, View};
pub use naming::{
    is_anonymous, is_numbered_parameter, names_an_operation, names_field, scope_of_first_call,
    without_quantization,
};
pub use op::*;
pub(crate) use provenance::Sources;
pub use provenance::{Channels, Norm, Provenance};
pub(crate) use quotients::{Quotient, quotients};
pub use repeated::RepeatedAxes;
pub use strings::{Key, Strings};
pub use text::{TextError, TextErrorKind};
pub use types::TensorType;
pub use verify::Violation;
