//! Saving a module under PyTorch's names and in its layouts.

use super::adapter::{Frame, View, path_of};
use super::load::Walk;
use super::{AdapterType, ImportError};
use crate::module::{Module, ModuleVisitor, Param};
use crate::tensor::backend::Backend;
use crate::tensor::{Bool, Int, Tensor, TensorData};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::{format, vec, vec::Vec};
use kiln_record::safetensors::{TensorToWrite, save};
use kiln_types::Bytes;
use kiln_weights::LazyTensor;
use std::path::Path;

/// Saves the parameters of a module as Safetensors, under the names and in the layouts of a framework: with
/// [`AdapterType::PyTorch`], `module.load_state_dict(safetensors.torch.load_file(path))` takes it.
///
/// # Errors
/// When the gates or projections of a layer do not fit together, or the file cannot be written.
pub fn save_weights<B: Backend, M: Module<B>, P: AsRef<Path>>(
    module: &M,
    path: P,
    adapter: AdapterType,
) -> Result<(), ImportError> {
    let mut collector = Collector { walk: Walk::default(), adapter, parts: BTreeMap::new() };
    module.visit(&mut collector);
    let tensors = collector.parts.into_iter().map(|(key, parts)| {
        let data = join(&key, parts)?;
        Ok(TensorToWrite::new(key, data))
    });
    let tensors = tensors.collect::<Result<Vec<_>, ImportError>>()?;
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    save(path.as_ref(), &tensors, &metadata).map_err(|error| ImportError::Record(error.to_string()))
}

/// What a module's parameters contribute to each key: the views that they are, and their contents.
struct Collector {
    walk: Walk,
    adapter: AdapterType,
    parts: BTreeMap<String, Vec<(View, TensorData)>>,
}

impl Collector {
    fn add(&mut self, data: TensorData) {
        let frames = self.walk.frames();
        let Some(candidate) = self.adapter.candidates(&frames).into_iter().next() else { return };
        self.parts.entry(candidate.key).or_default().push((candidate.view, data));
        if let (AdapterType::PyTorch, Some(key)) = (self.adapter, batch_count(&frames)) {
            let count = TensorData::new(vec![0_i64], crate::tensor::Shape::default());
            self.parts.entry(key).or_default().push((View::default(), count));
        }
    }
}

/// The key of the count of batches, which PyTorch's batch norm has beside the running mean.
fn batch_count(frames: &[Frame]) -> Option<String> {
    let (leaf, above) = frames.split_last()?;
    let here = leaf.container == "BatchNorm" && leaf.name == "running_mean";
    let prefix = if above.is_empty() { String::new() } else { format!("{}.", path_of(above)) };
    here.then(|| format!("{prefix}num_batches_tracked"))
}

/// One tensor from the parts of it.
fn join(key: &str, mut parts: Vec<(View, TensorData)>) -> Result<TensorData, ImportError> {
    let fail = |what: &str| ImportError::Record(format!("{key}: {what}"));
    parts.sort_by_key(|(view, _)| view.part);
    let expected = parts.first().and_then(|(view, _)| view.part).map_or(1, |(_, count)| count);
    if parts.len() != expected {
        return Err(fail("parts of it are missing, or there are too many"));
    }
    let mut joined: Option<(Vec<u8>, Vec<usize>, crate::tensor::DType)> = None;
    for (view, data) in parts {
        let data =
            if view.transpose { transposed(data).ok_or_else(|| fail("it has no two dims"))? } else { data };
        match &mut joined {
            None if expected == 1 => return Ok(data),
            None => joined = Some((data.bytes.to_vec(), data.shape, data.dtype)),
            Some((bytes, shape, dtype)) => {
                if shape.get(1..) != data.shape.get(1..) || *dtype != data.dtype {
                    return Err(fail("its parts are of different shapes"));
                }
                bytes.extend_from_slice(&data.bytes);
                if let (Some(rows), Some(more)) = (shape.first_mut(), data.shape.first()) {
                    *rows += more;
                }
            }
        }
    }
    let (bytes, shape, dtype) = joined.ok_or_else(|| fail("it has no parts"))?;
    TensorData::from_bytes(Bytes::from_vec(bytes), shape, dtype).map_err(|error| fail(&error.to_string()))
}

/// The data with the last two dims exchanged.
fn transposed(data: TensorData) -> Option<TensorData> {
    LazyTensor::whole(data, "").transposed()?.data().ok()
}

impl<B: Backend> ModuleVisitor<B> for Collector {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.walk.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.walk.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.add(param.val().into_data());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(param.val().into_data());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(param.val().into_data());
    }
}
