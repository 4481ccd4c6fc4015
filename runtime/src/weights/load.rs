//! Loading into a module that is there.

use super::adapter::{Candidate, Frame, path_of};
use super::source::Source;
use super::{ImportError, ImportReport, LoadArgs, MissingWeight, WantedShape, WrongWeight};
use crate::module::{Module, ModuleMapper, ModuleVisitor, Param, Parameter};
use crate::tensor::backend::Backend;
use crate::tensor::{Bool, DType, DTypeKind, Element, Int, Tensor, TensorData};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::{boxed::Box, vec::Vec};
use kiln_weights::LazyTensor;

/// Loads the parameters of a module from a checkpoint: a file of PyTorch or Safetensors, or a folder of shards.
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

/// The way to where a visitor or mapper is.
#[derive(Default)]
pub(super) struct Walk {
    frames: Vec<Option<Frame>>,
}

impl Walk {
    pub(super) fn enter(&mut self, name: &str, container: &str) {
        // An enum's variant is no part of a path: the module could as well be there without the enum.
        let frame = (!container.starts_with("Enum:")).then(|| Frame {
            container: container.strip_prefix("Struct:").unwrap_or(container).to_string(),
            name: name.to_string(),
        });
        self.frames.push(frame);
    }

    pub(super) fn exit(&mut self) {
        self.frames.pop();
    }

    pub(super) fn frames(&self) -> Vec<Frame> {
        self.frames.iter().flatten().cloned().collect()
    }
}

/// A parameter that a module wants.
struct Wanted {
    frames: Vec<Frame>,
    shape: Vec<usize>,
    dtype: DType,
}

/// Collects the parameters that a module wants.
#[derive(Default)]
struct Outline {
    walk: Walk,
    wanted: Vec<Wanted>,
}

impl Outline {
    fn add<T: Parameter>(&mut self, param: &Param<T>, dtype: DType) {
        let shape = param.lazy_shape().as_slice().to_vec();
        self.wanted.push(Wanted { frames: self.walk.frames(), shape, dtype });
    }
}

impl<B: Backend> ModuleVisitor<B> for Outline {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.walk.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.walk.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.add(param, B::FloatElem::DTYPE);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(param, B::IntElem::DTYPE);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(param, DType::Bool);
    }
}

/// Which tensor each parameter gets, by the parameter's path.
type Plan = BTreeMap<String, Planned>;

/// A tensor for a parameter.
struct Planned {
    key: String,
    tensor: LazyTensor,
    dtype: DType,
}

/// Finds a tensor for each parameter, or says what does not fit.
fn plan(outline: &Outline, source: &Source, args: &LoadArgs) -> Result<Plan, ImportError> {
    let lists = Lists::new(outline, source);
    let mut report = ImportReport { source: source.name.clone(), ..ImportReport::default() };
    let (mut plan, mut used) = (Plan::new(), BTreeSet::new());
    for Wanted { frames, shape, dtype } in &outline.wanted {
        let path = path_of(frames);
        let candidates = args.adapter.candidates(&lists.renumber(frames));
        let found = candidates.iter().find_map(|candidate| Some((candidate, source.get(&candidate.key)?)));
        let Some((Candidate { key, view }, whole)) = found else {
            let key = candidates.last().map_or_else(String::new, |candidate| candidate.key.clone());
            let key = candidates.first().map_or(key, |candidate| candidate.key.clone());
            report.missing.push(MissingWeight { path, key, shape: Some(WantedShape::Dims(shape.clone())) });
            continue;
        };
        used.insert(key.as_str().to_string());
        let stored = whole.dtype();
        let kind_fits = fits_kind(stored, dtype.kind());
        match view.of(whole).filter(|tensor| tensor.shape() == shape.as_slice() && kind_fits) {
            Some(tensor) => {
                plan.insert(path, Planned { key: key.clone(), tensor, dtype: *dtype });
            }
            None => report.wrong.push(WrongWeight {
                path,
                key: key.clone(),
                kind: dtype.kind(),
                shape: WantedShape::Dims(view.whole_shape(shape)),
                found: (stored, whole.shape().to_vec()),
            }),
        }
    }
    let unused = source.iter().filter(|(key, _)| !used.contains(*key) && !is_bookkeeping(key));
    report.unused = unused.map(|(key, tensor)| (key.to_string(), tensor.shape().to_vec())).collect();
    let missing = !report.missing.is_empty() && !args.partial;
    if missing || !report.wrong.is_empty() || (args.strict && !report.unused.is_empty()) {
        return Err(Box::new(report).into());
    }
    Ok(plan)
}

