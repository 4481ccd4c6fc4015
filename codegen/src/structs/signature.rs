//! What goes into a module's `forward` and what comes out, and where it finds the symbols it needs.

use super::Draft;
use crate::CodegenError;
use crate::code::{Block, Code, CodeBuilder, Owner, Source, Statement};
use crate::dims::is_signed;
use crate::ids::{ModuleId, VarId};
use crate::tree::{ModuleTree, Step, control_symbols, is_literal};
use kiln_importer::ir::{NodeId, Op, Symbol, SymbolOrigin, ValueId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Uses and definitions of values in one module, children included.
#[derive(Clone, Debug, Default)]
pub(super) struct Inside {
    /// How often each value is used.
    uses: HashMap<ValueId, usize>,
    /// What is defined, in order.
    defined: Vec<ValueId>,
    /// Symbols that are needed.
    symbols: BTreeSet<Symbol>,
}

impl Inside {
    fn add(&mut self, node: &NodeUses) {
        for &value in &node.uses {
            *self.uses.entry(value).or_insert(0) += 1;
        }
        self.defined.extend(&node.defined);
        self.symbols.extend(node.symbols.iter().cloned());
    }
}

/// What one node uses and defines in generated code, its branches aside.
#[derive(Default)]
struct NodeUses {
    uses: Vec<ValueId>,
    defined: Vec<ValueId>,
    symbols: Vec<Symbol>,
}

/// What crosses the borders of modules.
pub(super) struct Signatures<'t, 'g> {
    tree: &'t ModuleTree<'g>,
    nodes: HashMap<NodeId, NodeUses>,
    symbols_of: BTreeMap<ValueId, Vec<&'g Symbol>>,
    whole: Inside,
}

impl<'t, 'g> Signatures<'t, 'g> {
    /// Of a tree.
    pub(super) fn new(tree: &'t ModuleTree<'g>) -> Result<Self, CodegenError> {
        let nodes = tree.nodes();
        let uses = nodes.all.iter().map(|&node| Ok((node, node_uses(tree, node)?)));
        let mut signatures = Signatures {
            tree,
            nodes: uses.collect::<Result<_, CodegenError>>()?,
            symbols_of: nodes.symbols_of_values(),
            whole: Inside::default(),
        };
        signatures.whole = signatures.inside(tree.root);
        for &output in &tree.graph.root.outputs {
            *signatures.whole.uses.entry(output).or_insert(0) += 1;
        }
        Ok(signatures)
    }

    /// The values that a module yields: those used outside, and those whose dims define symbols used outside. Those that
    /// its caller wants in some order come in that order.
    pub(super) fn outputs(&self, module: ModuleId) -> Vec<ValueId> {
        if module == self.tree.root {
            return self.tree.graph.root.outputs.clone();
        }
        let inside = self.inside(module);
        let used_outside = |value: &ValueId| {
            let total = self.whole.uses.get(value).copied().unwrap_or(0);
            total > inside.uses.get(value).copied().unwrap_or(0)
        };
        let names_symbol = |value: &ValueId| {
            self.symbols_of
                .get(value)
                .into_iter()
                .flatten()
                .any(|symbol| self.whole.symbols.contains(*symbol) && !inside.symbols.contains(*symbol))
        };
        let yielded = |value: &ValueId| used_outside(value) || names_symbol(value);
        let mut outputs: Vec<ValueId> = inside.defined.iter().copied().filter(yielded).collect();
        let wanted = &self.tree.modules[module].wanted;
        let wanted: HashMap<ValueId, usize> = wanted.iter().enumerate().rev().map(|(i, &v)| (v, i)).collect();
        outputs.sort_by_key(|value| wanted.get(value).copied());
        outputs
    }

    fn inside(&self, module: ModuleId) -> Inside {
        let mut inside = Inside::default();
        self.fill(&self.tree.modules[module].steps, &mut inside);
        inside
    }

    fn fill(&self, steps: &[Step], inside: &mut Inside) {
        for step in steps {
            match step {
                Step::Call(child) => self.fill(&self.tree.modules[*child].steps, inside),
                Step::Loop { modules, .. } => {
                    modules.iter().for_each(|&child| self.fill(&self.tree.modules[child].steps, inside));
                }
                Step::Node(node) => inside.add(&self.nodes[node]),
                Step::Repeat { node, body } => {
                    self.fill(body, inside);
                    inside.add(&self.nodes[node]);
                }
                Step::Branches { node, then, otherwise } => {
                    self.fill(then, inside);
                    self.fill(otherwise, inside);
                    inside.add(&self.nodes[node]);
                }
            }
        }
    }
}

fn node_uses(tree: &ModuleTree<'_>, node: NodeId) -> Result<NodeUses, CodegenError> {
    let graph = tree.graph;
    let data = graph.node(node);
    let mut uses = NodeUses { defined: data.outputs.clone(), ..NodeUses::default() };
    match &data.op {
        Op::HostRead(_) => {
            uses.uses.extend(data.inputs.first().copied().flatten());
            uses.defined.clear();
            return Ok(uses);
        }
        Op::If(_) | Op::Loop(_) | Op::LoopCondition(_) => {
            uses.symbols.extend(control_symbols(graph, node));
            uses.uses.extend(data.inputs.iter().flatten());
            uses.uses.extend(data.op.regions().into_iter().flat_map(|region| &region.outputs));
            return Ok(uses);
        }
        _ => {}
    }
    let owner = |value| if is_literal(graph, value) { Owner::Literal } else { Owner::Argument };
    let mut builder = CodeBuilder::new(graph, &owner);
    let codes: Vec<Code> = match tree.layer(node) {
        Some((_, layer)) => layer.args.iter().map(|arg| builder.node(node, arg)).collect::<Result<_, _>>()?,
        None => tree.call(node).map(|call| builder.node(node, call)).transpose()?.into_iter().collect(),
    };
    for code in &codes {
        uses.uses.extend(code.vars().into_iter().map(|var| builder.vars[var]));
        uses.symbols.extend(code.dims().iter().flat_map(|dim| dim.symbols()));
    }
    Ok(uses)
}

/// The variables that a function takes, in order of their first use.
pub(super) fn inputs(block: &Block) -> Vec<VarId> {
    let defined = defined(block);
    let mut seen = HashSet::new();
    let vars = block.codes().into_iter().flat_map(Code::vars);
    vars.filter(|var| !defined.contains(var) && seen.insert(*var)).collect()
}

fn defined<'b>(block: &'b Block) -> HashSet<VarId> {
    let of_statement = |statement: &'b Statement| statement.outputs().iter().chain(statement.parameters());
    block.all_statements().into_iter().flat_map(of_statement).copied().collect()
}

