//! What a profiler saw of a program, as it is handed on: the runtime records it, `kiln bench --profile` shows it.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Several forward passes of one model, operation by operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The number of threads that kernels used.
    pub threads: usize,
    /// What the machine can do with them.
    pub peaks: Peaks,
    /// Times of passes of which nothing was recorded, in milliseconds.
    pub plain_ms: Vec<f64>,
    /// The operations that calls refer to: no two are equal.
    pub operations: Vec<ProfiledOperation>,
    /// The passes, in turn with those of which nothing was recorded.
    pub passes: Vec<ProfiledPass>,
}

/// What a machine can do at most, as it was measured for a number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// 10^9 FLOPs a second of multiply-adds that stay in registers, of f32, or of products of bf16 where the model has such.
    pub gflops: f64,
    /// 10^9 bytes a second from and to memory, over [`memory_bytes`](Self::memory_bytes).
    pub memory_gbs: f64,
    /// The size of what was streamed for it.
    pub memory_bytes: u64,
    /// 10^9 bytes a second from and to the caches that each core has to itself, over [`cache_bytes`](Self::cache_bytes).
    pub cache_gbs: f64,
    /// The size of what was streamed for it, of all threads together: operations that move no more may be as fast.
    pub cache_bytes: u64,
}

impl Peaks {
    /// The least time that work takes on this machine, in seconds: its FLOPs at the peak, or its bytes from where they may lie, whichever is
    /// longer (the roofline model: Williams, Waterman, Patterson 2009).
    pub fn bound(&self, flops: u64, bytes: u64) -> f64 {
        let gbs = if bytes <= self.cache_bytes { self.cache_gbs } else { self.memory_gbs };
        let seconds = |work: u64, rate: f64| if work == 0 { 0.0 } else { work as f64 / (rate * 1e9) };
        seconds(flops, self.gflops).max(seconds(bytes, gbs))
    }
}

/// An operation of the backend at one place of a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProfiledOperation {
    /// The path of the module that called it, as in records: `encoder.layer.3.attention.query`; empty for the model itself.
    pub path: String,
    /// What it is, with what was fused: `conv2d 3×3, stride 2 + Relu`.
    pub name: String,
    /// The dims of its first result.
    pub shape: Vec<usize>,
    /// Floating-point operations by the operation's definition: two for a multiply-add, one for each other step of an element, whatever it is. An algorithm that gets
    /// by with fewer (Winograd's) counts the same. Nothing where they are not counted.
    pub flops: Option<u64>,
    /// Bytes of the operands and the results, each once: the least that must be moved. What only views an operand moves none. Nothing where
    /// they are not counted.
    pub bytes: Option<u64>,
}

/// One forward pass. Times are nanoseconds from its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfiledPass {
    /// How long it took.
    pub time: u64,
    /// Calls of operations in the order in which they ran; none runs within another.
    pub calls: Vec<ProfiledCall>,
    /// Calls of modules, parents before what they called.
    pub modules: Vec<ProfiledModule>,
}

/// One call of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledCall {
    /// Its position among [`Profile::operations`].
    pub operation: usize,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

/// One call of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledModule {
    /// Its path.
    pub path: String,
    /// How many others it was called within.
    pub depth: usize,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

#[cfg(test)]
mod tests {
    use super::Peaks;

    #[test]
    fn the_slower_of_arithmetic_and_memory_bounds_work() {
        let peaks = Peaks {
            gflops: 100.0,
            memory_gbs: 10.0,
            memory_bytes: 1 << 29,
            cache_gbs: 50.0,
            cache_bytes: 1000,
        };
        assert_eq!(peaks.bound(0, 0), 0.0);
        assert_eq!(peaks.bound(1_000_000_000, 1000), 0.01);
        assert_eq!(peaks.bound(1000, 2_000_000_000), 0.2);
        assert_eq!(peaks.bound(0, 1000), 1000.0 / 50e9);
    }
}
