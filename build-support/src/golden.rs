//! Golden data: ONNX's test layout read, and turned into a test of the generated source.

use crate::cargo::checked;
use crate::compile::Port;
use crate::{BuildError, CompileOptions, Compiled};
use kiln_importer::ir::BoundInput;
#[cfg(feature = "cli")]
use kiln_importer::ir::Graph;
use kiln_importer::onnx::{GoldenTensor, SourceFile, read_output, read_tensor};
use kiln_record::{RecordError, map_file};
use kiln_types::TensorData;
#[cfg(feature = "cli")]
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One `test_data_set_*` folder.
#[derive(Clone, Debug)]
pub struct DataSet {
    /// The folder's name.
    pub name: String,
    /// Graph inputs in order.
    pub inputs: Vec<TensorData>,
    /// Expected outputs in order.
    pub outputs: Vec<TensorData>,
}

/// `golden/model` when it exists, else `golden` itself.
pub(crate) fn folder_of(golden: &Path, model: &Path) -> PathBuf {
    let own = golden.join(model.file_stem().unwrap_or_default());
    if own.is_dir() { own } else { golden.to_owned() }
}

/// The `test_data_set_*` folders of a case directory, in order of their numbers.
pub fn data_set_dirs(case: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(case).map_err(BuildError::io(case))? {
        let path = entry.map_err(BuildError::io(case))?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if let Some(number) = name.strip_prefix("test_data_set_")
            && path.is_dir()
        {
            found.push((number.parse::<u64>().unwrap_or(u64::MAX), path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Reads a data set for a model. Tensors carry names where the file has them, and are put in the graph's order by these.
pub fn read_data_set(dir: &Path, model: &Compiled) -> Result<DataSet, BuildError> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let inputs = read_tensors(dir, "input", &model.inputs, model)?;
    let outputs = read_tensors(dir, "output", &model.outputs, model)?;
    Ok(DataSet { name, inputs, outputs })
}

/// `prefix_0.pb`, `prefix_1.pb`, … until one is missing.
fn tensor_files(dir: &Path, prefix: &str) -> impl Iterator<Item = PathBuf> {
    (0..).map(move |n| dir.join(format!("{prefix}_{n}.pb"))).take_while(|path| path.exists())
}

/// Reads the tensors of [`tensor_files`]. A file may hold the items of a sequence.
fn read_tensors(
    dir: &Path,
    prefix: &str,
    ports: &[Port],
    model: &Compiled,
) -> Result<Vec<TensorData>, BuildError> {
    let mut tensors: Vec<GoldenTensor> = Vec::new();
    for path in tensor_files(dir, prefix) {
        let bytes = map_file(&path).map_err(|error| match error {
            RecordError::Io { source, .. } => BuildError::Io { path: path.clone(), source },
            other => BuildError::Golden { path: path.clone(), reason: other.to_string() },
        })?;
        let read = match prefix {
            "output" => read_output(&bytes, tensors.len(), &model.strings, &model.output_sequences),
            _ => read_tensor(&bytes, &model.strings).map(|tensor| vec![tensor]),
        };
        tensors.extend(read.map_err(|error| BuildError::Golden { path, reason: error.to_string() })?);
    }
    if prefix == "input" && tensors.len() == ports.len() + model.bound_inputs.len() {
        leave_out(dir, &mut tensors, &model.bound_inputs)?;
    }
    if tensors.len() != ports.len() {
        let reason = format!(
            "the model has {} {prefix}s ({}), the folder's files `{prefix}_*.pb` have {}",
            ports.len(),
            ports.iter().map(|port| port.name.escape_debug().to_string()).collect::<Vec<_>>().join(", "),
            tensors.len()
        );
        return Err(BuildError::Golden { path: dir.to_owned(), reason });
    }
    // The position counts unless every tensor bears the name of exactly one input.
    let by_name: Option<Vec<usize>> =
        ports.iter().map(|port| tensors.iter().position(|tensor| tensor.name == port.name)).collect();
    let order = match by_name {
        Some(order) if (0..tensors.len()).all(|i| order.contains(&i)) => order,
        _ => (0..tensors.len()).collect(),
    };
    Ok(order.into_iter().map(|i| tensors[i].data.clone()).collect())
}

/// Leaves out tensors for inputs that were bound, which must have been to the same.
fn leave_out(
    dir: &Path,
    tensors: &mut Vec<GoldenTensor>,
    bound_inputs: &[BoundInput],
) -> Result<(), BuildError> {
    // From the last one on, so that positions stay right.
    for bound in bound_inputs.iter().rev() {
        let named = tensors.iter().position(|tensor| tensor.name == bound.name);
        let position = named.unwrap_or(bound.position);
        let found = (position < tensors.len()).then(|| tensors.remove(position));
        if found.is_none_or(|found| found.data != bound.data) {
            let reason = format!("input `{}` is not what it is bound to", bound.name.escape_debug());
            return Err(BuildError::Golden { path: dir.to_owned(), reason });
        }
    }
    Ok(())
}

/// The sizes that the symbolic dims of a model's inputs have in a data set. What cannot be read has none.
#[cfg(feature = "cli")]
pub(crate) fn sizes_in(dir: &Path, graph: &Graph) -> BTreeMap<String, usize> {
    let tensors = graph.inputs.iter().enumerate().filter_map(|(n, &input)| {
        let bytes = map_file(&dir.join(format!("input_{n}.pb"))).ok()?;
        Some((input, read_tensor(&bytes, &graph.strings).ok()?.data))
    });
    let sizes = tensors.flat_map(|(input, data)| {
        let dims = graph.ty(input).dims.iter().zip(data.shape);
        dims.filter_map(|(dim, size)| Some((dim.as_symbol()?.to_string(), size))).collect::<Vec<_>>()
    });
    sizes.collect()
}

/// Adds a test for every data set below `golden` to the compiled model: the data become Safetensors files beside the
/// record, which the tests read with the runtime.
pub(crate) fn attach(
    compiled: &mut Compiled,
    golden: &Path,
    options: &CompileOptions,
) -> Result<(), BuildError> {
    if !golden.is_dir() {
        let reason = "there is no such folder".to_owned();
        return Err(BuildError::Golden { path: golden.to_owned(), reason });
    }
    if options.no_std && !options.embed_states && !options.standalone {
        let reason = "its tests load the model's record, which source without the standard library reads from no \
                      file: embed it (`ModelGen::embed_states`)";
        return Err(BuildError::Golden { path: golden.to_owned(), reason: reason.to_owned() });
    }
    let dirs = data_set_dirs(golden)?;
    if dirs.is_empty() {
        let reason = "no folder `test_data_set_*` in it".to_owned();
        return Err(BuildError::Golden { path: golden.to_owned(), reason });
    }
    let mut sets = Vec::new();
    for dir in dirs {
        // The folder tells when files come and go, each file when it changes.
        compiled.sources.extend(SourceFile::now(&dir));
        checked(&dir)?;
        let files = ["input", "output"].into_iter().flat_map(|prefix| tensor_files(&dir, prefix));
        compiled.sources.extend(files.filter_map(|file| SourceFile::now(&file)));
        let set = read_data_set(&dir, compiled)?;
        for (prefix, tensors, ports) in
            [("input", &set.inputs, &compiled.inputs), ("output", &set.outputs, &compiled.outputs)]
        {
            tensors.iter().zip(ports).try_for_each(|(data, port)| check(&dir, prefix, data, port))?;
        }
        sets.push(set);
    }
    compiled.attach_golden(sets, options)
}

/// Tensors must be of the dtypes that the model has: the runner could not even pass others to it.
#[cfg(feature = "cli")]
pub(crate) fn check_dtypes(case: &Path, set: &DataSet, model: &Compiled) -> Result<(), BuildError> {
    let dir = case.join(&set.name);
    let inputs = set.inputs.iter().zip(&model.inputs).map(|(data, port)| ("input", data, port));
    let outputs = set.outputs.iter().zip(&model.outputs).map(|(data, port)| ("output", data, port));
    match inputs.chain(outputs).find(|(_, data, port)| data.dtype != port.dtype) {
        Some((prefix, data, port)) => Err(misfit(&dir, prefix, data, port)),
        None => Ok(()),
    }
}

/// A tensor must be what the model says of its port: a test that cannot pass is better refused now.
fn check(dir: &Path, prefix: &str, data: &TensorData, port: &Port) -> Result<(), BuildError> {
    if data.dtype == port.dtype && port.has(&data.shape) {
        return Ok(());
    }
    Err(misfit(dir, prefix, data, port))
}

fn misfit(dir: &Path, prefix: &str, data: &TensorData, port: &Port) -> BuildError {
    let wanted: Vec<String> = port
        .sizes
        .iter()
        .map(|size| size.map_or_else(|| "any".to_owned(), |size| size.to_string()))
        .collect();
    let shape: Vec<String> = data.shape.iter().map(usize::to_string).collect();
    let reason = format!(
        "{prefix} `{}` is {}[{}], the model has {}[{}]",
        port.name.escape_debug(),
        data.dtype,
        shape.join(", "),
        port.dtype,
        wanted.join(", ")
    );
    BuildError::Golden { path: dir.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_file_is_noticed() {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/if_nested");
        let golden = tempfile::tempdir().expect("a folder");
        let dir = golden.path().join("test_data_set_0");
        fs::create_dir(&dir).expect("a folder");
        let mut files = Vec::new();
        for file in fs::read_dir(case.join("test_data_set_0")).expect("a data set") {
            let file = file.expect("a file");
            files.push(dir.join(file.file_name()));
            fs::copy(file.path(), dir.join(file.file_name())).expect("a copy");
        }
        // That of an input that is bound, too: it must be what that is bound to.
        let mut options = CompileOptions::default();
        options.bind_inputs.insert("rate".to_owned(), vec![kiln_types::Scalar::Int(1)]);
        let mut compiled = crate::compile::compile(&case.join("model.onnx"), &options).expect("source");
        attach(&mut compiled, golden.path(), &options).expect("a test");
        for file in files {
            assert!(compiled.sources.iter().any(|source| source.path == file), "{file:?}");
        }
    }

    /// A link to a device has no end.
    #[cfg(unix)]
    #[test]
    fn data_are_files() {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/op_conv_2d");
        let compiled = crate::compile::compile(&case.join("model.onnx"), &CompileOptions::default());
        let dir = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("input_0.pb")).expect("a link");
        let error = read_data_set(dir.path(), &compiled.expect("source")).expect_err("no data");
        assert!(error.to_string().contains("it is not a file"), "{error}");
    }
}
