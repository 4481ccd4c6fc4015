//! Products of few rows and columns and much depth, as of a weight's gradient: the depth's blocks are computed side by side, then added up.

use super::pack::{Part, depth_blocks, pack_lhs, pack_rhs_panel};
use super::tile::Kernels;
use super::{Epilogue, Matrix, Panels, Product};
use crate::scratch::with_scratch;
use crate::size::elements;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

/// Elements of a result of which there may be one for each block, and which are worth it.
const FEW: RangeInclusive<usize> = 16 * 16..=64 * 64;
/// Blocks that are worth it.
const BLOCKS: usize = 4;

/// Whether this file's way is the one.
pub(super) fn suits(m: usize, n: usize, k: usize) -> bool {
    FEW.contains(&m.saturating_mul(n)) && k > BLOCKS * super::pack::BLOCK_DEPTH
}

/// `C = A · B`. Each element is the sum of the blocks' sums in their order, to the bit what [`Product`] makes of it.
///
/// # Panics
/// When an operand does not hold its dims.
pub(super) fn deep_product(
    m: usize,
    n: usize,
    k: usize,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    c_step: usize,
) {
    a.check(m, k, "left operand");
    b.check(k, n, "right operand");
    let blocks: Vec<Range<usize>> = depth_blocks(k).collect();
    with_scratch(elements(&[blocks.len(), m, n]), |sums| {
        let shared = SharedMut::new(sums);
        let kernels = Kernels::current();
        parallel_for(blocks.len(), m * n * k / blocks.len() / 50 + 1, |range| {
            for block in range {
                let depth = blocks[block].clone();
                // SAFETY: each block has its own sums.
                let sums = unsafe { shared.slice(block * m * n..(block + 1) * m * n) };
                let a = Matrix { data: &a.data[depth.start * a.col_stride..], ..a };
                let b = Matrix { data: &b.data[depth.start * b.row_stride..], ..b };
                let depth = depth.len();
                with_scratch(m * depth, |packed| {
                    pack_lhs(&kernels, a, m, depth, packed);
                    // SAFETY: all of `B` was checked, of which this is a part of the rows.
                    let fill = |part: Part, to: *mut f32| unsafe { pack_rhs_panel(b, part, to) };
                    let b = match b.col_stride {
                        // Packing pays when each panel is used a few times.
                        1 if m <= 2 * kernels.rows => Panels::Rows(b.data, b.row_stride),
                        _ => Panels::Fill(&fill),
                    };
                    let (c, epilogue) = (&SharedMut::new(sums), &Epilogue::default());
                    let (a, c_start, c_step) = (&*packed, 0, n);
                    Product { m, n, k: depth, a, b, c, c_start, c_step, adds: false, epilogue }.run_here();
                });
            }
        });
        for (block, sums) in sums.chunks_exact(m * n).enumerate() {
            for (to, from) in c.chunks_mut(c_step).zip(sums.chunks_exact(n)) {
                match block {
                    0 => to[..n].copy_from_slice(from),
                    _ => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
                }
            }
        }
    });
}
