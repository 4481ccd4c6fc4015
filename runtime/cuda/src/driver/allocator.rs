//! Where a device's memory comes from.

use super::nvidia::failed;
use super::{Address, DriverError};
use cudarc::driver::result::{self, device, mem_pool, stream};
use cudarc::driver::sys;
use std::ffi::c_void;

/// Bytes that the driver keeps of what it is given back: the pool of Kiln decides what goes back to the system.
const KEPT_BYTES: u64 = 256 << 20;

/// Whether a device can access another's memory.
fn can_access(of: sys::CUdevice, with: sys::CUdevice) -> Result<bool, DriverError> {
    let mut can = 0;
    // SAFETY: both devices are valid, and there is room for a number.
    let asked = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, with, of) };
    asked.result().map_err(failed("cuDeviceCanAccessPeer"))?;
    Ok(can != 0)
}

/// What gives a device's memory, and takes it back.
#[derive(Debug, Clone, Copy)]
pub(super) enum Allocator {
    /// The device's pool, in the order of a stream ("Stream-Ordered Memory Allocator" of the programming guide).
    StreamOrdered(sys::CUmemoryPool),
    /// The driver at once, where a device has no pools, as shares of GPUs without unified memory.
    Immediate,
}

impl Allocator {
    /// That of a device, whose context is current.
    pub fn of(device: sys::CUdevice) -> Result<Self, DriverError> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        // SAFETY: the caller's device is valid.
        let has_pools = unsafe { device::get_attribute(device, attribute) };
        if has_pools.map_err(failed("cuDeviceGetAttribute"))? == 0 {
            return Ok(Self::Immediate);
        }
        let mut kept = KEPT_BYTES;
        // SAFETY: the device is valid, and so is its pool; the attribute is a number of 64 bits.
        unsafe {
            let pool = device::get_default_mem_pool(device).map_err(failed("cuDeviceGetDefaultMemPool"))?;
            let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            mem_pool::set_attribute(pool, threshold, (&raw mut kept).cast::<c_void>())
                .map_err(failed("cuMemPoolSetAttribute"))?;
            Ok(Self::StreamOrdered(pool))
        }
    }

    /// Lets another device read and write what is [allocated](Self::allocate), where it can: what a pool gives is its own device's alone ("Physical Page Caching
    /// and Peer Access" there), and libraries that move numbers between devices reach into the memory of both.
    pub fn share(self, of: sys::CUdevice, with: sys::CUdevice) -> Result<(), DriverError> {
        let Self::StreamOrdered(pool) = self else { return Ok(()) };
        if !can_access(of, with)? {
            return Ok(());
        }
        let access = sys::CUmemAccessDesc {
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: with,
            },
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the pool is the device's, and there as long as it is; there is one description.
        let shared = unsafe { sys::cuMemPoolSetAccess(pool, &raw const access, 1) };
        shared.result().map_err(failed("cuMemPoolSetAccess"))
    }

    /// Lets the device whose context is current read what another [allocated](Self::allocate) in its context, where it can: copies from it need not go by way
    /// of the host then.
    ///
    /// # Safety
    /// The other's context is valid.
    pub unsafe fn open(
        self,
        (of, context): (sys::CUdevice, sys::CUcontext),
        to: sys::CUdevice,
    ) -> Result<(), DriverError> {
        if let Self::StreamOrdered(_) = self {
            return self.share(of, to);
        }
        if !can_access(of, to)? {
            return Ok(());
        }
        // SAFETY: the caller says so.
        match unsafe { sys::cuCtxEnablePeerAccess(context, 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            enabled => enabled.result().map_err(failed("cuCtxEnablePeerAccess")),
        }
    }

    /// Memory of so many bytes for what is asked of a stream from here on.
    ///
    /// # Safety
    /// The stream is valid, and writes nothing down; its context is current.
    pub unsafe fn allocate(self, stream: sys::CUstream, bytes: usize) -> Result<Address, DriverError> {
        let made = match self {
            Self::StreamOrdered(_) => {
                // SAFETY: the caller says so.
                unsafe { result::malloc_async(stream, bytes) }.map_err(failed("cuMemAllocAsync"))
            }
            Self::Immediate => {
                // SAFETY: as above.
                unsafe { result::malloc_sync(bytes) }.map_err(failed("cuMemAlloc"))
            }
        };
        made.map(Address)
    }

    /// Gives memory back once what was asked of the stream so far is done with it.
    ///
    /// # Safety
    /// The stream is valid, and writes nothing down; its context is current. The memory is one that `allocate` gave, is given back once, and
    /// nothing but what was asked of the stream so far uses it.
    pub unsafe fn free(self, address: Address, stream: sys::CUstream) -> Result<(), DriverError> {
        match self {
            Self::StreamOrdered(_) => {
                // SAFETY: the caller says so.
                unsafe { result::free_async(address.0, stream) }.map_err(failed("cuMemFreeAsync"))
            }
            Self::Immediate => {
                // SAFETY: as above; once the stream is done, nothing uses the memory.
                unsafe {
                    stream::synchronize(stream).map_err(failed("cuStreamSynchronize"))?;
                    result::free_sync(address.0).map_err(failed("cuMemFree"))
                }
            }
        }
    }

    /// Has the driver give what it keeps back to the system.
    pub fn trim(self) -> Result<(), DriverError> {
        match self {
            Self::StreamOrdered(pool) => {
                // SAFETY: the pool is the device's, and there as long as it is.
                unsafe { mem_pool::trim_to(pool, 0) }.map_err(failed("cuMemPoolTrimTo"))
            }
            Self::Immediate => Ok(()),
        }
    }
}
