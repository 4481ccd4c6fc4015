//! Rounds that can be a loop.

use super::line::{Line, Step};
use super::listed;
use crate::code::{Code, Literal, Place, Position};
use crate::ids::{FieldId, SlotId, VarId};
use std::collections::{BTreeMap, HashMap};

/// What makes a value in a round: the statement in it, and which of its results.
pub(super) type Maker = (usize, usize);

/// A value that a round leaves for the next.
pub(super) struct Carried {
    pub(super) place: Maker,
    /// What the first round has instead.
    pub(super) init: Code,
}

/// A value that all rounds leave for one call.
pub(super) struct Gathered {
    pub(super) place: Maker,
    /// The call.
    pub(super) call: usize,
    /// What it takes before those of the rounds.
    pub(super) before: Vec<Code>,
    /// What it takes after them.
    pub(super) after: Vec<Code>,
}

/// Rounds.
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) period: usize,
    pub(super) times: usize,
    pub(super) carried: Vec<Carried>,
    /// The numbers that grow, by their literals in the second round: the first round's, and the step.
    pub(super) counted: BTreeMap<SlotId, (i64, i64)>,
    /// The sequences of which each round calls the next, and the first that is called.
    pub(super) items: Vec<(FieldId, usize)>,
    pub(super) gathered: Vec<Gathered>,
    /// Where its statements stand in the block.
    pub(super) positions: Vec<usize>,
    /// Statements between them that go before the loop, and those that go behind it.
    pub(super) before: Vec<usize>,
    pub(super) behind: Vec<usize>,
}

impl Found {
    /// The rounds that begin at a statement, if they can be a loop.
    pub(super) fn new(line: &Line<'_>, start: usize, period: usize, times: usize) -> Option<Self> {
        let mut found = Found {
            start,
            period,
            times,
            carried: Vec::new(),
            counted: BTreeMap::new(),
            items: Vec::new(),
            gathered: Vec::new(),
            positions: line.positions.get(start..start + period * times)?.to_vec(),
            before: Vec::new(),
            behind: Vec::new(),
        };
        // A call that takes a list stays where it is.
        if found.positions.iter().any(|at| line.taken.contains(at)) {
            return None;
        }
        found.set_apart(line)?;
        for at in start..start + period {
            found.read(line, at)?;
            found.count(line, at)?;
            found.call(line, at)?;
        }
        for at in start..start + period {
            found.leave(line, at)?;
        }
        found.calls_items_alone(line).then_some(())?;
        (!found.carried.is_empty() || !found.gathered.is_empty()).then_some(found)
    }

    /// Finds places for what stands between the statements of the rounds.
    fn set_apart(&mut self, line: &Line<'_>) -> Option<()> {
        let (&first, &last) = (self.positions.first()?, self.positions.last()?);
        let mut own = self.positions.iter().peekable();
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        for at in first..=last {
            if own.next_if(|&&position| position == at).is_some() {
                continue;
            }
            let statement = line.block.statements.get(at)?;
            let is_ready = statement.codes().into_iter().flat_map(Code::vars).all(|var| {
                let maker = line.makers.get(&var);
                maker.is_none_or(|(maker, _)| *maker < first || before.binary_search(maker).is_ok())
            });
            let is_used = |user: &usize| self.positions.binary_search(user).is_ok();
            let mut users = statement.outputs().iter().filter_map(|var| line.users.get(var)).flatten();
            if is_ready {
                before.push(at);
            } else if !users.any(is_used) {
                behind.push(at);
            } else {
                return None;
            }
        }
        (self.before, self.behind) = (before, behind);
        Some(())
    }

    /// Whether a variable is there before the loop.
    fn is_around(&self, line: &Line<'_>, var: VarId) -> bool {
        let is_before = |at: &usize| {
            self.positions.first().is_some_and(|first| at < first) || self.before.binary_search(at).is_ok()
        };
        line.makers.get(&var).is_none_or(|(at, _)| is_before(at))
    }

    /// The statement of each round, given the first's.
    fn each(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let period = self.period;
        (0..self.times).map(move |round| at + round * period)
    }

