//! Modules: containers of parameters, and what walks through them.

mod adapter;
mod constant;
mod containers;
mod derived;
mod display;
mod initializer;
mod lock;
mod origin;
mod pairs;
mod param;
mod paths;
mod quantize;
mod running;
mod selection;
mod tensors;
mod traits;

pub use adapter::LowRank;
#[cfg(feature = "weights")]
pub(crate) use adapter::{Form, attach_each};
pub use constant::{ConstantRecord, Ignored};
pub use display::{Attribute, Content, DisplaySettings, ModuleDisplay, ModuleDisplayDefault};
pub use initializer::Initializer;
pub use kiln_record::ParamId;
pub use kiln_types::{Derivation, DerivationError};
pub use origin::Origin;
pub use pairs::{LowRankPairs, LowRankRecord};
pub use param::{Param, ParamMapper, Parameter};
pub use quantize::Quantizer;
pub use running::RunningState;
pub use selection::NothingSelected;
#[cfg(feature = "weights")]
pub(crate) use selection::Trail;
pub use traits::{AutodiffModule, Devices, Module, ModuleMapper, ModuleVisitor};
