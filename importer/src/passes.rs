//! Rewrites of the IR into simpler or faster IR.
//!
//! [`optimize`] runs a fixed pipeline: simplify until nothing changes, raise patterns to the operations they spell,
//! fold and fuse, simplify again. A [`Pass`] changes a graph and says what it did; most are lists of [`Rule`]s, each
//! in a file of its own, that `rewrite` applies to every node of every region.

mod activation;
mod affine;
mod branches;
mod constants;
mod counters;
mod creation;
mod dead_code;
mod duplicates;
mod elementwise;
mod forests;
mod identities;
mod joins;
mod matcher;
mod movement;
mod order;
mod precision;
mod quantized;
mod raise;
#[cfg(test)]
mod random;
mod residual;
mod rewrite;
mod roots;
mod scopes;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
mod ties;

pub use rewrite::{Rewrite, Rule};

use crate::ir::Graph;
use kiln_types::{DType, FloatDType};
use std::collections::BTreeMap;
use std::fmt;

/// What the passes may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The model is to be trained: batch normalization and dropout stay as they are.
    pub trainable: bool,
    /// The dtype in which to compute what the file has in f32; that by default. Inputs and outputs keep theirs.
    pub float_dtype: Option<FloatDType>,
}

/// A rewrite of a whole graph.
pub trait Pass {
    /// Its name, as reports show it.
    fn name(&self) -> &'static str;

    /// Runs once.
    fn run(&self, graph: &mut Graph) -> PassReport;

    /// Whether the pipeline runs it once only: a second time it would change what it made.
    fn runs_once(&self) -> bool {
        false
    }
}

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassReport {
    /// The pass.
    pub name: &'static str,
    /// What was rewritten, and how many times.
    pub rewrites: BTreeMap<String, usize>,
}

impl PassReport {
    /// A report of nothing yet.
    pub fn new(name: &'static str) -> Self {
        Self { name, rewrites: BTreeMap::new() }
    }

    /// Counts one rewrite.
    pub fn count(&mut self, what: impl Into<String>) {
        *self.rewrites.entry(what.into()).or_default() += 1;
    }

    /// Whether anything changed.
    pub fn changed(&self) -> bool {
        !self.rewrites.is_empty()
    }

    /// Number of rewrites.
    pub fn total(&self) -> usize {
        self.rewrites.values().sum()
    }
}

