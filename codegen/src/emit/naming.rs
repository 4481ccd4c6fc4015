//! Names of structs and functions.

use super::uses;
use crate::code::{Code, Init};
use crate::names::{Names, pascal, snake};
use crate::plan::Plan;

/// Names that generated source uses for other things.
const TAKEN: &[&str] = &[
    "B",
    "Backend",
    "Bool",
    "Box",
    "Clone",
    "DType",
    "Debug",
    "Default",
    "Err",
    "Float",
    "InputDim",
    "InputError",
    "InputSpec",
    "Int",
    "Module",
    "None",
    "Ok",
    "Option",
    "Param",
    "Path",
    "Result",
    "Self",
    "Send",
    "Some",
    "String",
    "Sync",
    "Tensor",
    "Vec",
];

/// Decides the name of every struct, parents first.
pub fn name_structs(plan: &mut Plan<'_>, model: &str) -> Names {
    let mut types = Names::with(TAKEN.iter().copied());
    let mut functions = Names::with(["core", "forward", "std"]);
    for path in mentioned_paths(plan) {
        if let Some(name) = uses::imported_name(path) {
            types.fresh(name);
            functions.fresh(name);
        }
    }
    // Of structs that want one name, the smallest gets it as it is.
    let mut order: Vec<usize> = (0..plan.structs.len()).rev().collect();
    order.sort_by_key(|&id| plan.modules[plan.structs[id].members[0]].fields.len());
    let root = plan.modules[plan.root].struct_id;
    plan.structs[root].name = types.fresh(&pascal(model, "Model"));
    for id in order.into_iter().filter(|&id| id != root) {
        plan.structs[id].name = if plan.structs[id].function {
            functions.fresh(&snake(&wanted(plan, id), "step"))
        } else {
            let wanted = pascal(&wanted(plan, id), "Module");
            let suffix = if types.contains(&wanted) { distinction(plan, id, &wanted) } else { String::new() };
            let name = types.fresh(&format!("{wanted}{suffix}"));
            types.fresh(&format!("{name}Record"));
            name
        };
    }
    types
}

/// Every path that the modules mention.
fn mentioned_paths(plan: &Plan<'_>) -> Vec<&'static str> {
    let mut paths = Vec::new();
    let mut collect = |code: &Code| {
        if let Code::Call(path, _) | Code::Path(path) | Code::Struct(path, _) = code {
            paths.push(*path);
        }
    };
    for module in &plan.modules {
        for init in &module.body.inits {
            if let Init::Layer { config, .. } = init {
                config.visit(&mut collect);
            }
        }
        for code in module.body.block.codes() {
            code.visit(&mut collect);
        }
    }
    for module in &plan.modules {
        for init in &module.body.inits {
            if let Init::Layer { ty, .. } = init {
                paths.push(ty);
            }
        }
    }
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// What a struct would be called if nothing else were.
fn wanted(plan: &Plan<'_>, id: usize) -> String {
    let members = &plan.structs[id].members;
    let data = &plan.modules[members[0]];
    let class = data.class.rsplit('.').next().unwrap_or(&data.class);
    if !crate::plan::is_container_class(class) {
        return class.to_owned();
    }
    let words = data.path.rsplit('.');
    let word =
        words.into_iter().find(|word| word.chars().any(|c| c.is_ascii_alphabetic())).unwrap_or("Block");
    let stem = word.trim_end_matches(|c: char| c.is_ascii_digit());
    match members.len() {
        1 => word.to_owned(),
        _ if stem.len() < 3 => "Block".to_owned(),
        _ => stem.to_owned(),
    }
}

/// What a struct has that the others of its name do not: `Downsample`.
fn distinction(plan: &Plan<'_>, id: usize, wanted: &str) -> String {
    let keys = |id: usize| -> Vec<&str> {
        plan.modules[plan.structs[id].members[0]].fields.iter().map(|field| field.key.as_str()).collect()
    };
    let named: Vec<usize> =
        (0..plan.structs.len()).filter(|&other| plan.structs[other].name.starts_with(wanted)).collect();
    let extra = keys(id).into_iter().find(|key| named.iter().all(|&other| !keys(other).contains(key)));
    let word =
        extra.and_then(|key| key.split('.').find(|part| part.chars().any(|c| c.is_ascii_alphabetic())));
    word.map(|word| pascal(word.trim_end_matches(|c: char| c.is_ascii_digit()), "")).unwrap_or_default()
}
