//! The walk over a program.

use super::call::{Call, Result, Tensor, int, sizes};
use super::operators::Sharing;
use super::schema::{Argument, Graph, Name, Node, SymBool, SymFloat, SymInt, TensorMeta};
use super::value::{Complex, Output, Value};
use super::views::{Lazily, View, Views};
use super::{dtype, operators, scopes, views};
use crate::error::{ImportError, ImportErrorKind, Site, quoted};
use crate::ir::Budget;
use crate::onnx::proto::{AttributeProto, NodeProto, StringStringEntryProto};
use kiln_types::DType;
use std::collections::{HashMap, HashSet};

/// The domain of nodes that stand for operators that Kiln does not know; nobody defines it, so that all are reported at once.
pub(crate) const DOMAIN: &str = "torch.ops";

/// What is known of a name of a program.
#[derive(Clone)]
enum Slot {
    Value(Value),
    /// Nothing, as its operator's rule does not compute it.
    Absent,
}

/// The names of one graph of a program. Graphs inside of it have their own.
struct Frame<'p> {
    graph: &'p Graph,
    /// Names that may not be written: the model's own tensors, with what to call each in a message.
    fixed: HashMap<&'p str, &'p str>,
    slots: HashMap<&'p str, Slot>,
    views: Views<'p>,
    /// Names in `fixed` that somebody has read.
    read: HashSet<&'p str>,
    /// Numbers that are sizes, or sums and products of some: they are not negative.
    counts: HashSet<&'p str>,
}

impl<'p> Frame<'p> {
    fn new(graph: &'p Graph, fixed: HashMap<&'p str, &'p str>) -> Self {
        Self {
            graph,
            fixed,
            slots: HashMap::new(),
            views: Views::default(),
            read: HashSet::new(),
            counts: HashSet::new(),
        }
    }
}

/// A program on its way to a graph of ONNX.
pub(super) struct Translation<'p> {
    frames: Vec<Frame<'p>>,
    nodes: Vec<NodeProto>,
    /// Names that are taken.
    names: HashSet<String>,
    fresh: usize,
    /// Values that are imaginary parts of real numbers: all 0.
    zeros: HashSet<String>,
    /// Floats that were integers, with those.
    integers: HashMap<String, (String, DType)>,
    /// What the nodes that are written tell of their module.
    scope: Vec<StringStringEntryProto>,
    /// The version of ATen's operators, for messages.
    pub(super) opset: i64,
    /// Whether the model is to be trained.
    pub(super) trainable: bool,
    /// What is wrong, besides operators that Kiln does not know.
    problems: Vec<ImportError>,
    /// What the program may still cost, of which steps are taken: calls may be translated again and again, those of views when what they view has
    /// changed, and those of a loop's condition.
    budget: Budget,
    /// How many conditions of loops, one within another, are being translated.
    conditions: usize,
    /// Whether more was wanted than there was, which is told.
    is_spent: bool,
    /// Bytes of nodes and constants that may still be written.
    room: usize,
}

/// Steps of translating a call, its nodes apart. In a file it takes some hundred bytes.
const CALL: usize = 128;
/// So many conditions of loops may be one within another.
const MOST_CONDITIONS: usize = 2;
/// Steps of a node that is written.
const NODE: usize = 16;
/// Bytes of nodes and constants that any program may take.
const FREE: usize = 1 << 27;
/// The same for each byte of a file: a call may become many nodes, or a table of indices.
const ROOM_PER_BYTE: usize = 64;

impl<'p> Translation<'p> {
    /// The walk over a program of a file of so many bytes.
    pub fn new(graph: &'p Graph, opset: i64, size: usize) -> Self {
        let frame = Frame::new(graph, HashMap::new());
        Self {
            frames: vec![frame],
            nodes: Vec::new(),
            names: HashSet::new(),
            fresh: 0,
            zeros: HashSet::new(),
            integers: HashMap::new(),
            scope: Vec::new(),
            opset,
            trainable: false,
            problems: Vec::new(),
            budget: Budget::of_file(size as u64),
            conditions: 0,
            is_spent: false,
            room: size.saturating_mul(ROOM_PER_BYTE).saturating_add(FREE),
        }
    }

