//! Values whose contents are known while a graph is built.

use super::op::Folding;
use super::{Dim, Graph, ValueDef, ValueId};
use crate::data::{Elements, elements};
use kiln_types::TensorData;

/// What must be known is small; what is computed to find it must be, too.
const MOST_ELEMENTS: i64 = 4096;
/// Computations to find one.
const MOST_NODES: usize = 64;

/// A value's contents: a constant, shape arithmetic, or a small computation on those.
pub(crate) fn known(graph: &Graph, value: ValueId) -> Option<TensorData> {
    find(graph, value, &mut { MOST_NODES })
}

fn find(graph: &Graph, value: ValueId, budget: &mut usize) -> Option<TensorData> {
    if let Some(constant) = graph.constant(value) {
        return Some(constant.data.clone());
    }
    let source = graph.value(value);
    if let Some(host) = &source.host
        && let Some(values) = host.iter().map(|dim| dim.as_constant().map(i128::from)).collect()
    {
        return Some(Elements::Int(values).store(source.ty.dtype, source.ty.shape()?));
    }
    if source.ty.num_elements().is(0) {
        return Some(Elements::Int(Vec::new()).store(source.ty.dtype, source.ty.shape()?));
    }
    let ValueDef::Node(node, output) = source.def else {
        return None;
    };
    let small = |count: Dim| count.as_constant().is_some_and(|count| count <= MOST_ELEMENTS);
    *budget = budget.checked_sub(1)?;
    let node = graph.node(node);
    if node.op.folding() == Folding::Never || !small(source.ty.num_elements()) {
        return None;
    }
    let operand = |input: &Option<ValueId>| match *input {
        None => Some(None),
        Some(id) => find(graph, id, budget).map(Some),
    };
    let operands: Vec<Option<TensorData>> = node.inputs.iter().map(operand).collect::<Option<_>>()?;
    let operands: Vec<Option<&TensorData>> = operands.iter().map(Option::as_ref).collect();
    let cost = node.op.folding().cost(&operands, elements(&source.ty.shape()?))?;
    if !graph.budget.elements.take(cost) {
        return None;
    }
    node.op.evaluate(&operands)?.into_iter().nth(output as usize)
}
