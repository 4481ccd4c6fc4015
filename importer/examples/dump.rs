//! Prints the graph of an ONNX model: `dump model.onnx [--trainable] [--passes] [--bind NAME=SIZE]…`.
//!
//! With `--passes`, what the passes did and the graph after them.

use kiln_importer::onnx::{LoadOptions, load};
use kiln_importer::passes::{Options, optimize};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut options = LoadOptions::default();
    let mut files = Vec::new();
    let mut passes = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--trainable" => options.trainable = true,
            "--passes" => passes = true,
            "--bind" => {
                let binding = arguments.next().unwrap_or_default();
                match binding.split_once('=').map(|(name, size)| (name, size.parse())) {
                    Some((name, Ok(size))) => {
                        options.bind_dims.insert(name.to_owned(), size);
                    }
                    _ => {
                        eprintln!("--bind takes NAME=SIZE");
                        return ExitCode::from(2);
                    }
                }
            }
            _ => files.push(argument),
        }
    }
    let mut failed = false;
    for file in &files {
        match load(Path::new(file), &options) {
            Ok(mut graph) => {
                if passes {
                    for report in
                        optimize(&mut graph, &Options { trainable: options.trainable, ..Options::default() })
                    {
                        println!("{report}");
                    }
                }
                println!("{graph}");
                for violation in graph.verify().err().unwrap_or_default() {
                    println!("violation: {violation:?}");
                    failed = true;
                }
            }
            Err(error) => {
                eprintln!("{error}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
