//! Operands as products take them.

use super::tile::COLS;
use alloc::{vec, vec::Vec};

/// Steps of the depth that are multiplied at once.
pub(super) const GROUP: usize = 4;
/// The bit by which signed and unsigned bytes differ when they are 128 apart.
const SIGN: u8 = 0x80;

/// 8-bit integers.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// Unsigned.
    U8(&'a [u8]),
    /// Signed.
    I8(&'a [i8]),
}

impl<'a> Bytes<'a> {
    /// The bytes, and what is to be flipped in them so that they are unsigned.
    pub(super) fn unsigned(self) -> (&'a [u8], u8) {
        match self {
            Bytes::U8(bytes) => (bytes, 0),
            Bytes::I8(bytes) => (bytemuck::cast_slice(bytes), SIGN),
        }
    }

    /// Likewise so that they are signed.
    fn signed(self) -> (&'a [u8], u8) {
        match self {
            Bytes::U8(bytes) => (bytes, SIGN),
            Bytes::I8(bytes) => (bytemuck::cast_slice(bytes), 0),
        }
    }
}

/// The zero point of bytes that became unsigned.
pub(super) fn unsigned_zero(zero: i32, flip: u8) -> i32 {
    zero.wrapping_add(i32::from(flip))
}

/// The zero point of bytes that became signed.
pub(super) fn signed_zero(zero: i32, flip: u8) -> i32 {
    zero.wrapping_sub(i32::from(flip))
}

/// A right side, in panels of 32 columns: of each four steps of the depth the bytes of a column lie side by side.
#[derive(Clone, Debug)]
pub struct PackedBytes {
    depth: usize,
    cols: usize,
    flip: u8,
    data: Vec<i8>,
    /// The sum of each column.
    sums: Vec<i32>,
}

impl PackedBytes {
    /// Packs `depth` rows and `cols` columns whose elements are `strides` apart.
    ///
    /// # Panics
    /// When `bytes` does not hold them.
    pub fn new(bytes: Bytes<'_>, strides: [usize; 2], depth: usize, cols: usize) -> Self {
        let (bytes, flip) = bytes.signed();
        let fits =
            depth == 0 || cols == 0 || (depth - 1) * strides[0] + (cols - 1) * strides[1] < bytes.len();
        assert!(fits, "the right operand does not hold {depth} rows and {cols} columns");
        let groups = depth.div_ceil(GROUP);
        let mut data = vec![0; cols.div_ceil(COLS) * groups * GROUP * COLS];
        let mut sums = vec![0_i32; cols];
        for (panel, to) in data.chunks_exact_mut((groups * GROUP * COLS).max(1)).enumerate() {
            let first = panel * COLS;
            let sums = &mut sums[first..cols.min(first + COLS)];
            for row in 0..depth {
                let to = &mut to[row / GROUP * GROUP * COLS + row % GROUP..];
                let from = &bytes[row * strides[0]..];
                for (col, sum) in sums.iter_mut().enumerate() {
                    let byte = (from[(first + col) * strides[1]] ^ flip) as i8;
                    to[col * GROUP] = byte;
                    *sum = sum.wrapping_add(i32::from(byte));
                }
            }
        }
        Self { depth, cols, flip, data, sums }
    }

    /// Depth and columns.
    pub fn dims(&self) -> (usize, usize) {
        (self.depth, self.cols)
    }

    pub(super) fn panel(&self, n: usize) -> &[i8] {
        let length = self.depth.div_ceil(GROUP) * GROUP * COLS;
        &self.data[n * length..][..length]
    }

    pub(super) fn sums(&self) -> &[i32] {
        &self.sums
    }

    pub(super) fn flip(&self) -> u8 {
        self.flip
    }
}
