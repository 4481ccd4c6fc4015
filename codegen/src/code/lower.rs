//! Spellings into code.

use super::{Code, Literal, Slot};
use kiln_importer::ir::spelling::Expr;
use kiln_importer::ir::{Graph, NodeId, TensorType, ValueId};
use std::collections::BTreeMap;

/// Where a constant operand is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A field of this module.
    Own,
    /// A field of a layer that this module holds.
    Held,
    /// An argument of this function.
    Argument,
    /// Spelt out.
    Literal,
}

/// Turns expressions of nodes into code of one module, numbering what may differ between modules.
pub struct Lowering<'a> {
    pub graph: &'a Graph,
    /// Says where a constant is found.
    pub owner: &'a dyn Fn(ValueId) -> Owner,
    /// Numbers met so far.
    pub slots: Vec<Slot>,
    /// The field whose initialization is being lowered.
    pub field: Option<String>,
    /// Names for the variables of operands.
    pub hints: BTreeMap<ValueId, String>,
}

/// What operands of an expression refer to.
#[derive(Clone, Copy)]
struct Site<'a> {
    inputs: &'a [Option<ValueId>],
    output: Option<&'a TensorType>,
    hint: Option<&'a str>,
}

impl<'a> Lowering<'a> {
    /// With no numbers met yet.
    pub fn new(graph: &'a Graph, owner: &'a dyn Fn(ValueId) -> Owner) -> Self {
        Self { graph, owner, slots: Vec::new(), field: None, hints: BTreeMap::new() }
    }

    /// The code of a node's expression.
    pub fn node(&mut self, node: NodeId, expr: &Expr) -> Code {
        let graph = self.graph;
        let data = graph.node(node);
        let output = data.outputs.first().map(|&id| graph.ty(id));
        self.expr(expr, Site { inputs: &data.inputs, output, hint: None })
    }

    /// The code of a value where it is used.
    pub fn value(&mut self, value: ValueId) -> Code {
        if self.graph.constant(value).is_none() {
            return Code::Use(value);
        }
        match (self.owner)(value) {
            Owner::Own => Code::Parameter(value),
            Owner::Held => Code::Held(value),
            Owner::Argument => Code::Use(value),
            Owner::Literal => self.literal(value),
        }
    }

    /// A small constant, spelt out.
    fn literal(&mut self, value: ValueId) -> Code {
        let ty = self.graph.ty(value);
        let scalars = self.graph.constant(value).and_then(|c| kiln_importer::ir::spelling::scalars(&c.data));
        let scalars = scalars.unwrap_or_default();
        let items = scalars.into_iter().map(|scalar| Code::Scalar(scalar, ty.dtype)).collect();
        let flat = ty.with_dims(vec![ty.num_elements()]);
        let data = Code::Make(flat, "from_data", vec![Code::Array(items), Code::Device]);
        let data = match ty.dtype {
            kiln_types::DType::F32 | kiln_types::DType::I64 | kiln_types::DType::Bool => data,
            other => Code::Method(Box::new(data), "cast", Vec::new(), vec![Code::DType(other)]),
        };
        if ty.rank() == 1 {
            return data;
        }
        reshaped(data, ty)
    }

    /// A number that may differ between modules.
    pub fn slot(&mut self, value: i64, hint: Option<&str>) -> Code {
        self.literal_slot(Some(Literal::Number(value)), hint)
    }

    /// A literal that may differ between modules.
    pub fn literal_slot(&mut self, value: Option<Literal>, hint: Option<&str>) -> Code {
        let field = self.field.clone();
        self.slots.push(Slot { value, hint: hint.map(str::to_owned), field });
        Code::Slot(self.slots.len() - 1)
    }

