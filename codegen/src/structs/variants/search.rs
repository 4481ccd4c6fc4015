//! Where the code of a shorter module is in that of a fuller one.

use super::{Alignment, MAX_COMPARISONS, MAX_OPTIONAL, fields_of};
use crate::code::{Block, Code, Init, Statement};
use crate::ids::{FieldId, Id, ModuleId, SlotId, VarId};
use crate::structs::{Draft, Sharing};
use crate::tree::Content;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Looks for the code of a shorter module in that of a fuller one.
pub(super) struct Search<'a> {
    full: &'a Draft,
    short: &'a Draft,
    /// Without numbers and defaults, with the fuller code's fields.
    blocks: [Block; 2],
    known: &'a BTreeMap<usize, usize>,
    may_miss: Box<dyn Fn(&Statement) -> bool + 'a>,
    alike: Box<dyn Fn(VarId, VarId) -> bool + 'a>,
    same_type: Box<dyn Fn(VarId, VarId) -> bool + 'a>,
    /// The variable of the fuller code for each of the shorter.
    fuller: HashMap<VarId, VarId>,
    /// The variable that stands for the result of a statement that is missing.
    instead: HashMap<VarId, VarId>,
    /// What was found, in the order in which it was found.
    trail: Vec<Found>,
    missing: BTreeMap<usize, usize>,
}

/// One thing that was found.
enum Found {
    Pair(VarId, VarId),
    Missing { at: usize, output: VarId },
    Slots(SlotId, SlotId),
}

/// What to try next at a pair of statements.
#[derive(Clone, Copy)]
enum Attempt {
    /// They are one.
    Match,
    /// The fuller code's is missing, this operand standing for its result.
    Miss(usize),
}

impl<'a> Search<'a> {
    pub(super) fn new(
        sharing: &'a Sharing<'_, '_>,
        full: ModuleId,
        short: ModuleId,
        known: &'a BTreeMap<usize, usize>,
    ) -> Self {
        let (a, b) = (&sharing.modules[full], &sharing.modules[short]);
        let keys: HashMap<&str, FieldId> =
            a.fields.enumerate().map(|(id, field)| (field.key.as_str(), id)).collect();
        let fields: HashMap<FieldId, FieldId> = b
            .fields
            .enumerate()
            .filter_map(|(id, field)| Some((id, *keys.get(field.key.as_str())?)))
            .collect();
        let graph = sharing.tree.graph;
        let ty = move |draft: &'a Draft, var: VarId| graph.ty(draft.body.vars[var]);
        Search {
            full: a,
            short: b,
            blocks: [
                plain(&a.body.block, &|field| Some(field)),
                plain(&b.body.block, &|field| fields.get(&field).copied()),
            ],
            known,
            may_miss: Box::new(move |statement| {
                fields_of(statement).into_iter().all(|field| match a.fields[field].content {
                    Content::Layer(node) => !sharing.read_elsewhere.contains(&node),
                    Content::Module(_) | Content::Parameter(_) => true,
                    Content::Sequence(_) | Content::Absent => false,
                })
            }),
            alike: Box::new(move |x, y| {
                let (x, y) = (ty(a, x), ty(a, y));
                x.dtype.kind() == y.dtype.kind() && x.rank() == y.rank()
            }),
            same_type: Box::new(move |x, y| {
                let (x, y) = (ty(a, x), ty(b, y));
                x.dtype.kind() == y.dtype.kind() && x.rank() == y.rank()
            }),
            fuller: HashMap::new(),
            instead: HashMap::new(),
            trail: Vec::new(),
            missing: BTreeMap::new(),
        }
    }

    /// Looks for it, statement by statement; each comparison is taken from those that are left.
    pub(super) fn run(mut self, comparisons: &mut usize) -> Option<Alignment> {
        let inputs: Vec<_> = self.full.body.inputs.iter().zip(&self.short.body.inputs).collect();
        for (&x, &y) in inputs {
            if !(self.same_type)(x, y) {
                return None;
            }
            self.pair(x, y);
        }
        self.fields()?;
        let mut attempts = vec![(0, 0, Attempt::Match, self.trail.len())];
        for _ in 0..MAX_COMPARISONS {
            *comparisons = comparisons.checked_sub(1)?;
            let (i, j, attempt, mark) = attempts.pop()?;
            self.take_back(mark);
            if i == self.blocks[0].statements.len() {
                if j == self.blocks[1].statements.len() && self.ends_match() && self.explains_fields()? {
                    return Some(self.alignment());
                }
                continue;
            }
            match attempt {
                Attempt::Match => {
                    attempts.push((i, j, Attempt::Miss(0), mark));
                    if self.matches(i, j) {
                        attempts.push((i + 1, j + 1, Attempt::Match, self.trail.len()));
                    }
                }
                Attempt::Miss(operand) => {
                    let Some(is_missing) = self.miss(i, operand) else { continue };
                    attempts.push((i, j, Attempt::Miss(operand + 1), mark));
                    if is_missing {
                        attempts.push((i + 1, j, Attempt::Match, self.trail.len()));
                    }
                }
            }
        }
        None
    }

