//! Names of structs and functions.

use super::uses;
use crate::code::{Code, Init};
use crate::names::{Names, pascal, snake};
use crate::plan::{Content, Plan};
use kiln_importer::ir::Name;
use std::collections::BTreeSet;

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
pub fn name_structs(plan: &mut Plan<'_>, used: &BTreeSet<usize>, model: &str) -> Names {
    let mut types = Names::with(TAKEN.iter().copied());
    let mut functions = Names::with(["core", "forward", "std"]);
    for path in mentioned_paths(plan) {
        if let Some(name) = uses::imported_name(&path) {
            types.fresh(name);
            functions.fresh(name);
        }
    }
    // Of structs that want one name, that of most modules gets it as it is.
    let mut order: Vec<usize> = (0..plan.structs.len()).rev().filter(|id| used.contains(id)).collect();
    order.sort_by_key(|&id| std::cmp::Reverse(plan.structs[id].members.len()));
    let root = plan.modules[plan.root].struct_id;
    plan.structs[root].name = types.fresh(&pascal(model, "Model"));
    let mut named: Vec<(usize, String)> = Vec::new();
    for id in order.into_iter().filter(|&id| id != root) {
        plan.structs[id].name = if plan.structs[id].function {
            functions.fresh(&snake(&wanted(plan, id), "step"))
        } else {
            let wanted = pascal(&wanted(plan, id), "Module");
            let others: Vec<usize> =
                named.iter().filter(|(_, other)| *other == wanted).map(|(id, _)| *id).collect();
            let told =
                if others.is_empty() { wanted.clone() } else { told_apart(plan, id, &others, &wanted) };
            named.push((id, wanted));
            let name = types.fresh(&told);
            types.fresh(&format!("{name}Record"));
            name
        };
    }
    types
}

/// Every path that the modules mention.
fn mentioned_paths(plan: &Plan<'_>) -> Vec<Name> {
    let mut paths = Vec::new();
    let mut collect = |code: &Code| {
        if let Code::Call(path, _) | Code::Path(path) | Code::Struct(path, _) = code {
            paths.push(path.clone());
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
                paths.push((*ty).into());
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
    // One of a list: `blocks.3` is a block.
    let listed = data.path.ends_with(|c: char| c.is_ascii_digit()) && !data.path.ends_with(word);
    let stem = match stem.strip_suffix('s') {
        Some(single) if listed && single.len() > 2 && !single.ends_with('s') => single,
        _ => stem,
    };
    match members.len() {
        1 => word.to_owned(),
        _ if stem.len() < 3 => "Block".to_owned(),
        _ => stem.to_owned(),
    }
}

/// A name that says how a struct differs from the others of its class: `BlockDownsample`, `BlockWithoutExcitation`,
/// `ShortBlock`.
fn told_apart(plan: &Plan<'_>, id: usize, others: &[usize], wanted: &str) -> String {
    let parts = |id: usize| -> Vec<String> {
        let data = &plan.modules[plan.structs[id].members[0]];
        let classes = data.fields.iter().filter_map(|field| match field.content {
            Content::Module(child) => plan.modules[child].class.rsplit('.').next().map(str::to_owned),
            _ => None,
        });
        let keys = data.fields.iter().flat_map(|field| field.key.split('.')).map(str::to_owned);
        let words = classes.chain(keys);
        words.filter(|word| word.len() > 2 && word.chars().any(|c| c.is_ascii_alphabetic())).collect()
    };
    let fields = |id: usize| plan.modules[plan.structs[id].members[0]].fields.len();
    let (own, theirs) = (parts(id), others.iter().map(|&other| parts(other)).collect::<Vec<_>>());
    let word = |word: &String| pascal(word.trim_end_matches(|c: char| c.is_ascii_digit()), "");
    if let Some(extra) = own.iter().find(|part| theirs.iter().all(|parts| !parts.contains(part))) {
        return format!("{wanted}{}", word(extra));
    }
    let first = theirs.first().into_iter().flatten();
    if let Some(lacking) = first.into_iter().find(|part| !own.contains(part)) {
        return format!("{wanted}Without{}", word(lacking));
    }
    match fields(id).cmp(&fields(others[0])) {
        std::cmp::Ordering::Less => format!("Short{wanted}"),
        std::cmp::Ordering::Greater => format!("Long{wanted}"),
        std::cmp::Ordering::Equal => wanted.to_owned(),
    }
}
