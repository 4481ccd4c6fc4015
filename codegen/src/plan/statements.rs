//! The statements of a module's steps.

use super::{Module, Plan, Step, constants};
use crate::code::{Block, Code, Lowering, Owner, Statement};
use kiln_importer::ir::spelling::Expr;
use kiln_importer::ir::{NodeId, Op, Region, ValueId};

/// A lowering for counting: every constant that is no literal counts as a value.
pub(super) struct Counting<'a, 'g> {
    pub(super) plan: &'a Plan<'g>,
}

/// Something that yields the code of nodes.
pub(super) trait Lower {
    fn node(&mut self, node: NodeId, expr: &Expr) -> Code;
    fn value(&mut self, value: ValueId) -> Code;
}

impl Lower for Counting<'_, '_> {
    fn node(&mut self, node: NodeId, expr: &Expr) -> Code {
        let plan = self.plan;
        let owner = |value| if constants::is_literal(plan, value) { Owner::Literal } else { Owner::Argument };
        Lowering { graph: plan.graph, owner: &owner, slots: Vec::new(), field: None }.node(node, expr)
    }

    fn value(&mut self, value: ValueId) -> Code {
        Code::Use(value)
    }
}

impl Lower for Lowering<'_> {
    fn node(&mut self, node: NodeId, expr: &Expr) -> Code {
        Lowering::node(self, node, expr)
    }

    fn value(&mut self, value: ValueId) -> Code {
        Lowering::value(self, value)
    }
}

/// The statements of a step.
pub(super) fn statements(plan: &Plan<'_>, step: &Step, lower: &mut dyn Lower) -> Vec<Statement> {
    match step {
        Step::Node(node) => node_statement(plan, *node, lower).into_iter().collect(),
        Step::Call(child) => {
            let data = &plan.modules[*child];
            let args = call_args(data, lower);
            vec![Statement::Bind { outputs: data.outputs.clone(), code: Code::Module(*child, args) }]
        }
        Step::Loop { modules, carried } => loop_statement(plan, modules, *carried, lower),
    }
}

fn call_args(child: &Module, lower: &mut dyn Lower) -> Vec<Code> {
    let mut args: Vec<Code> = child.inputs.iter().map(|&value| lower.value(value)).collect();
    args.extend(child.body.symbols.iter().cloned().map(Code::Symbol));
    args
}

fn loop_statement(
    plan: &Plan<'_>,
    modules: &[usize],
    carried: usize,
    lower: &mut dyn Lower,
) -> Vec<Statement> {
    let (Some(&first), Some(&last)) = (modules.first(), modules.last()) else { return Vec::new() };
    let mut args = call_args(&plan.modules[first], lower);
    let init = std::mem::replace(&mut args[carried], Code::Carried);
    let output = plan.modules[last].outputs.first().copied();
    output
        .map(|output| Statement::Loop { output, init, modules: modules.to_vec(), args })
        .into_iter()
        .collect()
}

fn node_statement(plan: &Plan<'_>, node: NodeId, lower: &mut dyn Lower) -> Option<Statement> {
    let data = plan.graph.node(node);
    match &data.op {
        Op::HostRead { symbols } => {
            let code = lower.value(data.inputs.first().copied().flatten()?);
            return Some(Statement::Read { code, symbols: symbols.clone() });
        }
        Op::If { condition, then_region, else_region } => {
            return Some(Statement::If {
                outputs: data.outputs.clone(),
                condition: condition.clone(),
                then: region_block(plan, then_region, lower),
                otherwise: region_block(plan, else_region, lower),
            });
        }
        _ => {}
    }
    let code = match plan.layer(node) {
        Some(layer) => {
            Code::Layer(node, layer.method, layer.args.iter().map(|arg| lower.node(node, arg)).collect())
        }
        None => lower.node(node, plan.expression(node)?),
    };
    Some(Statement::Bind { outputs: data.outputs.clone(), code })
}

fn region_block(plan: &Plan<'_>, region: &Region, lower: &mut dyn Lower) -> Block {
    let statements = region.nodes.iter().filter_map(|&node| node_statement(plan, node, lower)).collect();
    Block { statements, results: region.outputs.iter().map(|&value| lower.value(value)).collect() }
}
