//! `kiln convert`.

use super::{Outcome, show, spinner, warn, weights};
use crate::compile::losses;
use crate::{CompileOptions, FloatDType, Precision, RecordType, compile};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments of `kiln convert`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The model, or a checkpoint (.pt, .pth, .bin, .safetensors, a folder of shards or its index)
    pub(super) model: PathBuf,
    /// The folder to write to
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: PathBuf,
    /// Format of the weights
    #[arg(long, value_enum, default_value = "safetensors")]
    pub(super) record_type: RecordFormat,
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
    /// Keep what training needs: BatchNorm and Dropout
    #[arg(long)]
    trainable: bool,
    /// Give a tied parameter contents of its own, by its key
    #[arg(long, value_name = "KEY")]
    untie: Vec<String>,
    /// Fix a symbolic dim
    #[arg(long, value_name = "NAME=N", value_parser = parse_bind)]
    bind: Vec<(String, usize)>,
    /// Name of the runtime crate in the manifest of the crate that uses the source
    #[arg(long, default_value = "kiln")]
    pub(super) runtime_crate: String,
    #[command(flatten)]
    pub(super) weights: weights::CheckpointArguments,
}

/// [`RecordType`] as the command line names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RecordFormat {
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

impl From<RecordFormat> for RecordType {
    fn from(format: RecordFormat) -> Self {
        match format {
            RecordFormat::Safetensors => RecordType::Safetensors,
            RecordFormat::NamedMpk => RecordType::NamedMpk,
            RecordFormat::NamedMpkGz => RecordType::NamedMpkGz,
            RecordFormat::Bincode => RecordType::Bincode,
            RecordFormat::PrettyJson => RecordType::PrettyJson,
        }
    }
}

/// Parses `batch=1`.
pub(super) fn parse_bind(text: &str) -> Result<(String, usize), String> {
    let (name, size) = text.split_once('=').ok_or("expected NAME=N, for example batch=1")?;
    let size = size.parse().map_err(|_| format!("`{size}` is not a size"))?;
    if name.is_empty() {
        return Err("the name of the dim is empty".into());
    }
    Ok((name.to_owned(), size))
}

/// What only models need.
fn of_models(arguments: &Arguments) -> Option<&'static str> {
    let given = [
        ("--embed", arguments.embed),
        ("--float-dtype", arguments.float_dtype.is_some()),
        ("--precision", arguments.precision.is_some()),
        ("--trainable", arguments.trainable),
        ("--untie", !arguments.untie.is_empty()),
        ("--bind", !arguments.bind.is_empty()),
    ];
    given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
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
        trainable: arguments.trainable,
        untie: arguments.untie.clone(),
        bind_dims: arguments.bind.iter().cloned().collect(),
        runtime_crate: arguments.runtime_crate.clone(),
        ..CompileOptions::default()
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
