//! The text of the scratch crate around the generated sources.

use super::{Backend, Target};
use crate::{Compiled, compile::Port};
use kiln_types::DTypeKind;
use std::fmt::Write;
use std::path::Path;

/// One generated source with what the runner must know to call it.
pub(super) struct Module {
    pub source: String,
    /// The numbers of source without a runtime.
    pub numbers: Option<Vec<u8>>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

impl Module {
    pub(super) fn new(compiled: &Compiled) -> Self {
        Self {
            source: compiled.source.clone(),
            numbers: compiled.numbers().map(<[u8]>::to_vec),
            inputs: compiled.inputs.clone(),
            outputs: compiled.outputs.clone(),
        }
    }
}

/// The crate's manifest. Run from a checkout, it uses the checkout's runtime; installed, the published one.
pub(super) fn manifest(target: Target, profiled: bool, name: &str) -> String {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime");
    let place = match checkout.canonicalize() {
        Ok(path) if path.join("Cargo.toml").exists() => format!("path = {:?}", path.display().to_string()),
        _ => format!("version = \"={}\"", env!("CARGO_PKG_VERSION")),
    };
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
         [dependencies]\nkiln = {{ {place}, default-features = false, features = [\"std\", \"{}\"{}] }}\n\
         {}\n\
         [profile.release]\ndebug = false\n\n[workspace]\n",
        target.backend.feature(),
        if profiled { ", \"profile\"" } else { "" },
        // Source without a runtime may need it.
        if target.standalone { "libm = \"0.2\"\n" } else { "" }
    )
}

/// `main.rs`: the fixed part, then a `Case` implementation for each module.
pub(super) fn main_source(target: Target, profiled: bool, modules: &[(usize, &Module)]) -> String {
    let backend = format!("kiln::backend::{}", target.ty());
    let mut text = if profiled {
        let precision = kiln_types::Precision::from(target.precision);
        format!(
            "type B = kiln::backend::profile::Profiled<{backend}>;\n\
             const PRECISION: kiln::tensor::Precision = kiln::tensor::Precision::{precision:?};\n\n"
        )
    } else {
        format!("type B = {backend};\n\n")
    };
    text.push_str(include_str!("runner_main.rs.txt"));
    text.push_str(match (profiled, target.backend) {
        (true, _) => include_str!("runner_profile.rs.txt"),
        (false, Backend::Ndarray) => include_str!("runner_cpu.rs.txt"),
        (false, Backend::Wgpu) => include_str!("runner_wgpu.rs.txt"),
        (false, Backend::Cuda) => include_str!("runner_cuda.rs.txt"),
    });
    for (i, module) in modules {
        text.push_str(&match target.standalone {
            true => standalone_source(*i, module),
            false => case_source(*i, module, target.captured),
        });
    }
    text.push_str("\nfn dispatch(index: usize, arguments: &[String]) {\n    match index {\n");
    for (i, _) in modules {
        let ty = if target.standalone { format!("Standalone{i}") } else { format!("case_{i}::Model<B>") };
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "        {i} => run::<{ty}>(arguments),");
    }
    text.push_str("        _ => panic!(\"no such case\"),\n    }\n}\n");
    text
}

fn case_source(i: usize, module: &Module, captured: bool) -> String {
    let mut text = format!("\n#[allow(dead_code)]\nmod case_{i};\n\nimpl Case for case_{i}::Model<B> {{\n");
    text.push_str("    fn load(path: &Path, device: &Device) -> Self {\n");
    text.push_str("        Self::from_file(path, device)\n    }\n\n");
    text.push_str(
        "    fn prepare(&self, data: Vec<TensorData>, device: &Device) -> Box<dyn Fn() -> Outputs + '_> {\n",
    );
    if !module.inputs.is_empty() {
        text.push_str("        let mut data = data.into_iter();\n");
    } else {
        text.push_str("        drop(data);\n        let _ = device;\n");
    }
    for (k, port) in module.inputs.iter().enumerate() {
        let _ = writeln!(
            text,
            "        let x{k} = tensor::<{}, kiln::tensor::{}>(data.next(), {:?}, device);",
            port.rank,
            kind(port),
            port.name
        );
    }
    let names = |prefix: &str, n: usize, suffix: &str| {
        (0..n).map(|k| format!("{prefix}{k}{suffix}")).collect::<Vec<_>>().join(", ")
    };
    let (inputs, outputs) = (module.inputs.len(), module.outputs.len());
    let read = names("Box::new(y", outputs, ") as Box<dyn Output>");
    let pattern = match outputs {
        1 => String::from("y0"),
        _ => format!("({})", names("y", outputs, "")),
    };
    // Writing to a `String` cannot fail.
    let _ = if captured {
        let (taken, given) = (pairs("x", inputs, ""), pairs("x", inputs, ".clone()"));
        let results = pairs("y", outputs, "");
        writeln!(
            text,
            "        let forward = std::cell::RefCell::new(kiln::backend::cuda::Captured::new(|{taken}| {{\n            \
             let {pattern} = self.forward({});\n            {results}\n        }}));\n        \
             Box::new(move || {{\n            let outputs = forward.borrow_mut().run({given});\n            \
             let {results} = outputs.unwrap_or_else(|error| fail(&error.to_string()));",
            names("x", inputs, "")
        )
    } else {
        let call = match inputs {
            0 => "forward()".to_owned(),
            _ => format!(
                "try_forward({}).unwrap_or_else(|error| fail(&error.to_string()))",
                names("x", inputs, ".clone()")
            ),
        };
        writeln!(text, "        Box::new(move || {{\n            let {pattern} = self.{call};")
    };
    let _ = writeln!(text, "            vec![{read}]\n        }})\n    }}\n}}");
    text
}

/// A model without a runtime as a case: its arrays are read from the data, and read back as data.
fn standalone_source(i: usize, module: &Module) -> String {
    let mut text = format!(
        "\n#[allow(dead_code)]\n#[path = \"case_{i}/model.rs\"]\nmod case_{i};\n\n\
         static MODEL_{i}: std::sync::Mutex<case_{i}::Model> = std::sync::Mutex::new(case_{i}::Model::new());\n\n\
         struct Standalone{i};\n\nimpl Case for Standalone{i} {{\n    \
         fn load(_path: &Path, _device: &Device) -> Self {{\n        Standalone{i}\n    }}\n\n    \
         fn prepare(&self, data: Vec<TensorData>, _device: &Device) -> Box<dyn Fn() -> Outputs + '_> {{\n"
    );
    let (inputs, outputs) = (module.inputs.len(), module.outputs.len());
    match inputs {
        0 => text.push_str("        drop(data);\n"),
        _ => text.push_str(
            "        let mut data = data.into_iter();\n        let mut next = || data.next().expect(\"an input is missing\");\n",
        ),
    }
    // Writing to a `String` cannot fail.
    for (k, port) in module.inputs.iter().enumerate() {
        let ty = element(port);
        let _ = writeln!(
            text,
            "        let x{k}: Vec<{ty}> = next().to_vec().unwrap_or_else(|error| fail(&error.to_string()));"
        );
    }
    let args: Vec<String> = (0..inputs)
        .map(|k| {
            format!("x{k}.as_slice().try_into().unwrap_or_else(|_| fail(\"input {k} has another size\"))")
        })
        .collect();
    let results: Vec<String> = (0..outputs).map(|k| format!("y{k}")).collect();
    let pattern = if outputs == 1 { "y0".to_owned() } else { format!("({})", results.join(", ")) };
    let read = |(k, port): (usize, &Port)| {
        let sizes: Vec<String> = port.sizes.iter().map(|size| size.unwrap_or(0).to_string()).collect();
        let shape = format!("[{}] as [usize; {}]", sizes.join(", "), sizes.len());
        format!("Box::new(TensorData::new(y{k}.to_vec(), {shape})) as Box<dyn Output>")
    };
    let read: Vec<String> = module.outputs.iter().enumerate().map(read).collect();
    let _ = writeln!(
        text,
        "        Box::new(move || {{\n            let mut model = MODEL_{i}.lock().unwrap_or_else(|error| error.into_inner());\n            \
         let {pattern} = model.forward({});\n            vec![{}]\n        }})\n    }}\n}}",
        args.join(", "),
        read.join(", ")
    );
    text
}

/// The type of Rust of a port's elements.
fn element(port: &Port) -> String {
    format!("{:?}", port.dtype).to_lowercase()
}

/// Tensors as pairs of the first and the rest: however many they are, that is one type that graphs take.
fn pairs(prefix: &str, count: usize, suffix: &str) -> String {
    (0..count).rev().fold(String::from("()"), |rest, k| format!("({prefix}{k}{suffix}, {rest})"))
}

fn kind(port: &Port) -> &'static str {
    match port.dtype.kind() {
        DTypeKind::Float => "Float",
        DTypeKind::Int => "Int",
        DTypeKind::Bool => "Bool",
    }
}
