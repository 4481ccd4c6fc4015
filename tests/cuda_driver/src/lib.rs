//! What `kiln-cuda` asks of CUDA's driver, of NVRTC, of cuBLASLt, of cuDNN and of NCCL, done on the host: one library that stands in for them where there is no
//! GPU, so that the code that calls them runs in tests. `scripts/cuda_driver.sh` puts it under their names.
//!
//! It is as strict as the documents of NVIDIA's libraries are: a stream's work is done when it is waited for and not before, memory must be
//! there when work is done with it, calls need a current context, and what cannot be captured is refused while a stream is.

mod blas;
mod dnn;
mod driver;
mod nccl;
mod nvrtc;

use std::path::PathBuf;
use std::sync::OnceLock;

/// The variable that names the folder of compiled kernels, which others may share.
const FOLDER: &str = "KILN_HOST_KERNELS";

/// Where files stand that a compiler and a loader need.
fn folder() -> PathBuf {
    static OWN: OnceLock<tempfile::TempDir> = OnceLock::new();
    match std::env::var_os(FOLDER) {
        Some(folder) => folder.into(),
        None => OWN.get_or_init(|| tempfile::tempdir().expect("a folder")).path().to_owned(),
    }
}

/// Writes where a pointer of C's says.
///
/// # Safety
/// It is null, or may be written to.
unsafe fn give<T>(to: *mut T, value: T) -> bool {
    if to.is_null() {
        return false;
    }
    // SAFETY: the caller says so.
    unsafe { to.write(value) };
    true
}
