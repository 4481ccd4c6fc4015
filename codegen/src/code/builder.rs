//! Calls of the runtime into code.

use super::{Code, Literal, Number, Place, Slot};
use crate::ids::{Arena, FieldId, SlotId, VarId};
use crate::spelling::{self, Form, Known};
use crate::{CodegenError, Defect};
use kiln_importer::ir::{Arg, Call, Chain, Config, Graph, Name, Node, NodeId, Setting, TensorType, ValueId};
use kiln_types::{DType, Scalar};
use std::collections::HashMap;

type Result<T> = std::result::Result<T, CodegenError>;

/// Where a constant operand is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A field of this module.
    Module(FieldId),
    /// A field of a layer that this module holds: the way to the layer, and the field.
    Layer(Vec<Place>, &'static str),
    /// An argument of this function.
    Argument,
    /// Spelt out.
    Literal,
}

/// Turns expressions of nodes into code of one module, numbering what may differ between modules.
pub struct CodeBuilder<'a> {
    pub graph: &'a Graph,
    /// Says where a constant is found.
    pub owner: &'a dyn Fn(ValueId) -> Owner,
    /// Numbers met so far.
    pub slots: Arena<SlotId, Slot>,
    /// The field whose initialization is being written.
    pub field: Option<FieldId>,
    /// The values of the variables met so far.
    pub vars: Arena<VarId, ValueId>,
    /// Names for variables.
    pub hints: HashMap<VarId, String>,
    known: HashMap<ValueId, VarId>,
    /// The variables of the chain that is being written, with the uses that are still to come.
    links: Vec<(String, usize)>,
}

/// What operands of an expression refer to.
#[derive(Clone, Copy)]
struct Site<'a> {
    node: &'a Node,
    hint: Option<&'a str>,
}

impl<'a> CodeBuilder<'a> {
    /// With no numbers met yet.
    pub fn new(graph: &'a Graph, owner: &'a dyn Fn(ValueId) -> Owner) -> Self {
        Self {
            graph,
            owner,
            slots: Arena::default(),
            field: None,
            vars: Arena::default(),
            hints: HashMap::new(),
            known: HashMap::new(),
            links: Vec::new(),
        }
    }

    /// The code of what a node does.
    pub fn node(&mut self, node: NodeId, call: &Arg) -> Result<Code> {
        let site = self.site(node);
        self.arg(call, site)
    }

    /// The code that makes a layer's config.
    pub fn config(&mut self, node: NodeId, config: &Config) -> Result<Code> {
        let site = self.site(node);
        let mut made = self.call(&config.new, site)?;
        for setting in &config.settings {
            let value = self.setting(setting, site)?;
            let name = format!("with_{}", setting.name);
            made = Code::Setting(Box::new(made), name.into(), vec![value], setting.default);
        }
        Ok(made)
    }

