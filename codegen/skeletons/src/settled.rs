//! Layers that the user settled, by patterns of keys.

use super::SkeletonError;
use std::collections::BTreeMap;

/// How many keys a message names.
const SHOWN: usize = 5;

/// What is settled, and what could be.
pub(super) struct Settled {
    /// Patterns, what they say, and whether a key met them.
    patterns: Vec<(String, String, bool)>,
    /// The keys that could be settled.
    layers: Vec<String>,
}

impl Settled {
    pub(super) fn new(settled: &BTreeMap<String, String>) -> Self {
        let mut patterns: Vec<_> =
            settled.iter().map(|(pattern, layer)| (pattern.clone(), layer.clone(), false)).collect();
        // The most particular first: with the fewest wildcards.
        patterns.sort_by_key(|(pattern, ..)| pattern.split('.').filter(|part| *part == "*").count());
        Self { patterns, layers: Vec::new() }
    }

    /// What a key is settled to be.
    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        let mut found = None;
        for (pattern, layer, met) in &mut self.patterns {
            if matches(pattern, key) {
                *met = true;
                found = found.or_else(|| Some(layer.clone()));
            }
        }
        found
    }

    /// Notes that a key could be settled.
    pub(super) fn offer(&mut self, key: &str) {
        self.layers.push(key.to_owned());
    }

    /// # Errors
    /// When a pattern met no key; the error names the keys that begin most like it.
    pub(super) fn finish(&self) -> Result<(), SkeletonError> {
        let Some((key, ..)) = self.patterns.iter().find(|(_, _, met)| !met) else { return Ok(()) };
        let common = |layer: &String| layer.chars().zip(key.chars()).take_while(|(a, b)| a == b).count();
        let mut nearest: Vec<&String> = self.layers.iter().collect();
        nearest.sort_by_key(|layer| std::cmp::Reverse(common(layer)));
        let shown: Vec<String> = nearest.iter().take(SHOWN).map(|layer| format!("{layer:?}")).collect();
        let candidates = match (shown.len(), nearest.len().saturating_sub(SHOWN)) {
            (0, _) => "it has none".to_owned(),
            (_, 0) => format!("there are {}", shown.join(", ")),
            (_, more) => format!("there are {} and {more} others", shown.join(", ")),
        };
        Err(SkeletonError::NoSuchLayer { key: key.clone(), candidates })
    }
}

/// Whether a key is as a pattern says, whose parts may be `*`.
fn matches(pattern: &str, key: &str) -> bool {
    let (mut pattern, mut key) = (pattern.split('.'), key.split('.'));
    loop {
        match (pattern.next(), key.next()) {
            (None, None) => return true,
            (Some(wanted), Some(part)) if wanted == "*" || wanted == part => {}
            _ => return false,
        }
    }
}
