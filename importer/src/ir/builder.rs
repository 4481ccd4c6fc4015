//! Appends typed nodes to a region of a graph.

use super::{
    Dim, Graph, Node, NodeId, Op, Origin, Region, RuleError, RuleResult, Symbol, SymbolOrigin, TensorType,
    Value, ValueDef, ValueId,
};
use crate::ir::{HostRead, HostTensor, Loop};
use kiln_types::{BinaryOp, DType, TensorData, UnaryOp};
use std::collections::{BTreeMap, BTreeSet};

/// Contents of an integer constant of more elements stay in the tensor; shape arithmetic never needs so many.
pub(crate) const MAX_HOST_ELEMENTS: usize = 64;

/// The contents of a small integer or bool tensor as dims.
pub(super) fn host_of(data: &TensorData) -> Option<Vec<Dim>> {
    if data.dtype.is_float() || data.num_elements() > MAX_HOST_ELEMENTS {
        return None;
    }
    let bytes: &[u8] = &data.bytes;
    bytes.chunks_exact(data.dtype.size()).map(|chunk| integer(chunk, data.dtype).map(Dim::constant)).collect()
}

/// One little-endian integer; `None` when it does not fit an `i64`.
fn integer(chunk: &[u8], dtype: DType) -> Option<i64> {
    macro_rules! read {
        ($ty:ty) => {
            <$ty>::from_le_bytes(chunk.try_into().ok()?).try_into().ok()
        };
    }
    match dtype {
        DType::I64 => read!(i64),
        DType::I32 => read!(i32),
        DType::I16 => read!(i16),
        DType::I8 | DType::I4 => read!(i8),
        DType::U64 => read!(u64),
        DType::U32 => read!(u32),
        DType::U16 => read!(u16),
        DType::U8 | DType::U4 | DType::Bool => read!(u8),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => None,
    }
}

/// What inference of one node sees.
pub struct Infer<'a> {
    graph: &'a Graph,
    inputs: &'a [Option<ValueId>],
    fresh: BTreeSet<Symbol>,
    /// The number that the next size of a hint begins to look for a name at.
    next: BTreeMap<String, usize>,
}

impl<'a> Infer<'a> {
    /// A view of a node's operands.
    pub fn new(graph: &'a Graph, inputs: &'a [Option<ValueId>]) -> Self {
        Self { graph, inputs, fresh: BTreeSet::new(), next: BTreeMap::new() }
    }

    /// The graph.
    pub fn graph(&self) -> &'a Graph {
        self.graph
    }

    /// Number of operands, absent ones among them.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Whether there are no operands.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// The type of the `n`-th operand, if it is there.
    pub fn optional(&self, n: usize) -> Option<&'a TensorType> {
        self.inputs.get(n).copied().flatten().map(|id| self.graph.ty(id))
    }

    /// The type of the `n`-th operand.
    pub fn ty(&self, n: usize) -> RuleResult<&'a TensorType> {
        self.optional(n).ok_or_else(|| RuleError::MissingInput { input: format!("operand {n}") })
    }

    /// Whether the `n`-th operand is a constant of rank 0, which broadcasts to any rank.
    pub fn is_scalar_constant(&self, n: usize) -> bool {
        let id = self.inputs.get(n).copied().flatten();
        id.is_some_and(|id| self.graph.ty(id).rank() == 0 && self.graph.constant(id).is_some())
    }

    /// A size that only the run will tell. Its origin becomes the output dim where it stands alone.
    pub fn fresh(&mut self, hint: &str) -> Dim {
        let mut n = self.next.get(hint).copied().unwrap_or(1);
        let name = loop {
            let name = match n {
                1 => self.graph.fresh_symbol(hint),
                n => self.graph.fresh_symbol(&format!("{hint}_{n}")),
            };
            n += 1;
            if self.fresh.insert(name.clone()) {
                break name;
            }
        };
        self.next.insert(hint.to_owned(), n);
        Dim::symbol(name)
    }
}

