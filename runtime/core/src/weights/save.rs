//! Saving a module under PyTorch's names and in its layouts.

use super::adapter::{Candidate, Frame, View, path_of};
use super::derived::{Equation, Made, Solver};
use super::normalized;
use super::outline::{Lists, Outline, Wanted};
use super::source::Source;
use super::{AdapterType, ImportError, LoadArgs, SaveReport, Undone, Unsaved};
use crate::module::{Derivation, Module, ModuleVisitor, Param};
use crate::tensor::backend::Backend;
use crate::tensor::{Bool, Int, Tensor, TensorData};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::{boxed::Box, format, vec, vec::Vec};
use kiln_record::safetensors::{TensorToWrite, save};
use kiln_types::Bytes;
use kiln_types::layers::{JOINED_PROJECTIONS, MULTI_HEAD_ATTENTION};
use kiln_weights::LazyTensor;
use std::path::Path;

/// Saves the parameters of a module as Safetensors, under the names and in the layouts of a framework: with
/// [`AdapterType::PyTorch`], `module.load_state_dict(safetensors.torch.load_file(path))` takes it.
///
/// Parameters of generated modules that were made of others ([`Origin`](crate::module::Origin)) are taken apart again.
/// Where a batch normalization was folded into a layer, the layer's weight is what both were and the normalization does
/// nothing: the network computes the same. What a module does not have is not in the file; [`save_weights_like`] takes it
/// from the checkpoint that the module was loaded from.
///
/// # Errors
/// [`ImportError::Unsaved`] lists every parameter that cannot be taken apart. Others when the gates or projections of a
/// layer do not fit together, or the file cannot be written.
pub fn save_weights<B: Backend, M: Module<B>, P: AsRef<Path>>(
    module: &M,
    path: P,
    adapter: AdapterType,
) -> Result<(), ImportError> {
    let tensors = Collector::<B> { adapter, original: None, parts: BTreeMap::new(), equations: Vec::new() };
    write(tensors.collect(module)?, path.as_ref())
}

/// Saves a module in the form of a checkpoint that it can be loaded from, as Safetensors: under the checkpoint's names,
/// with its dtypes (but floats of 16 bits for those of eight), and with everything in it that the module does not have. A tensor
/// that the checkpoint has under several keys, as PyTorch writes parameters that layers share, is saved under all of them.
///
/// Parameters that were made of several tensors and have not changed leave these as they are. Of those that have changed,
/// one tensor takes the change: a layer's weight rather than the batch normalization that was folded into it.
///
/// # Errors
/// As [`save_weights`], and when the checkpoint cannot be read or has tensors of kinds that Kiln does not have.
///
/// ```no_run
/// # use kiln::module::Module;
/// # use kiln::tensor::backend::Backend;
/// # use kiln::weights::{ImportError, save_weights_like};
/// fn publish<B: Backend, M: Module<B>>(tuned: &M) -> Result<(), ImportError> {
///     save_weights_like(tuned, "resnet18.pt", "resnet18_tuned.safetensors")
/// }
/// ```
pub fn save_weights_like<B: Backend, M: Module<B>, P: AsRef<Path>>(
    module: &M,
    original: impl Into<LoadArgs>,
    path: P,
) -> Result<(), ImportError> {
    let args = original.into();
    let source = Source::read(&args)?;
    if let Some((key, what)) = source.unsupported().next() {
        return Err(ImportError::Record(format!(
            "{} has {key}, {what}, which the saved file would lack; `save_weights` saves the module's own parameters alone",
            source.name
        )));
    }
    let collector = Collector::<B> {
        adapter: args.adapter,
        original: Some(&source),
        parts: BTreeMap::new(),
        equations: Vec::new(),
    };
    let found = collector.collect(module)?;
    let mut shared: BTreeMap<_, Vec<(&LazyTensor, &TensorData)>> = BTreeMap::new();
    for (key, tensor) in source.iter() {
        if let Some(data) = found.get(key) {
            shared.entry(tensor.place()).or_default().push((tensor, data));
        }
    }
    // What the module has of a tensor that the file has under several keys is each of them.
    let twin = |tensor: &LazyTensor| {
        let (_, data) = shared.get(&tensor.place())?.iter().find(|(other, _)| tensor.is_same(other))?;
        Some(*data)
    };
    let mut tensors = BTreeMap::new();
    for (key, tensor) in source.iter() {
        let data = match found.get(key).or_else(|| twin(tensor)) {
            Some(data) => data.clone().convert_dtype(tensor.dtype()),
            None => source.data(key, tensor)?,
        };
        tensors.insert(source.original_key(key).to_string(), data);
    }
    tensors.extend(found.into_iter().filter(|(key, _)| source.get(key).is_none()));
    write(tensors, path.as_ref())
}

