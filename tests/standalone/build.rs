//! Compiles every case under `fixtures/cases` without a runtime, for the sizes of its first golden data. Those that cannot be are listed in
//! `refused.txt`, each with why: a case that is refused and not listed, or the other way round, fails the build.

use kiln_build::ModelGen;
use kiln_importer::onnx::{LoadOptions, load, read_tensor};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let cases = Path::new("../../fixtures/cases");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("OUT_DIR"));
    println!("cargo::rerun-if-changed={}", cases.display());
    println!("cargo::rerun-if-changed=refused.txt");
    println!("cargo::rerun-if-env-changed=KILN_BLESS");
    let mut names: Vec<String> = fs::read_dir(cases)
        .expect("a folder of cases")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .filter(|name| cases.join(name).join("model.onnx").exists())
        .collect();
    names.sort();
    let (mut modules, mut refused) = (String::new(), String::new());
    for name in names {
        match compile(&cases.join(&name), &name, &out) {
            Ok(()) => writeln!(
                modules,
                "pub mod {name} {{ include!(concat!(env!(\"OUT_DIR\"), \"/cases/{name}/model.rs\")); }}"
            ),
            Err(reason) => writeln!(refused, "{name}: {reason}"),
        }
        .expect("writing to a string");
    }
    fs::write(out.join("cases.rs"), modules).expect("cases.rs");
    if std::env::var_os("KILN_BLESS").is_some() {
        fs::write("refused.txt", &refused).expect("refused.txt");
    }
    let listed = fs::read_to_string("refused.txt").unwrap_or_default();
    let added: Vec<&str> =
        refused.lines().filter(|line| !listed.lines().any(|other| other == *line)).collect();
    let gone: Vec<&str> =
        listed.lines().filter(|line| !refused.lines().any(|other| other == *line)).collect();
    for (lines, what) in [(added, "is refused and not listed"), (gone, "is listed and not refused")] {
        for line in lines {
            println!(
                "cargo::error=tests/standalone/refused.txt: a case {what} (KILN_BLESS=1 lists them anew): {line}"
            );
        }
    }
}

/// Compiles a case with the test of its first golden data. The error is the first line of why it cannot be.
fn compile(case: &Path, name: &str, out: &Path) -> Result<(), String> {
    let data = case.join("test_data_set_0");
    let golden = out.join("golden").join(name);
    let _ = fs::remove_dir_all(&golden);
    fs::create_dir_all(golden.join("test_data_set_0")).expect("a folder");
    let mut files = fs::read_dir(&data).map_err(|_| "there are no golden data".to_owned())?;
    files
        .try_for_each(|file| {
            let path = file?.path();
            fs::copy(&path, golden.join("test_data_set_0").join(path.file_name().unwrap_or_default()))
                .map(drop)
        })
        .expect("copies of golden data");
    let mut model = ModelGen::new();
    model
        .input(case.join("model.onnx"))
        .out_dir(out.join("cases").join(name))
        .standalone(true)
        .golden(&golden);
    for (symbol, size) in sizes(case)? {
        model.bind_dim(symbol, size);
    }
    model.run_from_cli().map_err(|error| {
        let text = error.to_string();
        // A case is in a folder of its own name.
        let line =
            text.lines().find(|line| line.starts_with("  ")).or(text.lines().last()).unwrap_or_default();
        line.trim().replace(&*case.display().to_string(), "…").replace(&*golden.display().to_string(), "…")
    })
}

/// The sizes of symbols that the first golden data have.
fn sizes(case: &Path) -> Result<BTreeMap<String, usize>, String> {
    let graph = load(&case.join("model.onnx"), &LoadOptions::default()).map_err(|error| error.to_string())?;
    let mut sizes = BTreeMap::new();
    for (n, &input) in graph.inputs.iter().enumerate() {
        let bytes = fs::read(case.join(format!("test_data_set_0/input_{n}.pb")))
            .map_err(|error| error.to_string())?;
        let Ok(tensor) = read_tensor(&bytes, &graph.strings) else { continue };
        for (dim, size) in graph.ty(input).dims.iter().zip(tensor.data.shape) {
            if let Some(symbol) = dim.as_symbol() {
                sizes.insert(symbol.to_string(), size);
            }
        }
    }
    Ok(sizes)
}
