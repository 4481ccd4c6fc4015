//! A body's statements in a line, and the stretches of it that repeat.

use super::found::{Crossings, Found};
use super::{Around, listed};
use crate::code::{Block, Body, Code, Place, Statement};
use crate::ids::{FieldId, Id, SlotId, VarId};
use kiln_importer::ir::ValueId;
use kiln_types::DTypeKind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Rounds of more statements are not looked for: statements are compared at every distance up to here.
const MAX_PERIOD: usize = 384;
/// Two rounds read as well one after the other.
pub(super) const MIN_ROUNDS: usize = 3;
/// How often each statement is looked at, on average, to see whether what repeats are rounds.
const MAX_LOOKS: usize = 48;
/// Where rounds could begin, tried in turn.
const MAX_STARTS: usize = 6;
/// So many statements in a row that are like no others may stand between those of rounds.
const MAX_GAP: usize = 4;
/// What a loop must save, in half lines.
const MIN_SAVED: usize = 16;
/// Likewise, where they go over some items of a list.
const MIN_SAVED_OF_ITEMS: usize = 8;
/// Likewise, where they go over all items, or all but the last: the original network has the loop, too.
const MIN_SAVED_OF_ALL: usize = 0;
/// What a value that is carried costs, and a list.
const CARRIED: usize = 4;
const LIST: usize = 4;

/// What a statement does, operands and numbers aside: equal shapes are the same thing done to others.
#[derive(PartialEq, Eq, Hash)]
struct Outline {
    statement: Statement,
    results: Vec<(DTypeKind, usize)>,
}

/// What a statement does it with.
pub(super) struct Operands {
    /// Variables and parameters.
    pub(super) values: Vec<Code>,
    pub(super) slots: Vec<SlotId>,
    /// Where the layers and modules are that it calls.
    pub(super) places: Vec<Place>,
    /// Half lines that it takes, about.
    weight: usize,
}

/// How an operand follows from that of the statement a period before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is the same.
    Same,
    /// Both were made as long before.
    Moved,
    /// Neither.
    Other,
}

/// Statements in a line.
pub(super) struct Line<'a> {
    pub(super) block: &'a Block,
    pub(super) body: &'a Body,
    pub(super) around: &'a Around<'a>,
    /// Where each statement of the line stands in the block. Few in a row that are like no others are passed over.
    pub(super) positions: Vec<usize>,
    /// Where each statement of the block stands in the line.
    index: Vec<Option<usize>>,
    /// What each statement does. Those of a loop that was found have numbers of their own.
    does: Vec<usize>,
    pub(super) operands: Vec<Operands>,
    /// Where in the block each variable is made.
    pub(super) makers: HashMap<VarId, (usize, usize)>,
    /// Where in the block each variable is used, in order; by the results at the end.
    pub(super) users: HashMap<VarId, Vec<usize>>,
    /// Variables whose dims are read.
    pub(super) sources: HashSet<VarId>,
    /// Statements of the block that are of rounds that were found, and calls of their lists.
    pub(super) taken: HashSet<usize>,
    looks: usize,
}

/// A block in which what is only reshaped for a list stands where it is made.
pub(super) fn ordered(block: &Block) -> Block {
    let makers: HashMap<VarId, usize> = block
        .statements
        .iter()
        .enumerate()
        .flat_map(|(i, statement)| statement.outputs().iter().map(move |&output| (output, i)))
        .collect();
    let uses = block.uses();
    // Statements behind each statement, in order.
    let mut behind: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for items in block.statements.iter().filter_map(listed).filter(|items| items.len() >= MIN_ROUNDS) {
        for var in items.iter().filter_map(Code::var).filter(|var| uses.get(var) == Some(&1)) {
            if let Some(&at) = makers.get(&var)
                && let Some(value) = super::super::inline::only_reshapes(&block.statements[at])
                && let Some(&maker) = makers.get(&value)
                && maker < at
            {
                behind.entry(maker).or_default().push(at);
            }
        }
    }
    let moved: HashSet<usize> = behind.values().flatten().copied().collect();
    let mut statements: Vec<Statement> = Vec::with_capacity(block.statements.len());
    for start in (0..block.statements.len()).filter(|i| !moved.contains(i)) {
        let mut waiting = vec![start];
        while let Some(i) = waiting.pop() {
            statements.extend(block.statements.get(i).cloned());
            waiting.extend(behind.get(&i).into_iter().flatten().rev());
        }
    }
    Block { statements, results: block.results.clone() }
}

