//! Children that make a `Vec`, and calls of them that make a loop.

use super::{Content, Field, Plan, Step, statements};
use std::collections::BTreeMap;

/// Splits a key like `layer.11` into the container's key and the number.
fn numbered(key: &str) -> Option<(&str, usize)> {
    let (stem, number) = key.rsplit_once('.').unwrap_or(("", key));
    let plain = number == "0" || !number.starts_with('0');
    (plain && !number.is_empty() && number.len() < 7)
        .then(|| number.parse().ok())
        .flatten()
        .map(|n| (stem, n))
}

/// Children of one struct with the keys `stem.0`, `stem.1`, …, by stem, each list in order of the keys.
fn runs(plan: &Plan<'_>, module: usize) -> Vec<(String, Vec<usize>)> {
    let mut by_stem: BTreeMap<&str, BTreeMap<usize, usize>> = BTreeMap::new();
    let mut spoilt: Vec<&str> = Vec::new();
    for field in &plan.modules[module].fields {
        let Some((stem, n)) = numbered(&field.key) else { continue };
        match field.content {
            Content::Module(child) if !plan.structs[plan.modules[child].struct_id].function => {
                by_stem.entry(stem).or_default().insert(n, child);
            }
            _ => spoilt.push(stem),
        }
    }
    by_stem
        .into_iter()
        .filter(|(stem, children)| {
            let first = children.first_key_value().map(|(_, &child)| plan.modules[child].struct_id);
            children.len() >= 2
                && !spoilt.contains(stem)
                && children.keys().copied().eq(0..children.len())
                && children.values().all(|&child| Some(plan.modules[child].struct_id) == first)
        })
        .map(|(stem, children)| (stem.to_owned(), children.into_values().collect()))
        .collect()
}

/// Whether a module does nothing but call its numbered children, so that its parent can hold them in a `Vec`.
pub fn is_container(plan: &Plan<'_>, module: usize) -> bool {
    let data = &plan.modules[module];
    let runs = runs(plan, module);
    matches!(runs.as_slice(), [(stem, children)] if stem.is_empty() && children.len() == data.fields.len())
        && data.steps.iter().all(|step| matches!(step, Step::Call(_)))
}

/// Puts runs of children into `Vec`s and their calls into loops.
pub fn collect(plan: &mut Plan<'_>, module: usize) {
    for (stem, children) in runs(plan, module) {
        if stem.is_empty() {
            // The keys of a `Vec` begin with its field's name; this one has none.
            continue;
        }
        let fields = &mut plan.modules[module].fields;
        let is_member =
            |field: &Field| matches!(field.content, Content::Module(child) if children.contains(&child));
        let at = fields.iter().position(is_member).unwrap_or(0);
        fields.retain(|field| !is_member(field));
        let field = Field { key: stem, content: Content::Sequence(children.clone()) };
        fields.insert(at.min(fields.len()), field);
        let next = |a: usize, b: usize| {
            let position = |module: usize| children.iter().position(|&other| other == module);
            position(a).zip(position(b)).is_some_and(|(a, b)| a + 1 == b)
        };
        collect_loops(plan, module, &next);
    }
    // A module that is called again and again.
    collect_loops(plan, module, &|a, b| a == b);
}

/// Joins calls in turn; `next` says of two modules, by their first calls, whether the second can follow.
fn collect_loops(plan: &mut Plan<'_>, module: usize, next: &dyn Fn(usize, usize) -> bool) {
    let steps = plan.modules[module].steps.clone();
    let mut result: Vec<Step> = Vec::new();
    for step in steps {
        if let Step::Call(child) = step
            && let Some(joined) = result.last().and_then(|last| join(plan, module, last, child, next))
        {
            result.pop();
            result.push(joined);
        } else {
            result.push(step);
        }
    }
    plan.modules[module].steps = result;
}

/// The loop that a call and the one after it make, if they do.
fn join(
    plan: &Plan<'_>,
    module: usize,
    last: &Step,
    child: usize,
    next: &dyn Fn(usize, usize) -> bool,
) -> Option<Step> {
    let (before, known) = match last {
        Step::Call(before) => (vec![*before], None),
        Step::Loop { modules, carried } => (modules.clone(), Some(*carried)),
        Step::Node(_) | Step::Branches { .. } => return None,
    };
    let previous = *before.last()?;
    let first = |module: usize| plan.first_call(module);
    let alike = before.len() < 2 || next(first(before[0]), first(before[1]));
    let holds = |module: usize| !plan.structs[plan.modules[module].struct_id].function;
    if !alike || !holds(child) || !next(first(previous), first(child)) {
        return None;
    }
    let (a, b) = (&plan.modules[previous], &plan.modules[child]);
    let (&[result], &[_]) = (a.outputs.as_slice(), b.outputs.as_slice()) else { return None };
    let carried = b.inputs.iter().position(|&input| input == result)?;
    let others_equal = a.inputs.len() == b.inputs.len()
        && a.inputs.iter().zip(&b.inputs).enumerate().all(|(i, (x, y))| i == carried || x == y);
    let same_symbols = a.body.symbols == b.body.symbols;
    let same_numbers = statements::passed(plan, previous) == statements::passed(plan, child);
    let used_once = plan.uses_in(module, result) == 1;
    if !others_equal || !same_symbols || !same_numbers || !used_once {
        return None;
    }
    if known.is_some_and(|known| known != carried) {
        return None;
    }
    let mut modules = before;
    modules.push(child);
    Some(Step::Loop { modules, carried })
}
