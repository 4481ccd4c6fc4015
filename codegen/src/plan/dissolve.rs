//! Children that are better written out in their parent.

use super::{Content, Field, Plan, Step, sequence};
use std::collections::{BTreeMap, BTreeSet};

/// A nameless container of so few layers and operations is written out in its parent.
const MAX_CONTAINER_STEPS: usize = 4;
/// A module that occurs once and has no more steps than this is written out in its parent.
const MAX_INLINED_STEPS: usize = 3;

/// Writes small and container children out in their parent, and those that are called in unequal ways.
pub(super) fn dissolve_children(plan: &mut Plan<'_>, module: usize) {
    let mut unequal = unequal_calls(plan, module);
    loop {
        dissolve_once(plan, module, &unequal);
        // What was written out may have children that are called again.
        unequal = unequal_calls(plan, module);
        if unequal.is_empty() {
            break;
        }
    }
}

/// Writes children out, those in `unequal` by their first calls.
fn dissolve_once(plan: &mut Plan<'_>, module: usize, unequal: &BTreeSet<usize>) {
    let alone = plan.modules[module].steps.len() == 1 && module == plan.root;
    let mut prefixes: BTreeMap<usize, String> = BTreeMap::new();
    let mut i = 0;
    while i < plan.modules[module].steps.len() {
        let Step::Call(child) = plan.modules[module].steps[i] else {
            i += 1;
            continue;
        };
        let first = plan.first_call(child);
        if !(alone || unequal.contains(&first) || should_dissolve(plan, module, child)) {
            i += 1;
            continue;
        }
        let (steps, fields) = (plan.modules[child].steps.clone(), plan.modules[child].fields.clone());
        let grown = steps.len();
        plan.modules[module].steps.splice(i..=i, steps);
        i += grown;
        if let Some(prefix) = prefixes.get(&first).cloned() {
            adopt(plan, module, &prefix, fields);
            continue;
        }
        let parent = &mut plan.modules[module];
        let Some(at) = parent.fields.iter().position(|field| field.content == Content::Module(child)) else {
            continue;
        };
        let prefix = parent.fields.remove(at).key;
        // What another module of the kind has, and this one lacks, was needed to share a struct alone.
        let there = fields.into_iter().filter(|field| field.content != Content::Absent);
        let moved = there.map(|field| Field { key: format!("{prefix}.{}", field.key), ..field });
        parent.fields.splice(at..at, moved);
        prefixes.insert(first, prefix);
    }
}

/// Fields of a later call: those that the first call brought are there, and its children are called again.
fn adopt(plan: &mut Plan<'_>, module: usize, prefix: &str, fields: Vec<Field>) {
    for field in fields.into_iter().filter(|field| field.content != Content::Absent) {
        let key = format!("{prefix}.{}", field.key);
        let there = plan.modules[module].fields.iter().find(|other| other.key == key).cloned();
        match (there.map(|there| there.content), &field.content) {
            (Some(there), content) if there == *content => {}
            // Equal or not: calls that turn out to be unequal are written out next.
            (Some(Content::Module(first)), &Content::Module(child)) => {
                plan.modules[child].call_of = Some(first);
            }
            (None, _) => plan.modules[module].fields.push(Field { key, ..field }),
            (Some(_), _) => {
                let taken = |key: &str| plan.modules[module].fields.iter().any(|other| other.key == key);
                let mut n = 2;
                while taken(&format!("{key}_{n}")) {
                    n += 1;
                }
                plan.modules[module].fields.push(Field { key: format!("{key}_{n}"), ..field });
            }
        }
    }
}

/// Whether two calls find the same in their fields.
fn same_fields(plan: &Plan<'_>, a: usize, b: usize) -> bool {
    let (a, b) = (&plan.modules[a].fields, &plan.modules[b].fields);
    let same = |(a, b): (&Field, &Field)| {
        a.key == b.key
            && match (&a.content, &b.content) {
                (&Content::Module(a), &Content::Module(b)) => same_fields(plan, a, b),
                (Content::Sequence(a), Content::Sequence(b)) => {
                    a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| same_fields(plan, a, b))
                }
                (a, b) => a == b,
            }
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Later calls of a module that cannot be calls of one `forward`: their first calls.
fn unequal_calls(plan: &Plan<'_>, module: usize) -> BTreeSet<usize> {
    let unequal = |step: &Step| {
        let Step::Call(child) = step else { return None };
        let first = plan.first_call(*child);
        let equal = plan.modules[first].struct_id == plan.modules[*child].struct_id
            && same_fields(plan, first, *child);
        (!equal).then_some(first)
    };
    plan.modules[module].steps.iter().filter_map(unequal).collect()
}

/// Children that hold nothing are functions, not fields.
pub(super) fn drop_functions(plan: &mut Plan<'_>, module: usize) {
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
