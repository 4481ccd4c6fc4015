//! One model from file to source and record.

use crate::cargo::checked;
use crate::destination::{self, Writing};
use crate::golden::{DataSet, data_set_dirs};
use crate::{BuildError, RecordType};
use kiln_codegen::{Generated, GoldenTest, Options, RecordPath, generate, golden_tests};
use kiln_importer::ImportError;
use kiln_importer::ir::{BoundInput, Dim, Graph, Strings, ValueId};
use kiln_importer::onnx::{LoadOptions, SourceFile, TrainingLosses, load_with_sources, training_losses};
use kiln_importer::passes::{self, PassReport};
use kiln_record::safetensors::{TensorToWrite, save};
use kiln_record::{RecordError, replace_file};
use kiln_types::{DType, FloatDType, Precision, Scalar, TensorData};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// How a model is compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileOptions {
    /// Format of the weights.
    pub record_type: RecordType,
    /// Whether float weights are stored as f16.
    pub half_precision: bool,
    /// Whether the record becomes part of the binary.
    pub embed_states: bool,
    /// The dtype in which to compute what the model has in f32; that by default.
    pub float_dtype: Option<FloatDType>,
    /// What products of f32 are computed of.
    pub precision: Precision,
    /// Whether BatchNorm and Dropout stay.
    pub trainable: bool,
    /// Keys of tied parameters that get contents of their own.
    pub untie: Vec<String>,
    /// Sizes for symbolic dims, by their names in the file.
    pub bind_dims: BTreeMap<String, usize>,
    /// Contents for inputs, by name, in row-major order: they become constants.
    pub bind_inputs: BTreeMap<String, Vec<Scalar>>,
    /// The name under which the user's manifest has the runtime.
    pub runtime_crate: String,
    /// Whether the source is for a crate without the standard library.
    pub no_std: bool,
    /// Whether modules tell the runtime's profiler when they are called (its feature `profile`): what `kiln bench --profile` compiles. It costs a little time
    /// whether something is recorded or not.
    pub profiled: bool,
    /// Whether the source needs no runtime and allocates nothing, which is for small models of known sizes.
    pub standalone: bool,
    /// The folder below `OUT_DIR` to which a build script writes; elsewhere the source names its record by the path that
    /// it is written to.
    pub below_out_dir: Option<PathBuf>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            record_type: RecordType::default(),
            half_precision: false,
            float_dtype: None,
            precision: Precision::F32,
            embed_states: false,
            trainable: false,
            untie: Vec::new(),
            bind_dims: BTreeMap::new(),
            bind_inputs: BTreeMap::new(),
            runtime_crate: "kiln".to_owned(),
            no_std: false,
            profiled: false,
            standalone: false,
            below_out_dir: None,
        }
    }
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the file.
    pub name: String,
    /// Its dtype.
    pub dtype: DType,
    /// Its rank.
    pub rank: usize,
    /// Its size along each axis, where that is a number.
    pub sizes: Vec<Option<usize>>,
}

impl Port {
    /// Whether a tensor of this shape has its sizes.
    pub(crate) fn has(&self, shape: &[usize]) -> bool {
        let fits = |(&size, wanted): (&usize, &Option<usize>)| wanted.is_none_or(|wanted| wanted == size);
        shape.len() == self.rank && shape.iter().zip(&self.sizes).all(fits)
    }
}

/// A compiled model, not yet written.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The Rust source.
    pub source: String,
    /// Inputs in order.
    pub inputs: Vec<Port>,
    /// Outputs in order.
    pub outputs: Vec<Port>,
    /// Inputs of the file that are constants.
    pub bound_inputs: Vec<BoundInput>,
    /// Outputs that are the items of one sequence in the file, in order.
    pub output_sequences: Vec<Range<usize>>,
    /// Strings that tensors hold the places of.
    pub strings: Strings,
    /// Files and folders that it was made from, as they were before they were read.
    pub sources: Vec<SourceFile>,
    /// Files that were written.
    pub written: Vec<PathBuf>,
    stem: String,
    weights: Weights,
    golden: Vec<DataSet>,
    /// Whether it goes below `OUT_DIR`, where all files are those of build scripts.
    below_out_dir: bool,
}

