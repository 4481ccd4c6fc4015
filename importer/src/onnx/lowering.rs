//! The walk over a model: scopes of names, functions, branches; one node after the other becomes IR.

mod append;
mod broadcast;
mod choices;
mod constants;
mod cost;
mod formula;
mod functions;
mod loops;
mod model;
mod order;
mod problems;
mod windows;

pub(crate) use append::{axes_of, axis_of};
pub(crate) use choices::{Branch, Choice, Snapshot};
pub(crate) use constants::{holds_negative, numbers};
pub(crate) use formula::{Formula, Value};
pub(crate) use loops::{Initial, Readers, Round, Rounds};
pub(crate) use model::{Model, domain_of, operator_name};
pub(crate) use order::{label, names_read, subgraphs};
pub(crate) use windows::{AutoPad, WindowAttributes, WindowOptions, known_padding};

use super::node::SourceNode;
use super::operator::{Args, Operand};
use super::ops;
use super::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto};
use super::source::Folder;
use super::tensor::{self, DataType, Narrow};
use crate::error::{ImportError, ImportErrorKind, ImportResult, Site};
use crate::ir::{Builder, Dim, Graph, Origin, Provenance, Region, RuleError, RuleResult, ValueId};
use kiln_types::TensorData;
use problems::Problems;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Functions that call functions multiply nodes; no honest model has so many.
const MAX_NODES: usize = 1 << 18;
/// Graphs and functions inside each other. Lowering goes down into them, on a stack of two megabytes.
pub(crate) const MAX_DEPTH: usize = 48;
/// Choices between ranks that a model may hold inside each other: each doubles the rest of the graph.
const MAX_CHOICES: usize = 6;

/// The model itself, or a function that is being inlined.
struct Frame<'m> {
    function: Option<&'m FunctionProto>,
    opsets: &'m HashMap<&'m str, i64>,
    attributes: HashMap<&'m str, &'m AttributeProto>,
}

/// Names of a graph or a function's body.
struct Scope<'m> {
    /// `None` for an optional input of a function that the call leaves out.
    values: HashMap<&'m str, Option<Operand>>,
    /// A function's body does not see the names around its call.
    closed: bool,
    /// Names that the body reads which is being lowered, and those that it yields.
    read: Rc<HashSet<&'m str>>,
}

/// A body whose nodes are sorted.
struct Body<'m> {
    nodes: Vec<&'m NodeProto>,
    /// Names that its nodes read, and those that it yields.
    read: Rc<HashSet<&'m str>>,
}

/// Lowers nodes into the graph; what operators append through.
pub(crate) struct Lowering<'g, 'm> {
    /// Appends core operations.
    pub(crate) builder: Builder<'g>,
    /// Whether the model is to be trained: Dropout stays.
    pub(crate) trainable: bool,
    /// Version of the operator set of the node that is being lowered.
    pub(crate) opset: i64,
    /// What inputs and constants can hold whose dtype could hold more, and results of casts to floats of few bits.
    narrow: BTreeMap<ValueId, Narrow>,
    /// Values of runtime calls that hold positions along an axis: none is negative.
    pub(crate) positions: BTreeSet<ValueId>,
    /// What integers were quantized from, in a model that is to be trained.
    pub(crate) quantized_from: BTreeMap<ValueId, ValueId>,
    model: &'m Model<'m>,
    frames: Vec<Frame<'m>>,
    scopes: Vec<Scope<'m>>,
    /// Places of the strings that were met, in the graph's table.
    places: HashMap<String, i64>,
    /// Names of parameters that were met: a branch may use one again, for another.
    keys: HashSet<&'m str>,
    /// The same, in order.
    met: Vec<&'m str>,
    /// The bodies that were sorted, by their first node: a body is lowered once a call or a round.
    bodies: HashMap<*const NodeProto, Rc<Body<'m>>>,
    /// Values that got their name here.
    named: Vec<ValueId>,
    lowered: usize,
    /// Operations whose steps were taken.
    counted: usize,
    choice: Option<Choice<'m>>,
    choices: usize,
    nested: Option<ImportError>,
    problems: Problems<'m>,
}

