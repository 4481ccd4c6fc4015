//! The statements of a module's steps.

use super::{Module, Plan, Step, StructParameter, constants};
use crate::code::{Block, Code, Literal, Lowering, Owner, Statement};
use kiln_importer::ir::{Arg, NodeId, Op, Region, ValueId};

/// A lowering for counting: every constant that is no literal counts as a value.
pub(super) struct Counting<'a, 'g> {
    pub(super) plan: &'a Plan<'g>,
}

/// Something that yields the code of nodes.
pub(super) trait Lower {
    fn node(&mut self, node: NodeId, call: &Arg) -> Code;
    fn value(&mut self, value: ValueId) -> Code;
    fn literal(&mut self, value: Literal, name: &str) -> Code;
}

impl Lower for Counting<'_, '_> {
    fn node(&mut self, node: NodeId, call: &Arg) -> Code {
        let plan = self.plan;
        let owner = |value| if constants::is_literal(plan, value) { Owner::Literal } else { Owner::Argument };
        Lowering::new(plan.graph, &owner).node(node, call)
    }

    fn value(&mut self, value: ValueId) -> Code {
        Code::Use(value)
    }

    fn literal(&mut self, _: Literal, _: &str) -> Code {
        Code::Int(0)
    }
}

impl Lower for Lowering<'_> {
    fn node(&mut self, node: NodeId, call: &Arg) -> Code {
        Lowering::node(self, node, call)
    }

    fn value(&mut self, value: ValueId) -> Code {
        Lowering::value(self, value)
    }

    fn literal(&mut self, value: Literal, name: &str) -> Code {
        self.literal_slot(Some(value), Some(name))
    }
}

/// The statements of a step.
pub(super) fn statements(plan: &Plan<'_>, step: &Step, lower: &mut dyn Lower) -> Vec<Statement> {
    match step {
        Step::Node(node) => node_statement(plan, *node, lower).into_iter().collect(),
        Step::Call(child) => {
            let args = call_args(plan, *child, lower);
            let outputs = plan.modules[*child].outputs.clone();
            vec![Statement::Bind { outputs, code: Code::Module(*child, args) }]
        }
        Step::Loop { modules, carried } => loop_statement(plan, modules, *carried, lower),
        Step::Branches { node, then, otherwise } => {
            let data = plan.graph.node(*node);
            let Op::If { condition, then_region, else_region } = &data.op else { return Vec::new() };
            vec![Statement::If {
                outputs: data.outputs.clone(),
                condition: condition.clone(),
                then: branch(plan, then, then_region, lower),
                otherwise: branch(plan, otherwise, else_region, lower),
            }]
        }
    }
}

/// A call's arguments: values, numbers that differ from call to call, symbols.
fn call_args(plan: &Plan<'_>, child: usize, lower: &mut dyn Lower) -> Vec<Code> {
    let data = &plan.modules[child];
    let mut args: Vec<Code> = data.inputs.iter().map(|&value| lower.value(value)).collect();
    args.extend(passed(plan, child).into_iter().map(|(value, name)| lower.literal(value, &name)));
    args.extend(data.body.symbols.iter().cloned().map(Code::Symbol));
    args
}

/// The literals that a call passes, with their names.
pub(super) fn passed(plan: &Plan<'_>, child: usize) -> Vec<(Literal, String)> {
    let data = &plan.modules[child];
    let Some(shared) = plan.structs.get(data.struct_id) else { return Vec::new() };
    let parameters = shared.parameters.iter().filter(|parameter| parameter.passed);
    parameters.map(|parameter| (value_of(data, parameter), parameter.name.clone())).collect()
}

/// What a module has for a parameter of its struct.
pub(super) fn value_of(module: &Module, parameter: &StructParameter) -> Literal {
    let values = parameter.slots.iter().filter_map(|&slot| module.body.slots.get(slot)?.value.clone());
    values.into_iter().next().unwrap_or_else(|| parameter.kind.unused())
}

fn loop_statement(
    plan: &Plan<'_>,
    modules: &[usize],
    carried: usize,
    lower: &mut dyn Lower,
) -> Vec<Statement> {
    let (Some(&first), Some(&last)) = (modules.first(), modules.last()) else { return Vec::new() };
    let mut args = call_args(plan, first, lower);
    let init = std::mem::replace(&mut args[carried], Code::Carried);
    let output = plan.modules[last].outputs.first().copied();
    output
        .map(|output| Statement::Loop { output, init, modules: modules.to_vec(), args })
        .into_iter()
        .collect()
}

fn node_statement(plan: &Plan<'_>, node: NodeId, lower: &mut dyn Lower) -> Option<Statement> {
    let data = plan.graph.node(node);
    if let Op::HostRead { symbols } = &data.op {
        let code = lower.value(data.inputs.first().copied().flatten()?);
        return Some(Statement::Read { code, symbols: symbols.clone() });
    }
    let code = match plan.layer(node) {
        Some(layer) => {
            let held = plan.layers.get(&node).copied().unwrap_or(node);
            Code::Layer(held, layer.method, layer.args.iter().map(|arg| lower.node(node, arg)).collect())
        }
        None => lower.node(node, plan.call(node)?),
    };
    Some(Statement::Bind { outputs: data.outputs.clone(), code })
}

fn branch(plan: &Plan<'_>, steps: &[Step], region: &Region, lower: &mut dyn Lower) -> Block {
    let statements = steps.iter().flat_map(|step| statements(plan, step, lower)).collect();
    Block { statements, results: region.outputs.iter().map(|&value| lower.value(value)).collect() }
}