/// The weights of a compiled model.
#[derive(Clone, Debug)]
enum Weights {
    /// A record that the runtime reads, of the generated source, which has been taken out.
    Record(Generated),
    /// Numbers that source without a runtime has compiled into it.
    Numbers(Vec<u8>),
}

impl Weights {
    fn write(&self, path: &Path) -> Result<(), RecordError> {
        match self {
            Weights::Record(generated) => generated.write_record(path),
            Weights::Numbers(bytes) => write_bytes(path, bytes),
        }
    }
}

/// An optimized graph and what the passes did.
pub(crate) struct Imported {
    pub graph: Graph,
    #[cfg_attr(not(feature = "cli"), expect(dead_code, reason = "only `kiln inspect` prints it"))]
    pub reports: Vec<PassReport>,
    pub sources: Vec<SourceFile>,
}

/// Imports and optimizes a model.
pub(crate) fn import(model: &Path, options: &CompileOptions) -> Result<Imported, BuildError> {
    let load_options = LoadOptions {
        bind_dims: options.bind_dims.clone(),
        bind_inputs: options.bind_inputs.clone(),
        trainable: options.trainable,
        untie: options.untie.clone(),
    };
    let (mut graph, sources) = load_with_sources(model, &load_options).map_err(import_error)?;
    let passes = passes::Options { trainable: options.trainable, float_dtype: options.float_dtype };
    let reports = passes::optimize(&mut graph, &passes);
    Ok(Imported { graph, reports, sources })
}

pub(crate) fn import_error(error: ImportError) -> BuildError {
    BuildError::Import(Box::new(error))
}

/// Compiles one model; nothing is written yet.
///
/// # Errors
/// Why the model cannot be imported, or why no source can be made from it.
pub fn compile(model: &Path, options: &CompileOptions) -> Result<Compiled, BuildError> {
    checked(model)?;
    if let Some(option) = options.standalone.then(|| of_the_runtime(options)).flatten() {
        return Err(BuildError::NeedsRuntime { option });
    }
    let Imported { graph, sources, .. } = import(model, options)?;
    let stem = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (source, weights) = match options.standalone {
        true => without_runtime(&graph, model, &stem, options)?,
        false => with_runtime(&graph, model, &stem, options)?,
    };
    let port = |name: &str, value: ValueId| {
        let ty = graph.ty(value);
        let sizes = ty.dims.iter().map(Dim::as_size).collect();
        Port { name: name.to_owned(), dtype: ty.dtype, rank: ty.rank(), sizes }
    };
    let names = graph.output_names.iter().map(String::as_str);
    Ok(Compiled {
        source,
        inputs: graph.inputs.iter().map(|&value| port(&graph.value(value).name, value)).collect(),
        outputs: names.zip(&graph.root.outputs).map(|(name, &value)| port(name, value)).collect(),
        bound_inputs: graph.bound_inputs.clone(),
        output_sequences: graph.output_sequences.clone(),
        strings: graph.strings.clone(),
        sources,
        written: Vec::new(),
        stem,
        weights,
        golden: Vec::new(),
        below_out_dir: options.below_out_dir.is_some(),
    })
}

/// Source that calls the runtime, and its record.
fn with_runtime(
    graph: &Graph,
    model: &Path,
    stem: &str,
    options: &CompileOptions,
) -> Result<(String, Weights), BuildError> {
    let path = data_path(&format!("{stem}.{}", options.record_type.extension()), options);
    let codegen_options = Options {
        source_name: file_name(model),
        embed: options.embed_states.then(|| path.clone()),
        default_record: Some(path),
        ..codegen_options(options)
    };
    let mut generated = generate(graph, &codegen_options)
        .map_err(|source| BuildError::Codegen { path: model.to_owned(), source: Box::new(source) })?;
    Ok((std::mem::take(&mut generated.source), Weights::Record(generated)))
}

