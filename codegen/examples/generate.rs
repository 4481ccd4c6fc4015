//! Writes the source and the record of an ONNX file:
//! `generate MODEL.onnx OUT_DIR [--trainable] [--half] [--embed] [--record mpk|mpk.gz|bin|json|safetensors]`.

use kiln_codegen::{Options, RecordPath, RecordType, generate};
use kiln_importer::onnx::{LoadOptions, load};
use kiln_importer::passes;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, out, rest @ ..] = arguments.as_slice() else {
        return Err("usage: generate MODEL.onnx OUT_DIR [--trainable]".into());
    };
    let has = |flag: &str| rest.iter().any(|argument| argument == flag);
    let wanted = rest.iter().skip_while(|argument| *argument != "--record").nth(1);
    let formats = [
        RecordType::Safetensors,
        RecordType::NamedMpk,
        RecordType::NamedMpkGz,
        RecordType::Bincode,
        RecordType::PrettyJson,
    ];
    let format = formats.into_iter().find(|format| wanted.is_some_and(|wanted| wanted == format.extension()));
    let format = format.unwrap_or_default();
    let trainable = has("--trainable");
    let mut graph = load(Path::new(model), &LoadOptions { trainable, ..LoadOptions::default() })?;
    let passes = passes::Options { trainable, ..passes::Options::default() };
    for report in passes::optimize(&mut graph, &passes) {
        eprintln!("{report}");
    }
    let stem = Path::new(model).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let record = Path::new(out).join(format!("model.{}", format.extension()));
    let path = RecordPath::Given(record.display().to_string());
    let options = Options {
        source_name: format!("{stem}.onnx"),
        record: format,
        half_precision: has("--half"),
        embed: has("--embed").then(|| path.clone()),
        default_record: Some(path),
        trainable,
        ..Options::default()
    };
    let generated = generate(&graph, &options)?;
    std::fs::create_dir_all(out)?;
    std::fs::write(Path::new(out).join("model.rs"), &generated.source)?;
    generated.write_record(&record)?;
    eprintln!("{} lines, {} parameters", generated.source.lines().count(), generated.tensors().len());
    Ok(())
}
