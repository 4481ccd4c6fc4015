//! Products of 8-bit integers by tensor cores: exact sums in 32 bits.
//!
//! Bytes of both dtypes become signed: the upper bit of an unsigned one is flipped, which takes 128 of it and of its zero point. Zero
//! points are taken from the sums at last, where `Σ (a - p) (b - q) = Σ a b - q Σ a - p Σ b + Σ p q`.

use super::access::{self, Access, Operand, Walk};
use super::epilogue::{self, EpilogueProgram};
use super::right::Columns;
use super::warps::{self, Sum, WarpTile};
use super::{block, launch_blocks};
use crate::language::{Buffer, Builder, Factors, Kernel, Storage, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::GpuTensor;
use kiln_tensor::DType;
use kiln_tensor::backend::Layout;
use kiln_tensor::compose::{Quantized, ZeroPoint};

/// Rows and columns of a warp, in 16s. Not chosen on a GPU yet.
pub(super) const OF_WARP: [u32; 2] = [2, 2];

/// What is known of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Side {
    /// Its zero point, once its bytes are signed.
    pub zero: Zero,
    /// Whether its elements along the depth are read four at a time.
    pub in_words: bool,
}

/// The zero point of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zero {
    /// 0.
    None,
    /// A number that is told.
    Number,
    /// Bytes of a tensor: one, or one a row of the left side or a column of the right one.
    Tensor,
}

/// A side in a kernel.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'k> {
    side: Side,
    buffer: Buffer<'k>,
    /// The bit that is flipped, in each byte of a word.
    flip: Value<'k>,
    zero: ZeroAt<'k>,
}

#[derive(Clone, Copy)]
enum ZeroAt<'k> {
    None,
    Number(Value<'k>),
    /// The bytes, where they start, and from each to the next.
    Tensor(Buffer<'k>, Value<'k>, Value<'k>),
}

impl<'k> Bytes<'k> {
    /// The next buffers, and then the next parameters: the bit that is flipped; the number that is the zero point, or where its tensor
    /// starts and its stride.
    pub fn declare(k: &'k Builder, side: Side) -> impl FnOnce() -> Self {
        let buffer = k.input(if side.in_words { Storage::U32 } else { Storage::U8 });
        let tensor = (side.zero == Zero::Tensor).then(|| k.input(Storage::U8));
        move || {
            let flip = k.parameter();
            let zero = match (side.zero, tensor) {
                (Zero::Tensor, Some(tensor)) => ZeroAt::Tensor(tensor, k.parameter(), k.parameter()),
                (Zero::Number, _) => ZeroAt::Number(k.parameter_of(Type::I32)),
                (Zero::None | Zero::Tensor, _) => ZeroAt::None,
            };
            Self { side, buffer, flip, zero }
        }
    }

    /// The byte at a position, signed, in the lower bits.
    pub fn at(&self, position: Value<'k>) -> Value<'k> {
        (self.buffer.at(position) ^ self.flip) & 0xff_u32
    }

    /// A word of elements from a position on, of which `element` names those that follow where they are not read four at a time.
    pub fn word(
        &self,
        tile: &WarpTile<'k>,
        first: Value<'k>,
        is_any: Value<'k>,
        element: impl Fn(Value<'k>) -> Value<'k>,
    ) -> Value<'k> {
        let k = first.kernel();
        if !self.side.in_words {
            return packed(&tile.elements(first, is_any, k.value(0_u32), |at| self.at(element(at))));
        }
        // A side that is read in words has whole ones along the depth.
        let [_, _, depth] = tile.size;
        self.whole_word(is_any & first.below(depth), element(first))
    }

    /// A word of the elements from a position on; 0 where it is not there.
    fn whole_word(&self, is_there: Value<'k>, position: Value<'k>) -> Value<'k> {
        let word = is_there.kernel().variable(0_u32);
        is_there.kernel().when(is_there, || word.set(self.buffer.at(position / 4_u32) ^ self.flip));
        word.get()
    }

    /// The zero point of a row or a column, if it is not 0.
    pub fn zero(&self, at: Value<'k>) -> Option<Value<'k>> {
        match self.zero {
            ZeroAt::None => None,
            ZeroAt::Number(zero) => Some(zero),
            ZeroAt::Tensor(buffer, start, stride) => {
                let byte = (buffer.at(start + at * stride) ^ self.flip) & 0xff_u32;
                // The sign goes to the upper bits.
                Some((byte ^ 0x80_u32).bits(Type::I32) - 0x80)
            }
        }
    }

    /// Whether its zero point may be other than 0.
    pub fn has_zero(&self) -> bool {
        self.side.zero != Zero::None
    }
}

/// Four bytes as a word, the first in the lowest bits.
pub(super) fn packed<'k>(bytes: &[Value<'k>]) -> Value<'k> {
    let shifted = bytes.iter().zip([0_u32, 8, 16, 24]).map(|(&byte, bits)| byte << bits);
    shifted.reduce(|word, byte| word | byte).unwrap_or_else(|| unreachable!("a word has four bytes"))
}

