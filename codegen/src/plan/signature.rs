//! What goes into a module's `forward` and what comes out, and where it finds the symbols it needs.

use super::{Module, Plan, Step};
use crate::code::{Block, Code, Statement};
use kiln_importer::ir::{Symbol, SymbolOrigin, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Uses and definitions of values inside one module, children included.
#[derive(Clone, Debug, Default)]
pub struct Inside {
    /// How often each value is used.
    pub uses: BTreeMap<ValueId, usize>,
    /// What is defined, in order.
    pub defined: Vec<ValueId>,
    /// Symbols that are needed.
    pub symbols: BTreeSet<Symbol>,
}

/// Adds the uses and definitions of a statement.
pub fn add(inside: &mut Inside, statement: &Statement) {
    for value in statement.codes().into_iter().flat_map(Code::values) {
        *inside.uses.entry(value).or_insert(0) += 1;
    }
    inside.defined.extend(statement.outputs());
    inside.symbols.extend(statement.dims().iter().flat_map(|dim| dim.symbols()));
}

/// The values that a module yields: those used outside, and those whose dims define symbols used outside.
pub fn outputs(plan: &Plan<'_>, inside: &Inside, all: &Inside) -> Vec<ValueId> {
    let graph = plan.graph;
    let used_outside = |value: &ValueId| {
        let total = all.uses.get(value).copied().unwrap_or(0);
        total > inside.uses.get(value).copied().unwrap_or(0)
    };
    let names_symbol = |value: &ValueId| {
        graph.symbols.iter().any(|(symbol, origin)| {
            matches!(origin, SymbolOrigin::Dim { value: source, .. } if source == value)
                && all.symbols.contains(symbol)
                && !inside.symbols.contains(symbol)
        })
    };
    inside.defined.iter().copied().filter(|value| used_outside(value) || names_symbol(value)).collect()
}

/// The values that a module takes, in order of their first use.
pub fn inputs(block: &Block) -> Vec<ValueId> {
    let mut defined: BTreeSet<ValueId> = BTreeSet::new();
    collect_defined(block, &mut defined);
    let mut inputs = Vec::new();
    for value in block.codes().into_iter().flat_map(Code::values) {
        if !defined.contains(&value) && !inputs.contains(&value) {
            inputs.push(value);
        }
    }
    inputs
}

fn collect_defined(block: &Block, defined: &mut BTreeSet<ValueId>) {
    for statement in &block.statements {
        defined.extend(statement.outputs());
        if let Statement::If { then, otherwise, .. } = statement {
            collect_defined(then, defined);
            collect_defined(otherwise, defined);
        }
    }
}

fn collect_reads(block: &Block, read: &mut BTreeSet<Symbol>) {
    for statement in &block.statements {
        match statement {
            Statement::Read { symbols, .. } => read.extend(symbols.iter().cloned()),
            Statement::If { then, otherwise, .. } => {
                collect_reads(then, read);
                collect_reads(otherwise, read);
            }
            _ => {}
        }
    }
}

/// Decides for every symbol of a body whether it is read from the dims of a value or passed by the caller.
pub fn find_symbols(plan: &Plan<'_>, module: &mut Module) {
    let graph = plan.graph;
    let mut needed: BTreeSet<Symbol> = BTreeSet::new();
    for statement in &module.body.block.statements {
        needed.extend(statement.dims().iter().flat_map(|dim| dim.symbols()));
    }
    needed.extend(module.body.block.results.iter().flat_map(Code::dims).flat_map(|dim| dim.symbols()));
    let (mut defined, mut read) = (BTreeSet::new(), BTreeSet::new());
    collect_defined(&module.body.block, &mut defined);
    collect_reads(&module.body.block, &mut read);
    for symbol in needed {
        if read.contains(&symbol) {
            continue;
        }
        let origin = match graph.symbols.get(&symbol) {
            Some(SymbolOrigin::Dim { value, axis }) => Some((*value, *axis)),
            _ => None,
        };
        let from_input = || {
            module.inputs.iter().find_map(|&value| {
                let dims = &graph.ty(value).dims;
                dims.iter().position(|dim| dim.as_symbol() == Some(&symbol)).map(|axis| (value, axis))
            })
        };
        let at_hand =
            |&(value, _): &(ValueId, usize)| defined.contains(&value) || module.inputs.contains(&value);
        match origin.filter(at_hand).or_else(from_input) {
            Some((value, axis)) => module.body.sources.push((symbol, value, axis)),
            None => module.body.symbols.push(symbol),
        }
    }
}

/// The uses and definitions of a module's subtree.
pub fn inside(plan: &Plan<'_>, module: usize, of_step: &dyn Fn(&Step) -> Vec<Statement>) -> Inside {
    let mut inside = Inside::default();
    fill(plan, &plan.modules[module].steps, of_step, &mut inside);
    inside
}

fn fill(plan: &Plan<'_>, steps: &[Step], of_step: &dyn Fn(&Step) -> Vec<Statement>, inside: &mut Inside) {
    for step in steps {
        match step {
            Step::Call(child) => fill(plan, &plan.modules[*child].steps, of_step, inside),
            Step::Loop { modules, .. } => {
                modules.iter().for_each(|&child| fill(plan, &plan.modules[child].steps, of_step, inside));
            }
            Step::Node(_) => of_step(step).iter().for_each(|statement| add(inside, statement)),
            Step::Branches { node, then, otherwise } => {
                fill(plan, then, of_step, inside);
                fill(plan, otherwise, of_step, inside);
                // What is left of it: condition and results.
                let rest = Step::Branches { node: *node, then: Vec::new(), otherwise: Vec::new() };
                of_step(&rest).iter().for_each(|statement| add(inside, statement));
            }
        }
    }
}
