//! Tiles of products that a workgroup shares: who computes what of them, and what is done to their sums.

use super::elementwise;
use super::reduce::subgroups_of;
use super::right::{Right, Staged};
use super::warps::{self, WarpTile};
use crate::language::{Array, Builder, Builtin, Factors, Storage, Value, Variable};
use crate::runtime::{Runtime, Subgroups};
use kiln_tensor::{Activation, DType};
use std::fmt;

/// Invocations of a workgroup along x and y.
pub(super) const SIDE: u32 = 16;
/// Rows and columns of the result that an invocation computes: every [`SIDE`]-th of its workgroup's.
const EACH: [u32; 2] = [4, 4];
/// What else they may be: what a workgroup shares is within the 16 KB that all devices have.
const OTHERS: [[u32; 2]; 4] = [[2, 2], [4, 8], [8, 4], [8, 8]];
/// What they may be where the quads of subgroups share rows: the more rows there are, the more is handed on.
const OF_QUADS: [[u32; 2]; 3] = [[4, 4], [8, 4], [8, 8]];
/// Rows and columns of a warp, in 16s.
const OF_WARP: [u32; 2] = [2, 2];
/// What else they may be: with more, sums do not find registers.
const OTHERS_OF_WARP: [[u32; 2]; 3] = [[2, 4], [4, 2], [1, 1]];
/// How much neighbouring rows, or columns, of an invocation follow one another: so many are read at once.
const RUN: u32 = 4;
/// Rows, columns and depth from which on warps compute a product: of less most of what they compute is padding.
const LEAST_OF_WARPS: usize = 16;
/// Products that a workgroup adds between two looks at memory.
pub(super) const DEPTH: u32 = 16;

/// Who computes what of the tile of a product that a workgroup shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tiling {
    /// Each invocation so many rows and columns.
    Invocations([u32; 2]),
    /// Each invocation so many rows and columns, and four neighbours of a subgroup the same rows: each reads a part of the left side, and
    /// hands it to the others. Memory that the workgroup shares holds the right side alone.
    Quads([u32; 2]),
    /// Each of its warps so many times 16 rows and columns, by tensor cores.
    Warps(Factors, [u32; 2]),
}

impl Tiling {
    /// What products of so many rows, columns and depth are usually computed by, and what else they may be.
    pub(super) fn of<R: Runtime>(
        device: &R::Device,
        dtype: DType,
        size: [usize; 3],
    ) -> (Self, impl Iterator<Item = Self> + use<R>) {
        let is_large = size.iter().all(|&length| length >= LEAST_OF_WARPS);
        let factors = R::factors(device, dtype).filter(|_| is_large && dtype.is_float());
        let by_invocations = [EACH].into_iter().chain(OTHERS).map(Tiling::Invocations);
        let has_quads = subgroups_of::<R>(device, dtype) == Subgroups::OfAnySize;
        let by_quads = OF_QUADS.into_iter().filter(move |_| has_quads).map(Tiling::Quads);
        let by_warps = factors.map(|factors| OTHERS_OF_WARP.map(|each| Tiling::Warps(factors, each)));
        let usual = factors.map_or(Tiling::Invocations(EACH), |factors| Tiling::Warps(factors, OF_WARP));
        (usual, by_warps.into_iter().flatten().chain(by_invocations).chain(by_quads))
    }

    /// How products of so many rows, columns and depth, of which there are `count`, are divided among the workgroups of a device: into the
    /// tiles, and where their depth is `divisible` the parts of it, that it is done with first. Where a device does not say how many workgroups
    /// it runs, into the usual tiles.
    pub(super) fn divide<R: Runtime>(
        device: &R::Device,
        dtype: DType,
        size: [usize; 3],
        count: usize,
        divisible: bool,
    ) -> Division {
        let (usual, others) = Self::of::<R>(device, dtype, size);
        let most_parts = if divisible && dtype.is_float() { MOST_PARTS } else { 1 };
        // Where tensor cores multiply, they do.
        let by_warps = matches!(usual, Tiling::Warps(..));
        let tilings = [usual].into_iter().chain(others);
        let tilings = tilings.filter(|tiling| matches!(tiling, Tiling::Warps(..)) == by_warps);
        let cheapest =
            |multiprocessors| Division::cheapest(tilings, size, count, multiprocessors, most_parts);
        let whole = Division { tiling: usual, parts: 1, run: size[2] };
        R::limits(device).multiprocessors.and_then(cheapest).unwrap_or(whole)
    }

