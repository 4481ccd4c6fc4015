//! A small language in which kernels are written once, for every kind of GPU.
//!
//! A kernel is what one invocation of a grid does: numbers that are computed once ([`Op`], each with an [`Id`]), variables,
//! loops, branches, and reads and writes of buffers. Kernels are built by Rust code ([`Builder`]) and printed in the
//! language of a device ([`wgsl`], [`cuda`]).
//!
//! Elements of fewer than 32 bits are converted as they are read and written: half-precision ones are computed as 32-bit floats, narrow
//! integers as those of 32 bits. Numbers of 64 bits are computed as they are, by devices that have them; where shaders have no such
//! integers, they compute with pairs of words. Kernels with elements of fewer than 32 bits other than [`Storage::F16`], or that
//! multiply matrices by tensor cores, are printed as CUDA C++ alone
//! ([`Runtime::supports`](crate::runtime::Runtime::supports) says what a device has).

mod builder;
pub mod cuda;
mod functions;
mod math;
mod matrix;
mod number;
mod print;
pub mod wgsl;

pub use builder::{Array, Buffer, Builder, Counters, Fours, Maxima, Value, Variable};
pub use matrix::{Factors, MatrixStep, WarpOp};
pub use number::Number;

/// The type of a number in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A 64-bit float.
    F64,
    /// A 32-bit float.
    F32,
    /// A signed integer of 64 bits; it wraps.
    I64,
    /// A signed integer of 32 bits; it wraps.
    I32,
    /// An unsigned integer of 64 bits; it wraps.
    U64,
    /// An unsigned integer of 32 bits; it wraps.
    U32,
    /// A truth value.
    Bool,
}

impl Type {
    /// Whether it is one of floats.
    pub fn is_float(self) -> bool {
        match self {
            Type::F64 | Type::F32 => true,
            Type::I64 | Type::I32 | Type::U64 | Type::U32 | Type::Bool => false,
        }
    }

    /// The words in which a number is told with a launch.
    pub fn words(self) -> usize {
        match self {
            Type::F64 | Type::I64 | Type::U64 => 2,
            Type::F32 | Type::I32 | Type::U32 | Type::Bool => 1,
        }
    }
}

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// 64-bit floats.
    F64,
    /// 32-bit floats.
    F32,
    /// 16-bit floats; numbers are rounded to the nearest as they are written.
    F16,
    /// The upper halves of 32-bit floats; numbers are rounded to the nearest, halves to even, as they are written, and NaN stays NaN.
    BF16,
    /// Signed integers of 64 bits.
    I64,
    /// Signed integers of 32 bits.
    I32,
    /// Signed integers of 16 bits; of numbers the lowest bits are written.
    I16,
    /// Signed integers of 8 bits; of numbers the lowest bits are written.
    I8,
    /// Unsigned integers of 64 bits.
    U64,
    /// Unsigned integers of 32 bits.
    U32,
    /// Unsigned integers of 16 bits; of numbers the lowest bits are written.
    U16,
    /// Unsigned integers of 8 bits; of numbers the lowest bits are written.
    U8,
    /// Truth values, 32 bits each: 0 or 1.
    Bool,
}

impl Storage {
    /// The type of an element that was read.
    pub fn value(self) -> Type {
        match self {
            Storage::F64 => Type::F64,
            Storage::F32 | Storage::F16 | Storage::BF16 => Type::F32,
            Storage::I64 => Type::I64,
            Storage::I32 | Storage::I16 | Storage::I8 => Type::I32,
            Storage::U64 => Type::U64,
            Storage::U32 | Storage::U16 | Storage::U8 => Type::U32,
            Storage::Bool => Type::Bool,
        }
    }

    /// The size of an element in memory.
    pub fn bytes(self) -> usize {
        match self {
            Storage::F64 | Storage::I64 | Storage::U64 => 8,
            Storage::F32 | Storage::I32 | Storage::U32 | Storage::Bool => 4,
            Storage::F16 | Storage::BF16 | Storage::I16 | Storage::U16 => 2,
            Storage::I8 | Storage::U8 => 1,
        }
    }

    /// Bits of a narrow integer, which has fewer than the type in which it is computed.
    pub fn narrow_bits(self) -> Option<u32> {
        match self {
            Storage::I16 | Storage::U16 => Some(16),
            Storage::I8 | Storage::U8 => Some(8),
            Storage::F64
            | Storage::F32
            | Storage::F16
            | Storage::BF16
            | Storage::I64
            | Storage::I32
            | Storage::U64
            | Storage::U32
            | Storage::Bool => None,
        }
    }
}

/// Names a number, or a variable, within its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u32);

