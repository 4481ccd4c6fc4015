//! Loops whose number of rounds only the run tells.
//!
//! What a round begins with is known once the body was lowered: whether an operand is the same in every round, an integer
//! that grows by the same step, or a tensor some sizes of which rounds change. So the body is lowered with a guess, and
//! again as long as what it yields contradicts that; each time less is taken for given.

use super::{Lowering, Snapshot};
use crate::ir::{Dim, LoopCondition, Op, OpenLoop, RuleError, RuleResult, Symbol, SymbolOrigin, ValueId};
use crate::onnx::operator::{Operand, Outputs};
use kiln_types::{CompareOp, DType};

/// How long a loop runs.
pub(crate) struct Rounds {
    /// The most rounds, if there is a bound.
    pub(crate) trip_count: Option<Dim>,
    /// Whether the first runs.
    pub(crate) condition: Dim,
}

/// Who reads what a loop carries.
#[derive(Clone, Copy)]
pub(crate) struct Readers {
    pub(crate) rounds: bool,
    /// What comes after the loop.
    pub(crate) after: bool,
}

/// What the first round begins with.
#[derive(Clone, Copy)]
pub(crate) struct Initial<'o> {
    pub(crate) operands: &'o [Operand],
    /// Of each operand; of those that are not among them, all do.
    pub(crate) readers: &'o [Readers],
}

/// What a round yields.
pub(crate) struct Round {
    /// Whether another follows.
    pub(crate) condition: Dim,
    /// What that begins with.
    pub(crate) carried: Vec<Operand>,
    /// What is collected of all rounds.
    pub(crate) left: Vec<ValueId>,
}

/// What a round begins with at one place, compared with the loop's operand.
#[derive(Clone, Debug, PartialEq)]
enum Carried {
    /// The operand itself.
    Same,
    /// Small integers on the host, with a step that is not yet known.
    Stepping,
    /// The operand's integers, and so much more for each round before.
    Counted(Vec<Dim>),
    /// A tensor; whether rounds may change the size of each axis.
    Tensor(Vec<bool>),
}

/// A body that was lowered with a guess.
struct Attempt {
    open: OpenLoop,
    round: Round,
    /// The symbols that stood for the integers of operands that step.
    probes: Vec<Symbol>,
}

/// Steps of an attempt, the body's own apart, and of each operand in it.
const ATTEMPT: usize = 64;
const CARRIED: usize = 16;

/// Integers that a loop counts with are few.
const MOST_COUNTED: usize = 8;

/// An operand of a loop, and what is taken for given of it.
struct Place {
    operand: Operand,
    /// The operand's integers, where they are known on the host.
    first: Option<Vec<Dim>>,
    guess: Carried,
    /// Whether more was taken for given before.
    was_wrong: bool,
    /// Whether it stands for an operand of another type. Once: each round may yield another rank.
    stands_in: bool,
}

/// What stands for an operand of another type than what a round yields in its place.
enum Instead {
    /// Zeros of these sizes, for what no round reads: PaddlePaddle's loops carry all variables of their body, of which those that are
    /// set there have no value before the first round.
    Zeros(Vec<Dim>, DType),
    /// The operand, for one number of another rank: PaddlePaddle's exporter adds numbers of rank 1 to counts of rank 0.
    Reshaped(ValueId, Vec<Dim>),
}

/// Lowers a round, given its number and what it begins with.
type Body<'b, 'g, 'm> = dyn Fn(&mut Lowering<'g, 'm>, &Dim, Vec<Operand>) -> RuleResult<Round> + 'b;