impl<'a> Line<'a> {
    pub(super) fn new(block: &'a Block, body: &'a Body, around: &'a Around<'a>) -> Self {
        let mut line = Line {
            block,
            body,
            around,
            positions: Vec::new(),
            index: vec![None; block.statements.len()],
            does: Vec::new(),
            operands: Vec::new(),
            makers: HashMap::new(),
            users: HashMap::new(),
            sources: body.sources.iter().map(|source| source.var).collect(),
            taken: HashSet::new(),
            looks: block.statements.len() * MAX_LOOKS,
        };
        let mut known: HashMap<Outline, (usize, usize)> = HashMap::new();
        let mut found: Vec<(Option<usize>, Operands)> = Vec::with_capacity(block.statements.len());
        for (i, statement) in block.statements.iter().enumerate() {
            line.makers.extend(statement.outputs().iter().enumerate().map(|(n, &var)| (var, (i, n))));
            for var in statement.codes().into_iter().flat_map(Code::vars) {
                line.users.entry(var).or_default().push(i);
            }
            let (outline, operands) = line.outline(statement);
            let does = outline.map(|outline| {
                let (does, count) = known.entry(outline).or_insert((i, 0));
                *count += 1;
                *does
            });
            found.push((does, operands));
        }
        for var in block.results.iter().flat_map(Code::vars) {
            line.users.entry(var).or_default().push(block.statements.len());
        }
        let repeated: HashSet<usize> =
            known.into_values().filter(|&(_, count)| count >= MIN_ROUNDS).map(|(does, _)| does).collect();
        let is_rare = |(i, (does, _)): (usize, &(Option<usize>, Operands))| {
            does.is_some_and(|does| !repeated.contains(&does)) && line.can_move(i)
        };
        let rare: Vec<bool> = found.iter().enumerate().map(is_rare).collect();
        let mut passed = vec![false; rare.len()];
        let mut start = 0;
        for gap in rare.chunk_by(|a, b| a == b) {
            let end = start + gap.len();
            if gap.first() == Some(&true) && gap.len() <= MAX_GAP {
                passed[start..end].fill(true);
            }
            start = end;
        }
        for (i, (does, operands)) in found.into_iter().enumerate().filter(|&(i, _)| !passed[i]) {
            line.index[i] = Some(line.positions.len());
            line.positions.push(i);
            line.does.push(does.unwrap_or(usize::MAX - i));
            line.operands.push(operands);
        }
        line
    }

    /// Whether a statement may stand elsewhere, as far as its values go.
    fn can_move(&self, at: usize) -> bool {
        let Some(Statement::Bind { outputs, .. }) = self.block.statements.get(at) else { return false };
        self.around.is_repeatable && !outputs.iter().any(|var| self.sources.contains(var))
    }