    /// What a workgroup costs that computes such a tile; nothing where it was not measured.
    fn cost(self) -> Option<Cost> {
        let (latency, work) = match self {
            Tiling::Invocations([2, 2]) => (450.0, 130.0),
            Tiling::Invocations([4, 4]) => (500.0, 400.0),
            Tiling::Invocations([8, 8]) => (900.0, 1200.0),
            Tiling::Warps(_, [1, 1]) => (900.0, 230.0),
            Tiling::Warps(_, [2, 2]) => (1000.0, 480.0),
            Tiling::Warps(_, [2, 4] | [4, 2]) => (1300.0, 700.0),
            Tiling::Invocations(_) | Tiling::Quads(_) | Tiling::Warps(..) => return None,
        };
        Some(Cost { latency, work })
    }

    /// The size of a workgroup.
    pub(super) fn workgroup(self) -> [u32; 2] {
        match self {
            Tiling::Invocations(_) => [SIDE, SIDE],
            // Only in a line can subgroups be told apart.
            Tiling::Quads(_) => [SIDE * SIDE, 1],
            Tiling::Warps(..) => warps::GROUP,
        }
    }

    /// Rows and columns of a workgroup's tile.
    pub(super) fn tile(self) -> [u32; 2] {
        match self {
            Tiling::Invocations(each) | Tiling::Quads(each) => each.map(|each| SIDE * each),
            Tiling::Warps(_, each) => warps::tile(each),
        }
    }

    /// The name of a kernel of a family.
    pub(super) fn kernel(self, family: &str) -> String {
        match self {
            Tiling::Invocations(_) => family.to_owned(),
            Tiling::Quads(_) => format!("{family}_by_quads"),
            Tiling::Warps(..) => format!("{family}_by_warps"),
        }
    }
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, wide] = self.tile();
        match self {
            Tiling::Invocations(_) => write!(f, "{high}x{wide}"),
            Tiling::Quads(_) => write!(f, "{high}x{wide} by quads"),
            Tiling::Warps(factors, _) => write!(f, "{high}x{wide} of {factors:?}"),
        }
    }
}

/// How products are divided among workgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Who computes what of a tile.
    pub tiling: Tiling,
    /// Parts of the depth, whose sums are added up.
    pub parts: usize,
    /// The depth of a part.
    pub run: usize,
}

impl Division {
    /// The division that costs least, by the [`Cost`] of each tile, of those with at most so many parts.
    fn cheapest(
        tilings: impl Iterator<Item = Tiling>,
        size: [usize; 3],
        count: usize,
        multiprocessors: u32,
        most_parts: usize,
    ) -> Option<Self> {
        let divided = |tiling: Tiling| {
            (0..).map(|n| 1 << n).take_while(move |&parts| parts <= most_parts).map(move |parts| {
                let depth = size[2].max(1);
                let run = depth.div_ceil(parts).next_multiple_of(DEPTH as usize);
                Division { tiling, parts: depth.div_ceil(run), run }
            })
        };
        let costs = tilings.filter_map(|tiling| Some((tiling, tiling.cost()?)));
        let all = costs.flat_map(|(tiling, cost)| divided(tiling).map(move |division| (division, cost)));
        let took = |(division, cost): &(Division, Cost)| {
            let [high, wide] = division.tiling.tile().map(|length| length as usize);
            let tiles = size[0].div_ceil(high) * size[1].div_ceil(wide) * count;
            cost.of(division, tiles * (high * wide), tiles, multiprocessors as usize)
        };
        all.min_by(|a, b| took(a).total_cmp(&took(b))).map(|(division, _)| division)
    }
}

/// What it costs a workgroup to go [`DEPTH`] further, in nanoseconds. Measured on an H200: of 135 convolutions and products of 32-bit floats, those
/// that are chosen by it take 1 % longer than the fastest of all divisions (geometric mean; `BENCHMARKS.md`).
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// How long it takes at least: until what was asked for in memory is there, and has been brought to all.
    latency: f64,
    /// How long what computes is busy with it: several workgroups of a multiprocessor share that.
    work: f64,
}

/// What it costs to add up the sums of parts, in nanoseconds: a launch, and each number.
const JOINING: [f64; 2] = [2500.0, 0.002];
/// Parts of a depth.
const MOST_PARTS: usize = 16;

impl Cost {
    /// What products cost of which so many tiles are computed, of so many numbers.
    fn of(self, division: &Division, numbers: usize, tiles: usize, multiprocessors: usize) -> f64 {
        let beside = (tiles * division.parts).div_ceil(multiprocessors) as f64;
        let steps = division.run.div_ceil(DEPTH as usize) as f64;
        let [launch, each] = JOINING;
        let joining = match division.parts {
            1 => 0.0,
            parts => launch + each * (parts * numbers) as f64,
        };
        steps * self.latency.max(beside * self.work) + joining
    }
}