/// Appends nodes in order, inferring types as it goes.
pub struct Builder<'a> {
    /// The graph that grows.
    pub graph: &'a mut Graph,
    /// Nodes appended so far, in order: the region under construction.
    pub nodes: Vec<NodeId>,
    /// Origin given to new nodes.
    pub origin: Origin,
    /// Values read back in the region under construction; their symbols mean nothing outside it.
    reads: Vec<ValueId>,
}

/// How much there was of a region under construction.
#[derive(Clone, Copy, Debug)]
pub struct RegionState {
    nodes: usize,
    reads: usize,
}

/// The region around one that was opened.
pub struct OuterRegion {
    nodes: Vec<NodeId>,
    reads: Vec<ValueId>,
}

/// A loop whose body is under construction.
pub struct OpenLoop {
    /// The loop, which is appended when its body is there.
    pub node: NodeId,
    outer: OuterRegion,
    /// The number of the round, from 0.
    pub iteration: Symbol,
    /// What a round begins with.
    pub parameters: Vec<ValueId>,
}

impl<'a> Builder<'a> {
    /// A builder with nothing appended yet.
    pub fn new(graph: &'a mut Graph) -> Self {
        Self { graph, nodes: Vec::new(), origin: Origin::default(), reads: Vec::new() }
    }

    /// Appends a node and yields its outputs.
    pub fn add_all(&mut self, op: Op, inputs: Vec<Option<ValueId>>) -> RuleResult<Vec<ValueId>> {
        let mut is_beyond = false;
        op.for_each_dim(&mut |dim| is_beyond |= dim.is_beyond());
        if is_beyond {
            return Err(RuleError::TooLarge { what: "the arithmetic on sizes that this needs".to_owned() });
        }
        let mut infer = Infer::new(self.graph, &inputs);
        let types = op.infer(&mut infer)?;
        let fresh = infer.fresh;
        let hosts = op.host(self.graph, &inputs);
        let node = self.graph.add_node(op, inputs, types, self.origin.clone());
        self.nodes.push(node);
        let outputs = self.graph.node(node).outputs.clone();
        if let (Some(host), &[output]) = (hosts, outputs.as_slice()) {
            self.graph.value_mut(output).host = Some(host);
        }
        self.declare_sizes(&outputs, &fresh);
        Ok(outputs)
    }

    /// Declares where the sizes that inference made up are found.
    fn declare_sizes(&mut self, outputs: &[ValueId], fresh: &BTreeSet<Symbol>) {
        for &value in outputs {
            for (axis, dim) in self.graph.ty(value).dims.clone().iter().enumerate() {
                if let Some(symbol) = dim.as_symbol().filter(|s| fresh.contains(*s)) {
                    let origin = SymbolOrigin::Dim { value, axis };
                    self.graph.symbols.entry(symbol.clone()).or_insert(origin);
                }
            }
        }
    }

    /// Appends a node with one output, all operands present.
    pub fn add(&mut self, op: Op, inputs: &[ValueId]) -> RuleResult<ValueId> {
        self.add_one(op, inputs.iter().copied().map(Some).collect())
    }

    /// [`Builder::add`] where operands may be absent.
    pub fn add_one(&mut self, op: Op, inputs: Vec<Option<ValueId>>) -> RuleResult<ValueId> {
        let outputs = self.add_all(op, inputs)?;
        outputs
            .first()
            .copied()
            .ok_or_else(|| RuleError::Unsupported { what: "an operation without outputs here".into() })
    }

    /// Adds a constant.
    pub fn constant(&mut self, data: TensorData) -> ValueId {
        self.graph.add_constant(None, data)
    }

    /// Host integers as an i64 value: what `Shape` lowers to. Where only its contents are used, no tensor remains.
    pub fn host_tensor(&mut self, values: Vec<Dim>, dims: Vec<usize>) -> RuleResult<ValueId> {
        self.add(Op::HostTensor(HostTensor { values, dims }), &[])
    }

