//! [`ModelGen`]: the builder for `build.rs`.

use crate::{
    BuildError, CompileOptions, FloatDType, Precision, RecordType, cargo::CargoLines, compile,
    compile::losses, destination, stamp::Stamp,
};
use kiln_types::Scalar;
use proc_macro_crate::{FoundCrate, crate_name};
use std::path::{Component, Path, PathBuf};

/// Compiles ONNX models to Rust source and records; a builder.
///
/// Paths of models are relative to the user's crate. A model that did not change since the last run is left alone.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens before `run_from_script` or `run_from_cli`"]
pub struct ModelGen {
    inputs: Vec<PathBuf>,
    out_dir: PathBuf,
    golden: Option<PathBuf>,
    runtime_crate: Option<String>,
    no_std: Option<bool>,
    options: CompileOptions,
}

impl ModelGen {
    /// A builder with the default options: a memory-mapped Safetensors record in full precision.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model; may be called many times. `model.onnx` becomes `model.rs` and its record. With the feature `pt2`, a model may be an exported program of
    /// PyTorch (`torch.export.save`, `model.pt2`).
    pub fn input(&mut self, path: impl AsRef<Path>) -> &mut Self {
        self.inputs.push(path.as_ref().to_owned());
        self
    }

    /// The folder for source and records: below `OUT_DIR` in a build script, below the working directory otherwise.
    pub fn out_dir(&mut self, path: impl AsRef<Path>) -> &mut Self {
        self.out_dir = path.as_ref().to_owned();
        self
    }

    /// The format of the weights. [`RecordType::Safetensors`] is mapped into memory; the others are Burn's formats.
    ///
    /// A mapped file must not be written in place while a program runs that has loaded it: the program would see other weights, or end
    /// when the file gets shorter. Replace it (write another, then rename), as Kiln does; a running program then keeps the old weights.
    pub fn record_type(&mut self, record_type: RecordType) -> &mut Self {
        self.options.record_type = record_type;
        self
    }

    /// Stores float weights as f16; they are widened when loaded. What computes in f16 is [`ModelGen::float_dtype`].
    pub fn half_precision(&mut self, half: bool) -> &mut Self {
        self.options.half_precision = half;
        self
    }

    /// Computes in this dtype what the model has in f32, on every backend, whatever its default dtypes are; weights are stored in it too.
    ///
    /// Inputs and outputs keep their dtypes: they are converted as they come in and go out. What is computed from integers and literals
    /// alone (positions, masks) stays in f32 until it meets the rest, and so do operations on coordinates, such as non-maximum
    /// suppression. Weights and literals beyond the dtype's range become its largest number; what is computed beyond it becomes infinite.
    pub fn float_dtype(&mut self, dtype: FloatDType) -> &mut Self {
        self.options.float_dtype = Some(dtype);
        self
    }

    /// Computes products (matrix products, linear layers, convolutions, attention) of operands rounded to bf16, and all else as it is: inputs, outputs,
    /// weights in the record and everything between products stay f32, and sums are f32. It holds on the CPU, where it pays
    /// with AMX: products are then several times as fast, on other CPUs they may be slower. Other backends compute in f32. Depthwise convolutions and those of small groups, transposed
    /// convolutions and recurrent layers stay in f32.
    ///
    /// [`ModelGen::golden`]'s tests then allow for rounding, and `kiln verify --precision bf16` tells how far a model's outputs move.
    pub fn precision(&mut self, precision: Precision) -> &mut Self {
        self.options.precision = precision;
        self
    }

    /// Compiles the record into the binary (`from_embedded`), which then needs no file beside it.
    pub fn embed_states(&mut self, embed: bool) -> &mut Self {
        self.options.embed_states = embed;
        self
    }

