//! Gives every module its code, and modules of equal code one struct.

use super::signature::{self, Signatures};
use super::variants::{self, Group};
use super::{Draft, Parameter, Sharing, Struct, optional_fields};
use crate::code::{
    Around, Body, Code, CodeBuilder, Form, Init, Literal, Owner, Statement, decide_moves, inline, roll,
};
use crate::ids::{Arena, FieldId, ModuleId, SlotId, StructId, VarId};
use crate::tree::{
    Checkpoints, Content, FieldOrigin, Module, ModuleTree, Step, is_container_class, is_literal,
};
use crate::{CodegenError, Defect, names};
use kiln_importer::ir::{Graph, TensorType, ValueId};
use kiln_types::{DType, DTypeKind};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Constructors with more parameters would be hard to call; such modules get structs of their own.
pub(super) const MAX_PARAMETERS: usize = 12;
/// With more numbers in each call, functions of their own are easier to read.
const MAX_PASSED: usize = 3;

/// Statistics, which layers move by themselves and no optimizer sees.
const RUNNING: [&str; 2] = ["running_mean", "running_var"];

type Built = (Arena<ModuleId, Draft>, Arena<StructId, Struct>);

/// Makes code and structs.
pub(super) fn build(tree: &ModuleTree<'_>) -> Result<Built, CodegenError> {
    let draft = |module: &Module| Draft {
        fields: module.fields.iter().cloned().collect(),
        steps: module.steps.clone(),
        call_of: module.call_of,
        ..Draft::default()
    };
    let modules = tree.modules.iter().map(draft).collect();
    let mut sharing = Sharing {
        tree,
        modules,
        structs: Arena::default(),
        read_elsewhere: variants::layers_read_elsewhere(tree),
        comparisons: variants::comparisons(tree),
        is_repeatable: tree.graph.nodes.iter().all(|node| node.op.effect().is_repeatable()),
    };
    let signatures = Signatures::new(tree)?;
    for modules in levels(tree) {
        for &module in &modules {
            sharing.modules[module].outputs = signatures.outputs(module);
            sharing.write_out_children(module);
            sharing.drop_functions(module);
            sharing.collect_sequences(module);
            sharing.write_code(module)?;
        }
        sharing.form_structs(&modules)?;
    }
    Ok((sharing.modules, sharing.structs))
}

/// Modules by height, leaves first. Modules of one class, which may come to share a struct, are at one height.
fn levels(tree: &ModuleTree<'_>) -> Vec<Vec<ModuleId>> {
    /// Classes whose modules hold each other would rise for ever.
    const ROUNDS: usize = 16;
    let mut order = Vec::new();
    postorder(tree, tree.root, &mut order);
    let class_of = |module: ModuleId| level_class(&tree.modules[module]);
    let with_classes: Vec<(ModuleId, Vec<ModuleId>, Option<String>)> =
        order.into_iter().map(|(module, children)| (module, children, class_of(module))).collect();
    let heights_with = |classes: &HashMap<&str, usize>| {
        let mut heights: HashMap<ModuleId, usize> = HashMap::new();
        for (module, children, class) in &with_classes {
            let least = children.iter().filter_map(|child| heights.get(child)).map(|height| height + 1).max();
            let alike = class.as_deref().and_then(|class| classes.get(class).copied());
            heights.insert(*module, least.max(alike).unwrap_or(0));
        }
        heights
    };
    let mut classes: HashMap<&str, usize> = HashMap::new();
    let mut heights = heights_with(&classes);
    for _ in 0..ROUNDS {
        let mut next: HashMap<&str, usize> = HashMap::new();
        for (module, _, class) in &with_classes {
            let Some(class) = class else { continue };
            let height = next.entry(class).or_insert(0);
            *height = heights[module].max(*height);
        }
        if next == classes {
            break;
        }
        classes = next;
        heights = heights_with(&classes);
    }
    let mut levels: BTreeMap<usize, Vec<ModuleId>> = BTreeMap::new();
    for (module, ..) in &with_classes {
        levels.entry(heights[module]).or_default().push(*module);
    }
    levels.into_values().collect()
}

/// The class of a module, unless it is one that holds any others.
fn level_class(module: &Module) -> Option<String> {
    let class = module.class_name();
    (class.is_empty() || !is_container_class(class)).then(|| family(module))
}

