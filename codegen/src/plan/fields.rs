//! Names of a struct's fields.

use super::{Content, Plan};
use crate::code::Init;
use crate::names::{Names, snake};

/// A name for every field of a module, in order; none of those in `taken`.
///
/// The shortest that tells the fields apart: the last word of the key, that word with all numbers of the key, the
/// whole key.
pub fn field_names(plan: &Plan<'_>, module: usize, taken: &[String]) -> Vec<String> {
    let mut names = Names::with(taken.iter().cloned());
    let count = plan.modules[module].fields.len();
    let all = |form: &dyn Fn(usize) -> String| -> Vec<String> { (0..count).map(form).collect() };
    let forms = [
        all(&|i| short_name(plan, module, i)),
        all(&|i| numbered_name(plan, module, i)),
        all(&|i| snake(&plan.modules[module].fields[i].key, "field")),
    ];
    let alone = |form: &[String], i: usize| form.iter().filter(|name| **name == form[i]).count() == 1;
    let pick = |i: usize| forms.iter().find(|form| alone(form, i)).unwrap_or(&forms[2])[i].clone();
    (0..count).map(|i| names.fresh(&pick(i))).collect()
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.chars().all(|c| c.is_ascii_digit())
}

/// The last word of a field's key; a number alone gets a word before it.
fn short_name(plan: &Plan<'_>, module: usize, index: usize) -> String {
    let parts: Vec<&str> = plan.modules[module].fields[index].key.split('.').collect();
    match parts.iter().rev().find(|part| !is_number(part)) {
        Some(word) => snake(word, "field"),
        None => format!("{}{}", stem(plan, module, index), parts[0]),
    }
}

/// The last word of a field's key with the key's numbers behind it: `conv1_0` for `1.conv.0`.
fn numbered_name(plan: &Plan<'_>, module: usize, index: usize) -> String {
    let parts: Vec<&str> = plan.modules[module].fields[index].key.split('.').collect();
    let word = match parts.iter().rev().find(|part| !is_number(part)) {
        Some(word) => snake(word, "field"),
        None => stem(plan, module, index),
    };
    let numbers: Vec<&str> = parts.into_iter().filter(|part| is_number(part)).collect();
    let separator = if word.ends_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
    snake(&format!("{word}{separator}{}", numbers.join("_")), "field")
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
        (Content::Sequence(_), _) => "blocks".to_owned(),
        (Content::Module(child), _) => {
            let class = &plan.modules[*child].class;
            let class = class.rsplit('.').next().unwrap_or(class);
            if super::is_container_class(class) { "block".to_owned() } else { snake(class, "block") }
        }
        _ => "parameter".to_owned(),
    }
}
