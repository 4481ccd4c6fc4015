//! Rounds that are written out become a loop: the same statements again and again, each time with what the time before
//! yielded, as exporters leave a loop of the original network's code.
//!
//! Statements are compared without their operands and numbers, so that a stretch which repeats is found by comparing
//! neighbours at each distance up to a bound. Where it also reads the same from around it, and what it made itself as far
//! back in each round, one round is left in a loop ([`Repeat`]). Numbers that grow by equal steps are counted, and
//! what all rounds leave for one call goes into a list. What does not fit, a first round that knows more or a last
//! one that does less, stays around the loop.

mod found;
mod line;

use super::{Block, Body, Code, Position, Repeat, Statement};
use crate::ids::{SlotId, VarId};
use crate::spelling;
use found::{Found, Gathered};
use kiln_importer::ir::{Dim, Graph, Symbol};
use line::Line;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Loops in loops, as deep as they are looked for.
const MAX_DEPTH: usize = 4;

/// What is known around a body whose rounds are looked for.
pub struct Around<'a> {
    /// The model.
    pub graph: &'a Graph,
    /// The parameter that a literal belongs to, where modules differ in it.
    pub parameter: &'a dyn Fn(SlotId) -> Option<usize>,
    /// Whether nothing in the model tells in which order it is computed.
    pub is_repeatable: bool,
}

/// Makes loops of a body's rounds. Yields the variables whose types those have that were added, in order.
pub fn roll(body: &mut Body, around: &Around<'_>) -> Vec<VarId> {
    let mut added = Vec::new();
    let mut foreign = body.block.symbols();
    foreign.extend(body.block.all_statements().into_iter().flat_map(Statement::symbols).cloned());
    foreign.extend(body.symbols.iter().cloned());
    foreign.extend(body.sources.iter().map(|source| source.symbol.clone()));
    for _ in 0..MAX_DEPTH {
        let ordered = line::ordered(&body.block);
        let found = Line::new(&ordered, body, around).rounds();
        if found.is_empty() {
            break;
        }
        let mut rolling = Rolling { body, foreign: &foreign, graph: around.graph, added: &mut added };
        let block = rolling.block(ordered, found);
        body.block = block;
    }
    added
}

/// Puts loops where rounds were found.
struct Rolling<'a> {
    body: &'a mut Body,
    /// The symbols of the body as it was.
    foreign: &'a BTreeSet<Symbol>,
    graph: &'a Graph,
    added: &'a mut Vec<VarId>,
}

/// A block while its rounds become loops.
struct Rolled {
    /// The statements that it had and that are not done.
    old: Vec<Option<Statement>>,
    /// Those that it has.
    statements: Vec<Statement>,
    /// The lists for calls that are still to come, by their places.
    waiting: HashMap<usize, (VarId, Gathered)>,
}

impl Rolled {
    /// Goes on with a statement as it is, but for lists that are there now.
    fn keep(&mut self, at: usize) {
        let Some(mut statement) = self.old.get_mut(at).and_then(Option::take) else { return };
        if let Some((list, gathered)) = self.waiting.remove(&at) {
            hand_over(&mut statement, list, &gathered, &mut self.statements);
        }
        self.statements.push(statement);
    }
}

