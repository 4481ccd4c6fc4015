//! Data: collections of items, and loaders that make batches of them.
//!
//! - [`dataset`]: what a dataset is, and those in memory.
//! - [`dataset::transform`]: datasets made of others, computed when an item is asked for.
//! - `dataset::SqliteDataset` and `dataset::source` (feature `sqlite`): datasets in databases, and Hugging Face's.
//! - `dataset::DataframeDataset` (feature `dataframe`): rows of Polars' data frames.
//! - `dataset::vision` (feature `vision`): MNIST, folders of images, COCO.
//! - [`dataloader`]: batches, made by worker threads, in an order that depends on the seed alone.
//!
//! Names are Burn's (0.20).
#![forbid(unsafe_code)]

#[cfg(any(feature = "sqlite", feature = "vision"))]
mod cache;
pub mod dataloader;
pub mod dataset;
/// [`dataloader`], as it is spelled in places of the Burn Book.
pub use dataloader as data_loader;
mod random;
#[cfg(feature = "sqlite")]
mod source;
mod transform;
#[cfg(feature = "vision")]
mod vision;
