//! A tile of a matrix product that the warps of a workgroup compute by tensor cores, of operands that are found element by element: in
//! products as they lie in memory, and in convolutions.
//!
//! Both sides come through shared memory, as words along the depth in rows of an odd number of sixteen bytes, so that eight rows are read
//! at once. While the warps multiply what is there, each invocation has already read what comes next.

use super::right::{Right, Staged};
use super::tiles::{Lane, WARP};
use super::tiling::{Anew, hand_on};
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

/// A sum that a lane holds.
pub(super) struct Sum<'k> {
    /// Its row.
    pub row: Value<'k>,
    /// Its column.
    pub column: Value<'k>,
    /// The sum of the products.
    pub of_products: Value<'k>,
    /// That of the row's elements of the left side, where it was asked for.
    pub of_row: Option<Value<'k>>,
    /// That of the column's elements of the right side, where it was asked for.
    pub of_column: Option<Value<'k>>,
}

/// The variables of a lane.
struct Sums<'k> {
    of_products: Vec<[Variable<'k>; 4]>,
    /// For each 16 rows; nothing where they are not wanted.
    of_rows: Vec<[Variable<'k>; 4]>,
    /// For each 8 columns; nothing where they are not wanted.
    of_columns: Vec<[Variable<'k>; 4]>,
}

/// A word of the right side.
pub(super) struct RightWord<'r, 'k, R: Right<'k>> {
    side: &'r Staged<'k, R>,
    /// The first depth of its stage, and the place of its first element behind that.
    first: Value<'k>,
    place: Value<'k>,
    /// Its column, and what is known of that.
    column: &'r (Value<'k>, R::Column),
    count: u32,
}

impl<'k, R: Right<'k>> RightWord<'_, 'k, R> {
    /// The depth of its first element.
    pub fn depth(&self) -> Value<'k> {
        self.first + self.place
    }

    /// What is known of its column.
    pub fn column(&self) -> &R::Column {
        &self.column.1
    }

    /// Whether its first element is inside the product.
    pub fn is_inside(&self) -> Value<'k> {
        self.side.is_inside(self.depth(), self.column)
    }

    /// Its elements, zeros beyond the product.
    pub fn elements(&self, zero: Value<'k>) -> Vec<Value<'k>> {
        let element = |n| self.side.element([self.first, self.place + n], self.column, zero);
        (0..self.count).map(element).collect()
    }
}

