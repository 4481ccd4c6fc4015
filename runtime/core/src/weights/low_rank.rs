//! Low-rank pairs alone, in the files of PEFT: `adapter_model.safetensors` and `adapter_config.json`.

mod patterns;

use super::ImportError;
use crate::module::{Form, LowRank, Module, ModuleMapper, ModuleVisitor, Origin, Param, Trail, attach_each};
use crate::tensor::backend::Backend;
use crate::tensor::{Element, Tensor, TensorData};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::{borrow::ToOwned, format, vec::Vec};
use kiln_record::safetensors::{Safetensors, TensorToWrite, save};
use kiln_record::{RecordError, replace_file};
use patterns::{Matcher, Patterns};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// The file with the matrices.
const WEIGHTS: &str = "adapter_model.safetensors";
/// The file with ranks and factors.
const CONFIG: &str = "adapter_config.json";
/// What stands before every path.
const PREFIX: &str = "base_model.model.";

/// What PEFT calls the matrices of a form, behind the layer's path.
fn suffixes(form: Form) -> [&'static str; 2] {
    match form {
        Form::Linear | Form::Kernel => [".lora_A.weight", ".lora_B.weight"],
        Form::Table => [".lora_embedding_A", ".lora_embedding_B"],
    }
}

/// The part of PEFT's configuration that says how the matrices are used. What else it has is PEFT's.
#[derive(Debug, Serialize, Deserialize)]
struct Config {
    peft_type: String,
    r: usize,
    lora_alpha: f64,
    #[serde(default)]
    target_modules: Modules,
    #[serde(default)]
    rank_pattern: Patterns<usize>,
    #[serde(default)]
    alpha_pattern: Patterns<f64>,
    /// Whether the factor is `alpha / √r`.
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    lora_dropout: f64,
    #[serde(default)]
    bias: Option<String>,
    #[serde(default)]
    fan_in_fan_out: bool,
    #[serde(default)]
    inference_mode: bool,
    #[serde(default)]
    task_type: Option<String>,
    #[serde(default)]
    base_model_name_or_path: Option<String>,
}

/// Names of modules, or a pattern.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Modules {
    Names(Vec<String>),
    Pattern(String),
    None,
}

impl Default for Modules {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

impl Config {
    /// The configuration of layers with their ranks and factors.
    fn of(layers: &BTreeMap<String, (usize, f64)>) -> Option<Self> {
        let &(r, lora_alpha) = layers.values().next()?;
        let others = || layers.iter().filter(|(_, found)| **found != (r, lora_alpha));
        let (ranks, alphas) = (|(rank, _)| rank, |(_, alpha)| alpha);
        Some(Self {
            peft_type: "LORA".to_owned(),
            r,
            lora_alpha,
            target_modules: Modules::Names(layers.keys().cloned().collect()),
            rank_pattern: Patterns::of(others().map(|(path, &found)| (path.as_str(), ranks(found)))),
            alpha_pattern: Patterns::of(others().map(|(path, &found)| (path.as_str(), alphas(found)))),
            use_rslora: false,
            use_dora: false,
            lora_dropout: 0.0,
            bias: Some("none".to_owned()),
            fan_in_fan_out: false,
            inference_mode: true,
            task_type: None,
            base_model_name_or_path: None,
        })
    }

