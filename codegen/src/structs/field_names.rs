//! Names of a struct's fields.

use crate::code::Init;
use crate::ids::{Arena, FieldId, ModuleId};
use crate::names::{Names, snake};
use crate::tree::{Content, Field, is_container_class};
use std::collections::HashMap;

/// A name for every field of a module; none of those in `taken`.
///
/// The shortest that tells the fields apart: the last word of the key, that word with all numbers of the key, the
/// whole key.
pub fn field_names<'c>(
    fields: &Arena<FieldId, Field>,
    inits: &Arena<FieldId, Init>,
    class_of: &dyn Fn(ModuleId) -> &'c str,
    taken: impl IntoIterator<Item = String>,
) -> Arena<FieldId, String> {
    let mut names = Names::with(taken);
    let forms = |(id, field): (FieldId, &Field)| {
        let parts: Vec<&str> = field.key.split('.').collect();
        let stem = || stem(&field.content, inits.get(id), class_of);
        [short_name(&parts, &stem), numbered_name(&parts, &stem), snake(&field.key, "field")]
    };
    let forms: Vec<[String; 3]> = fields.enumerate().map(forms).collect();
    let mut counts: [HashMap<&str, usize>; 3] = Default::default();
    for form in &forms {
        for (count, name) in counts.iter_mut().zip(form) {
            *count.entry(name.as_str()).or_insert(0) += 1;
        }
    }
    let pick = |form: &[String; 3]| {
        let alone = form.iter().zip(&counts).find(|(name, count)| count.get(name.as_str()) == Some(&1));
        alone.map_or(&form[2], |(name, _)| name).clone()
    };
    forms.iter().map(|form| names.fresh(&pick(form))).collect()
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.chars().all(|c| c.is_ascii_digit())
}

/// The last word of a field's key; a number alone gets a word before it.
fn short_name(parts: &[&str], stem: &dyn Fn() -> String) -> String {
    match parts.iter().rev().find(|part| !is_number(part)) {
        Some(word) => snake(word, "field"),
        None => snake(&format!("{}{}", stem(), parts[0]), "field"),
    }
}

/// The last word of a field's key with the key's numbers behind it: `conv1_0` for `1.conv.0`.
fn numbered_name(parts: &[&str], stem: &dyn Fn() -> String) -> String {
    let word = match parts.iter().rev().find(|part| !is_number(part)) {
        Some(word) => snake(word, "field"),
        None => stem(),
    };
    let numbers: Vec<&str> = parts.iter().copied().filter(|part| is_number(part)).collect();
    let separator = if word.ends_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
    snake(&format!("{word}{separator}{}", numbers.join("_")), "field")
}

/// What a numbered field is: `conv`, `linear`, `block`.
fn stem<'c>(content: &Content, init: Option<&Init>, class_of: &dyn Fn(ModuleId) -> &'c str) -> String {
    match (content, init) {
        (Content::Layer(_), Some(Init::Layer { ty, .. })) => {
            let name = snake(ty.rsplit("::").next().unwrap_or(ty), "layer");
            let short =
                name.strip_suffix('d').map(|rest| rest.trim_end_matches(|c: char| c.is_ascii_digit()));
            short.filter(|short| short.len() + 2 == name.len()).unwrap_or(&name).to_owned()
        }
        (Content::Sequence(items), init) => match items.first() {
            Some(layer @ Content::Layer(_)) => {
                format!("{}s", stem(layer, init.and_then(|init| init.items().first()), class_of))
            }
            _ => "blocks".to_owned(),
        },
        (Content::Module(child), _) => {
            let class = class_of(*child);
            if is_container_class(class) { "block".to_owned() } else { snake(class, "block") }
        }
        (Content::Layer(_) | Content::Parameter(_) | Content::Absent, _) => "parameter".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_short_name_is_a_word_of_the_language() {
        let name =
            |key: &str, stem: &str| short_name(&key.split('.').collect::<Vec<_>>(), &|| stem.to_owned());
        assert_eq!(name("64", "i"), "i64_");
        assert_eq!(name("0", "conv"), "conv0");
        assert_eq!(name("1.conv.0", "conv"), "conv");
    }
}
