//! Interprets a whole graph on data, plainly rather than fast: how tests compare a graph before and after a pass.
//!
//! Each operation computes its own results ([`Op::evaluate`](crate::ir::Op::evaluate)). They are rounded once to the dtype, so
//! that f32 arithmetic gives what f32 arithmetic gives; transcendental functions may differ from a runtime's in the last
//! place.

mod run;

pub use run::{RunError, Runtime, run, run_each, run_with};
