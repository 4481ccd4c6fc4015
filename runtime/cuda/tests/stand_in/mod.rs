//! Whether libraries are NVIDIA's, or what stands in for them (`tests/cuda_driver`), which tells of itself.

/// A number that the library in place of NVIDIA's tells of itself; nothing where it is NVIDIA's.
pub fn told(library: &str, name: &[u8]) -> Option<u64> {
    // SAFETY: the library is loaded already, and the function takes nothing.
    unsafe {
        let library = libloading::Library::new(library).ok()?;
        let function = library.get::<unsafe extern "C" fn() -> u64>(name).ok()?;
        Some(function())
    }
}

/// Whether all of CUDA is what stands in for it.
pub fn is_there() -> bool {
    told("libcuda.so", b"kiln_cuda_waits\0").is_some()
}
