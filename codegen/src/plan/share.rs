//! Gives every module its code, and modules of equal form one struct. Works from the leaves to the root.

use super::dissolve::{dissolve_children, drop_functions, unequal_calls};
use super::signature::{self, Inside};
use super::statements::{Counting, statements, value_of};
use super::variants::{self, Form};
use super::{
    Content, Derived, Field, Module, ParameterKind, Plan, Step, Struct, StructParameter, constants, origin,
    sequence,
};
use crate::code::{Body, Code, Init, Literal, Lowering, Owner, Statement, Text, inline};
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

/// The literals that differ between modules of one form, equal ones as one parameter.
fn parameters(plan: &Plan<'_>, members: &[usize]) -> Vec<StructParameter> {
    let Some(&first) = members.first() else { return Vec::new() };
    let mut found: Vec<(Vec<Option<Literal>>, StructParameter)> = Vec::new();
    for (i, slot) in plan.modules[first].body.slots.iter().enumerate() {
        let literal = |&member: &usize| plan.modules[member].body.slots.get(i)?.value.clone();
        let literals: Vec<Option<Literal>> = members.iter().map(literal).collect();
        let Some(some) = literals.iter().flatten().next() else { continue };
        if literals.iter().flatten().all(|literal| literal == some) {
            continue;
        }
        let passed = differs_by_call(plan, members, &literals);
        let kept = slot.field.is_none() && !passed;
        // What a module has no use for goes with any literal.
        let goes_with = |(other, _): &&mut (Vec<Option<Literal>>, StructParameter)| {
            other.iter().zip(&literals).all(|(a, b)| a.is_none() || b.is_none() || a == b)
        };
        match found.iter_mut().find(goes_with) {
            Some((known, parameter)) => {
                for (known, literal) in known.iter_mut().zip(literals) {
                    *known = known.take().or(literal);
                }
                parameter.slots.push(i);
                parameter.kept |= kept;
            }
            None => {
                let name = slot.hint.clone().unwrap_or_else(|| "size".to_owned());
                let kind = ParameterKind::of(some);
                found.push((
                    literals,
                    StructParameter { name, slots: vec![i], kept, passed, kind, derived: None },
                ));
            }
        }
    }
    find_in_optional_parts(plan, members, &mut found);
    let parameters = name_parameters(plan, first, found.iter().map(|(_, known)| known.clone()).collect());
    derive(&found.into_iter().map(|(literals, _)| literals).collect::<Vec<_>>(), parameters)
}

/// Literals of optional parts, equal wherever the part is, that are those of a parameter of their kind.
fn find_in_optional_parts(
    plan: &Plan<'_>,
    members: &[usize],
    found: &mut [(Vec<Option<Literal>>, StructParameter)],
) {
    let slots = &plan.modules[members[0]].body.slots;
    let kind =
        |hint: &str| if hint.starts_with("channels") { "channels".to_owned() } else { hint.to_owned() };
    for (i, slot) in slots.iter().enumerate() {
        let literal = |&member: &usize| plan.modules[member].body.slots.get(i)?.value.clone();
        let literals: Vec<Option<Literal>> = members.iter().map(literal).collect();
        let known = found.iter().any(|(_, parameter)| parameter.slots.contains(&i));
        if known || literals.iter().all(Option::is_some) {
            continue;
        }
        let Some(hint) = slot.hint.as_deref().map(kind) else { continue };
        let matching = found.iter_mut().find(|(numbers, parameter)| {
            let alike = numbers.iter().zip(&literals).all(|(a, b)| b.is_none() || a == b);
            kind(&parameter.name) == hint && alike
        });
        if let Some((_, parameter)) = matching {
            parameter.slots.push(i);
        }
    }
}

