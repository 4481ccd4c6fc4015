//! Children that are better written out in their parent.

use super::Sharing;
use crate::ids::{Arena, FieldId, ModuleId, StructId};
use crate::tree::{Content, Field, Keys, Step, is_container_class};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A nameless container of so few layers and operations is written out in its parent.
const MAX_CONTAINER_STEPS: usize = 4;
/// A module that occurs once and has no more steps than this is written out in its parent.
const MAX_INLINED_STEPS: usize = 3;

impl Sharing<'_, '_> {
    /// Writes small and container children out in a module, and those that are called in unequal ways.
    pub(super) fn write_out_children(&mut self, module: ModuleId) {
        let mut unequal = self.unequal_calls(module);
        loop {
            self.write_out(module, &unequal);
            // What was written out may have children that are called again.
            unequal = self.unequal_calls(module);
            if unequal.is_empty() {
                break;
            }
        }
    }

    /// Writes children out: the small ones, and those in `unequal`, which are known by their first calls.
    fn write_out(&mut self, module: ModuleId, unequal: &BTreeSet<ModuleId>) {
        let mut draft = std::mem::take(&mut self.modules[module]);
        let steps = std::mem::take(&mut draft.steps);
        let alone = steps.len() == 1 && module == self.tree.root;
        let mut siblings: HashMap<StructId, usize> = HashMap::new();
        for structure in self.structs_called(&steps) {
            *siblings.entry(structure).or_insert(0) += 1;
        }
        let is_stage = |steps: &[Step]| {
            // At the top, a container of modules is a stage of the model.
            module == self.tree.root && steps.iter().any(|step| !matches!(step, Step::Node(_)))
        };
        let mut kept = Vec::with_capacity(steps.len());
        let mut written_out: Vec<ModuleId> = Vec::new();
        for step in steps {
            let Step::Call(child) = step else {
                kept.push(step);
                continue;
            };
            let inner = &self.modules[child].steps;
            let repeated = self.modules[child]
                .structure
                .is_some_and(|structure| siblings.get(&structure).is_some_and(|&count| count > 1));
            if !(alone
                || unequal.contains(&self.first_call(child))
                || self.should_be_written_out(child, is_stage(inner), repeated))
            {
                kept.push(step);
                continue;
            }
            if let Some(count) = self.modules[child].structure.and_then(|id| siblings.get_mut(&id)) {
                *count -= 1;
            }
            for structure in self.structs_called(inner) {
                *siblings.entry(structure).or_insert(0) += 1;
            }
            kept.extend(inner.iter().cloned());
            written_out.push(child);
        }
        draft.steps = kept;
        draft.fields = self.adopt_fields(std::mem::take(&mut draft.fields), &written_out);
        self.modules[module] = draft;
    }

    /// The structs of the children that steps call.
    fn structs_called<'s>(&'s self, steps: &'s [Step]) -> impl Iterator<Item = StructId> + 's {
        steps.iter().filter_map(|step| match step {
            Step::Call(child) => self.modules[*child].structure,
            Step::Node(_) | Step::Branches { .. } | Step::Repeat { .. } | Step::Loop { .. } => None,
        })
    }

