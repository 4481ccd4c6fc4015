//! Modules of one class that differ by optional parts: a shortcut that is projected or not, a sum with the input or none.
//!
//! A statement is optional when the shorter code goes on with one of its operands instead of its result. All modules
//! then share the struct of the fullest code, the fields of optional statements being `Option`s.

use super::{Draft, Sharing};
use crate::code::{Block, Code, Init, Literal, Slot, Statement};
use crate::ids::{Arena, FieldId, Id, ModuleId, SlotId, VarId};
use crate::tree::{Content, Field, FieldOrigin};
use crate::{CodegenError, Defect};
use kiln_importer::ir::{NodeId, Symbol, ValueId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// With more optional statements, structs of their own are easier to read.
const MAX_OPTIONAL: usize = 3;
/// Of more groups in one family, each has a struct of its own: comparing all with all would take for ever.
const MAX_GROUPS: usize = 48;
/// So many statements are compared to find out where one code is within another.
const MAX_COMPARISONS: usize = 20_000;

/// Modules of equal code.
#[derive(Debug)]
pub(super) struct Group {
    /// What tells families apart: the class, or the path without its numbers.
    pub(super) family: String,
    /// The modules.
    pub(super) members: Vec<ModuleId>,
    /// Whether some of them lack optional parts that others have.
    pub(super) has_variants: bool,
}

/// Where the code of shorter modules is found in that of fuller ones.
#[derive(Clone, Default)]
struct Alignment {
    /// Statements that the shorter ones do not have: their indices, and which operand stands for the result.
    missing: BTreeMap<usize, usize>,
    /// Literals of the fuller code and those of the shorter.
    slots: BTreeMap<SlotId, SlotId>,
    /// Variables of the fuller code and those of the shorter.
    vars: BTreeMap<VarId, VarId>,
}

/// A group that others join, by their positions in a list.
struct Join {
    full: usize,
    /// The optional statements, and which operand stands for the result of each.
    optional: BTreeMap<usize, usize>,
    shorter: Vec<(usize, Alignment)>,
}

/// A literal that says whether a module has an optional part.
struct Flag {
    /// The statement.
    at: usize,
    /// The field that only modules with the part have.
    field: Option<FieldId>,
    name: String,
}

impl Sharing<'_, '_> {
    /// Joins groups, the fullest first in each list of members.
    pub(super) fn join_variants(&mut self, groups: Vec<Group>) -> Result<Vec<Group>, CodegenError> {
        let mut families: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, group) in groups.iter().enumerate() {
            families.entry(&group.family).or_default().push(i);
        }
        let length = |i: usize| self.modules[groups[i].members[0]].body.block.statements.len();
        let mut joins: Vec<Join> = Vec::new();
        for mut order in families.into_values().filter(|family| (2..=MAX_GROUPS).contains(&family.len())) {
            order.sort_by_key(|&i| std::cmp::Reverse(length(i)));
            let mut taken: BTreeSet<usize> = BTreeSet::new();
            for (at, &i) in order.iter().enumerate() {
                if taken.contains(&i) {
                    continue;
                }
                let full = groups[i].members[0];
                let mut optional: BTreeMap<usize, usize> = BTreeMap::new();
                let mut shorter: Vec<(usize, Alignment)> = Vec::new();
                for &j in order[at + 1..].iter().filter(|j| !taken.contains(j)).collect::<Vec<_>>() {
                    let Some(found) = self.align(full, &groups[j].members, &optional) else { continue };
                    optional.extend(found.missing.clone());
                    shorter.push((j, found));
                    taken.insert(j);
                }
                if !shorter.is_empty() {
                    joins.push(Join { full: i, optional, shorter });
                }
            }
        }
        let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
        for Join { full: i, optional, shorter } in joins {
            let Some(full) = groups[i].take() else { continue };
            let shorter: Vec<(Group, Alignment)> =
                shorter.into_iter().filter_map(|(j, found)| Some((groups[j].take()?, found))).collect();
            groups[i] = Some(self.make_optional(full, &optional, shorter)?);
        }
        Ok(groups.into_iter().flatten().collect())
    }

    /// Where the code of equal modules is found in that of a fuller one, if that goes with the optional statements known.
    fn align(
        &self,
        full: ModuleId,
        members: &[ModuleId],
        known: &BTreeMap<usize, usize>,
    ) -> Option<Alignment> {
        let short = *members.first()?;
        let (a, b) = (&self.modules[full], &self.modules[short]);
        let may_vary = full != self.tree.root
            && short != self.tree.root
            && !a.fields.is_empty()
            && !b.fields.is_empty()
            && a.body.symbols == b.body.symbols
            && a.inputs.len() == b.inputs.len()
            && a.outputs.len() == b.outputs.len();
        if !may_vary {
            return None;
        }
        // Equal modules are aligned alike, if the fuller one knows all sizes by the same names as each of them.
        let names = symbols(b);
        if !members.iter().all(|&member| symbols(&self.modules[member]) == names) {
            return None;
        }
        let mut search = Search::new(self, full, short, known);
        let found = search.run()?;
        let missing: BTreeSet<usize> = known.keys().chain(found.missing.keys()).copied().collect();
        (missing.len() <= MAX_OPTIONAL).then_some(found)
    }

    /// Gives all members the fuller code, with its optional statements.
    fn make_optional(
        &mut self,
        full: Group,
        optional: &BTreeMap<usize, usize>,
        shorter: Vec<(Group, Alignment)>,
    ) -> Result<Group, CodegenError> {
        let first = *full.members.first().ok_or(Defect::NoMembers)?;
        let fuller = self.modules[first].clone();
        let key = |field: FieldId| &fuller.fields[field].key;
        let is_absent_somewhere = |field: &FieldId| {
            shorter.iter().any(|(group, _)| {
                let lacks = |&member: &ModuleId| !has_key(&self.modules[member], key(*field));
                group.members.iter().any(lacks)
            })
        };
        let flag = |&at: &usize| {
            let statement = &fuller.body.block.statements[at];
            let field = fields_of(statement).into_iter().find(is_absent_somewhere);
            let name = match field {
                Some(field) => plain_name(key(field)),
                None if is_sum(statement) => "residual".to_owned(),
                None => "with_step".to_owned(),
            };
            Flag { at, field, name }
        };
        let flags: Vec<Flag> = optional.keys().map(flag).collect();
        for (group, alignment) in &shorter {
            for &member in &group.members {
                self.align_member(&fuller, member, alignment, &flags)?;
            }
        }
        for &member in &full.members {
            let data = &mut self.modules[member];
            for flag in &flags {
                data.body.slots.push(flag.slot(true));
            }
        }
        let block = &mut self.modules[first].body.block;
        for (n, flag) in flags.iter().enumerate() {
            let statement = &mut block.statements[flag.at];
            let Statement::Bind { outputs, code } = statement else { continue };
            let (Some(&output), Some(&operand)) = (outputs.first(), code.vars().get(optional[&flag.at]))
            else {
                continue;
            };
            *statement = Statement::Optional {
                output,
                code: code.clone(),
                otherwise: Code::Use(operand),
                flag: SlotId::at(fuller.body.slots.len() + n),
                field: flag.field,
            };
        }
        let mut members = full.members;
        members.extend(shorter.into_iter().flat_map(|(group, _)| group.members));
        Ok(Group { family: full.family, members, has_variants: true })
    }

    /// Puts fields, literals and values of a shorter module in the order of the fuller one's.
    fn align_member(
        &mut self,
        fuller: &Draft,
        member: ModuleId,
        alignment: &Alignment,
        flags: &[Flag],
    ) -> Result<(), CodegenError> {
        let mut data = std::mem::take(&mut self.modules[member]);
        let slot = |(id, slot): (SlotId, &Slot)| {
            let short = alignment.slots.get(&id).and_then(|&short| data.body.slots.get(short));
            Slot { value: short.and_then(|short| short.value.clone()), ..slot.clone() }
        };
        let mut slots: Arena<SlotId, Slot> = fuller.body.slots.enumerate().map(slot).collect();
        for flag in flags {
            slots.push(flag.slot(!alignment.missing.contains_key(&flag.at)));
        }
        let path = &self.tree.modules[member].path;
        let var = |var: VarId| -> Result<ValueId, CodegenError> {
            let value = alignment.vars.get(&var).and_then(|&short| data.body.vars.get(short));
            value.copied().ok_or_else(|| Defect::module(path, "no value for a variable of its struct").into())
        };
        let vars = fuller.body.vars.ids().map(var).collect::<Result<_, _>>()?;
        let own: HashMap<&str, &Content> =
            data.fields.iter().map(|field| (field.key.as_str(), &field.content)).collect();
        let fields = fuller.fields.iter().map(|field| {
            let content = own.get(field.key.as_str()).map_or(Content::Absent, |content| (*content).clone());
            Field { key: field.key.clone(), content }
        });
        data.fields = fields.collect();
        data.body.slots = slots;
        data.body.vars = vars;
        data.places = self.places(&data);
        self.modules[member] = data;
        Ok(())
    }

    /// Whether anything but the layer's own calls reads its parameters.
    fn is_read_elsewhere(&self, layer: NodeId) -> bool {
        let layers = self.tree.layers();
        let calls = layers.calls().filter(|&(_, first)| first == layer).count();
        let mut held = layers.held().filter(|&(_, holder)| holder == layer);
        held.any(|(value, _)| self.tree.nodes().uses(value) > calls)
    }
}

