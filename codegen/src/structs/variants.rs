//! Modules of one class that differ by optional parts: a shortcut that is projected or not, a sum with the input or none.
//!
//! A statement is optional when the shorter code goes on with one of its operands instead of its result. All modules
//! then share the struct of the fullest code, the fields of optional statements being `Option`s.

mod search;

use super::{Draft, Sharing};
use crate::code::{Code, Literal, Slot, Statement};
use crate::ids::{Arena, FieldId, Id, ModuleId, SlotId, VarId};
use crate::tree::{Content, Field, ModuleTree};
use crate::{CodegenError, Defect};
use kiln_importer::ir::{NodeId, Symbol, ValueId};
use search::Search;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// With more optional statements, structs of their own are easier to read.
const MAX_OPTIONAL: usize = 3;
/// Of more groups in one family, each has a struct of its own: comparing all with all would take for ever.
const MAX_GROUPS: usize = 48;
/// So many statements are compared to find out where one code is within another, and for each node of the model in all.
const MAX_COMPARISONS: usize = 5_000;
const MAX_COMPARISONS_PER_NODE: usize = 16;

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
        let mut comparisons = self.comparisons;
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
                    let Some(found) = self.align(full, &groups[j].members, &optional, &mut comparisons)
                    else {
                        continue;
                    };
                    optional.extend(found.missing.clone());
                    shorter.push((j, found));
                    taken.insert(j);
                }
                if !shorter.is_empty() {
                    joins.push(Join { full: i, optional, shorter });
                }
            }
        }
        self.comparisons = comparisons;
        let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
        for Join { full: i, optional, shorter } in joins {
            let Some(full) = groups[i].take() else { continue };
            let shorter: Vec<(Group, Alignment)> =
                shorter.into_iter().filter_map(|(j, found)| Some((groups[j].take()?, found))).collect();
            groups[i] = Some(self.make_optional(full, &optional, shorter)?);
        }
        Ok(groups.into_iter().flatten().collect())
    }

    /// Where the code of equal modules is found in that of a fuller one, if that goes with the optional statements known and
    /// few enough statements are compared.
    fn align(
        &self,
        full: ModuleId,
        members: &[ModuleId],
        known: &BTreeMap<usize, usize>,
        comparisons: &mut usize,
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
        let found = Search::new(self, full, short, known).run(comparisons)?;
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
        let contents: HashMap<&str, &Content> =
            data.fields.iter().map(|field| (field.key.as_str(), &field.content)).collect();
        let fields = fuller.fields.iter().map(|field| {
            let content =
                contents.get(field.key.as_str()).map_or(Content::Absent, |content| (*content).clone());
            Field { key: field.key.clone(), content }
        });
        data.fields = fields.collect();
        data.origins = self.origins(member, &data.fields);
        data.body.slots = slots;
        data.body.vars = vars;
        data.places = self.places(&data);
        self.modules[member] = data;
        Ok(())
    }
}

/// Layers whose parameters something besides their calls reads.
pub(super) fn layers_read_elsewhere(tree: &ModuleTree<'_>) -> HashSet<NodeId> {
    let mut calls: HashMap<NodeId, usize> = HashMap::new();
    for (_, layer) in tree.layers().calls() {
        *calls.entry(layer).or_insert(0) += 1;
    }
    let is_read = |&(value, layer): &(ValueId, NodeId)| {
        tree.nodes().uses(value) > calls.get(&layer).copied().unwrap_or(0)
    };
    tree.layers().held().filter(is_read).map(|(_, layer)| layer).collect()
}

/// How many statements may be compared for a whole model.
pub(super) fn comparisons(tree: &ModuleTree<'_>) -> usize {
    MAX_COMPARISONS + MAX_COMPARISONS_PER_NODE * tree.nodes().all.len()
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
        symbols.extend(statement.symbols());
    }
    symbols
}

/// The fields that a statement uses.
fn fields_of(statement: &Statement) -> BTreeSet<FieldId> {
    let mut fields = BTreeSet::new();
    for code in statement.codes() {
        code.visit(&mut |part| match part {
            Code::Parameter(field) => {
                fields.insert(*field);
            }
            part => fields.extend(part.callee().map(|place| place.field)),
        });
    }
    fields
}

fn is_sum(statement: &Statement) -> bool {
    matches!(statement, Statement::Bind { code: Code::Infix(_, "+", _), .. })
}

/// The last word of a key as a name.
pub(super) fn plain_name(key: &str) -> String {
    let words = key.rsplit('.').find(|word| word.chars().any(|c| c.is_ascii_alphabetic()));
    crate::names::snake(words.unwrap_or("part"), "part")
}
