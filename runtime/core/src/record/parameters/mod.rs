//! Records by parameter path: safetensors, memory-mapped; and records with names, without the module's record type.

mod check;
mod mismatch;
mod source;
mod walk;

pub use check::RecordCheck;
#[cfg(feature = "weights")]
pub(crate) use mismatch::nearest;
#[cfg(feature = "weights")]
pub(crate) use mismatch::{COMPARED, LONGEST_COMPARED, SHOWN, write_rest};
pub use mismatch::{MissingParameter, ParameterMismatch, WrongParameter};

use super::RecorderError;
use crate::module::Module;
use crate::tensor::backend::Backend;
use alloc::{collections::BTreeMap, vec::Vec};
use kiln_record::safetensors::{self, Safetensors, TensorToWrite};
use kiln_record::{Format, NamedRecord};
use kiln_types::Bytes;
use source::Parameters;
use walk::{Collector, Loader};

/// The bytes of a record as part of the program, aligned so that weights can be used where they lie.
///
/// The path is relative to the file that uses the macro, as in [`include_bytes!`].
///
/// ```ignore
/// let model = kiln::record::load_safetensors_bytes(model, kiln::include_record!("model.safetensors"), &device)?;
/// ```
#[macro_export]
macro_rules! include_record {
    ($path:expr) => {{
        #[repr(C, align(64))]
        struct Aligned<T: ?Sized>(T);
        static RECORD: &Aligned<[u8]> = &Aligned(*include_bytes!($path));
        let bytes: &'static [u8] = &RECORD.0;
        bytes
    }};
}

/// Loads the parameters of a module from a file, by path. The file is mapped: the weights are not copied where the
/// device can use them as they lie. It must not be changed in place while the module lives, which would compute with other
/// weights, or end the program when the file gets shorter; a file that is renamed to its place leaves the module its own.
///
/// Parameters get the ids that the file tells, so that an optimizer's record fits; one that another program wrote, or the compiler,
/// tells none, and the module's own stay. As with every record, modules that are loaded from one file have the same ids: as parts of one
/// module they would learn as tied ones.
///
/// The extension `safetensors` may be left out.
///
/// # Errors
/// [`RecorderError::Parameters`] names every parameter that is missing, left over, or of another shape or kind.
#[cfg(feature = "std")]
pub fn load_safetensors<B: Backend, M: Module<B>, P: AsRef<std::path::Path>>(
    module: M,
    path: P,
    device: &B::Device,
) -> Result<M, RecorderError> {
    let path = find(path.as_ref(), "safetensors");
    let file = Safetensors::open(&path)?;
    load_from(module, &file, &std::format!("{}", path.display()), device)
}

/// Loads the parameters of a module from bytes that are part of the program; see [`include_record!`](crate::include_record).
///
/// # Errors
/// As `load_safetensors`.
pub fn load_safetensors_bytes<B: Backend, M: Module<B>>(
    module: M,
    bytes: &'static [u8],
    device: &B::Device,
) -> Result<M, RecorderError> {
    let file = Safetensors::read(Bytes::from_owner(bytes))?;
    load_from(module, &file, "the embedded record", device)
}

/// Loads the parameters of a module from an open file; `source` names it in errors.
///
/// Float tensors stored in a narrower dtype get back the one that they had. In a file that others wrote, or that Kiln made
/// of a checkpoint, floats and integers get the backend's own.
///
/// # Errors
/// As `load_safetensors`.
pub fn load_parameters<B: Backend, M: Module<B>>(
    module: M,
    file: &Safetensors,
    source: &str,
    device: &B::Device,
) -> Result<M, RecorderError> {
    load_from(module, file, source, device)
}

/// Loads the parameters of a module from a record that a recorder or Burn wrote, in a format with names, by path.
///
/// It does what the format's recorder and `load_record` do, without compiling the module's record type, and says which
/// parameters do not fit. The extension may be left out.
///
/// # Errors
/// As `load_safetensors`; and for formats without names.
#[cfg(feature = "std")]
pub fn load_named<B: Backend, M: Module<B>, P: AsRef<std::path::Path>>(
    module: M,
    path: P,
    format: Format,
    device: &B::Device,
) -> Result<M, RecorderError> {
    let path = find(path.as_ref(), format.extension());
    let record = NamedRecord::read(format, &kiln_record::map_file(&path)?)
        .map_err(|error| RecorderError::in_file(error, &path))?;
    load_from(module, &record, &std::format!("{}", path.display()), device)
}

/// Loads the parameters of a module from the bytes of a record; see `load_named`.
///
/// # Errors
/// As `load_named`.
pub fn load_named_bytes<B: Backend, M: Module<B>>(
    module: M,
    bytes: &[u8],
    format: Format,
    device: &B::Device,
) -> Result<M, RecorderError> {
    load_from(module, &NamedRecord::read(format, bytes)?, "the record", device)
}

fn load_from<B: Backend, M: Module<B>>(
    module: M,
    stored: &dyn Parameters,
    source: &str,
    device: &B::Device,
) -> Result<M, RecorderError> {
    let mut loader = Loader::new(stored, device);
    let module = module.map(&mut loader);
    loader.finish(source)?;
    Ok(module)
}

/// The file at a path, or at the path with an extension if there is none there.
#[cfg(feature = "std")]
fn find(path: &std::path::Path, extension: &str) -> std::path::PathBuf {
    if path.exists() {
        path.to_path_buf()
    } else {
        super::file::with_extension(path.to_path_buf(), extension)
    }
}

/// Saves the parameters of a module to a file, by path, in their own dtypes and with their ids, by which an optimizer's record knows
/// them. A file that is there is replaced.
#[cfg(feature = "std")]
pub fn save_safetensors<B: Backend, M: Module<B>, P: AsRef<std::path::Path>>(
    module: &M,
    path: P,
) -> Result<(), RecorderError> {
    Ok(safetensors::save(path.as_ref(), &collect(module), &BTreeMap::new())?)
}

/// Saves the parameters of a module to memory, by path, in their own dtypes and with their ids.
pub fn save_safetensors_bytes<B: Backend, M: Module<B>>(module: &M) -> Result<Vec<u8>, RecorderError> {
    Ok(safetensors::to_vec(&collect(module), &BTreeMap::new())?)
}

/// The parameters of a module with their paths.
fn collect<B: Backend, M: Module<B>>(module: &M) -> Vec<TensorToWrite> {
    let mut collector = Collector::default();
    module.visit(&mut collector);
    collector.tensors
}
