//! Compiles the exported decoders, and writes how each is called: a decoder has as many arguments as it has caches.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=KILN_GENERATION_MODELS");
    if let Err(error) = run() {
        println!("cargo::error={error}; scripts/cuda_generate.py exports the decoders");
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let folder = std::env::var_os("KILN_GENERATION_MODELS").map(PathBuf::from);
    let folder = folder.ok_or("KILN_GENERATION_MODELS names no folder")?;
    // One file a decoder: how many caches it has, and of which sizes.
    let list = folder.join("decoders.txt");
    println!("cargo::rerun-if-changed={}", list.display());
    let list = fs::read_to_string(list)?;
    let mut models = kiln_build::ModelGen::new();
    let (mut modules, mut names) = (String::new(), Vec::new());
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[name, caches, heads, length, size, dtype] = words.as_slice() else {
            return Err(format!("`{line}` is not a name, the caches, heads, length, size and dtype").into());
        };
        models.input(folder.join(name).join(format!("{name}.onnx")));
        modules += &module(name, caches.parse()?, [heads, length, size], dtype)?;
        names.push(name);
    }
    models.out_dir("models/").run_from_script();
    write!(modules, "decoders! {{ {} }}", names.join(" "))?;
    let out = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    fs::write(Path::new(&out).join("decoders.rs"), modules)?;
    Ok(())
}

/// The module of a decoder, with its `Decoder`.
fn module(name: &str, caches: usize, sizes: [&str; 3], dtype: &str) -> Result<String, std::fmt::Error> {
    let numbered = |what: &str| (0..caches).map(|n| format!("{what}{n}")).collect::<Vec<_>>().join(", ");
    let (old, new) = (numbered("old"), numbered("new"));
    let [heads, length, size] = sizes;
    let mut text = String::new();
    write!(
        text,
        r#"
pub mod {name} {{
    include!(concat!(env!("OUT_DIR"), "/models/{name}.rs"));
}}

impl<B: Backend> Decoder<B> for {name}::Model<B> {{
    const CACHES: Caches = Caches {{ count: {caches}, shape: [1, {heads}, {length}, {size}], dtype: DType::{dtype} }};

    fn load(path: &Path, device: &B::Device) -> Self {{
        Self::from_file(path, device)
    }}

    fn decode(&self, State {{ token, position, caches }}: State<B>) -> State<B> {{
        let Ok([{old}]) = <[Tensor<B, 4>; {caches}]>::try_from(caches) else {{
            unreachable!("another number of caches")
        }};
        let (token, position, {new}) = self.forward(token, position, {old});
        State {{ token, position, caches: vec![{new}] }}
    }}
}}
"#
    )?;
    Ok(text)
}
