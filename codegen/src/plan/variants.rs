//! Forms of one class that differ by optional parts: a shortcut that is projected or not, a sum with the input or none.
//!
//! A statement is optional when the shorter form goes on with one of its operands instead of its result. All forms
//! then share the fullest one's struct, the fields of optional statements being `Option`s.

use super::{Content, Field, Plan, origin, share};
use crate::code::{Code, Init, Literal, Slot, Statement, Text};
use kiln_importer::ir::{NodeId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// With more optional statements, structs of their own are easier to read.
const MAX_OPTIONAL: usize = 3;

/// Modules of one form.
pub struct Form {
    /// What tells classes apart: the class, or the path without its numbers.
    pub class: String,
    /// The modules.
    pub members: Vec<usize>,
}

/// Where a shorter form is found in a fuller one.
#[derive(Clone, Default)]
struct Alignment {
    /// Statements that the shorter form does not have: their indices, and which operand stands for the result.
    missing: BTreeMap<usize, usize>,
    /// Slots of the fuller form and those of the shorter one.
    slots: BTreeMap<usize, usize>,
    /// Values of the fuller form and those of the shorter one.
    values: BTreeMap<ValueId, ValueId>,
}

/// Joins forms, the fullest first in each list of members. The members' bodies become the fullest one's.
pub fn join(plan: &mut Plan<'_>, forms: Vec<Form>) -> Vec<Vec<usize>> {
    let length = |form: &Form| plan.modules[form.members[0]].body.block.statements.len();
    let mut order: Vec<usize> = (0..forms.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(length(&forms[i])));
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    let mut joined: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, &i) in order.iter().enumerate() {
        if taken.contains(&i) {
            continue;
        }
        let mut members = forms[i].members.clone();
        let mut optional: BTreeMap<usize, usize> = BTreeMap::new();
        let mut shorter: Vec<(usize, Alignment)> = Vec::new();
        for &j in &order[at + 1..] {
            if taken.contains(&j)
                || forms[j].class != forms[i].class
                || !may_vary(plan, members[0], forms[j].members[0])
            {
                continue;
            }
            let Some(found) = align_all(plan, members[0], &forms[j].members, &optional) else { continue };
            optional.extend(found.iter().flat_map(|(_, alignment)| alignment.missing.clone()));
            shorter.extend(found);
            taken.insert(j);
        }
        if !shorter.is_empty() {
            let full = members.clone();
            members.extend(shorter.iter().map(|(member, _)| *member));
            make_optional(plan, &full, &optional, &shorter);
        }
        joined.insert(i, members);
    }
    joined.into_values().collect()
}

/// Whether two modules may be forms of one struct at all.
fn may_vary(plan: &Plan<'_>, full: usize, short: usize) -> bool {
    let (a, b) = (&plan.modules[full], &plan.modules[short]);
    full != plan.root
        && short != plan.root
        && !a.fields.is_empty()
        && !b.fields.is_empty()
        && a.body.symbols == b.body.symbols
        && a.inputs.len() == b.inputs.len()
        && a.outputs.len() == b.outputs.len()
}

/// The alignment of every member of a shorter form, if there is one that goes with the optional statements known.
fn align_all(
    plan: &Plan<'_>,
    full: usize,
    members: &[usize],
    known: &BTreeMap<usize, usize>,
) -> Option<Vec<(usize, Alignment)>> {
    let mut found: Vec<(usize, Alignment)> = Vec::new();
    for &member in members {
        let mut search = Search { plan, full, short: member, known };
        found.push((member, search.run()?));
    }
    let mut all = known.clone();
    all.extend(found.iter().flat_map(|(_, alignment)| alignment.missing.clone()));
    (all.len() <= MAX_OPTIONAL).then_some(found)
}

struct Search<'a, 'g> {
    plan: &'a Plan<'g>,
    full: usize,
    short: usize,
    known: &'a BTreeMap<usize, usize>,
}