impl Flag {
    /// The literal of a module.
    fn slot(&self, has_part: bool) -> Slot {
        Slot { value: Some(Literal::Flag(has_part)), hint: Some(self.name.clone()), field: self.field }
    }
}

fn has_key(draft: &Draft, key: &str) -> bool {
    draft.fields.iter().any(|field| field.key == key)
}

/// The symbols of a module's code, in the order in which its form counts them.
fn symbols(draft: &Draft) -> Vec<&Symbol> {
    let mut sources: Vec<_> = draft.body.sources.iter().collect();
    sources.sort_unstable_by_key(|source| (source.var, source.axis));
    let mut symbols: Vec<&Symbol> = sources.into_iter().map(|source| &source.symbol).collect();
    symbols.extend(&draft.body.symbols);
    for statement in draft.body.block.all_statements() {
        if let Statement::Read { symbols: read, .. } = statement {
            symbols.extend(read);
        }
    }
    symbols
}

/// Looks for the code of a shorter module in that of a fuller one.
struct Search<'a> {
    full: &'a Draft,
    short: &'a Draft,
    /// Without numbers and defaults, with the fuller code's fields.
    blocks: [Block; 2],
    known: &'a BTreeMap<usize, usize>,
    may_miss: Box<dyn Fn(&Statement) -> bool + 'a>,
    alike: Box<dyn Fn(VarId, VarId) -> bool + 'a>,
    same_type: Box<dyn Fn(VarId, VarId) -> bool + 'a>,
    origins: [Vec<Option<FieldOrigin>>; 2],
    /// The variable of the fuller code for each of the shorter.
    fuller: HashMap<VarId, VarId>,
    /// The variable that stands for the result of a statement that is missing.
    instead: HashMap<VarId, VarId>,
    /// What was found, in the order in which it was found.
    trail: Vec<Found>,
    missing: BTreeMap<usize, usize>,
}

