//! Gives every module its code, and modules of equal form one struct. Works from the leaves to the root.

use super::dissolve::{dissolve_children, drop_functions};
use super::parameters::parameters;
use super::signature::{self, Inside};
use super::statements::{Counting, statements, value_of};
use super::variants::{self, Form};
use super::{Content, Field, Module, Plan, Step, Struct, StructParameter, constants, origin, sequence};
use crate::code::{Body, Code, Init, Literal, Lowering, Owner, Statement, Text, inline};
use kiln_importer::ir::LayerField;
use kiln_importer::ir::{Symbol, SymbolOrigin, ValueId};
use kiln_types::DType;
use std::collections::{BTreeMap, BTreeSet};

/// Constructors with more parameters would be hard to call; such modules get structs of their own.
const MAX_PARAMETERS: usize = 12;
/// With more numbers in each call, functions of their own are easier to read.
const MAX_PASSED: usize = 3;

/// Makes code and structs.
pub fn share(plan: &mut Plan<'_>) {
    let levels = levels(plan);
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

/// Modules by height, leaves first. Modules of one class, which may come to share a struct, are at one height.
fn levels(plan: &Plan<'_>) -> BTreeMap<usize, Vec<usize>> {
    /// Classes whose modules hold each other would rise for ever.
    const ROUNDS: usize = 16;
    let mut order = Vec::new();
    postorder(plan, plan.root, &mut order);
    let own = |classes: &BTreeMap<String, usize>| {
        let mut heights: BTreeMap<usize, usize> = BTreeMap::new();
        for (module, children) in &order {
            let least = children.iter().map(|child| heights[child] + 1).max().unwrap_or(0);
            let alike = level_class(&plan.modules[*module]).and_then(|class| classes.get(&class).copied());
            let alike = alike.unwrap_or(0);
            heights.insert(*module, least.max(alike));
        }
        heights
    };
    let mut classes: BTreeMap<String, usize> = BTreeMap::new();
    let mut heights = own(&classes);
    for _ in 0..ROUNDS {
        let mut next: BTreeMap<String, usize> = BTreeMap::new();
        for (&module, &height) in &heights {
            let Some(class) = level_class(&plan.modules[module]) else { continue };
            let class = next.entry(class).or_insert(0);
            *class = height.max(*class);
        }
        if next == classes {
            break;
        }
        classes = next;
        heights = own(&classes);
    }
    let mut levels: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (module, _) in &order {
        levels.entry(heights[module]).or_default().push(*module);
    }
    levels
}

/// The class of a module, unless it is one that holds any others.
fn level_class(module: &Module) -> Option<String> {
    let class = module.class.rsplit('.').next().unwrap_or(&module.class);
    (class.is_empty() || !super::is_container_class(class)).then(|| kin(module))
}

/// Every module with its children, children first.
fn postorder(plan: &Plan<'_>, module: usize, order: &mut Vec<(usize, Vec<usize>)>) {
    let mut children = Vec::new();
    let mut steps: Vec<&Step> = plan.modules[module].steps.iter().rev().collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Call(child) => {
                postorder(plan, *child, order);
                children.push(*child);
            }
            Step::Branches { then, otherwise, .. } => steps.extend(then.iter().chain(otherwise).rev()),
            Step::Node(_) | Step::Loop { .. } => {}
        }
    }
    order.push((module, children));
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
    let mut lowering = Lowering::new(plan.graph, &owner);
    let mut data = plan.modules[module].clone();
    data.body.inits = data.fields.iter().map(|field| init(plan, field, &mut lowering)).collect();
    lowering.field = None;
    for step in &data.steps {
        data.body.block.statements.extend(statements(plan, step, &mut lowering));
    }
    data.body.block.results = data.outputs.iter().map(|&value| lowering.value(value)).collect();
    data.body.slots = lowering.slots;
    data.body.hints = lowering.hints;
    pass_hints_back(&mut data.body);
    data.inputs = signature::inputs(&data.body.block);
    if module == plan.root {
        data.inputs = plan.graph.inputs.clone();
    }
    signature::find_symbols(plan, &mut data);
    plan.modules[module] = data;
}

/// What a named value is made of by calls on it alone has its name.
fn pass_hints_back(body: &mut Body) {
    for statement in body.block.statements.iter().rev() {
        let Statement::Bind { outputs, code: code @ Code::Method(..) } = statement else { continue };
        let (&[output], &[value]) = (outputs.as_slice(), code.values().as_slice()) else { continue };
        if let Some(hint) = body.hints.get(&output).cloned()
            && body.block.count(value) == 1
        {
            body.hints.entry(value).or_insert(hint);
        }
    }
}

/// Gives the bodies of a struct's modules their final form.
fn finish(plan: &mut Plan<'_>, members: &[usize]) {
    for &member in members {
        let body = &mut plan.modules[member].body;
        if body.values.is_none() {
            let kept: BTreeSet<ValueId> = body.sources.iter().map(|(_, value, _)| *value).collect();
            inline(&mut body.block, &kept);
        }
    }
    for &member in members {
        if let Some(values) = plan.modules[member].body.values.clone() {
            plan.modules[member].body.block = plan.modules[members[0]].body.block.with_values(&values);
        }
    }
}