/// What an invocation knows of its place in the grid; all are `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// Position within the workgroup, x fastest.
    LocalIndex,
    /// Position within the workgroup along x.
    LocalX,
    /// Position within the workgroup along y.
    LocalY,
    /// The workgroup's position along x.
    GroupX,
    /// The workgroup's position along y.
    GroupY,
    /// The workgroup's position along z.
    GroupZ,
    /// Number of workgroups along x.
    GroupsX,
    /// Which of its workgroup's subgroups the invocation is in.
    Subgroup,
    /// Of how many.
    Subgroups,
    /// Position within the subgroup.
    SubgroupLane,
}

/// Functions of one number. Those of floats are the device's own: for 32 bits `math` builds from them what is exact enough, for 64 bits
/// devices have all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `-x`.
    Neg,
    /// Not, of a truth value or of bits.
    Not,
    /// `|x|`.
    Abs,
    /// Square root.
    Sqrt,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// Largest integer not above.
    Floor,
    /// Smallest integer not below.
    Ceil,
    /// Nearest integer, halves to even.
    Round,
    /// Towards zero.
    Trunc,
    /// `e^x`, of 64-bit floats.
    Exp,
    /// `e^x` of a 32-bit float that is rounded to 16 bits then.
    ShortExp,
    /// `e^x - 1`, of 64-bit floats.
    ExpM1,
    /// Natural logarithm, of 64-bit floats.
    Log,
    /// `ln(1 + x)`, of 64-bit floats.
    Log1p,
    /// Tangent, of 64-bit floats.
    Tan,
    /// Inverse sine, of 64-bit floats.
    Asin,
    /// Inverse cosine, of 64-bit floats.
    Acos,
    /// Inverse tangent, of 64-bit floats.
    Atan,
    /// Hyperbolic sine, of 64-bit floats.
    Sinh,
    /// Hyperbolic cosine, of 64-bit floats.
    Cosh,
    /// Hyperbolic tangent, of 64-bit floats.
    Tanh,
    /// Inverse hyperbolic sine, of 64-bit floats.
    Asinh,
    /// Inverse hyperbolic cosine, of 64-bit floats.
    Acosh,
    /// Inverse hyperbolic tangent, of 64-bit floats.
    Atanh,
    /// Gauss error function, of 64-bit floats.
    Erf,
    /// What a 16-bit float holds of a 32-bit one: as [`Storage::F16`] is written.
    ToF16,
    /// Likewise [`Storage::BF16`].
    ToBF16,
}

/// Functions of two numbers of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a · b`.
    Mul,
    /// `a / b`; of integers towards zero, and `b` is not 0.
    Div,
    /// What [`Binary::Div`] leaves; with the sign of `a`.
    Rem,
    /// Bitwise and; of truth values the logical one.
    And,
    /// Bitwise or; of truth values the logical one.
    Or,
    /// Bitwise exclusive or; of truth values the logical one.
    Xor,
    /// Shift towards the high bits by the `u32` `b`, below the number of bits.
    ShiftLeft,
    /// Shift towards the low bits by the `u32` `b`, below the number of bits; arithmetic for signed integers.
    ShiftRight,
    /// The smaller; which one if either is NaN is not said.
    Min,
    /// The larger; which one if either is NaN is not said.
    Max,
    /// `a` to the power of `b`, of 64-bit floats.
    Pow,
    /// The angle of the point `(b, a)`, of 64-bit floats.
    Atan2,
}

/// Comparisons of two numbers of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `a == b`.
    Equal,
    /// `a != b`.
    NotEqual,
    /// `a < b`.
    Less,
    /// `a <= b`.
    LessEqual,
}

/// How a number is had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// A 64-bit float, by its bits: it may be NaN or infinite.
    F64(u64),
    /// A float, by its bits: it may be NaN or infinite.
    F32(u32),
    /// A signed integer of 64 bits.
    I64(i64),
    /// A signed integer.
    I32(i32),
    /// An unsigned integer of 64 bits.
    U64(u64),
    /// An unsigned integer.
    U32(u32),
    /// A truth value.
    Bool(bool),
    /// A word of what is told with each launch.
    Parameter(u32),
    /// The invocation's place.
    Builtin(Builtin),
    /// A function of one number.
    Unary(Unary, Id),
    /// A function of two numbers.
    Binary(Binary, Id, Id),
    /// A comparison.
    Compare(Comparison, Id, Id),
    /// `a · b + c`.
    Fma(Id, Id, Id),
    /// `condition ? then : otherwise`; both are computed.
    Select {
        /// Which.
        condition: Id,
        /// If true.
        then: Id,
        /// If false.
        otherwise: Id,
    },
    /// The number in another type: floats are truncated and saturate, NaN is not said; truth is 1.
    Convert(Id),
    /// The same bits in another type of as many.
    Bits(Id),
    /// The element of a buffer.
    Load(u32, Id),
    /// One of the four elements that a [`Statement::LoadFour`] read, by its place among them.
    OfFour(Id, u32),
    /// The element of an array that the workgroup shares.
    LoadShared(u32, Id),
    /// What a variable holds now.
    Get(Id),
    /// A number for products of matrices, or of another lane.
    Warp(WarpOp),
    /// The numbers of all invocations of a subgroup joined by a function whose order does not matter: a sum, a product, the smallest, the
    /// largest, the logical and, the logical or. All of them are here. Of NaN and numbers the smallest and the largest are not said.
    JoinSubgroup(Binary, Id),
    /// The number that one of four neighbours of a subgroup has, by its place among them: its lanes are neighbours by fours. All four of
    /// them are here.
    OfQuad(Id, u32),
    /// What an element of [counters](Atomic::Counters) was, before it became one more, or 0 where it was the largest that it may be already.
    Count {
        /// Which buffer.
        buffer: u32,
        /// Which element.
        index: Id,
        /// The largest.
        largest: Id,
    },
}