    /// Looks at what a statement of the rounds reads.
    fn read(&mut self, line: &Line<'_>, at: usize) -> Option<()> {
        let period = self.period;
        for n in 0..line.operands[at].values.len() {
            let of = |at: usize| &line.operands[at].values[n];
            let made = |at: usize| line.maker(of(at));
            let is_around = |at: usize| of(at).var().is_none_or(|var| self.is_around(line, var));
            // How the third follows from the second tells what is carried; a loop has no round like the first.
            match line.step(at + 2 * period, period, n) {
                Step::Same => {
                    let same = self.each(at).skip(1).all(|at| line.step(at, period, n) == Step::Same);
                    if !same || !is_around(at) {
                        return None;
                    }
                }
                Step::Moved => {
                    let (maker, result) = made(at + period)?;
                    let moved = self.each(at).skip(2).all(|at| line.step(at, period, n) == Step::Moved);
                    if !moved || maker < self.start {
                        return None;
                    }
                    if maker < self.start + period {
                        if !is_around(at) {
                            return None;
                        }
                        self.carry(line, (maker - self.start, result), of(at))?;
                    } else if line.step(at + period, period, n) != Step::Moved {
                        return None;
                    }
                }
                Step::Other => return None,
            }
        }
        Some(())
    }

    /// A value that each round has of the one before.
    fn carry(&mut self, line: &Line<'_>, place: Maker, init: &Code) -> Option<()> {
        if let Some(known) = self.carried.iter().find(|carried| carried.place == place) {
            return (known.init == *init).then_some(());
        }
        let kind = line.kind(self.output(line, place)?);
        let is_alike = match init {
            Code::Use(var) => line.kind(*var) == kind,
            Code::Parameter(field) => match line.body.inits.get(*field) {
                Some(crate::code::Init::Parameter { dtype, rank, .. }) => (dtype.kind(), *rank) == kind,
                _ => false,
            },
            _ => false,
        };
        is_alike.then(|| self.carried.push(Carried { place, init: init.clone() }))
    }

    /// The variable that the first round has for a place.
    fn output(&self, line: &Line<'_>, (at, n): Maker) -> Option<VarId> {
        line.statement(self.start + at)?.outputs().get(n).copied()
    }

    /// Looks at the numbers in a statement of the rounds.
    fn count(&mut self, line: &Line<'_>, at: usize) -> Option<()> {
        for n in 0..line.operands[at].slots.len() {
            let slot = |at: usize| line.operands[at].slots[n];
            let value = |at: usize| line.body.slots.get(slot(at)).and_then(|slot| slot.value.as_ref());
            let parameter = (line.around.parameter)(slot(at));
            if self.each(at).any(|at| (line.around.parameter)(slot(at)) != parameter) {
                return None;
            }
            if parameter.is_some() || self.each(at).all(|other| value(other) == value(at)) {
                continue;
            }
            let number = |at: usize| match value(at) {
                Some(Literal::Number(number)) => Some(*number),
                _ => None,
            };
            let first = number(at)?;
            let step = number(at + self.period)?.checked_sub(first)?;
            let follows = |(round, at): (usize, usize)| {
                let expected = step.checked_mul(round as i64).and_then(|more| first.checked_add(more));
                number(at) == expected
            };
            if !self.each(at).enumerate().all(follows) {
                return None;
            }
            self.counted.insert(slot(at + self.period), (first, step));
        }
        Some(())
    }

    /// Looks at the layers and modules that a statement of the rounds calls: the same in each, or the next of one sequence.
    fn call(&mut self, line: &Line<'_>, at: usize) -> Option<()> {
        for n in 0..line.operands[at].places.len() {
            let place = |at: usize| line.operands[at].places[n];
            let first = place(at);
            if self.each(at).all(|at| place(at) == first) {
                continue;
            }
            let Some(Position::At(from)) = first.position else { return None };
            let item = |round: usize| Place { position: Some(Position::At(from + round)), ..first };
            if !self.each(at).enumerate().all(|(round, at)| place(at) == item(round)) {
                return None;
            }
            if !self.items.contains(&(first.field, from)) {
                self.items.push((first.field, from));
            }
        }
        Some(())
    }