impl<'g, 'm> Lowering<'g, 'm> {
    /// A loop over a body.
    pub(crate) fn loop_over(
        &mut self,
        rounds: Rounds,
        initial: Initial<'_>,
        body: &Body<'_, 'g, 'm>,
    ) -> RuleResult<Outputs> {
        let mut before = self.snapshot();
        let mut places: Vec<Place> =
            initial.operands.iter().map(|operand| self.place(operand.clone())).collect();
        let mut first_error = None;
        loop {
            self.repeat(ATTEMPT + CARRIED * places.len())?;
            match self.attempt_round(&places, &before, body) {
                Ok(attempt) => {
                    let unlike = self.unlike(&places, (&rounds, initial.readers), (&attempt, &before));
                    if let Some((place, other)) =
                        unlike.and_then(|(n, other)| Some((places.get_mut(n)?, other)))
                    {
                        self.builder.abandon_loop(attempt.open);
                        self.undo(&before, attempt.probes);
                        let operand = match other {
                            Instead::Zeros(dims, dtype) => self.fill(dims, 0i64, dtype)?,
                            Instead::Reshaped(value, dims) => self.reshape(value, dims)?,
                        };
                        *place = Place { stands_in: true, ..self.place(Operand::Tensor(operand)) };
                        before = self.snapshot();
                        continue;
                    }
                    // All that is in it is looked at again.
                    let inside = self.builder.graph.nodes.len().saturating_sub(attempt.open.node.index());
                    let guesses = self.repeat(inside).and_then(|()| self.judge(&places, &attempt, &before));
                    if let Ok(guesses) = &guesses
                        && places.iter().zip(guesses).all(|(place, guess)| place.guess == *guess)
                    {
                        return self.finish_loop(rounds, &places, attempt, &before);
                    }
                    self.builder.abandon_loop(attempt.open);
                    self.undo(&before, attempt.probes);
                    for (place, guess) in places.iter_mut().zip(guesses?) {
                        let given = matches!(place.guess, Carried::Same | Carried::Counted(_));
                        place.was_wrong |= given && place.guess != guess;
                        place.guess = guess;
                    }
                }
                // A size that rounds change may break a rule where it is taken for the first round's.
                Err(error) => {
                    let nested = self.nested.take();
                    let (error, nested) = first_error.get_or_insert((error, nested));
                    let fixed = |place: &Place| match &place.guess {
                        Carried::Tensor(free) => free.contains(&false),
                        Carried::Same | Carried::Stepping | Carried::Counted(_) => false,
                    };
                    if !places.iter().any(fixed) {
                        self.nested = nested.take();
                        return Err(error.clone());
                    }
                    for place in &mut places {
                        if let Carried::Tensor(free) = &mut place.guess {
                            free.fill(true);
                        }
                    }
                }
            }
        }
    }

    /// The first operand of another type than what a round yields in its place that something else can stand for. After no round,
    /// the operand itself were the result: a first one must be sure, unless nobody reads that.
    fn unlike(
        &self,
        places: &[Place],
        (rounds, readers): (&Rounds, &[Readers]),
        (attempt, before): (&Attempt, &Snapshot),
    ) -> Option<(usize, Instead)> {
        let most = rounds.trip_count.as_ref();
        let runs = most.is_none_or(|most| most.as_constant().is_some_and(|most| most > 0));
        let runs = runs && rounds.condition.is(1);
        let mut all = places.iter().zip(&attempt.round.carried).zip(readers).enumerate();
        all.find_map(|(n, ((place, yielded), readers))| {
            let (&Operand::Tensor(first), &Operand::Tensor(yielded)) = (&place.operand, yielded) else {
                return None;
            };
            let (before_ty, after) = (self.ty(first), self.ty(yielded));
            let alike = before_ty.dtype == after.dtype;
            let fits = alike && before_ty.rank() == after.rank();
            if fits || place.stands_in || (!runs && readers.after) {
                return None;
            }
            let is_one = |dims: &[Dim]| dims.iter().all(|dim| dim.is(1));
            if !readers.rounds {
                Some((n, Instead::Zeros(self.sizes_outside(after.dims.clone(), before), after.dtype)))
            } else if alike && is_one(&before_ty.dims) && is_one(&after.dims) {
                Some((n, Instead::Reshaped(first, after.dims.clone())))
            } else {
                None
            }
        })
    }

    /// Sizes as far as they are known before the loop, and 0 for the others.
    fn sizes_outside(&self, dims: Vec<Dim>, before: &Snapshot) -> Vec<Dim> {
        let known = |dim| if self.is_outside(&dim, before) { dim } else { Dim::constant(0) };
        dims.into_iter().map(known).collect()
    }

    /// An operand with the guess to begin with.
    fn place(&self, operand: Operand) -> Place {
        let (mut first, mut guess) = (None, Carried::Same);
        if let &Operand::Tensor(value) = &operand {
            let ty = self.ty(value);
            first.clone_from(&self.builder.graph.value(value).host);
            let counts = matches!(ty.dtype, DType::I64 | DType::I32) && ty.rank() <= 1;
            let few = first.as_ref().is_some_and(|first| first.len() <= MOST_COUNTED);
            guess = if counts && few { Carried::Stepping } else { Carried::Tensor(vec![false; ty.rank()]) };
        }
        Place { operand, first, guess, was_wrong: false, stands_in: false }
    }

