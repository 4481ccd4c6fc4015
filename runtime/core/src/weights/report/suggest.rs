//! What a user may do about a report: new names for keys, and how weights have to be saved.

use super::{ImportReport, LONGEST_COMPARED, MissingWeight};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::{format, vec::Vec};
use kiln_types::is_invisible;

/// Most patterns that a report suggests.
const SUGGESTED: usize = 5;

/// How many parameters and keys are compared.
const COMPARED: usize = 500;

/// Patterns and replacements that give keys the names of missing parameters, the one that helps most first.
pub(super) fn suggestions(report: &ImportReport) -> Vec<(String, String)> {
    let is_short = |key: &str| key.len() <= LONGEST_COMPARED;
    let missing = report.missing.iter().filter(|missing| is_short(&missing.key)).take(COMPARED);
    let missing: Vec<&MissingWeight> = missing.collect();
    let unused = || report.unused.iter().filter(|unused| is_short(&unused.0)).take(COMPARED);
    // By a change of beginnings, the parameters that it would find: with the key in the file, and twice where the shape
    // fits too.
    let mut changes: BTreeMap<Change, BTreeMap<&str, (usize, &str)>> = BTreeMap::new();
    for wanted in &missing {
        for (key, shape) in unused() {
            let Some(change) = Change::between(key, &wanted.key) else { continue };
            let fits = wanted.shape.as_ref().is_none_or(|wanted| wanted.is_like(shape));
            let votes = changes.entry(change).or_default().entry(&wanted.key).or_insert((0, key));
            votes.0 = votes.0.max(if fits { 2 } else { 1 });
        }
    }
    let (mut found, mut used) = (BTreeSet::new(), BTreeSet::new());
    let (mut suggestions, mut chosen): (Vec<_>, Vec<&[String]>) = Default::default();
    while suggestions.len() < SUGGESTED {
        let left = |entry: &(&&str, &(usize, &str))| !found.contains(*entry.0) && !used.contains(entry.1.1);
        let helps = |keys: &BTreeMap<&str, (usize, &str)>| -> usize {
            keys.iter().filter(left).map(|(_, (votes, _))| votes).sum()
        };
        let scored = changes.iter().map(|(change, keys)| ((helps(keys), change.likeness()), change, keys));
        // What an earlier pattern renamed, a later one finds no more.
        let renamed = |change: &Change| chosen.iter().any(|from: &&[String]| change.from.starts_with(from));
        let scored = scored.filter(|((helps, _), change, _)| *helps > 0 && !renamed(change));
        // The first of the best is the simplest.
        let Some((_, change, keys)) = scored.rev().max_by_key(|(score, ..)| *score) else { break };
        // Names alone are a reason only where there is no better one.
        if !suggestions.is_empty() && keys.values().all(|(votes, _)| *votes < 2) {
            break;
        }
        suggestions.push(change.rule());
        chosen.push(&change.from);
        for (wanted, (_, key)) in keys {
            found.insert(*wanted);
            used.insert(*key);
        }
    }
    suggestions
}

/// Another beginning of a key: parts between dots, with [`NUMBER`] for numbers that are the same in both.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    from: Vec<String>,
    to: Vec<String>,
}

/// Stands for any number.
const NUMBER: &str = "#";

impl Change {
    /// What stands before the longest common end of two keys, if they end alike and differ.
    fn between(key: &str, wanted: &str) -> Option<Self> {
        let (mut from, mut to): (Vec<&str>, Vec<&str>) =
            (key.split('.').collect(), wanted.split('.').collect());
        let mut alike = false;
        while !from.is_empty() && from.last() == to.last() {
            from.pop();
            to.pop();
            alike = true;
        }
        if !alike || from == to {
            return None;
        }
        let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty();
        let numbers =
            |parts: &[&str]| parts.iter().copied().filter(is_number).map(str::to_string).collect::<Vec<_>>();
        let same = numbers(&from) == numbers(&to);
        let part = |part: &str| if same && is_number(&part) { NUMBER.to_string() } else { part.to_string() };
        Some(Self { from: from.into_iter().map(part).collect(), to: to.into_iter().map(part).collect() })
    }

    /// How many letters the names that differ first have in common.
    fn likeness(&self) -> usize {
        let names = self.from.iter().zip(&self.to).find(|(from, to)| from != to);
        names.map_or(0, |(from, to)| from.bytes().zip(to.bytes()).take_while(|(a, b)| a == b).count())
    }