impl<'k> WarpTile<'k> {
    /// Likewise [`Tile::product`](super::tiling::Tile::product), with its [`anew`](super::tiling::Tile::anew); elements are 32-bit floats that the factors
    /// hold, or are rounded to them.
    pub fn product(
        &self,
        k: &'k Builder,
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        rhs: impl Right<'k>,
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
        anew: Option<Anew<'_, 'k>>,
    ) {
        let ([row_start, column_start], [rows, columns, _]) = (self.start, self.size);
        let zero = k.value(0.0);
        let (lane, sums) = self.sums_of_words(
            k,
            |row, first| self.factors.word(&self.elements(first, row.below(rows), zero, |at| lhs(row, at))),
            rhs,
            |words| self.factors.word(&words.elements(zero)),
            [false; 2],
        );
        let all: Vec<_> = sums.of_products.iter().flatten().copied().collect();
        let first = self.first_of_lane(&lane);
        let at = |n: u32| {
            let [row, column] =
                self.behind(first, [n / (8 * self.each[1]), n / 4 % (2 * self.each[1]), n % 4]);
            [row_start + row, column_start + column]
        };
        let place = |n: Value<'k>| {
            let (of_rows, of_four) = (n / (8 * self.each[1]), n % 4_u32);
            let of_columns = n / 4_u32 % (2 * self.each[1]);
            let row = row_start + first[0] + of_rows * SIDE + of_four / 2_u32 * 8_u32;
            [row, column_start + first[1] + of_columns * 8_u32 + of_four % 2_u32]
        };
        hand_on(k, [rows, columns], &all, at, anew.map(|anew| (anew, place)), write);
    }

    /// The product of words along the depth. Those of the left side name their row and the depth of their first element, and are asked for beyond the
    /// product too, where their elements are 0; `word` makes those of the right side. `of_sides` says whether the sums of each row of the left side and
    /// of each column of the right one are wanted too, of 8-bit integers.
    pub fn product_of_words<R: Right<'k>>(
        &self,
        k: &'k Builder,
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        rhs: R,
        word: impl Fn(RightWord<'_, 'k, R>) -> Value<'k>,
        of_sides: [bool; 2],
        write: impl Fn(Sum<'k>),
    ) {
        let ([row_start, column_start], [rows, columns, _]) = (self.start, self.size);
        let (lane, sums) = self.sums_of_words(k, lhs, rhs, word, of_sides);
        self.each_sum(&lane, &sums, |sum| {
            let (row, column) = (row_start + sum.row, column_start + sum.column);
            k.when(row.below(rows) & column.below(columns), || write(Sum { row, column, ..sum }));
        });
    }

    /// The sums of [`Self::product_of_words`], and whose they are.
    fn sums_of_words<R: Right<'k>>(
        &self,
        k: &'k Builder,
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        rhs: R,
        word: impl Fn(RightWord<'_, 'k, R>) -> Value<'k>,
        of_sides: [bool; 2],
    ) -> (Lane<'k>, Sums<'k>) {
        let lane = Lane::new(k);
        let ([row_start, column_start], [_, _, depth]) = (self.start, self.size);
        let [high, wide] = tile(self.each);
        let (left, right) = (k.shared(Type::U32, high * ROW_WORDS), k.shared(Type::U32, wide * ROW_WORDS));
        // Of the left side neighbouring invocations bring neighbouring words along the depth, of the right one neighbouring columns.
        let (left_row, left_word) = (lane.local / WORDS, lane.local % WORDS);
        let (right_column, right_word) = (lane.local % wide, lane.local / wide);
        let (row_step, word_step) = (THREADS / WORDS, THREADS / wide);
        let count = self.factors.per_word();
        let stage = WORDS * count;
        let rhs = Staged::new(k, rhs, self.size, stage);
        let column = rhs.column(column_start + right_column);

        let held = |count: u32| (0..count).map(|_| k.variable(0_u32)).collect::<Vec<_>>();
        let (lefts, rights) = (held(high / row_step), held(WORDS / word_step));
        let sums = self.sums(k, of_sides);
        rhs.begin(lane.local);
        k.range(0_u32, depth + stage, stage, |first| {
            for (n, held) in (0_u32..).zip(&lefts) {
                held.set(lhs(row_start + left_row + n * row_step, first + left_word * count));
            }
            for (n, held) in (0_u32..).zip(&rights) {
                let place = (right_word + n * word_step) * count;
                held.set(word(RightWord { side: &rhs, first, place, column: &column, count }));
            }
            k.when(first.above(0_u32), || self.multiply(&lane, left, right, &sums));
            k.barrier();
            rhs.bring(lane.local, first + stage);
            for (n, held) in (0_u32..).zip(&lefts) {
                left.set((left_row + n * row_step) * ROW_WORDS + left_word, held.get());
            }
            for (n, held) in (0_u32..).zip(&rights) {
                right.set(right_column * ROW_WORDS + right_word + n * word_step, held.get());
            }
            k.barrier();
        });
        (lane, sums)
    }

    /// Variables for the sums.
    fn sums(&self, k: &'k Builder, [of_rows, of_columns]: [bool; 2]) -> Sums<'k> {
        let [high, wide] = self.each;
        let zeros = |count: u32| -> Vec<_> {
            let zero = || match self.factors {
                Factors::F16 | Factors::BF16 | Factors::TF32 => k.variable(0.0),
                Factors::I8 | Factors::U8 => k.variable(0),
            };
            (0..count).map(|_| [(); 4].map(|()| zero())).collect()
        };
        Sums {
            of_products: zeros(2 * high * wide),
            of_rows: zeros(if of_rows { high } else { 0 }),
            of_columns: zeros(if of_columns { 2 * wide } else { 0 }),
        }
    }

    /// The elements of a word that begins at a depth; those beyond the end, or where there are none at all, are `nothing`.
    pub fn elements(
        &self,
        first: Value<'k>,
        is_any: Value<'k>,
        nothing: Value<'k>,
        element: impl Fn(Value<'k>) -> Value<'k>,
    ) -> Vec<Value<'k>> {
        let k = first.kernel();
        let [_, _, depth] = self.size;
        let each = |n| {
            let at = first + n;
            let x = k.variable(nothing);
            k.when(is_any & at.below(depth), || x.set(element(at)));
            x.get()
        };
        (0..self.factors.per_word()).map(each).collect()
    }

    /// The first row and column of the lane's warp in the tile.
    fn first_of_warp(&self, lane: &Lane<'k>) -> [Value<'k>; 2] {
        let [across, down] = [lane.warp % WARPS[1], lane.warp / WARPS[1]];
        [down * (SIDE * self.each[0]), across * (SIDE * self.each[1])]
    }

    /// Adds the products of what is in shared memory.
    fn multiply(&self, lane: &Lane<'k>, left: Array<'k>, right: Array<'k>, sums: &Sums<'k>) {
        let k = lane.local.kernel();
        let [row, column] = self.first_of_warp(lane);
        // Which row of the four matrices the lane names: on the left those of rows come first, on the right those of words.
        let (eighth, second, last) = (lane.lane % 8_u32, lane.lane / 8_u32 % 2_u32, lane.lane / 16_u32);
        let left_at = (row + second * 8_u32 + eighth) * ROW_WORDS + last * 4_u32;
        let right_at = (column + last * 8_u32 + eighth) * ROW_WORDS + second * 4_u32;
        let next = SIDE * ROW_WORDS;
        // Sums of a side are products with ones, so that each lane has those of its rows and columns.
        let ones = k.value(0x0101_0101_u32);
        for step in (0..WORDS).step_by(STEP as usize) {
            let rights: Vec<_> = (0..self.each[1])
                .flat_map(|n| {
                    let [a, b, c, d] = right.matrices(right_at + (n * next + step), false);
                    [[a, b], [c, d]]
                })
                .collect();
            for (&right, &sums) in rights.iter().zip(&sums.of_columns) {
                k.multiply(self.factors, [ones; 4], right, sums);
            }
            for (n, products) in (0_u32..).zip(sums.of_products.chunks(rights.len())) {
                let left = left.matrices(left_at + (n * next + step), false);
                for (&right, &sums) in rights.iter().zip(products) {
                    k.multiply(self.factors, left, right, sums);
                }
                if let Some(&sums) = sums.of_rows.get(n as usize) {
                    k.multiply(self.factors, left, [ones; 2], sums);
                }
            }
        }
    }

    /// The row and the column of the lane's first sum in the tile.
    fn first_of_lane(&self, lane: &Lane<'k>) -> [Value<'k>; 2] {
        let [row, column] = self.first_of_warp(lane);
        [row + lane.row, column + lane.place * 2_u32]
    }

    /// The row and the column of another of its sums: the `at`-th of four, of so many rows and columns behind the first.
    fn behind(&self, [row, column]: [Value<'k>; 2], [m, n, at]: [u32; 3]) -> [Value<'k>; 2] {
        [row + (m * SIDE + at / 2 * 8), column + (n * 8 + at % 2)]
    }

    /// The lane's sums with their rows and columns in the tile.
    fn each_sum(&self, lane: &Lane<'k>, sums: &Sums<'k>, mut each: impl FnMut(Sum<'k>)) {
        let first = self.first_of_lane(lane);
        for (m, products) in (0_u32..).zip(sums.of_products.chunks(2 * self.each[1] as usize)) {
            for (n, products) in (0_u32..).zip(products) {
                for (at, sum) in (0_u32..).zip(products) {
                    let held = |all: &[[Variable<'k>; 4]], n: u32| {
                        all.get(n as usize).map(|of| of[at as usize].get())
                    };
                    let [row, column] = self.behind(first, [m, n, at]);
                    each(Sum {
                        row,
                        column,
                        of_products: sum.get(),
                        of_row: held(&sums.of_rows, m),
                        of_column: held(&sums.of_columns, n),
                    });
                }
            }
        }
    }
}
