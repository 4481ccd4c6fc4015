//! The compiler: what it makes of a kernel is a library for the host, behind its length.

use crate::{folder, give};
use cudarc::nvrtc::sys::nvrtcResult::{self, *};
use std::ffi::{CStr, c_char, c_int, c_void};

/// A kernel's source, and what became of it.
struct Program {
    source: String,
    image: Vec<u8>,
    log: Vec<u8>,
}

/// A library behind its length, as [`crate::driver`] loads it.
fn image(library: &[u8]) -> Vec<u8> {
    [&(library.len() as u64).to_ne_bytes(), library].concat()
}

/// The version.
///
/// # Safety
/// As NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> nvrtcResult {
    // SAFETY: both are numbers of the caller's.
    match unsafe { give(major, 13) && give(minor, 0) } {
        true => NVRTC_SUCCESS,
        false => NVRTC_ERROR_INVALID_INPUT,
    }
}

/// The compute capabilities that it knows: what the variable `KILN_CUDA_DRIVER_ARCHITECTURES` says (`80 86`), or all.
fn architectures() -> Vec<c_int> {
    match std::env::var("KILN_CUDA_DRIVER_ARCHITECTURES") {
        Ok(said) => said.split(' ').filter_map(|number| number.parse().ok()).collect(),
        Err(_) => vec![75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121],
    }
}

/// How many architectures it knows.
///
/// # Safety
/// As NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> nvrtcResult {
    // SAFETY: the number is the caller's.
    match unsafe { give(count, architectures().len() as c_int) } {
        true => NVRTC_SUCCESS,
        false => NVRTC_ERROR_INVALID_INPUT,
    }
}

/// Which.
///
/// # Safety
/// As NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetSupportedArchs(to: *mut c_int) -> nvrtcResult {
    let known = architectures();
    // SAFETY: the caller has room for as many as it was told.
    unsafe { std::ptr::copy_nonoverlapping(known.as_ptr(), to, known.len()) };
    NVRTC_SUCCESS
}

/// A program, without headers.
///
/// # Safety
/// As NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut *mut c_void,
    source: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _texts: *const *const c_char,
    _names: *const *const c_char,
) -> nvrtcResult {
    if source.is_null() || headers != 0 {
        return NVRTC_ERROR_INVALID_INPUT;
    }
    // SAFETY: the caller gives a text that ends with a zero.
    let source = unsafe { CStr::from_ptr(source) }.to_string_lossy().into_owned();
    let made = Box::new(Program { source, image: Vec::new(), log: vec![0] });
    // SAFETY: the pointer is the caller's to be written.
    match unsafe { give(program, Box::into_raw(made).cast()) } {
        true => NVRTC_SUCCESS,
        false => NVRTC_ERROR_INVALID_INPUT,
    }
}

/// Compiles it.
///
/// # Safety
/// As NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(
    program: *mut c_void,
    count: c_int,
    options: *const *const c_char,
) -> nvrtcResult {
    // SAFETY: the caller gives a program, and so many texts.
    let (program, options) = unsafe {
        let options = std::slice::from_raw_parts(options, count.max(0) as usize);
        let texts: Vec<_> = options.iter().map(|&text| CStr::from_ptr(text).to_string_lossy()).collect();
        (&mut *program.cast::<Program>(), texts)
    };
    let named = options.iter().filter_map(|option| option.strip_prefix("--gpu-architecture="));
    let named: Vec<c_int> = named
        .filter_map(|name| name.strip_prefix("sm_").or(name.strip_prefix("compute_"))?.parse().ok())
        .collect();
    if named.len() != 1
        || !architectures().contains(&named[0])
        || !options.iter().all(|option| option.starts_with("--"))
    {
        return NVRTC_ERROR_INVALID_OPTION;
    }
    match kiln_cuda_host::compile(&program.source, &folder()) {
        Ok(library) => {
            program.image = image(&library);
            NVRTC_SUCCESS
        }
        Err(said) => {
            program.log = [said.as_bytes(), &[0]].concat();
            NVRTC_ERROR_COMPILATION
        }
    }
}

macro_rules! read_parts {
    ($($size:ident $bytes:ident $part:ident;)*) => {
        $(
            /// The size of a part of what a compilation yields.
            ///
            /// # Safety
            /// As NVRTC's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $size(program: *mut c_void, size: *mut usize) -> nvrtcResult {
                // SAFETY: the caller gives a program and where the size goes.
                match unsafe { give(size, (*program.cast::<Program>()).$part.len()) } {
                    true => NVRTC_SUCCESS,
                    false => NVRTC_ERROR_INVALID_INPUT,
                }
            }

            /// The part, for which the caller has room.
            ///
            /// # Safety
            /// As NVRTC's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $bytes(program: *mut c_void, to: *mut c_char) -> nvrtcResult {
                // SAFETY: the caller gives a program and as much room as was told.
                unsafe {
                    let bytes = &(*program.cast::<Program>()).$part;
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len());
                }
                NVRTC_SUCCESS
            }
        )*
    };
}

read_parts! {
    nvrtcGetProgramLogSize nvrtcGetProgramLog log;
    nvrtcGetCUBINSize nvrtcGetCUBIN image;
    nvrtcGetPTXSize nvrtcGetPTX image;
}

/// Gives a program back.
///
/// # Safety
/// As NVRTC's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut c_void) -> nvrtcResult {
    // SAFETY: the caller gives what `nvrtcCreateProgram` made, once.
    unsafe {
        drop(Box::from_raw((*program).cast::<Program>()));
        *program = std::ptr::null_mut();
    }
    NVRTC_SUCCESS
}