fn write(tensors: BTreeMap<String, TensorData>, path: &Path) -> Result<(), ImportError> {
    let tensors: Vec<_> = tensors.into_iter().map(|(key, data)| TensorToWrite::new(key, data)).collect();
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    save(path, &tensors, &metadata).map_err(|error| ImportError::Record(error.to_string()))
}

/// The views of each tensor that parameters are, with their contents.
type Parts = BTreeMap<String, Vec<(View, TensorData)>>;

/// What a module's parameters contribute to each key.
struct Collector<'s, B: Backend> {
    adapter: AdapterType,
    original: Option<&'s Source>,
    /// The views of a tensor that parameters are, with their contents.
    parts: Parts,
    /// Parameters that are computed from tensors.
    equations: Vec<Equation<B>>,
}

impl<B: Backend> Collector<'_, B> {
    /// The tensors that a module's parameters are.
    fn collect<M: Module<B>>(mut self, module: &M) -> Result<BTreeMap<String, TensorData>, ImportError> {
        let mut outline = Outline::default();
        module.visit(&mut outline);
        let mut values = Values::<B>(Vec::new());
        module.visit(&mut values);
        let lists = self.original.map(|original| Lists::new(&outline, original));
        let mut broken = Vec::new();
        for (wanted, value) in outline.wanted.iter().zip(values.0) {
            let frames =
                lists.as_ref().map_or_else(|| wanted.frames.clone(), |lists| lists.renumber(&wanted.frames));
            broken.extend(self.add(wanted, &frames, value)?);
        }
        let Self { original, parts, equations, .. } = self;
        let parts = with_own_sizes(parts);
        let joined = parts.into_iter().map(|(key, parts)| Ok((key.clone(), join(&key, parts)?)));
        let mut tensors = joined.collect::<Result<BTreeMap<_, _>, ImportError>>()?;
        let (equations, device) = on_one_device(equations);
        match Solver::<B>::new(&tensors, original, device).solve(&equations) {
            Ok(solved) if broken.is_empty() => tensors.extend(solved),
            Ok(_) => return Err(Box::new(SaveReport { unsaved: broken }).into()),
            Err(unsaved) => {
                broken.extend(unsaved);
                return Err(Box::new(SaveReport { unsaved: broken }).into());
            }
        }
        Ok(tensors)
    }

    fn is_there(&self, key: &str) -> bool {
        self.original.is_some_and(|original| original.get(key).is_some())
    }

    /// Adds a parameter. `frames` are its own with the original's numbers.
    fn add(
        &mut self,
        wanted: &Wanted,
        frames: &[Frame],
        value: B::Primitive,
    ) -> Result<Option<Unsaved>, ImportError> {
        let candidates = self.adapter.candidates(frames);
        let made = match self.adapter {
            AdapterType::PyTorch => wanted.made(frames, &candidates, |key| self.is_there(key)),
            AdapterType::NoAdapter => Ok(None),
        };
        match made {
            Ok(None) => match self.normalized(&candidates) {
                Some(expression) => self.add_computed(wanted, expression, &value),
                None => self.add_plain(frames, candidates, value)?,
            },
            Ok(Some(Made::Before)) => {}
            Ok(Some(Made::By(expression))) => self.add_computed(wanted, expression, &value),
            Err(reason) => {
                let path = path_of(&wanted.frames);
                return Ok(Some(Unsaved { path, expression: reason, reason: Undone::Unreadable }));
            }
        }
        Ok(None)
    }

    /// How the original's weight is computed from others, if it has it so.
    fn normalized(&self, candidates: &[Candidate]) -> Option<Derivation> {
        let original = self.original.filter(|_| self.adapter == AdapterType::PyTorch)?;
        let plain = candidates.iter().any(|candidate| self.is_there(&candidate.key));
        if plain { None } else { normalized::weight(original, candidates) }
    }

    fn add_plain(
        &mut self,
        frames: &[Frame],
        candidates: Vec<Candidate>,
        value: B::Primitive,
    ) -> Result<(), ImportError> {
        let at = candidates.iter().position(|candidate| self.is_there(&candidate.key)).unwrap_or(0);
        let Some(candidate) = candidates.into_iter().nth(at) else { return Ok(()) };
        let data = B::into_data(value).map_err(|error| ImportError::Record(error.to_string()))?;
        self.parts.entry(candidate.key).or_default().push((candidate.view, data));
        let is_norm = frames.last().is_some_and(|leaf| leaf.container == "BatchNorm");
        if let (AdapterType::PyTorch, true) = (self.adapter, is_norm) {
            self.add_batch_count(&path_of(frames));
        }
        Ok(())
    }

    /// Adds the count of batches, which PyTorch's batch norm has beside the running mean. An original has its own.
    fn add_batch_count(&mut self, key: &str) {
        let Some(prefix) = key.strip_suffix("running_mean").filter(|_| self.original.is_none()) else {
            return;
        };
        let count = TensorData::new(vec![0_i64], crate::tensor::Shape::default());
        self.parts.insert(format!("{prefix}{BATCH_COUNT}"), vec![(View::default(), count)]);
    }

    /// Adds a parameter that is computed; from each of several tensors that may be there, if it is from any one of them.
    fn add_computed(&mut self, wanted: &Wanted, expression: Derivation, value: &B::Primitive) {
        let choices = match expression {
            Derivation::First(choices) => choices,
            other => vec![other],
        };
        let there = |choice: &Derivation| choice.keys().into_iter().all(|key| self.is_there(key));
        let some = choices.iter().any(there);
        let choices: Vec<_> = choices.into_iter().filter(|choice| !some || there(choice)).collect();
        for expression in choices {
            for key in expression.keys() {
                self.add_batch_count(key);
            }
            let (path, target, value) = (path_of(&wanted.frames), wanted.target(), value.clone());
            self.equations.push(Equation { path, expression, target, value });
        }
    }
}

