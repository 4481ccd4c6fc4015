//! What a file is that is no checkpoint: most are downloads that went wrong, or files of other programs.

/// What the beginning of a file says that it is, and what to do about it.
pub(crate) fn identify(file: &[u8]) -> Option<&'static str> {
    let head = file.get(..1024).unwrap_or(file);
    let text = head.trim_ascii_start();
    let starts = |mark: &[u8]| text.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark));
    let what = match head {
        [] => "the file is empty",
        _ if head.starts_with(b"version https://git-lfs") => {
            "it is a pointer of Git LFS, not the file itself; fetch that with `git lfs pull`"
        }
        _ if starts(b"<!doctype") || starts(b"<html") || starts(b"<?xml") => {
            "it is a web page, perhaps in place of a download that was refused; fetch the file again"
        }
        _ if starts(b"{") || starts(b"[") => {
            "it is JSON; of JSON files only the index of shards, `*.index.json`, leads to tensors"
        }
        [0x1f, 0x8b, ..] => "it is compressed with gzip; unpack it first",
        [b'B', b'Z', b'h', ..] => "it is compressed with bzip2; unpack it first",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "it is compressed with xz; unpack it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is compressed with zstd; unpack it first",
        [b'7', b'z', 0xbc, 0xaf, ..] => "it is a 7z archive; unpack it first",
        [0x89, b'H', b'D', b'F', ..] => "it is an HDF5 file, as Keras writes them; save it as Safetensors",
        [b'G', b'G', b'U', b'F', ..] => "it is a GGUF file; save the weights as Safetensors",
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => {
            "it is an array of NumPy; save a dict of arrays as Safetensors"
        }
        // The number of a version, then any other field of the message.
        [0x08, 1..=0x20, 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42, ..] => {
            "it is an ONNX model; under a name that ends with `.onnx`, `kiln convert` and `ModelGen` compile it"
        }
        // A pickle begins with its protocol.
        [0x80, 0..=5, ..] => {
            "it is a pickle without PyTorch's frame around it, as `pickle.dump` writes; load it in Python and save its \
             tensors with `torch.save`"
        }
        _ if head.iter().all(|byte| *byte == 0) => {
            "it begins with zeros; perhaps the download was never finished, fetch it again"
        }
        _ => return None,
    };
    Some(what)
}

/// What a zip archive is that has no `data.pkl` in a folder of its own, from its entries' names.
pub(crate) fn identify_archive<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<&'static str> {
    let any = |is: &dyn Fn(&str) -> bool| names.clone().any(is);
    if any(&|name| name == "data.pkl") {
        Some(
            "its `data.pkl` is not in a folder, as `torch.save` has it: it was packed again, without its folder",
        )
    } else if any(&|name| name.ends_with("/archive_format") || name.ends_with("/models/model.json")) {
        Some(
            "it is an exported program (`torch.export.save`); save the weights alone: \
             `torch.save(torch.export.load(path).state_dict, \"weights.pt\")`",
        )
    } else if any(&|name| name.ends_with(".npy")) {
        Some(
            "it is an archive of NumPy's arrays; save them as Safetensors: `safetensors.numpy.save_file(dict(numpy.load(path)), …)`",
        )
    } else if any(&|name| name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".safetensors")) {
        Some("there are checkpoints inside of it; unpack it first")
    } else {
        None
    }
}
