//! Compiles a convolution network, transformers (of which one takes a mask) and a recurrent network in several float dtypes, and with products
//! of bf16.

use kiln_build::{FloatDType, ModelGen, Precision, RecordType};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const NETWORKS: [&str; 4] = ["net_residual_cnn", "net_gpt_decoder", "net_lstm_tagger", "net_bert_encoder"];

const FORMATS: [(&str, RecordType); 5] = [
    ("safetensors", RecordType::Safetensors),
    ("named_mpk", RecordType::NamedMpk),
    ("named_mpk_gz", RecordType::NamedMpkGz),
    ("pretty_json", RecordType::PrettyJson),
    ("bincode", RecordType::Bincode),
];

fn main() {
    let mut modules = String::new();
    for network in NETWORKS {
        let case = Path::new("../../fixtures/cases").join(network);
        let mut compile = |name: &str, record: RecordType, dtype: Option<FloatDType>| {
            let mut model = ModelGen::new();
            model.input(case.join("model.onnx")).out_dir(PathBuf::from("models").join(name));
            model.record_type(record).golden(&case);
            if let Some(dtype) = dtype {
                model.float_dtype(dtype);
            }
            model.run_from_script();
            let path = format!("concat!(env!(\"OUT_DIR\"), \"/models/{name}/model.rs\")");
            writeln!(modules, "mod {name} {{ include!({path}); }}").expect("writing to a string");
        };
        compile(network, RecordType::Safetensors, None);
        for (format, record) in FORMATS {
            compile(&format!("{network}_f16_{format}"), record, Some(FloatDType::F16));
        }
        compile(&format!("{network}_bf16"), RecordType::Safetensors, Some(FloatDType::BF16));
        compile(&format!("{network}_f64"), RecordType::Bincode, Some(FloatDType::F64));
    }
    // The last one waits for its data, and so has a second, asynchronous `forward`.
    for network in ["net_residual_cnn", "net_bert_encoder", "op_data_dependent"] {
        let case = Path::new("../../fixtures/cases").join(network);
        let name = format!("{network}_products");
        let mut model = ModelGen::new();
        model.input(case.join("model.onnx")).out_dir(PathBuf::from("models").join(&name)).golden(&case);
        model.precision(Precision::Bf16).run_from_script();
        let path = format!("concat!(env!(\"OUT_DIR\"), \"/models/{name}/model.rs\")");
        writeln!(modules, "mod {name} {{ include!({path}); }}").expect("writing to a string");
    }
    let roots = Path::new("../../fixtures/cases/op_integer_roots");
    ModelGen::new().input(roots.join("model.onnx")).out_dir("models/roots").golden(roots).run_from_script();
    modules.push_str("mod roots { include!(concat!(env!(\"OUT_DIR\"), \"/models/roots/model.rs\")); }\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("OUT_DIR")).join("models.rs");
    std::fs::write(out, modules).expect("models.rs");
}