    fn site(&self, node: NodeId) -> Site<'a> {
        Site { node: self.graph.node(node), hint: None }
    }

    /// The code of a value where it is used.
    pub fn value(&mut self, value: ValueId) -> Result<Code> {
        let Some(constant) = self.graph.constant(value) else { return Ok(Code::Use(self.var(value))) };
        Ok(match (self.owner)(value) {
            Owner::Module(field) => Code::Parameter(field),
            Owner::Layer(way, field) => Code::Held(way, field),
            Owner::Argument => Code::Use(self.var(value)),
            Owner::Literal => {
                let name = constant.name.as_deref().unwrap_or_default();
                let scalars = kiln_importer::ir::scalars(&constant.data);
                let scalars = scalars.ok_or_else(|| Defect::module(name, "more numbers than a literal"))?;
                literal(scalars, self.graph.ty(value))
            }
        })
    }

    /// The variable for a value.
    pub fn var(&mut self, value: ValueId) -> VarId {
        *self.known.entry(value).or_insert_with(|| self.vars.push(value))
    }

    /// A number that may differ between modules.
    pub fn slot(&mut self, value: i64, hint: Option<&str>) -> Code {
        self.literal_slot(Some(Literal::Number(value)), hint)
    }

    /// A literal that may differ between modules.
    pub fn literal_slot(&mut self, value: Option<Literal>, hint: Option<&str>) -> Code {
        Code::Slot(self.slots.push(Slot { value, hint: hint.map(str::to_owned), field: self.field }))
    }

    fn arg(&mut self, arg: &Arg, site: Site<'_>) -> Result<Code> {
        let plain = Site { hint: None, ..site };
        Ok(match arg {
            Arg::Operand(n) => match site.node.inputs.get(*n).copied().flatten() {
                Some(value) => {
                    let code = self.value(value)?;
                    if let (Some(var), Some(hint)) = (code.var(), site.hint) {
                        self.hints.insert(var, hint.to_owned());
                    }
                    code
                }
                None => Code::Path("None".into()),
            },
            Arg::Call(call) => self.call(call, plain)?,
            Arg::Int(value) if self.field.is_some() && *value >= 0 => self.slot(*value, site.hint),
            Arg::Int(value) => Code::Int(*value),
            Arg::Size(dim) => match dim.as_constant() {
                Some(value) if value >= 0 => self.slot(value, site.hint),
                _ => Code::Size(dim.clone()),
            },
            Arg::Integer(dim) => match dim.as_constant() {
                Some(value) => Code::Int(value),
                None => Code::Integer(dim.clone()),
            },
            // Only calls take ranks, and write them themselves.
            Arg::Rank(rank) => Code::Int(*rank as i64),
            Arg::Scalar(value, dtype) => Code::Scalar(Number(*value), *dtype),
            Arg::Float(value) => Code::Float((*value).into()),
            Arg::Bool(value) => Code::Bool(*value),
            Arg::DType(dtype) => Code::DType(*dtype),
            Arg::None => Code::Path("None".into()),
            Arg::Some(inner) => Code::Call("Some".into(), vec![self.arg(inner, plain)?]),
            Arg::Array(items) => Code::Array(self.all(items, site)?),
            Arg::List(items) => Code::List(self.all(items, site)?),
            Arg::Tuple(items) => Code::Tuple(self.all(items, site)?),
            Arg::Range(start, end) => {
                Code::Range(Box::new(self.arg(start, plain)?), Box::new(self.arg(end, plain)?))
            }
            Arg::Variant(path, _) | Arg::Struct(path, _) => {
                let code = self.literal_of_type(arg, plain)?;
                match spelling::choice(path) {
                    Some(choice) => {
                        let value = Literal::Choice(choice.ty, Box::new(code));
                        self.literal_slot(Some(value), Some(choice.parameter))
                    }
                    None => code,
                }
            }
            Arg::Named(hint, inner) => self.arg(inner, Site { hint: Some(hint), ..site })?,
            Arg::Chain(chain) => self.chain(chain, plain)?,
            Arg::Link(link) => self.link(*link, site)?,
        })
    }

    /// A value of a type of the runtime.
    fn literal_of_type(&mut self, arg: &Arg, site: Site<'_>) -> Result<Code> {
        Ok(match arg {
            Arg::Variant(path, items) if items.is_empty() => Code::Path(path.clone()),
            Arg::Variant(path, items) => Code::Call(path.clone(), self.all(items, site)?),
            Arg::Struct(path, fields) => match spelling::known(path, arg) {
                Some(Known::Constant(name)) => Code::Path(name.into()),
                Some(Known::Function(name)) => Code::Call(name.into(), Vec::new()),
                None => {
                    let field = |(name, value): &(Name, Arg)| Ok((name.clone(), self.arg(value, site)?));
                    Code::Struct(path.clone(), fields.iter().map(field).collect::<Result<_>>()?)
                }
            },
            other => self.arg(other, site)?,
        })
    }

    /// A call, as its function is written.
    fn call(&mut self, call: &Call, site: Site<'_>) -> Result<Code> {
        let name = call.function.clone();
        let mut ranks = Vec::new();
        let mut args = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            match arg {
                Arg::Rank(rank) => ranks.push(*rank),
                Arg::List(items) => {
                    args.push(Code::Ref(Box::new(Code::Array(self.all(items, site)?))));
                }
                arg => args.push(self.arg(arg, site)?),
            }
        }
        let mut rest = args.into_iter();
        let mut next = || -> Result<Box<Code>> {
            let missing = || Defect::node(site.node, "a call with too few operands");
            Ok(Box::new(rest.next().ok_or_else(missing)?))
        };
        Ok(match spelling::form(&name) {
            Form::Infix(op) => {
                let left = next()?;
                Code::Infix(left, op, next()?)
            }
            Form::Prefix(op) => Code::Prefix(op, next()?),
            Form::Method => {
                let receiver = next()?;
                Code::Method(receiver, name, ranks, rest.collect())
            }
            Form::Maker { device } => {
                let mut args: Vec<Code> = rest.collect();
                if device {
                    // A dtype stands beside the device.
                    let options = match args.pop_if(|last| matches!(last, Code::DType(_))) {
                        Some(dtype) => Code::Tuple(vec![Code::Device, dtype]),
                        None => Code::Device,
                    };
                    args.push(options);
                }
                let output = site.node.outputs.first();
                let output = output.ok_or_else(|| Defect::node(site.node, "no output"))?;
                Code::Make(self.graph.ty(*output).clone(), name, args)
            }
            Form::Function => Code::Call(name, rest.collect()),
        })
    }

    /// A chain as a closure over its operands.
    fn chain(&mut self, chain: &Chain, site: Site<'_>) -> Result<Code> {
        let names: Vec<String> = (0..chain.operands).map(spelling::operand).collect();
        let values: Vec<String> = (0..chain.values.len()).map(|n| format!("t{n}")).collect();
        let mut uses = vec![0; names.len() + values.len()];
        for part in chain.values.iter().chain([&*chain.result]) {
            part.visit(&mut |arg| {
                if let Arg::Link(link) = arg
                    && let Some(count) = uses.get_mut(*link)
                {
                    *count += 1;
                }
            });
        }
        self.links = names.iter().chain(&values).cloned().zip(uses).collect();
        let bindings: Vec<(String, Code)> = values
            .into_iter()
            .zip(&chain.values)
            .map(|(name, value)| Ok((name, self.arg(value, site)?)))
            .collect::<Result<_>>()?;
        let result = self.arg(&chain.result, site)?;
        let body = if bindings.is_empty() { result } else { Code::Block(bindings, Box::new(result)) };
        Ok(Code::Closure(names, Box::new(body)))
    }

    /// A variable of a chain: cloned, unless nothing uses it after this.
    fn link(&mut self, link: usize, site: Site<'_>) -> Result<Code> {
        let missing = || Defect::node(site.node, "a chain that uses a value before it is there");
        let (name, uses) = self.links.get_mut(link).ok_or_else(missing)?;
        *uses = uses.saturating_sub(1);
        let local = Code::Local(name.clone());
        let used_later = *uses > 0;
        Ok(if used_later {
            Code::Method(Box::new(local), "clone".into(), Vec::new(), Vec::new())
        } else {
            local
        })
    }

    /// The value of a setting; flags may differ between modules there.
    fn setting(&mut self, setting: &Setting, site: Site<'_>) -> Result<Code> {
        Ok(match &setting.value {
            Arg::Bool(value) => self.literal_slot(Some(Literal::Flag(*value)), Some(setting.name)),
            value => self.arg(value, site)?,
        })
    }

    fn all(&mut self, items: &[Arg], site: Site<'_>) -> Result<Vec<Code>> {
        items.iter().map(|item| self.arg(item, site)).collect()
    }
}