    /// Lowers the body with the guesses.
    fn attempt_round(
        &mut self,
        places: &[Place],
        before: &Snapshot,
        body: &Body<'_, 'g, 'm>,
    ) -> RuleResult<Attempt> {
        let mut kept = Vec::new();
        for place in places {
            if let (&Operand::Tensor(value), false) = (&place.operand, place.guess == Carried::Same) {
                let fixed = || vec![false; self.rank(value)];
                kept.push((
                    value,
                    match &place.guess {
                        Carried::Tensor(free) => free.clone(),
                        Carried::Same | Carried::Stepping | Carried::Counted(_) => fixed(),
                    },
                ));
            }
        }
        let open = self.builder.open_loop(&kept);
        let mut probes = Vec::new();
        let result = self.round(places, &open, &mut probes, body);
        match result {
            Ok(round) => Ok(Attempt { open, round, probes }),
            Err(error) => {
                let nested = self.nested.take();
                self.builder.abandon_loop(open);
                self.undo(before, probes);
                self.nested = nested;
                Err(error)
            }
        }
    }

    fn round(
        &mut self,
        places: &[Place],
        open: &OpenLoop,
        probes: &mut Vec<Symbol>,
        body: &Body<'_, 'g, 'm>,
    ) -> RuleResult<Round> {
        let iteration = Dim::symbol(open.iteration.clone());
        let mut parameters = open.parameters.iter();
        let mut given = Vec::with_capacity(places.len());
        for place in places {
            let (&Operand::Tensor(value), false) = (&place.operand, place.guess == Carried::Same) else {
                given.push(place.operand.clone());
                continue;
            };
            let Some(&parameter) = parameters.next() else { continue };
            given.push(Operand::Tensor(match &place.guess {
                Carried::Same | Carried::Tensor(_) => parameter,
                Carried::Stepping => {
                    let integers = self.probe(place, open, probes);
                    self.integers_like(value, integers)?
                }
                Carried::Counted(steps) => self.integers_like(value, counted(place, steps, &iteration))?,
            }));
        }
        let round = body(self, &iteration, given)?;
        if round.carried.len() == places.len() {
            return Ok(round);
        }
        let reason = format!("yields {} values of {} that it takes", round.carried.len(), places.len());
        Err(RuleError::Attribute { attribute: "body".to_owned(), reason })
    }

    /// Symbols that stand for an operand's integers. They may be anything, as what is read back may be.
    fn probe(&mut self, place: &Place, open: &OpenLoop, probes: &mut Vec<Symbol>) -> Vec<Dim> {
        let count = place.first.as_ref().map_or(0, Vec::len);
        let mut dims = Vec::with_capacity(count);
        for _ in 0..count {
            let symbol = self.builder.graph.fresh_symbol("n");
            let origin = SymbolOrigin::Read { node: open.node, index: probes.len() };
            self.builder.graph.symbols.insert(symbol.clone(), origin);
            probes.push(symbol.clone());
            dims.push(Dim::symbol(symbol));
        }
        dims
    }

    /// Integers on the host as a tensor of the type of another.
    fn integers_like(&mut self, value: ValueId, integers: Vec<Dim>) -> RuleResult<ValueId> {
        let dims = self.ty(value).shape().unwrap_or_default();
        let tensor = self.builder.host_tensor(integers, dims)?;
        self.cast(tensor, self.dtype(value))
    }

    /// Undoes an attempt whose region is closed.
    fn undo(&mut self, before: &Snapshot, probes: Vec<Symbol>) {
        self.restore(before);
        for symbol in probes {
            self.builder.graph.symbols.remove(&symbol);
        }
    }

    /// Whether a dim is known before the loop.
    fn is_outside(&self, dim: &Dim, before: &Snapshot) -> bool {
        let there = |symbol| self.builder.graph.symbols.get(symbol).is_some_and(|origin| before.has(origin));
        dim.symbols().iter().all(there)
    }

