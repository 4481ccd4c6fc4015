//! The walk over a program.

mod in_place;

use super::call::{Call, Result, Tensor, int, sizes};
use super::operators::Sharing;
use super::schema::{Argument, Graph, Name, Node, SymBool, SymFloat, SymInt, TensorMeta};
use super::value::{Complex, Output, Value};
use super::views::{By, Key, Lazily, View, Views};
use super::{dtype, operators, scopes, views};
use crate::error::{ImportError, ImportErrorKind, Site};
use crate::ir::Budget;
use crate::onnx::proto::{AttributeProto, NodeProto, StringStringEntryProto};
use kiln_types::{DType, quoted};
use std::collections::{HashMap, HashSet};

/// The domain of nodes that stand for operators that Kiln does not know; nobody defines it, so that all are reported at once.
pub(crate) const DOMAIN: &str = "torch.ops";

/// What is known of a name of a program.
#[derive(Clone)]
enum Slot<'p> {
    Value(Value),
    /// Nothing, as its operator's rule does not compute it.
    Absent,
    /// Nobody knows: a result of this operator was changed in place, which may share elements with it or not.
    Unsure(&'p str),
}

/// The names of one graph of a program. Graphs inside of it have their own.
struct Frame<'p> {
    graph: &'p Graph,
    /// Names that may not be written: the model's own tensors, with what to call each in a message.
    fixed: HashMap<&'p str, &'p str>,
    slots: HashMap<&'p str, Slot<'p>>,
    /// Names in `fixed` that somebody has read.
    read: HashSet<&'p str>,
    /// Numbers that are sizes, or sums and products of some: they are not negative.
    counts: HashSet<&'p str>,
}

impl<'p> Frame<'p> {
    fn new(graph: &'p Graph, fixed: HashMap<&'p str, &'p str>) -> Self {
        Self { graph, fixed, slots: HashMap::new(), read: HashSet::new(), counts: HashSet::new() }
    }

    fn meta(&self, name: &str) -> Option<&'p TensorMeta> {
        self.graph.tensor_values.get(name)
    }
}

