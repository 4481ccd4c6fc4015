//! Candle and Kiln read the same tensors from the same checkpoints.
//!
//! `candle-compat FOLDER` reads every `.pt`, `.bin` and `.safetensors` below a folder with both. What candle can read, Kiln
//! must read with the same dtype, shape and elements, or refuse for a reason (which is printed); what Kiln reads beyond
//! that is counted. Each file is read in
//! a process of its own, since some are made to exhaust a reader.

use candle_core::{DType, Device, Tensor, pickle::PthTensors};
use kiln_types::TensorData;
use kiln_weights::Checkpoint;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Where candle is known to read something else, and why.
const KNOWN: &[(&str, &str)] =
    &[("big_endian.pt", "candle takes elements for little-endian, whatever the archive says; PyTorch reads as Kiln does")];

/// What candle makes of a file: each tensor, or why it has none.
type Read = BTreeMap<String, Result<Tensor, candle_core::Error>>;

fn read_with_candle(path: &Path) -> Result<Read, Box<dyn Error>> {
    if path.extension().is_some_and(|extension| extension == "safetensors") {
        let tensors = candle_core::safetensors::load(path, &Device::Cpu)?;
        return Ok(tensors.into_iter().map(|(key, tensor)| (key, Ok(tensor))).collect());
    }
    let file = PthTensors::new(path, None)?;
    let mut read = Read::new();
    for key in file.tensor_infos().keys() {
        if let Some(tensor) = file.get(key).transpose() {
            read.insert(key.clone(), tensor);
        }
    }
    Ok(read)
}

/// What differs between a tensor as candle and as Kiln has it. Candle widens dtypes that it does not have.
fn difference(theirs: &Tensor, ours: &TensorData) -> Result<Option<String>, Box<dyn Error>> {
    if theirs.dims() != ours.shape.as_slice() {
        return Ok(Some(format!("candle has {:?}, Kiln {:?}", theirs.dims(), ours.shape)));
    }
    let name = format!("{:?}", theirs.dtype()).to_lowercase();
    let widened = matches!((theirs.dtype(), ours.dtype.name()), (DType::U8, "bool") | (DType::U32, "u16"));
    if name != ours.dtype.name() && !widened {
        return Ok(Some(format!("candle has {name}, Kiln {}", ours.dtype)));
    }
    let flat = theirs.flatten_all()?;
    let same = if theirs.dtype().is_float() {
        let bits = |value: f64| if value.is_nan() { u64::MAX } else { value.to_bits() };
        flat.to_dtype(DType::F64)?.to_vec1::<f64>()?.into_iter().map(bits).eq(ours.iter::<f64>().map(bits))
    } else {
        flat.to_dtype(DType::I64)?.to_vec1::<i64>()?.into_iter().eq(ours.iter::<i64>())
    };
    Ok((!same).then(|| "the elements differ".to_owned()))
}

/// Compares one file; yields what was found in one line.
fn compare(path: &Path) -> Result<String, Box<dyn Error>> {
    let ours = Checkpoint::open(path);
    // From here on, what goes wrong is candle's.
    println!("opened");
    let theirs = match (read_with_candle(path), &ours) {
        (Ok(theirs), _) => theirs,
        (Err(_), Ok(_)) => return Ok("kiln-alone".to_owned()),
        (Err(_), Err(_)) => return Ok("neither".to_owned()),
    };
    let readable: Vec<_> = theirs.iter().filter_map(|(key, tensor)| Some((key, tensor.as_ref().ok()?))).collect();
    let ours = match ours {
        Ok(ours) => ours,
        Err(_) if readable.is_empty() => return Ok("neither".to_owned()),
        Err(error) => return Ok(format!("candle-alone: {error}")),
    };
    let mut equal = 0;
    for (key, tensor) in readable {
        let found = match ours.data(key) {
            Ok(data) => difference(tensor, &data)?,
            Err(error) => Some(error.to_string()),
        };
        if let Some(difference) = found {
            let difference = difference.lines().next().unwrap_or_default();
            return Ok(format!("different: {key}: {difference}"));
        }
        equal += 1;
    }
    Ok(if equal == 0 && ours.tensors().len() > 0 { "kiln-alone".to_owned() } else { format!("equal: {equal}") })
}

/// The checkpoints below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.to_string_lossy().into_owned();
        let checkpoint = [".pt", ".bin", ".safetensors"].iter().any(|ending| name.ends_with(ending));
        if path.is_dir() {
            files(&path, found)?;
        } else if checkpoint && !name.ends_with(".expected.safetensors") {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

fn run(folder: &Path) -> Result<bool, Box<dyn Error>> {
    let mut found = Vec::new();
    files(folder, &mut found)?;
    let (mut counts, mut tensors, mut good) = (BTreeMap::<String, usize>::new(), 0, true);
    for path in found {
        let output = Command::new(std::env::current_exe()?).arg("--one").arg(&path).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Candle may panic or run out of memory on what is made to harm; Kiln may not.
        let line = match text.strip_prefix("opened\n") {
            Some(line) if output.status.success() => line.trim(),
            Some(_) => "candle-crashed",
            None => "kiln-crashed",
        };
        let known = KNOWN.iter().find(|(name, _)| path.ends_with(name));
        let line = if line.starts_with("different") && known.is_some() { "known-difference" } else { line };
        let (outcome, about) = line.split_once(": ").unwrap_or((line, ""));
        *counts.entry(outcome.to_owned()).or_default() += 1;
        tensors += about.parse::<usize>().unwrap_or(0);
        if matches!(outcome, "different" | "kiln-crashed" | "candle-alone") {
            println!("{}: {line}", path.display());
            // What Kiln refuses is what its own tests expect to be refused.
            good &= outcome == "candle-alone";
        }
    }
    println!("{counts:?}; {tensors} tensors are equal");
    Ok(good)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [flag, path] if flag == "--one" => compare(Path::new(path)).map(|line| {
            println!("{line}");
            true
        }),
        [folder] => run(Path::new(folder)),
        _ => Err("usage: candle-compat FOLDER".into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
