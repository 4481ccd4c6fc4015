//! Names of structs and fields, and what their documentation says.

use super::content::{Content, Note, Part, by_key};
use super::types::{Field, Type, Types};
use kiln_codegen::names::{self, Names, TypeNames};
use std::collections::{BTreeMap, BTreeSet};

/// How many places or kinds a text names.
const SHOWN: usize = 4;

/// A struct of the skeleton, as its text has it.
pub(super) struct Named {
    pub(super) name: String,
    /// The place of each of its fields' identifiers and documentation is the field's.
    pub(super) fields: Vec<NamedField>,
    /// Where modules of it are.
    pub(super) places: String,
}

/// A field, as its text has it.
pub(super) struct NamedField {
    pub(super) name: String,
    /// What the field's documentation says behind the key.
    pub(super) doc: String,
}

/// The structs by number, and the keys of ambiguous layers with hints.
pub(super) struct Naming {
    pub(super) structs: BTreeMap<usize, Named>,
    pub(super) ambiguous: Vec<(String, String)>,
}

/// What is seen of a struct while the contents are walked.
#[derive(Default)]
struct Seen {
    /// Parts of the first path to it.
    path: Vec<String>,
    /// All paths, with `*` for the numbers of lists.
    places: BTreeSet<String>,
    /// The first of them.
    shown: Vec<String>,
    count: usize,
    /// By field.
    fields: BTreeMap<String, SeenField>,
}

/// What is seen of a field.
#[derive(Default)]
struct SeenField {
    summaries: BTreeSet<String>,
    /// The notes of each module that has some, with its path.
    notes: Vec<(String, Vec<Note>)>,
    count: usize,
}

/// Names everything below the root.
pub(super) fn name(types: &Types, root: usize, parts: &[Part], model_name: &str) -> Naming {
    let mut seen = BTreeMap::new();
    Walk { types, seen: &mut seen }.module(root, parts, &[]);
    let mut taken = TypeNames::default();
    let mut numbers = BTreeMap::new();
    let mut naming = Naming { structs: BTreeMap::new(), ambiguous: Vec::new() };
    for id in types.reachable(root) {
        let (Some(fields), Some(seen)) = (types.structs.get(id), seen.get(&id)) else { continue };
        let name =
            if id == root { model_name.to_owned() } else { free_name(&seen.path, &taken, &mut numbers) };
        let name = taken.fresh(&name);
        let mut own = Names::default();
        let mut named = Vec::new();
        for field in fields {
            let name = own.fresh(&names::snake(&field.key, "layer"));
            let doc = match seen.fields.get(&field.key) {
                Some(seen) => describe(seen, &mut naming.ambiguous),
                None => String::new(),
            };
            named.push(NamedField { name, doc });
        }
        naming.structs.insert(id, Named { name, fields: named, places: places(seen) });
    }
    naming
}

struct Walk<'a> {
    types: &'a Types,
    seen: &'a mut BTreeMap<usize, Seen>,
}

impl Walk<'_> {
    fn module(&mut self, id: usize, parts: &[Part], path: &[String]) {
        let place = path.join(".");
        let seen = self.seen.entry(id).or_default();
        if seen.count == 0 {
            seen.path = path.to_vec();
        }
        seen.count += 1;
        if seen.places.insert(place.clone()) && seen.shown.len() < SHOWN {
            seen.shown.push(place);
        }
        let fields: &[Field] = self.types.structs.get(id).map(Vec::as_slice).unwrap_or_default();
        let parts = by_key(parts);
        for field in fields {
            let Some(part) = parts.get(field.key.as_str()) else { continue };
            let below = [path, std::slice::from_ref(&field.key)].concat();
            let Some(seen) = self.seen.get_mut(&id) else { continue };
            let seen = seen.fields.entry(field.key.clone()).or_default();
            seen.count += 1;
            seen.summaries.insert(summary(&part.content));
            if !part.notes.is_empty() {
                seen.notes.push((below.join("."), part.notes.clone()));
            }
            self.content(&field.ty, &part.content, &below);
        }
    }

    fn content(&mut self, ty: &Type, content: &Content, path: &[String]) {
        match (ty, content) {
            (Type::Module(id), Content::Module(parts)) => self.module(*id, parts, path),
            (Type::List(ty), Content::List(items)) => {
                let below = [path, &["*".to_owned()]].concat();
                for item in items {
                    self.content(ty, item, &below);
                }
            }
            _ => {}
        }
    }
}

/// The sizes of what a field holds, if it is no struct.
fn summary(content: &Content) -> String {
    match content {
        Content::Layer(layer) => layer.summary.clone(),
        Content::Param(tensor) => format!("`{:?}`", tensor.shape()),
        Content::List(items) => {
            let all: BTreeSet<String> = items.iter().map(summary).collect();
            match (all.len(), all.into_iter().next()) {
                (1, Some(summary)) if !summary.is_empty() => match items.len() {
                    1 => summary,
                    count => format!("{count} of {summary}"),
                },
                _ => String::new(),
            }
        }
        Content::Module(_) => String::new(),
    }
}

