//! Compiles networks to source without a runtime, and writes their golden data as plain numbers for the firmware to compare with.

use kiln_build::ModelGen;
use kiln_importer::ir::Strings;
use kiln_importer::onnx::read_tensor;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Where each network is, and the sizes that its input has.
const NETWORKS: [(&str, &str, &[(&str, usize)]); 3] = [
    ("digits", "../../fixtures/digits", &[("batch", 1)]),
    ("tagger", "../../fixtures/cases/net_lstm_tagger", &[]),
    ("quantized", "../../fixtures/cases/quantized_cnn_around", &[("n", 2)]),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR"));
    fs::copy("memory.x", out.join("memory.x")).expect("memory.x");
    println!("cargo::rustc-link-search={}", out.display());
    println!("cargo::rustc-link-arg=-Tlink.x");
    println!("cargo::rerun-if-changed=memory.x");
    for (name, folder, sizes) in NETWORKS {
        let mut model = ModelGen::new();
        model.input(Path::new(folder).join("model.onnx")).out_dir(name).standalone(true);
        for (dim, size) in sizes {
            model.bind_dim(*dim, *size);
        }
        model.run_from_script();
        for tensor in ["input_0", "output_0"] {
            let path = Path::new(folder).join("test_data_set_0").join(tensor).with_extension("pb");
            println!("cargo::rerun-if-changed={}", path.display());
            // The digits' images come with the firmware.
            let Ok(bytes) = fs::read(&path) else { continue };
            let tensor_data = read_tensor(&bytes, &Strings::default()).expect("a tensor").data;
            fs::write(out.join(format!("{name}.{tensor}.bin")), &*tensor_data.bytes).expect("numbers");
        }
    }
}