/// One thing that was found.
enum Found {
    Pair(VarId, VarId),
    Missing { at: usize, output: VarId },
    Slots(SlotId, SlotId),
}

/// What to try next at a pair of statements.
#[derive(Clone, Copy)]
enum Attempt {
    /// They are one.
    Match,
    /// The fuller code's is missing, this operand standing for its result.
    Miss(usize),
}

impl<'a> Search<'a> {
    fn new(
        sharing: &'a Sharing<'_, '_>,
        full: ModuleId,
        short: ModuleId,
        known: &'a BTreeMap<usize, usize>,
    ) -> Self {
        let (a, b) = (&sharing.modules[full], &sharing.modules[short]);
        let keys: HashMap<&str, FieldId> =
            a.fields.enumerate().map(|(id, field)| (field.key.as_str(), id)).collect();
        let fields: HashMap<FieldId, FieldId> = b
            .fields
            .enumerate()
            .filter_map(|(id, field)| Some((id, *keys.get(field.key.as_str())?)))
            .collect();
        let graph = sharing.tree.graph;
        let ty = move |draft: &'a Draft, var: VarId| graph.ty(draft.body.vars[var]);
        Search {
            full: a,
            short: b,
            blocks: [
                plain(&a.body.block, &|field| Some(field)),
                plain(&b.body.block, &|field| fields.get(&field).copied()),
            ],
            known,
            may_miss: Box::new(move |statement| {
                fields_of(statement).into_iter().all(|field| match a.fields[field].content {
                    Content::Layer(node) => !sharing.is_read_elsewhere(node),
                    Content::Module(_) | Content::Parameter(_) => true,
                    Content::Sequence(_) | Content::Absent => false,
                })
            }),
            alike: Box::new(move |x, y| {
                let (x, y) = (ty(a, x), ty(a, y));
                x.dtype.kind() == y.dtype.kind() && x.rank() == y.rank()
            }),
            same_type: Box::new(move |x, y| {
                let (x, y) = (ty(a, x), ty(b, y));
                x.dtype.kind() == y.dtype.kind() && x.rank() == y.rank()
            }),
            origins: [full, short].map(|module| sharing.origins(module).collect()),
            fuller: HashMap::new(),
            instead: HashMap::new(),
            trail: Vec::new(),
            missing: BTreeMap::new(),
        }
    }