/// Source that needs no runtime, and its numbers.
fn without_runtime(
    graph: &Graph,
    model: &Path,
    stem: &str,
    options: &CompileOptions,
) -> Result<(String, Weights), BuildError> {
    let standalone_options = kiln_standalone::Options {
        model_name: Options::default().model_name,
        source_name: file_name(model),
        weights: data_path(&format!("{stem}.{NUMBERS}"), options),
    };
    let generated = kiln_standalone::generate(graph, &standalone_options)
        .map_err(|source| BuildError::Standalone { path: model.to_owned(), source: Box::new(source) })?;
    Ok((generated.source, Weights::Numbers(generated.weights)))
}

/// The name of a file with golden data of a model.
fn golden_file(stem: &str, at: usize, standalone: bool) -> String {
    let extension = if standalone { "bin" } else { "safetensors" };
    format!("{stem}.golden_{at}.{extension}")
}

/// The files that are written for a model.
pub(crate) fn files_of(
    model: &Path,
    options: &CompileOptions,
    golden: Option<&Path>,
    dir: &Path,
) -> Vec<PathBuf> {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let weights = if options.standalone { NUMBERS } else { options.record_type.extension() };
    let mut names = vec![format!("{stem}.rs"), format!("{stem}.{weights}"), format!("{stem}.stamp")];
    let sets = golden.and_then(|golden| data_set_dirs(golden).ok()).map_or(0, |sets| sets.len());
    names.extend((0..sets).map(|at| golden_file(&stem, at, options.standalone)));
    names.iter().map(|name| dir.join(name)).collect()
}

/// The extension of a file with numbers that source without a runtime has compiled into it.
const NUMBERS: &str = "weights";

/// An option that was given and means nothing without a runtime.
fn of_the_runtime(options: &CompileOptions) -> Option<&'static str> {
    let given = [
        ("record_type", options.record_type != RecordType::default()),
        ("half_precision", options.half_precision),
        ("precision", options.precision != Precision::F32),
        ("float_dtype", options.float_dtype.is_some_and(|dtype| dtype != FloatDType::F32)),
        ("trainable", options.trainable),
        ("untie", !options.untie.is_empty()),
        ("profiled", options.profiled),
    ];
    given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
}

/// A model's file, without folders.
fn file_name(model: &Path) -> String {
    model.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What a model's exporter took out of it that training needs; nothing when it is not to be trained.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn losses(model: &Path, options: &CompileOptions) -> Result<TrainingLosses, BuildError> {
    if !options.trainable {
        return Ok(TrainingLosses::default());
    }
    training_losses(model).map_err(import_error)
}

/// How generated source names a file beside it.
fn data_path(file: &str, options: &CompileOptions) -> RecordPath {
    match &options.below_out_dir {
        // Build scripts run on Windows too; the source is the same everywhere.
        Some(dir) => RecordPath::OutDir(dir.join(file).to_string_lossy().replace('\\', "/")),
        None => RecordPath::Given(file.to_owned()),
    }
}

/// How source calls a crate that has this name in a manifest.
pub(crate) fn crate_name(in_manifest: &str) -> String {
    in_manifest.replace('-', "_")
}

/// What generated source needs to know that is the same for every model.
fn codegen_options(options: &CompileOptions) -> Options {
    Options {
        runtime_crate: crate_name(&options.runtime_crate),
        record: options.record_type,
        half_precision: options.half_precision,
        precision: options.precision,
        no_std: options.no_std,
        trainable: options.trainable,
        profiled: options.profiled,
        ..Options::default()
    }
}