/// How the sum of a row and a column is found without a tile.
pub(super) type Anew<'t, 'k> = &'t dyn Fn(Value<'k>, Value<'k>) -> Value<'k>;

/// What one workgroup of a tiled product knows.
pub(super) struct Tile<'t, 'k> {
    /// Who computes what of it.
    pub tiling: Tiling,
    /// The first row and the first column of its tile.
    pub start: [Value<'k>; 2],
    /// Rows, columns and depth of the whole product.
    pub size: [Value<'k>; 3],
    /// How the elements of both sides lie in memory. The tile shares them so too, and computes with their [values](Storage::value).
    pub storage: Storage,
    /// How sums are found of which one is no number, where what a tile multiplies by zeros is no product.
    pub anew: Option<Anew<'t, 'k>>,
}

/// Hands an invocation's sums on, those inside a product of so many rows and columns; `at` says where each is. If any of them is no number, and there is
/// a way to find them `anew`, all are found so: then their numbers are not known before the kernel runs, and another function says where they are.
pub(super) fn hand_on<'k>(
    k: &'k Builder,
    [rows, columns]: [Value<'k>; 2],
    sums: &[Variable<'k>],
    at: impl Fn(u32) -> [Value<'k>; 2],
    anew: Option<(Anew<'_, 'k>, impl Fn(Value<'k>) -> [Value<'k>; 2])>,
    write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
) {
    let write_all = || {
        for (n, sum) in (0_u32..).zip(sums) {
            let [row, column] = at(n);
            k.when(row.below(rows) & column.below(columns), || write(row, column, sum.get()));
        }
    };
    let Some((anew, place)) = anew else { return write_all() };
    let is_none = sums.iter().fold(k.value(false), |is_none, sum| is_none | sum.get().is_nan());
    k.when(!is_none, write_all);
    k.when(is_none, || {
        k.range(0_u32, sums.len() as u32, 1_u32, |n| {
            let [row, column] = place(n);
            k.when(row.below(rows) & column.below(columns), || write(row, column, anew(row, column)));
        });
    });
}

impl<'k> Tile<'_, 'k> {
    /// A tile of the sums of `lhs(row, depth)` times the right side's elements, handed to `write(row, column, sum)`. The functions are asked for
    /// elements inside the product alone.
    pub(super) fn product(
        &self,
        k: &'k Builder,
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        rhs: impl Right<'k>,
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        match self.tiling {
            Tiling::Invocations(each) => self.by_invocations(k, each, lhs, rhs, write),
            Tiling::Quads(each) => self.by_quads(k, each, lhs, rhs, write),
            Tiling::Warps(factors, each) => {
                let &Self { start, size, anew, .. } = self;
                WarpTile { factors, each, start, size }.product(k, lhs, rhs, write, anew);
            }
        }
    }

    fn by_invocations(
        &self,
        k: &'k Builder,
        each: [u32; 2],
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        rhs: impl Right<'k>,
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let ([row_start, column_start], [rows, columns, depth]) = (self.start, self.size);
        let zero = k.whole(0, self.storage.value());
        let [high, wide] = self.tiling.tile();
        let (left, right) = (self.shared(k, high), self.shared(k, wide));
        let across = k.builtin(Builtin::LocalX) * each[1].min(RUN);
        let down = k.builtin(Builtin::LocalY) * each[0].min(RUN);
        let local = k.builtin(Builtin::LocalIndex);
        let held = |count: u32| (0..count).map(|_| k.variable(zero)).collect::<Vec<_>>();
        let sums = held(each[0] * each[1]);

        // An invocation brings as many elements of either side as it has rows, or columns: of the left one neighbours along the depth are brought by
        // neighbouring invocations, of the right one neighbouring columns. While the workgroup computes, it has read what comes next already.
        let (left_row, left_depth, left_step) = (local / DEPTH, local % DEPTH, SIDE * SIDE / DEPTH);
        let (right_depth, right_column, right_step) = (local / wide, local % wide, SIDE * SIDE / wide);
        let rhs = Staged::new(k, rhs, self.size, DEPTH);
        let column = rhs.column(column_start + right_column);
        let (lefts, rights) = (held(each[0]), held(each[1]));
        let read = |first: Value<'k>| {
            let at = first + left_depth;
            for (n, held) in (0_u32..).zip(&lefts) {
                let row = row_start + left_row + n * left_step;
                held.set(zero);
                k.when(row.below(rows) & at.below(depth), || held.set(lhs(row, at)));
            }
            for (n, held) in (0_u32..).zip(&rights) {
                held.set(rhs.element([first, right_depth + n * right_step], &column, zero));
            }
        };
        // Neighbours along the depth go to the same row of the left side: rows are shifted by it, in whole runs, so that they do not go to one bank.
        let shifted = |row: Value<'k>, depth: Value<'k>| row ^ (depth % (2 * RUN) * RUN);

        rhs.begin(local);
        read(k.value(0_u32));
        rhs.end_first(k);
        k.range(0_u32, depth, DEPTH, |first| {
            rhs.bring(local, first + DEPTH);
            for (n, held) in (0_u32..).zip(&lefts) {
                let row = shifted(left_row + n * left_step, left_depth);
                left.set(left_depth * high + row, held.get());
            }
            for (n, held) in (0_u32..).zip(&rights) {
                right.set((right_depth + n * right_step) * wide + right_column, held.get());
            }
            k.barrier();
            read(first + DEPTH);
            k.range(0_u32, DEPTH, 2 * RUN, |d| {
                for n in 0..2 * RUN {
                    let (row, column) = ((d + n) * high + (down ^ (n * RUN)), (d + n) * wide + across);
                    let of_rows: Vec<_> = (0..each[0]).map(|n| left.at(row + own(each[0], n))).collect();
                    let of_columns: Vec<_> =
                        (0..each[1]).map(|n| right.at(column + own(each[1], n))).collect();
                    add_products(&sums, &of_rows, &of_columns);
                }
            });
            k.barrier();
        });
        let at = |n| {
            let row = row_start + down + own(each[0], n / each[1]);
            [row, column_start + across + own(each[1], n % each[1])]
        };
        let place = |n: Value<'k>| {
            let own = |each: u32, n: Value<'k>| {
                let run = each.min(RUN);
                n / run * (SIDE * run) + n % run
            };
            [row_start + down + own(each[0], n / each[1]), column_start + across + own(each[1], n % each[1])]
        };
        hand_on(k, [rows, columns], &sums, at, self.anew.map(|anew| (anew, place)), write);
    }

