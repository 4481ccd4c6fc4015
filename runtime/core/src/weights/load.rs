//! Loading into a module that is there.

use super::adapter::{Candidate, Frame, path_of};
use super::derived::{self, Made, Recipe};
use super::normalized;
use super::outline::{Lists, Outline, Walk, Wanted};
use super::source::Source;
use super::{
    AdapterType, ImportError, ImportReport, LoadArgs, MissingWeight, UnsupportedWeight, WantedShape,
    WrongWeight,
};
use crate::module::{Derivation, Module, ModuleMapper, Param, Parameter};
use crate::tensor::backend::{Backend, hold};
use crate::tensor::{Bool, DType, DTypeKind, Int, Tensor, TensorData};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use kiln_weights::LazyTensor;

/// Loads the parameters of a module from a checkpoint: a file of PyTorch or Safetensors, or a folder of shards.
///
/// Fields that were made of others (see [`Origin`](crate::module::Origin)) are made of the file's in the same way; what belongs to the module's
/// own graph stays as it is in the module.
///
/// Keys are the module's paths, or what its layers' counterparts in PyTorch have (see
/// [`AdapterType`](super::AdapterType)). Where a list's indices have gaps in the file, they count as if there were none.
/// Floats become the backend's floats, integers its integers. Each tensor is read when its parameter is loaded, from a
/// memory map.
///
/// # Errors
/// [`ImportError::Report`] lists every parameter that is missing or of another shape or kind, and every key left over.
/// Keys that are only left over are no error unless [`LoadArgs::with_strict`] says so, missing ones are none after
/// [`LoadArgs::with_partial`].
///
/// ```no_run
/// # use kiln::module::Module;
/// # use kiln::tensor::backend::Backend;
/// # use kiln::weights::{ImportError, LoadArgs, load_weights};
/// fn pretrained<B: Backend, M: Module<B>>(model: M, device: &B::Device) -> Result<M, ImportError> {
///     load_weights(model, LoadArgs::new("model.pt".into()).with_top_level_key("state_dict"), device)
/// }
/// ```
pub fn load_weights<B: Backend, M: Module<B>>(
    module: M,
    args: impl Into<LoadArgs>,
    device: &B::Device,
) -> Result<M, ImportError> {
    let args = args.into();
    let source = Source::read(&args)?;
    let mut outline = Outline::default();
    module.visit(&mut outline);
    let plan = plan(&outline, &source, &args)?;
    let mut loader = Loader::<B> { walk: Walk::default(), device, source: &source, plan, failed: None };
    let module = module.map(&mut loader);
    match loader.failed {
        Some(error) => Err(error),
        None => Ok(module),
    }
}

/// Which tensor each parameter gets, by the parameter's path.
type Plan = BTreeMap<String, Planned>;

/// What a parameter gets.
struct Planned {
    from: From,
    dtype: DType,
}

/// Where the contents of a parameter come from.
pub(super) enum From {
    /// A tensor under a key, or a view of it.
    Tensor(String, LazyTensor),
    /// A computation over tensors.
    Recipe(Recipe),
}