    fn expr(&mut self, expr: &Expr, site: Site<'_>) -> Code {
        let plain = Site { hint: None, ..site };
        match expr {
            Expr::Operand(n) => match site.inputs.get(*n).copied().flatten() {
                Some(value) => {
                    self.hints.extend(site.hint.map(|hint| (value, hint.to_owned())));
                    self.value(value)
                }
                None => Code::Path("None"),
            },
            Expr::Int(value) if self.field.is_some() && *value >= 0 => self.slot(*value, site.hint),
            Expr::Int(value) => Code::Int(*value),
            Expr::Size(dim) => match dim.as_constant() {
                Some(value) if value >= 0 => self.slot(value, site.hint),
                _ => Code::Size(dim.clone()),
            },
            Expr::Choice(ty, hint, inner) => {
                let code = self.expr(inner, plain);
                self.literal_slot(Some(Literal::Choice(ty, Box::new(code))), Some(hint))
            }
            Expr::Setting(receiver, name, args, default) => {
                let receiver = self.boxed(receiver, plain);
                let args = args.iter().map(|arg| self.setting(arg, name, plain)).collect();
                Code::Setting(receiver, name, args, *default)
            }
            Expr::Named(hint, inner) => self.expr(inner, Site { hint: Some(hint), ..site }),
            Expr::Integer(dim) => match dim.as_constant() {
                Some(value) => Code::Int(value),
                None => Code::Integer(dim.clone()),
            },
            Expr::Scalar(value, dtype) => Code::Scalar(*value, *dtype),
            Expr::Float(value) => Code::Float(*value),
            Expr::Bool(value) => Code::Bool(*value),
            Expr::Str(value) => Code::Str(value.clone()),
            Expr::DType(dtype) => Code::DType(*dtype),
            Expr::Path(path) => Code::Path(path),
            Expr::Local(name) => Code::Local(name.clone()),
            Expr::Device => Code::Device,
            Expr::Array(items) => Code::Array(self.all(items, site)),
            Expr::Vec(items) => Code::Vec(self.all(items, site)),
            Expr::Tuple(items) => Code::Tuple(self.all(items, site)),
            Expr::Range(a, b) => Code::Range(self.boxed(a, plain), self.boxed(b, plain)),
            Expr::Ref(inner) => Code::Ref(self.boxed(inner, site)),
            Expr::Call(path, args) => Code::Call(path, self.all(args, plain)),
            Expr::Method(receiver, name, generics, args) => {
                let receiver = self.boxed(receiver, plain);
                Code::Method(receiver, name, generics.clone(), self.all(args, plain))
            }
            Expr::Infix(a, op, b) => {
                let a = self.boxed(a, plain);
                Code::Infix(a, op, self.boxed(b, plain))
            }
            Expr::Prefix(op, inner) => Code::Prefix(op, self.boxed(inner, plain)),
            Expr::Struct(path, fields) => {
                let lower = |(name, value): &(&'static str, Expr)| (*name, self.expr(value, plain));
                Code::Struct(path, fields.iter().map(lower).collect())
            }
            Expr::Make(name, args) => match site.output {
                Some(ty) => Code::Make(ty.clone(), name, self.all(args, plain)),
                None => Code::Tuple(Vec::new()),
            },
            Expr::Field(inner, name) => Code::Field(self.boxed(inner, plain), name),
            Expr::Block(bindings, result) => {
                let lower = |(name, value): &(String, Expr)| (name.clone(), self.expr(value, plain));
                let bindings = bindings.iter().map(lower).collect();
                Code::Block(bindings, self.boxed(result, plain))
            }
            Expr::Closure(names, body) => Code::Closure(names.clone(), self.boxed(body, plain)),
        }
    }

    /// An argument of a setting; flags may differ between modules there.
    fn setting(&mut self, arg: &Expr, method: &str, site: Site<'_>) -> Code {
        match arg {
            Expr::Bool(value) => {
                self.literal_slot(Some(Literal::Flag(*value)), Some(method.trim_start_matches("with_")))
            }
            arg => self.expr(arg, site),
        }
    }

    fn boxed(&mut self, expr: &Expr, site: Site<'_>) -> Box<Code> {
        Box::new(self.expr(expr, site))
    }

    fn all(&mut self, items: &[Expr], site: Site<'_>) -> Vec<Code> {
        items.iter().map(|item| self.expr(item, site)).collect()
    }
}

/// Data in its shape. Rank 0 has a call of its own: an empty array says no type.
fn reshaped(data: Code, ty: &TensorType) -> Code {
    if ty.rank() == 0 {
        return Code::Method(Box::new(data), "squeeze_dim", vec![0], vec![Code::Int(0)]);
    }
    let dims = ty.dims.iter().filter_map(|dim| dim.as_constant()).map(Code::Int).collect();
    Code::Method(Box::new(data), "reshape", Vec::new(), vec![Code::Array(dims)])
}