    fn run(&mut self) -> Option<Alignment> {
        let inputs: Vec<_> = self.full.body.inputs.iter().zip(&self.short.body.inputs).collect();
        for (&x, &y) in inputs {
            if !(self.same_type)(x, y) {
                return None;
            }
            self.pair(x, y);
        }
        self.fields()?;
        let mut attempts = vec![(0, 0, Attempt::Match, self.trail.len())];
        for _ in 0..MAX_COMPARISONS {
            let (i, j, attempt, mark) = attempts.pop()?;
            self.take_back(mark);
            if i == self.blocks[0].statements.len() {
                if j == self.blocks[1].statements.len() && self.ends_match() && self.explains_fields()? {
                    return Some(self.alignment());
                }
                continue;
            }
            match attempt {
                Attempt::Match => {
                    attempts.push((i, j, Attempt::Miss(0), mark));
                    if self.matches(i, j) {
                        attempts.push((i + 1, j + 1, Attempt::Match, self.trail.len()));
                    }
                }
                Attempt::Miss(operand) => {
                    let Some(is_missing) = self.miss(i, operand) else { continue };
                    attempts.push((i, j, Attempt::Miss(operand + 1), mark));
                    if is_missing {
                        attempts.push((i + 1, j, Attempt::Match, self.trail.len()));
                    }
                }
            }
        }
        None
    }

    fn pair(&mut self, x: VarId, y: VarId) {
        self.fuller.insert(y, x);
        self.trail.push(Found::Pair(x, y));
    }

    fn take_back(&mut self, mark: usize) {
        for step in self.trail.drain(mark..) {
            match step {
                Found::Pair(_, y) => {
                    self.fuller.remove(&y);
                }
                Found::Missing { at, output } => {
                    self.missing.remove(&at);
                    self.instead.remove(&output);
                }
                Found::Slots(..) => {}
            }
        }
    }

    /// The shorter code's fields must be among the fuller one's, in the same order.
    fn fields(&mut self) -> Option<()> {
        let (a, b) = (self.full, self.short);
        let mut from = 0;
        for (j, field) in b.fields.iter().enumerate() {
            let i = from + a.fields.iter().skip(from).position(|other| other.key == field.key)?;
            // What one member's checkpoint is folded into, the other's must be.
            if self.origins[0].get(i) != self.origins[1].get(j) {
                return None;
            }
            let (x, y) = (a.body.inits.get(FieldId::at(i))?, b.body.inits.get(FieldId::at(j))?);
            if plain_init(x) != plain_init(y) {
                return None;
            }
            self.pair_slots(&init_codes(x), &init_codes(y))?;
            from = i + 1;
        }
        Some(())
    }

    fn pair_slots(&mut self, a: &[&Code], b: &[&Code]) -> Option<()> {
        let (a, b) = (slots(a), slots(b));
        if a.len() != b.len() {
            return None;
        }
        self.trail.extend(a.into_iter().zip(b).map(|(a, b)| Found::Slots(a, b)));
        Some(())
    }

