//! How an operation is spelt in Rust, as data.
//!
//! An operation says once which call of the runtime performs it; code generation renders every spelling alike and
//! knows no operator (design, law 1). Paths are relative to the runtime crate: `tensor::activation::relu`,
//! `nn::conv::Conv2dConfig::new`.

use super::{Dim, ValueId};
use kiln_types::{DType, Scalar};

/// A Rust expression over a node's operands.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// The node's `n`-th operand, moved (or cloned when it is used later).
    Operand(usize),
    /// An integer literal.
    Int(i64),
    /// A number literal for a tensor of the given dtype: `0.5`, `3`, `f32::NEG_INFINITY`.
    Scalar(Scalar, DType),
    /// A plain `f64` literal.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// An escaped string literal.
    Str(String),
    /// A size as `usize`.
    Size(Dim),
    /// A size as `i64`.
    Integer(Dim),
    /// A dtype: `DType::F32`.
    DType(DType),
    /// `[a, b]`.
    Array(Vec<Expr>),
    /// `vec![a, b]`.
    Vec(Vec<Expr>),
    /// `(a, b)`.
    Tuple(Vec<Expr>),
    /// `a..b`.
    Range(Box<Expr>, Box<Expr>),
    /// `&a`.
    Ref(Box<Expr>),
    /// A constant or unit variant: `PaddingConfig2d::Valid`, `None`.
    Path(&'static str),
    /// `path(args)`: function, constructor or tuple variant, `Some` included.
    Call(&'static str, Vec<Expr>),
    /// `receiver.name::<generics>(args)`.
    Method(Box<Expr>, &'static str, Vec<usize>, Vec<Expr>),
    /// `a op b`.
    Infix(Box<Expr>, &'static str, Box<Expr>),
    /// `op a`: `-` or `!`.
    Prefix(&'static str, Box<Expr>),
    /// `Path { field: value, … }`, all fields.
    Struct(&'static str, Vec<(&'static str, Expr)>),
    /// An associated function of the first output's tensor type: `Tensor::<B, 2, Int>::name(args)`.
    Make(&'static str, Vec<Expr>),
    /// The device to make tensors on: `&device`.
    Device,
    /// `value.field`.
    Field(Box<Expr>, &'static str),
    /// A variable of an enclosing [`Expr::Closure`].
    Local(String),
    /// `|[a, b]| body`.
    Closure(Vec<String>, Box<Expr>),
    /// The expression, with a name for its number in case that it becomes a constructor's parameter:
    /// `in_channels`.
    Named(&'static str, Box<Expr>),
}

impl Expr {
    /// `operand.name(args)`.
    pub fn method(operand: usize, name: &'static str, args: Vec<Expr>) -> Self {
        Expr::Method(Box::new(Expr::Operand(operand)), name, Vec::new(), args)
    }

    /// `self.name(args)`.
    pub fn then(self, name: &'static str, args: Vec<Expr>) -> Self {
        Expr::Method(Box::new(self), name, Vec::new(), args)
    }

    /// `Some(value)` or `None`.
    pub fn option(value: Option<Expr>) -> Self {
        value.map_or(Expr::Path("None"), |value| Expr::Call("Some", vec![value]))
    }

    /// A number with a name.
    pub fn named(name: &'static str, value: usize) -> Self {
        Expr::Named(name, Box::new(Expr::Int(i64::try_from(value).unwrap_or(i64::MAX))))
    }

    /// An array of integer literals.
    pub fn ints<T: TryInto<i64> + Copy>(values: &[T]) -> Self {
        Expr::Array(values.iter().map(|&v| Expr::Int(v.try_into().unwrap_or(i64::MAX))).collect())
    }

    /// An array of sizes.
    pub fn sizes(dims: &[Dim]) -> Self {
        Expr::Array(dims.iter().cloned().map(Expr::Size).collect())
    }
}

/// A layer of the runtime's `nn`, with the parameters it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The type: `nn::conv::Conv2d`.
    pub ty: &'static str,
    /// Whether the type takes the backend: `Linear<B>` against `Dropout`.
    pub generic: bool,
    /// The config expression, without `.init(device)`: `Conv2dConfig::new([3, 64], [7, 7]).with_bias(false)`.
    pub config: Expr,
    /// Every field of the layer's record, in the record's order.
    pub fields: Vec<(&'static str, LayerField)>,
    /// Name of the method.
    pub method: &'static str,
    /// Arguments of the method.
    pub args: Vec<Expr>,
    /// The same as a plain call, for parameters that other nodes use too.
    pub function: Expr,
}

/// What a layer's record holds in one field.
#[derive(Clone, Debug, PartialEq)]
pub enum LayerField {
    /// A parameter, loaded from a constant.
    Parameter(ValueId),
    /// A parameter that may be absent.
    Optional(Option<ValueId>),
    /// A number or an option: records hold nothing.
    Constant,
    /// An array of this many numbers, such as the stride of a `Conv2d`: records hold a tuple of as many nothings
    /// (`RecordNode::Tuple` of `RecordNode::Constant`), and bincode does not load anything else.
    Constants(usize),
}

impl LayerField {
    /// The constant that is loaded.
    pub fn value(&self) -> Option<ValueId> {
        match self {
            LayerField::Parameter(value) => Some(*value),
            LayerField::Optional(value) => *value,
            LayerField::Constant | LayerField::Constants(_) => None,
        }
    }
}

/// How one node is spelt.
#[derive(Clone, Debug, PartialEq)]
pub enum Spelling {
    /// An expression; constants among the operands become parameters of the enclosing module, or literals.
    Expr(Expr),
    /// A layer held in a field, called with the remaining operands.
    Layer(Layer),
}
