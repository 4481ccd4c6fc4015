//! Paths and names of spellings, read from text.
//!
//! Spellings are written in Kiln's own source, so their words live for ever. A graph that is read from text (by a test or
//! by a person who looks into a pass) has to give them the same life: each distinct word is kept once, until the program
//! ends.

use super::Expr;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// A word of Kiln's own source.
///
/// An alias, since serde borrows every field that is spelt as a reference from the text, which does not live so long.
pub(super) type Word = &'static str;

static WORDS: Mutex<BTreeSet<Word>> = Mutex::new(BTreeSet::new());

fn keep(word: String) -> Word {
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = words.get(word.as_str()) {
        return known;
    }
    let kept: Word = Box::leak(word.into_boxed_str());
    words.insert(kept);
    kept
}

/// Reads a word.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
    String::deserialize(deserializer).map(keep)
}

/// Reads the fields of a structure.
pub(super) fn read_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Word, Expr)>, D::Error> {
    let fields = Vec::<(String, Expr)>::deserialize(deserializer)?;
    Ok(fields.into_iter().map(|(name, value)| (keep(name), value)).collect())
}
