//! How bf16 are multiplied.

use crate::simd::{Level, level};

/// A way to multiply bf16, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Instructions {
    /// As f32, at the machine's level.
    Widened,
    /// AVX-512-BF16: sums of two products.
    #[cfg(target_arch = "x86_64")]
    Dot,
    /// AMX: products of tiles.
    #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
    Tiles,
}

impl Instructions {
    /// All that this target knows.
    #[cfg(test)]
    pub const ALL: &'static [Self] = &[
        Self::Widened,
        #[cfg(target_arch = "x86_64")]
        Self::Dot,
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        Self::Tiles,
    ];

    /// The best that the machine has at its level; `KILN_BF16` (`widened`, `dot`, `tiles`) lowers it.
    pub fn current() -> Self {
        #[cfg(test)]
        if let Some(wish) = tests::wish() {
            return wish.min(Self::at(level()));
        }
        Self::at(level())
    }

    /// Whether tiles are multiplied at once, at many times the speed of f32.
    pub fn are_tiles(self) -> bool {
        match self {
            Self::Widened => false,
            #[cfg(target_arch = "x86_64")]
            Self::Dot => false,
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
            Self::Tiles => true,
        }
    }

    /// Whether two products at a time are summed, at twice the speed of f32.
    pub fn are_pairs(self) -> bool {
        match self {
            Self::Widened => false,
            #[cfg(target_arch = "x86_64")]
            Self::Dot => true,
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
            Self::Tiles => false,
        }
    }

    fn at(level: Level) -> Self {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => detected(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Self::Widened,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => Self::Widened,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => Self::Widened,
            Level::Scalar => Self::Widened,
        }
    }
}

/// What a machine with AVX-512 has beside, asked once.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
fn detected() -> Instructions {
    use std::sync::OnceLock;
    static DETECTED: OnceLock<Instructions> = OnceLock::new();
    *DETECTED.get_or_init(|| {
        let wish = crate::environment::choice("KILN_BF16", &["widened", "dot", "tiles"]);
        if wish == Some("widened") || !is_x86_feature_detected!("avx512bf16") {
            return Instructions::Widened;
        }
        #[cfg(target_os = "linux")]
        if wish != Some("dot") && super::amx::is_usable() {
            return Instructions::Tiles;
        }
        Instructions::Dot
    })
}

#[cfg(all(target_arch = "x86_64", not(feature = "std")))]
fn detected() -> Instructions {
    if cfg!(target_feature = "avx512bf16") { Instructions::Dot } else { Instructions::Widened }
}

/// Instructions chosen by tests, for the calling thread.
#[cfg(test)]
pub(in crate::gemm) mod tests {
    use super::*;
    use crate::simd::forced::at_each_level;
    use std::cell::Cell;

    std::thread_local!(static WISH: Cell<Option<Instructions>> = const { Cell::new(None) });

    pub fn wish() -> Option<Instructions> {
        WISH.get()
    }

    /// Runs `test` at every level with all the instructions that the machine has there.
    pub(crate) fn with_all_instructions(mut test: impl FnMut(Level, Instructions)) {
        at_each_level(|level| {
            for &instructions in Instructions::ALL.iter().filter(|&&i| i <= Instructions::at(level)) {
                WISH.set(Some(instructions));
                test(level, instructions);
                WISH.set(None);
            }
        });
    }
}
