//! `kiln convert`.

use super::{CommandError, Outcome, plain, show, spinner, warn, weights};
use crate::compile::losses;
use crate::{CompileOptions, FloatDType, Precision, RecordType, compile};
use clap::{Args, ValueEnum};
use kiln_types::Scalar;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Arguments of `kiln convert`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The model (.onnx, .pt2), or a checkpoint (.pt, .pth, .bin, .safetensors, a folder of shards or its index)
    pub(super) model: PathBuf,
    /// The folder to write to
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: PathBuf,
    /// Format of the weights
    #[arg(long, value_enum, default_value = "safetensors")]
    pub(super) record_type: RecordTypeName,
    /// Store float weights as f16
    #[arg(long)]
    pub(super) half_precision: bool,
    /// Compute in this dtype what the model has in f32
    #[arg(long, value_enum, value_name = "DTYPE")]
    float_dtype: Option<Float>,
    /// What products of f32 are computed of
    #[arg(long, value_enum)]
    precision: Option<Products>,
    /// Compile the weights into the source's crate
    #[arg(long)]
    embed: bool,
    /// Write source for a `#![no_std]` crate: it reads no files, so the weights should be compiled in (`--embed`)
    #[arg(long)]
    no_std: bool,
    /// Keep what training needs: BatchNorm and Dropout
    #[arg(long)]
    trainable: bool,
    /// Write source that needs no runtime and allocates nothing, for small models of known sizes
    #[arg(long)]
    standalone: bool,
    /// Give a tied parameter contents of its own, by its key
    #[arg(long, value_name = "KEY")]
    untie: Vec<String>,
    #[command(flatten)]
    bindings: Bindings,
    /// Name of the runtime crate in the manifest of the crate that uses the source
    #[arg(long, default_value = "kiln")]
    pub(super) runtime_crate: String,
    #[command(flatten)]
    pub(super) weights: weights::CheckpointArguments,
}

/// What of a model is settled when it is imported.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Bindings {
    /// Fix a symbolic dim
    #[arg(long, value_name = "NAME=N", value_parser = parse_bind)]
    bind: Vec<(String, usize)>,
    /// Bind an input to numbers or `true` and `false`, in row-major order: it becomes a constant
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = parse_bind_input)]
    bind_input: Vec<(String, Vec<Scalar>)>,
}

impl Bindings {
    /// The option that was given, if one was.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [("--bind", !self.bind.is_empty()), ("--bind-input", !self.bind_input.is_empty())];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// The default options with these.
    pub(super) fn options(&self) -> Result<CompileOptions, CommandError> {
        Ok(CompileOptions {
            bind_dims: each_once("--bind", &self.bind)?,
            bind_inputs: each_once("--bind-input", &self.bind_input)?,
            ..CompileOptions::default()
        })
    }
}

/// What is settled by name; a name that is settled in two ways is a slip.
fn each_once<T: Clone + PartialEq>(
    option: &str,
    pairs: &[(String, T)],
) -> Result<BTreeMap<String, T>, CommandError> {
    let mut settled = BTreeMap::new();
    for (name, value) in pairs {
        if settled.insert(name.clone(), value.clone()).is_some_and(|other| other != *value) {
            let name = plain(name);
            return Err(CommandError::Usage(format!(
                "{option} is given for {name} twice, with different values"
            )));
        }
    }
    Ok(settled)
}

/// [`RecordType`] as the command line names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RecordTypeName {
    /// Safetensors, mapped into memory when loaded
    Safetensors,
    /// MessagePack with names, as Burn writes it
    NamedMpk,
    /// The same, compressed
    NamedMpkGz,
    /// Bincode, as Burn writes it
    Bincode,
    /// JSON for people
    PrettyJson,
}

/// [`FloatDType`] as the command line names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Float {
    F64,
    F32,
    F16,
    Bf16,
}

impl From<Float> for FloatDType {
    fn from(dtype: Float) -> Self {
        match dtype {
            Float::F64 => FloatDType::F64,
            Float::F32 => FloatDType::F32,
            Float::F16 => FloatDType::F16,
            Float::Bf16 => FloatDType::BF16,
        }
    }
}

/// [`Precision`] as the command line names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Products {
    /// Operands as they are
    #[default]
    F32,
    /// Operands rounded to bf16, on CPUs; sums stay f32
    Bf16,
}

impl From<Products> for Precision {
    fn from(products: Products) -> Self {
        match products {
            Products::F32 => Precision::F32,
            Products::Bf16 => Precision::Bf16,
        }
    }
}

