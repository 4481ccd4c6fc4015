//! What is wrong with a model, collected: one run shows everything that can be found.
//!
//! A node of the model's own graph that fails is noted, and its outputs are lost; nodes that need them are not looked at,
//! since what they would be blamed for may follow from the first mistake. Inside branches, loops and functions the first
//! problem ends the node around them.

use super::Lowering;
use crate::error::{ImportError, ImportErrorKind, ImportResult};
use std::collections::HashSet;

/// More problems help nobody, and a hostile file could have any number.
pub(super) const MOST: usize = 64;

/// What was found, and which values are lost by it.
#[derive(Default)]
pub(super) struct Problems<'m> {
    found: Vec<ImportError>,
    lost: HashSet<&'m str>,
}

impl Problems<'_> {
    /// Whether a name would be known, had nothing gone wrong.
    pub(super) fn lost(&self, name: &str) -> bool {
        self.lost.contains(name)
    }
}

impl<'m> Lowering<'_, 'm> {
    /// Notes a problem, so that the rest can be looked at. An error within a branch or a function, in an attempt, or one too
    /// many is given back.
    pub(crate) fn note(
        &mut self,
        error: ImportError,
        lost: impl IntoIterator<Item = &'m str>,
    ) -> ImportResult<()> {
        let inside = self.scopes.len() > 1 || self.frames.len() > 1 || self.choices > 0;
        let limit =
            matches!(*error.kind, ImportErrorKind::Limit { .. } | ImportErrorKind::Disproportionate { .. });
        if inside || limit || self.problems.found.len() >= MOST {
            return Err(error);
        }
        self.problems.lost.extend(lost);
        self.push(error);
        Ok(())
    }

    fn push(&mut self, error: ImportError) {
        // Nothing in it: what is wrong was noted before. The same words twice say no more than once.
        let noted = matches!(&*error.kind, ImportErrorKind::Several(problems) if problems.is_empty());
        let text = error.to_string();
        if !noted && self.problems.found.iter().all(|other| other.to_string() != text) {
            self.problems.found.push(error);
        }
    }

    /// All that was found, the last of it given; `Ok` when nothing was.
    pub(crate) fn conclude<T>(&mut self, result: ImportResult<T>) -> ImportResult<T> {
        let value = match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.push(error);
                None
            }
        };
        let mut found = std::mem::take(&mut self.problems.found);
        match (found.len(), value) {
            (0, Some(value)) => Ok(value),
            (1, _) => Err(found.remove(0)),
            _ => Err(ImportErrorKind::Several(found).into()),
        }
    }
}