/// What modules that may share a struct have in common: the class, or the path without its numbers.
fn family(module: &Module) -> String {
    let class = module.class_name();
    if is_container_class(class) {
        let numberless = |c: char| if c.is_ascii_digit() { '#' } else { c };
        let path: String = module.path.chars().map(numberless).collect();
        return format!("{class} {}", if class.is_empty() { path } else { String::new() });
    }
    module.class.clone()
}

/// Every module with its children, children first.
fn postorder(tree: &ModuleTree<'_>, module: ModuleId, order: &mut Vec<(ModuleId, Vec<ModuleId>)>) {
    let mut children = Vec::new();
    let mut steps: Vec<&Step> = tree.modules[module].steps.iter().rev().collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Call(child) => {
                postorder(tree, *child, order);
                children.push(*child);
            }
            Step::Branches { then, otherwise, .. } => steps.extend(then.iter().chain(otherwise).rev()),
            Step::Repeat { body, .. } => steps.extend(body.iter().rev()),
            Step::Node(_) | Step::Loop { .. } => {}
        }
    }
    order.push((module, children));
}

/// What modules of one struct have equal beside the forms of their code, unless they differ in optional parts alone.
#[derive(PartialEq, Eq, Hash)]
struct Likeness<'m> {
    class: &'m str,
    keys: Vec<&'m str>,
    origins: &'m Arena<FieldId, Option<FieldOrigin>>,
    statements: usize,
    outputs: Vec<(DTypeKind, usize)>,
}

impl Sharing<'_, '_> {
    /// Makes a module's code.
    fn write_code(&mut self, module: ModuleId) -> Result<(), CodegenError> {
        let mut draft = std::mem::take(&mut self.modules[module]);
        draft.places = self.places(&draft);
        let body = {
            let owner = |value: ValueId| self.owner(&draft, value);
            let mut builder = CodeBuilder::new(self.tree.graph, &owner);
            let mut inits = Arena::default();
            for (id, field) in draft.fields.enumerate() {
                builder.field = Some(id);
                inits.push(self.init(&field.content, &mut builder)?);
            }
            builder.field = None;
            let mut body = Body { inits, ..Body::default() };
            for step in &draft.steps {
                body.block.statements.push(self.statement(&draft, step, &mut builder)?);
            }
            let results = draft.outputs.iter().map(|&value| builder.value(value));
            body.block.results = results.collect::<Result<_, _>>()?;
            body.inputs = if module == self.tree.root {
                self.tree.graph.inputs.iter().map(|&input| builder.var(input)).collect()
            } else {
                signature::inputs(&body.block)
            };
            body.slots = builder.slots;
            body.hints = builder.hints;
            body.vars = builder.vars;
            body
        };
        draft.inputs = body.inputs.iter().map(|&var| body.vars[var]).collect();
        draft.body = body;
        if module == self.tree.root {
            hint_outputs(self.tree.graph, &mut draft.body);
        }
        pass_hints_back(&mut draft.body);
        signature::find_symbols(self.tree, &mut draft);
        draft.origins = self.origins(module, &draft.fields);
        self.modules[module] = draft;
        Ok(())
    }

    /// Where a module finds a constant.
    fn owner(&self, draft: &Draft, value: ValueId) -> Owner {
        if let Some(field) = draft.places.parameter(value) {
            return Owner::Module(field);
        }
        if let Some((layer, name)) = self.tree.layers().holder(value)
            && let Some(way) = self.way_to(draft, layer)
        {
            return Owner::Layer(way, name);
        }
        if is_literal(self.tree.graph, value) { Owner::Literal } else { Owner::Argument }
    }

    /// Whether training leaves a constant as it is, in a model that is to be trained: the original network has no
    /// parameter for it, or a buffer.
    fn is_fixed(&self, value: ValueId) -> bool {
        let graph = self.tree.graph;
        // Where nothing is known of any constant, all may be parameters.
        self.tree.trainable
            && self.tree.checkpoints != Checkpoints::None
            && match graph.provenance(value) {
                None => true,
                Some(made) => {
                    let keys = made.keys();
                    !keys.is_empty() && keys.iter().all(|key| graph.buffers.contains(key))
                }
            }
    }

