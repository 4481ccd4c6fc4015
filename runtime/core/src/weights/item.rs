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

/// Most passes to find the variants of a record's enums: those that lie beside each other are tried together.
const MAX_PASSES: usize = 1_000;

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
    let unused = state.unused(&log);
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
        // An enum within another one is tried when that one is settled; what is a variant's only content has its path.
        let mut open: Vec<(String, usize)> = Vec::new();
        for (path, variants) in log.enums.iter().filter(|(path, _)| !settled.contains(path)) {
            if open.last().is_none_or(|(outer, _)| path != outer && !is_below(path, outer)) {
                open.push((path.clone(), *variants));
            }
        }
        if open.is_empty() {
            return Ok(log);
        }
        let misfits = state.misfits(&log);
        let mut choices = state.choices.borrow_mut();
        for (path, variants) in open {
            let cost = misfits.at(&path);
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
                forget_below(&mut best, &path);
                forget_below(&mut choices, &path);
            }
        }
    }
    Err(ImportError::Record("the record has too many enums within each other to try".to_string()))
}

/// Whether a path leads on from another.
fn is_below(path: &str, outer: &str) -> bool {
    let rest = path.strip_prefix(outer);
    rest.is_some_and(|rest| if outer.is_empty() { !rest.is_empty() } else { rest.starts_with('.') })
}

/// The bounds of the paths below one that is not empty, in their order: `/` is the character after `.`.
fn bounds_below(path: &str) -> [String; 2] {
    ['.', '/'].map(|end| format!("{path}{end}"))
}

fn forget_below<T>(known: &mut BTreeMap<String, T>, path: &str) {
    if path.is_empty() {
        known.retain(|path, _| path.is_empty());
        return;
    }
    let [from, to] = bounds_below(path);
    let below: Vec<String> = known.range(from..to).map(|(path, _)| path.clone()).collect();
    for path in below {
        known.remove(&path);
    }
}

/// What does not fit after a pass, sorted.
struct Misfits<'a> {
    /// Paths of parameters that the file lacks, or has otherwise.
    parameters: Vec<&'a str>,
    /// Keys that no parameter uses.
    unused: Vec<&'a str>,
}

impl Misfits<'_> {
    /// How badly a choice at a path fits.
    fn at(&self, path: &str) -> usize {
        let of_file = usize::from(!path.is_empty() && self.unused.binary_search(&path).is_ok());
        of_file + [&self.parameters, &self.unused].map(|paths| Self::below(paths, path)).iter().sum::<usize>()
    }

    fn below(sorted: &[&str], path: &str) -> usize {
        if path.is_empty() {
            return sorted.len();
        }
        let [from, to] =
            bounds_below(path).map(|bound| sorted.partition_point(|path| *path < bound.as_str()));
        to - from
    }
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
    /// The tensors that nothing used, by key.
    fn unused(&self, log: &Log) -> Vec<(&'a str, &'a LazyTensor)> {
        let unused = |key: &str| !log.used.contains(key) && !is_bookkeeping(key);
        self.source.iter().filter(|(key, _)| unused(key)).collect()
    }

    fn misfits<'l>(&self, log: &'l Log) -> Misfits<'l>
    where
        'a: 'l,
    {
        let missing = log.missing.iter().map(|missing| missing.path.as_str());
        let mut parameters: Vec<&str> =
            missing.chain(log.wrong.iter().map(|wrong| wrong.path.as_str())).collect();
        parameters.sort_unstable();
        Misfits { parameters, unused: self.unused(log).into_iter().map(|(key, _)| key).collect() }
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
