//! Children that are better written out in their parent.

use super::{Content, Field, Plan, Step, sequence};

/// A nameless container of so few layers and operations is written out in its parent.
const MAX_CONTAINER_STEPS: usize = 4;
/// A module that occurs once and has no more steps than this is written out in its parent.
const MAX_INLINED_STEPS: usize = 3;

/// Writes small and container children out in their parent.
pub(super) fn dissolve_children(plan: &mut Plan<'_>, module: usize) {
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