    /// The factor of a layer for a rank, such that the product is multiplied by `alpha / rank`. `own` are the factors by pattern.
    fn alpha(&self, own: &Matcher<f64>, path: &str, rank: usize) -> f64 {
        let alpha = own.of(path).unwrap_or(self.lora_alpha);
        if self.use_rslora { alpha * (rank as f64).sqrt() } else { alpha }
    }
}

/// Saves the low-rank pairs of a module ([`Module::with_low_rank`]) and nothing else, as PEFT does: a folder with
/// `adapter_model.safetensors` and `adapter_config.json`, which `PeftModel.from_pretrained(model, folder)` takes.
///
/// # Errors
/// When the module has no pairs, or a file cannot be written.
pub fn save_low_rank<B: Backend, M: Module<B>, P: AsRef<Path>>(
    module: &M,
    folder: P,
) -> Result<(), ImportError> {
    let folder = folder.as_ref();
    let mut pairs = Pairs::default();
    module.visit(&mut pairs);
    let config = Config::of(&pairs.layers).ok_or_else(|| {
        ImportError::LowRank("the module has no low-rank pairs to save: `with_low_rank` makes them".into())
    })?;
    let failed = |path: &Path, error: &dyn core::fmt::Display| {
        ImportError::Record(format!("{}: {error}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let path = folder.join(WEIGHTS);
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    save(&path, &pairs.tensors, &metadata).map_err(|error| failed(&path, &error))?;
    let path = folder.join(CONFIG);
    let text = serde_json::to_string_pretty(&config).map_err(|error| failed(&path, &error))?;
    let write = |writer: &mut std::io::BufWriter<_>| {
        let fail = |source| RecordError::Io { path: path.display().to_string(), source };
        writeln!(writer, "{text}").map_err(fail)
    };
    replace_file(&path, write).map_err(|error| ImportError::Record(error.to_string()))
}

/// Collects the pairs of a module.
#[derive(Default)]
struct Pairs {
    trail: Trail,
    tensors: Vec<TensorToWrite>,
    /// Ranks and factors by the layer's path.
    layers: BTreeMap<String, (usize, f64)>,
}

impl<B: Backend> ModuleVisitor<B> for Pairs {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.trail.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.trail.exit();
    }

    fn visit_origin(&mut self, origin: Origin) {
        self.trail.note(origin);
    }

    fn visit_low_rank<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(pair) = param.low_rank() else { return };
        let path = layer_path(&self.trail);
        let shapes = shapes(pair, param.lazy_shape().as_slice());
        for ((matrix, suffix), shape) in [&pair.a, &pair.b].into_iter().zip(suffixes(pair.form)).zip(shapes) {
            let data = matrix.transform_for_save().into_value().into_data();
            self.tensors
                .push(TensorToWrite::new(format!("{PREFIX}{path}{suffix}"), TensorData { shape, ..data }));
        }
        self.layers.insert(path, (pair.rank(), pair.alpha));
    }
}

/// The shapes that the matrices have in a file: of a convolution's, the first is a convolution with the kernel's size and
/// the second one of size 1.
fn shapes<B: Backend, const D: usize>(pair: &LowRank<Tensor<B, D>>, weight: &[usize]) -> [Vec<usize>; 2] {
    let (mut a, mut b) = (pair.a.lazy_shape().as_slice().to_vec(), pair.b.lazy_shape().as_slice().to_vec());
    if pair.form == Form::Kernel {
        a.truncate(1);
        a.extend(weight.get(1..).unwrap_or_default());
        b.resize(weight.len(), 1);
    }
    [a, b]
}

/// The path of the layer that has the parameter here, as the original network has it.
fn layer_path(trail: &Trail) -> String {
    let made_of = trail.made_of();
    match made_of.as_slice() {
        [only] => only.strip_suffix(".weight").unwrap_or(only).to_owned(),
        _ => trail.place.above(),
    }
}

/// Loads low-rank pairs that [`save_low_rank`] or PEFT saved: the weights that the files name get their pairs, and everything
/// else is frozen, as after [`Module::with_low_rank`].
///
/// # Errors
/// When a file cannot be read, is not of plain LoRA, names a layer that the module has not, or has matrices that do not fit
/// one: all such are listed.
pub fn load_low_rank<B: Backend, M: Module<B>, P: AsRef<Path>>(
    module: M,
    folder: P,
    device: &B::Device,
) -> Result<M, ImportError> {
    let folder = folder.as_ref();
    let path = folder.join(CONFIG);
    let failed = |path: &Path, error: &dyn core::fmt::Display| {
        ImportError::LowRank(format!("{}: {error}", path.display()))
    };
    let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
    let config: Config = serde_json::from_str(&text).map_err(|error| failed(&path, &error))?;
    if config.peft_type != "LORA" || config.use_dora {
        return Err(failed(&path, &"only plain LoRA is known (`peft_type` LORA, no `use_dora`)"));
    }
    let alphas = config.alpha_pattern.matcher();
    let alphas = alphas.map_err(|error| failed(&path, &format!("alpha_pattern: {error}")))?;
    let path = folder.join(WEIGHTS);
    let file = Safetensors::open(&path).map_err(|error| failed(&path, &error))?;
    let mut targets = Targets {
        trail: Trail::default(),
        file: &file,
        config: &config,
        alphas,
        found: BTreeMap::new(),
        used: BTreeSet::new(),
        problems: Vec::new(),
    };
    module.visit(&mut targets);
    let Targets { found, used, mut problems, .. } = targets;
    problems.extend(
        file.paths()
            .filter(|key| !used.contains(*key))
            .map(|key| format!("`{key}`: the module has no layer for it")),
    );
    if !problems.is_empty() {
        return Err(failed(&path, &format!("\n  {}", problems.join("\n  "))));
    }
    let module =
        attach_each::<B, M>(module, |path| found.get(path).map(|target| (target.rank, target.alpha)));
    Ok(module.map(&mut Filler { trail: Trail::default(), found, device }))
}

/// What a weight gets.
struct Target {
    rank: usize,
    alpha: f64,
    a: TensorData,
    b: TensorData,
}

/// Finds what the weights of a module get.
struct Targets<'f> {
    trail: Trail,
    file: &'f Safetensors,
    config: &'f Config,
    /// Factors by pattern.
    alphas: Matcher<f64>,
    /// By the path of the parameter.
    found: BTreeMap<String, Target>,
    used: BTreeSet<String>,
    problems: Vec<String>,
}

impl Targets<'_> {
    fn find(&mut self, weight: &[usize]) {
        let place = &self.trail.place;
        let Some(form) = place.field().and_then(|(layer, field)| Form::of(layer, field)) else { return };
        let (own, path) = (place.path(), layer_path(&self.trail));
        let keys = suffixes(form).map(|suffix| format!("{PREFIX}{path}{suffix}"));
        let [Some(a), Some(b)] = keys.each_ref().map(|key| self.file.tensor(key)) else { return };
        self.used.extend(keys);
        let (inputs, outputs) = form.sizes(&weight.into());
        let rank = a.shape.first().copied().unwrap_or_default();
        let fit = rank > 0 && a.num_elements() == rank * inputs && b.num_elements() == outputs * rank;
        if !fit || b.shape.first() != Some(&outputs) || !(a.dtype.is_float() && b.dtype.is_float()) {
            let (a, b) = ((a.dtype, a.shape), (b.dtype, b.shape));
            self.problems.push(format!("`{path}`: {a:?} and {b:?} are no pair for a weight of {weight:?}"));
            return;
        }
        let alpha = self.config.alpha(&self.alphas, &path, rank);
        let a = TensorData { shape: [rank, inputs].into(), ..a };
        let b = TensorData { shape: [outputs, rank].into(), ..b };
        self.found.insert(own, Target { rank, alpha, a, b });
    }
}

