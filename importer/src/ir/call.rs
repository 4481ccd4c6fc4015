//! Calls of the runtime, as data: which function, with which arguments.
//!
//! An operation says here what the runtime does for it, and gives no thought to how Rust writes that: what is a method or
//! an operator, what is borrowed, which types are spelt out is known to code generation alone, which in turn knows no
//! operation (design, law 1). Paths are relative to the runtime crate: `tensor::activation::relu`; methods of tensors have
//! their bare names: `matmul`.

mod layer;
mod scalars;
mod value;

pub use layer::{Config, Layer, Setting};
pub use scalars::scalars;

use super::{Dim, TensorType};
use kiln_types::{DType, Scalar};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The name of a function, a type or a field of the runtime; owned where a graph was read from text.
pub type Name = Cow<'static, str>;

/// A function of the runtime with its arguments, a method's receiver first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The function.
    pub function: Name,
    /// What it is given.
    pub args: Vec<Arg>,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Arg {
    /// The node's `n`-th operand.
    Operand(usize),
    /// The result of another call.
    Call(Call),
    /// An integer.
    Int(i64),
    /// A number of a tensor with this dtype.
    Scalar(Scalar, DType),
    /// A float that is no tensor's.
    Float(f64),
    /// A flag.
    Bool(bool),
    /// A dtype.
    DType(DType),
    /// A number of axes, which the runtime's types hold.
    Rank(usize),
    /// A size, not negative.
    Size(Dim),
    /// An integer of shape arithmetic.
    Integer(Dim),
    /// Nothing, where something is optional.
    None,
    /// Something, where it is optional.
    Some(Box<Arg>),
    /// As many as the function's signature says.
    Array(Vec<Arg>),
    /// Any number.
    List(Vec<Arg>),
    /// Several that belong together.
    Tuple(Vec<Arg>),
    /// From the first up to the second.
    Range(Box<Arg>, Box<Arg>),
    /// A variant of a type, with what it holds: `tensor::PadMode::Edge`.
    Variant(Name, Vec<Arg>),
    /// A value of a type (or variant) with named fields, all of them.
    Struct(Name, Vec<(Name, Arg)>),
    /// What the argument is, where its place does not tell: a layer's number in case that it becomes a constructor's
    /// parameter (`in_channels`), an operand's role (`query`).
    Named(Name, Box<Arg>),
    /// A chain of elementwise operations.
    Chain(Chain),
    /// In a chain: an operand, or a value before the result.
    Link(usize),
}

/// A function of numbers, which the runtime applies element by element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// How many operands it has: the first links.
    pub operands: usize,
    /// Values that are used more than once, in order: the links after the operands.
    pub values: Vec<Arg>,
    /// What it yields.
    pub result: Box<Arg>,
}

/// What running an operation does beside computing its results from its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing.
    Pure,
    /// It waits for the device: sizes of its results depend on data.
    ReadsDevice,
    /// It draws random numbers, now or in training.
    Random,
    /// It is control flow: what runs after it, or how large it is, depends on it.
    Control,
}

impl Effect {
    /// Whether equal operations on equal operands yield equal results, so that one of them is enough.
    pub fn is_repeatable(self) -> bool {
        match self {
            Effect::Pure | Effect::ReadsDevice => true,
            Effect::Random | Effect::Control => false,
        }
    }
}

/// A node that is a call of a runtime function which no pass looks into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuntimeCall {
    /// The call. With several outputs it yields a tuple.
    pub call: Call,
    /// Types of the outputs, decided by the operator that lowered to it.
    pub outputs: Vec<TensorType>,
    /// What it does beside.
    pub effect: Effect,
}

/// What the runtime does for a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Implementation {
    /// It calls functions, or hands an operand on; constants among the operands become parameters of the enclosing module,
    /// or literals.
    Call(Arg),
    /// It calls a layer that is held in a field, with the operands that are no parameters of it.
    Layer(Layer),
    /// It is part of the control flow, which is structure and no call.
    Control,
}

impl Implementation {
    /// The call, or a layer's plain call.
    pub fn call(&self) -> Option<&Arg> {
        match self {
            Implementation::Call(arg) => Some(arg),
            Implementation::Layer(layer) => Some(&layer.function),
            Implementation::Control => None,
        }
    }
}

impl Call {
    /// A call.
    pub fn new(function: impl Into<Name>, args: impl Into<Vec<Arg>>) -> Self {
        Self { function: function.into(), args: args.into() }
    }
}