/// A sum of products of `depth` bytes, less what zero points bring in.
pub(super) fn corrected<'k>(
    sum: &Sum<'k>,
    depth: Value<'k>,
    left: Option<Value<'k>>,
    right: Option<Value<'k>>,
) -> Value<'k> {
    let mut result = sum.of_products;
    if let (Some(right), Some(of_row)) = (right, sum.of_row) {
        result = result - right * of_row;
    }
    if let (Some(left), Some(of_column)) = (left, sum.of_column) {
        result = result - left * of_column;
    }
    match (left, right) {
        (Some(left), Some(right)) => result + depth.bits(Type::I32) * left * right,
        _ => result,
    }
}

/// A batch of products of matrices of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatmulInteger {
    /// Both sides.
    pub sides: [Side; 2],
    /// How the batches of both sides are walked, and over how many dims strides are told.
    pub batch: (Access, Access, usize),
    /// Rows and columns of a warp, in 16s.
    pub each: [u32; 2],
    /// What came after that.
    pub epilogues: Vec<EpilogueProgram>,
}

impl MatmulInteger {
    /// The kernel. Parameters: its `block`; rows, columns, depth; both sides (`Bytes::declare`); the batch's dims and both operands; the
    /// strides of both sides, outer before inner.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("quantized_matmul_by_warps", warps::GROUP, |k| {
            let [left_side, right_side] = self.sides.map(|side| Bytes::declare(k, side));
            let output = k.output(Storage::I32);
            let [block_column, block_row, batch] = block(k);
            let size = [k.parameter(), k.parameter(), k.parameter()];
            let (lhs, rhs) = (left_side(), right_side());
            let dims = k.parameters(self.batch.2);
            let [left, right] =
                [self.batch.0, self.batch.1].map(|access| Operand::declare(k, access, self.batch.2));
            let left_strides = [k.parameter(), k.parameter()];
            let right_strides = [k.parameter(), k.parameter()];
            let epilogues = epilogue::declare(k, &self.epilogues);
            let coordinates = access::coordinates(batch, &dims);
            let (left, right) = (left.at(batch, &coordinates), right.at(batch, &coordinates));
            let [high, wide] = warps::tile(self.each);
            let start = [block_row * high, block_column * wide];
            let tile = WarpTile { factors: Factors::I8, each: self.each, start, size };
            let [rows, columns, depth] = size;
            tile.product_of_words(
                k,
                |row, first| {
                    let start = left + row * left_strides[0];
                    lhs.word(&tile, first, row.below(rows), |at| start + at * left_strides[1])
                },
                Columns(
                    |column| right + column * right_strides[1],
                    |at, start| rhs.at(start + at * right_strides[0]),
                ),
                |word| match rhs.side.in_words {
                    true => {
                        rhs.whole_word(word.is_inside(), *word.column() + word.depth() * right_strides[0])
                    }
                    false => packed(&word.elements(k.value(0_u32))),
                },
                [rhs.has_zero(), lhs.has_zero()],
                |sum| {
                    let value = corrected(&sum, depth, lhs.zero(sum.row), rhs.zero(sum.column));
                    let position = (batch * rows + sum.row) * columns + sum.column;
                    output.set(position, epilogue::apply(&epilogues, position, value));
                },
            );
        })
    }
}

/// A side that kernels take.
pub(super) struct Given<'a, R: Runtime> {
    pub values: &'a GpuTensor<R>,
    pub side: Side,
    zero: Option<(&'a GpuTensor<R>, [u32; 2])>,
    number: i32,
}

impl<'a, R: Runtime> Given<'a, R> {
    /// Bytes with a zero point that is one number, or differs along the dim `varies`; `in_words` says whether they lie so.
    pub fn new(of: &'a Quantized<GpuTensor<R>>, varies: usize, in_words: bool) -> Option<Self> {
        let dtype = of.values.dtype;
        let flipped = flip(dtype)?;
        let (zero, number, tensor) = match &of.zero {
            ZeroPoint::Number(number) => {
                let number = number.checked_sub(flipped as i32)?;
                (if number == 0 { Zero::None } else { Zero::Number }, number, None)
            }
            ZeroPoint::Tensor(tensor) => {
                let mut others = tensor.dims().iter().enumerate().filter(|&(axis, _)| axis != varies);
                if tensor.dtype != dtype || others.any(|(_, &dim)| dim > 1) || !tensor.is_visible() {
                    return None;
                }
                let stride = if tensor.dims()[varies] > 1 { tensor.layout.strides[varies] } else { 0 };
                (Zero::Tensor, 0, Some((tensor, [tensor.layout.offset as u32, access::word(stride)])))
            }
        };
        // The border of an image is a zero point, which a byte holds then.
        let fits = i8::try_from(number).is_ok() && of.values.is_visible();
        fits.then_some(Self { values: &of.values, side: Side { zero, in_words }, zero: tensor, number })
    }

