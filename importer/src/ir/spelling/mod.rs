//! How an operation is spelt in Rust, as data.
//!
//! An operation says once which call of the runtime performs it; code generation renders every spelling alike and
//! knows no operator (design, law 1). Paths are relative to the runtime crate: `tensor::activation::relu`,
//! `nn::conv::Conv2dConfig::new`.

mod control;
mod convolution;
mod elementwise;
mod folds;
mod indexing;
mod linear;
mod literal;
mod making;
mod normalization;
mod recurrence;
mod shape;
mod words;

pub use literal::scalars;

use super::{Dim, Graph, Node, Op, ValueId};
use kiln_types::{DType, Scalar};
use serde::{Deserialize, Serialize};
use words::Word;

/// A Rust expression over a node's operands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    Path(#[serde(deserialize_with = "words::read")] Word),
    /// `path(args)`: function, constructor or tuple variant, `Some` included.
    Call(#[serde(deserialize_with = "words::read")] Word, Vec<Expr>),
    /// `receiver.name::<generics>(args)`.
    Method(Box<Expr>, #[serde(deserialize_with = "words::read")] Word, Vec<usize>, Vec<Expr>),
    /// `a op b`.
    Infix(Box<Expr>, #[serde(deserialize_with = "words::read")] Word, Box<Expr>),
    /// `op a`: `-` or `!`.
    Prefix(#[serde(deserialize_with = "words::read")] Word, Box<Expr>),
    /// `Path { field: value, … }`, all fields.
    Struct(
        #[serde(deserialize_with = "words::read")] Word,
        #[serde(deserialize_with = "words::read_fields")] Vec<(Word, Expr)>,
    ),
    /// An associated function of the first output's tensor type: `Tensor::<B, 2, Int>::name(args)`.
    Make(#[serde(deserialize_with = "words::read")] Word, Vec<Expr>),
    /// The device to make tensors on: `&device`.
    Device,
    /// `value.field`.
    Field(Box<Expr>, #[serde(deserialize_with = "words::read")] Word),
    /// A variable of an enclosing [`Expr::Closure`].
    Local(String),
    /// `|[a, b]| body`.
    Closure(Vec<String>, Box<Expr>),
    /// `{ let a = …; …; result }`.
    Block(Vec<(String, Expr)>, Box<Expr>),
    /// A builder's call with literals: `config.with_stride([2, 2])`, and whether it only says what is so without it. It
    /// is left out then, unless modules that share their code differ there.
    Setting(Box<Expr>, #[serde(deserialize_with = "words::read")] Word, Vec<Expr>, bool),
    /// A value of a type of the runtime, with a name in case that it becomes a constructor's parameter: an activation.
    Choice(
        #[serde(deserialize_with = "words::read")] Word,
        #[serde(deserialize_with = "words::read")] Word,
        Box<Expr>,
    ),
    /// The expression, with a name: of a number in case that it becomes a constructor's parameter (`in_channels`), of an
    /// operand for the variable that holds it (`query`).
    Named(#[serde(deserialize_with = "words::read")] Word, Box<Expr>),
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

    /// Visits it and everything in it.
    pub fn visit(&self, f: &mut dyn FnMut(&Expr)) {
        f(self);
        match self {
            Expr::Array(items) | Expr::Vec(items) | Expr::Tuple(items) => {
                items.iter().for_each(|item| item.visit(f))
            }
            Expr::Call(_, args) | Expr::Make(_, args) => args.iter().for_each(|arg| arg.visit(f)),
            Expr::Range(a, b) | Expr::Infix(a, _, b) => {
                a.visit(f);
                b.visit(f);
            }
            Expr::Ref(inner)
            | Expr::Prefix(_, inner)
            | Expr::Field(inner, _)
            | Expr::Closure(_, inner)
            | Expr::Choice(_, _, inner)
            | Expr::Named(_, inner) => inner.visit(f),
            Expr::Method(receiver, _, _, args) | Expr::Setting(receiver, _, args, _) => {
                receiver.visit(f);
                args.iter().for_each(|arg| arg.visit(f));
            }
            Expr::Struct(_, fields) => fields.iter().for_each(|(_, value)| value.visit(f)),
            Expr::Block(bindings, result) => {
                bindings.iter().for_each(|(_, value)| value.visit(f));
                result.visit(f);
            }
            _ => {}
        }
    }

    /// Visits the sizes in it.
    pub fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        self.visit(&mut |expr| {
            if let Expr::Size(dim) | Expr::Integer(dim) = expr {
                f(dim);
            }
        });
    }

    /// `&operand`.
    pub fn reference(self) -> Self {
        Expr::Ref(Box::new(self))
    }

    /// `self.name(args)` on a builder; `default` says that it changes nothing.
    pub fn setting(self, name: &'static str, args: Vec<Expr>, default: bool) -> Self {
        Expr::Setting(Box::new(self), name, args, default)
    }

    /// `self op other`.
    pub fn infix(self, op: &'static str, other: Expr) -> Self {
        Expr::Infix(Box::new(self), op, Box::new(other))
    }

    /// `self.name::<generics>(args)`.
    pub fn then_with(self, name: &'static str, generics: Vec<usize>, args: Vec<Expr>) -> Self {
        Expr::Method(Box::new(self), name, generics, args)
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

impl Spelling {
    /// The expression, or a layer's plain call.
    pub fn expression(&self) -> &Expr {
        match self {
            Spelling::Expr(expr) => expr,
            Spelling::Layer(layer) => &layer.function,
        }
    }
}

impl Op {
    /// How a node of this operation is spelt.
    pub fn spell(&self, graph: &Graph, node: &Node) -> Spelling {
        let cx = Cx { graph, node };
        match self {
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Where
            | Op::Activation(_)
            | Op::Clamp { .. }
            | Op::Cast { .. }
            | Op::Elementwise(_) => Spelling::Expr(elementwise::spell(self, &cx)),
            Op::Reshape { .. }
            | Op::Permute { .. }
            | Op::Expand { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Repeat { .. } => Spelling::Expr(shape::spell(self, &cx)),
            Op::Fill { .. } | Op::Arange { .. } | Op::HostTensor { .. } => {
                Spelling::Expr(making::spell(self))
            }
            Op::Take { .. } | Op::Gather { .. } | Op::Scatter { .. } => indexing::spell(self, &cx),
            Op::Reduce { .. } | Op::ArgReduce { .. } | Op::Cumulative { .. } | Op::Trilu { .. } => {
                Spelling::Expr(folds::spell(self, &cx))
            }
            Op::MatMul | Op::Linear { .. } | Op::Attention(_) => linear::spell(self, &cx),
            Op::Conv(_)
            | Op::ConvTranspose(_)
            | Op::Pool(..)
            | Op::MaxPoolWithIndices(_)
            | Op::AdaptiveAvgPool { .. }
            | Op::Interpolate { .. } => convolution::spell(self, &cx),
            Op::Softmax { .. }
            | Op::LogSoftmax { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::GroupNorm { .. }
            | Op::BatchNorm { .. }
            | Op::Dropout { .. } => normalization::spell(self, &cx),
            Op::Rnn(options) => recurrence::spell(options, &cx),
            Op::HostRead { .. } | Op::If { .. } => Spelling::Expr(control::spell()),
            Op::Call(call) => Spelling::Expr(call.expr.clone()),
        }
    }
}

/// A node with its graph, as spellings see it.
struct Cx<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

impl<'a> Cx<'a> {
    /// The `n`-th operand.
    fn input(&self, n: usize) -> Option<ValueId> {
        self.node.inputs.get(n).copied().flatten()
    }

    /// The type of the `n`-th operand.
    fn ty(&self, n: usize) -> Option<&'a super::TensorType> {
        self.input(n).map(|id| self.graph.ty(id))
    }

    /// The rank of the `n`-th operand.
    fn rank(&self, n: usize) -> usize {
        self.ty(n).map_or(0, super::TensorType::rank)
    }

    /// The known dims of the `n`-th operand.
    fn shape(&self, n: usize) -> Option<Vec<usize>> {
        self.ty(n).and_then(super::TensorType::shape)
    }

    /// The dtype of the `n`-th operand.
    fn dtype(&self, n: usize) -> DType {
        self.ty(n).map_or(DType::F32, |ty| ty.dtype)
    }

    /// The type of the first result.
    fn output(&self) -> Option<&'a super::TensorType> {
        self.node.outputs.first().map(|&id| self.graph.ty(id))
    }

    /// Whether the `n`-th operand is a constant.
    fn is_constant(&self, n: usize) -> bool {
        self.input(n).is_some_and(|id| self.graph.constant(id).is_some())
    }

    /// The `n`-th operand as an `Option`.
    fn option(&self, n: usize) -> Expr {
        Expr::option(self.input(n).map(|_| Expr::Operand(n)))
    }

    /// The one number of the `n`-th operand, when it is a constant of one element that broadcasting would not widen
    /// beyond `rank`, and no parameter.
    fn scalar(&self, n: usize, rank: usize) -> Option<Expr> {
        let id = self.input(n)?;
        let constant = self.graph.constant(id).filter(|constant| constant.provenance.is_none())?;
        let fits = self.graph.ty(id).rank() <= rank;
        match scalars(&constant.data)?.as_slice() {
            &[scalar] if fits => Some(Expr::Scalar(scalar, constant.data.dtype)),
            _ => None,
        }
    }
}