/// Finds what each parameter gets, or says what does not fit.
fn plan(outline: &Outline, source: &Source, args: &LoadArgs) -> Result<Plan, ImportError> {
    let lists = Lists::new(outline, source);
    let report = ImportReport { source: source.name.clone(), ..ImportReport::default() };
    let mut planner = Planner { source, plan: Plan::new(), used: BTreeSet::new(), report };
    for wanted in &outline.wanted {
        planner.add(wanted, &lists.renumber(&wanted.frames), args.adapter);
    }
    let Planner { plan, used, mut report, .. } = planner;
    let place =
        |tensor: &LazyTensor| (Arc::as_ptr(tensor.storage()), tensor.offset(), tensor.shape().to_vec());
    let places: BTreeSet<_> = used.iter().filter_map(|key| source.get(key)).map(place).collect();
    // A tensor under two names is used under both.
    let unused = source.iter().filter(|(key, tensor)| {
        !used.contains(*key) && !is_bookkeeping(key) && !places.contains(&place(tensor))
    });
    report.unused = unused.map(|(key, tensor)| (key.to_string(), tensor.shape().to_vec())).collect();
    let missing = !report.missing.is_empty() && !args.partial;
    let misfit = !report.wrong.is_empty() || !report.broken.is_empty() || !report.unsupported.is_empty();
    let unused = source.unsupported().filter(|(key, _)| !used.contains(*key));
    report.unsupported.extend(unused.map(|(key, what)| UnsupportedWeight {
        path: None,
        key: key.to_owned(),
        what: what.to_owned(),
    }));
    let left_over = !report.unused.is_empty() || !report.unsupported.is_empty();
    if missing || misfit || (args.strict && left_over) {
        return Err(Box::new(report).into());
    }
    Ok(plan)
}

/// Finds what parameters get, one after the other.
struct Planner<'s> {
    source: &'s Source,
    plan: Plan,
    used: BTreeSet<String>,
    report: ImportReport,
}

impl Planner<'_> {
    /// `frames` are the parameter's with the numbers of the file.
    fn add(&mut self, wanted: &Wanted, frames: &[Frame], adapter: AdapterType) {
        let candidates = adapter.candidates(frames);
        // Other conventions than PyTorch's are those of the module as it is.
        let made = match adapter {
            AdapterType::PyTorch => wanted.made(frames, &candidates, |key| self.source.get(key).is_some()),
            AdapterType::NoAdapter => Ok(None),
        };
        match made {
            Ok(None) => self.add_plain(wanted, &candidates),
            Ok(Some(Made::Before)) => {}
            Ok(Some(Made::By(expression))) => self.add_computed(wanted, expression),
            Err(reason) => self.report.broken.push((path_of(&wanted.frames), reason)),
        }
    }

    /// A parameter that is a tensor of the file, or a part of one.
    fn add_plain(&mut self, wanted: &Wanted, candidates: &[Candidate]) {
        let Wanted { frames, shape, dtype, .. } = wanted;
        let path = path_of(frames);
        let found =
            candidates.iter().find_map(|candidate| Some((candidate, self.source.get(&candidate.key)?)));
        let Some((Candidate { key, view }, whole)) = found else {
            if let Some(expression) = normalized::weight(self.source, candidates) {
                return self.add_computed(wanted, expression);
            }
            if candidates.iter().any(|candidate| self.report_unsupported(&path, &candidate.key)) {
                return;
            }
            let key = candidates.first().map_or_else(String::new, |candidate| candidate.key.clone());
            self.report.missing.push(MissingWeight {
                path,
                key,
                shape: Some(WantedShape::Dims(shape.clone())),
            });
            return;
        };
        self.used.insert(key.clone());
        let stored = whole.dtype();
        match view
            .of(whole)
            .map(|tensor| tensor.scalar_of_rank(shape.len()))
            .filter(|tensor| tensor.shape() == shape.as_slice() && fits_kind(stored, dtype.kind()))
        {
            Some(tensor) => {
                let from = From::Tensor(key.clone(), tensor);
                self.plan.insert(path, Planned { from, dtype: *dtype });
            }
            None => self.report.wrong.push(WrongWeight {
                path,
                key: key.clone(),
                kind: dtype.kind(),
                shape: WantedShape::Dims(view.whole_shape(shape)),
                found: (stored, whole.shape().to_vec()),
            }),
        }
    }

    /// Reports that the file has a tensor for a parameter that is of a kind that Kiln does not have; `false` if it has none.
    fn report_unsupported(&mut self, path: &str, key: &str) -> bool {
        let Some(what) = self.source.unsupported_kind(key) else { return false };
        let (path, key, what) = (Some(path.to_owned()), key.to_owned(), what.to_owned());
        self.used.insert(key.clone());
        self.report.unsupported.push(UnsupportedWeight { path, key, what });
        true
    }

    /// A parameter that is computed from tensors of the file.
    fn add_computed(&mut self, wanted: &Wanted, expression: Derivation) {
        let Wanted { frames, shape, dtype, .. } = wanted;
        let path = path_of(frames);
        let expression = derived::settled(expression, self.source);
        let keys: BTreeSet<String> = expression.keys().into_iter().map(str::to_owned).collect();
        let missing: Vec<&String> = keys.iter().filter(|key| self.source.get(key).is_none()).collect();
        let stored = keys.first().and_then(|key| self.source.get(key)).map_or(*dtype, LazyTensor::dtype);
        if !missing.is_empty() {
            let missing: Vec<_> =
                missing.into_iter().filter(|key| !self.report_unsupported(&path, key)).collect();
            let missing = missing.into_iter().map(|key| MissingWeight {
                path: path.clone(),
                key: key.clone(),
                shape: None,
            });
            self.report.missing.extend(missing);
            self.used.extend(keys);
            return;
        }
        self.used.extend(keys);
        let recipe = Recipe { expression, target: wanted.target() };
        match recipe.shape(self.source) {
            Ok(found) if (found == *shape || recipe.is_number()) && fits_kind(stored, dtype.kind()) => {
                let from = recipe.view(self.source).unwrap_or(From::Recipe(recipe));
                self.plan.insert(path, Planned { from, dtype: *dtype });
            }
            Ok(found) => self.report.wrong.push(WrongWeight {
                path,
                key: recipe.name(),
                kind: dtype.kind(),
                shape: WantedShape::Dims(shape.clone()),
                found: (stored, found),
            }),
            Err(misfit) => self.report.broken.push((path, misfit.to_string())),
        }
    }
}

