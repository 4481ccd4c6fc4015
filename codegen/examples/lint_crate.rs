//! Writes a crate with the generated source of every fixture (and of other models) as its modules, so that lints see it:
//! those of code that is included from `OUT_DIR` are not reported. `lint_crate OUT_DIR [MODEL.onnx …]`.

use kiln_codegen::{Options, generate};
use kiln_importer::onnx::{LoadOptions, load};
use kiln_importer::passes;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, models @ ..] = arguments.as_slice() else {
        return Err("usage: lint_crate OUT_DIR [MODEL.onnx …]".into());
    };
    let root = Path::new(ROOT).canonicalize()?;
    let mut models: Vec<PathBuf> = models.iter().map(PathBuf::from).collect();
    if models.is_empty() {
        for folder in ["fixtures/cases", "fixtures/training"] {
            for case in std::fs::read_dir(root.join(folder))? {
                models.push(case?.path().join("model.onnx"));
            }
        }
        models.push(root.join("fixtures/hostile_names/model.onnx"));
        models.retain(|model| model.exists());
        models.sort();
    }
    let source = Path::new(out).join("src");
    std::fs::create_dir_all(&source)?;
    let mut library = String::from("//! Generated source.\n");
    for model in &models {
        let folder = model.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        // What was exported to be trained may have operators that only train.
        let for_training = model.starts_with(root.join("fixtures/training"));
        let kinds = [("", false), ("_trainable", true)];
        for (suffix, trainable) in kinds.into_iter().filter(|kind| kind.1 || !for_training) {
            let mut graph = load(model, &LoadOptions { trainable, ..LoadOptions::default() })?;
            passes::optimize(&mut graph, &passes::Options { trainable, ..passes::Options::default() });
            let options = Options { source_name: "model.onnx".into(), trainable, ..Options::default() };
            let name = format!("{}{suffix}", folder.replace('.', "_"));
            // Only what changed is written, so that nothing else is checked again.
            write_if_new(&source.join(format!("{name}.rs")), &generate(&graph, &options)?.source)?;
            writeln!(library, "pub mod {name};")?;
        }
    }
    write_if_new(&source.join("lib.rs"), &library)?;
    let manifest = format!(
        "[package]\nname = \"generated-lints\"\nedition = \"2024\"\n\n[dependencies]\nkiln = {{ path = {:?} }}\n\n[workspace]\n",
        root.join("runtime")
    );
    write_if_new(&Path::new(out).join("Cargo.toml"), &manifest)?;
    let lock = Path::new(out).join("Cargo.lock");
    if !lock.exists() {
        std::fs::copy(root.join("Cargo.lock"), lock)?;
    }
    Ok(())
}

fn write_if_new(path: &Path, text: &str) -> std::io::Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        Ok(())
    } else {
        std::fs::write(path, text)
    }
}
