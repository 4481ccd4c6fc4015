//! What source without a runtime does for a node, as data: loops over elements, and calls of kernels that the source brings along.
//!
//! All sizes are numbers here. An operation says what is computed of which elements; in which memory these are, and how Rust writes loops, is
//! known to code generation alone.

use crate::data::Strided;
use kiln_types::{Activation, Expression, ReduceOp, Scalar, TensorData};

/// The elements of a row-major tensor that a loop visits: one for each index of its dims.
pub type View = Strided;

/// What is done for a node with one result.
#[derive(Clone, Debug, PartialEq)]
pub enum Loops {
    /// Its result has the first operand's elements, in their order.
    Same,
    /// Loops, each of which writes some of the result's elements.
    Elementwise(Vec<ElementLoop>),
    /// A loop that reduces elements.
    Reduction(Reduction),
    /// The call of a kernel.
    Kernel(Kernel),
}

/// A loop that computes elements of the result, each of the operands' elements at the same index.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementLoop {
    /// The elements that are written.
    pub result: View,
    /// Operands by their numbers, and their elements that are read; the dims are those of `result`.
    pub operands: Vec<(usize, View)>,
    /// What is computed of an element of each of `operands`.
    pub expression: Expression,
}

/// A loop that reduces elements of the first operand: those of its last dims, for each index of its first ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    /// How elements are reduced.
    pub op: ReduceOp,
    /// The elements of the operand, the reduced dims last.
    pub operand: View,
    /// How many of the dims are reduced.
    pub reduced: usize,
}

/// A call of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Its name.
    pub function: &'static str,
    /// What it is given. The results are behind all of this, in order.
    pub args: Vec<KernelArg>,
}

/// What a kernel is given.
#[derive(Clone, Debug, PartialEq)]
pub enum KernelArg {
    /// The elements of the node's `n`-th operand.
    Operand(usize),
    /// The same, or nothing where the node has no such operand.
    Optional(usize),
    /// Memory for so many numbers of the first result's dtype, which are lost afterwards.
    Scratch(usize),
    /// Numbers that are known, under a name: places, weights.
    Known(&'static str, TensorData),
    /// A size.
    Size(usize),
    /// Sizes.
    Sizes(Vec<usize>),
    /// A flag.
    Bool(bool),
    /// A number.
    Float(f64),
    /// A number of the first result's dtype.
    Scalar(Scalar),
    /// A number, or nothing.
    OptionalFloat(Option<f64>),
    /// A function of one number; without one, the number itself.
    Function(Option<Activation>),
    /// A value of a type of the kernels, with named fields.
    Fields(&'static str, Vec<(&'static str, KernelArg)>),
}

/// Tables have at most so many rows: they are made when a model is compiled, of sizes that a file declares.
pub(crate) const MAX_TABLE: usize = 1 << 16;

impl Loops {
    /// A call of a kernel.
    pub fn kernel(function: &'static str, args: impl Into<Vec<KernelArg>>) -> Self {
        Loops::Kernel(Kernel { function, args: args.into() })
    }

    /// Elements of the first operand, in the order of a view of the result's dims.
    pub fn copy(from: View) -> Self {
        let result = View::new(from.dims());
        Loops::Elementwise(vec![ElementLoop::copy(0, from, result)])
    }
}

impl ElementLoop {
    /// Moves elements of an operand.
    pub fn copy(operand: usize, from: View, result: View) -> Self {
        let expression = Expression::new(vec![kiln_types::Step::Input(0)]);
        Self { result, operands: vec![(operand, from)], expression }
    }
}

impl KernelArg {
    /// How many numbers of memory it asks for.
    pub fn scratch(&self) -> Option<usize> {
        match self {
            KernelArg::Scratch(len) => Some(*len),
            _ => None,
        }
    }

    /// The numbers that it is, if it is known ones.
    pub fn known(&self) -> Option<&TensorData> {
        match self {
            KernelArg::Known(_, data) => Some(data),
            _ => None,
        }
    }

    /// Places in a table, under a name.
    pub(crate) fn places(name: &'static str, places: &[usize]) -> Option<Self> {
        let places = places.iter().map(|&place| u32::try_from(place).ok()).collect::<Option<Vec<u32>>>()?;
        let count = places.len();
        Some(KernelArg::Known(name, TensorData::new(places, [count])))
    }

    /// A value with named sizes.
    pub(crate) fn sizes<const N: usize>(ty: &'static str, sizes: [(&'static str, usize); N]) -> Self {
        KernelArg::Fields(ty, sizes.map(|(name, size)| (name, KernelArg::Size(size))).into())
    }
}
