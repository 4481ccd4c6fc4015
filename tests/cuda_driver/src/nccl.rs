//! Sums over devices ("NCCL User Guide", chapters "Creating a Communicator", "Group Calls" and "Collective Operations"): calls of a group are done
//! when it ends, and each of them on all devices together.

use crate::{driver, give};
use cudarc::nccl::sys::ncclResult_t::{self, *};
use cudarc::nccl::sys::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclRedOp_t};
use half::{bf16, f16};
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many devices there are.
const DEVICES: c_int = 2;

/// How many sums were asked for.
static SUMS: AtomicU64 = AtomicU64::new(0);
/// How many communicators there are.
static COMMUNICATORS: AtomicU64 = AtomicU64::new(0);
/// Names what was made together.
static CLIQUES: AtomicU64 = AtomicU64::new(0);

struct Communicator {
    clique: u64,
    rank: usize,
    ranks: usize,
    device: c_int,
}

/// A rank's part of a sum.
#[derive(Clone, Copy)]
struct Part {
    clique: u64,
    rank: usize,
    ranks: usize,
    device: c_int,
    from: u64,
    to: u64,
    count: usize,
    kind: ncclDataType_t,
    stream: u64,
}

/// A sum, with all its parts.
struct Sum(Vec<Part>);

fn bytes(kind: ncclDataType_t) -> Option<usize> {
    Some(match kind {
        ncclDataType_t::ncclInt8 | ncclDataType_t::ncclUint8 => 1,
        ncclDataType_t::ncclFloat16 | ncclDataType_t::ncclBfloat16 => 2,
        ncclDataType_t::ncclInt32 | ncclDataType_t::ncclUint32 | ncclDataType_t::ncclFloat32 => 4,
        ncclDataType_t::ncclInt64 | ncclDataType_t::ncclUint64 | ncclDataType_t::ncclFloat64 => 8,
        _ => return None,
    })
}

impl Sum {
    /// Adds numbers of a type up in the order of the ranks.
    ///
    /// # Safety
    /// The parts have so many numbers of it.
    unsafe fn of<T: Copy>(&self, add: impl Fn(T, T) -> T) {
        for at in 0..self.0[0].count {
            // SAFETY: the caller says so.
            unsafe {
                let all = self.0.iter().map(|part| (part.from as *const T).add(at).read());
                let Some(sum) = all.reduce(&add) else { return };
                self.0.iter().for_each(|part| (part.to as *mut T).add(at).write(sum));
            }
        }
    }
}

impl driver::Call for Sum {
    fn reach(&self) -> Vec<(u64, usize)> {
        let of = |part: &Part| {
            let bytes = part.count * bytes(part.kind).unwrap_or(0);
            [(part.from, bytes), (part.to, bytes)]
        };
        self.0.iter().flat_map(of).collect()
    }

    unsafe fn compute(&self) {
        // SAFETY: the caller says so.
        unsafe {
            match self.0[0].kind {
                ncclDataType_t::ncclFloat32 => self.of(|a: f32, b| a + b),
                ncclDataType_t::ncclFloat64 => self.of(|a: f64, b| a + b),
                ncclDataType_t::ncclFloat16 => self.of(|a: f16, b| f16::from_f32(a.to_f32() + b.to_f32())),
                ncclDataType_t::ncclBfloat16 => self.of(|a: bf16, b| bf16::from_f32(a.to_f32() + b.to_f32())),
                ncclDataType_t::ncclInt8 | ncclDataType_t::ncclUint8 => self.of(u8::wrapping_add),
                ncclDataType_t::ncclInt32 | ncclDataType_t::ncclUint32 => self.of(u32::wrapping_add),
                ncclDataType_t::ncclInt64 | ncclDataType_t::ncclUint64 => self.of(u64::wrapping_add),
                _ => {}
            }
        }
    }
}

/// Calls of this thread's group; nothing outside of one.
type Group = Option<Vec<Part>>;

thread_local! {
    static GROUP: RefCell<Group> = const { RefCell::new(None) };
}