    /// The value's contents as dims: known ones, or symbols that a [`Op::HostRead`] defines at run time. The value must be
    /// integer or bool with a known shape.
    pub fn host(&mut self, value: ValueId, hint: &str) -> RuleResult<Vec<Dim>> {
        if let Some(host) = &self.graph.value(value).host {
            return Ok(host.clone());
        }
        if self.graph.ty(value).dtype == DType::Bool
            && let Some((condition, [scale, offset])) = self.read_condition(value)
        {
            let read = self.read(condition, hint)?;
            let host: Vec<Dim> = read.iter().map(|read| &offset + &(&scale * read)).collect();
            if !host.iter().any(Dim::is_saturated) {
                self.graph.value_mut(value).host = Some(host.clone());
                return Ok(host);
            }
        }
        self.read(value, hint)
    }

    /// The value's contents, read at run time unless they are known.
    fn read(&mut self, value: ValueId, hint: &str) -> RuleResult<Vec<Dim>> {
        if let Some(host) = &self.graph.value(value).host {
            return Ok(host.clone());
        }
        let ty = self.graph.ty(value).clone();
        let count = ty.num_elements().as_size();
        let Some(count) = count.filter(|&n| n <= MAX_HOST_ELEMENTS && !ty.dtype.is_float()) else {
            return Err(RuleError::NotConstant { input: hint.to_owned() });
        };
        let node = self.graph.add_node(
            Op::HostRead(HostRead { symbols: Vec::new() }),
            vec![Some(value)],
            Vec::new(),
            self.origin.clone(),
        );
        let mut symbols = Vec::with_capacity(count);
        for index in 0..count {
            let symbol = self.graph.fresh_symbol(hint);
            self.graph.symbols.insert(symbol.clone(), SymbolOrigin::Read { node, index });
            symbols.push(symbol);
        }
        let dims: Vec<Dim> = symbols.iter().cloned().map(Dim::symbol).collect();
        self.graph.node_mut(node).op = Op::HostRead(HostRead { symbols });
        self.nodes.push(node);
        // A second request finds the symbols.
        self.graph.value_mut(value).host = Some(dims.clone());
        self.reads.push(value);
        Ok(dims)
    }

    /// What is to be read for a condition that is partly known on the host, as that of a loop that counts and ends early: the
    /// condition is `offset + scale * read`, of numbers that are 0 or 1.
    fn read_condition(&self, value: ValueId) -> Option<(ValueId, [Dim; 2])> {
        /// No condition is longer.
        const MOST: usize = 8;
        let is_one = |value: ValueId| self.graph.ty(value).num_elements().is(1);
        let (mut read, mut scale, mut offset) = (value, Dim::constant(1), Dim::constant(0));
        let mut known = false;
        for _ in 0..MOST {
            let Some(node) = self.graph.producer(read).filter(|_| is_one(read)) else { break };
            let node = self.graph.node(node);
            let operand = |n: usize| node.inputs.get(n).copied().flatten();
            let host = |n: usize| self.graph.value(operand(n)?).host.as_ref()?.first().cloned();
            match &node.op {
                Op::Unary(UnaryOp::Not) => {
                    read = operand(0)?;
                    offset = &offset + &scale;
                    scale = &Dim::constant(0) - &scale;
                }
                Op::Binary(BinaryOp::And) => {
                    let (factor, rest) = match (host(0), host(1)) {
                        (Some(factor), None) => (factor, operand(1)?),
                        (None, Some(factor)) => (factor, operand(0)?),
                        (Some(_), Some(_)) | (None, None) => break,
                    };
                    scale = &scale * &factor;
                    read = rest;
                    known = true;
                }
                _ => break,
            }
        }
        known.then_some((read, [scale, offset]))
    }

    /// A graph input.
    pub fn input(&mut self, name: &str, ty: TensorType) -> ValueId {
        let n = self.graph.inputs.len() as u32;
        let value = Value { name: name.to_owned(), ty, def: ValueDef::Input(n), host: None };
        let id = self.graph.add_value(value);
        self.graph.inputs.push(id);
        for (axis, dim) in self.graph.ty(id).dims.clone().iter().enumerate() {
            if let Some(symbol) = dim.as_symbol() {
                self.graph.symbols.entry(symbol.clone()).or_insert(SymbolOrigin::Dim { value: id, axis });
            }
        }
        id
    }

    /// Starts a region: what is appended until [`Builder::close_region`] belongs to it.
    pub fn open_region(&mut self) -> OuterRegion {
        OuterRegion { nodes: std::mem::take(&mut self.nodes), reads: std::mem::take(&mut self.reads) }
    }