impl Rolling<'_> {
    fn block(&mut self, block: Block, found: Vec<Found>) -> Block {
        let mut found: BTreeMap<usize, Found> =
            found.into_iter().filter_map(|rounds| Some((*rounds.positions.first()?, rounds))).collect();
        let length = block.statements.len();
        let mut to = Rolled {
            old: block.statements.into_iter().map(Some).collect(),
            statements: Vec::with_capacity(length),
            waiting: HashMap::new(),
        };
        for i in 0..length {
            let Some(mut rounds) = found.remove(&i) else {
                to.keep(i);
                continue;
            };
            std::mem::take(&mut rounds.before).into_iter().for_each(|at| to.keep(at));
            let behind = std::mem::take(&mut rounds.behind);
            self.round(rounds, &mut to);
            behind.into_iter().for_each(|at| to.keep(at));
        }
        Block { statements: to.statements, results: block.results }
    }

    /// One loop.
    fn round(&mut self, rounds: Found, to: &mut Rolled) {
        let Found { period, times, carried, counted, items, gathered, positions, .. } = rounds;
        let mut all: Vec<Statement> =
            positions.into_iter().filter_map(|at| to.old.get_mut(at)?.take()).collect();
        let outputs_of = |statements: &[Statement], (at, n): (usize, usize)| -> Option<VarId> {
            statements.get(at)?.outputs().get(n).copied()
        };
        // The second round begins with what the first made, so that its own names need no change.
        let parameters: Vec<VarId> =
            carried.iter().filter_map(|carried| outputs_of(&all, carried.place)).collect();
        let last = all.split_off((times - 1) * period);
        let outputs: Vec<VarId> =
            carried.iter().filter_map(|carried| outputs_of(&last, carried.place)).collect();
        all.truncate(2 * period);
        let second = all.split_off(period);
        let results: Vec<Code> =
            carried.iter().filter_map(|carried| outputs_of(&second, carried.place)).map(Code::Use).collect();
        let mut pushed: HashMap<usize, Vec<(VarId, VarId)>> = HashMap::new();
        for gathered in gathered {
            let Some(value) = outputs_of(&second, gathered.place) else { continue };
            let list = self.body.vars.push(self.body.vars[value]);
            self.added.push(value);
            pushed.entry(gathered.place.0).or_default().push((list, value));
            to.statements.push(Statement::List { output: list, items: gathered.before.clone() });
            to.waiting.insert(gathered.call, (list, gathered));
        }
        let mut body = Block { statements: Vec::with_capacity(period), results };
        for (at, statement) in second.into_iter().enumerate() {
            body.statements.push(statement);
            for &(list, value) in pushed.get(&at).into_iter().flatten() {
                body.statements.push(Statement::Push { list, value: Code::Use(value) });
            }
        }
        let iteration = self.symbol(&body);
        // Items of one sequence alone need no number.
        let numbered = items.iter().filter(|_| items.len() > 1 || !counted.is_empty());
        let numbered = numbered.map(|&(_, from)| (from as i64, 1));
        let start = first_number(counted.values().copied().chain(numbered));
        body.visit_mut(&mut |code| {
            if let Some(place) = code.callee_mut()
                && items.iter().any(|(field, _)| *field == place.field)
            {
                place.position = Some(Position::OfRound);
            }
            if let Code::Slot(slot) = code
                && let Some(&(base, step)) = counted.get(slot)
            {
                let more = &Dim::symbol(iteration.clone()) * &Dim::constant(step);
                *code = Code::Size(&more + &Dim::constant(base - step * start));
            }
        });
        to.statements.push(Statement::Repeat(Box::new(Repeat {
            outputs,
            parameters,
            init: carried.into_iter().map(|carried| carried.init).collect(),
            start,
            trip_count: Some(Dim::constant(times as i64)),
            condition: Dim::constant(1),
            iteration,
            items,
            again: None,
            body,
            none: Vec::new(),
        })));
    }

    /// The symbol that counts the rounds of a loop: one that neither the model nor a loop in it has.
    fn symbol(&self, body: &Block) -> Symbol {
        let inner: HashSet<&Symbol> =
            body.all_statements().into_iter().flat_map(Statement::symbols).collect();
        let is_free = |symbol: &Symbol| {
            !inner.contains(symbol)
                && !self.foreign.contains(symbol)
                && !self.graph.symbols.contains_key(symbol)
        };
        let letters = ["i", "j", "k"].into_iter().map(Symbol::from);
        let numbered = (2..).map(|n: usize| Symbol::from(format!("i{n}")));
        // There are fewer symbols than numbers.
        letters.chain(numbered).find(is_free).unwrap_or_else(|| Symbol::from("i"))
    }
}

/// The number that a loop begins to count with, given the first of each sequence in it and its step: one that makes
/// sequences simple, `i..i + 1` and not `i + 1..i + 2`.
fn first_number(mut sequences: impl Iterator<Item = (i64, i64)> + Clone) -> i64 {
    let even = |(base, step): (i64, i64)| step > 0 && base % step == 0;
    match sequences.clone().map(|(base, _)| base).min() {
        Some(least) if sequences.clone().all(|(_, step)| step == 1) => least,
        Some(_) => match sequences.clone().next() {
            Some((base, step)) if sequences.all(|(b, s)| even((b, s)) && b / s == base / step) => base / step,
            _ => 0,
        },
        None => 0,
    }
}

/// Gives a call the list instead of the values in it.
fn hand_over(statement: &mut Statement, list: VarId, gathered: &Gathered, to: &mut Vec<Statement>) {
    to.extend(gathered.after.iter().map(|value| Statement::Push { list, value: value.clone() }));
    let Statement::Bind { code, .. } = statement else { return };
    let mut done = false;
    code.visit_mut(&mut |part| {
        if let Code::Call(function, args) = part
            && let Some(taker) = spelling::of_list(function)
            && let Some(Code::Array(_)) = args.first()
            && !done
        {
            *function = taker.into();
            args[0] = Code::Use(list);
            done = true;
        }
    });
}

/// The values that a call takes as one list.
fn listed(statement: &Statement) -> Option<Vec<Code>> {
    let Statement::Bind { code, .. } = statement else { return None };
    let mut found = None;
    code.visit(&mut |part| {
        if let Code::Call(function, args) = part
            && spelling::of_list(function).is_some()
            && let Some(Code::Array(items)) = args.first()
            && found.is_none()
        {
            found = Some(items.clone());
        }
    });
    found
}
