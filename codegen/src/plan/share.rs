//! Gives every module its code, and modules of equal form one struct. Works from the leaves to the root.

use super::dissolve::{dissolve_children, drop_functions, unequal_calls};
use super::signature::{self, Inside};
use super::statements::{Counting, statements};
use super::{Content, Field, Plan, Step, Struct, StructParameter, constants, sequence};
use crate::code::{Code, Init, Lowering, Owner, inline, skeleton};
use kiln_importer::ir::spelling::LayerField;
use kiln_importer::ir::{Symbol, SymbolOrigin, ValueId};
use kiln_types::DType;
use std::collections::{BTreeMap, BTreeSet};

/// Constructors with more parameters would be hard to call; such modules get structs of their own.
const MAX_PARAMETERS: usize = 12;
/// With more numbers in each call, functions of their own are easier to read.
const MAX_PASSED: usize = 3;

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
                let mut outputs = signature::outputs(plan, &insides[module], &all);
                let wanted = &plan.modules[module].wanted;
                outputs.sort_by_key(|value| wanted.iter().position(|other| other == value));
                outputs
            };
            let unequal = unequal_calls(plan, module);
            dissolve_children(plan, module, &unequal);
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
    let mut steps: Vec<&Step> = plan.modules[module].steps.iter().rev().collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Call(child) => {
                preorder(plan, *child, heights, levels);
                height = height.max(heights[*child] + 1);
            }
            Step::Branches { then, otherwise, .. } => steps.extend(then.iter().chain(otherwise).rev()),
            Step::Node(_) | Step::Loop { .. } => {}
        }
    }
    heights[module] = height;
    levels.entry(height).or_default().push(module);
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
    let holds = |value: ValueId| {
        plan.held.get(&value).is_some_and(|(layer, _)| plan.way_to(module, *layer).is_some())
    };
    let owner = |value: ValueId| {
        if own.contains(&value) {
            Owner::Own
        } else if plan.graph.constant(value).is_some() && holds(value) {
            Owner::Held
        } else if constants::is_literal(plan, value) {
            Owner::Literal
        } else {
            Owner::Argument
        }
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
                let dtype = layer.fields.iter().find_map(|(_, field)| match field {
                    LayerField::Parameter(value) | LayerField::Optional(Some(value)) => {
                        Some(plan.graph.ty(*value).dtype)
                    }
                    _ => None,
                });
                let dtype = dtype.filter(|dtype| dtype.is_float());
                Init::Layer {
                    ty: layer.ty,
                    generic: layer.generic,
                    config,
                    dtype: dtype.unwrap_or(DType::F32),
                }
            }
            None => {
                Init::Layer { ty: "", generic: false, config: Code::Tuple(Vec::new()), dtype: DType::F32 }
            }
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
    let numbers = parameters.filter(|parameter| !parameter.passed).filter_map(|parameter| {
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
        let field_of = |code: &Code| field_place(plan, module, code);
        let class_of = |child: usize| plan.modules[child].struct_id;
        let form = skeleton(plan.graph, &data.body, &keys, &data.inputs, &data.outputs, &class_of, &field_of);
        let key = (data.class.clone(), form);
        let at = *index.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(module);
    }
    for (_, members) in groups {
        let parameters = parameters(plan, &members);
        let passed = parameters.iter().filter(|parameter| parameter.passed).count();
        if parameters.len() > MAX_PARAMETERS || passed > MAX_PASSED {
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
        let passed = differs_by_call(plan, members, &numbers);
        let kept = slot.field.is_none() && !passed;
        match found.iter_mut().find(|(other, _)| *other == numbers) {
            Some((_, parameter)) => {
                parameter.slots.push(i);
                parameter.kept |= kept;
            }
            None => {
                let name = slot.hint.clone().unwrap_or_else(|| "size".to_owned());
                found.push((numbers, StructParameter { name, slots: vec![i], kept, passed }));
            }
        }
    }
    name_parameters(plan, first, found.into_iter().map(|(_, parameter)| parameter).collect())
}

/// Whether a number differs between calls of one module, or there is no constructor that could take it.
fn differs_by_call(plan: &Plan<'_>, members: &[usize], numbers: &[i64]) -> bool {
    let path = |member: usize| plan.modules[member].path.as_str();
    let function = members.iter().all(|&member| plan.modules[member].fields.is_empty());
    let mut first: BTreeMap<&str, i64> = BTreeMap::new();
    function
        || members
            .iter()
            .zip(numbers)
            .any(|(&member, &number)| *first.entry(path(member)).or_insert(number) != number)
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
        Code::Module(child, _) => {
            let first = plan.first_call(*child);
            plan.modules[module].fields.iter().position(|field| match &field.content {
                Content::Module(other) => *other == first,
                Content::Sequence(children) => children.contains(&first),
                _ => false,
            })
        }
        _ => None,
    }
}

/// Where a call goes to, as text that is equal in modules of one struct.
fn field_place(plan: &Plan<'_>, module: usize, code: &Code) -> String {
    let fields = &plan.modules[module].fields;
    match code {
        Code::Held(value) => {
            let held = plan.held.get(value);
            let way = held.and_then(|(layer, _)| plan.way_to(module, *layer)).unwrap_or_default();
            let steps: Vec<_> = way.iter().map(|(_, field, position)| (field, position)).collect();
            format!("{steps:?}{:?}", held.map(|(_, name)| name))
        }
        Code::Module(child, _) => {
            let index = field_index(plan, module, code);
            let first = plan.first_call(*child);
            let position = index.and_then(|index| match &fields[index].content {
                Content::Sequence(children) => children.iter().position(|&other| other == first),
                _ => None,
            });
            format!("{index:?}{position:?}")
        }
        code => format!("{:?}", field_index(plan, module, code)),
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
            Step::Node(node) | Step::Branches { node, .. } => used(&super::operands(self.graph, *node)),
        };
        data.steps.iter().map(in_step).sum::<usize>() + used(&data.outputs)
    }

    /// The symbol's origin, if the graph knows one.
    pub fn origin(&self, symbol: &Symbol) -> Option<SymbolOrigin> {
        self.graph.symbols.get(symbol).copied()
    }
}