impl Compiled {
    /// Names of the inputs in order.
    pub fn input_names(&self) -> Vec<String> {
        self.inputs.iter().map(|port| port.name.clone()).collect()
    }

    /// Names of the outputs in order.
    pub fn output_names(&self) -> Vec<String> {
        self.outputs.iter().map(|port| port.name.clone()).collect()
    }

    /// Writes source, record and golden data to a folder, which is made when it is not there. None is replaced before all are
    /// written, and each in one step, so that a build that breaks off leaves the old ones or the new ones.
    ///
    /// # Errors
    /// When a file cannot be written, or would take the place of one that the model was read from or that others wrote.
    pub fn write(&mut self, dir: &Path) -> Result<(), BuildError> {
        self.written.clear();
        self.check_places(dir)?;
        fs::create_dir_all(dir).map_err(BuildError::folder(dir))?;
        let mut writing = Writing::default();
        let path = self.source_path(dir);
        // Nobody could tell later whose numbers they are that only the replaced source names.
        let left = match self.weights {
            Weights::Record(_) => destination::numbers_of(&path, NUMBERS),
            Weights::Numbers(_) => None,
        };
        writing.add(&path, |part| write_bytes(part, self.source.as_bytes()))?;
        writing.add(&self.record_path(dir), |part| self.weights.write(part))?;
        for (i, set) in self.golden.iter().enumerate() {
            writing.add(&dir.join(self.golden_file(i)), |part| match self.weights {
                Weights::Record(_) => save_golden(set, part),
                Weights::Numbers(_) => {
                    let numbers = set.inputs.iter().chain(&set.outputs);
                    write_bytes(part, &kiln_standalone::GoldenTest::bytes(numbers))
                }
            })?;
        }
        self.written = writing.commit()?;
        left.map_or(Ok(()), |left| destination::remove(&left))
    }

    /// Refuses to replace what the model is read from, and what Kiln did not write.
    fn check_places(&self, dir: &Path) -> Result<(), BuildError> {
        let (source, record) = (self.source_path(dir), self.record_path(dir));
        let golden = (0..self.golden.len()).map(|i| dir.join(self.golden_file(i)));
        let data: Vec<(&str, PathBuf)> = std::iter::once(("the record", record))
            .chain(golden.map(|path| ("the golden data", path)))
            .collect();
        destination::check_read("the source", &source, &self.sources)?;
        data.iter().try_for_each(|(what, path)| destination::check_read(what, path, &self.sources))?;
        if self.below_out_dir {
            return Ok(());
        }
        destination::check_source(&source)?;
        data.iter().try_for_each(|(what, path)| match self.weights {
            Weights::Record(_) => destination::check_record(what, path),
            Weights::Numbers(_) => destination::check_numbers(what, path, &source),
        })
    }