    /// What is left of the guesses after a round that began with them.
    fn judge(&self, places: &[Place], attempt: &Attempt, before: &Snapshot) -> RuleResult<Vec<Carried>> {
        let graph = &*self.builder.graph;
        let iteration = Dim::symbol(attempt.open.iteration.clone());
        let mut parameters = attempt.open.parameters.iter();
        let mut probes = attempt.probes.iter();
        let mut guesses = Vec::with_capacity(places.len());
        for (place, yielded) in places.iter().zip(&attempt.round.carried) {
            let (first, yielded) = match (&place.operand, yielded) {
                (Operand::Tensor(first), Operand::Tensor(yielded)) => (*first, *yielded),
                (Operand::Sequence(first), Operand::Sequence(yielded)) if first == yielded => {
                    guesses.push(Carried::Same);
                    continue;
                }
                (Operand::Absent, Operand::Absent) => {
                    guesses.push(Carried::Same);
                    continue;
                }
                (Operand::Strings(first), Operand::Strings(yielded))
                | (Operand::Maps(first, _), Operand::Maps(yielded, _))
                    if first == yielded =>
                {
                    guesses.push(Carried::Same);
                    continue;
                }
                (first, yielded) => {
                    let other = if matches!(first, Operand::Tensor(_)) { yielded } else { first };
                    let what = format!(
                        "{} that a loop changes in a number of rounds which is not known when the model is compiled, or \
                         too large to write them out",
                        other.kind()
                    );
                    return Err(RuleError::Unsupported { what });
                }
            };
            self.check_carried(first, yielded)?;
            let (before_ty, after) = (self.ty(first), graph.value(yielded));
            let host = after.host.as_ref().filter(|_| after.ty == *before_ty);
            let tensor = || Carried::Tensor(vec![false; before_ty.rank()]);
            guesses.push(match &place.guess {
                Carried::Same => {
                    let same = first == yielded || (host.is_some() && host == place.first.as_ref());
                    if same { Carried::Same } else { tensor() }
                }
                Carried::Stepping => {
                    parameters.next();
                    let stood: Vec<Dim> = probes
                        .by_ref()
                        .take(place.first.as_ref().map_or(0, Vec::len))
                        .map(|symbol| Dim::symbol(symbol.clone()))
                        .collect();
                    let steps: Option<Vec<Dim>> = host
                        .map(|host| host.iter().zip(&stood).map(|(after, before)| after - before).collect());
                    match steps.filter(|steps| steps.iter().all(|step| self.is_outside(step, before))) {
                        Some(steps) if steps.iter().all(|step| step.is(0)) => Carried::Same,
                        Some(steps) => Carried::Counted(steps),
                        None => tensor(),
                    }
                }
                Carried::Counted(steps) => {
                    parameters.next();
                    let next = counted(place, steps, &(&iteration + &Dim::constant(1)));
                    if host == Some(&next) && !next.iter().any(Dim::is_saturated) {
                        place.guess.clone()
                    } else {
                        tensor()
                    }
                }
                Carried::Tensor(free) => {
                    let parameter = parameters.next().copied();
                    if parameter == Some(yielded) && !place.was_wrong {
                        Carried::Same
                    } else {
                        let began = parameter.map_or(before_ty, |parameter| self.ty(parameter));
                        let dims = began.dims.iter().zip(&after.ty.dims);
                        Carried::Tensor(free.iter().zip(dims).map(|(free, (a, b))| *free || a != b).collect())
                    }
                }
            });
        }
        Ok(guesses)
    }

    /// What is carried must keep its dtype and rank.
    fn check_carried(&self, first: ValueId, yielded: ValueId) -> RuleResult<()> {
        let (first, yielded) = (self.ty(first), self.ty(yielded));
        if first.dtype != yielded.dtype {
            return Err(RuleError::DTypesDiffer {
                left: "what the loop begins with".to_owned(),
                left_dtype: first.dtype,
                right: "what a round yields for it".to_owned(),
                right_dtype: yielded.dtype,
            });
        }
        if first.rank() != yielded.rank() {
            let (before, after) = (first.rank(), yielded.rank());
            let what = format!("a loop that makes a tensor of rank {after} of one of rank {before}");
            return Err(RuleError::Unsupported { what });
        }
        Ok(())
    }

    /// The number of rounds of a loop that goes on while a count is below a number: `again` for the rounds after the first, `first` for that.
    fn counted_rounds(&self, again: &Dim, first: &Dim, open: &OpenLoop, before: &Snapshot) -> Option<Dim> {
        let (CompareOp::Lower, count, bound) = again.as_comparison()? else { return None };
        // Rounds that there were, and how many there may be.
        let done = &Dim::symbol(open.iteration.clone()) + &Dim::constant(1);
        let most = &done + &(bound - count);
        let begins = self.builder.graph.compare(CompareOp::Lower, &Dim::constant(0), &most);
        (self.is_outside(&most, before) && *first == begins).then_some(most)
    }

