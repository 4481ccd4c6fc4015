//! Data: collections of items, and loaders that make batches of them.
//!
//! - [`dataset`]: what a dataset is, and those in memory.
//! - [`dataset::transform`]: datasets made of others, computed when an item is asked for.
//! - [`dataloader`]: batches, made by worker threads, in an order that depends on the seed alone.
//!
//! Names are Burn's (0.20).

pub mod dataloader;
pub mod dataset;
mod random;
mod transform;
