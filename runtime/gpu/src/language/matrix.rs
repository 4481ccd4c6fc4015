//! What the invocations of a warp do together: products of small matrices by tensor cores, and exchanges of numbers.
//!
//! A warp is 32 invocations whose positions in the workgroup follow each other; their numbers in it are *lanes*. All invocations of the
//! workgroup, which has one row of them and whole warps, come to each of these together. Only CUDA C++ has them
//! ([`Runtime::factors`](crate::runtime::Runtime::factors) says which a device multiplies).
//!
//! A product adds a matrix of 16 rows by `k` times one of `k` rows by 8 columns to 16 rows by 8 columns of sums. A lane holds parts of
//! all three in words ("PTX ISA", chapter "Warp Level Matrix Multiply-Accumulate Instructions"). With `g = lane / 4` and `t = lane % 4`,
//! where a word is 4 bytes of elements along `k`, of which there are 8 words whatever the elements are:
//!
//! - left, 4 words: of row `g` word `t`, of row `g + 8` word `t`, of row `g` word `t + 4`, of row `g + 8` word `t + 4`;
//! - right, 2 words: of column `g` word `t`, of column `g` word `t + 4`;
//! - sums, 4 numbers: of row `g` columns `2 t` and `2 t + 1`, of row `g + 8` the same columns.

use super::{Array, Builder, Fours, Id, Op, Statement, Type, Value, Variable};

/// The logarithm of e to base 2, without its first 24 bits.
const LOG2_E_REST: f32 = 1.925_963e-8;

/// What a device multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Factors {
    /// 16-bit floats, two in a word; sums are [`Type::F32`].
    F16,
    /// The upper halves of 32-bit floats, two in a word; sums are [`Type::F32`].
    BF16,
    /// 32-bit floats that are [rounded](Factors::word) to 11 bits; sums are [`Type::F32`].
    TF32,
    /// Signed integers of 8 bits, four in a word; sums are [`Type::I32`].
    I8,
    /// Unsigned integers of 8 bits, four in a word; sums are [`Type::I32`].
    U8,
}

impl Factors {
    /// Elements of a word.
    pub fn per_word(self) -> u32 {
        match self {
            Factors::TF32 => 1,
            Factors::F16 | Factors::BF16 => 2,
            Factors::I8 | Factors::U8 => 4,
        }
    }

    /// The word of as many floats as it takes, rounded.
    ///
    /// # Panics
    /// When these are integers, or another number of floats.
    pub fn word<'k>(self, floats: &[Value<'k>]) -> Value<'k> {
        let op = match (self, floats) {
            (Factors::TF32, &[x]) => WarpOp::Single(x.id()),
            (Factors::F16, &[low, high]) => WarpOp::Halves(low.id(), high.id()),
            (Factors::BF16, &[low, high]) => WarpOp::UpperHalves(low.id(), high.id()),
            (Factors::TF32 | Factors::F16 | Factors::BF16 | Factors::I8 | Factors::U8, _) => {
                unreachable!("{} floats for a word of {self:?}", floats.len())
            }
        };
        floats[0].kernel().number(Type::U32, Op::Warp(op))
    }

    /// The floats of a word, as many as it holds.
    ///
    /// # Panics
    /// When these are integers.
    pub fn floats<'k>(self, word: Value<'k>) -> Vec<Value<'k>> {
        let half = |word: Value<'k>| word.kernel().number(Type::F32, Op::Warp(WarpOp::Half(word.id())));
        match self {
            Factors::TF32 => vec![word.bits(Type::F32)],
            Factors::F16 => vec![half(word), half(word >> 16_u32)],
            Factors::BF16 => {
                [word << 16_u32, word & 0xffff_0000_u32].map(|word| word.bits(Type::F32)).to_vec()
            }
            Factors::I8 | Factors::U8 => unreachable!("{self:?} are no floats"),
        }
    }
}

/// Numbers for products, and for what is done around them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WarpOp {
    /// A float rounded to TF32, halves away from 0.
    Single(Id),
    /// Two floats as 16-bit ones, the first in the lower half.
    Halves(Id, Id),
    /// Two floats as upper halves, the first in the lower half.
    UpperHalves(Id, Id),
    /// The 16-bit float in the lower half of a word.
    Half(Id),
    /// `2^x` of a 32-bit float.
    PowerOfTwo(Id),
    /// The same, but 0 instead of what is below `2^-126`.
    RoughPowerOfTwo(Id),
    /// The number of the lane whose number differs in these bits.
    Exchange(Id, u32),
    /// The same `u32`, of which the compiler knows nothing.
    Anew(Id),
}