fn init(plan: &Plan<'_>, field: &Field, lowering: &mut Lowering<'_>) -> Init {
    lowering.field = Some(field.key.clone());
    match &field.content {
        Content::Layer(node) => match plan.layer(*node) {
            Some(layer) => {
                let config = lowering.config(*node, &layer.config);
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
        Content::Absent => Init::Parameter {
            ty: kiln_importer::ir::TensorType::new(DType::F32, [0usize; 0].map(kiln_importer::ir::Dim::from)),
            dims: Vec::new(),
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

/// A child's literals for its struct's parameters.
fn struct_args(plan: &Plan<'_>, child: usize, lowering: &mut Lowering<'_>) -> Vec<Code> {
    let data = &plan.modules[child];
    let parameters = plan.structs[data.struct_id].parameters.iter().filter(|parameter| parameter.is_given());
    parameters
        .map(|parameter| lowering.literal_slot(Some(value_of(data, parameter)), Some(&parameter.name)))
        .collect()
}

/// Writes forms of a module's code.
pub(super) fn text<'a>(plan: &'a Plan<'_>, module: usize) -> Text<'a> {
    let class_of = |child: usize| plan.modules[child].struct_id;
    Text::new(plan.graph, class_of, move |code| field_place(plan, module, code))
}

/// Gives modules of one level, all children having structs, their structs.
fn form_structs(plan: &mut Plan<'_>, modules: &[usize]) {
    let mut forms: Vec<Form> = Vec::new();
    let mut index: BTreeMap<(String, String), usize> = BTreeMap::new();
    for &module in modules {
        let data = &plan.modules[module];
        let keys: Vec<String> = data.fields.iter().map(|field| field.key.clone()).collect();
        let mut form = text(plan, module).body(&data.body, &keys, &data.inputs, &data.outputs);
        for field in &data.fields {
            if let Some(origin) = origin(plan, module, field) {
                form.push_str(&format!("{} {origin:?}", field.key));
            }
        }
        let class = kin(data);
        let at = *index.entry((data.class.clone(), form)).or_insert(forms.len());
        match forms.get_mut(at) {
            Some(form) => form.members.push(module),
            None => forms.push(Form { class, members: vec![module] }),
        }
    }
    for members in variants::join(plan, forms) {
        finish(plan, &members);
        let parameters = parameters(plan, &members);
        let passed = parameters.iter().filter(|parameter| parameter.passed).count();
        let varied = members.iter().any(|&member| plan.modules[member].body.values.is_some());
        if !varied && (parameters.len() > MAX_PARAMETERS || passed > MAX_PASSED) {
            for alike in by_literals(plan, &members) {
                add_struct(plan, alike, Vec::new());
            }
        } else {
            add_struct(plan, members, parameters);
        }
    }
}

/// What modules that may share a struct have in common: the class, or the path without its numbers.
fn kin(module: &Module) -> String {
    let class = module.class.rsplit('.').next().unwrap_or(&module.class);
    if super::is_container_class(class) {
        let numberless: String =
            module.path.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        return format!("{class} {}", if class.is_empty() { numberless } else { String::new() });
    }
    module.class.clone()
}

/// Modules by their exact literals.
fn by_literals(plan: &Plan<'_>, members: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Vec<Option<Literal>>, Vec<usize>)> = Vec::new();
    for &member in members {
        let literals: Vec<Option<Literal>> =
            plan.modules[member].body.slots.iter().map(|slot| slot.value.clone()).collect();
        match groups.iter_mut().find(|(other, _)| *other == literals) {
            Some((_, group)) => group.push(member),
            None => groups.push((literals, vec![member])),
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
    let key = |module: usize, index: usize| plan.modules[module].fields[index].key.as_str();
    match code {
        Code::Held(value) => {
            let held = plan.held.get(value);
            let way = held.and_then(|(layer, _)| plan.way_to(module, *layer)).unwrap_or_default();
            let steps: Vec<_> =
                way.iter().map(|&(module, index, position)| (key(module, index), position)).collect();
            format!("{steps:?}{:?}", held.map(|(_, name)| name))
        }
        Code::Module(child, _) => {
            let Some(index) = field_index(plan, module, code) else { return String::new() };
            let first = plan.first_call(*child);
            let position = match &plan.modules[module].fields[index].content {
                Content::Sequence(children) => children.iter().position(|&other| other == first),
                _ => None,
            };
            format!("{}{position:?}", key(module, index))
        }
        code => {
            field_index(plan, module, code).map(|index| key(module, index).to_owned()).unwrap_or_default()
        }
    }
}

/// The last word of a key as a name.
pub(super) fn plain_name(key: &str) -> String {
    let words = key.rsplit('.').find(|word| word.chars().any(|c| c.is_ascii_alphabetic()));
    crate::names::snake(words.unwrap_or("part"), "part")
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