/// A position in both bodies, with the numbers of the values so far.
#[derive(Clone)]
struct State {
    numbers: [BTreeMap<ValueId, usize>; 2],
    next: usize,
    alignment: Alignment,
}

impl Search<'_, '_> {
    fn run(&mut self) -> Option<Alignment> {
        let [a, b] = [self.full, self.short].map(|module| &self.plan.modules[module]);
        let mut state = State { numbers: Default::default(), next: 0, alignment: Alignment::default() };
        for (&x, &y) in a.inputs.iter().zip(&b.inputs) {
            if !self.alike(x, y) {
                return None;
            }
            self.define(&mut state, x, y);
        }
        self.fields(&mut state)?;
        let alignment = self.statements(0, 0, state)?;
        let missing = a.fields.iter().filter(|field| !b.fields.iter().any(|other| other.key == field.key));
        // Every missing field has its one optional statement, every such statement at most one.
        let mut explained: BTreeSet<usize> = BTreeSet::new();
        for &i in alignment.missing.keys() {
            let fields = fields_of(self.plan, self.full, &a.body.block.statements[i]);
            let is_missing = |at: &usize| !b.fields.iter().any(|field| field.key == a.fields[*at].key);
            let absent: Vec<usize> = fields.into_iter().filter(is_missing).collect();
            // A number is a place in a list, and longer lists are no form of shorter ones.
            let numbered = |&at: &usize| !a.fields[at].key.contains(|c: char| c.is_ascii_alphabetic());
            if absent.iter().any(numbered) {
                return None;
            }
            if absent.len() > 1 {
                return None;
            }
            explained.extend(absent);
        }
        (missing.count() == explained.len()).then_some(alignment)
    }

    fn alike(&self, x: ValueId, y: ValueId) -> bool {
        let (x, y) = (self.plan.graph.ty(x), self.plan.graph.ty(y));
        x.dtype.kind() == y.dtype.kind() && x.rank() == y.rank()
    }

    fn define(&self, state: &mut State, x: ValueId, y: ValueId) {
        state.numbers[0].insert(x, state.next);
        state.numbers[1].insert(y, state.next);
        state.next += 1;
        state.alignment.values.insert(x, y);
    }

    /// The shorter form's fields must be among the fuller one's, in the same order.
    fn fields(&self, state: &mut State) -> Option<()> {
        let [a, b] = [self.full, self.short].map(|module| &self.plan.modules[module]);
        let mut from = 0;
        for (j, field) in b.fields.iter().enumerate() {
            let i = from + a.fields[from..].iter().position(|other| other.key == field.key)?;
            // What one member's checkpoint is folded into, the other's must be.
            if origin(self.plan, self.full, &a.fields[i]) != origin(self.plan, self.short, field) {
                return None;
            }
            let (x, y) = (a.body.inits.get(i)?, b.body.inits.get(j)?);
            if self.text(self.full, state, 0).init(x) != self.text(self.short, state, 1).init(y) {
                return None;
            }
            pair_slots(&init_codes(x), &init_codes(y), &mut state.alignment.slots)?;
            from = i + 1;
        }
        Some(())
    }