/// What a warp does with matrices.
#[derive(Clone, Debug, PartialEq)]
pub enum MatrixStep {
    /// Adds a product to sums, which are variables.
    Multiply {
        /// What is multiplied.
        factors: Factors,
        /// The lane's words of the left side.
        left: [Id; 4],
        /// Those of the right side.
        right: [Id; 2],
        /// Its sums.
        sums: [Id; 4],
    },
    /// Reads four matrices of 8 rows by 4 words: where row `r` of matrix `m` begins is said by lane `8 m + r`, a multiple of 4 words. A
    /// lane gets a word of each: word `t` of row `g`, or transposed the 16-bit elements of column `g` in rows `2 t` and `2 t + 1`.
    Load {
        /// Names the words.
        words: [Id; 4],
        /// Which shared array.
        array: u32,
        /// The lane's row.
        index: Id,
        /// Whether by columns.
        transposed: bool,
    },
    /// Writes four words of a shared array, from a multiple of 4 on. Each invocation does this for itself.
    StoreFour {
        /// Which array.
        array: u32,
        /// The first.
        index: Id,
        /// What.
        words: [Id; 4],
    },
    /// Begins to copy four words of a buffer of fours to a shared array, to a multiple of 4, or zeros. Each invocation does this for itself, and
    /// goes on meanwhile.
    CopyFour {
        /// Which array.
        array: u32,
        /// The first word there.
        index: Id,
        /// Which buffer.
        buffer: u32,
        /// Which four.
        four: Id,
        /// Whether it is that, rather than zeros.
        within: Id,
    },
    /// Waits until all that the invocation began to copy is there: for itself, and behind a barrier for others.
    CopiesDone,
}

impl Builder {
    /// Waits for copies: see [`MatrixStep::CopiesDone`].
    pub fn copies_done(&self) {
        self.push(Statement::Matrix(MatrixStep::CopiesDone));
    }

    /// Adds a product to sums: see [`MatrixStep::Multiply`].
    pub fn multiply<'k>(
        &'k self,
        factors: Factors,
        left: [Value<'k>; 4],
        right: [Value<'k>; 2],
        sums: [Variable<'k>; 4],
    ) {
        let (left, right) = (left.map(Value::id), right.map(Value::id));
        let sums = sums.map(Variable::id);
        self.push(Statement::Matrix(MatrixStep::Multiply { factors, left, right, sums }));
    }
}

impl<'k> Array<'k> {
    /// Reads four matrices: see [`MatrixStep::Load`].
    pub fn matrices(self, index: Value<'k>, transposed: bool) -> [Value<'k>; 4] {
        let k = index.kernel();
        let words = [(); 4].map(|()| k.name(Type::U32));
        let (array, index, ids) = (self.index(), index.id(), words.map(Value::id));
        k.push(Statement::Matrix(MatrixStep::Load { words: ids, array, index, transposed }));
        words
    }

    /// Writes four words: see [`MatrixStep::StoreFour`].
    pub fn set_four(self, index: Value<'k>, words: [Value<'k>; 4]) {
        let (array, at) = (self.index(), index.id());
        let words = words.map(Value::id);
        index.kernel().push(Statement::Matrix(MatrixStep::StoreFour { array, index: at, words }));
    }
}

impl<'k> Fours<'k> {
    /// Begins to copy a four, or zeros, to a shared array: see [`MatrixStep::CopyFour`].
    pub fn copy(self, four: Value<'k>, within: Value<'k>, array: Array<'k>, index: Value<'k>) {
        let (array, buffer) = (array.index(), self.index());
        let [index, four, within] = [index, four, within].map(Value::id);
        self.kernel().push(Statement::Matrix(MatrixStep::CopyFour { array, index, buffer, four, within }));
    }
}

impl<'k> Value<'k> {
    /// `e^x` of a 32-bit float by the device's own power of two, for what is rounded to 16 bits then: exact to `2^-22` times `1 + |x|`, and 0 below
    /// `2^-126`.
    pub fn rough_exp(self) -> Value<'k> {
        (self * std::f32::consts::LOG2_E).rough_power_of_two()
    }

    /// `2^x` likewise.
    pub fn rough_power_of_two(self) -> Value<'k> {
        self.kernel().number(Type::F32, Op::Warp(WarpOp::RoughPowerOfTwo(self.id())))
    }

    /// `e^x` of a 32-bit float that is not above 0, by the device's own power of two: 3 ulp; 0 below -104.
    pub fn shrinking_exp(self) -> Value<'k> {
        let power = |x: Value<'k>| self.kernel().number(Type::F32, Op::Warp(WarpOp::PowerOfTwo(x.id())));
        let exponent = self * std::f32::consts::LOG2_E;
        // What rounding took from the exponent, and what the constant lacks.
        let rest = self.fma(LOG2_E_REST, self.fma(std::f32::consts::LOG2_E, -exponent));
        let y = power(exponent);
        self.below(-104.0).select(0.0, y.fma(rest * std::f32::consts::LN_2, y))
    }

    /// The same `u32`, of which the compiler knows nothing: what is read there in a loop is read each time, and takes no registers meanwhile.
    pub fn anew(self) -> Value<'k> {
        self.kernel().number(self.ty(), Op::Warp(WarpOp::Anew(self.id())))
    }

    /// The number of the lane whose number differs in these bits.
    pub fn exchanged(self, lanes: u32) -> Value<'k> {
        self.kernel().number(self.ty(), Op::Warp(WarpOp::Exchange(self.id(), lanes)))
    }
}