    fn frame(&mut self) -> &mut Frame<'p> {
        // There is always the program's own.
        let last = self.frames.len().saturating_sub(1);
        &mut self.frames[last]
    }

    /// A tensor of the model's own, which may not be written.
    pub fn keep(&mut self, name: &'p str, key: &'p str) {
        self.frame().fixed.insert(name, key);
    }

    /// Whether a buffer counts what layers count by themselves in training.
    pub fn is_moved_by_layers(&self, key: &str) -> bool {
        self.trainable && key.rsplit('.').next() == Some("num_batches_tracked")
    }

    /// Notes that a number is not negative.
    pub fn note_count(&mut self, name: &'p str) {
        self.frame().counts.insert(name);
    }

    /// Whether a number is known not to be negative.
    pub fn is_count(&self, name: &str) -> bool {
        self.frames.last().is_some_and(|frame| frame.counts.contains(name))
    }

    pub fn note_zeros(&mut self, value: &str) {
        self.zeros.insert(value.to_owned());
    }

    /// Whether a value is known to be all zeros.
    pub fn are_zeros(&self, value: &str) -> bool {
        self.zeros.contains(value)
    }

    /// Notes the integers that floats are.
    pub fn note_integers(&mut self, floats: &str, integers: &str, dtype: DType) {
        self.integers.insert(floats.to_owned(), (integers.to_owned(), dtype));
    }

    /// The integers that floats are known to be, and their dtype.
    pub fn integers(&self, floats: &str) -> Option<(String, DType)> {
        self.integers.get(floats).cloned()
    }

    // ---- names ----

    /// A name that nothing has: this one, or one that begins with it.
    pub fn unique(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        while !self.names.insert(name.clone()) {
            name = format!("{wanted}_{}", self.fresh);
            self.fresh += 1;
        }
        name
    }

    /// The name of a value that has none in the program.
    pub fn fresh(&mut self) -> String {
        loop {
            let name = format!("val_{}", self.fresh);
            self.fresh += 1;
            if self.names.insert(name.clone()) {
                return name;
            }
        }
    }

    /// What a program says of a tensor.
    pub fn described(&self, name: &str) -> Result<Tensor> {
        let meta = self.frames.last().and_then(|frame| frame.graph.tensor_values.get(name));
        let Some(meta) = meta else {
            let of = |known: fn(&Graph) -> &HashMap<String, serde::de::IgnoredAny>| {
                self.frames.last().is_some_and(|frame| known(frame.graph).contains_key(name))
            };
            let dtype = match (of(|graph| &graph.sym_bool_values), of(|graph| &graph.sym_float_values)) {
                (true, _) => DType::Bool,
                (_, true) => DType::F64,
                _ => DType::I64,
            };
            return Ok(Tensor { name: name.to_owned(), dtype, sizes: Vec::new() });
        };
        Ok(Tensor { name: name.to_owned(), dtype: dtype::of_scalar_type(meta.dtype)?, sizes: sizes(meta)? })
    }

    /// What a program says of a tensor, or of either part of a complex one.
    pub fn described_part(&self, name: &str) -> Result<Tensor> {
        match self.meta(name).and_then(|meta| Some((meta, dtype::complex_part(meta.dtype)?))) {
            Some((meta, dtype)) => Ok(Tensor { name: name.to_owned(), dtype, sizes: sizes(meta)? }),
            None => self.described(name),
        }
    }

    /// Whether the program says that a tensor is complex.
    pub fn is_described_complex(&self, name: &str) -> bool {
        self.meta(name).is_some_and(|meta| dtype::complex_part(meta.dtype).is_some())
    }

    /// Whether a name stands for complex numbers.
    pub fn holds_complex(&self, name: &str) -> bool {
        let slot = self.frames.last().and_then(|frame| frame.slots.get(name));
        matches!(slot, Some(Slot::Value(Value::Complex(_))))
    }

    /// A value with what the program says of it under this name.
    fn typed(&self, name: &str, output: Output) -> Result<Value> {
        match (output, self.is_described_complex(name)) {
            (Output::Real(value), false) => {
                Ok(Value::Tensor(Tensor { name: value, ..self.described(name)? }))
            }
            (Output::Complex(parts), true) => {
                let Tensor { dtype, sizes, .. } = self.described_part(name)?;
                Ok(Value::Complex(Complex { parts, dtype, sizes }))
            }
            (Output::Real(_), true) | (Output::Complex(_), false) => Err(super::call::unsupported(format!(
                "complex numbers for real ones, or real ones for complex ones, in {}",
                quoted(name)
            ))),
        }
    }

    /// The description of a value of a graph under a name of the program.
    pub fn meta(&self, name: &str) -> Option<&'p TensorMeta> {
        self.frames.last()?.graph.tensor_values.get(name)
    }

    /// Says what a name of the program stands for.
    pub fn bind(&mut self, name: &'p str, output: Output) -> Result<()> {
        let value = self.typed(name, output)?;
        self.bind_value(name, value);
        Ok(())
    }

    pub fn bind_value(&mut self, name: &'p str, value: Value) {
        let frame = self.frame();
        frame.views.changed(name);
        frame.slots.insert(name, Slot::Value(value));
    }

    /// The tensor of real numbers that a name of the program stands for.
    pub fn read(&mut self, name: &str) -> Result<Tensor> {
        self.value(name)?.real()
    }

    /// The value that a name of the program stands for; a view of what has changed since is made again.
    pub fn value(&mut self, name: &str) -> Result<Value> {
        let (looked_at, stale) = self.frame().views.stale(name);
        self.spend(looked_at)?;
        for view in stale {
            self.renew(view)?;
        }
        let frame = self.frame();
        if let Some((&fixed, _)) = frame.fixed.get_key_value(name) {
            frame.read.insert(fixed);
        }
        match frame.slots.get(name) {
            Some(Slot::Value(value)) => Ok(value.clone()),
            Some(Slot::Absent) => {
                Err(super::call::unsupported(format!("the result {}, which no rule computes", quoted(name))))
            }
            None => Err(ImportErrorKind::Undefined(name.to_owned())),
        }
    }

    /// Computes a view anew.
    fn renew(&mut self, view: View<'p>) -> Result<()> {
        let output = match view.node {
            None => Some(self.value(view.base)?.output()),
            Some(node) => {
                self.spend(CALL)?;
                let mut call = Call::new(self, node);
                let Some(rule) = operators::rule(&call) else { return Ok(()) };
                rule.outputs(&mut call)?.into_iter().nth(view.position)
            }
        };
        if let Some(output) = output {
            let value = self.typed(view.name, output)?;
            let frame = self.frame();
            frame.slots.insert(view.name, Slot::Value(value));
            frame.views.renewed(view.name);
        }
        Ok(())
    }

    /// Writes what a name stands for anew, and what that views.
    pub fn overwrite(&mut self, name: &'p str, output: Output) -> Result<()> {
        let (mut name, mut output) = (name, output);
        loop {
            self.spend(1)?;
            let fixed = self.frame().fixed.get(name).copied();
            if let Some(what) = fixed.filter(|what| !self.is_moved_by_layers(what)) {
                return Err(super::call::unsupported(format!(
                    "changing {} in place, which a model keeps as it is; in evaluation mode (`model.eval()`) most networks do not",
                    quoted(what)
                )));
            }
            let value = self.typed(name, output.clone())?;
            let viewed = self.frame().views.of(name);
            self.frame().slots.insert(name, Slot::Value(value));
            let Some(view) = viewed else {
                self.frame().views.changed(name);
                return Ok(());
            };
            // What it views has another part now.
            self.spend(CALL)?;
            let base = self.value(view.base)?;
            let whole = match view.node {
                None => output,
                Some(node) => {
                    views::put_back::put_back(&mut Call::new(self, node), &base, output, view.position)?
                }
            };
            self.frame().views.written(name);
            (name, output) = (view.base, whole);
        }
    }

    /// Takes steps; an error when no file of this size may ask for so many.
    pub fn spend(&mut self, steps: usize) -> Result<()> {
        if self.budget.steps.take(steps as u64) {
            return Ok(());
        }
        self.is_spent = true;
        Err(ImportErrorKind::Disproportionate {
            what: "calls that are translated again, as tensors were changed in place or loops have conditions,",
        })
    }

    // ---- nodes ----

    pub fn write(
        &mut self,
        domain: &str,
        operator: &str,
        inputs: &[&str],
        output: Vec<String>,
        attribute: Vec<AttributeProto>,
    ) {
        let constants = attribute.iter().filter_map(|attribute| attribute.t.as_ref());
        let bytes = constants.map(|tensor| tensor.raw_data.len());
        let bytes: usize = bytes.chain(self.scope.iter().map(|entry| entry.value.len())).sum();
        self.room = self.room.saturating_sub(bytes.saturating_add(size_of::<NodeProto>()));
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output,
            name: String::new(),
            op_type: operator.to_owned(),
            attribute,
            domain: domain.to_owned(),
            overload: String::new(),
            metadata_props: self.scope.clone(),
        });
    }

    /// Writes what takes pairs along an axis, the last one, apart into real and imaginary parts of these names.
    pub fn split_pairs(&mut self, pairs: &str, axis: usize, names: [String; 2]) -> [String; 2] {
        let axis = i64::try_from(axis).unwrap_or(i64::MAX);
        for (place, name) in (0..).zip(&names) {
            let index = self.fresh();
            self.write("", "Constant", &[], vec![index.clone()], vec![int("value_int", place)]);
            self.write("", "Gather", &[pairs, &index], vec![name.clone()], vec![int("axis", axis)]);
        }
        names
    }

    /// The names of a call's results, those in lists among them; results that are no tensors and no numbers are left out.
    pub fn results(&self, node: &'p Node) -> impl Iterator<Item = &'p str> + use<'p> {
        node.outputs.iter().flat_map(names_of)
    }

    /// Translates the calls of a graph whose inputs are bound.
    pub fn graph(&mut self, graph: &'p Graph) {
        for node in &graph.nodes {
            if self.is_spent {
                return;
            }
            if self.room == 0 {
                let too_much =
                    ImportErrorKind::Disproportionate { what: "the operations that its calls stand for" };
                return self.problems.push(too_much.into());
            }
            let outer = std::mem::replace(&mut self.scope, scopes::entries(node));
            let start = self.nodes.len();
            if let Err(kind) = self.spend(CALL).and_then(|()| self.call(node, start)) {
                let known = !matches!(kind, ImportErrorKind::Duplicate(_));
                self.note(node, kind);
                // Those who use its results have their own problems to tell.
                if known {
                    self.unknown(node);
                }
            }
            let (written, is_told) = (self.nodes.len().saturating_sub(start), self.is_spent);
            if let Err(kind) = self.spend(written.saturating_mul(NODE))
                && !is_told
            {
                self.note(node, kind);
            }
            let name = node_name(node);
            for written in self.nodes.get_mut(start..).unwrap_or_default() {
                if written.name.is_empty() {
                    written.name = name.to_owned();
                }
            }
            self.scope = outer;
        }
    }

    fn call(&mut self, node: &'p Node, start: usize) -> Result<()> {
        // Each name stands for one result, so that no view is made of itself.
        let slots = &self.frame().slots;
        let mut new = HashSet::new();
        let twice = node
            .outputs
            .iter()
            .flat_map(names_of)
            .find(|name| slots.contains_key(name) || !new.insert(*name));
        if let Some(name) = twice {
            return Err(ImportErrorKind::Duplicate(name.to_owned()));
        }
        let Some(rule) = operators::rule(&Call::new(self, node)) else {
            self.unknown(node);
            return Ok(());
        };
        let in_place = operators::is_in_place(&node.target);
        if let Some(target) =
            operators::first_tensor(node).filter(|_| in_place && operators::replaces(&node.target))
        {
            // What is given anew before anybody has read it is no state.
            let frame = self.frame();
            if !frame.read.contains(target) {
                frame.fixed.remove(target);
            }
        }
        let mut call = Call::new(self, node);
        let outputs = rule.outputs(&mut call)?;
        let written = operators::written(node);
        if written.is_some() {
            call.ignore(&[operators::OUT]);
        }
        call.finish()?;
        if let Some(target) = written {
            return self.written_in_place(node, target, outputs);
        }
        let names: Vec<&'p str> = self.results(node).collect();
        let outputs = self.named(&names, outputs, start);
        for (position, &name) in names.iter().enumerate() {
            let base = self.viewed(node, position, name)?;
            match outputs.get(position) {
                Some(output) => self.bind(name, output.clone())?,
                None => drop(self.frame().slots.insert(name, Slot::Absent)),
            }
            if let Some(base) = base {
                self.frame().views.note(View { name, node: Some(node), position, base });
            }
        }
        Ok(())
    }

    /// The tensor that the result of a position is a view of.
    fn viewed(&mut self, node: &'p Node, position: usize, result: &str) -> Result<Option<&'p str>> {
        let mut call = Call::new(self, node);
        let (Some(sharing), Some(base)) = (operators::sharing(&call), operators::base(node, position)) else {
            return Ok(None);
        };
        let metas = call.to.meta(base).zip(call.to.meta(result));
        let view = match sharing {
            Sharing::Always => true,
            Sharing::AsItIs => {
                let same = |(base, result): (&TensorMeta, &TensorMeta)| {
                    base.dtype == result.dtype && views::lie_alike(base, result)
                };
                metas.is_some_and(same) && !call.bool_or("copy", false)?
            }
            Sharing::IfItLiesSo => metas.is_some_and(|(base, result)| views::lies_as(base, result)),
            Sharing::IfContiguous => metas.is_some_and(|(base, _)| views::is_contiguous(base)),
            Sharing::IfSameShape => metas.is_some_and(|(base, result)| views::have_one_shape(base, result)),
            Sharing::UnlessDropped => !call.bool_or("train", true)? || call.float_or("p", 0.5)? == 0.0,
            Sharing::UnlessConjugated => !self.lazily(base)?.conjugated,
            Sharing::UnlessNegated => !self.lazily(base)?.negated,
        };
        Ok(view.then_some(base))
    }

    /// What is done to a tensor's elements when they are read: results of operators that are no views lie as they are.
    fn lazily(&mut self, name: &str) -> Result<Lazily> {
        let chain = self.frame().views.chain(name);
        self.spend(chain.len())?;
        let viewed = |lazily: Lazily, view: View<'p>| {
            let node = view.node.filter(|_| self.is_described_complex(view.base));
            let view = node.and_then(|node| operators::complex::view(&node.target));
            view.map_or(lazily, |view| lazily.viewed(view.shown))
        };
        Ok(chain.into_iter().fold(Lazily::default(), viewed))
    }

    /// The results of a call that changes one of its arguments: all are that one.
    fn written_in_place(&mut self, node: &'p Node, target: &'p str, outputs: Vec<Output>) -> Result<()> {
        let Some(output) = outputs.into_iter().next() else { return Ok(()) };
        // A tensor for results becomes one of their shape, which views of it do not.
        let resized = |name: &str| {
            let metas = self.meta(target).zip(self.meta(name));
            metas.is_some_and(|(target, result)| !views::may_have_one_shape(target, result))
        };
        if self.results(node).any(resized) {
            return Err(super::call::unsupported(format!("a result of another shape in {}", quoted(target))));
        }
        self.overwrite(target, output)?;
        for name in self.results(node) {
            let value = self.value(target)?;
            self.bind_value(name, value);
            self.frame().views.note(View { name, node: None, position: 0, base: target });
        }
        Ok(())
    }

    /// Gives values that a call's nodes yield the names of the program, as far as these are free.
    fn named(&mut self, names: &[&str], outputs: Vec<Output>, start: usize) -> Vec<Output> {
        let mut renamed: HashMap<String, String> = HashMap::new();
        let nodes = self.nodes.get(start..).unwrap_or_default();
        let made: HashSet<&str> = nodes.iter().flat_map(|node| &node.output).map(String::as_str).collect();
        let wanted = names.iter().zip(&outputs).flat_map(|(&name, output)| match output {
            Output::Real(value) => vec![(name.to_owned(), value)],
            Output::Complex(parts) => part_names(name).into_iter().zip(parts).collect(),
        });
        for (name, value) in wanted {
            if made.contains(value.as_str())
                && !renamed.contains_key(value)
                && self.names.insert(name.clone())
            {
                renamed.insert(value.clone(), name);
            }
        }
        if renamed.is_empty() {
            return outputs;
        }
        for (value, name) in &renamed {
            if self.zeros.remove(value) {
                self.zeros.insert(name.clone());
            }
            if let Some((integers, dtype)) = self.integers.remove(value) {
                let integers = renamed.get(&integers).cloned().unwrap_or(integers);
                self.integers.insert(name.clone(), (integers, dtype));
            }
        }
        for node in self.nodes.get_mut(start..).unwrap_or_default() {
            for value in node.input.iter_mut().chain(&mut node.output) {
                if let Some(name) = renamed.get(value) {
                    value.clone_from(name);
                }
            }
        }
        let rename = |value: String| renamed.get(&value).cloned().unwrap_or(value);
        let named = |output| match output {
            Output::Real(value) => Output::Real(rename(value)),
            Output::Complex(parts) => Output::Complex(parts.map(rename)),
        };
        outputs.into_iter().map(named).collect()
    }

    /// A node in place of a call that cannot be translated.
    fn unknown(&mut self, node: &'p Node) {
        let names: Vec<&'p str> = self.results(node).collect();
        let call = Call::new(self, node);
        // What an operator cannot do with complex numbers it may do with others.
        let of_complex = call.is_complex() && operators::rule(&call).is_none();
        let operator = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
        let operator =
            if of_complex { format!("{operator}{}", operators::OF_COMPLEX) } else { operator.to_owned() };
        let mut results = Vec::with_capacity(names.len());
        for &name in &names {
            results.push(match self.is_described_complex(name) {
                true => Output::Complex(part_names(name).map(|name| self.unique(&name))),
                false => Output::Real(self.unique(name)),
            });
        }
        let outputs = results.iter().flat_map(|output| match output {
            Output::Real(value) => vec![value.clone()],
            Output::Complex(parts) => parts.to_vec(),
        });
        let outputs = outputs.collect();
        self.write(DOMAIN, &operator, &[], outputs, Vec::new());
        for (&name, output) in names.iter().zip(results) {
            // What cannot be described is told where it is made.
            let value = self.typed(name, output.clone()).unwrap_or_else(|_| match output {
                Output::Real(name) => Value::Tensor(Tensor { name, dtype: DType::F32, sizes: Vec::new() }),
                Output::Complex(parts) => {
                    Value::Complex(Complex { parts, dtype: DType::F32, sizes: Vec::new() })
                }
            });
            self.bind_value(name, value);
        }
    }

    fn note(&mut self, node: &Node, kind: ImportErrorKind) {
        let site = Site {
            node: node_name(node).to_owned(),
            output: String::new(),
            operator: node.target.strip_prefix("torch.ops.").unwrap_or(&node.target).to_owned(),
            opset: self.opset,
            functions: Vec::new(),
        };
        self.problems.push(ImportError { site: Some(Box::new(site)), ..kind.into() });
    }

    // ---- graphs inside of graphs ----

    /// Translates a graph whose inputs are these values, in place; yields what its outputs stand for, and its inputs behind it.
    pub fn inlined(&mut self, graph: &'p Graph, inputs: &[Value]) -> Result<(Vec<Value>, Vec<Value>)> {
        self.frames.push(Frame::new(graph, HashMap::new()));
        let outputs = self.inner(graph, inputs);
        self.frames.pop();
        outputs
    }

    fn inner(&mut self, graph: &'p Graph, inputs: &[Value]) -> Result<(Vec<Value>, Vec<Value>)> {
        for (input, value) in graph.inputs.iter().filter_map(named).zip(inputs) {
            if self.frame().slots.contains_key(input) {
                return Err(ImportErrorKind::Duplicate(input.to_owned()));
            }
            self.bind_value(input, value.clone());
        }
        self.graph(graph);
        let mut read =
            |names: &'p [Argument]| names.iter().filter_map(named).map(|name| self.value(name)).collect();
        let outputs: Result<Vec<Value>> = read(&graph.outputs);
        Ok((outputs?, read(&graph.inputs)?))
    }

    /// As [`Translation::inlined`], for a graph that may not change its inputs.
    pub fn called(&mut self, graph: &'p Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let given: Vec<Value> = inputs.iter().cloned().map(Value::Tensor).collect();
        let (outputs, behind) = self.inlined(graph, &given)?;
        let outputs = outputs.into_iter().map(Value::real).collect::<Result<_>>()?;
        let behind = behind.into_iter().map(Value::real).collect::<Result<Vec<_>>>()?;
        match inputs.iter().zip(&behind).all(|(before, behind)| before.name == behind.name) {
            true => Ok(outputs),
            false => {
                Err(super::call::unsupported("changing the arguments of a branch or a loop's round in place"))
            }
        }
    }

    /// As [`Translation::called`], for the condition of a loop, which is translated for the first round and for those behind it: that of a loop within a condition
    /// within a condition would be eight times.
    pub fn condition(&mut self, graph: &'p Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        if self.conditions >= MOST_CONDITIONS {
            return Err(super::call::unsupported("loops within the conditions of loops, one in another"));
        }
        self.conditions += 1;
        let outputs = self.called(graph, inputs);
        self.conditions -= 1;
        outputs
    }

    /// Translates a graph apart: its nodes, and what its outputs stand for, under names of its own.
    pub fn apart(&mut self, graph: &'p Graph, inputs: &[Tensor]) -> Result<(Vec<NodeProto>, Vec<Tensor>)> {
        self.apart_then(graph, inputs, |_, outputs| Ok(outputs))
    }

    /// As [`Translation::apart`], with more behind the graph, which makes of its outputs those that are wanted.
    pub fn apart_then(
        &mut self,
        graph: &'p Graph,
        inputs: &[Tensor],
        then: impl FnOnce(&mut Self, Vec<Tensor>) -> Result<Vec<Tensor>>,
    ) -> Result<(Vec<NodeProto>, Vec<Tensor>)> {
        let outer = std::mem::take(&mut self.nodes);
        let outputs = self.called(graph, inputs).and_then(|outputs| then(self, outputs));
        let outputs = outputs.map(|mut outputs| {
            for output in &mut outputs {
                // An output may be a value from outside, or the same as another.
                let own = self.fresh();
                self.write("", "Identity", &[&output.name], vec![own.clone()], Vec::new());
                output.name = own;
            }
            outputs
        });
        let nodes = std::mem::replace(&mut self.nodes, outer);
        Ok((nodes, outputs?))
    }

    /// Everything that was written, and what is wrong.
    pub fn finish(self) -> (Vec<NodeProto>, Vec<ImportError>) {
        (self.nodes, self.problems)
    }
}

/// The names of an argument that is a tensor, a number, or a list of tensors.
fn names_of(argument: &Argument) -> impl Iterator<Item = &str> {
    let list = match argument {
        Argument::Tensors(list) => list.as_slice(),
        _ => &[],
    };
    named(argument).into_iter().chain(list.iter().map(|tensor| tensor.name.as_str()))
}

/// The name of an argument that is a tensor or a number of the program.
pub(super) fn named(argument: &Argument) -> Option<&str> {
    match argument {
        Argument::Tensor(Name { name })
        | Argument::SymInt(SymInt::Name(name))
        | Argument::SymFloat(SymFloat::Name(name))
        | Argument::SymBool(SymBool::Name(name)) => Some(name),
        _ => None,
    }
}

/// The names of the parts of a complex value.
pub(super) fn part_names(name: &str) -> [String; 2] {
    [format!("{name}_real"), format!("{name}_imag")]
}

fn node_name(node: &Node) -> &str {
    let output = || node.outputs.iter().find_map(named);
    node.name.as_deref().or_else(output).unwrap_or_default()
}