    fn pair(&mut self, x: VarId, y: VarId) {
        self.fuller.insert(y, x);
        self.trail.push(Found::Pair(x, y));
    }

    fn take_back(&mut self, mark: usize) {
        for step in self.trail.drain(mark..) {
            match step {
                Found::Pair(_, y) => {
                    self.fuller.remove(&y);
                }
                Found::Missing { at, output } => {
                    self.missing.remove(&at);
                    self.instead.remove(&output);
                }
                Found::Slots(..) => {}
            }
        }
    }

    /// The shorter code's fields must be among the fuller one's, in the same order.
    fn fields(&mut self) -> Option<()> {
        let (a, b) = (self.full, self.short);
        let mut from = 0;
        for (j, field) in b.fields.iter().enumerate() {
            let i = from + a.fields.iter().skip(from).position(|other| other.key == field.key)?;
            let (at, other) = (FieldId::at(i), FieldId::at(j));
            // What one member's checkpoint is folded into, the other's must be.
            if a.origins.get(at) != b.origins.get(other) {
                return None;
            }
            let (x, y) = (a.body.inits.get(at)?, b.body.inits.get(other)?);
            if plain_init(x) != plain_init(y) {
                return None;
            }
            self.pair_slots(&x.codes(), &y.codes())?;
            from = i + 1;
        }
        Some(())
    }

    fn pair_slots(&mut self, a: &[&Code], b: &[&Code]) -> Option<()> {
        let slots = |codes: &[&Code]| codes.iter().flat_map(|code| code.slots()).collect::<Vec<SlotId>>();
        let (a, b) = (slots(a), slots(b));
        if a.len() != b.len() {
            return None;
        }
        self.trail.extend(a.into_iter().zip(b).map(|(a, b)| Found::Slots(a, b)));
        Some(())
    }

    /// Whether two statements are one; their variables are paired then.
    fn matches(&mut self, i: usize, j: usize) -> bool {
        let [full, short] = [self.full, self.short].map(|draft| &draft.body.block.statements);
        let (Some(a), Some(b)) = (full.get(i), short.get(j)) else { return false };
        let (outputs, others) = (all_outputs(a), all_outputs(b));
        if outputs.len() != others.len()
            || !outputs.iter().zip(&others).all(|(&x, &y)| (self.same_type)(x, y))
            || self.pair_slots(&a.codes(), &b.codes()).is_none()
        {
            return false;
        }
        for (x, y) in outputs.into_iter().zip(others) {
            self.pair(x, y);
        }
        let [full, short] = &self.blocks;
        let with_stand_ins = |var| Some(self.instead.get(&var).copied().unwrap_or(var));
        let a = with_vars(&full.statements[i], &with_stand_ins);
        let b = with_vars(&short.statements[j], &|var| self.fuller_var(var));
        a.is_some() && a == b
    }

    /// The fuller code's variable for one of the shorter.
    fn fuller_var(&self, var: VarId) -> Option<VarId> {
        self.fuller.get(&var).copied()
    }

    /// Whether a statement can be missing, with an operand standing for its result; `None` when there is no such operand.
    fn miss(&mut self, i: usize, operand: usize) -> Option<bool> {
        let statement = &self.full.body.block.statements[i];
        let Statement::Bind { outputs, code } = statement else { return None };
        let &[output] = outputs.as_slice() else { return None };
        if self.missing.len() >= MAX_OPTIONAL || !(self.may_miss)(statement) {
            return None;
        }
        let &value = code.vars().get(operand)?;
        if !(self.alike)(value, output) || self.known.get(&i).is_some_and(|&known| known != operand) {
            return Some(false);
        }
        let stand_in = self.instead.get(&value).copied().unwrap_or(value);
        self.instead.insert(output, stand_in);
        self.missing.insert(i, operand);
        self.trail.push(Found::Missing { at: i, output });
        Some(true)
    }