/// Whether a tensor may become a parameter of a kind. Older files have bytes for bools.
pub(super) fn fits_kind(stored: DType, wanted: DTypeKind) -> bool {
    stored.kind() == wanted || (wanted == DTypeKind::Bool && stored == DType::U8)
}

/// Whether PyTorch keeps this for training only: how many batches a norm has seen.
pub(super) fn is_bookkeeping(key: &str) -> bool {
    key.rsplit('.').next() == Some("num_batches_tracked")
}

/// Puts the planned tensors into the parameters that it maps.
struct Loader<'a, B: Backend> {
    walk: Walk,
    device: &'a B::Device,
    source: &'a Source,
    plan: Plan,
    failed: Option<ImportError>,
}

impl<B: Backend> Loader<'_, B> {
    fn load<T>(&mut self, param: Param<T>, make: impl FnOnce(B::Primitive) -> T) -> Param<T>
    where
        T: Parameter<Device = B::Device>,
    {
        match self.take() {
            Some(data) => {
                // Not through the parameter's mapper, which knows Kiln's records: the view is the value in memory.
                param.with_value(make(hold::<B>(data, self.device)))
            }
            None => param,
        }
    }

    /// The data for the parameter here, unless there is none or something failed.
    fn take(&mut self) -> Option<TensorData> {
        let planned = self.plan.get(&path_of(&self.walk.frames()))?;
        if self.failed.is_some() {
            return None;
        }
        let data = match &planned.from {
            From::Tensor(key, tensor) => self.source.data(key, tensor),
            From::Recipe(recipe) => recipe.compute::<B>(self.source, self.device),
        };
        match data {
            Ok(data) if data.dtype == planned.dtype => Some(data),
            Ok(data) => {
                let pages = data.bytes.clone();
                let converted = data.convert_dtype(planned.dtype);
                // The file's were read once, and are not what the module holds.
                pages.release();
                Some(converted)
            }
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}

impl<B: Backend> ModuleMapper<B> for Loader<'_, B> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.walk.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.walk.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.load(param, Tensor::from_backend)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        self.load(param, Tensor::from_backend)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<B, D, Bool>>) -> Param<Tensor<B, D, Bool>> {
        self.load(param, Tensor::from_backend)
    }
}