    fn init(&self, content: &Content, builder: &mut CodeBuilder<'_>) -> Result<Init, CodegenError> {
        let graph = self.tree.graph;
        Ok(match content {
            Content::Layer(node) => {
                let layer = self.tree.layer(*node);
                let (_, layer) = layer.ok_or_else(|| Defect::node(graph.node(*node), "no layer"))?;
                let dtype = layer.values().next().map(|value| graph.ty(value).dtype);
                // Layers hold floats; a table of integers says nothing of those.
                let dtype = dtype.filter(|dtype| dtype.is_float()).unwrap_or(DType::F32);
                let config = builder.config(*node, &layer.config)?;
                let fixed =
                    layer.parameters().filter(|(_, value)| value.is_some_and(|value| self.is_fixed(value)));
                let fixed =
                    fixed.map(|(field, _)| field.name).filter(|name| !RUNNING.contains(name)).collect();
                Init::Layer { ty: layer.declared.path, config, dtype, fixed }
            }
            Content::Absent => Init::Parameter { dtype: DType::F32, rank: 0, dims: Vec::new(), fixed: false },
            Content::Parameter(value) => {
                let ty = graph.ty(*value);
                let sizes = ty.dims.iter().filter_map(|dim| dim.as_constant());
                let dims = sizes.map(|size| builder.slot(size, None)).collect();
                let fixed = ty.dtype.is_float() && self.is_fixed(*value);
                Init::Parameter { dtype: ty.dtype, rank: ty.rank(), dims, fixed }
            }
            Content::Module(child) => Init::Module {
                structure: self.structure_of(*child)?,
                args: self.struct_args(*child, builder)?,
            },
            Content::Sequence(items) => {
                let items = items.iter().map(|item| self.init(item, builder));
                Init::Sequence(items.collect::<Result<_, _>>()?)
            }
        })
    }

    /// A child's literals for its struct's parameters.
    fn struct_args(&self, child: ModuleId, builder: &mut CodeBuilder<'_>) -> Result<Vec<Code>, CodegenError> {
        let structure = &self.structs[self.structure_of(child)?];
        let parameters = structure.parameters.iter().filter(|parameter| parameter.is_given());
        let value = |parameter: &Parameter| super::statements::value_of(&self.modules[child], parameter);
        Ok(parameters
            .map(|parameter| builder.literal_slot(Some(value(parameter)), Some(&parameter.name)))
            .collect())
    }

    /// Gives modules of one level, all children having structs, their structs.
    fn form_structs(&mut self, modules: &[ModuleId]) -> Result<(), CodegenError> {
        let mut likenesses: HashMap<Likeness<'_>, usize> = HashMap::new();
        let mut alike: Vec<usize> = Vec::new();
        let mut numbered: Vec<(ModuleId, usize)> = Vec::with_capacity(modules.len());
        for &module in modules {
            let number = *likenesses.entry(self.likeness(module)).or_insert(alike.len());
            match alike.get_mut(number) {
                Some(count) => *count += 1,
                None => alike.push(1),
            }
            numbered.push((module, number));
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut index: HashMap<(usize, Form), usize> = HashMap::new();
        for (module, number) in numbered {
            let at = match alike[number] {
                // The form of a long module takes long to write down.
                1 => groups.len(),
                _ => {
                    let form = self.modules[module].body.form(self.tree.graph);
                    *index.entry((number, form)).or_insert(groups.len())
                }
            };
            match groups.get_mut(at) {
                Some(group) => group.members.push(module),
                None => {
                    let family = family(&self.tree.modules[module]);
                    groups.push(Group { family, members: vec![module], has_variants: false });
                }
            }
        }
        for group in self.join_variants(groups)? {
            let Some(parameters) = self.parameters(&group) else {
                for members in self.by_literals(&group.members) {
                    self.add_struct(members, Vec::new())?;
                }
                continue;
            };
            let passed = parameters.iter().filter(|parameter| parameter.passed).count();
            if !group.has_variants && passed > MAX_PASSED {
                for members in self.by_literals(&group.members) {
                    self.add_struct(members, Vec::new())?;
                }
            } else {
                self.add_struct(group.members, parameters)?;
            }
        }
        Ok(())
    }

    fn likeness(&self, module: ModuleId) -> Likeness<'_> {
        let data = &self.modules[module];
        let graph = self.tree.graph;
        let ty = |&value: &ValueId| (graph.ty(value).dtype.kind(), graph.ty(value).rank());
        Likeness {
            class: &self.tree.modules[module].class,
            keys: data.fields.iter().map(|field| field.key.as_str()).collect(),
            origins: &data.origins,
            statements: data.body.block.statements.len(),
            outputs: data.outputs.iter().map(ty).collect(),
        }
    }