impl<B: Backend> ModuleVisitor<B> for Targets<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.trail.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.trail.exit();
    }

    fn visit_origin(&mut self, origin: Origin) {
        self.trail.note(origin);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.find(param.lazy_shape().as_slice());
    }

    /// A pair that is there takes the file's matrices.
    fn visit_low_rank<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.find(param.lazy_shape().as_slice());
    }
}

/// Puts matrices into pairs.
struct Filler<'d, B: Backend> {
    trail: Trail,
    found: BTreeMap<String, Target>,
    device: &'d B::Device,
}

impl<B: Backend> ModuleMapper<B> for Filler<'_, B> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.trail.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.trail.exit();
    }

    fn map_low_rank<const D: usize>(&mut self, mut param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(Target { alpha, a, b, .. }) = self.found.remove(&self.trail.place.path()) else {
            return param;
        };
        let Some(pair) = param.take_low_rank() else { return param };
        let filled = |matrix: Param<Tensor<B, 2>>, data: TensorData| {
            let dtype = matrix.lazy_unusual_dtype().unwrap_or(B::FloatElem::DTYPE);
            matrix.with_value(Tensor::from_data_dtype(data, self.device, dtype))
        };
        param.with_low_rank(LowRank { a: filled(pair.a, a), b: filled(pair.b, b), alpha, form: pair.form })
    }
}
