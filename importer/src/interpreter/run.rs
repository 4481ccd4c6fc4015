//! Interprets a graph: the reference that passes and code generation are tested against.

use crate::data::Elements;
use crate::ir::op::moved_by_ones;
use crate::ir::{
    Dim, Graph, HostRead, If, Loop, LoopCondition, NodeId, Op, Region, Symbol, SymbolOrigin, ValueDef,
    ValueId,
};
use kiln_types::{Bytes, TensorData};
use std::collections::BTreeMap;

/// Why a graph could not be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another number of inputs than the graph has.
    #[error("the graph has {expected} inputs, {actual} were given")]
    Inputs {
        /// What the graph has.
        expected: usize,
        /// What was given.
        actual: usize,
    },
    /// An operation that only a runtime performs, or one whose operands do not fit.
    #[error("{node} ({kind}) cannot be evaluated")]
    Operation {
        /// The node.
        node: String,
        /// Its operation.
        kind: String,
    },
    /// A value or size is used that nothing computed.
    #[error("{what} is not known")]
    Unknown {
        /// Which.
        what: String,
    },
}

/// What performs operations that have no meaning here, if it knows them.
pub type Runtime = dyn Fn(&Op, &[Option<&TensorData>]) -> Option<Vec<TensorData>>;

/// The outputs of a graph for given inputs.
///
/// # Errors
/// See [`RunError`]; calls of runtime functions ([`Op::Call`]), `Interpolate`, `MaxPoolWithIndices` and recurrent layers
/// ([`Op::Rnn`]) have no meaning here.
pub fn run(graph: &Graph, inputs: &[TensorData]) -> Result<Vec<TensorData>, RunError> {
    run_with(graph, inputs, &|_, _| None)
}

/// Like [`run`], with something else for the operations that have no meaning here.
///
/// # Errors
/// See [`RunError`].
pub fn run_with(
    graph: &Graph,
    inputs: &[TensorData],
    runtime: &Runtime,
) -> Result<Vec<TensorData>, RunError> {
    if inputs.len() != graph.inputs.len() {
        return Err(RunError::Inputs { expected: graph.inputs.len(), actual: inputs.len() });
    }
    let mut machine = Machine::new(graph, runtime);
    for (&id, data) in graph.inputs.iter().zip(inputs) {
        machine.define(id, data.clone());
    }
    machine.region(&graph.root)
}

/// Like [`run_with`], but each output on its own: what cannot be evaluated spoils only what depends on it.
///
/// # Errors
/// When the number of inputs is wrong.
pub fn run_each(
    graph: &Graph,
    inputs: &[TensorData],
    runtime: &Runtime,
) -> Result<Vec<Result<TensorData, RunError>>, RunError> {
    if inputs.len() != graph.inputs.len() {
        return Err(RunError::Inputs { expected: graph.inputs.len(), actual: inputs.len() });
    }
    let mut machine = Machine::new(graph, runtime);
    for (&id, data) in graph.inputs.iter().zip(inputs) {
        machine.define(id, data.clone());
    }
    let mut reasons: BTreeMap<ValueId, RunError> = BTreeMap::new();
    for &id in &graph.root.nodes {
        if let Err(error) = machine.node(id) {
            let node = graph.node(id);
            let earlier = node.inputs.iter().flatten().find_map(|input| reasons.get(input).cloned());
            let error = earlier.unwrap_or(error);
            reasons.extend(node.outputs.iter().map(|&output| (output, error.clone())));
        }
    }
    let outputs = graph.root.outputs.iter();
    Ok(outputs
        .map(|id| reasons.get(id).map_or_else(|| machine.get(*id), |error| Err(error.clone())))
        .collect())
}

struct Machine<'a> {
    graph: &'a Graph,
    runtime: &'a Runtime,
    values: BTreeMap<ValueId, TensorData>,
    symbols: BTreeMap<Symbol, i64>,
    /// Whether another round follows the one of the innermost loop.
    goes_on: bool,
}

impl<'a> Machine<'a> {
    fn new(graph: &'a Graph, runtime: &'a Runtime) -> Self {
        Self { graph, runtime, values: BTreeMap::new(), symbols: BTreeMap::new(), goes_on: true }
    }

    fn define(&mut self, id: ValueId, data: TensorData) {
        for (axis, dim) in self.graph.ty(id).dims.iter().enumerate() {
            if let (Some(symbol), Some(&size)) = (dim.as_symbol(), data.shape.get(axis))
                && self.graph.symbols.get(symbol) == Some(&SymbolOrigin::Dim { value: id, axis })
            {
                self.symbols.insert(symbol.clone(), size as i64);
            }
        }
        self.values.insert(id, data);
    }

    fn get(&self, id: ValueId) -> Result<TensorData, RunError> {
        if let ValueDef::Constant(_) = self.graph.value(id).def
            && let Some(constant) = self.graph.constant(id)
        {
            return Ok(constant.data.clone());
        }
        self.values.get(&id).cloned().ok_or_else(|| RunError::Unknown { what: id.to_string() })
    }