/// The equations with all values on the device that the first one has: a module may lie on several, and tensors on different ones
/// do not meet in an operation.
fn on_one_device<B: Backend>(mut equations: Vec<Equation<B>>) -> (Vec<Equation<B>>, B::Device) {
    let device = equations.first().map(|equation| B::device(&equation.value)).unwrap_or_default();
    for Equation { value, .. } in &mut equations {
        if B::device(value) != device {
            *value = B::to_device(value.clone(), &device);
        }
    }
    (equations, device)
}

/// Attention whose keys or values have sizes of their own has a matrix for each projection in place of a joined one.
fn with_own_sizes(parts: Parts) -> Parts {
    let mut sorted = Parts::new();
    for (key, parts) in parts {
        let sizes = || parts.iter().map(|(_, data)| data.shape.first());
        let same = sizes().all(|size| Some(size) == sizes().next());
        let Some(above) = key.strip_suffix(JOINED_PROJECTIONS).filter(|_| !same) else {
            sorted.entry(key).or_default().extend(parts);
            continue;
        };
        for (view, data) in parts {
            let projection = view.part.and_then(|(index, _)| MULTI_HEAD_ATTENTION.joined.get(index));
            let name = projection.and_then(|joined| joined.alone).unwrap_or(JOINED_PROJECTIONS);
            sorted.entry(format!("{above}{name}")).or_default().push((View { part: None, ..view }, data));
        }
    }
    sorted
}

/// What PyTorch's batch norm calls the number of batches that it has seen.
const BATCH_COUNT: &str = "num_batches_tracked";

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

/// The contents of all parameters, in order.
struct Values<B: Backend>(Vec<B::Primitive>);

impl<B: Backend> ModuleVisitor<B> for Values<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push(param.val().into_backend());
    }

    fn visit_low_rank<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.visit_float(param);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.0.push(param.val().into_backend());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.0.push(param.val().into_backend());
    }
}
