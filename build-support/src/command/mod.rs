//! The `kiln` command: one file a subcommand.
//!
//! Exit status: 0 all well, 1 a case (or the one thing asked for) failed, 2 bad usage.

mod bench;
mod checkpoint;
mod convert;
mod graph;
mod inspect;
mod json;
mod profile;
mod runner;
mod scratch;
mod svg;
mod verify;
mod weights;

use crate::BuildError;
use clap::{Parser, Subcommand, ValueEnum};
use kiln_types::{Line, Lines};
use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;

/// Compile trained networks to Rust, and prove that the import is right
#[derive(Debug, Parser)]
#[command(
    name = "kiln",
    version,
    max_term_width = 100,
    after_help = "Exit status: 0 all well, 1 a file or a case failed, 2 wrong usage."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what a model file holds: inputs, outputs, operators, parameters, and what is unsupported
    Inspect(inspect::Arguments),
    /// Turn a model into Rust source and a record
    Convert(convert::Arguments),
    /// Compile case directories, run them, and compare with their golden outputs
    Verify(verify::Arguments),
    /// Compile case directories and time them
    Bench(bench::Arguments),
    /// Draw the module tree and the dataflow
    Graph(graph::Arguments),
}

/// Where generated code runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The CPU.
    #[default]
    Ndarray,
    /// Any GPU through wgpu.
    Wgpu,
    /// An NVIDIA GPU.
    Cuda,
}

impl Backend {
    /// The runtime's cargo feature, which is also the name on the command line.
    fn feature(self) -> &'static str {
        match self {
            Backend::Ndarray => "ndarray",
            Backend::Wgpu => "wgpu",
            Backend::Cuda => "cuda",
        }
    }

    /// The runtime's type.
    fn ty(self) -> &'static str {
        match self {
            Backend::Ndarray => "NdArray",
            Backend::Wgpu => "Wgpu",
            Backend::Cuda => "Cuda",
        }
    }
}

/// As what a model's floats are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Floats {
    /// As 32-bit floats.
    #[default]
    F32,
    /// As 16-bit floats.
    F16,
    /// As the upper halves of 32-bit floats.
    Bf16,
}

/// Where generated code runs, and how.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Target {
    /// Where to run
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    /// What products of f32 are computed of
    #[arg(long, value_enum, default_value_t)]
    precision: convert::Products,
    /// Capture the forward pass as a graph and replay it (`--backend cuda`)
    #[arg(long)]
    captured: bool,
    /// As what floats are computed, inputs and weights of 32 bits too; others than `f32` with `--backend cuda`
    #[arg(long, value_enum, default_value_t)]
    floats: Floats,
    /// Let products round factors of f32 to TF32 (`--backend cuda`)
    #[arg(long)]
    tf32: bool,
    /// Let NVIDIA's libraries compute ReLU, which may make 0 of NaN (`--backend cuda`)
    #[arg(long)]
    library_relu: bool,
    /// Run source that needs no runtime (`kiln convert --standalone`)
    #[arg(long)]
    standalone: bool,
    /// Compile and prepare the cases, and print the command of each as a line of JSON instead of running it
    #[arg(long)]
    no_run: bool,
}

impl Target {
    /// Refuses what the backend has not.
    fn check(self) -> Result<(), CommandError> {
        let of_cuda = [
            (self.captured, "`--captured` is for `--backend cuda`: others have no graphs"),
            (
                self.floats != Floats::F32,
                "`--floats` is for `--backend cuda`: others are tried with 32-bit floats",
            ),
            (self.tf32, "`--tf32` is for `--backend cuda`: others have no such products"),
            (self.library_relu, "`--library-relu` is for `--backend cuda`: others ask no library"),
        ];
        let of_the_runtime = self.backend != Backend::Ndarray || self.precision != convert::Products::F32;
        if self.standalone && of_the_runtime {
            let reason =
                "`--standalone` runs source without a runtime: it has neither backends nor precisions";
            return Err(CommandError::Usage(reason.to_owned()));
        }
        match of_cuda.iter().find(|(is_asked, _)| *is_asked && self.backend != Backend::Cuda) {
            Some((_, reason)) => Err(CommandError::Usage((*reason).to_owned())),
            None => Ok(()),
        }
    }

    /// The runtime's type, with that of its floats.
    fn ty(self) -> String {
        let floats = match self.floats {
            Floats::F32 => "",
            Floats::F16 => "<kiln::tensor::f16>",
            Floats::Bf16 => "<kiln::tensor::bf16>",
        };
        format!("{}{floats}", self.backend.ty())
    }

    /// The words by which a runner is told how to open its device.
    fn settings(self) -> impl Iterator<Item = &'static str> {
        [(self.tf32, "tf32"), (self.library_relu, "library-relu")]
            .into_iter()
            .filter_map(|(is_set, word)| is_set.then_some(word))
    }
}

/// How a subcommand ended well: whether every case passed.
pub(crate) type Outcome = Result<bool, CommandError>;

/// A subcommand could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// A model could not be compiled.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The scratch crate did not compile: a defect of Kiln, so the compiler's words are shown.
    #[error("the generated source does not compile; this is a defect of Kiln, please report it\n{output}")]
    Compile {
        /// What rustc said.
        output: String,
    },
    /// `cargo` could not be started.
    #[error("`{program}` could not be started ({source}); `kiln verify` and `kiln bench` compile with cargo")]
    Cargo {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// A checkpoint could not be read.
    #[error(transparent)]
    Weights(#[from] kiln_weights::WeightsError),
    /// A checkpoint has no skeleton.
    #[error("{file}: {source}")]
    Skeleton {
        /// The checkpoint.
        file: String,
        /// Why.
        source: kiln_skeletons::SkeletonError,
    },
    /// A file could not be written.
    #[error(transparent)]
    Record(#[from] kiln_record::RecordError),
    /// Standard output took less than all.
    #[error("standard output cannot be written: {0}")]
    Print(String),
    /// An argument that clap could not judge.
    #[error("{0}")]
    Usage(String),
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Graph(arguments) => graph::run(&arguments),
    };
    let outcome = outcome.and_then(|all_well| match UNPRINTED.get() {
        Some(reason) => Err(CommandError::Print(reason.clone())),
        None => Ok(all_well),
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(CommandError::Build(error @ BuildError::Replaces { .. })) => fail(&error.report(), 2),
        Err(CommandError::Build(error)) => fail(&error.report(), 1),
        Err(error @ CommandError::Usage(_)) => fail(&error.to_string(), 2),
        Err(error) => fail(&error.to_string(), 1),
    }
}

/// Prints a text of any length: all that the command says goes through here or [`warn`], and no name in a file reaches the terminal
/// but as text. That a reader such as `head` has seen enough is no failure; any other is one of the command.
pub(crate) fn show(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = write!(out, "{}", Lines(text)).and_then(|()| out.flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        // The first reason is told.
        let _ = UNPRINTED.set(error.to_string());
    }
}

/// Why something could not be printed.
static UNPRINTED: OnceLock<String> = OnceLock::new();

/// Prints a line, or several, to standard error.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", Lines(text));
}

/// A name of a file for a line of output.
pub(crate) fn plain(name: &str) -> String {
    Line(name).to_string()
}

fn fail(message: &str, status: u8) -> ExitCode {
    warn(&format!("error: {message}"));
    ExitCode::from(status)
}

/// A spinner on a terminal; nothing elsewhere (indicatif draws to standard error only when it is one).
pub(crate) fn spinner(message: impl Into<String>) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::new_spinner().with_message(plain(&message.into()));
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    bar
}