/// What a field's documentation says: its sizes where all modules agree, and what holds for them.
fn describe(seen: &SeenField, ambiguous: &mut Vec<(String, String)>) -> String {
    let mut text = match seen.summaries.first() {
        Some(summary) if seen.summaries.len() == 1 && !summary.is_empty() => format!(": {summary}"),
        _ => String::new(),
    };
    text.push('.');
    let Some((path, notes)) = seen.notes.first() else { return text };
    let everywhere = |note: &Note| {
        seen.notes.len() == seen.count && seen.notes.iter().all(|(_, notes)| notes.contains(note))
    };
    for note in notes {
        match note {
            Note::Said(said) if everywhere(note) => {
                let mut letters = said.chars();
                let first = letters.next().map(|c| c.to_ascii_uppercase());
                text.push(' ');
                text.extend(first.into_iter().chain(letters));
                text.push('.');
            }
            Note::Said(said) => text.push_str(&format!(" At `{}`, {said}.", names::comment(path))),
            Note::MayBe { kinds, lists } => {
                let paths = seen.notes.iter().filter(|(_, notes)| notes.contains(note)).map(|(path, _)| path);
                let pattern = format!("{}{}", common_pattern(path, paths), ".*".repeat(*lists));
                let hint = hint(&pattern, kinds);
                text.push_str(&format!(" May be {hint}."));
                ambiguous.push((pattern, format!("may be {hint}")));
            }
        }
    }
    text
}

/// A pattern for all paths that have as many parts as the first.
fn common_pattern<'a>(first: &str, paths: impl Iterator<Item = &'a String>) -> String {
    let mut pattern: Vec<&str> = first.split('.').collect();
    for path in paths {
        let parts: Vec<&str> = path.split('.').collect();
        if parts.len() == pattern.len() {
            for (known, part) in pattern.iter_mut().zip(parts) {
                *known = if *known == part { part } else { "*" };
            }
        }
    }
    pattern.join(".")
}

/// What a layer may be, and how to say so.
fn hint(pattern: &str, kinds: &[&'static str]) -> String {
    let first = kinds.first().copied().unwrap_or_default();
    let plain = pattern.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    let said = format!("{}={first}", names::comment(pattern));
    // For a shell, which takes nothing between these quotes for a command; a quote in the key stands outside of them.
    let said = if plain { said } else { format!("'{}'", said.replace('\'', r"'\''")) };
    format!("{} (`--as {said}`)", kinds.join(" or "))
}

/// Where modules of a struct are.
fn places(seen: &Seen) -> String {
    let shown: Vec<String> = seen.shown.iter().map(|place| format!("`{}`", names::comment(place))).collect();
    match seen.places.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A name for the struct at a path, from as few of the path's parts as needed. `numbers` are the last ones behind names that many
/// structs would have.
fn free_name(path: &[String], taken: &TypeNames, numbers: &mut BTreeMap<String, usize>) -> String {
    let is_name = |part: &&String| part.bytes().any(|b| !b.is_ascii_digit() && b != b'*');
    let Some(last) = path.last() else { return "Layer".to_owned() };
    let mut above: Vec<&String> = path.iter().rev().skip(1).filter(is_name).collect();
    above.reverse();
    let base = match last.as_str() {
        // Items have the name of their list, without what numbers it among other lists.
        "*" => match above.pop() {
            Some(list) => {
                let name = singular(list.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_'));
                if name.len() < 2 { "Layer".to_owned() } else { names::pascal(name, "Layer") }
            }
            None => "Layer".to_owned(),
        },
        number if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => {
            let list = above.pop().map_or_else(|| "Layer".to_owned(), |list| names::pascal(list, "Layer"));
            let joint = if list.ends_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
            format!("{list}{joint}{number}")
        }
        name => names::pascal(name, "Layer"),
    };
    let free = |name: &String| taken.is_free(name);
    let mut name = base.clone();
    while !free(&name) {
        match above.pop() {
            Some(part) => name = format!("{}{name}", names::pascal(part, "Layer")),
            None => break,
        }
    }
    match free(&name) && name.len() <= 48 {
        true => name,
        false if free(&format!("{base}Module")) => format!("{base}Module"),
        false => {
            let number = numbers.entry(base.clone()).or_insert(1);
            loop {
                *number += 1;
                let name = format!("{base}{number}");
                if free(&name) {
                    return name;
                }
            }
        }
    }
}

/// `layers` without its `s`.
fn singular(name: &str) -> &str {
    match name.strip_suffix('s') {
        Some(stem) if stem.len() > 2 && !stem.ends_with(['s', 'u', 'i']) => stem,
        _ => name,
    }
}