    /// Whether two statements are one; their variables are paired then.
    fn matches(&mut self, i: usize, j: usize) -> bool {
        let [full, short] = [self.full, self.short].map(|draft| &draft.body.block.statements);
        let (Some(a), Some(b)) = (full.get(i), short.get(j)) else { return false };
        let (outputs, others) = (all_outputs(a), all_outputs(b));
        if outputs.len() != others.len()
            || !outputs.iter().zip(&others).all(|(&x, &y)| (self.same_type)(x, y))
            || self.pair_slots(&a.codes(), &b.codes()).is_none()
        {
            return false;
        }
        for (x, y) in outputs.into_iter().zip(others) {
            self.pair(x, y);
        }
        let [full, short] = &self.blocks;
        let with_stand_ins = |var| Some(self.instead.get(&var).copied().unwrap_or(var));
        let a = with_vars(&full.statements[i], &with_stand_ins);
        let b = with_vars(&short.statements[j], &|var| self.fuller_var(var));
        a.is_some() && a == b
    }

    /// The fuller code's variable for one of the shorter.
    fn fuller_var(&self, var: VarId) -> Option<VarId> {
        self.fuller.get(&var).copied()
    }

    /// Whether a statement can be missing, with an operand standing for its result; `None` when there is no such operand.
    fn miss(&mut self, i: usize, operand: usize) -> Option<bool> {
        let statement = &self.full.body.block.statements[i];
        let Statement::Bind { outputs, code } = statement else { return None };
        let &[output] = outputs.as_slice() else { return None };
        if self.missing.len() >= MAX_OPTIONAL || !(self.may_miss)(statement) {
            return None;
        }
        let &value = code.vars().get(operand)?;
        if !(self.alike)(value, output) || self.known.get(&i).is_some_and(|&known| known != operand) {
            return Some(false);
        }
        let stand_in = self.instead.get(&value).copied().unwrap_or(value);
        self.instead.insert(output, stand_in);
        self.missing.insert(i, operand);
        self.trail.push(Found::Missing { at: i, output });
        Some(true)
    }

    /// Whether both yield the same, and find sizes in the same places.
    fn ends_match(&self) -> bool {
        let with_stand_ins = |var| Some(self.instead.get(&var).copied().unwrap_or(var));
        let [full, short] = [&self.blocks[0].results, &self.blocks[1].results];
        let results = full.len() == short.len()
            && full.iter().zip(short).all(|(a, b)| {
                let (a, b) = (code_with(a, &with_stand_ins), code_with(b, &|var| self.fuller_var(var)));
                a.is_some() && a == b
            });
        let (full, short) = (&self.full.body.sources, &self.short.body.sources);
        results
            && full.len() == short.len()
            && full.iter().zip(short).all(|(a, b)| {
                a.symbol == b.symbol && a.axis == b.axis && with_stand_ins(a.var) == self.fuller_var(b.var)
            })
    }

    /// Whether every missing field has its one optional statement, and every such statement at most one; `None` when
    /// nothing else can be found.
    fn explains_fields(&self) -> Option<bool> {
        let keys: HashSet<&str> = self.short.fields.iter().map(|field| field.key.as_str()).collect();
        let key = |field: FieldId| self.full.fields[field].key.as_str();
        let mut explained: BTreeSet<FieldId> = BTreeSet::new();
        for &at in self.missing.keys() {
            let fields = fields_of(&self.full.body.block.statements[at]);
            let absent: Vec<FieldId> =
                fields.into_iter().filter(|&field| !keys.contains(key(field))).collect();
            // A number is a place in a list, and longer lists are no form of shorter ones.
            let is_number = |&field: &FieldId| !key(field).contains(|c: char| c.is_ascii_alphabetic());
            if absent.len() > 1 || absent.iter().any(is_number) {
                return None;
            }
            explained.extend(absent);
        }
        let missing = self.full.fields.iter().filter(|field| !keys.contains(field.key.as_str())).count();
        if missing == explained.len() { Some(true) } else { None }
    }

    fn alignment(&self) -> Alignment {
        let mut alignment = Alignment { missing: self.missing.clone(), ..Alignment::default() };
        for step in &self.trail {
            match step {
                Found::Pair(x, y) => {
                    alignment.vars.insert(*x, *y);
                }
                Found::Slots(a, b) => {
                    alignment.slots.insert(*a, *b);
                }
                Found::Missing { .. } => {}
            }
        }
        for (output, stand_in) in &self.instead {
            if let Some(&short) = alignment.vars.get(stand_in) {
                alignment.vars.insert(*output, short);
            }
        }
        alignment
    }
}

