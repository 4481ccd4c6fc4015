//! Higher-order operators, which call graphs that stand in the program.

use super::Table;
use crate::onnx::operator::KILN;
use crate::onnx::proto::GraphProto;
use crate::pt2::call::{Call, Outputs, Result, Tensor, graph, int, unsupported};
use crate::pt2::schema::{Argument, Graph, Node};
use crate::pt2::translation::{Translation, named, names_of, part_names};
use crate::pt2::value::{Complex, Value};
use kiln_types::{DType, quoted};

pub(super) const RULES: Table = &[
    ("higher_order.cond", cond),
    ("higher_order.scan", scan),
    ("higher_order.while_loop", while_loop),
    ("higher_order.with_effects", with_effects),
];

/// An operator that does something beside what it yields, when it is its turn: it is given a token by the one before, and gives one to the next.
fn with_effects(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let operator = call.node.inputs.iter().find_map(|input| match &input.arg {
        Argument::Operator(operator) => Some(super::name(operator)),
        _ => None,
    });
    match operator {
        // That nothing failed, which nothing here tells.
        Some("_linalg_check_errors.default") => {
            call.ignore_all();
            Ok(Vec::new())
        }
        Some(operator) => Err(unsupported(format!("the effects of {}", quoted(operator)))),
        None => Err(unsupported("effects of nobody knows which operator")),
    }
}

/// What turns gradients on or off in a graph.
const SET_GRAD: &str = "higher_order.wrap_with_set_grad_enabled";

/// Whether an operator's graph stands in place of its call. Where numbers have other dtypes within, the program says so of results, and operators cast
/// what they are given ([`Call::as_result`]).
pub(in crate::pt2) fn is_inlined(target: &str) -> bool {
    matches!(super::name(target), "higher_order.wrap_with_autocast" | SET_GRAD)
}

/// A call in whose place its graph stands.
pub(in crate::pt2) struct Inlined<'p> {
    pub graph: &'p Graph,
    /// The names of what it is given.
    pub arguments: Vec<&'p str>,
    pub has_gradients: bool,
}

pub(in crate::pt2) fn inlined(node: &Node) -> Result<Option<Inlined<'_>>> {
    let mut inputs = node.inputs.iter().map(|input| &input.arg);
    let enabled = node.inputs.first().map(|input| &input.arg);
    let has_gradients =
        super::name(&node.target) != SET_GRAD || !matches!(enabled, Some(Argument::Bool(false)));
    let graph = inputs.find_map(|argument| match argument {
        Argument::Graph(inner) => Some(&*inner.graph),
        _ => None,
    });
    let Some(graph) = graph else { return Ok(None) };
    let mut arguments = Vec::new();
    for argument in inputs {
        if !matches!(argument, Argument::Tensors(_)) && named(argument).is_none() {
            return Err(unsupported("arguments of a function that are no tensors"));
        }
        arguments.extend(names_of(argument));
    }
    Ok(Some(Inlined { graph, arguments, has_gradients }))
}

/// A value as it is, but behind which there are no gradients, under this name if nothing has it.
pub(in crate::pt2) fn detached(to: &mut Translation<'_>, value: Value, name: &str) -> Value {
    let mut detached = |value: &str, name: &str| {
        let output = to.unique(name);
        to.write(KILN, "Detach", &[value], vec![output.clone()], Vec::new());
        output
    };
    match value {
        Value::Tensor(tensor) => Value::Tensor(Tensor { name: detached(&tensor, name), ..tensor }),
        Value::Complex(complex) => {
            let [real, imaginary] = part_names(name);
            let parts = [detached(&complex.parts[0], &real), detached(&complex.parts[1], &imaginary)];
            Value::Complex(Complex { parts, ..complex })
        }
    }
}

/// The graphs among the arguments.
fn graphs<'p>(call: &Call<'_, 'p>) -> Vec<&'p Graph> {
    let graph = |argument: &'p Argument| match argument {
        Argument::Graph(inner) => Some(&*inner.graph),
        _ => None,
    };
    call.ignore_all();
    call.node.inputs.iter().filter_map(|input| graph(&input.arg)).collect()
}

/// The tensors of the argument at a position: a list, or one that stands alone.
fn operands(call: &mut Call<'_, '_>, position: usize) -> Result<Vec<Tensor>> {
    let Some(input) = call.node.inputs.get(position) else { return Ok(Vec::new()) };
    match &input.arg {
        Argument::Tensors(list) => list.iter().map(|tensor| call.to.read(&tensor.name)).collect(),
        argument => match named(argument) {
            Some(name) => Ok(vec![call.to.read(name)?]),
            None => Err(unsupported("arguments of a function that are no tensors")),
        },
    }
}

