//! Writes the source and the record of an ONNX file: `generate MODEL.onnx OUT_DIR [--trainable]`.

use kiln_codegen::{Options, RecordPath, generate};
use kiln_importer::onnx::{LoadOptions, load};
use kiln_importer::passes;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, out, rest @ ..] = arguments.as_slice() else {
        return Err("usage: generate MODEL.onnx OUT_DIR [--trainable]".into());
    };
    let trainable = rest.iter().any(|argument| argument == "--trainable");
    let mut graph = load(Path::new(model), &LoadOptions::default())?;
    for report in passes::optimize(&mut graph, &passes::Options { trainable }) {
        eprintln!("{report}");
    }
    let stem = Path::new(model).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let record = Path::new(out).join("model.safetensors");
    let options = Options {
        source_name: format!("{stem}.onnx"),
        default_record: Some(RecordPath::Given(record.display().to_string())),
        ..Options::default()
    };
    let generated = generate(&graph, &options)?;
    std::fs::create_dir_all(out)?;
    std::fs::write(Path::new(out).join("model.rs"), &generated.source)?;
    generated.write_record(&record)?;
    eprintln!("{} lines, {} parameters", generated.source.lines().count(), generated.tensors().len());
    Ok(())
}
