//! The innermost part: a tile of sums, by the instructions that the machine has.

use super::pack::GROUP;
use crate::simd::{Level, level};

/// Rows of a tile.
pub(super) const ROWS: usize = 8;
/// Columns of a tile, which is also the width of a panel of the right side.
pub(super) const COLS: usize = 32;

/// What is multiplied.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Groups of the depth.
    pub groups: usize,
    /// Rows that are wanted. What the sums of others become is anything.
    pub rows: usize,
    /// The first of [`ROWS`] rows of unsigned bytes.
    pub left: *const u8,
    /// Bytes from one row to the next.
    pub step: usize,
    /// A panel of signed bytes.
    pub panel: *const i8,
}

/// How bytes are multiplied, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Instructions {
    Scalar,
    /// Sums of two products of 16-bit integers.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512-VNNI: sums of four products of bytes.
    #[cfg(target_arch = "x86_64")]
    Vnni,
}

impl Instructions {
    /// The best that the machine has at its level.
    pub fn current() -> Self {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if has_vnni() => Self::Vnni,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx2 => Self::Avx2,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => Self::Scalar,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => Self::Scalar,
            Level::Scalar => Self::Scalar,
        }
    }
}

/// Whether the machine has AVX-512-VNNI.
#[cfg(target_arch = "x86_64")]
fn has_vnni() -> bool {
    #[cfg(feature = "std")]
    return std::is_x86_feature_detected!("avx512vnni");
    #[cfg(not(feature = "std"))]
    cfg!(target_feature = "avx512vnni")
}

/// The sums of a tile, row by row.
///
/// # Safety
/// The rows hold as many groups as the tile says, and so does the panel.
pub(super) unsafe fn compute(tile: &Tile, sums: &mut [[i32; COLS]; ROWS]) {
    // SAFETY: the caller's promise; instructions were detected.
    unsafe {
        match Instructions::current() {
            Instructions::Scalar => scalar(tile, sums),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => avx2(tile, sums),
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => match tile.rows {
                1 => vnni::<1>(tile, sums),
                2..=4 => vnni::<4>(tile, sums),
                _ => vnni::<ROWS>(tile, sums),
            },
        }
    }
}

/// Without vectors.
///
/// # Safety
/// As for [`compute`].
unsafe fn scalar(tile: &Tile, sums: &mut [[i32; COLS]; ROWS]) {
    for (row, sums) in sums.iter_mut().enumerate().take(tile.rows) {
        sums.fill(0);
        for group in 0..tile.groups {
            // SAFETY: the caller's promise.
            let (left, right) = unsafe {
                let left = tile.left.add(row * tile.step + group * GROUP).cast::<[u8; GROUP]>().read();
                (left, &*tile.panel.add(group * GROUP * COLS).cast::<[[i8; GROUP]; COLS]>())
            };
            for (sum, right) in sums.iter_mut().zip(right) {
                for (&a, &b) in left.iter().zip(right) {
                    *sum = sum.wrapping_add(i32::from(a) * i32::from(b));
                }
            }
        }
    }
}

/// By AVX2, of bytes widened to 16 bits: products of bytes whose sums have 16 bits would saturate.
///
/// # Safety
/// As for [`compute`], on a machine with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(tile: &Tile, sums: &mut [[i32; COLS]; ROWS]) {
    use core::arch::x86_64::*;
    /// Rows and vectors of four columns at a time, whose sums find registers.
    const R: usize = 4;
    const V: usize = 2;
    for (block, sums) in sums.chunks_exact_mut(R).enumerate().take(tile.rows.div_ceil(R)) {
        for first in (0..COLS).step_by(4 * V) {
            let mut pairs = [[_mm256_setzero_si256(); V]; R];
            for group in 0..tile.groups {
                // SAFETY: the caller's promise.
                unsafe {
                    let right = tile.panel.add((group * COLS + first) * GROUP);
                    let right = [
                        _mm256_cvtepi8_epi16(_mm_loadu_si128(right.cast())),
                        _mm256_cvtepi8_epi16(_mm_loadu_si128(right.add(4 * GROUP).cast())),
                    ];
                    for (r, pairs) in pairs.iter_mut().enumerate() {
                        let left = tile.left.add((block * R + r) * tile.step + group * GROUP);
                        let left = _mm_set1_epi32(left.cast::<i32>().read_unaligned());
                        let left = _mm256_cvtepu8_epi16(left);
                        for (pairs, right) in pairs.iter_mut().zip(right) {
                            *pairs = _mm256_add_epi32(*pairs, _mm256_madd_epi16(left, right));
                        }
                    }
                }
            }
            for (r, pairs) in pairs.iter().enumerate() {
                for (v, &pairs) in pairs.iter().enumerate() {
                    let to = &mut sums[r][first + 4 * v..][..4];
                    let halves =
                        _mm_hadd_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
                    // SAFETY: the slice has four sums.
                    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), halves) };
                }
            }
        }
    }
}

/// The first `R` rows, by AVX-512-VNNI.
///
/// # Safety
/// As for [`compute`], on a machine with AVX-512-VNNI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn vnni<const R: usize>(tile: &Tile, sums: &mut [[i32; COLS]; ROWS]) {
    use core::arch::x86_64::*;
    const HALF: usize = 16;
    let mut held = [[_mm512_setzero_si512(); 2]; R];
    for group in 0..tile.groups {
        // SAFETY: the caller's promise.
        unsafe {
            let right = tile.panel.add(group * GROUP * COLS);
            let right =
                [_mm512_loadu_si512(right.cast()), _mm512_loadu_si512(right.add(GROUP * HALF).cast())];
            for (r, held) in held.iter_mut().enumerate() {
                let left = tile.left.add(r * tile.step + group * GROUP).cast::<i32>().read_unaligned();
                let left = _mm512_set1_epi32(left);
                for (held, right) in held.iter_mut().zip(right) {
                    *held = _mm512_dpbusd_epi32(*held, left, right);
                }
            }
        }
    }
    for (held, to) in held.iter().zip(sums) {
        for (held, to) in held.iter().zip(to.chunks_exact_mut(HALF)) {
            // SAFETY: the slice has sixteen sums.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), *held) };
        }
    }
}

/// The sum of bytes, which wraps.
pub(super) fn sum(bytes: &[u8]) -> i32 {
    bytes.iter().fold(0, |sum: u32, &byte| sum.wrapping_add(u32::from(byte))) as i32
}