impl fmt::Display for PassReport {
    /// `raise: 36 × linear, 12 × attention`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        if self.rewrites.is_empty() {
            return write!(f, " nothing");
        }
        for (i, (what, count)) in self.rewrites.iter().enumerate() {
            write!(f, "{} {count} × {what}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Rounds of a group of passes; what is not stable by then is right all the same.
const MAX_ROUNDS: usize = 12;

/// Runs the pipeline. One report a pass, in the order of first change; passes that changed nothing have none.
pub fn optimize(graph: &mut Graph, options: &Options) -> Vec<PassReport> {
    optimize_observed(graph, options, &mut |_, _| {})
}

/// Runs the pipeline like [`optimize`]; `observe` sees the graph after every pass that changed it, and what that did.
pub fn optimize_observed(
    graph: &mut Graph,
    options: &Options,
    observe: &mut dyn FnMut(&Graph, &PassReport),
) -> Vec<PassReport> {
    let originals = if options.trainable { ties::originals(graph) } else { ties::Originals::default() };
    let mut runner = Runner { graph, reports: Vec::new(), observe };
    for group in pipeline(options, originals) {
        runner.run(&group);
    }
    runner.reports
}

/// The pass that reports call `name`, to run alone: `quantized`, `constants`, `simplify`, `duplicates`, `dead code`, `raise`, `fuse`,
/// `chain`, `ties`, `scopes`, `joins`, `order`; `precision` where the options name a dtype.
pub fn named(name: &str, options: &Options) -> Option<Box<dyn Pass>> {
    pipeline(options, ties::Originals::default()).into_iter().flatten().find(|pass| pass.name() == name)
}

/// Groups of passes; each runs until nothing changes.
fn pipeline(options: &Options, originals: ties::Originals) -> [Vec<Box<dyn Pass>>; 12] {
    let rules =
        |name, rules| -> Box<dyn Pass> { Box::new(rewrite::Rules { name, rules, options: *options }) };
    let simplify = |first: Option<Box<dyn Pass>>| -> Vec<Box<dyn Pass>> {
        let always: [Box<dyn Pass>; 4] = [
            Box::new(constants::FoldConstants::new(options.trainable)),
            rules("simplify", &SIMPLIFY),
            Box::new(duplicates::MergeDuplicates),
            Box::new(dead_code::RemoveDeadCode),
        ];
        first.into_iter().chain(always).collect()
    };
    let to = options.float_dtype.filter(|&to| DType::from(to) != DType::F32);
    [
        vec![Box::new(dead_code::RemoveDeadCode)],
        vec![rules("quantized", &[quantized::RULE]), Box::new(dead_code::RemoveDeadCode)],
        simplify(None),
        simplify(Some(rules("raise", &raise::RULES))),
        simplify(Some(rules("fuse", &FUSE))),
        // Patterns are told by their numbers, before those are rounded; chains may hold conversions.
        to.map(|to| Box::new(precision::ChangePrecision { to }) as Box<dyn Pass>).into_iter().collect(),
        to.map(|_| Box::new(duplicates::MergeDuplicates) as Box<dyn Pass>).into_iter().collect(),
        vec![rules("chain", &CHAIN), Box::new(dead_code::RemoveDeadCode)],
        // Late, since folding would undo it.
        vec![
            Box::new(ties::TieParameters { trainable: options.trainable, originals }),
            Box::new(dead_code::RemoveDeadCode),
        ],
        vec![Box::new(scopes::PlaceShared)],
        // After it, which counts what is joined.
        vec![Box::new(joins::ContinueJoins)],
        // Last: whatever is there then.
        vec![Box::new(order::OrderNodes)],
    ]
}

/// Rules that make a graph smaller whatever it is.
const SIMPLIFY: [Rule; 4] = [identities::RULE, movement::RULE, counters::RULE, tables::RULE];

/// Rules that merge operations into their neighbours.
const FUSE: [Rule; 5] = [affine::RULE, branches::RULE, residual::RULE, activation::RULE, forests::RULE];

/// Rules that come last, since nothing reads what they make.
const CHAIN: [Rule; 3] = [creation::RULE, roots::RULE, elementwise::RULE];

struct Runner<'g> {
    graph: &'g mut Graph,
    reports: Vec<PassReport>,
    observe: &'g mut dyn FnMut(&Graph, &PassReport),
}

impl Runner<'_> {
    /// Runs passes in turn until none changes anything.
    fn run(&mut self, passes: &[Box<dyn Pass>]) {
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            for pass in passes {
                let report = pass.run(self.graph);
                self.graph.constants.iter().for_each(|constant| crate::data::release(&constant.data));
                self.assert_verified(pass.name());
                if report.changed() {
                    changed = true;
                    (self.observe)(self.graph, &report);
                    self.add(report);
                }
            }
            if !changed || passes.iter().all(|pass| pass.runs_once()) {
                return;
            }
        }
    }

    /// In debug builds, asserts that a pass kept the graph's invariants: one that breaks them has a defect, whatever the file holds, and
    /// is found here and not by what comes after it.
    fn assert_verified(&self, pass: &str) {
        let violations = || {
            let violations = self.graph.verify().err().unwrap_or_default();
            violations.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        debug_assert!(
            violations().is_empty(),
            "the pass `{pass}` broke the graph:\n  {}",
            violations().join("\n  ")
        );
    }

    fn add(&mut self, report: PassReport) {
        match self.reports.iter_mut().find(|old| old.name == report.name) {
            Some(old) => {
                for (what, count) in report.rewrites {
                    *old.rewrites.entry(what).or_default() += count;
                }
            }
            None => self.reports.push(report),
        }
    }
}
