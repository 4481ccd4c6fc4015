//! What a file is that is no checkpoint: most are downloads that went wrong, or files of other programs.

use kiln_record::FileKind;

/// What the beginning of a file says that it is, and what to do about it.
pub(crate) fn identify(file: &[u8]) -> Option<String> {
    let kind = FileKind::of(file)?;
    let advice = match kind {
        FileKind::Json => "of JSON files only the index of shards, `*.index.json`, leads to tensors",
        FileKind::Hdf5 => "save it as Safetensors",
        FileKind::Gguf => "save the weights as Safetensors",
        FileKind::NumpyArray => "save a dict of arrays as Safetensors",
        FileKind::Onnx => "under a name that ends with `.onnx`, `kiln convert` and `ModelGen` compile it",
        FileKind::TfLite => {
            "convert it with tf2onnx, and `kiln convert` and `ModelGen` compile the ONNX model"
        }
        FileKind::Pickle => {
            "PyTorch's checkpoints have a frame around one, which `pickle.dump` does not write: load it in Python and save its \
             tensors with `torch.save`"
        }
        FileKind::Empty
        | FileKind::LfsPointer
        | FileKind::WebPage
        | FileKind::Gzip
        | FileKind::Bzip2
        | FileKind::Xz
        | FileKind::Zstd
        | FileKind::SevenZip
        | FileKind::Zeros => return Some(kind.sentence().to_owned()),
        // What these hold is looked at closer, and what is wrong with it said there.
        FileKind::Safetensors | FileKind::Zip => return None,
    };
    Some(format!("{}; {advice}", kind.sentence()))
}

/// What a zip archive is that has no `data.pkl` in a folder of its own, from its entries' names.
pub(crate) fn identify_archive<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<&'static str> {
    let any = |is: &dyn Fn(&str) -> bool| names.clone().any(is);
    if any(&|name| name == "data.pkl") {
        Some(
            "its `data.pkl` is not in a folder, as `torch.save` has it: it was packed again, without its folder",
        )
    } else if any(&|name| name == "serialized_exported_program.json") {
        Some(
            "it is an exported program of PyTorch before 2.8; save it again with a newer one: \
             `torch.export.save(torch.export.load(path), path)`",
        )
    } else if any(&|name| name.ends_with("/archive_format")) {
        Some(
            "it is a package of PyTorch without an exported program, such as compiled code of AOTInductor; `torch.export.save` \
             writes the program",
        )
    } else if any(&|name| name.ends_with("/.data/extern_modules")) {
        Some(
            "it is a package of `torch.package`, which holds objects with the code that makes them; load it in Python and save the \
             weights alone: `torch.save(model.state_dict(), path)`",
        )
    } else if any(&|name| name == "model.weights.h5") {
        Some(
            "it is a model of Keras; `model.export(\"model.onnx\", format=\"onnx\")` makes an ONNX model, which `kiln convert` \
             compiles",
        )
    } else if any(&|name| name.ends_with(".npy")) {
        Some(
            "it is an archive of NumPy's arrays; save them as Safetensors: `safetensors.numpy.save_file(dict(numpy.load(path)), …)`",
        )
    } else if any(&|name| name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".safetensors")) {
        Some("there are checkpoints inside of it; unpack it first")
    } else if any(&|name| name.ends_with(".onnx")) {
        Some("there is an ONNX model inside of it; unpack it first")
    } else {
        None
    }
}