    /// Memory that the workgroup shares, for so many rows or columns.
    pub(super) fn shared(&self, k: &'k Builder, length: u32) -> Array<'k> {
        k.shared_elements(self.storage, length * DEPTH)
    }
}

/// How far the `n`-th of `each` rows, or columns, of an invocation is from its first one: in runs, between which those of the others are.
fn own(each: u32, n: u32) -> u32 {
    let run = each.min(RUN);
    n / run * (SIDE * run) + n % run
}

/// Adds the products of each row with each column to the sums, row by row.
pub(super) fn add_products<'k>(sums: &[Variable<'k>], lefts: &[Value<'k>], rights: &[Value<'k>]) {
    for (sums, &a) in sums.chunks(rights.len()).zip(lefts) {
        for (sum, &b) in sums.iter().zip(rights) {
            sum.set(a.fma(b, sum.get()));
        }
    }
}

/// What is done to a sum before it is written.
pub(super) struct Epilogue<T> {
    /// Where the bias is, if one is added.
    pub bias: Option<T>,
    /// What is done at last.
    pub activation: Option<Activation>,
}

impl<T: Copy> Epilogue<T> {
    /// The sum, finished; `read` reads the bias.
    pub(super) fn apply<'k>(&self, sum: Value<'k>, read: impl FnOnce(T) -> Value<'k>) -> Value<'k> {
        let sum = match self.bias {
            Some(bias) => sum + read(bias),
            None => sum,
        };
        match self.activation {
            Some(activation) => elementwise::activation(activation, sum),
            None => sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On 132 multiprocessors.
    fn cheapest(size: [usize; 3], most_parts: usize) -> Division {
        let tilings = [EACH].into_iter().chain(OTHERS).map(Tiling::Invocations);
        Division::cheapest(tilings, size, 1, 132, most_parts).expect("tiles that were measured")
    }

    #[test]
    fn the_tile_of_a_whole_depth_is_not_that_of_its_parts() {
        let size = [256, 256, 4096];
        let (divided, whole) = (cheapest(size, MOST_PARTS), cheapest(size, 1));
        assert!(divided.parts > 1, "{divided:?}");
        assert_eq!((whole.parts, whole.run), (1, 4096));
        assert_ne!(divided.tiling, whole.tiling);
    }
}
