//! Layers and children that make a `Vec`, and calls of children that make a loop.

use super::{Draft, Sharing};
use crate::ids::{ModuleId, StructId};
use crate::tree::{Content, Field, Step, of_list, operands, origin};
use kiln_importer::ir::ValueId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Fewer children that are alike are fields of their own where others of their container are not.
const MIN_OF_MORE: usize = 3;

/// Splits a key like `layer.11` into the container's key and the number.
fn numbered(key: &str) -> Option<(&str, usize)> {
    let (stem, number) = key.rsplit_once('.').unwrap_or(("", key));
    let plain = number == "0" || !number.starts_with('0');
    (plain && !number.is_empty() && number.len() < 7)
        .then(|| number.parse().ok())
        .flatten()
        .map(|n| (stem, n))
}

/// Layers of one type or children of one struct with the keys `stem.0`, `stem.1`, …, in the order of their keys: all of
/// their container, or, of children, the first ones.
struct Run {
    stem: String,
    items: Vec<Content>,
}

/// The type that all items of a `Vec` have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemType {
    Layer(&'static str),
    Module(Option<StructId>),
}

impl Sharing<'_, '_> {
    /// The type of what could be an item of a `Vec` in the module in hand.
    fn item_type(&self, field: &Field) -> Option<ItemType> {
        match field.content {
            Content::Module(child) => {
                (!self.is_function(child)).then(|| ItemType::Module(self.modules[child].structure))
            }
            Content::Layer(node) => Some(ItemType::Layer(self.tree.layer(node)?.1.declared.path)),
            Content::Parameter(_) | Content::Sequence(_) | Content::Absent => None,
        }
    }

    /// Whether one attribute can say how checkpoints fill all layers of a list.
    fn has_one_origin(&self, base: &str, stem: &str, layers: &[Content]) -> bool {
        let of = |(n, layer): (usize, &Content)| {
            origin(self.tree, base, &Field { key: format!("{stem}.{n}"), content: layer.clone() })
        };
        of_list(&layers.iter().enumerate().map(of).collect::<Vec<_>>()).is_some()
    }

    /// The runs of a module's layers and children, by stem.
    fn runs(&self, module: ModuleId, draft: &Draft) -> Vec<Run> {
        let base = &self.tree.modules[module].path;
        let mut by_stem: BTreeMap<&str, BTreeMap<usize, (ItemType, &Content)>> = BTreeMap::new();
        let mut spoilt: BTreeSet<&str> = BTreeSet::new();
        for field in draft.fields.iter() {
            // A `Vec` would have its key.
            spoilt.insert(&field.key);
            let Some((stem, n)) = numbered(&field.key) else { continue };
            match self.item_type(field) {
                Some(ty) => {
                    by_stem.entry(stem).or_default().insert(n, (ty, &field.content));
                }
                None => {
                    spoilt.insert(stem);
                }
            }
        }
        let run = |(stem, items): (&str, BTreeMap<usize, (ItemType, &Content)>)| {
            let &(first, _) = items.first_key_value()?.1;
            let alike = items.iter().enumerate();
            let alike = alike.take_while(|&(n, (&number, &(ty, _)))| n == number && ty == first);
            let alike: Vec<Content> = alike.map(|(_, (_, &(_, content)))| content.clone()).collect();
            let is_all = alike.len() == items.len();
            let is_list = match first {
                // The last ones may differ, as blocks do whose results nobody reads in full.
                ItemType::Module(_) => alike.len() >= if is_all { 2 } else { MIN_OF_MORE },
                // Layers with others behind them are the parts of a whole.
                ItemType::Layer(_) => is_all && alike.len() >= 2 && self.has_one_origin(base, stem, &alike),
            };
            (is_list && !spoilt.contains(stem)).then(|| Run { stem: stem.to_owned(), items: alike })
        };
        by_stem.into_iter().filter_map(run).collect()
    }

    /// Whether a module does nothing but call its numbered children, so that its parent can hold them in a `Vec`.
    pub(super) fn is_list(&self, module: ModuleId) -> bool {
        let data = &self.modules[module];
        data.steps.iter().all(|step| matches!(step, Step::Call(_)))
            && match self.runs(module, data).as_slice() {
                [run] => run.stem.is_empty() && run.items.len() == data.fields.len(),
                _ => false,
            }
    }

