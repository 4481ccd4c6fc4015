//! Gives every module its code, and modules of equal form one struct. Works from the leaves to the root.

use super::signature::{self, Inside};
use super::{Content, Field, Module, Plan, Step, Struct, StructParameter, constants, sequence};
use crate::code::{Block, Code, Init, Lowering, Owner, Statement, inline, skeleton};
use kiln_importer::ir::spelling::Expr;
use kiln_importer::ir::{NodeId, Op, Region, Symbol, SymbolOrigin, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Constructors with more parameters would be hard to call; such modules get structs of their own.
const MAX_PARAMETERS: usize = 12;
/// A nameless container of so few layers and operations is written out in its parent.
const MAX_CONTAINER_STEPS: usize = 4;
/// A module that occurs once and has no more steps than this is written out in its parent.
const MAX_INLINED_STEPS: usize = 3;

/// Makes code and structs.
pub fn share(plan: &mut Plan<'_>) {
    let mut heights = vec![0; plan.modules.len()];
    let mut levels: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    preorder(plan, plan.root, &mut heights, &mut levels);
    let (all, insides) = count(plan);
    for modules in levels.into_values() {
        for &module in &modules {
            plan.modules[module].outputs = if module == plan.root {
                plan.graph.root.outputs.clone()
            } else {
                signature::outputs(plan, &insides[module], &all)
            };
            dissolve_children(plan, module);
            drop_functions(plan, module);
            sequence::collect(plan, module);
            build(plan, module);
        }
        form_structs(plan, &modules);
    }
}

/// Uses and definitions in the whole model, and in each module.
fn count(plan: &Plan<'_>) -> (Inside, Vec<Inside>) {
    let of_step = |step: &Step| statements(plan, step, &mut Counting { plan });
    let mut all = signature::inside(plan, plan.root, &of_step);
    for &output in &plan.graph.root.outputs {
        *all.uses.entry(output).or_insert(0) += 1;
    }
    let modules = 0..plan.modules.len();
    (all, modules.map(|module| signature::inside(plan, module, &of_step)).collect())
}

/// Heights of modules: leaves are 0.
fn preorder(plan: &Plan<'_>, module: usize, heights: &mut [usize], levels: &mut BTreeMap<usize, Vec<usize>>) {
    let mut height = 0;
    for step in &plan.modules[module].steps {
        if let Step::Call(child) = step {
            preorder(plan, *child, heights, levels);
            height = height.max(heights[*child] + 1);
        }
    }
    heights[module] = height;
    levels.entry(height).or_default().push(module);
}

/// A lowering for counting: every constant that is no literal counts as a value.
struct Counting<'a, 'g> {
    plan: &'a Plan<'g>,
}

/// Something that yields the code of nodes.
trait Lower {
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
fn statements(plan: &Plan<'_>, step: &Step, lower: &mut dyn Lower) -> Vec<Statement> {
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

/// Writes small and container children out in their parent.
fn dissolve_children(plan: &mut Plan<'_>, module: usize) {
    let alone = plan.modules[module].steps.len() == 1 && module == plan.root;
    let mut i = 0;
    while i < plan.modules[module].steps.len() {
        let Step::Call(child) = plan.modules[module].steps[i] else {
            i += 1;
            continue;
        };
        if !(alone || should_dissolve(plan, module, child)) {
            i += 1;
            continue;
        }
        let (steps, fields) = (plan.modules[child].steps.clone(), plan.modules[child].fields.clone());
        let parent = &mut plan.modules[module];
        let grown = steps.len();
        parent.steps.splice(i..=i, steps);
        i += grown;
        let Some(at) = parent.fields.iter().position(|field| field.content == Content::Module(child)) else {
            continue;
        };
        let prefix = parent.fields.remove(at).key;
        let moved = fields.into_iter().map(|field| Field { key: format!("{prefix}.{}", field.key), ..field });
        parent.fields.splice(at..at, moved);
    }
}

/// Children that hold nothing are functions, not fields.
fn drop_functions(plan: &mut Plan<'_>, module: usize) {
    let mut fields = std::mem::take(&mut plan.modules[module].fields);
    fields.retain(|field| match field.content {
        Content::Module(child) => !plan.structs[plan.modules[child].struct_id].function,
        _ => true,
    });
    plan.modules[module].fields = fields;
}

fn should_dissolve(plan: &Plan<'_>, parent: usize, child: usize) -> bool {
    let data = &plan.modules[child];
    let shared = &plan.structs[data.struct_id];
    let steps = data.steps.len();
    let class = data.class.rsplit('.').next().unwrap_or(&data.class);
    // At the top, a container of modules is a stage of the model.
    let stage = parent == plan.root && data.steps.iter().any(|step| !matches!(step, Step::Node(_)));
    let siblings = plan.modules[parent]
        .steps
        .iter()
        .filter(|step| matches!(step, Step::Call(other) if shared.members.contains(other)));
    let repeated = siblings.count() > 1;
    let small = if shared.function {
        steps <= MAX_INLINED_STEPS
    } else {
        steps <= 1
            || (shared.members.len() == 1 && steps <= MAX_INLINED_STEPS && data.fields.len() <= 2)
            || (super::is_container_class(class) && !stage && !repeated && steps <= MAX_CONTAINER_STEPS)
    };
    small || sequence::is_container(plan, child)
}

/// Makes a module's code.
fn build(plan: &mut Plan<'_>, module: usize) {
    let own: BTreeSet<ValueId> = plan.modules[module]
        .fields
        .iter()
        .filter_map(|field| match field.content {
            Content::Parameter(value) => Some(value),
            _ => None,
        })
        .collect();
    let owner = |value: ValueId| match (own.contains(&value), constants::is_literal(plan, value)) {
        (true, _) => Owner::Own,
        (_, true) => Owner::Literal,
        _ => Owner::Argument,
    };
    let mut lowering = Lowering { graph: plan.graph, owner: &owner, slots: Vec::new(), field: None };
    let mut data = plan.modules[module].clone();
    data.body.inits = data.fields.iter().map(|field| init(plan, field, &mut lowering)).collect();
    lowering.field = None;
    for step in &data.steps {
        data.body.block.statements.extend(statements(plan, step, &mut lowering));
    }
    data.body.block.results = data.outputs.iter().map(|&value| lowering.value(value)).collect();
    data.body.slots = lowering.slots;
    data.inputs = signature::inputs(&data.body.block);
    if module == plan.root {
        data.inputs = plan.graph.inputs.clone();
    }
    signature::find_symbols(plan, &mut data);
    let kept: BTreeSet<ValueId> = data.body.sources.iter().map(|(_, value, _)| *value).collect();
    inline(&mut data.body.block, &kept);
    plan.modules[module] = data;
}

fn init(plan: &Plan<'_>, field: &Field, lowering: &mut Lowering<'_>) -> Init {
    lowering.field = Some(field.key.clone());
    match &field.content {
        Content::Layer(node) => match plan.layer(*node) {
            Some(layer) => {
                let config = lowering.node(*node, &layer.config);
                Init::Layer { ty: layer.ty, generic: layer.generic, config }
            }
            None => Init::Layer { ty: "", generic: false, config: Code::Tuple(Vec::new()) },
        },
        Content::Parameter(value) => {
            let ty = plan.graph.ty(*value).clone();
            let sizes = ty.dims.iter().filter_map(|dim| dim.as_constant());
            let dims = sizes.map(|size| lowering.slot(size, None)).collect();
            Init::Parameter { ty, dims }
        }
        Content::Module(child) => {
            Init::Module { class: plan.modules[*child].struct_id, args: struct_args(plan, *child, lowering) }
        }
        Content::Sequence(children) => {
            let class = children.first().map_or(0, |&child| plan.modules[child].struct_id);
            let elements = children.iter().map(|&child| struct_args(plan, child, lowering)).collect();
            Init::Sequence { class, elements }
        }
    }
}

/// A child's numbers for its struct's parameters.
fn struct_args(plan: &Plan<'_>, child: usize, lowering: &mut Lowering<'_>) -> Vec<Code> {
    let data = &plan.modules[child];
    let parameters = plan.structs[data.struct_id].parameters.iter();
    let numbers = parameters.filter_map(|parameter| {
        let slot = data.body.slots.get(*parameter.slots.first()?)?;
        Some((slot.value, parameter.name.clone()))
    });
    numbers.map(|(value, name)| lowering.slot(value, Some(&name))).collect()
}

/// Gives modules of one level, all children having structs, their structs.
fn form_structs(plan: &mut Plan<'_>, modules: &[usize]) {
    let mut groups: Vec<((String, String), Vec<usize>)> = Vec::new();
    let mut index: BTreeMap<(String, String), usize> = BTreeMap::new();
    for &module in modules {
        let data = &plan.modules[module];
        let keys: Vec<String> = data.fields.iter().map(|field| field.key.clone()).collect();
        let field_of = |code: &Code| field_index(plan, module, code);
        let class_of = |child: usize| plan.modules[child].struct_id;
        let form = skeleton(plan.graph, &data.body, &keys, &data.inputs, &data.outputs, &class_of, &field_of);
        let mut key = (data.class.clone(), form);
        if data.fields.is_empty() {
            // A function has no constructor that could take the numbers.
            key.1.push_str(&format!("{:?}", data.body.slots));
        }
        let at = *index.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(module);
    }
    for (_, members) in groups {
        let parameters = parameters(plan, &members);
        if parameters.len() > MAX_PARAMETERS {
            for alike in by_numbers(plan, &members) {
                add_struct(plan, alike, Vec::new());
            }
        } else {
            add_struct(plan, members, parameters);
        }
    }
}

/// Modules by their exact numbers.
fn by_numbers(plan: &Plan<'_>, members: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Vec<i64>, Vec<usize>)> = Vec::new();
    for &member in members {
        let numbers: Vec<i64> = plan.modules[member].body.slots.iter().map(|slot| slot.value).collect();
        match groups.iter_mut().find(|(other, _)| *other == numbers) {
            Some((_, group)) => group.push(member),
            None => groups.push((numbers, vec![member])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn add_struct(plan: &mut Plan<'_>, members: Vec<usize>, parameters: Vec<StructParameter>) {
    let id = plan.structs.len();
    for &member in &members {
        plan.modules[member].struct_id = id;
    }
    let function =
        members.iter().all(|&member| plan.modules[member].fields.is_empty() && member != plan.root);
    plan.structs.push(Struct { members, parameters, function, name: String::new() });
}

/// The numbers that differ between modules of one form, equal ones as one parameter.
fn parameters(plan: &Plan<'_>, members: &[usize]) -> Vec<StructParameter> {
    let Some(&first) = members.first() else { return Vec::new() };
    let mut found: Vec<(Vec<i64>, StructParameter)> = Vec::new();
    for (i, slot) in plan.modules[first].body.slots.iter().enumerate() {
        let numbers: Vec<i64> = members
            .iter()
            .filter_map(|&member| plan.modules[member].body.slots.get(i).map(|slot| slot.value))
            .collect();
        if numbers.iter().all(|&number| number == slot.value) {
            continue;
        }
        let kept = slot.field.is_none();
        match found.iter_mut().find(|(other, _)| *other == numbers) {
            Some((_, parameter)) => {
                parameter.slots.push(i);
                parameter.kept |= kept;
            }
            None => {
                let name = slot.hint.clone().unwrap_or_else(|| "size".to_owned());
                found.push((numbers, StructParameter { name, slots: vec![i], kept }));
            }
        }
    }
    name_parameters(plan, first, found.into_iter().map(|(_, parameter)| parameter).collect())
}

/// Names apart: `channels` of two fields become `conv1_channels` and `conv2_channels`.
fn name_parameters(
    plan: &Plan<'_>,
    member: usize,
    mut parameters: Vec<StructParameter>,
) -> Vec<StructParameter> {
    let mut names = crate::names::Names::with(["config", "device", "self"]);
    let data = &plan.modules[member];
    let fields = super::field_names(plan, member, &[]);
    let field_name = |key: &str| {
        let at = data.fields.iter().position(|field| field.key == key);
        at.map_or_else(|| key.to_owned(), |at| fields[at].clone())
    };
    let wanted: Vec<String> = parameters.iter().map(|parameter| parameter.name.clone()).collect();
    for parameter in &mut parameters {
        let repeated = wanted.iter().filter(|name| **name == parameter.name).count() > 1;
        let field =
            parameter.slots.first().and_then(|&slot| plan.modules[member].body.slots[slot].field.clone());
        let wanted = match field {
            Some(key) if repeated && names.contains(&parameter.name) => {
                format!("{}_{}", field_name(&key), parameter.name)
            }
            _ => parameter.name.clone(),
        };
        parameter.name = names.fresh(&crate::names::snake(&wanted, "size"));
    }
    parameters
}

/// The index of the field that a call goes to.
pub fn field_index(plan: &Plan<'_>, module: usize, code: &Code) -> Option<usize> {
    match code {
        Code::Layer(node, ..) => plan.field_of(module, &Content::Layer(*node)),
        Code::Parameter(value) => plan.field_of(module, &Content::Parameter(*value)),
        Code::Module(child, _) => plan.modules[module].fields.iter().position(|field| match &field.content {
            Content::Module(other) => other == child,
            Content::Sequence(children) => children.contains(child),
            _ => false,
        }),
        _ => None,
    }
}

impl Plan<'_> {
    /// How often a value is used by the steps of a module, counted per call.
    pub(super) fn uses_in(&self, module: usize, value: ValueId) -> usize {
        let data = &self.modules[module];
        let used = |inputs: &[ValueId]| inputs.iter().filter(|&&input| input == value).count();
        let in_step = |step: &Step| match step {
            Step::Call(child) => used(&self.modules[*child].inputs),
            Step::Loop { modules, .. } => {
                modules.iter().map(|&child| used(&self.modules[child].inputs)).sum()
            }
            Step::Node(node) => used(&super::operands(self.graph, *node)),
        };
        data.steps.iter().map(in_step).sum::<usize>() + used(&data.outputs)
    }

    /// The symbol's origin, if the graph knows one.
    pub fn origin(&self, symbol: &Symbol) -> Option<SymbolOrigin> {
        self.graph.symbols.get(symbol).copied()
    }
}