    /// The pattern and its replacement.
    fn rule(&self) -> (String, String) {
        let mut pattern = String::from("^");
        for part in &self.from {
            pattern.push_str(&if part == NUMBER { "(\\d+)".to_string() } else { escaped(part) });
            pattern.push_str("\\.");
        }
        pattern.push_str("(.*)");
        let mut replacement = String::new();
        let mut group = 1;
        for part in &self.to {
            if part == NUMBER {
                replacement.push_str(&format!("${{{group}}}."));
                group += 1;
            } else {
                replacement.push_str(&format!("{}.", part.replace('$', "$$")));
            }
        }
        replacement.push_str(&format!("${{{group}}}"));
        (pattern, replacement)
    }
}

/// A part of a key as a pattern that matches it alone.
fn escaped(part: &str) -> String {
    let mut pattern = String::with_capacity(part.len());
    for letter in part.chars() {
        if is_invisible(letter) {
            // As it is shown, which patterns know too.
            pattern.extend(letter.escape_default());
            continue;
        }
        if !(letter.is_alphanumeric() || letter == '_' || letter == '-') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// What to do about weights that the file has only as what PyTorch computes them from.
pub(super) fn parametrized(report: &ImportReport) -> Option<&'static str> {
    if report.missing.is_empty() {
        return None;
    }
    let any = |is: &dyn Fn(&str) -> bool| report.unused.iter().any(|(key, _)| is(key));
    if any(&|key| key.contains("parametrizations.")) {
        Some(
            "weights are parametrized: call torch.nn.utils.parametrize.remove_parametrizations(layer, \"weight\") for each \
             such layer before saving",
        )
    } else if any(&|key| key.ends_with("weight_g")) && any(&|key| key.ends_with("weight_v")) {
        Some(
            "weights are normalized: call torch.nn.utils.remove_weight_norm(layer) for each such layer before saving",
        )
    } else if any(&|key| key.ends_with("weight_orig")) {
        Some(
            "weights are pruned or spectrally normalized: call torch.nn.utils.prune.remove(layer, \"weight\") or \
             torch.nn.utils.remove_spectral_norm(layer) for each such layer before saving",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::WantedShape;
    use super::*;
    use alloc::vec;

    #[test]
    fn beginnings_that_differ() {
        let cases = [
            ("conv.conv1.weight", "conv1.weight", Some(("^conv\\.(.*)", "${1}"))),
            ("a.x.weight", "b.x.weight", Some(("^a\\.(.*)", "b.${1}"))),
            ("x.weight", "x.weight", None),
            ("x.weight", "x.bias", None),
            ("x.weight", "weight", Some(("^x\\.(.*)", "${1}"))),
            ("a.3.x.w", "b.c.3.w", Some(("^a\\.(\\d+)\\.x\\.(.*)", "b.c.${1}.${2}"))),
            ("a.3.w", "b.4.w", Some(("^a\\.3\\.(.*)", "b.4.${1}"))),
            ("a+b.w", "$.w", Some(("^a\\+b\\.(.*)", "$$.${1}"))),
        ];
        for (key, wanted, expected) in cases {
            let rule = Change::between(key, wanted).map(|change| change.rule());
            let expected = expected.map(|(pattern, to)| (pattern.to_string(), to.to_string()));
            assert_eq!(rule, expected, "{key} {wanted}");
        }
    }

    /// One line for all layers; beginnings whose tensors have other shapes are no candidates.
    #[test]
    fn lists_are_renamed_at_once() {
        let mut report = ImportReport::default();
        for layer in 0..3 {
            for (name, old, sizes) in
                [("attention", "attn", [4, 4]), ("up", "fc1", [4, 8]), ("down", "fc2", [8, 2])]
            {
                let key = format!("layers.{layer}.{name}.weight");
                let shape = Some(WantedShape::Dims(sizes.to_vec()));
                report.missing.push(MissingWeight { path: key.clone(), key, shape });
                report.unused.push((format!("h.{layer}.{old}.weight"), vec![sizes[1], sizes[0]]));
            }
        }
        let found = suggestions(&report);
        let rule = |old: &str, new: &str| {
            (format!("^h\\.(\\d+)\\.{old}\\.(.*)"), format!("layers.${{1}}.{new}.${{2}}"))
        };
        assert_eq!(found, [rule("attn", "attention"), rule("fc1", "up"), rule("fc2", "down")]);
    }
}