/// What follows from other parameters in all modules: a padding from a kernel, a flag from numbers of channels.
fn derive(literals: &[Vec<Option<Literal>>], mut parameters: Vec<StructParameter>) -> Vec<StructParameter> {
    let number = |literal: &Option<Literal>| match literal {
        Some(Literal::Number(number)) => Some(*number),
        _ => None,
    };
    let numbers: Vec<Option<Vec<i64>>> =
        literals.iter().map(|literals| literals.iter().map(number).collect()).collect();
    let flags = |literals: &[Option<Literal>]| -> Option<Vec<bool>> {
        let flag = |literal: &Option<Literal>| match literal {
            Some(Literal::Flag(flag)) => Some(*flag),
            _ => None,
        };
        literals.iter().map(flag).collect()
    };
    for i in 0..parameters.len() {
        let named = |ending: &str| {
            let plain = |(n, parameter): (usize, &StructParameter)| {
                let numbers = numbers[n].as_ref().filter(|_| parameter.name.contains(ending))?;
                parameter.is_given().then_some((parameter.name.clone(), numbers))
            };
            parameters.iter().enumerate().filter_map(plain).collect::<Vec<_>>()
        };
        let derived = if let Some(own) =
            numbers[i].as_ref().filter(|_| parameters[i].name.ends_with("padding"))
        {
            let half = |(_, kernel): &(String, &Vec<i64>)| own.iter().zip(*kernel).all(|(p, k)| *p == k / 2);
            named("kernel").into_iter().find(half).map(|(name, _)| Derived::Half(name))
        } else {
            flags(&literals[i]).and_then(|own| comparison(&own, &named("channels")))
        };
        if !parameters[i].passed && (!parameters[i].kept || parameters[i].kind == ParameterKind::Flag) {
            parameters[i].derived = derived;
        }
    }
    parameters
}

/// The comparison of two numbers that a flag is, in all modules.
fn comparison(flags: &[bool], numbers: &[(String, &Vec<i64>)]) -> Option<Derived> {
    numbers.iter().enumerate().find_map(|(n, (a, left))| {
        numbers[n + 1..].iter().find_map(|(b, right)| {
            let equal: Vec<bool> = left.iter().zip(*right).map(|(a, b)| a == b).collect();
            if equal == flags {
                return Some(Derived::Equal(a.clone(), b.clone()));
            }
            let differs = equal.iter().zip(flags).all(|(equal, flag)| equal != flag);
            differs.then(|| Derived::Differ(a.clone(), b.clone()))
        })
    })
}

/// Whether a literal differs between calls of one module, or there is no constructor that could take it.
fn differs_by_call(plan: &Plan<'_>, members: &[usize], literals: &[Option<Literal>]) -> bool {
    let path = |member: usize| plan.modules[member].path.as_str();
    let function = members.iter().all(|&member| plan.modules[member].fields.is_empty());
    let mut first: BTreeMap<&str, &Option<Literal>> = BTreeMap::new();
    function
        || members
            .iter()
            .zip(literals)
            .any(|(&member, literal)| *first.entry(path(member)).or_insert(literal) != literal)
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
    name_channels(plan, member, &mut parameters);
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

/// Of several numbers of channels, those of the last layer are the module's own, those of the first are in the middle.
fn name_channels(plan: &Plan<'_>, member: usize, parameters: &mut [StructParameter]) {
    let data = &plan.modules[member];
    let of_layer = |parameter: &StructParameter| {
        let key = data.body.slots.get(*parameter.slots.first()?)?.field.as_ref()?;
        let at = data.fields.iter().position(|field| field.key == *key)?;
        matches!(data.fields[at].content, Content::Layer(_)).then_some(at)
    };
    let found: Vec<(usize, usize)> = parameters
        .iter()
        .enumerate()
        .filter(|(_, parameter)| parameter.name == "channels_out")
        .filter_map(|(i, parameter)| Some((i, of_layer(parameter)?)))
        .collect();
    if let &[(first, _), .., (last, at)] = found.as_slice()
        && data.fields.iter().skip(at + 1).all(|field| !matches!(field.content, Content::Module(_)))
    {
        parameters[first].name = "channels_mid".to_owned();
        for &(between, at) in &found[1..found.len() - 1] {
            let key = plain_name(&data.fields[at].key);
            parameters[between].name = format!("{key}_channels_out");
        }
        // The last is told first, so that it keeps its name.
        for parameter in parameters.iter_mut().filter(|parameter| parameter.name == "channels_out") {
            let key = parameter.slots.first().and_then(|&slot| data.body.slots[slot].field.clone());
            let of_child = key.and_then(|key| data.fields.iter().find(|field| field.key == key));
            if let Some(Field { content: Content::Module(child), .. }) = of_child {
                let class = plan.modules[*child].class.rsplit('.').next().unwrap_or_default();
                parameter.name = format!("{}_channels", crate::names::snake(class, "inner"));
            }
        }
        parameters[last].name = "channels_out".to_owned();
    }
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
