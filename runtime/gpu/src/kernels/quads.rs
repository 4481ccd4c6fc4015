//! Tiles of products whose left side goes from invocation to invocation: four neighbours of a subgroup compute the same rows. Each reads one
//! of four elements of a row along the depth, straight from memory, and hands it to the others. The workgroup shares the right side alone,
//! so that it needs half the room, and reads its shared memory half as often.
//!
//! A quad is handed numbers on every device with subgroups, however many lanes those have. Which invocations are a quad is the device's to
//! say, so that their places in the tile follow from subgroups and lanes. For that subgroups have to be full, which they are where their size divides that
//! of the workgroup, as it does everywhere: it is a power of two from 4 to 128.

use super::tiling::{DEPTH, SIDE, Tile, add_products};
use crate::language::{Builder, Builtin, Value};

/// Invocations of a quad.
const QUAD: u32 = 4;

impl<'k> Tile<'k> {
    /// [`Tile::product`] by quads, of whose invocations each computes so many rows and columns.
    pub(super) fn by_quads<C>(
        &self,
        k: &'k Builder,
        each: [u32; 2],
        lhs: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
        column: impl Fn(Value<'k>) -> C,
        rhs: impl Fn(Value<'k>, &C) -> Value<'k>,
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
        let bring_right = self.right_side(k, right, [zero, k.builtin(Builtin::LocalIndex)], column, rhs);

        k.range(0_u32, depth, DEPTH, |first| {
            bring_right(first);
            k.barrier();
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
}