/// A program on its way to a graph of ONNX.
pub(super) struct Translation<'p> {
    /// The program's own names first. Those of graphs that stand in place of a call are kept, as what is outside may view what is inside.
    frames: Vec<Frame<'p>>,
    /// Whose names are meant.
    current: usize,
    views: Views<'p>,
    /// How many views are being made again, one for another.
    renewing: usize,
    nodes: Vec<NodeProto>,
    /// How many nodes were written, and of how many steps were taken.
    written: usize,
    paid: usize,
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
/// So many views may be made again, one for another.
const MOST_RENEWED: usize = 32;
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
            current: 0,
            views: Views::default(),
            renewing: 0,
            nodes: Vec::new(),
            written: 0,
            paid: 0,
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
        self.frame_of(self.current)
    }

    fn frame_of(&mut self, frame: usize) -> &mut Frame<'p> {
        // All that are named were made, and there is always the program's own.
        let last = self.frames.len().saturating_sub(1);
        &mut self.frames[frame.min(last)]
    }

    fn here(&self) -> Option<&Frame<'p>> {
        self.frames.get(self.current)
    }

    /// A name of the graph that is being translated.
    fn key<'n>(&self, name: &'n str) -> Key<'n> {
        Key { frame: self.current, name }
    }

    /// Does something with the names of another graph.
    fn inside<R>(&mut self, frame: usize, then: impl FnOnce(&mut Self) -> R) -> R {
        let outer = std::mem::replace(&mut self.current, frame);
        let result = then(self);
        self.current = outer;
        result
    }

    /// Begins with the names of a graph, of which there are none yet.
    fn enter(&mut self, graph: &'p Graph) -> usize {
        self.frames.push(Frame::new(graph, HashMap::new()));
        self.frames.len() - 1
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
        self.here().is_some_and(|frame| frame.counts.contains(name))
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
        let meta = self.here().and_then(|frame| frame.graph.tensor_values.get(name));
        let Some(meta) = meta else {
            let of = |known: fn(&Graph) -> &HashMap<String, serde::de::IgnoredAny>| {
                self.here().is_some_and(|frame| known(frame.graph).contains_key(name))
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
        let slot = self.here().and_then(|frame| frame.slots.get(name));
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
        self.here()?.meta(name)
    }

    /// Says what a name of the program stands for.
    pub fn bind(&mut self, name: &'p str, output: Output) -> Result<()> {
        let value = self.typed(name, output)?;
        self.bind_value(name, value);
        Ok(())
    }

    pub fn bind_value(&mut self, name: &'p str, value: Value) {
        self.views.changed(self.key(name));
        self.frame().slots.insert(name, Slot::Value(value));
    }

    /// The tensor of real numbers that a name of the program stands for.
    pub fn read(&mut self, name: &str) -> Result<Tensor> {
        self.value(name)?.real()
    }

    /// The value that a name of the program stands for; a view of what has changed since is made again.
    pub fn value(&mut self, name: &str) -> Result<Value> {
        self.value_of(self.key(name))
    }

    fn value_of(&mut self, key: Key<'_>) -> Result<Value> {
        let (looked_at, stale) = self.views.stale(key);
        self.spend(looked_at)?;
        for view in stale {
            self.renew(view)?;
        }
        let frame = self.frame_of(key.frame);
        if let Some((&fixed, _)) = frame.fixed.get_key_value(key.name) {
            frame.read.insert(fixed);
        }
        match frame.slots.get(key.name) {
            Some(Slot::Value(value)) => Ok(value.clone()),
            Some(Slot::Absent) => Err(super::call::unsupported(format!(
                "the result {}, which no rule computes",
                quoted(key.name)
            ))),
            Some(Slot::Unsure(operator)) => Err(unsure(operator)),
            None => Err(ImportErrorKind::Undefined(key.name.to_owned())),
        }
    }

    /// Computes a view anew, and with it what else the same call made of what has changed.
    fn renew(&mut self, view: View<'p>) -> Result<()> {
        if self.views.is_fresh(&view) {
            return Ok(());
        }
        let (node, position) = match view.by {
            By::Same => {
                let value = self.value_of(view.base)?;
                return self.show(view.name, value.output());
            }
            By::Detached => {
                let value = self.value_of(view.base)?;
                let value = operators::control::detached(self, value, view.name.name);
                return self.show(view.name, value.output());
            }
            By::Unsure(node) => return Err(unsure(operators::family(&node.target))),
            By::Call { node, position } => (node, position),
        };
        if self.renewing >= MOST_RENEWED {
            return Err(super::call::unsupported(
                "views that have to be made again for each other, as what they show was changed in place",
            ));
        }
        self.renewing += 1;
        let outputs = self.inside(view.name.frame, |to| {
            to.spend(CALL)?;
            let mut call = Call::new(to, node);
            match operators::rule(&call) {
                Some(rule) => rule.outputs(&mut call),
                None => Ok(Vec::new()),
            }
        });
        self.renewing -= 1;
        let outputs = outputs?;
        self.pay()?;
        self.spend(outputs.len())?;
        let names: Vec<&'p str> = self.results(node).take(outputs.len()).collect();
        for (place, (name, output)) in names.into_iter().zip(outputs).enumerate() {
            let name = Key { name, ..view.name };
            let made = self.views.get(name).filter(|view| matches!(view.by, By::Call { .. }));
            if place == position || made.is_some_and(|made| !self.views.is_fresh(&made)) {
                self.show(name, output)?;
            }
        }
        Ok(())
    }

    /// What a view shows now.
    fn show(&mut self, name: Key<'p>, output: Output) -> Result<()> {
        let value = self.inside(name.frame, |to| to.typed(name.name, output))?;
        self.frame_of(name.frame).slots.insert(name.name, Slot::Value(value));
        self.views.renewed(name);
        Ok(())
    }

    /// Writes what a name stands for anew, and what that views.
    pub fn overwrite(&mut self, name: &'p str, output: Output) -> Result<()> {
        let (mut name, mut output) = (self.key(name), output);
        loop {
            self.spend(1)?;
            let frame = self.frame_of(name.frame);
            if let Some(Slot::Unsure(operator)) = frame.slots.get(name.name) {
                return Err(unsure(operator));
            }
            let fixed = frame.fixed.get(name.name).copied();
            if let Some(what) = fixed.filter(|what| !self.is_moved_by_layers(what)) {
                return Err(super::call::unsupported(format!(
                    "changing {} in place, which a model keeps as it is; in evaluation mode (`model.eval()`) most networks do not",
                    quoted(what)
                )));
            }
            let value = self.inside(name.frame, |to| to.typed(name.name, output.clone()))?;
            let viewed = self.views.changing(name);
            self.frame_of(name.frame).slots.insert(name.name, Slot::Value(value));
            let Some(view) = viewed else {
                self.views.changed(name);
                return Ok(());
            };
            // What it views has another part now.
            self.spend(CALL)?;
            let whole = match view.by {
                By::Unsure(node) => return self.doubt(view, operators::family(&node.target)),
                By::Same | By::Detached => {
                    self.value_of(view.base)?;
                    output
                }
                By::Call { node, position } => {
                    let base = self.value_of(view.base)?;
                    self.inside(name.frame, |to| {
                        views::put_back::put_back(&mut Call::new(to, node), &base, output, position)
                    })?
                }
            };
            self.pay()?;
            self.views.written(name);
            (name, output) = (view.base, whole);
        }
    }

    /// A tensor was changed of which nobody knows whether it is a view or a copy: it goes on by itself, and nobody may look at what
    /// it may be a view of.
    fn doubt(&mut self, view: View<'p>, operator: &'p str) -> Result<()> {
        let chain = self.views.chain(view.base);
        self.spend(chain.len())?;
        let outermost = chain.first().map_or(view.base, |view| view.base);
        self.views.forget(view.name);
        self.views.changed(view.name);
        self.frame_of(outermost.frame).slots.insert(outermost.name, Slot::Unsure(operator));
        self.views.changed(outermost);
        Ok(())
    }

    /// Takes steps; an error when no file of this size may ask for so many.
    pub fn spend(&mut self, steps: usize) -> Result<()> {
        if self.budget.steps.take(steps as u64) {
            return Ok(());
        }
        self.is_spent = true;
        Err(ImportErrorKind::Disproportionate {
            what: "what its calls stand for, again where tensors were changed in place or loops have conditions,",
        })
    }

    /// Takes the steps of what was written since the last time; an error when no file of this size may ask for so much.
    fn pay(&mut self) -> Result<()> {
        let due = self.written.saturating_sub(self.paid);
        self.paid = self.written;
        self.spend(due.saturating_mul(NODE))?;
        if self.room > 0 {
            return Ok(());
        }
        self.is_spent = true;
        Err(ImportErrorKind::Disproportionate { what: "the operations that its calls stand for" })
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
        let constants = constants.map(|tensor| tensor.raw_data.len());
        let names = inputs.iter().map(|name| name.len()).chain(output.iter().map(String::len));
        let scopes = self.scope.iter().map(|entry| entry.value.len());
        let bytes = constants.chain(names).chain(scopes).fold(size_of::<NodeProto>(), usize::saturating_add);
        self.room = self.room.saturating_sub(bytes);
        self.written += 1;
        // What is too much is told when the call is done, and nobody sees its nodes.
        if self.room == 0 {
            return;
        }
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
            let is_told = self.is_spent;
            if let Err(kind) = self.pay()
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
        if operators::is_inlined(&node.target) {
            return self.inlined(node);
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
            let view = self.viewed(node, position, name)?;
            match outputs.get(position) {
                Some(output) => self.bind(name, output.clone())?,
                None => drop(self.frame().slots.insert(name, Slot::Absent)),
            }
            if let Some(view) = view {
                self.views.note(view);
            }
        }
        Ok(())
    }

    /// What the result of a position is a view of.
    fn viewed(&mut self, node: &'p Node, position: usize, result: &'p str) -> Result<Option<View<'p>>> {
        let mut call = Call::new(self, node);
        let Some(sharing) = operators::sharing(&call) else { return Ok(None) };
        let Some(base) = operators::base(node, position, sharing) else { return Ok(None) };
        let metas = call.to.meta(base).zip(call.to.meta(result));
        let laid = |view: fn(&TensorMeta, &TensorMeta) -> Option<bool>| {
            metas.map_or(Some(false), |(base, result)| view(base, result))
        };
        let shares =
            match sharing {
                Sharing::Always => Some(true),
                Sharing::AsItIs if call.bool_or("copy", false)? => Some(false),
                Sharing::AsItIs => laid(|base, result| {
                    if base.dtype == result.dtype { views::lie_alike(base, result) } else { Some(false) }
                }),
                Sharing::IfItLiesSo => laid(views::lies_as),
                Sharing::IfContiguous => laid(|base, _| views::is_contiguous(base)),
                Sharing::IfSameShape => laid(views::have_one_shape),
                Sharing::UnlessDropped => {
                    Some(!call.bool_or("train", true)? || call.float_or("p", 0.5)? == 0.0)
                }
                Sharing::UnlessConjugated => Some(!self.lazily(base)?.conjugated),
                Sharing::UnlessNegated => Some(!self.lazily(base)?.negated),
                Sharing::OfOne => Some(!operators::sums(&call)),
            };
        let by = match shares {
            Some(true) => By::Call { node, position },
            None => By::Unsure(node),
            Some(false) => return Ok(None),
        };
        Ok(Some(View { name: self.key(result), by, base: self.key(base) }))
    }

    /// What is done to a tensor's elements when they are read: results of operators that are no views lie as they are.
    fn lazily(&mut self, name: &str) -> Result<Lazily> {
        let chain = self.views.chain(self.key(name));
        self.spend(chain.len())?;
        let viewed = |lazily: Lazily, view: View<'p>| {
            let By::Call { node, .. } = view.by else { return lazily };
            let base = self.frames.get(view.base.frame).and_then(|frame| frame.meta(view.base.name));
            if base.is_none_or(|meta| dtype::complex_part(meta.dtype).is_none()) {
                return lazily;
            }
            let view = operators::complex::view(&node.target);
            view.map_or(lazily, |view| lazily.viewed(view.shown))
        };
        Ok(chain.into_iter().fold(Lazily::default(), viewed))
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

    /// Translates a graph in place of its call. What it is given are the tensors outside, and what it yields are those inside, so that what
    /// is written on one side the other has.
    fn inlined(&mut self, node: &'p Node) -> Result<()> {
        let Some(inlined) = operators::control::inlined(node)? else { return Ok(()) };
        let inner = self.enter(inlined.graph);
        for (name, argument) in inlined.graph.inputs.iter().filter_map(named).zip(inlined.arguments) {
            if self.frame_of(inner).slots.contains_key(name) {
                return Err(ImportErrorKind::Duplicate(name.to_owned()));
            }
            let value = self.value(argument)?;
            self.inside(inner, |to| to.bind_value(name, value));
            let name = Key { frame: inner, name };
            self.views.note(View { name, by: By::Same, base: self.key(argument) });
        }
        self.inside(inner, |to| to.graph(inlined.graph));
        if self.is_spent {
            return Ok(());
        }
        let mut outputs = inlined.graph.outputs.iter().filter_map(named);
        let names: Vec<&'p str> = self.results(node).collect();
        for name in names {
            let Some(output) = outputs.next() else {
                self.frame().slots.insert(name, Slot::Absent);
                continue;
            };
            let base = Key { frame: inner, name: output };
            let value = self.value_of(base)?;
            let (by, value) = match inlined.has_gradients {
                true => (By::Same, value),
                false => (By::Detached, operators::control::detached(self, value, name)),
            };
            self.bind(name, value.output())?;
            self.views.note(View { name: self.key(name), by, base });
        }
        Ok(())
    }

    /// What the outputs of a graph stand for whose inputs are these values, and its inputs behind it.
    fn isolated(&mut self, graph: &'p Graph, inputs: &[Tensor]) -> Result<(Vec<Value>, Vec<Value>)> {
        for (input, value) in graph.inputs.iter().filter_map(named).zip(inputs) {
            if self.frame().slots.contains_key(input) {
                return Err(ImportErrorKind::Duplicate(input.to_owned()));
            }
            self.bind_value(input, Value::Tensor(value.clone()));
        }
        self.graph(graph);
        let mut read =
            |names: &'p [Argument]| names.iter().filter_map(named).map(|name| self.value(name)).collect();
        let outputs: Result<Vec<Value>> = read(&graph.outputs);
        Ok((outputs?, read(&graph.inputs)?))
    }

    /// Translates a graph whose inputs are these values, which it may not change; yields what its outputs stand for.
    pub fn called(&mut self, graph: &'p Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let inner = self.enter(graph);
        let result = self.inside(inner, |to| to.isolated(graph, inputs));
        // Nothing outside views what was inside.
        for frame in self.frames.iter_mut().skip(inner) {
            *frame = Frame::new(frame.graph, HashMap::new());
        }
        let (outputs, behind) = result?;
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

/// An error about a tensor that may be another or a copy of it.
fn unsure(operator: &str) -> ImportErrorKind {
    super::call::unsupported(format!(
        "changing in place what `{operator}` yields or is given, where the program does not tell whether both share their elements; \
         `clone` makes sure that they do not"
    ))
}

/// The names of an argument that is a tensor, a number, or a list of tensors.
pub(super) fn names_of(argument: &Argument) -> impl Iterator<Item = &str> {
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