/// Decides for every symbol of a body whether it is read from the dims of a value or passed by the caller.
pub(super) fn find_symbols(tree: &ModuleTree<'_>, draft: &mut Draft) {
    let graph = tree.graph;
    let body = &mut draft.body;
    let mut needed: BTreeSet<Symbol> = BTreeSet::new();
    for statement in &body.block.statements {
        needed.extend(statement.dims().iter().flat_map(|dim| dim.symbols()));
    }
    needed.extend(body.block.results.iter().flat_map(Code::dims).flat_map(|dim| dim.symbols()));
    let mut at_hand = defined(&body.block);
    at_hand.extend(&body.inputs);
    let mut read: HashSet<&Symbol> = HashSet::new();
    for statement in body.block.all_statements() {
        read.extend(statement.symbols());
    }
    let mut of_inputs: HashMap<Symbol, (VarId, usize)> = HashMap::new();
    for &var in &body.inputs {
        for (axis, dim) in graph.ty(body.vars[var]).dims.iter().enumerate() {
            // The caller passes what it holds as an `i64`: a dim is a `usize`.
            let plain =
                |symbol: &&Symbol| !is_signed(graph, symbol) && !tree.repeated.contains(body.vars[var], axis);
            if let Some(symbol) = dim.as_symbol().filter(plain) {
                of_inputs.entry(symbol.clone()).or_insert((var, axis));
            }
        }
    }
    let vars: HashMap<ValueId, VarId> = body.vars.enumerate().map(|(var, &value)| (value, var)).collect();
    for symbol in needed.iter().filter(|symbol| !read.contains(symbol)) {
        let origin = match graph.symbols.get(symbol) {
            Some(SymbolOrigin::Dim { value, axis }) => vars.get(value).map(|&var| (var, *axis)),
            Some(SymbolOrigin::Read { .. } | SymbolOrigin::Iteration { .. }) | None => None,
        };
        let origin = origin.filter(|(var, _)| at_hand.contains(var));
        match origin.or_else(|| of_inputs.get(symbol).copied()) {
            Some((var, axis)) => body.sources.push(Source { symbol: symbol.clone(), var, axis }),
            None => body.symbols.push(symbol.clone()),
        }
    }
}
