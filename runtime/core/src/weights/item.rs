//! Records from checkpoints: a deserializer that answers a record's questions from a checkpoint's tensors.
//!
//! The types of a record ask for their fields by name, and so tell what they are. An enum does not tell which variant is
//! meant; it is found by trying: a pass without data tells how many tensors a choice misses or leaves over.

mod node;
mod parts;

use super::adapter::{Candidate, Frame, path_of};
use super::load::{fits_kind, is_bookkeeping};
use super::source::Source;
use super::{
    AdapterType, ImportError, ImportReport, LoadArgs, MissingWeight, UnsupportedWeight, WantedShape,
    WrongWeight,
};
use crate::tensor::DTypeKind;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::{boxed::Box, format, vec::Vec};
use core::cell::RefCell;
use kiln_weights::LazyTensor;
use node::{Failure, Node, Wanted};
use serde::de::{self, DeserializeOwned};

/// Most passes to find the variants of a record's enums.
const MAX_PASSES: usize = 10_000;

/// Reads an item from a checkpoint.
///
/// # Errors
/// When the file cannot be read, or does not have what the item asks for.
pub(super) fn read_item<I: DeserializeOwned>(args: &LoadArgs) -> Result<I, ImportError> {
    let source = Source::read(args)?;
    let state = State {
        source: &source,
        adapter: args.adapter,
        dry: true,
        choices: RefCell::default(),
        log: RefCell::default(),
    };
    let log = choose_variants::<I>(&state)?;
    let unused = state.unused(&log, "");
    let misfit = !log.missing.is_empty() || !log.wrong.is_empty();
    let left_over = !unused.is_empty() || source.unsupported().len() > 0;
    if misfit || (args.strict && left_over) {
        // Whoever asks for one gets an error of its own.
        let unsupported = source.unsupported();
        let unsupported = unsupported.map(|(key, what)| UnsupportedWeight {
            path: None,
            key: key.to_string(),
            what: what.to_string(),
        });
        let unsupported = unsupported.collect();
        let unused =
            unused.into_iter().map(|(key, tensor)| (key.to_string(), tensor.shape().to_vec())).collect();
        let Log { missing, wrong, .. } = log;
        return Err(Box::new(ImportReport {
            source: source.name,
            missing,
            wrong,
            unsupported,
            unused,
            ..ImportReport::default()
        })
        .into());
    }
    let state = State { dry: false, log: RefCell::default(), ..state };
    I::deserialize(Node::root(&state)).map_err(|Failure(error)| *error)
}

/// Runs without data until each enum has the variant that fits best; yields what the last pass saw.
fn choose_variants<I: DeserializeOwned>(state: &State<'_>) -> Result<Log, ImportError> {
    let mut settled = BTreeSet::new();
    let mut best: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for _ in 0..MAX_PASSES {
        state.log.replace(Log::default());
        I::deserialize(Node::root(state)).map_err(|Failure(error)| *error)?;
        let log = state.log.take();
        let Some((path, variants)) = log.enums.iter().find(|(path, _)| !settled.contains(path)).cloned()
        else {
            return Ok(log);
        };
        let cost = state.cost(&log, &path);
        let mut choices = state.choices.borrow_mut();
        let choice = choices.entry(path.clone()).or_default();
        let entry = best.entry(path.clone()).or_insert((usize::MAX, 0));
        if cost < entry.0 {
            *entry = (cost, *choice);
        }
        if cost == 0 || *choice + 1 >= variants {
            *choice = entry.1;
            settled.insert(path);
        } else {
            *choice += 1;
            // What lies below is another type now.
            let below = format!("{path}.");
            best.retain(|known, _| !known.starts_with(&below));
            choices.retain(|known, _| !known.starts_with(&below));
        }
    }
    Err(ImportError::Record("the record has too many enums to try".to_string()))
}

/// What a pass saw.
#[derive(Default)]
struct Log {
    used: BTreeSet<String>,
    missing: Vec<MissingWeight>,
    wrong: Vec<WrongWeight>,
    /// The enums and how many variants they have, in order.
    enums: Vec<(String, usize)>,
}

