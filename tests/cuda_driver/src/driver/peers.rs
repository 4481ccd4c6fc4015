//! Devices that access each other's memory ("Peer Context Memory Access" of the driver's reference).

use super::{CURRENT, DEVICES, Work, code, given, has_pools, known, ready, state};
use cudarc::driver::sys::{self, CUresult, CUresult::*};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many copies from device to device went by way of the host, as the other's memory could not be accessed.
static STAGED: AtomicU64 = AtomicU64::new(0);

/// Tells tests how many did.
#[unsafe(no_mangle)]
extern "C" fn kiln_cuda_staged_copies() -> u64 {
    STAGED.load(Ordering::Relaxed)
}

/// All devices reach each other.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceCanAccessPeer(
    can: *mut c_int,
    device: sys::CUdevice,
    peer: sys::CUdevice,
) -> CUresult {
    let made = known(device).and(known(peer)).and(match device == peer {
        true => Err(CUDA_ERROR_INVALID_DEVICE),
        false => Ok(1),
    });
    // SAFETY: as the reference says.
    unsafe { given(can, made) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxEnablePeerAccess(context: sys::CUcontext, flags: c_uint) -> CUresult {
    let mut state = state();
    let device_of =
        |context: u64| (0..DEVICES).find(|&device| context != 0 && state.primary(device) == context);
    match (device_of(context as u64), device_of(CURRENT.get())) {
        (Some(of), Some(with)) if of != with && flags == 0 => match state.shared.insert((of, with)) {
            true => CUDA_SUCCESS,
            false => CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
        },
        _ => CUDA_ERROR_INVALID_CONTEXT,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAccess(
    pool: sys::CUmemoryPool,
    access: *const sys::CUmemAccessDesc,
    count: usize,
) -> CUresult {
    if pool.is_null() || access.is_null() || count != 1 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: as the reference says, there is one.
    let sys::CUmemAccessDesc { location, flags } = unsafe { access.read() };
    let is_device = location.type_ == sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let is_whole = flags == sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if !is_device || !is_whole {
        return CUDA_ERROR_INVALID_VALUE;
    }
    code(known(location.id).map(|()| {
        state().shared.insert((pool as c_int - 1, location.id));
    }))
}

/// Whether a device may read and write what another's pool gives.
pub(crate) fn is_shared(of: c_int, with: c_int) -> bool {
    of == with || !has_pools() || state().shared.contains(&(of, with))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyPeerAsync(
    to: sys::CUdeviceptr,
    to_context: sys::CUcontext,
    from: sys::CUdeviceptr,
    from_context: sys::CUcontext,
    bytes: usize,
    stream: sys::CUstream,
) -> CUresult {
    code(ready().and_then(|mut state| {
        let device_of =
            |context: sys::CUcontext| (0..DEVICES).find(|&device| state.primary(device) == context as u64);
        let (Some(with), Some(of)) = (device_of(to_context), device_of(from_context)) else {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        };
        STAGED.fetch_add(u64::from(!state.shared.contains(&(of, with))), Ordering::Relaxed);
        state.ask(stream, Work::Between { to, from, bytes })
    }))
}