    /// Whether rounds that go over sequences call of each only the round's item.
    fn calls_items_alone(&self, line: &Line<'_>) -> bool {
        let calls = (self.start + self.period..self.start + 2 * self.period)
            .filter_map(|at| line.operands.get(at))
            .flat_map(|operands| &operands.places);
        let is_items = |place: &Place| {
            let mut items = self.items.iter().filter(|(field, _)| *field == place.field);
            items.all(|(_, from)| place.position == Some(Position::At(from + 1)))
        };
        calls.into_iter().all(is_items)
    }

    /// Looks at who uses what a statement of the rounds makes.
    fn leave(&mut self, line: &Line<'_>, at: usize) -> Option<()> {
        let last_of_all = *self.positions.last()?;
        let results = line.statement(at)?.outputs().len();
        for n in 0..results {
            let vars: Vec<VarId> =
                self.each(at).filter_map(|at| line.statement(at)?.outputs().get(n).copied()).collect();
            if vars.iter().any(|var| line.sources.contains(var)) {
                return None;
            }
            let later = |var: &VarId| -> Vec<usize> {
                let users = line.users.get(var).map(Vec::as_slice).unwrap_or_default();
                let is_later = |user: &usize| *user > last_of_all || self.behind.binary_search(user).is_ok();
                users.iter().copied().filter(is_later).collect()
            };
            let (last, others) = vars.split_last()?;
            let place = (at - self.start, n);
            if others.iter().all(|var| later(var).is_empty()) {
                let is_carried = self.carried.iter().any(|carried| carried.place == place);
                if is_carried || later(last).is_empty() {
                    continue;
                }
                return None;
            }
            let gathered = self.gather(line, place, &vars, &later)?;
            self.gathered.push(gathered);
        }
        Some(())
    }

    /// The call that takes a value of each round.
    fn gather(
        &self,
        line: &Line<'_>,
        place: Maker,
        vars: &[VarId],
        later: &dyn Fn(&VarId) -> Vec<usize>,
    ) -> Option<Gathered> {
        let &call = later(vars.first()?).first()?;
        if line.taken.contains(&call)
            || self.gathered.iter().any(|gathered| gathered.call == call)
            || vars.iter().any(|var| later(var) != [call])
        {
            return None;
        }
        let items = listed(line.block.statements.get(call)?)?;
        let from = items.iter().position(|item| item.var() == vars.first().copied())?;
        let to = from + vars.len();
        if !items.get(from..to)?.iter().map(Code::var).eq(vars.iter().copied().map(Some)) {
            return None;
        }
        let before = items[..from].to_vec();
        // The list begins before the rounds.
        let is_there = |item: &Code| item.vars().into_iter().all(|var| self.is_around(line, var));
        before.iter().all(is_there).then(|| Gathered { place, call, before, after: items[to..].to_vec() })
    }
}

/// How many values cross from one round to the next, by where rounds begin.
pub(super) struct Crossings {
    period: usize,
    counts: Vec<usize>,
}

impl Crossings {
    /// Of the rounds before a statement.
    pub(super) fn new(line: &Line<'_>, end: usize, period: usize) -> Self {
        // How long after it was made each value is used, at most.
        let mut spans: HashMap<Maker, usize> = HashMap::new();
        for at in end - period..end {
            for (n, value) in line.operands[at].values.iter().enumerate() {
                if line.step(at, period, n) == Step::Moved
                    && let Some((maker, result)) = line.maker(value)
                {
                    let span = spans.entry((maker % period, result)).or_insert(0);
                    *span = (at - maker).max(*span);
                }
            }
        }
        let mut changes = vec![0isize; 2 * period + 1];
        for ((maker, _), span) in spans {
            changes[maker + 1] += 1;
            changes[maker + 1 + span.min(period)] -= 1;
        }
        let mut counts = vec![0; period];
        let mut open = 0isize;
        for (i, change) in changes.into_iter().enumerate() {
            open += change;
            counts[i % period] += usize::try_from(open).unwrap_or(0);
        }
        Crossings { period, counts }
    }

    /// Where rounds begin at a statement.
    pub(super) fn at(&self, start: usize) -> usize {
        self.counts[start % self.period]
    }
}