    /// Appends the loop.
    fn finish_loop(
        &mut self,
        rounds: Rounds,
        places: &[Place],
        attempt: Attempt,
        before: &Snapshot,
    ) -> RuleResult<Outputs> {
        let Attempt { open, mut round, probes } = attempt;
        let Rounds { trip_count, condition } = self.settled(rounds, &mut round, &open, before);
        let ends = round.condition.as_constant().is_none();
        let least = trip_count.as_ref().and_then(Dim::as_constant);
        if condition.is(0) || least.is_some_and(|most| most <= 0) {
            return self.without_rounds(Attempt { open, round, probes }, places, before);
        }
        if trip_count.is_none() && !ends {
            let what = "a loop without an end: it has no number of rounds, and its condition always holds"
                .to_owned();
            self.builder.abandon_loop(open);
            self.undo(before, probes);
            return Err(RuleError::Unsupported { what });
        }
        if ends {
            let again = Op::LoopCondition(LoopCondition { condition: round.condition });
            self.builder.add_all(again, Vec::new())?;
        }
        let mut yielded = Vec::with_capacity(open.parameters.len() + round.left.len());
        for (place, operand) in places.iter().zip(round.carried) {
            if let (Operand::Tensor(value), false) = (operand, place.guess == Carried::Same) {
                yielded.push(value);
            }
        }
        yielded.extend(round.left);
        let run = match &trip_count {
            Some(most) if !ends && condition.is(1) => {
                Some(self.builder.graph.maximum(most, &Dim::constant(0)))
            }
            _ => None,
        };
        let outputs = self.builder.close_loop(open, (trip_count, condition), yielded)?;
        self.results(places, outputs, run.as_ref())
    }

    /// How many rounds there are at most, and whether there is a first, as far as what a round says of the next one settles it.
    fn settled(&mut self, rounds: Rounds, round: &mut Round, open: &OpenLoop, before: &Snapshot) -> Rounds {
        let Rounds { mut trip_count, mut condition } = rounds;
        if let Some(count) = self.counted_rounds(&round.condition, &condition, open, before) {
            trip_count = Some(match trip_count {
                Some(most) if !is_beyond_all(&most) => self.builder.graph.minimum(&most, &count),
                Some(_) | None => count,
            });
            (condition, round.condition) = (Dim::constant(1), Dim::constant(1));
        }
        if round.condition.is(0) {
            let one = Dim::constant(1);
            trip_count = Some(trip_count.map_or(one.clone(), |most| self.builder.graph.minimum(&most, &one)));
        }
        let ends = round.condition.as_constant().is_none();
        trip_count = trip_count.filter(|most| !(ends && is_beyond_all(most)));
        if let Some(most) = trip_count.as_mut().filter(|_| condition.as_constant().is_none()) {
            *most = &*most * &condition;
            condition = Dim::constant(1);
        }
        Rounds { trip_count, condition }
    }

    /// What a loop yields that has no round: what it was given, and nothing of what rounds leave.
    fn without_rounds(
        &mut self,
        attempt: Attempt,
        places: &[Place],
        before: &Snapshot,
    ) -> RuleResult<Outputs> {
        let Attempt { open, round, probes } = attempt;
        let mut left = Vec::with_capacity(round.left.len());
        for value in round.left {
            let mut dims = self.sizes_outside(self.dims(value), before);
            dims.insert(0, Dim::constant(0));
            left.push((dims, self.dtype(value)));
        }
        self.builder.abandon_loop(open);
        self.undo(before, probes);
        let mut outputs: Vec<Operand> = places.iter().map(|place| place.operand.clone()).collect();
        for (dims, dtype) in left {
            outputs.push(Operand::Tensor(self.fill(dims, 0i64, dtype)?));
        }
        Ok(Outputs(outputs))
    }

    /// What the loop's node yields, and what is known of it without: what is the same in every round, and what counts so many.
    fn results(&mut self, places: &[Place], outputs: Vec<ValueId>, run: Option<&Dim>) -> RuleResult<Outputs> {
        let mut outputs = outputs.into_iter();
        let mut results = Vec::with_capacity(outputs.len());
        for place in places {
            let (&Operand::Tensor(first), false) = (&place.operand, place.guess == Carried::Same) else {
                results.push(place.operand.clone());
                continue;
            };
            let output = outputs.next();
            let result = match (&place.guess, run) {
                (Carried::Counted(steps), Some(run)) => {
                    Some(self.integers_like(first, counted(place, steps, run))?)
                }
                _ => output,
            };
            results.extend(result.map(Operand::Tensor));
        }
        results.extend(outputs.map(Operand::Tensor));
        Ok(Outputs(results))
    }
}

/// Whether a bound is as many rounds as no loop has: none, where something else ends it.
fn is_beyond_all(most: &Dim) -> bool {
    most.as_constant().is_some_and(|most| most >= i64::from(i32::MAX))
}

/// The integers of an operand that counts, after so many rounds.
fn counted(place: &Place, steps: &[Dim], rounds: &Dim) -> Vec<Dim> {
    let first = place.first.iter().flatten();
    first.zip(steps).map(|(first, step)| first + &(step * rounds)).collect()
}