#[unsafe(no_mangle)]
extern "C" fn kiln_cuda_sums() -> u64 {
    SUMS.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn kiln_cuda_communicators() -> u64 {
    COMMUNICATORS.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitAll(
    communicators: *mut ncclComm_t,
    count: c_int,
    devices: *const c_int,
) -> ncclResult_t {
    let Ok(ranks) = usize::try_from(count) else { return ncclInvalidArgument };
    if ranks == 0 || communicators.is_null() || devices.is_null() {
        return ncclInvalidArgument;
    }
    // SAFETY: as the guide says.
    let devices = unsafe { slice::from_raw_parts(devices, ranks) };
    let is_wrong =
        |(at, device): (usize, &c_int)| !(0..DEVICES).contains(device) || devices[..at].contains(device);
    if devices.iter().enumerate().any(is_wrong) {
        return ncclInvalidUsage;
    }
    let clique = CLIQUES.fetch_add(1, Ordering::Relaxed);
    COMMUNICATORS.fetch_add(ranks as u64, Ordering::Relaxed);
    for (rank, &device) in devices.iter().enumerate() {
        let made = Box::into_raw(Box::new(Communicator { clique, rank, ranks, device }));
        // SAFETY: as the guide says.
        unsafe { give(communicators.add(rank), made.cast()) };
    }
    ncclSuccess
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommAbort(communicator: ncclComm_t) -> ncclResult_t {
    if communicator.is_null() {
        return ncclInvalidArgument;
    }
    COMMUNICATORS.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: it was made above, and is not used again.
    drop(unsafe { Box::from_raw(communicator.cast::<Communicator>()) });
    ncclSuccess
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(result: ncclResult_t) -> *const c_char {
    match result {
        ncclSuccess => c"no error",
        ncclInvalidArgument => c"invalid argument",
        ncclInvalidUsage => c"invalid usage",
        _ => c"another error",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> ncclResult_t {
    GROUP.with_borrow_mut(|group| match group.replace(Vec::new()) {
        None => ncclSuccess,
        // The guide lets groups be nested, which nothing needs.
        Some(_) => ncclInvalidUsage,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: ncclDataType_t,
    op: ncclRedOp_t,
    communicator: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    if communicator.is_null() || bytes(kind).is_none() || op != ncclRedOp_t::ncclSum {
        return ncclInvalidArgument;
    }
    // SAFETY: it was made above, and not given up.
    let &Communicator { clique, rank, ranks, device } = unsafe { &*communicator.cast::<Communicator>() };
    let [from, to, stream] = [from as u64, to as u64, stream as u64];
    let part = Part { clique, rank, ranks, device, from, to, count, kind, stream };
    GROUP.with_borrow_mut(|group| match group {
        Some(parts) => {
            parts.push(part);
            ncclSuccess
        }
        // One thread alone would wait for its other devices for ever.
        None => ncclInvalidUsage,
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> ncclResult_t {
    let Some(mut parts) = GROUP.take() else { return ncclInvalidUsage };
    // The first calls of all ranks are one, and so on.
    while let Some(&first) = parts.first() {
        let mut sum = Vec::new();
        for rank in 0..first.ranks {
            let is_it = |part: &Part| (part.clique, part.rank) == (first.clique, rank);
            match parts.iter().position(is_it) {
                Some(place) => sum.push(parts.remove(place)),
                None => return ncclInvalidUsage,
            }
        }
        if sum.iter().any(|part| (part.count, part.kind) != (first.count, first.kind)) {
            return ncclInvalidUsage;
        }
        // Devices of one process reach into each other's memory ("NCCL_P2P_DIRECT_DISABLE" in the guide), where a GPU would fault.
        let is_hidden = |of: &Part| !sum.iter().all(|with| driver::peers::is_shared(of.device, with.device));
        if sum.iter().any(is_hidden) {
            return ncclUnhandledCudaError;
        }
        let streams: Vec<u64> = sum.iter().map(|part| part.stream).collect();
        if !driver::call_together(&streams, Box::new(Sum(sum))) {
            return ncclUnhandledCudaError;
        }
        SUMS.fetch_add(1, Ordering::Relaxed);
    }
    ncclSuccess
}
