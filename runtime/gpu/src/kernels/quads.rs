//! Tiles of products whose left side goes from invocation to invocation: four neighbours of a subgroup compute the same rows. Each reads one
//! of four elements of a row along the depth, straight from memory, and hands it to the others. The workgroup shares the right side alone,
//! so that it needs half the room, and reads its shared memory half as often.
//!
//! A quad is handed numbers on every device with subgroups, however many lanes those have. Which invocations are a quad is the device's to
//! say, so that their places in the tile follow from subgroups and lanes. For that subgroups have to be full, which they are where their size divides that
//! of the workgroup, as it does everywhere: it is a power of two from 4 to 128.

use super::right::{Right, Staged};
use super::tiling::{DEPTH, SIDE, Tile, add_products, hand_on};
use crate::language::{Array, Builder, Builtin, Value, Variable};

/// Invocations of a quad.
const QUAD: u32 = 4;

impl<'k> Tile<'_, 'k> {
    /// [`Tile::product`] by quads, of whose invocations each computes so many rows and columns.
    pub(super) fn by_quads(
        &self,
        k: &'k Builder,
        each: [u32; 2],
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        rhs: impl Right<'k>,
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let (row_start, [rows, _, depth]) = (self.start[0], self.size);
        let zero = k.whole(0, self.storage.value());
        let [_, wide] = self.tiling.tile();
        let right = self.shared(k, wide);
        let lane = k.builtin(Builtin::SubgroupLane);
        let lanes = k.value(SIDE * SIDE) / k.builtin(Builtin::Subgroups);
        let own = k.builtin(Builtin::Subgroup) * lanes + lane;
        let (x, y, of_four) = (own % SIDE, own / SIDE, lane % QUAD);
        let sums: Vec<_> = (0..each[0] * each[1]).map(|_| k.variable(zero)).collect();
        let local = k.builtin(Builtin::LocalIndex);
        let rhs = Staged::new(k, rhs, self.size, DEPTH);
        let bring_right = self.right_side(right, [zero, local], &rhs);

        rhs.begin(local);
        k.range(0_u32, depth, DEPTH, |first| {
            bring_right(first);
            k.barrier();
            rhs.bring(local, first + DEPTH);
            k.range(0_u32, DEPTH, QUAD, |d| {
                let at = first + d + of_four;
                let read = |n: u32| {
                    let (row, element) = (row_start + y + n * SIDE, k.variable(zero));
                    k.when(row.below(rows) & at.below(depth), || element.set(lhs(row, at)));
                    element.get()
                };
                let read: Vec<_> = (0..each[0]).map(read).collect();
                for n in 0..QUAD {
                    let lefts: Vec<_> = read.iter().map(|element| element.of_quad(n)).collect();
                    let rights: Vec<_> =
                        (0..each[1]).map(|m| right.at((d + n) * wide + x + m * SIDE)).collect();
                    add_products(&sums, &lefts, &rights);
                }
            });
            k.barrier();
        });
        self.write_sums(k, [y, x], &sums, write);
    }

    /// What brings [`DEPTH`] rows of the right side, from one on, into memory that the workgroup shares: row by row, zeros beyond the
    /// product. It is handed a zero, and the invocation's place in the workgroup.
    fn right_side<R: Right<'k>>(
        &self,
        right: Array<'k>,
        [zero, local]: [Value<'k>; 2],
        rhs: &Staged<'k, R>,
    ) -> impl Fn(Value<'k>) {
        let [_, wide] = self.tiling.tile();
        let (right_depth, right_column) = (local / wide, local % wide);
        let column = rhs.column(self.start[1] + right_column);
        let right_step = SIDE * SIDE / wide;
        move |first| {
            for n in 0..wide / SIDE {
                let place = right_depth + n * right_step;
                right.set(place * wide + right_column, rhs.element([first, place], &column, zero));
            }
        }
    }

    /// Hands on the sums of the invocation at a row and a column of a workgroup.
    fn write_sums(
        &self,
        k: &'k Builder,
        [y, x]: [Value<'k>; 2],
        sums: &[Variable<'k>],
        write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let ([row_start, column_start], [rows, columns, _]) = (self.start, self.size);
        let [_, wide] = self.tiling.tile();
        let across = wide / SIDE;
        let at = |n| [row_start + y + n / across * SIDE, column_start + x + n % across * SIDE];
        let place = |n: Value<'k>| [row_start + y + n / across * SIDE, column_start + x + n % across * SIDE];
        hand_on(k, [rows, columns], sums, at, self.anew.map(|anew| (anew, place)), write);
    }
}