    /// The statement at a place of the line.
    pub(super) fn statement(&self, at: usize) -> Option<&'a Statement> {
        self.block.statements.get(*self.positions.get(at)?)
    }

    /// Where in the line the statement that makes a value stands, and which of its results that is.
    pub(super) fn maker(&self, value: &Code) -> Option<(usize, usize)> {
        let &(at, n) = self.makers.get(&value.var()?)?;
        Some((self.index[at]?, n))
    }

    /// Kind and rank of a variable.
    pub(super) fn kind(&self, var: VarId) -> (DTypeKind, usize) {
        let value: ValueId = self.body.vars[var];
        let ty = self.around.graph.ty(value);
        (ty.dtype.kind(), ty.rank())
    }

    /// What a statement does, if it may be part of a round, and with what.
    fn outline(&self, statement: &Statement) -> (Option<Outline>, Operands) {
        let mut operands =
            Operands { values: Vec::new(), slots: Vec::new(), places: Vec::new(), weight: weight(statement) };
        let can_repeat = |statement: &Statement| match statement {
            Statement::Bind { .. } | Statement::Loop { .. } | Statement::Repeat(_) => true,
            Statement::Read { .. }
            | Statement::If { .. }
            | Statement::Optional { .. }
            | Statement::List { .. }
            | Statement::Push { .. } => false,
        };
        let inner = || statement.blocks().into_iter().flat_map(Block::all_statements);
        if !can_repeat(statement) || !inner().all(can_repeat) {
            return (None, operands);
        }
        let mut own: HashMap<VarId, VarId> = HashMap::new();
        for &var in std::iter::once(statement)
            .chain(inner())
            .flat_map(|statement| statement.outputs().iter().chain(statement.parameters()))
        {
            let next = VarId::at(own.len());
            own.entry(var).or_insert(next);
        }
        let mut block = Block { statements: vec![statement.clone()], results: Vec::new() };
        block.visit_mut(&mut |code| match code {
            Code::Use(var) | Code::Clone(var) | Code::Name(var) if own.contains_key(var) => {}
            Code::Use(_) | Code::Clone(_) | Code::Name(_) | Code::Parameter(_) | Code::Held(..) => {
                operands.values.push(std::mem::replace(code, Code::Local(String::new())));
            }
            Code::Slot(slot) => {
                operands.slots.push(*slot);
                *slot = SlotId::at(0);
            }
            code => {
                if let Some(place) = code.callee_mut() {
                    operands.places.push(*place);
                    place.position = None;
                }
                code.normalize();
            }
        });
        block.visit_vars(&mut |var| {
            if let Some(&number) = own.get(var) {
                *var = number;
            }
        });
        let results = statement.outputs().iter().map(|&var| self.kind(var)).collect();
        (block.statements.pop().map(|statement| Outline { statement, results }), operands)
    }

    /// How an operand follows from that of the statement a period before.
    pub(super) fn step(&self, at: usize, period: usize, n: usize) -> Step {
        let (now, before) = (&self.operands[at].values[n], &self.operands[at - period].values[n]);
        if now == before {
            return Step::Same;
        }
        match (self.maker(now), self.maker(before)) {
            (Some((now, n)), Some((before, m))) if now == before + period && n == m => Step::Moved,
            _ => Step::Other,
        }
    }

    /// All rounds, none within another's, the shortest first.
    pub(super) fn rounds(mut self) -> Vec<Found> {
        let length = self.does.len();
        let mut found = Vec::new();
        for period in 1..=MAX_PERIOD.min(length / MIN_ROUNDS) {
            let mut start = 0;
            while start + period < length {
                let repeats = |i: usize| self.does.get(i) == self.does.get(i + period);
                let end = start + (start..length - period).take_while(|&i| repeats(i)).count();
                if end + period >= start + MIN_ROUNDS * period {
                    self.in_run(start, end + period, period, &mut found);
                }
                start = end + 1;
            }
            if self.looks == 0 {
                break;
            }
        }
        found
    }

    /// Looks for rounds in a stretch of statements that each do what the one a period before does.
    fn in_run(&mut self, start: usize, end: usize, period: usize, found: &mut Vec<Found>) {
        let mut floor = start;
        // From here on, all follow from the statement a period before.
        let mut from = start + period;
        for i in start + period..=end {
            if self.looks == 0 {
                return;
            }
            self.looks -= 1;
            let follows =
                i < end && (0..self.operands[i].values.len()).all(|n| self.step(i, period, n) != Step::Other);
            if follows {
                continue;
            }
            // What the first round begins with may come from anywhere.
            let first = floor.max(from.saturating_sub(2 * period));
            if first + MIN_ROUNDS * period <= i
                && from + period <= i
                && let Some(rounds) = self.between(first, i, period)
            {
                floor = rounds.start + rounds.period * rounds.times;
                let positions = rounds.positions.iter().copied();
                for at in positions.chain(rounds.gathered.iter().map(|gathered| gathered.call)) {
                    self.taken.insert(at);
                    if let Some(in_line) = self.index[at] {
                        self.does[in_line] = usize::MAX - at;
                    }
                }
                found.push(rounds);
            }
            from = (i + 1).max(floor + period);
        }
    }

    /// The best rounds between two statements: which begin where little is carried, then the most, then the last.
    fn between(&mut self, first: usize, end: usize, period: usize) -> Option<Found> {
        let weight: usize = self.operands[end - period..end].iter().map(|operands| operands.weight).sum();
        let most = (end - first) / period;
        let mut places = self.operands[end - period..end].iter().flat_map(|operands| &operands.places);
        let (least, costs) = match places.any(|place| place.position.is_some()) {
            true => (MIN_SAVED_OF_ALL, CARRIED.min(LIST)),
            false => (MIN_SAVED, CARRIED.min(weight)),
        };
        if weight * (most - 1) < least + costs {
            return None;
        }
        let crossings = Crossings::new(self, end, period);
        let mut starts: Vec<usize> = (first..first + period)
            .filter(|start| start + MIN_ROUNDS.max(most - 1) * period <= end)
            .collect();
        starts.sort_by_key(|&start| (crossings.at(start), Reverse((end - start) / period), Reverse(start)));
        let is_worth = |found: &Found| {
            let is_all = |&(field, from): &(FieldId, usize)| {
                from == 0 && found.times + 1 >= self.body.length_at(field)
            };
            let least = match found.items.as_slice() {
                [] => MIN_SAVED,
                items if items.iter().all(is_all) => MIN_SAVED_OF_ALL,
                _ => MIN_SAVED_OF_ITEMS,
            };
            let costs = least + CARRIED * found.carried.len() + LIST * found.gathered.len();
            weight * (found.times - 1) >= costs
        };
        starts.truncate(MAX_STARTS);
        let times = |start: usize| (end - start) / period;
        let all = starts.iter().map(|&start| (start, times(start)));
        // The last or the first may do more for what comes after or before it.
        let fewer = starts.iter().flat_map(|&start| {
            let fewer = times(start) - 1;
            [(start, fewer), (start + period, fewer)]
        });
        for (start, times) in all.chain(fewer).filter(|&(_, times)| times >= MIN_ROUNDS) {
            self.looks = self.looks.saturating_sub(times * period);
            if let Some(found) = Found::new(self, start, period, times).filter(is_worth) {
                return Some(found);
            }
        }
        None
    }
}

/// Half lines that a statement takes, about: what is done to one value by a method joins a longer expression.
fn weight(statement: &Statement) -> usize {
    match statement {
        Statement::Bind { code: code @ Code::Method(..), .. } if code.vars().len() < 2 => 1,
        // The results are taken apart.
        Statement::Bind { outputs, code: Code::Module(_, args) } if outputs.len() > 1 => 4 + args.len(),
        Statement::Bind { .. }
        | Statement::Read { .. }
        | Statement::Optional { .. }
        | Statement::List { .. }
        | Statement::Push { .. } => 2,
        Statement::Loop { args, .. } => 6 + args.len(),
        Statement::If { .. } | Statement::Repeat(_) => {
            let inner = statement.blocks().into_iter().flat_map(|block| &block.statements);
            4 + inner.map(weight).sum::<usize>()
        }
    }
}
