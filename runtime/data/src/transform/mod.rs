//! Datasets made of others. Nothing is computed before an item is asked for.

mod composed;
mod mapper;
mod options;
mod partial;
mod sampler;
mod selection;
mod windows;

pub use composed::ComposedDataset;
pub use mapper::{Mapper, MapperDataset};
pub use options::{RngSource, SizeConfig};
pub use partial::PartialDataset;
pub use sampler::{SamplerDataset, SamplerDatasetOptions};
pub use selection::{SelectionDataset, ShuffledDataset};
pub use windows::{Window, Windows, WindowsDataset, WindowsIterator};