    /// Fields of a module with those of children in the place of the children.
    fn adopt_fields(
        &mut self,
        fields: Arena<FieldId, Field>,
        written_out: &[ModuleId],
    ) -> Arena<FieldId, Field> {
        let held: BTreeSet<ModuleId> = fields
            .iter()
            .filter_map(|field| match field.content {
                Content::Module(child) => Some(child),
                _ => None,
            })
            .collect();
        let mut prefixes: BTreeMap<ModuleId, String> = BTreeMap::new();
        // A first call brings its fields to where it was; which one that is, the steps say.
        let mut bringing: BTreeMap<ModuleId, ModuleId> = BTreeMap::new();
        let mut later: Vec<ModuleId> = Vec::new();
        for &child in written_out {
            let first = self.first_call(child);
            if held.contains(&child) && !bringing.contains_key(&first) {
                bringing.insert(first, child);
            } else if bringing.contains_key(&first) {
                later.push(child);
            }
        }
        let adopts = |field: &Field| match field.content {
            Content::Module(child) => bringing.get(&self.first_call(child)) == Some(&child),
            _ => false,
        };
        let mut keys: Keys =
            fields.iter().filter(|field| !adopts(field)).map(|field| field.key.as_str()).collect();
        let mut adopted: Vec<Field> = Vec::new();
        for field in fields {
            let Content::Module(child) = field.content else {
                adopted.push(field);
                continue;
            };
            let first = self.first_call(child);
            if bringing.get(&first) != Some(&child) {
                adopted.push(field);
                continue;
            }
            // What another module of the kind has, and this one lacks, was needed to share a struct alone.
            let there = self.modules[child].fields.iter().filter(|field| field.content != Content::Absent);
            adopted.extend(there.map(|inner| Field {
                // Names of scopes may make a field's key of a child's and its field's.
                key: keys.fresh(&format!("{}.{}", field.key, inner.key), |_| true),
                content: inner.content.clone(),
            }));
            prefixes.insert(first, field.key);
        }
        if later.is_empty() {
            return adopted.into_iter().collect();
        }
        let mut by_key: HashMap<String, Content> =
            adopted.iter().rev().map(|field| (field.key.clone(), field.content.clone())).collect();
        for child in later {
            let Some(prefix) = prefixes.get(&self.first_call(child)) else { continue };
            let fields = self.modules[child].fields.clone();
            for field in fields.into_iter().filter(|field| field.content != Content::Absent) {
                let key = format!("{prefix}.{}", field.key);
                let key = match (by_key.get(&key), &field.content) {
                    (Some(there), content) if there == content => continue,
                    // Equal or not: calls that turn out to be unequal are written out next.
                    (Some(Content::Module(first)), &Content::Module(child)) => {
                        self.modules[child].call_of = Some(*first);
                        continue;
                    }
                    (None, _) => {
                        keys.insert(&key);
                        key
                    }
                    (Some(_), _) => keys.fresh(&key, |_| true),
                };
                by_key.insert(key.clone(), field.content.clone());
                adopted.push(Field { key, content: field.content });
            }
        }
        adopted.into_iter().collect()
    }

    /// Whether two calls find the same in their fields.
    fn same_fields(&self, a: ModuleId, b: ModuleId) -> bool {
        let (a, b) = (&self.modules[a].fields, &self.modules[b].fields);
        let same = |(a, b): (&Field, &Field)| a.key == b.key && self.same_content(&a.content, &b.content);
        a.len() == b.len() && a.iter().zip(b.iter()).all(same)
    }

    fn same_content(&self, a: &Content, b: &Content) -> bool {
        match (a, b) {
            (&Content::Module(a), &Content::Module(b)) => self.same_fields(a, b),
            (Content::Sequence(a), Content::Sequence(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.same_content(a, b))
            }
            (a, b) => a == b,
        }
    }

    /// Later calls of a module that cannot be calls of one `forward`: their first calls.
    fn unequal_calls(&self, module: ModuleId) -> BTreeSet<ModuleId> {
        let unequal = |step: &Step| {
            let Step::Call(child) = step else { return None };
            let first = self.first_call(*child);
            let equal = self.modules[first].structure == self.modules[*child].structure
                && self.same_fields(first, *child);
            (!equal).then_some(first)
        };
        self.modules[module].steps.iter().filter_map(unequal).collect()
    }

    /// Children that hold nothing are functions, not fields.
    pub(super) fn drop_functions(&mut self, module: ModuleId) {
        let fields = std::mem::take(&mut self.modules[module].fields);
        let stays = |field: &Field| match field.content {
            Content::Module(child) => !self.is_function(child),
            Content::Layer(_) | Content::Parameter(_) | Content::Sequence(_) | Content::Absent => true,
        };
        self.modules[module].fields = fields.into_iter().filter(stays).collect();
    }

    fn should_be_written_out(&self, child: ModuleId, is_stage: bool, repeated: bool) -> bool {
        let data = &self.modules[child];
        let Some(structure) = data.structure.map(|id| &self.structs[id]) else { return false };
        let steps = data.steps.len();
        let is_small = if structure.is_function {
            steps <= MAX_INLINED_STEPS
        } else {
            let is_container = is_container_class(self.tree.modules[child].class_name());
            steps <= 1
                || (structure.members.len() == 1 && steps <= MAX_INLINED_STEPS && data.fields.len() <= 2)
                || (is_container && !is_stage && !repeated && steps <= MAX_CONTAINER_STEPS)
        };
        is_small || self.is_list(child)
    }
}