/// The variables that a statement defines, those of its branches too.
fn all_outputs(statement: &Statement) -> Vec<VarId> {
    let mut outputs = Vec::new();
    if let Statement::If { then, otherwise, .. } = statement {
        outputs.extend(then.statements.iter().chain(&otherwise.statements).flat_map(all_outputs));
    }
    outputs.extend(statement.outputs());
    outputs
}

/// Code without numbers and defaults, with other fields.
fn plain(block: &Block, field: &dyn Fn(FieldId) -> Option<FieldId>) -> Block {
    let mut block = block.clone();
    block.visit_mut(&mut |code| plain_code(code, field));
    block
}

fn plain_init(init: &Init) -> Init {
    let plain = |code: &mut Code| code.visit_mut(&mut |part| plain_code(part, &|field| Some(field)));
    let mut init = init.clone();
    match &mut init {
        Init::Layer { config, .. } => plain(config),
        Init::Parameter { dims, .. } => dims.iter_mut().for_each(plain),
        Init::Module { args, .. } => args.iter_mut().for_each(plain),
        Init::Sequence { elements, .. } => elements.iter_mut().flatten().for_each(plain),
    }
    init
}

fn plain_code(code: &mut Code, field: &dyn Fn(FieldId) -> Option<FieldId>) {
    let swap = |id: &mut FieldId| *id = field(*id).unwrap_or(*id);
    code.normalize();
    match code {
        Code::Slot(id) => *id = SlotId::at(0),
        Code::Parameter(id) | Code::Layer(id, ..) => swap(id),
        Code::Held(way, _) => way.iter_mut().take(1).for_each(|place| swap(&mut place.field)),
        Code::Module(callee, _) => callee.place.iter_mut().for_each(|place| swap(&mut place.field)),
        _ => {}
    }
}

/// A statement with other variables, if there is one for each.
fn with_vars(statement: &Statement, other: &dyn Fn(VarId) -> Option<VarId>) -> Option<Statement> {
    let mut block = Block { statements: vec![statement.clone()], results: Vec::new() };
    let mut complete = true;
    block.visit_vars(&mut |var| match other(*var) {
        Some(other) => *var = other,
        None => complete = false,
    });
    block.statements.pop().filter(|_| complete)
}

/// An expression with other variables, if there is one for each.
fn code_with(code: &Code, other: &dyn Fn(VarId) -> Option<VarId>) -> Option<Code> {
    let mut block = Block { statements: Vec::new(), results: vec![code.clone()] };
    let mut complete = true;
    block.visit_vars(&mut |var| match other(*var) {
        Some(other) => *var = other,
        None => complete = false,
    });
    block.results.pop().filter(|_| complete)
}

/// The fields that a statement uses.
fn fields_of(statement: &Statement) -> BTreeSet<FieldId> {
    let mut fields = BTreeSet::new();
    for code in statement.codes() {
        code.visit(&mut |part| match part {
            Code::Layer(field, ..) | Code::Parameter(field) => {
                fields.insert(*field);
            }
            Code::Module(callee, _) => fields.extend(callee.place.map(|place| place.field)),
            _ => {}
        });
    }
    fields
}

fn init_codes(init: &Init) -> Vec<&Code> {
    match init {
        Init::Layer { config, .. } => vec![config],
        Init::Parameter { dims, .. } => dims.iter().collect(),
        Init::Module { args, .. } => args.iter().collect(),
        Init::Sequence { elements, .. } => elements.iter().flatten().collect(),
    }
}

/// The literals in expressions, in order.
fn slots(codes: &[&Code]) -> Vec<SlotId> {
    let mut slots = Vec::new();
    for code in codes {
        code.visit(&mut |part| {
            if let Code::Slot(id) = part {
                slots.push(*id);
            }
        });
    }
    slots
}

fn is_sum(statement: &Statement) -> bool {
    matches!(statement, Statement::Bind { code: Code::Infix(_, "+", _), .. })
}

/// The last word of a key as a name.
pub(super) fn plain_name(key: &str) -> String {
    let words = key.rsplit('.').find(|word| word.chars().any(|c| c.is_ascii_alphabetic()));
    crate::names::snake(words.unwrap_or("part"), "part")
}