impl<'g, 'm> Lowering<'g, 'm> {
    pub(crate) fn new(graph: &'g mut Graph, model: &'m Model<'m>, trainable: bool) -> Self {
        let frame = Frame { function: None, opsets: &model.opsets, attributes: HashMap::new() };
        Self {
            builder: Builder::new(graph),
            trainable,
            opset: 0,
            narrow: BTreeMap::new(),
            positions: BTreeSet::new(),
            quantized_from: BTreeMap::new(),
            places: HashMap::new(),
            model,
            frames: vec![frame],
            scopes: vec![Scope { values: HashMap::new(), closed: true, read: Rc::default() }],
            keys: HashSet::new(),
            met: Vec::new(),
            bodies: HashMap::new(),
            named: Vec::new(),
            lowered: 0,
            counted: 0,
            choice: None,
            choices: 0,
            nested: None,
            problems: Problems::default(),
        }
    }

    /// The folder for external data.
    pub(crate) fn folder(&self) -> &'m Folder {
        self.model.folder
    }

    // ---- names ----

    /// Binds a name of the innermost scope.
    pub(crate) fn bind(&mut self, name: &'m str, operand: Option<Operand>) -> Result<(), ImportErrorKind> {
        let scope = self.scopes.last_mut().map(|scope| scope.values.insert(name, operand));
        match scope {
            Some(None) => Ok(()),
            _ => Err(ImportErrorKind::Duplicate(name.to_owned())),
        }
    }

    /// What a name stands for; `None` when nothing defines it.
    fn lookup(&self, name: &str) -> Option<&Option<Operand>> {
        for scope in self.scopes.iter().rev() {
            if let Some(operand) = scope.values.get(name) {
                return Some(operand);
            }
            if scope.closed {
                return None;
            }
        }
        None
    }

    /// Whether something defines a name, or would, had nothing gone wrong.
    fn is_known(&self, name: &str) -> bool {
        self.lookup(name).is_some() || self.problems.lost(name)
    }

    fn resolve(&self, name: &str) -> Result<Option<Operand>, ImportErrorKind> {
        if name.is_empty() {
            return Ok(None);
        }
        match self.lookup(name).cloned() {
            Some(operand) => Ok(operand),
            None if self.problems.lost(name) => Err(ImportErrorKind::Several(Vec::new())),
            None => Err(ImportErrorKind::Undefined(name.to_owned())),
        }
    }

    // ---- graphs ----

    /// Notes what a value of a data type can hold, where its dtype could hold more.
    pub(crate) fn note_narrow(&mut self, value: ValueId, data_type: i32) {
        self.narrow.extend(tensor::narrow(data_type).map(|narrow| (value, narrow)));
    }

    /// What a value can hold.
    pub(crate) fn data_type(&self, value: ValueId) -> DataType {
        DataType { dtype: self.dtype(value), narrow: self.narrow.get(&value).copied() }
    }

    /// The places of strings, which join the graph's table.
    pub(crate) fn places(&mut self, texts: &[String]) -> Vec<i64> {
        let table = &mut self.builder.graph.strings.table;
        let mut place = |text: &String| {
            if let Some(&place) = self.places.get(text) {
                return place;
            }
            let place = table.len() as i64;
            table.push(text.clone());
            self.places.insert(text.clone(), place);
            place
        };
        texts.iter().map(&mut place).collect()
    }

    /// A constant of strings.
    pub(crate) fn constant_strings(
        &mut self,
        name: Option<String>,
        texts: &[String],
        shape: &[usize],
    ) -> Operand {
        let places = self.places(texts);
        Operand::Strings(self.builder.graph.add_constant(name, TensorData::new(places, shape)))
    }

    /// Adds a graph's initializers as constants.
    pub(crate) fn initializers(&mut self, graph: &'m GraphProto) -> Result<(), ImportErrorKind> {
        for proto in &graph.initializer {
            if proto.data_type == tensor::STRING {
                match self.read_strings(proto) {
                    Ok((texts, shape)) => {
                        let strings = self.constant_strings(Some(proto.name.clone()), &texts, &shape);
                        self.bind(&proto.name, Some(strings))?;
                    }
                    Err(kind) => {
                        self.note(kind.into(), [proto.name.as_str()]).map_err(|error| *error.kind)?;
                    }
                }
                continue;
            }
            let data = match self.read(proto) {
                Ok(data) => data,
                Err(kind) => {
                    self.note(kind.into(), [proto.name.as_str()]).map_err(|error| *error.kind)?;
                    continue;
                }
            };
            let provenance = self.provenance(&proto.name, &data);
            let name = self.model.paths.constant(&proto.name).to_owned();
            let value = self.builder.graph.add_derived(Some(name), data, provenance);
            self.note_narrow(value, proto.data_type);
            self.bind(&proto.name, Some(Operand::Tensor(value)))?;
        }
        for proto in &graph.sparse_initializer {
            let name = proto.values.as_ref().map(|values| values.name.as_str()).unwrap_or_default();
            let data = self.read_sparse(proto)?;
            let provenance = self.provenance(name, &data);
            let value = self.builder.graph.add_derived(Some(name.to_owned()), data, provenance);
            self.bind(name, Some(Operand::Tensor(value)))?;
        }
        Ok(())
    }

    /// A constant that a node of the model's own holds: a parameter, if it has the name of one. What PaddlePaddle calls them is no
    /// key of a checkpoint.
    pub(crate) fn named_constant(&mut self, name: &'m str, data: TensorData) -> ValueId {
        let is_outside = self.frames.len() == 1 && self.scopes.len() == 1;
        if !is_outside || !self.model.parameters.holds_parameter(name, &data) {
            return self.builder.graph.add_constant(None, data);
        }
        let provenance = Arc::new(Provenance::Exporter { name: name.to_owned(), keys: Vec::new() });
        self.builder.graph.add_derived(Some(name.to_owned()), data, Some(provenance))
    }

    /// What an initializer is made of. One name is one parameter.
    fn provenance(&mut self, name: &'m str, data: &TensorData) -> Option<Arc<Provenance>> {
        let provenance = self.model.parameters.provenance(name, data)?;
        if self.keys.insert(name) {
            self.met.push(name);
            return Some(provenance);
        }
        let name = format!("{name}, number {}", self.builder.graph.constants.len());
        Some(Arc::new(Provenance::Exporter { name, keys: Vec::new() }))
    }

    /// Lowers nodes whose inputs are bound in the innermost scope; yields the named outputs.
    pub(crate) fn body(&mut self, nodes: &'m [NodeProto], outputs: &[&'m str]) -> ImportResult<Vec<Operand>> {
        let known = nodes.first().and_then(|first| self.bodies.get(&std::ptr::from_ref(first)));
        let body = match known {
            Some(body) => body.clone(),
            None => {
                let body = Rc::new(self.sorted(nodes, outputs)?);
                self.bodies.extend(nodes.first().map(|first| (std::ptr::from_ref(first), body.clone())));
                body
            }
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.read = body.read.clone();
        }
        self.run(&body.nodes, outputs)
    }

    fn run(&mut self, nodes: &[&'m NodeProto], outputs: &[&'m str]) -> ImportResult<Vec<Operand>> {
        for (at, node) in nodes.iter().enumerate() {
            let Err(error) = self.node(node) else { continue };
            match self.choice.take() {
                Some(choice) if self.choices < MAX_CHOICES => {
                    self.choices += 1;
                    let rest = nodes.get(at + 1..).unwrap_or_default();
                    let result = self.choose(&choice, node, rest, outputs);
                    self.choices -= 1;
                    return result;
                }
                _ => self.note(error, node.output.iter().map(String::as_str))?,
            }
        }
        let mut values = Vec::with_capacity(outputs.len());
        for &name in outputs {
            let value = self
                .resolve(name)
                .and_then(|value| value.ok_or_else(|| ImportErrorKind::Undefined(name.to_owned())));
            match value {
                Ok(value) => values.push(value),
                Err(kind) => self.note(kind.into(), [name])?,
            }
        }
        Ok(values)
    }

    /// A graph inside the current one: sees the names around it.
    pub(crate) fn subgraph(&mut self, graph: &'m GraphProto) -> ImportResult<Vec<Operand>> {
        self.subgraph_with(graph, Vec::new())
    }

    /// A graph inside the current one, with operands for its inputs.
    pub(crate) fn subgraph_with(
        &mut self,
        graph: &'m GraphProto,
        operands: Vec<Operand>,
    ) -> ImportResult<Vec<Operand>> {
        let initializers = graph.initializer.iter().map(|tensor| &tensor.name);
        let names = graph.input.iter().chain(&graph.output).map(|port| &port.name).chain(initializers);
        self.open_scope(false, cost::names(names))?;
        let outputs: Vec<&'m str> = graph.output.iter().map(|output| output.name.as_str()).collect();
        let mut inputs = graph.input.iter().zip(operands);
        let bound = inputs
            .try_for_each(|(input, operand)| self.bind(&input.name, Some(operand)))
            .and_then(|()| self.initializers(graph));
        let result = match bound {
            Ok(()) => self.body(&graph.node, &outputs),
            Err(kind) => Err(kind.into()),
        };
        self.scopes.pop();
        result
    }

    /// Opens a scope for the names of a graph or a function's body.
    fn open_scope(&mut self, closed: bool, names: usize) -> Result<(), ImportErrorKind> {
        if self.scopes.len() > MAX_DEPTH {
            return Err(ImportErrorKind::Limit {
                what: "graphs and functions inside each other",
                limit: MAX_DEPTH,
            });
        }
        self.spend(cost::BODY + names)?;
        let read = self.scopes.last().map(|scope| scope.read.clone()).unwrap_or_default();
        self.scopes.push(Scope { values: HashMap::new(), closed, read });
        Ok(())
    }

    /// A graph as a region of its own; its outputs are tensors, of these ranks at least where they are numbers.
    pub(crate) fn region(&mut self, graph: &'m GraphProto, ranks: &[usize]) -> RuleResult<Region> {
        let outer = self.builder.open_region();
        let result = self.subgraph(graph);
        let result = self.inner(result).and_then(tensors).and_then(|mut values| {
            for (value, &rank) in values.iter_mut().zip(ranks) {
                if self.rank(*value) < rank && self.dims(*value).iter().all(|dim| dim.is(1)) {
                    *value = self.reshape(*value, vec![Dim::constant(1); rank])?;
                }
            }
            Ok(values)
        });
        let (outputs, result) = match result {
            Ok(outputs) => (outputs, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        let region = self.builder.close_region(outer, outputs);
        result.map(|()| region)
    }

    /// An error inside a subgraph keeps its own site.
    pub(crate) fn inner<T>(&mut self, result: ImportResult<T>) -> RuleResult<T> {
        result.map_err(|error| {
            let rule = RuleError::Unsupported { what: error.kind.to_string() };
            self.nested = Some(error);
            rule
        })
    }

    // ---- nodes ----

    fn node(&mut self, node: &'m NodeProto) -> ImportResult<()> {
        self.lowered += 1;
        if self.lowered > MAX_NODES || self.builder.graph.nodes.len() > MAX_NODES {
            return Err(ImportErrorKind::Limit { what: "nodes, functions inlined,", limit: MAX_NODES }.into());
        }
        self.spend_node(node)?;
        let site = |this: &Self, opset| {
            Some(Box::new(Site {
                node: node.name.clone(),
                output: node.output.first().cloned().unwrap_or_default(),
                operator: operator_name(node),
                opset,
                functions: this.frames.iter().filter_map(|f| f.function).map(|f| f.name.clone()).collect(),
            }))
        };
        let opset = self.opset_of(&node.domain);
        let outer = (self.builder.origin.clone(), self.opset);
        self.enter(node, opset.unwrap_or(0));
        let result = self.outputs_of(node, opset);
        (self.builder.origin, self.opset) = outer;
        let failed = |this: &mut Self, kind: ImportErrorKind| {
            this.nested
                .take()
                .unwrap_or_else(|| ImportError { site: site(this, opset.unwrap_or(0)), ..kind.into() })
        };
        let result = result.and_then(|values| self.spend_operations().map(|()| values));
        match result {
            Ok(values) => self.bind_outputs(node, values).map_err(|kind| failed(self, kind)),
            Err(kind) => Err(failed(self, kind)),
        }
    }

    /// Sets what new operations are said to come from.
    fn enter(&mut self, node: &NodeProto, opset: i64) {
        let mut scope = self.model.paths.scope_of(node);
        if scope.is_empty() && self.frames.len() == 1 {
            scope = self.model.quantized.scope_of(node);
        }
        if scope.is_empty() && self.frames.len() > 1 {
            // A function's body belongs where the call stands.
            scope.clone_from(&self.builder.origin.scope);
        }
        let name = telling(&node.name).unwrap_or_default().to_owned();
        self.builder.origin = Origin { name, operator: operator_name(node), scope };
        self.opset = opset;
    }

    fn opset_of(&self, domain: &str) -> Option<i64> {
        let domain = domain_of(domain);
        self.frames.iter().rev().find_map(|frame| frame.opsets.get(domain).copied())
    }

    fn outputs_of(
        &mut self,
        node: &'m NodeProto,
        opset: Option<i64>,
    ) -> Result<Vec<Operand>, ImportErrorKind> {
        let attributes = self.attributes(node)?;
        let operands = node.input.iter().map(|name| self.resolve(name)).collect::<Result<Vec<_>, _>>()?;
        let key = (domain_of(&node.domain), node.op_type.as_str(), node.overload.as_str());
        if let Some(function) = self.model.functions.get(&key) {
            return self.inline(function, attributes, operands);
        }
        let domain = domain_of(&node.domain);
        let opset = opset.unwrap_or(0);
        // An unknown one was reported when all operators were checked.
        let Some(entry) = ops::find(domain, &node.op_type, opset) else {
            return Err(ImportErrorKind::Several(Vec::new()));
        };
        let args = Args::new(entry, operands)?;
        let mut source = SourceNode::new(node, opset, attributes, self.outputs_read(node));
        if domain.is_empty() && opset < 6 {
            // Which inputs might be overwritten.
            source.ignore(&["consumed_inputs"]);
        }
        Ok(entry.run(&mut source, &args, self)?.0)
    }

    /// Whether the body that is being lowered reads a name, or yields it.
    fn is_read(&self, name: &str) -> bool {
        self.scopes.last().is_some_and(|scope| scope.read.contains(name))
    }

    /// Which outputs of a node are read.
    fn outputs_read(&self, node: &NodeProto) -> Vec<bool> {
        node.output.iter().map(|name| self.is_read(name)).collect()
    }

    fn bind_outputs(&mut self, node: &'m NodeProto, values: Vec<Operand>) -> Result<(), ImportErrorKind> {
        let mut values = values.into_iter();
        for name in &node.output {
            let value = values.next();
            if name.is_empty() {
                continue;
            }
            let Some(value) = value else {
                if !self.is_read(name) {
                    continue;
                }
                let what = format!("the output {} of this operator", kiln_types::quoted(name));
                return Err(RuleError::Unsupported { what }.into());
            };
            if let Operand::Tensor(id) = value
                && let Some(telling) = telling(name)
                && self.builder.graph.value(id).name.is_empty()
            {
                telling.clone_into(&mut self.builder.graph.value_mut(id).name);
                self.named.push(id);
            }
            self.bind(name, Some(value).filter(|value| !matches!(value, Operand::Absent)))?;
        }
        Ok(())
    }
}

/// A name of a node or a value, unless it is so long that it says nothing; a function's names are repeated with it.
fn telling(name: &str) -> Option<&str> {
    const LONGEST: usize = 512;
    (name.len() <= LONGEST).then_some(name)
}

/// Operands that are all tensors.
pub(crate) fn tensors(operands: Vec<Operand>) -> RuleResult<Vec<ValueId>> {
    operands.iter().map(|operand| operand.tensor("as an output here")).collect()
}
