//! What every kernel of products reads: two sides, perhaps a bias and groups of rows, and what comes after.

use super::access::{self, Access, Operand};
use super::block;
use super::epilogue::{self, Declared, EpilogueProgram};
use super::grouped::Groups;
use crate::language::{Buffer, Builder, Value};

/// A batch of products, as a workgroup sees it.
pub(super) struct ProductParameters<'t, 'k> {
    /// Columns, rows and the number of the product, in blocks.
    pub block: [Value<'k>; 3],
    /// Rows, columns and depth.
    pub size: [Value<'k>; 3],
    /// Where the left side starts, and its strides, outer before inner.
    pub left: (Value<'k>, [Value<'k>; 2]),
    /// Likewise the right side.
    pub right: (Value<'k>, [Value<'k>; 2]),
    /// The bias, where it starts, and its stride.
    pub bias: Option<(Buffer<'k>, Value<'k>, Value<'k>)>,
    /// The groups of rows, if there are such.
    pub groups: Option<Groups<'k>>,
    /// What is done to each result before it is written.
    pub epilogues: Vec<Declared<'t, 'k>>,
}

impl<'t, 'k> ProductParameters<'t, 'k> {
    /// The next parameters: the [`block`]; rows, columns, depth; of products `in_parts` of their depth how many parts there are, the depth of each,
    /// and the number of products; the batch's dims and both operands; the strides of both sides; where the bias
    /// starts and its stride; the [groups](Groups::declare) that end as a buffer says; what [comes after](then). Each part is a product of its own then: all first parts come before the second ones.
    pub fn declare(
        k: &'k Builder,
        (left, right, rank): (Access, Access, usize),
        bias: Option<Buffer<'k>>,
        ends: Option<Buffer<'k>>,
        epilogues: &'t [EpilogueProgram],
        in_parts: bool,
    ) -> Self {
        let two = || [k.parameter(), k.parameter()];
        let mut block = block(k);
        let mut size = [k.parameter(), k.parameter(), k.parameter()];
        let parts = in_parts.then(|| [k.parameter(), k.parameter(), k.parameter()]);
        let dims = k.parameters(rank);
        let [left, right] = [left, right].map(|access| Operand::declare(k, access, rank));
        let [left_strides, right_strides] = [two(), two()];
        let bias = bias.map(|bias| (bias, k.parameter(), k.parameter()));
        let groups = ends.map(|ends| Groups::declare(k, ends));
        let epilogues = epilogue::declare(k, epilogues);
        let mut number = block[2];
        let mut first = None;
        if let Some([parts, run, count]) = parts {
            let part = number % parts;
            number = number / parts;
            block[2] = part * count + number;
            size[2] = run.min(size[2] - part * run);
            first = Some(part * run);
        }
        let coordinates = access::coordinates(number, &dims);
        let [mut left, mut right] = [left, right].map(|side| side.at(number, &coordinates));
        if let Some(first) = first {
            left = left + first * left_strides[1];
            right = right + first * right_strides[0];
        }
        Self {
            block,
            size,
            left: (left, left_strides),
            right: (right, right_strides),
            bias,
            groups,
            epilogues,
        }
    }
}