    /// Modules by their exact literals.
    fn by_literals(&self, members: &[ModuleId]) -> Vec<Vec<ModuleId>> {
        let mut groups: Vec<Vec<ModuleId>> = Vec::new();
        let mut index: HashMap<Vec<&Option<Literal>>, usize> = HashMap::new();
        for &member in members {
            let literals = self.modules[member].body.slots.iter().map(|slot| &slot.value).collect();
            let at = *index.entry(literals).or_insert(groups.len());
            match groups.get_mut(at) {
                Some(group) => group.push(member),
                None => groups.push(vec![member]),
            }
        }
        groups
    }

    /// Gives modules a struct, which has the first one's code.
    fn add_struct(&mut self, members: Vec<ModuleId>, parameters: Vec<Parameter>) -> Result<(), CodegenError> {
        let first = *members.first().ok_or(Defect::NoMembers)?;
        let of_first = &mut self.modules[first].body;
        let (inits, block) = (std::mem::take(&mut of_first.inits), std::mem::take(&mut of_first.block));
        let mut body = Body { inits, block, ..of_first.clone() };
        let places: HashMap<SlotId, usize> = parameters
            .iter()
            .enumerate()
            .flat_map(|(n, parameter)| parameter.slots.iter().map(move |&slot| (slot, n)))
            .collect();
        let parameter = |slot| places.get(&slot).copied();
        let (graph, is_repeatable) = (self.tree.graph, self.is_repeatable);
        let added = roll(&mut body, &Around { graph, parameter: &parameter, is_repeatable });
        for &member in &members {
            let vars = &mut self.modules[member].body.vars;
            for &like in &added {
                vars.push(vars[like]);
            }
        }
        let kept: HashSet<VarId> = body.sources.iter().map(|source| source.var).collect();
        inline(&mut body.block, &kept);
        decide_moves(&mut body.block);
        let root = self.tree.root;
        let is_function =
            members.iter().all(|&member| self.modules[member].fields.is_empty() && member != root);
        let ty = |&value: &ValueId| -> TensorType { self.tree.graph.ty(value).clone() };
        let origins = std::mem::take(&mut self.modules[first].origins);
        let structure = self.structs.push(Struct {
            outputs: self.modules[first].outputs.iter().map(ty).collect(),
            optional: optional_fields(&body),
            origins,
            body,
            members,
            parameters,
            is_function,
        });
        for &member in &self.structs[structure].members {
            let draft = &mut self.modules[member];
            draft.structure = Some(structure);
            // The struct's is what is printed.
            (draft.body.inits, draft.body.block) = Default::default();
        }
        Ok(())
    }
}

/// What a model yields beside other things is called as the file calls it, where that says something.
fn hint_outputs(graph: &Graph, body: &mut Body) {
    if body.block.results.len() < 2 {
        return;
    }
    let items: BTreeSet<usize> = graph.output_sequences.iter().cloned().flatten().collect();
    for (at, (result, name)) in body.block.results.iter().zip(&graph.output_names).enumerate() {
        let Some(var) = result.var().filter(|var| !body.inputs.contains(var)) else { continue };
        let word = names::snake(name, "");
        // Items of a sequence are counted by Kiln.
        let given =
            name.rsplit_once('_').filter(|_| items.contains(&at)).map_or(name.as_str(), |(name, _)| name);
        // An exporter's own names are counted, or are those of operations.
        let counted = given.ends_with(|c: char| c.is_ascii_digit()) || names::is_anonymous(given);
        if word.len() > 2 && !counted && !names::names_an_operation(&word) && !names::names_a_kind(&word) {
            body.hints.entry(var).or_insert(word);
        }
    }
}

/// What a named value is made of by calls on it alone has its name, and so has what a loop that makes it begins with.
fn pass_hints_back(body: &mut Body) {
    let uses = body.block.uses();
    for statement in body.block.statements.iter().rev() {
        let [output, value] = if let Statement::Bind { outputs, code: code @ Code::Method(..) } = statement {
            let (&[output], &[value]) = (outputs.as_slice(), code.vars().as_slice()) else { continue };
            [output, value]
        } else if let Some(carried) = statement.carried() {
            carried
        } else {
            continue;
        };
        if let Some(hint) = body.hints.get(&output).cloned()
            && uses.get(&value) == Some(&1)
        {
            body.hints.entry(value).or_insert(hint);
        }
    }
}