impl From<RecordTypeName> for RecordType {
    fn from(format: RecordTypeName) -> Self {
        match format {
            RecordTypeName::Safetensors => RecordType::Safetensors,
            RecordTypeName::NamedMpk => RecordType::NamedMpk,
            RecordTypeName::NamedMpkGz => RecordType::NamedMpkGz,
            RecordTypeName::Bincode => RecordType::Bincode,
            RecordTypeName::PrettyJson => RecordType::PrettyJson,
        }
    }
}

/// Parses `batch=1`.
fn parse_bind(text: &str) -> Result<(String, usize), String> {
    let (name, size) = text.split_once('=').ok_or("expected NAME=N, for example batch=1")?;
    let size = size.parse().map_err(|_| format!("`{size}` is not a size"))?;
    if name.is_empty() {
        return Err("the name of the dim is empty".into());
    }
    Ok((name.to_owned(), size))
}

/// Parses `sr=16000` and `axes=0,2`.
fn parse_bind_input(text: &str) -> Result<(String, Vec<Scalar>), String> {
    // Names may hold `=`, numbers do not.
    let (name, numbers) = text.rsplit_once('=').ok_or("expected NAME=VALUE, for example sr=16000")?;
    if name.is_empty() {
        return Err("the name of the input is empty".into());
    }
    let number = |text: &str| {
        let text = text.trim();
        let bool = text.parse::<bool>().map(Scalar::from).ok();
        let integer = || text.parse::<i64>().map(Scalar::from).ok();
        let wide = || text.parse::<u64>().map(Scalar::from).ok();
        let float = || text.parse::<f64>().map(Scalar::from).ok();
        bool.or_else(integer).or_else(wide).or_else(float).ok_or_else(|| format!("`{text}` is no number"))
    };
    Ok((name.to_owned(), numbers.split(',').map(number).collect::<Result<_, _>>()?))
}

/// What only models need.
fn of_models(arguments: &Arguments) -> Option<&'static str> {
    let given = [
        ("--embed", arguments.embed),
        ("--no-std", arguments.no_std),
        ("--float-dtype", arguments.float_dtype.is_some()),
        ("--precision", arguments.precision.is_some()),
        ("--trainable", arguments.trainable),
        ("--standalone", arguments.standalone),
        ("--untie", !arguments.untie.is_empty()),
    ];
    let given = given.into_iter().find(|(_, given)| *given).map(|(option, _)| option);
    given.or_else(|| arguments.bindings.given())
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    if weights::is_checkpoint(&arguments.model) {
        return match of_models(arguments) {
            Some(option) => Err(weights::misplaced(option, &arguments.model, "a checkpoint, not a model")),
            None => weights::convert(arguments),
        };
    }
    if let Some(option) = arguments.weights.given() {
        return Err(weights::misplaced(option, &arguments.model, "a model, not a checkpoint"));
    }
    let options = CompileOptions {
        record_type: arguments.record_type.into(),
        half_precision: arguments.half_precision,
        float_dtype: arguments.float_dtype.map(FloatDType::from),
        precision: arguments.precision.unwrap_or_default().into(),
        embed_states: arguments.embed,
        no_std: arguments.no_std,
        trainable: arguments.trainable,
        untie: arguments.untie.clone(),
        standalone: arguments.standalone,
        runtime_crate: arguments.runtime_crate.clone(),
        ..arguments.bindings.options()?
    };
    let bar = spinner(format!("converting {}", arguments.model.display()));
    let mut compiled = compile(&arguments.model, &options)?;
    compiled.write(&arguments.output)?;
    bar.finish_and_clear();
    if arguments.trainable {
        let lines = losses(&arguments.model, &options)?.notes();
        lines.iter().for_each(|line| warn(&format!("note: {line}")));
    }
    for path in &compiled.written {
        show(&format!("{}\n", path.display()));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_inputs_are_numbers_and_bools() {
        let parsed = parse_bind_input;
        assert_eq!(parsed("sr=16000"), Ok(("sr".to_owned(), vec![16_000.into()])));
        assert_eq!(parsed("a=b=0,-2"), Ok(("a=b".to_owned(), vec![0.into(), (-2).into()])));
        assert_eq!(parsed("x=0.5, 1e3"), Ok(("x".to_owned(), vec![0.5.into(), 1e3.into()])));
        assert_eq!(parsed("cache=true"), Ok(("cache".to_owned(), vec![true.into()])));
        assert_eq!(parsed("n=18446744073709551615"), Ok(("n".to_owned(), vec![u64::MAX.into()])));
        for (text, reason) in [
            ("sr", "expected NAME=VALUE"),
            ("=1", "is empty"),
            ("sr=fast", "`fast` is no number"),
            ("sr=1,", "`` is no number"),
        ] {
            assert!(parsed(text).is_err_and(|error| error.contains(reason)), "{text}");
        }
    }
}