    fn region(&mut self, region: &Region) -> Result<Vec<TensorData>, RunError> {
        for &id in &region.nodes {
            self.node(id)?;
        }
        region.outputs.iter().map(|&id| self.get(id)).collect()
    }

    /// What a loop yields.
    fn repeat(
        &mut self,
        id: NodeId,
        repeated: &Loop,
        mut carried: Vec<TensorData>,
        fail: &dyn Fn() -> RunError,
    ) -> Result<Vec<TensorData>, RunError> {
        let Loop { trip_count, condition, iteration, body } = repeated;
        let known = |dim: &Dim| dim.as_constant().ok_or_else(fail);
        let most = trip_count.as_ref().map(known).transpose()?;
        let mut goes_on = known(condition)? != 0;
        let around = self.goes_on;
        let places = carried.len();
        let mut left: Vec<Vec<TensorData>> = vec![Vec::new(); body.outputs.len().saturating_sub(places)];
        let mut round = 0;
        while goes_on && most.is_none_or(|most| round < most) {
            self.symbols.insert(iteration.clone(), round);
            for (&parameter, data) in body.parameters.iter().zip(carried) {
                self.define(parameter, data);
            }
            self.goes_on = true;
            carried = self.region(body)?;
            goes_on = self.goes_on;
            for (rounds, data) in left.iter_mut().zip(carried.split_off(places)) {
                rounds.push(data);
            }
            round += 1;
        }
        self.goes_on = around;
        for (rounds, &output) in left.iter().zip(self.graph.node(id).outputs.iter().skip(places)) {
            let ty = self.graph.ty(output);
            // Of what no round left, sizes that rounds decide are 0.
            let none = || ty.dims.iter().skip(1).map(|dim| self.known(dim).as_size().unwrap_or(0)).collect();
            let each: Vec<usize> = rounds.first().map_or_else(none, |data| data.shape.to_vec());
            if rounds.iter().any(|data| data.shape != each) {
                return Err(fail());
            }
            let bytes: Vec<u8> = rounds.iter().flat_map(|data| data.bytes.iter().copied()).collect();
            let shape = std::iter::once(rounds.len()).chain(each).collect();
            carried.push(TensorData { bytes: Bytes::from_vec(bytes), shape, dtype: ty.dtype });
        }
        Ok(carried)
    }

    fn known(&self, dim: &Dim) -> Dim {
        dim.substitute(&|symbol| self.symbols.get(symbol).copied().map(Dim::constant))
    }

    fn node(&mut self, id: NodeId) -> Result<(), RunError> {
        let node = self.graph.node(id);
        let fail =
            || RunError::Operation { node: format!("{id} {:?}", node.origin.name), kind: node.op.kind() };
        let operands = node.inputs.iter().map(|input| input.map(|id| self.get(id)).transpose());
        let operands: Vec<Option<TensorData>> = operands.collect::<Result<_, _>>()?;
        let mut op = node.op.clone();
        if let Op::Reshape(reshape) = &mut op
            && let (Some(x), Some(Some(data))) = (node.inputs.first().copied().flatten(), operands.first())
            && let Some(axes) = moved_by_ones(&self.graph.ty(x).dims, &reshape.dims)
        {
            // What repeats may have size 1 where its dims say another.
            let size = |axis: Option<usize>| {
                axis.and_then(|axis| data.shape.get(axis)).map_or(1, |&size| size as i64)
            };
            reshape.dims = axes.into_iter().map(|axis| Dim::constant(size(axis))).collect();
        }
        op.map_dims(&mut |dim| self.known(dim));
        let outputs = match &op {
            Op::HostRead(HostRead { symbols }) => {
                let data = operands.first().and_then(Option::as_ref).ok_or_else(fail)?;
                let Elements::Int(values) = Elements::load(data) else {
                    return Err(fail());
                };
                for (symbol, value) in symbols.iter().zip(values) {
                    self.symbols.insert(symbol.clone(), value as i64);
                }
                return Ok(());
            }
            Op::If(If { condition, then_region, else_region }) => {
                let condition = condition.as_constant().ok_or_else(fail)?;
                self.region(if condition != 0 { then_region } else { else_region })?
            }
            Op::Loop(repeated) => {
                self.repeat(id, repeated, operands.into_iter().flatten().collect(), &fail)?
            }
            Op::LoopCondition(LoopCondition { condition }) => {
                self.goes_on = condition.as_constant().ok_or_else(fail)? != 0;
                return Ok(());
            }
            op => {
                let operands: Vec<Option<&TensorData>> = operands.iter().map(Option::as_ref).collect();
                let outputs = op.evaluate(&operands).or_else(|| (self.runtime)(op, &operands));
                outputs.ok_or_else(fail)?
            }
        };
        for (&id, data) in node.outputs.iter().zip(outputs) {
            self.define(id, data);
        }
        Ok(())
    }
}