    fn statements(&self, i: usize, j: usize, state: State) -> Option<Alignment> {
        let [a, b] = [self.full, self.short].map(|module| &self.plan.modules[module].body.block);
        let Some(statement) = a.statements.get(i) else {
            return (j == b.statements.len()).then(|| self.results(state)).flatten();
        };
        if let Some(other) = b.statements.get(j)
            && self.text(self.full, &state, 0).statement(statement)
                == self.text(self.short, &state, 1).statement(other)
        {
            let mut state = state.clone();
            pair_slots(&statement.codes(), &other.codes(), &mut state.alignment.slots)?;
            for (x, y) in statement_values(statement).into_iter().zip(statement_values(other)) {
                self.define(&mut state, x, y);
            }
            if let Some(found) = self.statements(i + 1, j + 1, state) {
                return Some(found);
            }
        }
        let Statement::Bind { outputs, code } = statement else { return None };
        let &[output] = outputs.as_slice() else { return None };
        if state.alignment.missing.len() >= MAX_OPTIONAL || !self.may_miss(statement) {
            return None;
        }
        let operands = code.values();
        (0..operands.len()).find_map(|k| {
            let operand = operands[k];
            if !self.alike(operand, output) || self.known.get(&i).is_some_and(|&known| known != k) {
                return None;
            }
            let mut state = state.clone();
            let number = *state.numbers[0].get(&operand)?;
            let value = *state.alignment.values.get(&operand)?;
            state.numbers[0].insert(output, number);
            state.alignment.values.insert(output, value);
            state.alignment.missing.insert(i, k);
            self.statements(i + 1, j, state)
        })
    }

    fn results(&self, state: State) -> Option<Alignment> {
        let [a, b] = [self.full, self.short].map(|module| &self.plan.modules[module].body);
        if a.block.results.len() != b.block.results.len() {
            return None;
        }
        for (x, y) in a.block.results.iter().zip(&b.block.results) {
            if self.text(self.full, &state, 0).code(x) != self.text(self.short, &state, 1).code(y) {
                return None;
            }
        }
        let sources = |body: &crate::code::Body, side: usize| -> Vec<_> {
            let number = |value: &ValueId| state.numbers[side].get(value).copied();
            body.sources.iter().map(|(symbol, value, axis)| (symbol.clone(), number(value), *axis)).collect()
        };
        (sources(a, 0) == sources(b, 1)).then_some(state.alignment)
    }

    fn text<'t>(&'t self, module: usize, state: &State, side: usize) -> Text<'t> {
        share::text(self.plan, module).numbered(state.numbers[side].clone(), state.next)
    }

    /// Whether a statement can be optional: what it holds is used by nothing else.
    fn may_miss(&self, statement: &Statement) -> bool {
        let fields = &self.plan.modules[self.full].fields;
        fields_of(self.plan, self.full, statement).into_iter().all(|at| match &fields[at].content {
            Content::Layer(node) => !is_read_elsewhere(self.plan, *node),
            Content::Module(_) | Content::Parameter(_) => true,
            Content::Sequence(_) | Content::Absent => false,
        })
    }
}

/// The fields that a statement uses.
fn fields_of(plan: &Plan<'_>, module: usize, statement: &Statement) -> BTreeSet<usize> {
    let mut fields = BTreeSet::new();
    for code in statement.codes() {
        code.visit(&mut |part| fields.extend(share::field_index(plan, module, part)));
    }
    fields
}

/// Whether anything but the layer's own calls reads its parameters.
fn is_read_elsewhere(plan: &Plan<'_>, layer: NodeId) -> bool {
    let calls = plan.layers.values().filter(|&&first| first == layer).count();
    let mut held = plan.held.iter().filter(|(_, (holder, _))| *holder == layer);
    held.any(|(value, _)| plan.uses.get(value).copied().unwrap_or(0) > calls)
}

fn init_codes(init: &Init) -> Vec<&Code> {
    match init {
        Init::Layer { config, .. } => vec![config],
        Init::Parameter { dims, .. } => dims.iter().collect(),
        Init::Module { args, .. } => args.iter().collect(),
        Init::Sequence { elements, .. } => elements.iter().flatten().collect(),
    }
}

/// The values that a statement defines, those of its branches too.
fn statement_values(statement: &Statement) -> Vec<ValueId> {
    let mut values = Vec::new();
    if let Statement::If { then, otherwise, .. } = statement {
        values.extend(then.statements.iter().chain(&otherwise.statements).flat_map(statement_values));
    }
    values.extend(statement.outputs());
    values
}