    /// Keeps what training needs: BatchNorm is not folded away, Dropout stays, and so does every parameter as the original
    /// network has it. What that does not train (buffers, numbers of the graph) is not trained, and a method `with_<field>` replaces
    /// a field of the model or of a part.
    ///
    /// What the exporter took out of the file (folded normalizations, dropout) the build tells as warnings, with how to export instead.
    pub fn trainable(&mut self, trainable: bool) -> &mut Self {
        self.options.trainable = trainable;
        self
    }

    /// Gives a parameter that the network ties to another contents of its own, by its key in the `state_dict`: after
    /// `untie("lm_head.weight")` a language model's head is a layer by itself, to be replaced or trained alone. Else what is tied
    /// stays one parameter. Only PyTorch's exporter of today tells what is tied.
    pub fn untie(&mut self, key: impl Into<String>) -> &mut Self {
        self.options.untie.push(key.into());
        self
    }

    /// Fixes a symbolic dim, by the name it has in the file, to a size.
    pub fn bind_dim(&mut self, name: impl Into<String>, size: usize) -> &mut Self {
        self.options.bind_dims.insert(name.into(), size);
        self
    }

    /// Binds an input, by the name it has in the file, to numbers or bools in row-major order: it is no input of the model any more
    /// but known, so that what is chosen or shaped by it is settled. `bind_input("sr", [16_000])`, `bind_input("use_cache", [true])`.
    pub fn bind_input<T: Into<Scalar>>(
        &mut self,
        name: impl Into<String>,
        contents: impl IntoIterator<Item = T>,
    ) -> &mut Self {
        let contents = contents.into_iter().map(Into::into).collect();
        self.options.bind_inputs.insert(name.into(), contents);
        self
    }

    /// A folder with golden data, in ONNX's layout (`test_data_set_*/{input,output}_*.pb` in it, or in a folder of the
    /// model's name in it): the generated source then holds a test that compares.
    pub fn golden(&mut self, dir: impl AsRef<Path>) -> &mut Self {
        self.golden = Some(dir.as_ref().to_owned());
        self
    }

    /// The name under which the user's manifest has the runtime. A build script finds it in the manifest by itself; from
    /// elsewhere it is `kiln` unless said otherwise.
    pub fn runtime_crate(&mut self, name: impl Into<String>) -> &mut Self {
        self.runtime_crate = Some(name.into());
        self
    }

    /// Generates source for a `#![no_std]` crate: it reads no files, so the record should be embedded. In a build script
    /// this is the default when the target has no operating system.
    pub fn no_std(&mut self, no_std: bool) -> &mut Self {
        self.no_std = Some(no_std);
        self
    }

    /// Generates source that needs no runtime and allocates nothing, for microcontrollers and wherever a small model shall be a few functions:
    /// `Model::new()` is the memory of a model, sized at build time, and may be a `static`; `forward` takes and returns arrays. Weights are compiled
    /// into it. It needs no crate but `libm`, and that only where the model has functions such as `exp`.
    ///
    /// Each size of the model must be a number ([`ModelGen::bind_dim`]). It computes in f32 and integers; control flow, and operations for which there
    /// are no such kernels, are refused with their names.
    pub fn standalone(&mut self, standalone: bool) -> &mut Self {
        self.options.standalone = standalone;
        self
    }

    /// Runs inside a build script: writes below `OUT_DIR`, tells cargo what to watch, and reports every model that
    /// failed as errors of the build.
    pub fn run_from_script(&self) {
        let lines = match std::env::var_os("OUT_DIR").map(PathBuf::from) {
            Some(root) => self.run_below(&root),
            None => {
                let mut lines = CargoLines::default();
                lines.error(
                    "OUT_DIR is not set: `run_from_script` is for build scripts; use `run_from_cli` elsewhere",
                );
                lines.into_lines()
            }
        };
        // A build script that says `cargo::error` and ends well makes cargo print these lines and nothing else.
        for line in lines {
            println!("{line}");
        }
    }

