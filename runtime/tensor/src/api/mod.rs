//! `Tensor<B, D, K>`: thin, checked methods over a backend's operations, one file a family.

mod autodiff;
mod base;
mod bool;
mod compare;
mod display;
mod float;
mod indexing;
mod int;
mod kind;
mod numeric;
mod operators;
mod order;
mod read;
mod reduce;
mod report;
mod serialize;
mod shape;
mod transaction;

pub use base::{Tensor, TensorCreationOptions};
pub use display::{PrintOptions, set_print_options};
pub use kind::{BasicAutodiffOps, BasicOps, Bool, Float, Int, Numeric, Ordered, TensorKind, TensorPrimitive};
#[cfg(feature = "std")]
pub use report::check_closeness;
pub use report::closeness_report;
pub use shape::DimIter;
pub use transaction::Transaction;