    /// Where the source goes, of a folder.
    pub(crate) fn source_path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.rs", self.stem))
    }

    /// Where the record goes, of a folder.
    pub(crate) fn record_path(&self, dir: &Path) -> PathBuf {
        let extension = match &self.weights {
            Weights::Record(generated) => generated.format.extension(),
            Weights::Numbers(_) => NUMBERS,
        };
        dir.join(format!("{}.{extension}", self.stem))
    }

    /// The numbers that source without a runtime has compiled into it, from a file beside it; nothing where there is a record.
    #[cfg(feature = "cli")]
    pub(crate) fn numbers(&self) -> Option<&[u8]> {
        match &self.weights {
            Weights::Record(_) => None,
            Weights::Numbers(numbers) => Some(numbers),
        }
    }

    /// Writes the record alone, as `<model>.<extension of the format>`.
    #[cfg(feature = "cli")]
    pub(crate) fn write_record(&mut self, dir: &Path) -> Result<PathBuf, BuildError> {
        fs::create_dir_all(dir).map_err(BuildError::folder(dir))?;
        let path = self.record_path(dir);
        let mut writing = Writing::default();
        writing.add(&path, |part| self.weights.write(part))?;
        self.written.extend(writing.commit()?);
        Ok(path)
    }

    /// The name of a file with golden data.
    fn golden_file(&self, at: usize) -> String {
        golden_file(&self.stem, at, matches!(self.weights, Weights::Numbers(_)))
    }

    /// Adds golden data, and the tests that use it, to the source.
    pub(crate) fn attach_golden(
        &mut self,
        sets: Vec<DataSet>,
        options: &CompileOptions,
    ) -> Result<(), BuildError> {
        if let Weights::Numbers(_) = self.weights {
            return self.attach_golden_numbers(sets, options);
        }
        let tests = sets.iter().enumerate().map(|(i, set)| {
            let data = data_path(&self.golden_file(i), options);
            GoldenTest {
                name: set.name.clone(),
                data,
                dtype: options.float_dtype,
                precision: options.precision,
            }
        });
        let tests: Vec<GoldenTest> = tests.collect();
        let inputs: Vec<_> = self.inputs.iter().map(|port| (port.dtype, port.rank)).collect();
        let tests = golden_tests(&tests, &inputs, self.outputs.len(), &codegen_options(options));
        let tests = tests.map_err(|source| BuildError::Codegen {
            path: PathBuf::from(&self.stem),
            source: Box::new(source),
        })?;
        self.add_tests(&tests, sets);
        Ok(())
    }

    /// The same for source without a runtime.
    fn attach_golden_numbers(
        &mut self,
        sets: Vec<DataSet>,
        options: &CompileOptions,
    ) -> Result<(), BuildError> {
        let types = |tensors: &[TensorData]| {
            tensors.iter().map(|tensor| (tensor.dtype, tensor.num_elements())).collect()
        };
        let tests = sets.iter().enumerate().map(|(i, set)| kiln_standalone::GoldenTest {
            name: set.name.clone(),
            data: data_path(&self.golden_file(i), options),
            inputs: types(&set.inputs),
            outputs: types(&set.outputs),
        });
        let tests: Vec<_> = tests.collect();
        let tests = kiln_standalone::golden_tests(&tests, &Options::default().model_name);
        let tests = tests.map_err(|source| BuildError::Standalone {
            path: PathBuf::from(&self.stem),
            source: Box::new(source),
        })?;
        self.add_tests(&tests, sets);
        Ok(())
    }

    fn add_tests(&mut self, tests: &str, sets: Vec<DataSet>) {
        self.source.push('\n');
        self.source.push_str(tests);
        self.golden = sets;
    }
}

/// Writes a data set in the form that the runtime's `golden` module reads.
#[cfg(feature = "cli")]
pub(crate) fn write_golden(set: &DataSet, path: &Path) -> Result<(), BuildError> {
    save_golden(set, path)
        .map_err(|source| BuildError::Record { path: path.to_owned(), source: Box::new(source) })
}

fn save_golden(set: &DataSet, path: &Path) -> Result<(), RecordError> {
    let named = |prefix: &'static str, data: &[TensorData]| -> Vec<TensorToWrite> {
        // Integers of four bits as devices hold them.
        let tensors = data.iter().map(|data| data.clone().convert_dtype(data.dtype.widened())).enumerate();
        tensors.map(|(i, data)| TensorToWrite::new(format!("{prefix}_{i}"), data)).collect()
    };
    let mut tensors = named("input", &set.inputs);
    tensors.extend(named("output", &set.outputs));
    save(path, &tensors, &BTreeMap::new())
}

/// Writes a text file in one step.
pub(crate) fn replace_text(path: &Path, text: &str) -> Result<(), BuildError> {
    write_bytes(path, text.as_bytes())
        .map_err(|source| BuildError::Record { path: path.to_owned(), source: Box::new(source) })
}

/// Writes a file in one step.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    let write = |source| RecordError::Io { path: path.display().to_string(), source };
    replace_file(path, |file| file.write_all(bytes).map_err(write))
}
