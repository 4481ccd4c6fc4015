//! The `kiln` command.

use std::process::ExitCode;

/// Compiling a model makes and drops millions of small trees; the system's allocator takes as long for that as all else together.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    kiln_build::command::main()
}
