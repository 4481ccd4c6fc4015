//! AMX: tiles of 16 rows of 64 bytes, and products of them.

use super::tile::{Bf16Tile, COLS, HALF_ROWS};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::ffi::c_long;
use core::marker::PhantomData;

/// Whether the machine has AMX for bf16, and the system lets this process use it: Linux wants to be asked, since the state of a
/// thread that uses tiles is 8 KiB larger.
pub(super) fn is_usable() -> bool {
    /// Bits of `edx` of leaf 7.
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    if __cpuid(0).eax < 7 {
        return false;
    }
    let features = __cpuid_count(7, 0).edx;
    features & AMX_BF16 != 0 && features & AMX_TILE != 0 && permitted()
}

/// Asks the system.
fn permitted() -> bool {
    const SYS_ARCH_PRCTL: c_long = 158;
    const ARCH_REQ_XCOMP_PERM: c_long = 0x1023;
    const XFEATURE_XTILEDATA: c_long = 18;
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }
    // SAFETY: the call reads and writes no memory of ours. It fails on systems that do not know it, and where signal handlers' stacks
    // are too small for the larger state.
    unsafe { syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_of_row: [u16; 16],
    rows: [u8; 16],
}

impl Configuration {
    /// Eight tiles of rows of 64 bytes: four of sums and two of `A` of so many, and two of `B` of 16.
    fn of(rows: usize) -> Self {
        let rows = rows.clamp(1, HALF_ROWS) as u8;
        let (mut all, mut bytes_of_row) = ([0; 16], [0; 16]);
        all[..6].fill(rows);
        all[6..8].fill(16);
        bytes_of_row[..8].fill(64);
        Self { palette: 1, start_row: 0, reserved: [0; 14], bytes_of_row, rows: all }
    }
}

/// Asks for the next lines of what is asked for ahead: a few after each product, since many at once hold up the loads behind them.
macro_rules! ask {
    () => {
        "mov {line:e}, {lines:e}
        6:
        prefetcht1 [{ahead}]
        add {ahead}, 64
        dec {line:e}
        jnz 6b"
    };
}

/// The products of a block. Each tile of the next block is loaded as soon as its place is free, while the other products are computed.
macro_rules! two_by_two_block {
    ($ask:expr) => {
        concat!(
            "add {offsets}, 8
            add {b}, 2048
            tdpbf16ps tmm0, tmm4, tmm6
            ",
            $ask,
            "
            tdpbf16ps tmm1, tmm4, tmm7
            mov {at}, [{offsets}]
            add {at}, {a}
            tileloadd tmm4, [{at} + {a_step}]
            ",
            $ask,
            "
            tdpbf16ps tmm2, tmm5, tmm6
            tileloadd tmm6, [{b} + {b_step}]
            ",
            $ask,
            "
            tdpbf16ps tmm3, tmm5, tmm7
            mov {at}, [{offsets}]
            add {at}, {lower}
            tileloadd tmm5, [{at} + {a_step}]
            tileloadd tmm7, [{b} + {b_step} + 1024]
            ",
            $ask,
        )
    };
}

/// The products of a block with one half of rows.
macro_rules! one_by_two_block {
    ($ask:expr) => {
        concat!(
            "mov {at}, [{offsets}]
            add {at}, {a}
            tileloadd tmm4, [{at} + {a_step}]
            tileloadd tmm6, [{b} + {b_step}]
            ",
            $ask,
            "
            tileloadd tmm7, [{b} + {b_step} + 1024]
            tdpbf16ps tmm0, tmm4, tmm6
            ",
            $ask,
            "
            tdpbf16ps tmm1, tmm4, tmm7
            add {offsets}, 8
            add {b}, 2048"
        )
    };
}

/// The calling thread's tiles, ready for use. There is one at a time a thread.
pub(super) struct Tiles {
    /// Rows of each half of a tile.
    rows: usize,
    /// It stays on its thread.
    thread: PhantomData<*const ()>,
}