    /// The tensors that it has.
    pub fn tensors(&self) -> impl Iterator<Item = &'a GpuTensor<R>> {
        [self.values].into_iter().chain(self.zero.map(|(tensor, _)| tensor))
    }

    /// The words that tell a kernel of it: see [`Bytes::declare`].
    pub fn words(&self) -> impl Iterator<Item = u32> {
        let flip = flip(self.values.dtype).unwrap_or_default();
        let flip = if self.side.in_words { flip * 0x0101_0101 } else { flip };
        let number = (self.side.zero == Zero::Number).then_some(self.number as u32);
        let place = self.zero.map(|(_, words)| words);
        [flip].into_iter().chain(number).chain(place.into_iter().flatten())
    }
}

/// The bit of a byte that is flipped to make it signed, of dtypes of bytes.
fn flip(dtype: DType) -> Option<u32> {
    match dtype {
        DType::I8 => Some(0),
        DType::U8 => Some(0x80),
        DType::F64
        | DType::F32
        | DType::F16
        | DType::BF16
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I4
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U4
        | DType::Bool => None,
    }
}

/// Whether elements along a dim, of which there are so many, lie as whole words.
pub(super) fn lies_in_words(layout: &Layout, dim: usize) -> bool {
    let whole = |n: usize| n.is_multiple_of(4);
    let others = layout.strides.iter().enumerate().filter(|&(axis, _)| axis != dim);
    layout.strides[dim] == 1
        && whole(layout.shape.dims[dim])
        && whole(layout.offset)
        && others.map(|(_, stride)| stride.unsigned_abs()).all(whole)
}

/// The product of matrices over the last two dims, those before broadcast; nothing where the device does not multiply bytes so.
pub(crate) fn matmul<R: Runtime>(
    lhs: &Quantized<GpuTensor<R>>,
    rhs: &Quantized<GpuTensor<R>>,
) -> Option<GpuTensor<R>> {
    let device = &lhs.values.device;
    R::factors(device, DType::I8).filter(|&factors| factors == Factors::I8)?;
    let (a, b) = (&lhs.values, &rhs.values);
    let rank = a.dims().len();
    let [row, column] = [rank - 2, rank - 1];
    let size = [a.dims()[row], b.dims()[column], a.dims()[column]];
    let [rows, columns, depth] = size;
    let batch = Layout::contiguous(a.dims()[..row].to_vec().into()).shape;
    let batch = batch.broadcast(&b.dims()[..row].to_vec().into())?;
    let full = |last: [usize; 2]| [batch.dims.as_slice(), &last].concat().into();
    let (left, right) = (a.layout.expand(&full([rows, depth])), b.layout.expand(&full([depth, columns])));
    let left_side = Given::new(lhs, row, lies_in_words(&left, column))?;
    let right_side = Given::new(rhs, column, lies_in_words(&right, row))?;
    let out = GpuTensor::empty(full([rows, columns]), DType::I32, device);
    if out.is_empty() {
        return Some(out);
    }
    if !out.is_visible() || a.is_empty() {
        return None;
    }
    let walk = Walk::new(&batch.dims, &[&left.strides[..row], &right.strides[..row]]);
    let access = [walk.access(0), walk.access(1)];
    let strided = access.contains(&Access::Strided);
    let mut words = size.map(|n| n as u32).to_vec();
    words.extend(left_side.words().chain(right_side.words()));
    words.extend(walk.dim_words().filter(|_| strided));
    for (n, view) in [&left, &right].into_iter().enumerate() {
        words.push(view.offset as u32);
        words.extend(walk.stride_words(n));
    }
    let inner = |layout: &Layout| [layout.strides[row], layout.strides[column]].map(access::word);
    words.extend([inner(&left), inner(&right)].as_flattened());
    let mut tensors: Vec<_> = left_side.tensors().chain(right_side.tensors()).collect();
    tensors.push(&out);
    let template = MatmulInteger {
        sides: [left_side.side, right_side.side],
        batch: (access[0], access[1], if strided { walk.dims.len() } else { 0 }),
        each: OF_WARP,
        epilogues: Vec::new(),
    };
    let [high, wide] = warps::tile(OF_WARP).map(|n| n as usize);
    let blocks = [columns.div_ceil(wide), rows.div_ceil(high), batch.num_elements()];
    launch_blocks(device, template, &tensors, &words, blocks, true);
    Some(out)
}