/// A small constant, spelt out.
fn literal(scalars: Vec<Scalar>, ty: &TensorType) -> Code {
    let items = scalars.into_iter().map(|scalar| Code::Scalar(Number(scalar), ty.dtype)).collect();
    let flat = ty.with_dims(vec![ty.num_elements()]);
    let mut from = vec![Code::Array(items), Code::Device];
    let data = match ty.dtype {
        // Numbers that the usual dtype does not hold.
        DType::F64 | DType::U64 => {
            from.push(Code::DType(ty.dtype));
            Code::Make(flat, "from_data_dtype".into(), from)
        }
        DType::F32 | DType::I64 | DType::Bool => Code::Make(flat, "from_data".into(), from),
        other => {
            let data = Code::Make(flat, "from_data".into(), from);
            Code::Method(Box::new(data), "cast".into(), Vec::new(), vec![Code::DType(other)])
        }
    };
    if ty.rank() == 1 {
        return data;
    }
    reshaped(data, ty)
}

/// Data in its shape. Rank 0 has a call of its own: an empty array says no type.
fn reshaped(data: Code, ty: &TensorType) -> Code {
    if ty.rank() == 0 {
        return Code::Method(Box::new(data), "squeeze_dim".into(), vec![0], vec![Code::Int(0)]);
    }
    let dims = ty.dims.iter().filter_map(|dim| dim.as_constant()).map(Code::Int).collect();
    Code::Method(Box::new(data), "reshape".into(), Vec::new(), vec![Code::Array(dims)])
}