    /// Whether both yield the same, and find sizes in the same places.
    fn ends_match(&self) -> bool {
        let with_stand_ins = |var| Some(self.instead.get(&var).copied().unwrap_or(var));
        let [full, short] = [&self.blocks[0].results, &self.blocks[1].results];
        let results = full.len() == short.len()
            && full.iter().zip(short).all(|(a, b)| {
                let (a, b) = (code_with(a, &with_stand_ins), code_with(b, &|var| self.fuller_var(var)));
                a.is_some() && a == b
            });
        let (full, short) = (&self.full.body.sources, &self.short.body.sources);
        results
            && full.len() == short.len()
            && full.iter().zip(short).all(|(a, b)| {
                a.symbol == b.symbol && a.axis == b.axis && with_stand_ins(a.var) == self.fuller_var(b.var)
            })
    }

    /// Whether every missing field has its one optional statement, and every such statement at most one; `None` when
    /// nothing else can be found.
    fn explains_fields(&self) -> Option<bool> {
        let keys: HashSet<&str> = self.short.fields.iter().map(|field| field.key.as_str()).collect();
        let key = |field: FieldId| self.full.fields[field].key.as_str();
        let mut explained: BTreeSet<FieldId> = BTreeSet::new();
        for &at in self.missing.keys() {
            let fields = fields_of(&self.full.body.block.statements[at]);
            let absent: Vec<FieldId> =
                fields.into_iter().filter(|&field| !keys.contains(key(field))).collect();
            // A number is a place in a list, and longer lists are no form of shorter ones.
            let is_number = |&field: &FieldId| !key(field).contains(|c: char| c.is_ascii_alphabetic());
            if absent.len() > 1 || absent.iter().any(is_number) {
                return None;
            }
            explained.extend(absent);
        }
        let missing = self.full.fields.iter().filter(|field| !keys.contains(field.key.as_str())).count();
        if missing == explained.len() { Some(true) } else { None }
    }

    fn alignment(&self) -> Alignment {
        let mut alignment = Alignment { missing: self.missing.clone(), ..Alignment::default() };
        for step in &self.trail {
            match step {
                Found::Pair(x, y) => {
                    alignment.vars.insert(*x, *y);
                }
                Found::Slots(a, b) => {
                    alignment.slots.insert(*a, *b);
                }
                Found::Missing { .. } => {}
            }
        }
        for (output, stand_in) in &self.instead {
            if let Some(&short) = alignment.vars.get(stand_in) {
                alignment.vars.insert(*output, short);
            }
        }
        alignment
    }
}

/// The variables that a statement defines, those of its branches too.
fn all_outputs(statement: &Statement) -> Vec<VarId> {
    let mut outputs = Vec::new();
    for block in statement.blocks() {
        outputs.extend(block.statements.iter().flat_map(all_outputs));
    }
    outputs.extend(statement.parameters());
    outputs.extend(statement.outputs());
    outputs
}

/// Code without numbers and defaults, with other fields.
fn plain(block: &Block, field: &dyn Fn(FieldId) -> Option<FieldId>) -> Block {
    let mut block = block.clone();
    block.visit_mut(&mut |code| plain_code(code, field));
    block
}

fn plain_init(init: &Init) -> Init {
    let mut init = init.clone();
    init.visit_mut(&mut |part| plain_code(part, &|field| Some(field)));
    init
}

fn plain_code(code: &mut Code, field: &dyn Fn(FieldId) -> Option<FieldId>) {
    let swap = |id: &mut FieldId| *id = field(*id).unwrap_or(*id);
    code.normalize();
    match code {
        Code::Slot(id) => *id = SlotId::at(0),
        Code::Parameter(id) => swap(id),
        Code::Held(way, _) => way.iter_mut().take(1).for_each(|place| swap(&mut place.field)),
        code => code.callee_mut().into_iter().for_each(|place| swap(&mut place.field)),
    }
}

/// A statement with other variables, if there is one for each.
fn with_vars(statement: &Statement, other: &dyn Fn(VarId) -> Option<VarId>) -> Option<Statement> {
    let mut block = Block { statements: vec![statement.clone()], results: Vec::new() };
    let mut complete = true;
    block.visit_vars(&mut |var| match other(*var) {
        Some(other) => *var = other,
        None => complete = false,
    });
    block.statements.pop().filter(|_| complete)
}

/// An expression with other variables, if there is one for each.
fn code_with(code: &Code, other: &dyn Fn(VarId) -> Option<VarId>) -> Option<Code> {
    let mut block = Block { statements: Vec::new(), results: vec![code.clone()] };
    let mut complete = true;
    block.visit_vars(&mut |var| match other(*var) {
        Some(other) => *var = other,
        None => complete = false,
    });
    block.results.pop().filter(|_| complete)
}