/// A pass over a record.
struct State<'a> {
    source: &'a Source,
    adapter: AdapterType,
    /// Whether tensors are left empty.
    dry: bool,
    /// The variants to take, by path.
    choices: RefCell<BTreeMap<String, usize>>,
    log: RefCell<Log>,
}

impl<'a> State<'a> {
    /// The tensors below a path that nothing used.
    fn unused(&self, log: &Log, path: &str) -> Vec<(&'a str, &'a LazyTensor)> {
        let below = |key: &str| {
            path.is_empty() || key == path || key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
        };
        let unused = |key: &str| !log.used.contains(key) && !is_bookkeeping(key) && below(key);
        self.source.iter().filter(|(key, _)| unused(key)).collect()
    }

    /// How badly a choice at a path fits.
    fn cost(&self, log: &Log, path: &str) -> usize {
        let below = |parameter: &&str| {
            path.is_empty() || parameter.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
        };
        let missing = log.missing.iter().map(|missing| missing.path.as_str());
        let misfits = missing.chain(log.wrong.iter().map(|wrong| wrong.path.as_str()));
        misfits.filter(below).count() + self.unused(log, path).len()
    }

    /// The first place where a parameter is in the file.
    fn find(&self, frames: &[Frame]) -> Option<(Candidate, &'a LazyTensor)> {
        let candidates = self.adapter.candidates(frames);
        candidates.into_iter().find_map(|candidate| {
            let tensor = self.source.get(&candidate.key)?;
            Some((candidate, tensor))
        })
    }

    /// The error of a parameter that is in the file as a tensor of a kind that Kiln does not have.
    fn refusal(&self, frames: &[Frame]) -> Option<ImportError> {
        let candidates = self.adapter.candidates(frames);
        candidates.iter().find_map(|candidate| self.source.refusal(&candidate.key))
    }

    /// The key of a parameter and the tensor for it. In a pass without data it may be missing or not fit, which is noted.
    fn parameter(
        &self,
        frames: &[Frame],
        wanted: Option<Wanted>,
    ) -> Result<Option<(String, LazyTensor)>, Failure> {
        let path = path_of(frames);
        let Some((Candidate { key, view }, whole)) = self.find(frames) else {
            if !self.dry {
                return Err(de::Error::custom(format!("parameter {path} is missing")));
            }
            if let Some(error) = self.refusal(frames) {
                return Err(Failure(Box::new(error)));
            }
            let first = self.adapter.candidates(frames).into_iter().next();
            let key = first.map_or_else(|| path.clone(), |candidate| candidate.key);
            let shape = wanted.map(|wanted| WantedShape::Rank(wanted.rank));
            self.log.borrow_mut().missing.push(MissingWeight { path, key, shape });
            return Ok(None);
        };
        let fits = |tensor: &LazyTensor| {
            let rank = tensor.shape().len();
            wanted.is_none_or(|wanted| rank == wanted.rank && fits_kind(tensor.dtype(), wanted.kind))
        };
        let tensor = view.of(whole);
        let tensor = match wanted {
            Some(wanted) => tensor.map(|tensor| tensor.scalar_of_rank(wanted.rank)),
            None => tensor,
        };
        let found = tensor.filter(fits);
        let mut log = self.log.borrow_mut();
        log.used.insert(key.clone());
        match (found, wanted) {
            (Some(tensor), _) => Ok(Some((key, tensor))),
            (None, _) if !self.dry => Err(de::Error::custom(format!("parameter {path} does not fit"))),
            (None, wanted) => {
                let (kind, rank) = wanted.map_or((DTypeKind::Float, 1), |wanted| (wanted.kind, wanted.rank));
                let (shape, found) = (WantedShape::Rank(rank), (whole.dtype(), whole.shape().to_vec()));
                log.wrong.push(WrongWeight { path, key, kind, shape, found });
                Ok(None)
            }
        }
    }
}
