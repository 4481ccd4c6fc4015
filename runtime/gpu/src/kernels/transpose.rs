//! Copies that lay rows as columns: a workgroup reads a tile along the one and writes it along the other, so that neighbouring invocations
//! read neighbours as well as write them.

use super::access::{self, Walk, word};
use super::epilogue::{self, EpilogueProgram};
use super::{LINE, block, launch_blocks};
use crate::language::{Builder, Builtin, Kernel};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::DType;
use kiln_tensor::backend::Layout;

/// A copy of batches of matrices, each of whose rows is a column of the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transpose {
    /// The elements' dtype.
    pub dtype: DType,
    /// Number of dims that batches have.
    pub batch: usize,
    /// What is done to each result after that.
    pub epilogues: Vec<EpilogueProgram>,
}

/// Elements from which on a tile is worth its barrier: fewer are in a cache when their neighbours are asked for.
const LEAST: usize = 1 << 16;
/// Rows and columns from which on most of a tile is used.
const LEAST_OF_SIDE: usize = 16;

/// Rows, and columns, of a tile: of narrow elements more, so that as many bytes are asked for at once.
fn side(bytes: usize) -> u32 {
    if bytes <= 2 { 64 } else { 32 }
}

impl Transpose {
    /// The kernel. Buffers: the elements, the result. Parameters: its `block`; rows and columns of the result, where the elements begin, the stride
    /// from a column to the next, and that from a row of the result to the next; the dims of batches, the elements' strides over them, the result's.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("transpose", [LINE, 1], |k| {
            let storage = held_as(self.dtype);
            let side = side(storage.bytes());
            let (input, output) = (k.input(storage), k.output(storage));
            let [block_column, block_row, block_batch] = block(k);
            let (rows, columns) = (k.parameter(), k.parameter());
            let (start, column_step, row_step) = (k.parameter(), k.parameter(), k.parameter());
            let batches = access::coordinates(block_batch, &k.parameters(self.batch));
            let first_read = access::offset(start, &batches, &k.parameters(self.batch));
            let first_written = access::offset(k.value(0_u32), &batches, &k.parameters(self.batch));
            let epilogues = epilogue::declare(k, &self.epilogues);

            // What one invocation reads of a row after another goes to a bank of its own, where elements are held as numbers of 32 bits, as CUDA
            // does it.
            let pitch = side + 1;
            let tile = k.shared_elements(storage, side * pitch);
            let local = k.builtin(Builtin::LocalIndex);
            let (lane, line) = (local % side, local / side);
            let lines = || (0..side * side / LINE).map(|n| line + n * (LINE / side));
            let (first_row, first_column) = (block_row * side, block_column * side);
            // All of it is asked for at once: a place beyond the matrix is its last.
            let row = (first_row + lane).min(rows - 1_u32);
            let read: Vec<_> = lines()
                .map(|line| {
                    let column = (first_column + line).min(columns - 1_u32);
                    (line, input.at(first_read + row + column * column_step))
                })
                .collect();
            read.into_iter().for_each(|(line, x)| tile.set(line * pitch + lane, x));
            k.barrier();
            let column = first_column + lane;
            for line in lines() {
                let row = first_row + line;
                k.when(row.below(rows) & column.below(columns), || {
                    let at = first_written + row * row_step + column;
                    output.set(at, epilogue::apply(&epilogues, at, tile.at(lane * pitch + line)));
                });
            }
        })
    }
}

/// Copies a view of as many elements as `to` has, which is row-major from the start of its memory; says whether it is one that lays rows as
/// columns, and large enough.
pub(super) fn copy_into<R: Runtime>(from: &GpuTensor<R>, view: &Layout, to: &GpuTensor<R>) -> bool {
    let walk = Walk::new(to.dims(), &[&view.strides, &to.layout.strides]);
    let (Some((&columns, dims)), [read, written]) = (walk.dims.split_last(), walk.strides.as_slice()) else {
        return false;
    };
    let Some(rows_axis) = read.iter().take(dims.len()).position(|&stride| stride == 1) else { return false };
    let (rows, column_step) = (dims[rows_axis], read[dims.len()]);
    let is_large = to.len() >= LEAST && rows.min(columns) >= LEAST_OF_SIDE;
    let are_visible = from.is_visible() && to.is_visible();
    if !is_large || !are_visible || column_step == 1 || !R::limits(&to.device).shared_memory {
        return false;
    }
    let batch = || (0..dims.len()).filter(|&axis| axis != rows_axis);
    let mut words = vec![rows as u32, columns as u32, view.offset as u32];
    words.extend([word(column_step), word(written[rows_axis])]);
    words.extend(batch().map(|axis| dims[axis] as u32));
    words.extend(batch().map(|axis| word(read[axis])));
    words.extend(batch().map(|axis| word(written[axis])));
    let side = side(held_as(to.dtype).bytes()) as usize;
    let count = batch().map(|axis| dims[axis]).product();
    let blocks = [columns.div_ceil(side), rows.div_ceil(side), count];
    let template = Transpose { dtype: to.dtype, batch: dims.len() - 1, epilogues: Vec::new() };
    launch_blocks::<R>(&to.device, template, &[from, to], &words, blocks, true);
    true
}
