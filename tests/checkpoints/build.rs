//! Compiles every network under `fixtures/checkpoints`, as it is and to be trained, with a test for each: a new folder there
//! is a new test, with no list to extend.

use kiln_build::ModelGen;
use kiln_record::safetensors::Safetensors;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Models that use a part of a tensor, or hold what they computed of several: they cannot be saved without the checkpoint
/// that has the rest.
const PARTIAL: &[&str] = &["transformer", "transformer_trainable", "computed", "cells_torchscript"];

fn main() {
    let cases = std::env::current_dir().expect("a folder").join("../../fixtures/checkpoints");
    println!("cargo::rerun-if-changed={}", cases.display());
    let mut names: Vec<String> = std::fs::read_dir(&cases)
        .expect("fixtures/checkpoints")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .collect();
    names.sort();
    let mut modules = String::new();
    for name in &names {
        for (suffix, trainable) in [("", false), ("_trainable", true)] {
            let out = PathBuf::from("checkpoints").join(format!("{name}{suffix}"));
            let model = cases.join(name).join("model.onnx");
            ModelGen::new().input(model).out_dir(out).trainable(trainable).run_from_script();
            add(&mut modules, &cases.join(name), name, suffix).expect("writing to a string");
        }
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("OUT_DIR")).join("cases.rs");
    std::fs::write(out, modules).expect("cases.rs");
}

/// Adds a model with its test. What the exporter folded cannot be loaded.
fn add(modules: &mut String, case: &Path, name: &str, suffix: &str) -> std::fmt::Result {
    let io = Safetensors::open(&case.join("io.safetensors")).expect("io.safetensors");
    let input = io.tensor("input").expect("the input");
    let kind = if input.dtype.is_float() { "floats" } else { "integers" };
    let rank = input.shape.len();
    let folder = case.display();
    writeln!(modules, "mod {name}{suffix} {{")?;
    writeln!(modules, "    include!(concat!(env!(\"OUT_DIR\"), \"/checkpoints/{name}{suffix}/model.rs\"));")?;
    writeln!(modules, "    #[test]\n    fn takes_checkpoints() {{")?;
    writeln!(modules, "        let folder = std::path::Path::new({:?});", folder.to_string())?;
    let loads = [("pt", "from_pytorch"), ("safetensors", "from_safetensors")];
    for (extension, load) in loads {
        writeln!(modules, "        let file = folder.join(\"checkpoint.{extension}\");")?;
        writeln!(
            modules,
            "        let loaded = Model::<super::Cpu>::{load}(file.as_path(), &Default::default());"
        )?;
        if name.ends_with("_folded") {
            writeln!(modules, "        super::check_refusal(loaded.err());")?;
            continue;
        }
        writeln!(modules, "        let model = loaded.unwrap_or_else(|error| panic!(\"{{error}}\"));")?;
        writeln!(
            modules,
            "        super::check(folder, |input| model.forward(super::{kind}::<{rank}>(input)).into_data());"
        )?;
        writeln!(
            modules,
            "        super::check_saving(&model, \"{name}{suffix}\", &file, {}, |file| {{",
            !PARTIAL.contains(&format!("{name}{suffix}").as_str())
        )?;
        writeln!(
            modules,
            "            let model = Model::<super::Cpu>::from_safetensors(file, &Default::default()).unwrap();"
        )?;
        writeln!(
            modules,
            "            super::check(folder, |input| model.forward(super::{kind}::<{rank}>(input)).into_data());"
        )?;
        writeln!(modules, "        }});")?;
    }
    writeln!(modules, "    }}\n}}")
}