/// What an invocation does.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Computes a number.
    Let(Id, Op),
    /// Declares a variable with its first value.
    Variable(Id, Id),
    /// Gives a variable another value.
    Set(Id, Id),
    /// Writes an element of a buffer.
    Store {
        /// Which buffer.
        buffer: u32,
        /// Which element.
        index: Id,
        /// What.
        value: Id,
    },
    /// Makes an element of [maxima](Atomic::Maxima) at least as large as a number, whichever invocation comes first.
    Raise {
        /// Which buffer.
        buffer: u32,
        /// Which element.
        index: Id,
        /// The number.
        value: Id,
    },
    /// Reads four elements of a buffer of fours, which [`Op::OfFour`] tells apart.
    LoadFour {
        /// Names the four.
        four: Id,
        /// Which buffer.
        buffer: u32,
        /// Which four.
        index: Id,
    },
    /// Writes four elements of a buffer of fours.
    StoreFour {
        /// Which buffer.
        buffer: u32,
        /// Which four.
        index: Id,
        /// What.
        values: [Id; 4],
    },
    /// Writes an element of a shared array.
    StoreShared {
        /// Which array.
        array: u32,
        /// Which element.
        index: Id,
        /// What.
        value: Id,
    },
    /// One of two.
    If(Id, Vec<Statement>, Vec<Statement>),
    /// For the `u32` numbers from `start` below `end`.
    For {
        /// The number.
        counter: Id,
        /// The first.
        start: Id,
        /// Beyond the last.
        end: Id,
        /// From one to the next.
        step: Id,
        /// What is done for each.
        body: Vec<Statement>,
    },
    /// Waits until the whole workgroup is here, and sees what it wrote into shared arrays. No invocation may be missing.
    Barrier,
    /// What this invocation wrote into buffers before is seen by whoever sees what it does after this, and what it reads after this is what those wrote
    /// whom it knows of. Only devices whose [limits](crate::runtime::Limits::counters) have counters do that.
    Fence,
    /// What a warp does with matrices.
    Matrix(MatrixStep),
}

/// A buffer that a kernel is launched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its elements.
    pub storage: Storage,
    /// Whether the kernel writes to it.
    pub writable: bool,
    /// Whether it is read and written four elements at a time, of which the first is at a multiple of four.
    pub fours: bool,
    /// How several invocations change its elements, if they do: these are of [`Storage::U32`], and neither read nor written otherwise.
    pub atomic: Option<Atomic>,
}

/// How several invocations change an element at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// They [raise](Statement::Raise) it.
    Maxima,
    /// They [count](Op::Count) with it. Such a buffer is a kernel's last; no launch names it, and it is the [device's own](crate::runtime::Limits::counters).
    Counters,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Its name, as profilers and errors show it.
    pub name: String,
    /// Invocations of a workgroup along x and y.
    pub workgroup: [u32; 2],
    /// How many workgroups a multiprocessor is to hold at once, where a compiler is told.
    pub resident: Option<u32>,
    /// The buffers, in the order in which a launch names them.
    pub bindings: Vec<Binding>,
    /// The arrays that a workgroup shares: what their elements may be held as, of which every number that is written to them is one, and
    /// their lengths.
    pub shared: Vec<(Storage, u32)>,
    /// Whether the invocations of a subgroup, which run side by side, are joined: devices without subgroups have no such kernel.
    pub subgroups: bool,
    /// Number of words that are told with each launch.
    pub parameters: u32,
    /// The types of numbers and variables, by their ids.
    pub types: Vec<Type>,
    /// What an invocation does.
    pub body: Vec<Statement>,
}

impl Kernel {
    /// Bytes of the arrays that a workgroup shares.
    pub fn shared_bytes(&self) -> u32 {
        self.shared.iter().map(|&(storage, length)| storage.bytes() as u32 * length).sum()
    }
}