/// A graph of ONNX with these outputs.
fn body(call: &mut Call<'_, '_>, inner: &[(&str, &Tensor)], (nodes, outputs): Body) -> GraphProto {
    let info = |name: &str, like: &Tensor| {
        crate::pt2::info(
            name.to_owned(),
            crate::pt2::tensor_type(like.dtype, crate::pt2::dims_of(&like.sizes)),
        )
    };
    GraphProto {
        name: call.to.fresh(),
        node: nodes,
        input: inner.iter().map(|(name, like)| info(name, like)).collect(),
        output: outputs.iter().map(|output| info(&output.name, output)).collect(),
        ..GraphProto::default()
    }
}

type Body = (Vec<crate::onnx::proto::NodeProto>, Vec<Tensor>);

fn cond(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let &[then, otherwise] = graphs(call).as_slice() else {
        return Err(unsupported("`cond` with other than two graphs"));
    };
    let condition = operands(call, 0)?;
    let Some(condition) = condition.first() else { return Ok(Vec::new()) };
    let condition = call.cast_tensor(condition, DType::Bool);
    let inputs = operands(call, 3)?;
    let mut branches = Vec::new();
    for (name, branch) in [("then_branch", then), ("else_branch", otherwise)] {
        let made = call.to.apart(branch, &inputs)?;
        branches.push(graph(name, body(call, &[], made)));
    }
    let count = call.result_count();
    Ok(call.ops("If", &[&condition], branches, count))
}

/// Names for what a graph is given in each round, and what they are like.
fn rounds(call: &mut Call<'_, '_>, like: &[Tensor]) -> Vec<Tensor> {
    like.iter().map(|tensor| Tensor { name: call.to.fresh(), ..tensor.clone() }).collect()
}

fn while_loop(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let &[condition, round] = graphs(call).as_slice() else {
        return Err(unsupported("`while_loop` with other than two graphs"));
    };
    let (carried, more) = (operands(call, 2)?, operands(call, 3)?);
    let all = |own: &[Tensor]| own.iter().chain(&more).cloned().collect::<Vec<_>>();
    // The condition is looked at before the first round, and at the end of each.
    let begins = call.to.condition(condition, &all(&carried))?;
    let inner = rounds(call, &carried);
    let made = call.to.apart_then(round, &all(&inner), |to, values| {
        let next: Vec<Tensor> = values.iter().chain(&more).cloned().collect();
        let mut outputs = to.condition(condition, &next)?;
        outputs.truncate(1);
        outputs.extend(values);
        Ok(outputs)
    })?;
    let (count, goes_on) = (call.to.fresh(), call.to.fresh());
    let number = Tensor { name: String::new(), dtype: DType::I64, sizes: Vec::new() };
    let flag = Tensor { dtype: DType::Bool, ..number.clone() };
    let mut inputs: Vec<(&str, &Tensor)> = vec![(&count, &number), (&goes_on, &flag)];
    inputs.extend(inner.iter().map(|tensor| (tensor.name.as_str(), tensor)));
    let round = body(call, &inputs, made);
    let Some(begins) = begins.first() else { return Err(unsupported("a condition that yields nothing")) };
    let mut operands = vec!["", begins];
    operands.extend(carried.iter().map(|tensor| tensor.name.as_str()));
    let count = call.result_count();
    Ok(call.ops("Loop", &operands, vec![graph("body", round)], count))
}

fn scan(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let &[round] = graphs(call).as_slice() else {
        return Err(unsupported("`scan` with other than one graph"));
    };
    let (states, rows, more) = (operands(call, 1)?, operands(call, 2)?, operands(call, 3)?);
    let row =
        |tensor: &Tensor| Tensor { sizes: tensor.sizes.iter().skip(1).copied().collect(), ..tensor.clone() };
    let like: Vec<Tensor> = states.iter().cloned().chain(rows.iter().map(row)).collect();
    let inner = rounds(call, &like);
    let inputs: Vec<Tensor> = inner.iter().chain(&more).cloned().collect();
    let made = call.to.apart(round, &inputs)?;
    let inputs: Vec<(&str, &Tensor)> = inner.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let round = body(call, &inputs, made);
    let operands: Vec<&str> = states.iter().chain(&rows).map(|tensor| tensor.name.as_str()).collect();
    let scanned = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let count = call.result_count();
    Ok(call.ops("Scan", &operands, vec![graph("body", round), int("num_scan_inputs", scanned)], count))
}