    /// What [`ModelGen::run_from_script`] does when `OUT_DIR` is `root`; yields the lines for cargo.
    pub fn run_below(&self, root: &Path) -> Vec<String> {
        let is_below = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !self.out_dir.components().all(is_below) {
            let mut lines = CargoLines::default();
            lines.error(&BuildError::OutDir { path: self.out_dir.clone() }.report());
            return lines.into_lines();
        }
        let mut options = self.options();
        options.below_out_dir = Some(self.out_dir.clone());
        let no_system = std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "none");
        options.no_std = self.no_std.unwrap_or(no_system);
        let manifest = match (&self.runtime_crate, options.standalone) {
            (None, false) => {
                if let Ok(FoundCrate::Name(name)) = crate_name("kiln") {
                    options.runtime_crate = name;
                }
                // In it the runtime may get another name.
                Some(PathBuf::from("Cargo.toml"))
            }
            _ => None,
        };
        let outcome = self.run(&root.join(&self.out_dir), &options);
        let (mut lines, mut errors) = (CargoLines::default(), outcome.errors);
        // Cargo watches the script by itself.
        let given = self.inputs.iter().chain(&self.golden).cloned().chain(manifest);
        for path in given.chain(outcome.watched) {
            errors.extend(lines.watch(&path).err());
        }
        for warning in &outcome.warnings {
            lines.warning(warning);
        }
        for error in &errors {
            lines.error(&error.report());
        }
        lines.into_lines()
    }

    /// Runs anywhere else: writes below the working directory.
    ///
    /// # Errors
    /// [`BuildError::Several`] with what is wrong with each model; the others are written.
    pub fn run_from_cli(&self) -> Result<(), BuildError> {
        BuildError::collect(self.run(&self.out_dir, &self.options()).errors)
    }

    fn options(&self) -> CompileOptions {
        let mut options = self.options.clone();
        if let Some(name) = &self.runtime_crate {
            options.runtime_crate.clone_from(name);
        }
        options.no_std = self.no_std.unwrap_or(false);
        options
    }

    fn run(&self, out_dir: &Path, options: &CompileOptions) -> Outcome {
        let mut outcome = Outcome::default();
        if self.inputs.is_empty() {
            outcome.errors.push(BuildError::NoInputs);
        }
        for (at, input) in self.inputs.iter().enumerate() {
            if self.inputs[..at].contains(input) {
                outcome.errors.push(BuildError::SameName { first: input.clone(), second: input.clone() });
                continue;
            }
            if let Err(error) = self.run_one(input, out_dir, options, &mut outcome.watched) {
                outcome.errors.push(error);
                continue;
            }
            match losses(input, options) {
                Ok(losses) => {
                    let lines = losses.warnings().into_iter();
                    outcome.warnings.extend(lines.map(|line| format!("{}: {line}", input.display())));
                }
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome
    }

    fn run_one(
        &self,
        input: &Path,
        out_dir: &Path,
        options: &CompileOptions,
        watched: &mut Vec<PathBuf>,
    ) -> Result<(), BuildError> {
        let golden = self.golden.as_deref().map(|dir| crate::golden::folder_of(dir, input));
        destination::claim(input, &compile::files_of(input, options, golden.as_deref(), out_dir))?;
        let stamp = Stamp::new(input, options, golden.as_deref(), out_dir);
        if let Some(previous) = stamp.unchanged() {
            watched.extend(previous);
            return Ok(());
        }
        let mut compiled = compile(input, options)?;
        if let Some(golden) = golden {
            crate::golden::attach(&mut compiled, &golden, options)?;
        }
        compiled.write(out_dir)?;
        watched.extend(compiled.sources.iter().map(|source| source.path.clone()));
        stamp.write(&compiled)
    }
}

#[derive(Default)]
struct Outcome {
    errors: Vec<BuildError>,
    /// What is lost to models that are to be trained.
    warnings: Vec<String>,
    watched: Vec<PathBuf>,
}
