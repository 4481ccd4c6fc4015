//! What a launch is given, and whether a device takes it.

use crate::HostFunction;
use std::ops::Range;

/// Bytes of arguments that all devices take.
const MOST_ARGUMENTS: u64 = 4096;
/// Blocks of a grid along each axis, and threads of a block.
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
const MOST_THREADS: u32 = 1024;

/// A buffer that a launch is given: which bytes of memory its kernel may use, of which elements of so many bytes, and whether it writes them.
pub struct Given {
    /// Which bytes.
    pub memory: Range<u64>,
    /// Bytes of an element.
    pub element: u64,
    /// Whether the kernel writes there.
    pub is_written: bool,
}

/// The buffers of each launch of a call, one unless there is a table, as far as the kernel says how large they are.
pub fn given(function: &HostFunction, buffers: &[u64], words: &[u32]) -> Vec<Vec<Given>> {
    let of = |addresses: &dyn Fn(usize) -> u64, words: &[u32]| -> Vec<Given> {
        let described = function.buffers.iter().enumerate();
        let known = described.filter(|(_, [.., last])| *last != u32::MAX);
        let all = known.map(|(n, &[element, is_written, last])| {
            let (start, element) = (addresses(n), u64::from(element));
            let memory = start..start + (u64::from(words[last as usize]) + 1) * element;
            Given { memory, element, is_written: is_written == 1 }
        });
        all.collect()
    };
    if function.table == 0 {
        return vec![of(&|n| buffers[n], words)];
    }
    let launches = words[0] as usize;
    let launch = |n: usize| {
        let words = &words[1 + launches + n * function.launch_words as usize..];
        let address = |n: usize| u64::from(words[2 * n]) | u64::from(words[2 * n + 1]) << 32;
        of(&address, &words[2 * function.buffers.len()..])
    };
    (0..launches).map(launch).collect()
}

/// Whether devices take such a grid for a kernel.
pub(crate) fn check_grid(
    function: &HostFunction,
    blocks: [u32; 3],
    [width, height]: [u32; 2],
) -> Result<(), String> {
    let fits = blocks.iter().zip(MOST_BLOCKS).all(|(&blocks, most)| (1..=most).contains(&blocks));
    let most = function.most_threads.min(MOST_THREADS);
    let threads = width.checked_mul(height).filter(|threads| (1..=most).contains(threads));
    let [buffers, words] = function.arguments.map(u64::from);
    let arguments = 8 * buffers + 4 * (words + u64::from(function.table));
    match (fits, threads, arguments <= MOST_ARGUMENTS) {
        (true, Some(_), true) => Ok(()),
        _ => Err(format!(
            "no device runs {blocks:?} blocks of {width} x {height} threads with {arguments} bytes of arguments"
        )),
    }
}

/// Whether a call's buffers are such as its kernel was compiled for: elements are read whole, and what is read alone is not written.
pub(crate) fn check_buffers(launches: &[Vec<Given>]) -> Result<(), String> {
    for (n, launch) in launches.iter().enumerate() {
        for (at, buffer) in launch.iter().enumerate() {
            let unit = buffer.element.min(16);
            if !buffer.memory.start.is_multiple_of(unit) {
                return Err(format!(
                    "buffer {at} of {unit} bytes an element begins at {:#x}",
                    buffer.memory.start
                ));
            }
            let meets = |other: &Given| {
                let [own, others] = [&buffer.memory, &other.memory];
                buffer.is_written && own.start < others.end && others.start < own.end
            };
            let of_launch =
                launch.iter().enumerate().filter(|&(other, _)| other != at).map(|(_, other)| other);
            let of_others =
                launches.iter().enumerate().filter(|&(other, _)| other != n).flat_map(|(_, all)| all);
            if of_launch.chain(of_others).any(meets) {
                return Err(format!("a launch writes buffer {at}, which it was given as another too"));
            }
        }
    }
    Ok(())
}