    /// Puts runs of layers and of children into `Vec`s, and calls in turn into loops.
    pub(super) fn collect_sequences(&mut self, module: ModuleId) {
        let mut draft = std::mem::take(&mut self.modules[module]);
        // The keys of a `Vec` begin with its field's name; a run without a stem has none.
        let runs: Vec<Run> =
            self.runs(module, &draft).into_iter().filter(|run| !run.stem.is_empty()).collect();
        let mut places: HashMap<ModuleId, (usize, usize)> = HashMap::new();
        let mut lengths: HashMap<String, (usize, usize)> = HashMap::new();
        for (n, run) in runs.iter().enumerate() {
            lengths.insert(run.stem.clone(), (n, run.items.len()));
            places.extend(run.items.iter().enumerate().filter_map(|(i, item)| match item {
                Content::Module(child) => Some((*child, (n, i))),
                _ => None,
            }));
        }
        let mut waiting: Vec<Option<Run>> = runs.into_iter().map(Some).collect();
        let fields = std::mem::take(&mut draft.fields).into_iter().filter_map(|field| {
            let run = numbered(&field.key).and_then(|(stem, number)| {
                lengths.get(stem).filter(|&&(_, length)| number < length).map(|&(run, _)| run)
            });
            match run {
                None => Some(field),
                // The first of a run stands for all.
                Some(run) => waiting[run]
                    .take()
                    .map(|run| Field { key: run.stem, content: Content::Sequence(run.items) }),
            }
        });
        draft.fields = fields.collect();
        let uses = self.uses_by_steps(&draft);
        let follows = |a: ModuleId, b: ModuleId| match (places.get(&a), places.get(&b)) {
            (Some((run, i)), Some((other, j))) => run == other && i + 1 == *j,
            _ => false,
        };
        draft.steps = self.with_loops(draft.steps, &uses, &follows);
        // A module that is called again and again.
        draft.steps = self.with_loops(draft.steps, &uses, &|a, b| a == b);
        self.modules[module] = draft;
    }

    /// How often each value is used by the steps of a module, counted by call.
    fn uses_by_steps(&self, draft: &Draft) -> HashMap<ValueId, usize> {
        let mut uses = HashMap::new();
        let mut add = |values: &[ValueId]| {
            for &value in values {
                *uses.entry(value).or_insert(0) += 1;
            }
        };
        for step in &draft.steps {
            match step {
                Step::Call(child) => add(&self.modules[*child].inputs),
                Step::Loop { modules, .. } => {
                    modules.iter().for_each(|&child| add(&self.modules[child].inputs));
                }
                Step::Node(node) | Step::Branches { node, .. } | Step::Repeat { node, .. } => {
                    add(&operands(self.tree.graph, *node));
                }
            }
        }
        add(&draft.outputs);
        uses
    }

    /// Joins calls in turn; `follows` says of two modules, by their first calls, whether the second can follow the first.
    fn with_loops(
        &self,
        steps: Vec<Step>,
        uses: &HashMap<ValueId, usize>,
        follows: &dyn Fn(ModuleId, ModuleId) -> bool,
    ) -> Vec<Step> {
        let mut result: Vec<Step> = Vec::new();
        for step in steps {
            if let Step::Call(child) = step
                && let Some(last) = result.last_mut()
                && let Some(carried) = self.carried(last, child, uses, follows)
            {
                match last {
                    Step::Loop { modules, .. } => modules.push(child),
                    Step::Call(before) => *last = Step::Loop { modules: vec![*before, child], carried },
                    Step::Node(_) | Step::Branches { .. } | Step::Repeat { .. } => {}
                }
            } else {
                result.push(step);
            }
        }
        result
    }

    /// Which input of a call is the result of the step before it, when both can be one loop.
    fn carried(
        &self,
        last: &Step,
        child: ModuleId,
        uses: &HashMap<ValueId, usize>,
        follows: &dyn Fn(ModuleId, ModuleId) -> bool,
    ) -> Option<usize> {
        let (before, known) = match last {
            Step::Call(before) => (std::slice::from_ref(before), None),
            Step::Loop { modules, carried } => (modules.as_slice(), Some(*carried)),
            Step::Node(_) | Step::Branches { .. } | Step::Repeat { .. } => return None,
        };
        let previous = *before.last()?;
        let first = |module: ModuleId| self.first_call(module);
        let alike = before.len() < 2 || follows(first(before[0]), first(before[1]));
        if !alike || self.is_function(child) || !follows(first(previous), first(child)) {
            return None;
        }
        let (a, b) = (&self.modules[previous], &self.modules[child]);
        let (&[result], &[_]) = (a.outputs.as_slice(), b.outputs.as_slice()) else { return None };
        let carried = b.inputs.iter().position(|&input| input == result)?;
        let others_equal = a.inputs.len() == b.inputs.len()
            && a.inputs.iter().zip(&b.inputs).enumerate().all(|(i, (x, y))| i == carried || x == y);
        let can_join = others_equal
            && a.body.symbols == b.body.symbols
            && self.passed(previous) == self.passed(child)
            && uses.get(&result) == Some(&1)
            && known.is_none_or(|known| known == carried);
        can_join.then_some(carried)
    }
}
