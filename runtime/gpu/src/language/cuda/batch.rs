//! Several launches of a kernel as one: a block finds the launch that it belongs to in a table, which is the kernel's one argument.
//!
//! The table holds the number of launches, where the blocks of each end, and the arguments of each: addresses of buffers (two words, the
//! lower first), last elements, parameters.

use super::{Cuda, arguments, print, scalar_arguments};
use crate::language::Kernel;
use std::fmt::Write;

/// Words of a table: arguments of a kernel are 4,096 bytes at most on all versions.
pub const TABLE_WORDS: usize = 1000;

/// The name of the function that does several launches of a kernel.
pub fn entry_point(kernel: &Kernel) -> String {
    format!("kiln_{}_batch", kernel.name)
}

/// Words of a launch's arguments.
fn words(kernel: &Kernel) -> usize {
    3 * kernel.bindings.len() + kernel.parameters as usize
}

/// How many launches of a kernel a table has room for; nothing where it does not fit for two.
pub fn capacity(kernel: &Kernel) -> Option<usize> {
    let capacity = (TABLE_WORDS - 1) / (words(kernel) + 1);
    (capacity > 1).then_some(capacity)
}

/// The table of launches: of each its blocks, the addresses of its buffers, and the words that follow.
pub fn table(launches: &[(u32, impl AsRef<[u64]>, impl AsRef<[u32]>)]) -> Vec<u32> {
    let mut end = 0;
    let ends = launches.iter().map(|(blocks, _, _)| {
        end += blocks;
        end
    });
    let mut table = Vec::with_capacity(TABLE_WORDS);
    table.push(launches.len() as u32);
    table.extend(ends);
    for (_, addresses, words) in launches {
        table.extend(addresses.as_ref().iter().flat_map(|&address| [address as u32, (address >> 32) as u32]));
        table.extend_from_slice(words.as_ref());
    }
    // The kernel takes all of it.
    table.resize(TABLE_WORDS, 0);
    table
}

/// The source of a kernel for a table of launches, behind a [`PRELUDE`](super::PRELUDE). Its blocks are those of all launches along x.
pub fn source(kernel: &Kernel) -> String {
    let mut printer = print::Printer::<Cuda>::new(kernel);
    super::shared_arrays(kernel, &mut printer.out);
    let name = entry_point(kernel);
    // The function's place is that of the launch: its arguments have the names of what it is elsewhere.
    let _ = writeln!(
        printer.out,
        "static __device__ __forceinline__ void one_{name}(\n    {},\n    const uint3 blockIdx, const uint3 gridDim\n) {{",
        arguments(kernel).join(",\n    ")
    );
    printer.block(&kernel.body);
    printer.out.push_str("}\n\n");
    let _ = write!(
        printer.out,
        "struct Table {{ unsigned words[{TABLE_WORDS}]; }};\n\n\
         extern \"C\" __global__ void {} {name}(\n    const __grid_constant__ Table table\n) {{\n    \
         unsigned launch = 0, first = 0;\n    \
         while (blockIdx.x >= table.words[1 + launch]) first = table.words[1 + launch++];\n    \
         const unsigned at = 1 + table.words[0] + launch * {};\n    \
         const uint3 block = {{blockIdx.x - first, 0, 0}};\n    \
         const uint3 grid = {{table.words[1 + launch] - first, 1, 1}};\n    \
         one_{name}(\n",
        super::launch_bounds(kernel),
        words(kernel)
    );
    for (n, ty) in super::pointers(kernel).enumerate() {
        let (low, high) = (2 * n, 2 * n + 1);
        let _ = writeln!(
            printer.out,
            "        ({ty})(table.words[at + {low}] | (unsigned long long)table.words[at + {high}] << 32),"
        );
    }
    for n in 0..scalar_arguments(kernel).count() {
        let _ = writeln!(printer.out, "        table.words[at + {}],", 2 * kernel.bindings.len() + n);
    }
    printer.out.push_str("        block, grid);\n}\n");
    printer.out
}