/// What an argument is made of directly; one match for reading and for changing.
macro_rules! parts {
    ($(#[$doc:meta])* $name:ident $(, $mut:tt)?) => {
        $(#[$doc])*
        pub fn $name(&$($mut)? self) -> Vec<&$($mut)? Arg> {
            match self {
                Arg::Operand(_)
                | Arg::Int(_)
                | Arg::Scalar(..)
                | Arg::Float(_)
                | Arg::Bool(_)
                | Arg::DType(_)
                | Arg::Rank(_)
                | Arg::Size(_)
                | Arg::Integer(_)
                | Arg::None
                | Arg::Link(_) => Vec::new(),
                Arg::Call(Call { args: items, .. })
                | Arg::Array(items)
                | Arg::List(items)
                | Arg::Tuple(items)
                | Arg::Variant(_, items) => items.into_iter().collect(),
                Arg::Struct(_, fields) => fields.into_iter().map(|(_, value)| value).collect(),
                Arg::Some(inner) | Arg::Named(_, inner) => vec![inner],
                Arg::Range(start, end) => vec![start, end],
                Arg::Chain(Chain { values, result, .. }) => {
                    values.into_iter().chain([&$($mut)? **result]).collect()
                }
            }
        }
    };
}

impl Arg {
    /// A call of a function.
    pub fn call(function: impl Into<Name>, args: impl Into<Vec<Arg>>) -> Self {
        Arg::Call(Call::new(function, args))
    }

    /// A call of a method on this.
    pub fn then(self, method: impl Into<Name>, args: impl Into<Vec<Arg>>) -> Self {
        let mut all = vec![self];
        all.extend(args.into());
        Arg::call(method, all)
    }

    /// Something or nothing.
    pub fn option(value: Option<Arg>) -> Self {
        value.map_or(Arg::None, |value| Arg::Some(Box::new(value)))
    }

    /// A number with a name.
    pub fn named(name: &'static str, value: usize) -> Self {
        Arg::Named(name.into(), Box::new(Arg::Int(i64::try_from(value).unwrap_or(i64::MAX))))
    }

    /// An operand with a name.
    pub fn role(name: &'static str, operand: Arg) -> Self {
        Arg::Named(name.into(), Box::new(operand))
    }

    /// Integers.
    pub fn ints<T: TryInto<i64> + Copy>(values: &[T]) -> Vec<Arg> {
        values.iter().map(|&value| Arg::Int(value.try_into().unwrap_or(i64::MAX))).collect()
    }

    /// Sizes.
    pub fn sizes(dims: &[Dim]) -> Vec<Arg> {
        dims.iter().cloned().map(Arg::Size).collect()
    }

    /// An axis.
    pub fn axis(axis: usize) -> Self {
        Arg::Int(axis as i64)
    }

    /// From one size up to another.
    pub fn range(start: Arg, end: Arg) -> Self {
        Arg::Range(Box::new(start), Box::new(end))
    }

    /// A variant that holds nothing.
    pub fn variant(path: &'static str) -> Self {
        Arg::Variant(path.into(), Vec::new())
    }

    /// A value of a type with named fields.
    pub fn fields<const N: usize>(ty: &'static str, fields: [(&'static str, Arg); N]) -> Self {
        Arg::Struct(ty.into(), fields.map(|(name, value)| (name.into(), value)).into())
    }

    /// Options of the runtime, as they are declared in `kiln_types`.
    pub fn options(value: &impl Serialize) -> Self {
        value::options(value)
    }

    parts!(
        /// What it is made of directly, in the order in which it is evaluated.
        parts
    );

    parts!(
        /// What it is made of directly, to change.
        parts_mut, mut
    );

    /// Visits it and everything in it.
    pub fn visit(&self, f: &mut dyn FnMut(&Arg)) {
        f(self);
        self.parts().into_iter().for_each(|part| part.visit(f));
    }

    /// Visits the sizes in it.
    pub fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        if let Arg::Size(dim) | Arg::Integer(dim) = self {
            f(dim);
        }
        self.parts().into_iter().for_each(|part| part.visit_dims(f));
    }

    /// Replaces the sizes in it.
    pub fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
        if let Arg::Size(dim) | Arg::Integer(dim) = self {
            *dim = map(dim);
        }
        self.parts_mut().into_iter().for_each(|part| part.map_dims(map));
    }
}