    /// How much there is of the region under construction.
    pub fn region_state(&self) -> RegionState {
        RegionState { nodes: self.nodes.len(), reads: self.reads.len() }
    }

    /// Takes back what was appended to the region under construction since; what was read back meanwhile must be read again.
    pub fn restore_region(&mut self, before: RegionState) {
        for value in self.reads.drain(before.reads..) {
            self.graph.value_mut(value).host = None;
        }
        self.nodes.truncate(before.nodes);
    }

    /// Ends a region. What was read back in it is forgotten: elsewhere it must be read again.
    pub fn close_region(&mut self, outer: OuterRegion, outputs: Vec<ValueId>) -> Region {
        for value in std::mem::replace(&mut self.reads, outer.reads) {
            self.graph.value_mut(value).host = None;
        }
        Region { parameters: Vec::new(), nodes: std::mem::replace(&mut self.nodes, outer.nodes), outputs }
    }

    /// Starts the body of a loop that carries these values; of each, the axes that rounds may change have a size of their own
    /// in the body.
    pub fn open_loop(&mut self, carried: &[(ValueId, Vec<bool>)]) -> OpenLoop {
        let iteration = self.graph.fresh_symbol("i");
        let op = Loop {
            trip_count: None,
            condition: Dim::constant(1),
            iteration: iteration.clone(),
            body: Region::default(),
        };
        let inputs = carried.iter().map(|(value, _)| Some(*value)).collect();
        let node = self.graph.add_node(Op::Loop(op), inputs, Vec::new(), self.origin.clone());
        self.graph.symbols.insert(iteration.clone(), SymbolOrigin::Iteration { node });
        let outer = self.open_region();
        let mut parameters = Vec::with_capacity(carried.len());
        for (n, (value, free)) in carried.iter().enumerate() {
            let ty = self.graph.ty(*value).clone();
            let def = ValueDef::RegionParameter(node, n as u32);
            let parameter = self.graph.add_value(Value { name: String::new(), ty, def, host: None });
            for (axis, _) in free.iter().enumerate().filter(|(_, free)| **free) {
                let symbol = self.graph.fresh_symbol("dim");
                let origin = SymbolOrigin::Dim { value: parameter, axis };
                self.graph.symbols.insert(symbol.clone(), origin);
                if let Some(dim) = self.graph.value_mut(parameter).ty.dims.get_mut(axis) {
                    *dim = Dim::symbol(symbol);
                }
            }
            parameters.push(parameter);
        }
        OpenLoop { node, outer, iteration, parameters }
    }

    /// Ends the body of a loop, which yields what it carries and then what each round leaves; appends the loop.
    pub fn close_loop(
        &mut self,
        open: OpenLoop,
        (trip_count, condition): (Option<Dim>, Dim),
        outputs: Vec<ValueId>,
    ) -> RuleResult<Vec<ValueId>> {
        let OpenLoop { node, outer, iteration, parameters } = open;
        let body = Region { parameters, ..self.close_region(outer, outputs) };
        let op = Op::Loop(Loop { trip_count, condition, iteration, body });
        let inputs = self.graph.node(node).inputs.clone();
        let mut infer = Infer::new(self.graph, &inputs);
        let types = op.infer(&mut infer)?;
        let fresh = infer.fresh;
        let mut outputs = Vec::with_capacity(types.len());
        for (n, ty) in types.into_iter().enumerate() {
            let def = ValueDef::Node(node, n as u32);
            outputs.push(self.graph.add_value(Value { name: String::new(), ty, def, host: None }));
        }
        self.graph.node_mut(node).op = op;
        self.graph.node_mut(node).outputs.clone_from(&outputs);
        self.nodes.push(node);
        self.declare_sizes(&outputs, &fresh);
        Ok(outputs)
    }

    /// Ends the body of a loop that cannot be built.
    pub fn abandon_loop(&mut self, open: OpenLoop) {
        self.close_region(open.outer, Vec::new());
    }

    /// The node that was appended last.
    pub fn last(&self) -> Option<&Node> {
        self.nodes.last().map(|&id| self.graph.node(id))
    }
}
