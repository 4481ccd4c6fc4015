//! A tile of a matrix product that the warps of a workgroup compute by tensor cores, of operands that are found element by element: in
//! products as they lie in memory, and in convolutions.
//!
//! Both sides come through shared memory, as words along the depth in rows of an odd number of sixteen bytes, so that eight rows are read
//! at once. While the warps multiply what is there, each invocation has already read what comes next.

use super::tiles::{Lane, WARP};
use crate::language::{Array, Builder, Factors, Type, Value, Variable};

/// Warps of a workgroup along the rows, and along the columns.
const WARPS: [u32; 2] = [2, 2];
const THREADS: u32 = WARP * WARPS[0] * WARPS[1];
/// Words of a product of tensor cores along the depth.
const STEP: u32 = 8;
/// Words along the depth that are in shared memory at a time.
const WORDS: u32 = 2 * STEP;
/// From each row there to the next.
const ROW_WORDS: u32 = WORDS + 4;
/// Rows that a warp's product has, and columns that two of them have.
const SIDE: u32 = 16;

/// The size of a workgroup for [`WarpTile::product`].
pub(super) const GROUP: [u32; 2] = [THREADS, 1];

/// Rows and columns of the result that a workgroup computes, of whose warps each has so many times 16 rows and columns.
pub(super) fn tile(each: [u32; 2]) -> [u32; 2] {
    [0, 1].map(|axis| WARPS[axis] * SIDE * each[axis])
}

/// What one workgroup of a product knows.
pub(super) struct WarpTile<'k> {
    /// As what elements are multiplied.
    pub factors: Factors,
    /// Rows and columns of a warp, in 16s.
    pub each: [u32; 2],
    /// The first row and the first column of its tile.
    pub start: [Value<'k>; 2],
    /// Rows, columns and depth of the whole product.
    pub size: [Value<'k>; 3],
}

impl<'k> WarpTile<'k> {
    /// Likewise [`Tile::product`](super::matmul::Tile::product); elements are 32-bit floats that the factors hold, or are rounded to them.
    pub fn product<C>(
        &self,
        k: &'k Builder,
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        column: impl Fn(Value<'k>) -> C,
        rhs: impl Fn(Value<'k>, &C) -> Value<'k>,
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let lane = Lane::new(k);
        let ([row_start, column_start], [rows, columns, depth]) = (self.start, self.size);
        let [high, wide] = tile(self.each);
        let (left, right) = (k.shared(Type::U32, high * ROW_WORDS), k.shared(Type::U32, wide * ROW_WORDS));
        // Of the left side neighbouring invocations bring neighbouring words along the depth, of the right one neighbouring columns.
        let (left_row, left_word) = (lane.local / WORDS, lane.local % WORDS);
        let (right_column, right_word) = (lane.local % wide, lane.local / wide);
        let (row_step, word_step) = (THREADS / WORDS, THREADS / wide);
        let own_column = column_start + right_column;
        let prepared = column(own_column.min(columns - 1_u32));

        let held = |count: u32| (0..count).map(|_| k.variable(0_u32)).collect::<Vec<_>>();
        let (lefts, rights) = (held(high / row_step), held(WORDS / word_step));
        let sums: Vec<_> =
            (0..2 * self.each[0] * self.each[1]).map(|_| [(); 4].map(|()| k.variable(0.0))).collect();
        let stage = WORDS * self.factors.per_word();
        k.range(0_u32, depth + stage, stage, |first| {
            for (n, held) in (0_u32..).zip(&lefts) {
                let row = row_start + left_row + n * row_step;
                held.set(self.word(first, left_word, row.below(rows), |at| lhs(row, at)));
            }
            for (n, held) in (0_u32..).zip(&rights) {
                let word = right_word + n * word_step;
                held.set(self.word(first, word, own_column.below(columns), |at| rhs(at, &prepared)));
            }
            k.when(first.above(0_u32), || self.multiply(&lane, left, right, &sums));
            k.barrier();
            for (n, held) in (0_u32..).zip(&lefts) {
                left.set((left_row + n * row_step) * ROW_WORDS + left_word, held.get());
            }
            for (n, held) in (0_u32..).zip(&rights) {
                right.set(right_column * ROW_WORDS + right_word + n * word_step, held.get());
            }
            k.barrier();
        });
        self.each_sum(&lane, &sums, |row, column, sum| {
            let (row, column) = (row_start + row, column_start + column);
            k.when(row.below(rows) & column.below(columns), || write(row, column, sum));
        });
    }

    /// A word of what is behind `first` along the depth; elements beyond the end, or where there are none at all, are 0.
    fn word(
        &self,
        first: Value<'k>,
        word: Value<'k>,
        is_any: Value<'k>,
        element: impl Fn(Value<'k>) -> Value<'k>,
    ) -> Value<'k> {
        let k = first.kernel();
        let [_, _, depth] = self.size;
        let count = self.factors.per_word();
        let elements: Vec<_> = (0..count)
            .map(|n| {
                let at = first + word * count + n;
                let x = k.variable(0.0);
                k.when(is_any & at.below(depth), || x.set(element(at)));
                x.get()
            })
            .collect();
        self.factors.word(&elements)
    }

    /// The first row and column of the lane's warp in the tile.
    fn first_of_warp(&self, lane: &Lane<'k>) -> [Value<'k>; 2] {
        let [across, down] = [lane.warp % WARPS[1], lane.warp / WARPS[1]];
        [down * (SIDE * self.each[0]), across * (SIDE * self.each[1])]
    }

    /// Adds the products of what is in shared memory.
    fn multiply(&self, lane: &Lane<'k>, left: Array<'k>, right: Array<'k>, sums: &[[Variable<'k>; 4]]) {
        let k = lane.local.kernel();
        let [row, column] = self.first_of_warp(lane);
        // Which row of the four matrices the lane names: on the left those of rows come first, on the right those of words.
        let (eighth, second, last) = (lane.lane % 8_u32, lane.lane / 8_u32 % 2_u32, lane.lane / 16_u32);
        let left_at = (row + second * 8_u32 + eighth) * ROW_WORDS + last * 4_u32;
        let right_at = (column + last * 8_u32 + eighth) * ROW_WORDS + second * 4_u32;
        let next = SIDE * ROW_WORDS;
        for step in (0..WORDS).step_by(STEP as usize) {
            let rights: Vec<_> = (0..self.each[1])
                .flat_map(|n| {
                    let [a, b, c, d] = right.matrices(right_at + (n * next + step), false);
                    [[a, b], [c, d]]
                })
                .collect();
            for (n, sums) in (0_u32..).zip(sums.chunks(rights.len())) {
                let left = left.matrices(left_at + (n * next + step), false);
                for (&right, &sums) in rights.iter().zip(sums) {
                    k.multiply(self.factors, left, right, sums);
                }
            }
        }
    }

    /// The lane's sums with their rows and columns in the tile.
    fn each_sum(
        &self,
        lane: &Lane<'k>,
        sums: &[[Variable<'k>; 4]],
        mut each: impl FnMut(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let [row, column] = self.first_of_warp(lane);
        let (row, column) = (row + lane.row, column + lane.place * 2_u32);
        for (m, sums) in (0_u32..).zip(sums.chunks(2 * self.each[1] as usize)) {
            for (n, sums) in (0_u32..).zip(sums) {
                for (at, sum) in (0_u32..).zip(sums) {
                    each(row + (m * SIDE + at / 2 * 8), column + (n * 8 + at % 2), sum.get());
                }
            }
        }
    }
}