fn pair_slots(a: &[&Code], b: &[&Code], pairs: &mut BTreeMap<usize, usize>) -> Option<()> {
    let slots = |codes: &[&Code]| {
        let mut slots = Vec::new();
        for code in codes {
            code.visit(&mut |part| {
                if let Code::Slot(index) = part {
                    slots.push(*index);
                }
            });
        }
        slots
    };
    let (a, b) = (slots(a), slots(b));
    (a.len() == b.len()).then(|| pairs.extend(a.into_iter().zip(b)))
}

/// Gives all members the fuller form's body, with its optional statements.
fn make_optional(
    plan: &mut Plan<'_>,
    full: &[usize],
    optional: &BTreeMap<usize, usize>,
    shorter: &[(usize, Alignment)],
) {
    let first = full[0];
    let absent_somewhere = |plan: &Plan<'_>, at: usize| {
        let key = &plan.modules[first].fields[at].key;
        shorter.iter().any(|(member, _)| !plan.modules[*member].fields.iter().any(|f| f.key == *key))
    };
    let slots = plan.modules[first].body.slots.len();
    let mut flags: Vec<(usize, Option<usize>, String)> = Vec::new();
    for &at in optional.keys() {
        let statement = &plan.modules[first].body.block.statements[at];
        let field = fields_of(plan, first, statement).into_iter().find(|&at| absent_somewhere(plan, at));
        let name = match field {
            Some(field) => share::plain_name(&plan.modules[first].fields[field].key),
            None if is_sum(statement) => "residual".to_owned(),
            None => "with_step".to_owned(),
        };
        flags.push((at, field, name));
    }
    for (member, alignment) in shorter {
        align_member(plan, first, *member, alignment, &flags);
    }
    for &member in full {
        let data = &mut plan.modules[member];
        for (n, (at, field, name)) in flags.iter().enumerate() {
            let key = field.map(|field| data.fields[field].key.clone());
            data.body.slots.push(Slot {
                value: Some(Literal::Flag(true)),
                hint: Some(name.clone()),
                field: key,
            });
            let statement = &mut data.body.block.statements[*at];
            let Statement::Bind { outputs, code } = statement else { continue };
            let (Some(&output), Some(&operand)) = (outputs.first(), code.values().get(optional[at])) else {
                continue;
            };
            *statement = Statement::Optional {
                output,
                code: code.clone(),
                otherwise: Code::Use(operand),
                flag: slots + n,
                field: *field,
            };
        }
    }
}

fn is_sum(statement: &Statement) -> bool {
    matches!(statement, Statement::Bind { code: Code::Infix(_, "+", _), .. })
}

/// Fields, slots and values of a shorter form, in the order of the fuller one's.
fn align_member(
    plan: &mut Plan<'_>,
    first: usize,
    member: usize,
    alignment: &Alignment,
    flags: &[(usize, Option<usize>, String)],
) {
    let full = plan.modules[first].clone();
    let data = &mut plan.modules[member];
    let own = std::mem::take(&mut data.body.slots);
    data.body.slots = full
        .body
        .slots
        .iter()
        .enumerate()
        .map(|(i, slot)| {
            let value = alignment.slots.get(&i).and_then(|&j| own.get(j)).and_then(|slot| slot.value.clone());
            Slot { value, ..slot.clone() }
        })
        .collect();
    data.body.slots.extend(flags.iter().map(|(at, field, name)| Slot {
        value: Some(Literal::Flag(!alignment.missing.contains_key(at))),
        hint: Some(name.clone()),
        field: field.map(|field| full.fields[field].key.clone()),
    }));
    let own = std::mem::take(&mut data.fields);
    data.fields = full
        .fields
        .iter()
        .map(|field| {
            let there = own.iter().find(|other| other.key == field.key).cloned();
            there.unwrap_or_else(|| Field { key: field.key.clone(), content: Content::Absent })
        })
        .collect();
    data.body.inits.clone_from(&full.body.inits);
    data.body.values = Some(alignment.values.clone());
}