/// Whether a tensor may become a parameter of a kind. Older files have bytes for bools.
pub(super) fn fits_kind(stored: DType, wanted: DTypeKind) -> bool {
    stored.kind() == wanted || (wanted == DTypeKind::Bool && stored == DType::U8)
}

/// Whether PyTorch keeps this for training only: how many batches a norm has seen.
pub(super) fn is_bookkeeping(key: &str) -> bool {
    key.rsplit('.').next() == Some("num_batches_tracked")
}

/// The numbers that the items of lists have in the file.
struct Lists(BTreeMap<String, Vec<(usize, usize)>>);

impl Lists {
    /// Items keep their indices where the file has the same ones; else the n-th item is the n-th index of the file.
    fn new(outline: &Outline, source: &Source) -> Self {
        let mut own: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for wanted in &outline.wanted {
            for (depth, frame) in wanted.frames.iter().enumerate().filter(|(_, frame)| is_list(frame)) {
                let list = own.entry(path_of(wanted.frames.get(..depth).unwrap_or_default())).or_default();
                list.extend(frame.name.parse::<usize>());
            }
        }
        let mut lists = Self(BTreeMap::new());
        // Outer lists come first, since a path sorts before those it begins.
        for (path, own) in own {
            let theirs = source.indices(&lists.renumber_path(&path));
            let same = own.iter().all(|index| theirs.contains(index)) && own.len() == theirs.len();
            if !same {
                lists.0.insert(path, own.into_iter().zip(theirs).collect());
            }
        }
        lists
    }

    /// The index that an item has in the file.
    fn index(&self, list: &str, index: &str) -> Option<String> {
        let own: usize = index.parse().ok()?;
        let (_, theirs) = self.0.get(list)?.iter().find(|(known, _)| *known == own)?;
        Some(theirs.to_string())
    }

    fn renumber(&self, frames: &[Frame]) -> Vec<Frame> {
        let mut renumbered = frames.to_vec();
        for (depth, frame) in renumbered.iter_mut().enumerate().filter(|(_, frame)| is_list(frame)) {
            let list = path_of(frames.get(..depth).unwrap_or_default());
            if let Some(index) = self.index(&list, &frame.name) {
                frame.name = index;
            }
        }
        renumbered
    }

    fn renumber_path(&self, path: &str) -> String {
        let mut tokens: Vec<String> = Vec::new();
        let mut own = String::new();
        for token in path.split('.') {
            tokens.push(self.index(&own, token).unwrap_or_else(|| token.to_string()));
            own = if own.is_empty() { token.to_string() } else { alloc::format!("{own}.{token}") };
        }
        tokens.join(".")
    }
}

/// Whether a frame is an item of a list.
fn is_list(frame: &Frame) -> bool {
    matches!(frame.container.as_str(), "Vec" | "Array")
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
                param.with_value(make(B::from_data(data, self.device)))
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
        match self.source.data(&planned.key, &planned.tensor) {
            Ok(data) => Some(data.convert_dtype(planned.dtype)),
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
        self.load(param, Tensor::from_primitive)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        self.load(param, Tensor::from_primitive)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<B, D, Bool>>) -> Param<Tensor<B, D, Bool>> {
        self.load(param, Tensor::from_primitive)
    }
}
