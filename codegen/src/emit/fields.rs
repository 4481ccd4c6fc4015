//! Names of a struct's fields.

use crate::code::Init;
use crate::names::{Names, snake};
use crate::plan::{Content, Plan};

/// A name for every field of a module, in order.
pub fn field_names(plan: &Plan<'_>, module: usize) -> Vec<String> {
    let data = &plan.modules[module];
    let parameters = &plan.structs[data.struct_id].parameters;
    let mut names = Names::with(parameters.iter().filter(|p| p.kept).map(|p| p.name.as_str()));
    let short: Vec<String> = (0..data.fields.len()).map(|i| short_name(plan, module, i)).collect();
    (0..data.fields.len())
        .map(|i| {
            let alone = short.iter().filter(|name| **name == short[i]).count() == 1;
            let wanted = if alone { short[i].clone() } else { snake(&data.fields[i].key, "field") };
            names.fresh(&wanted)
        })
        .collect()
}

/// The last word of a field's key; a number gets a word before it.
fn short_name(plan: &Plan<'_>, module: usize, index: usize) -> String {
    let field = &plan.modules[module].fields[index];
    let parts: Vec<&str> = field.key.split('.').collect();
    let last = parts.last().copied().unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    if !is_number(last) {
        return snake(last, "field");
    }
    match parts.iter().rev().find(|part| !is_number(part)) {
        Some(word) => snake(word, "field"),
        None => format!("{}{last}", stem(plan, module, index)),
    }
}

/// What a numbered field is: `conv`, `linear`, `block`.
fn stem(plan: &Plan<'_>, module: usize, index: usize) -> String {
    let data = &plan.modules[module];
    match (&data.fields[index].content, data.body.inits.get(index)) {
        (Content::Layer(_), Some(Init::Layer { ty, .. })) => {
            let name = snake(ty.rsplit("::").next().unwrap_or(ty), "layer");
            let short =
                name.strip_suffix('d').map(|rest| rest.trim_end_matches(|c: char| c.is_ascii_digit()));
            short.filter(|short| short.len() + 2 == name.len()).unwrap_or(&name).to_owned()
        }
        (Content::Module(child), _) => {
            let class = &plan.modules[*child].class;
            let class = class.rsplit('.').next().unwrap_or(class);
            if class.is_empty() || class == "Sequential" { "block".to_owned() } else { snake(class, "block") }
        }
        _ => "parameter".to_owned(),
    }
}