impl Tiles {
    /// Prepares the thread's tiles for halves of so many rows, 16 at most.
    ///
    /// # Safety
    /// [`is_usable`], and the thread has no other value of this.
    pub unsafe fn new(rows: usize) -> Self {
        let configuration = Configuration::of(rows);
        // SAFETY: the caller's promise; the configuration is one that every machine with AMX has.
        unsafe {
            asm!(
                "ldtilecfg [{0}]", in(reg) &raw const configuration,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags, readonly)
            );
        }
        Self { rows: rows.clamp(1, HALF_ROWS), thread: PhantomData }
    }

    /// Computes a tile of up to two halves and 32 columns.
    ///
    /// # Safety
    /// As for [`super::tile::compute`].
    pub unsafe fn compute(&self, tile: &Bf16Tile) {
        // SAFETY: the caller's promise; the tiles are configured while `self` lives.
        unsafe {
            if tile.rows > self.rows {
                self.two_by_two(tile);
            } else {
                self.one_by_two(tile);
            }
        }
    }

    /// Two halves of rows times two of columns.
    ///
    /// # Safety
    /// As for [`Tiles::compute`].
    unsafe fn two_by_two(&self, tile: &Bf16Tile) {
        let lower_sums = tile.sums.wrapping_add(self.rows * COLS);
        // SAFETY: reads two halves of `A`, `blocks` pairs of tiles of `B`, and reads or writes as many rows of 32 sums, as the caller says are there.
        // Flow stays inside.
        unsafe {
            asm!(
                "test {at:e}, {at:e}",
                "jnz 3f",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "jmp 2f",
                "3:",
                "mov {at:e}, 128",
                "tileloadd tmm0, [{sums} + {at}]",
                "tileloadd tmm1, [{sums} + {at} + 64]",
                "tileloadd tmm2, [{lower_sums} + {at}]",
                "tileloadd tmm3, [{lower_sums} + {at} + 64]",
                "2:",
                "mov {at}, [{offsets}]",
                "add {at}, {a}",
                "tileloadd tmm4, [{at} + {a_step}]",
                "tileloadd tmm6, [{b} + {b_step}]",
                "tileloadd tmm7, [{b} + {b_step} + 1024]",
                "mov {at}, [{offsets}]",
                "add {at}, {lower}",
                "tileloadd tmm5, [{at} + {a_step}]",
                "dec {blocks}",
                "jz 5f",
                "test {lines:e}, {lines:e}",
                "jz 8f",
                ".p2align 6",
                "4:",
                two_by_two_block!(ask!()),
                "dec {blocks}",
                "jnz 4b",
                "jmp 5f",
                ".p2align 6",
                "8:",
                two_by_two_block!(""),
                "dec {blocks}",
                "jnz 8b",
                "5:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "mov {at:e}, 128",
                "tilestored [{sums} + {at}], tmm0",
                "tilestored [{sums} + {at} + 64], tmm1",
                "tilestored [{lower_sums} + {at}], tmm2",
                "tilestored [{lower_sums} + {at} + 64], tmm3",
                // At first whether there are sums to add to, then addresses of rows, and the bytes from one row of sums to the next.
                at = inout(reg) u64::from(tile.adds) => _,
                a = in(reg) tile.a,
                lower = in(reg) tile.lower,
                offsets = inout(reg) tile.offsets => _,
                ahead = inout(reg) tile.ahead => _,
                lines = in(reg) (tile.ahead_lines / 4) as u32,
                line = out(reg) _,
                a_step = in(reg) tile.a_step * size_of::<u16>(),
                b = inout(reg) tile.b => _,
                b_step = in(reg) 64usize,
                blocks = inout(reg) tile.blocks => _,
                sums = in(reg) tile.sums,
                lower_sums = in(reg) lower_sums,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    }

    /// One half of rows times two of columns.
    ///
    /// # Safety
    /// As for [`Tiles::compute`].
    unsafe fn one_by_two(&self, tile: &Bf16Tile) {
        // SAFETY: as above, for one half.
        unsafe {
            asm!(
                "test {at:e}, {at:e}",
                "jnz 3f",
                "tilezero tmm0",
                "tilezero tmm1",
                "jmp 2f",
                "3:",
                "mov {at:e}, 128",
                "tileloadd tmm0, [{sums} + {at}]",
                "tileloadd tmm1, [{sums} + {at} + 64]",
                "2:",
                "test {lines:e}, {lines:e}",
                "jz 8f",
                ".p2align 6",
                "4:",
                one_by_two_block!(ask!()),
                "dec {blocks}",
                "jnz 4b",
                "jmp 5f",
                ".p2align 6",
                "8:",
                one_by_two_block!(""),
                "dec {blocks}",
                "jnz 8b",
                "5:",
                "mov {at:e}, 128",
                "tilestored [{sums} + {at}], tmm0",
                "tilestored [{sums} + {at} + 64], tmm1",
                at = inout(reg) u64::from(tile.adds) => _,
                a = in(reg) tile.a,
                offsets = inout(reg) tile.offsets => _,
                ahead = inout(reg) tile.ahead => _,
                lines = in(reg) (tile.ahead_lines / 2) as u32,
                line = out(reg) _,
                a_step = in(reg) tile.a_step * size_of::<u16>(),
                b = inout(reg) tile.b => _,
                b_step = in(reg) 64usize,
                blocks = inout(reg) tile.blocks => _,
                sums = in(reg) tile.sums,
                out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the instruction is there, since a value is made only where it is. The system then no longer saves the tiles.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags, nomem)
            );
        }
    }
}
