//! Types of a skeleton: which branches are structs, which of those are one, and which branches are lists.

use super::content::{Content, Note, Part};
use super::layers::Origin;
use kiln_types::DTypeKind;
use std::collections::{BTreeMap, BTreeSet};

/// Above as many structs of lists' items, none takes the place of another; models have a dozen.
const MOST_ITEMS: usize = 256;

/// The type of a field.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Type {
    /// A layer, by its path below the runtime.
    Layer(&'static str),
    List(Box<Type>),
    /// A struct's number.
    Module(usize),
    Param(usize, &'static str),
}

/// A field of a struct.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Field {
    /// Its part of the keys.
    pub(super) key: String,
    pub(super) ty: Type,
    /// Whether some of the struct's modules have it not.
    pub(super) optional: bool,
    /// Parameters that checkpoints have otherwise than such layers usually.
    pub(super) from: Vec<(&'static str, Origin)>,
}

/// The structs of a skeleton by number. Those that were only met on the way to others are not reachable from the root.
#[derive(Default)]
pub(super) struct Types {
    pub(super) structs: Vec<Vec<Field>>,
    known: BTreeMap<Vec<Field>, usize>,
}

impl Types {
    /// The type of the whole model, whose numbered lists become such in the contents.
    pub(super) fn root(&mut self, parts: Vec<Part>) -> (Vec<Part>, usize) {
        let (parts, fields) = self.fields(parts);
        // The model itself is a struct of its own, even if a part of it looks the same.
        self.structs.push(fields);
        let root = self.structs.len() - 1;
        self.share_wider(root);
        (parts, root)
    }

    fn fields(&mut self, parts: Vec<Part>) -> (Vec<Part>, Vec<Field>) {
        let mut fields = Vec::new();
        let parts = parts.into_iter().map(|Part { key, content, notes }| {
            let from = match &content {
                Content::Layer(layer) => layer.from.clone(),
                _ => Vec::new(),
            };
            let (content, ty, below) = self.content(content);
            fields.push(Field { key: key.clone(), ty, optional: false, from });
            let notes = if notes.is_empty() { below } else { notes };
            Part { key, content, notes }
        });
        let parts = parts.collect();
        (parts, fields)
    }

    /// A content with its type, and what is to be said about a list because it is said about an item.
    fn content(&mut self, content: Content) -> (Content, Type, Vec<Note>) {
        match content {
            Content::Layer(layer) => {
                let ty = Type::Layer(layer.declared.path);
                (Content::Layer(layer), ty, Vec::new())
            }
            Content::Param(tensor) => {
                let kind = match tensor.dtype().kind() {
                    DTypeKind::Float => "",
                    DTypeKind::Int => "Int",
                    DTypeKind::Bool => "Bool",
                };
                let ty = Type::Param(tensor.shape().len(), kind);
                (Content::Param(tensor), ty, Vec::new())
            }
            // Layers of a stack, which are of one kind.
            Content::List(items) => {
                let item = items.first().map_or(Type::Param(0, ""), |item| match item {
                    Content::Layer(layer) => Type::Layer(layer.declared.path),
                    _ => Type::Param(0, ""),
                });
                (Content::List(items), Type::List(Box::new(item)), Vec::new())
            }
            Content::Module(parts) => {
                let (parts, fields) = self.fields(parts);
                let counted = fields
                    .iter()
                    .enumerate()
                    .all(|(index, field)| field.key == index.to_string() && field.from.is_empty());
                if counted {
                    let types: Vec<Type> = fields.iter().map(|field| field.ty.clone()).collect();
                    if let Some(item) = self.unify_all(&types) {
                        let said = parts.iter().find(|part| !part.notes.is_empty());
                        let notes = said.map(|part| part.notes.iter().map(Note::of_item).collect());
                        let items = parts.into_iter().map(|part| part.content).collect();
                        let list = Type::List(Box::new(item));
                        return (Content::List(items), list, notes.unwrap_or_default());
                    }
                }
                (Content::Module(parts), Type::Module(self.intern(fields)), Vec::new())
            }
        }
    }

    fn intern(&mut self, fields: Vec<Field>) -> usize {
        if let Some(id) = self.known.get(&fields) {
            return *id;
        }
        self.known.insert(fields.clone(), self.structs.len());
        self.structs.push(fields);
        self.structs.len() - 1
    }

    /// One type for all items of a list.
    fn unify_all(&mut self, types: &[Type]) -> Option<Type> {
        let (first, rest) = types.split_first()?;
        rest.iter().try_fold(first.clone(), |whole, ty| self.unify(&whole, ty))
    }

    /// One type for both: structs may differ in fields that some modules have not.
    fn unify(&mut self, a: &Type, b: &Type) -> Option<Type> {
        match (a, b) {
            _ if a == b => Some(a.clone()),
            (Type::List(a), Type::List(b)) => Some(Type::List(Box::new(self.unify(a, b)?))),
            (Type::Module(a), Type::Module(b)) => {
                let (a, b) = (self.structs.get(*a)?.clone(), self.structs.get(*b)?.clone());
                let fields = self.merge(&a, &b)?;
                Some(Type::Module(self.intern(fields)))
            }
            _ => None,
        }
    }

    /// The fields of both structs, if they have more in common than not.
    fn merge(&mut self, a: &[Field], b: &[Field]) -> Option<Vec<Field>> {
        let of_b: BTreeMap<&str, &Field> = b.iter().map(|field| (field.key.as_str(), field)).collect();
        let common = a.iter().filter(|field| of_b.contains_key(field.key.as_str())).count();
        if 2 * common < a.len() + b.len() - common || common == 0 {
            return None;
        }
        // What only the second has stands behind what it stands behind there.
        let of_a: BTreeSet<&str> = a.iter().map(|field| field.key.as_str()).collect();
        let (mut first, mut behind) = (Vec::new(), BTreeMap::<&str, Vec<Field>>::new());
        let mut before = None;
        for field in b {
            if of_a.contains(field.key.as_str()) {
                before = Some(field.key.as_str());
                continue;
            }
            let only = Field { optional: true, ..field.clone() };
            match before {
                Some(before) => behind.entry(before).or_default().push(only),
                None => first.push(only),
            }
        }
        let mut merged = first;
        for field in a {
            let mut field = field.clone();
            let behind = behind.remove(field.key.as_str());
            match of_b.get(field.key.as_str()) {
                Some(other) if other.from == field.from => {
                    field.ty = self.unify(&field.ty, &other.ty)?;
                    field.optional |= other.optional;
                }
                Some(_) => return None,
                None => field.optional = true,
            }
            merged.push(field);
            merged.extend(behind.into_iter().flatten());
        }
        Some(merged)
    }

    /// Lists of one model often differ in whether an item has a part at all; their items are one struct then.
    fn share_wider(&mut self, root: usize) {
        // What becomes one may make what holds it equal, so again.
        while self.share_items(root) {
            self.merge_equal(root);
        }
    }

    /// Puts structs of items in place of narrower ones; yields whether there were any. Each is compared with all others, so that
    /// more of them stay as they are.
    fn share_items(&mut self, root: usize) -> bool {
        let mut items = BTreeSet::new();
        for id in self.reachable(root) {
            for field in self.structs.get(id).into_iter().flatten() {
                if let (Type::List(_), Type::Module(item)) = (&field.ty, innermost(&field.ty)) {
                    items.insert(*item);
                }
            }
        }
        if items.len() > MOST_ITEMS {
            return false;
        }
        let mut replaced = BTreeSet::new();
        for narrow in &items {
            let mut wider = items.iter().filter(|wide| *wide != narrow && !replaced.contains(*wide));
            // A struct that held itself would be endless.
            let wide =
                wider.find(|wide| self.fits(*narrow, **wide) && !self.reachable(**wide).contains(narrow));
            let Some(wide) = wide else { continue };
            let redirect = BTreeMap::from([(*narrow, *wide)]);
            for field in self.structs.iter_mut().flatten() {
                redirected(&mut field.ty, &redirect);
            }
            replaced.insert(*narrow);
        }
        !replaced.is_empty()
    }

    /// Whether every module of the struct `narrow` is one of `wide`.
    fn fits(&self, narrow: usize, wide: usize) -> bool {
        let (Some(narrow), Some(wide)) = (self.structs.get(narrow), self.structs.get(wide)) else {
            return false;
        };
        let mut fields = narrow.iter().peekable();
        for field in wide {
            let same = |other: &&Field| {
                other.key == field.key
                    && other.ty == field.ty
                    && other.from == field.from
                    && (field.optional || !other.optional)
            };
            if fields.next_if(|other| same(other)).is_none() && !field.optional {
                return false;
            }
        }
        fields.next().is_none() && narrow.len() > 1
    }

    /// Structs that have become equal become one.
    fn merge_equal(&mut self, root: usize) {
        loop {
            let mut first: BTreeMap<&[Field], usize> = BTreeMap::new();
            let mut redirect = BTreeMap::new();
            for id in self.reachable(root).into_iter().filter(|id| *id != root) {
                let Some(fields) = self.structs.get(id) else { continue };
                match first.get(fields.as_slice()) {
                    Some(same) => {
                        redirect.insert(id, *same);
                    }
                    None => {
                        first.insert(fields, id);
                    }
                }
            }
            if redirect.is_empty() {
                return;
            }
            for field in self.structs.iter_mut().flatten() {
                redirected(&mut field.ty, &redirect);
            }
        }
    }

    /// The structs below one, with itself, in the order in which they are met: level by level.
    pub(super) fn reachable(&self, root: usize) -> Vec<usize> {
        let mut met = BTreeSet::from([root]);
        let mut order = vec![root];
        let mut next = 0;
        while let Some(id) = order.get(next).copied() {
            next += 1;
            for field in self.structs.get(id).into_iter().flatten() {
                if let Type::Module(below) = innermost(&field.ty)
                    && met.insert(*below)
                {
                    order.push(*below);
                }
            }
        }
        order
    }
}

fn redirected(ty: &mut Type, redirect: &BTreeMap<usize, usize>) {
    match ty {
        Type::List(item) => redirected(item, redirect),
        Type::Module(id) => *id = redirect.get(id).copied().unwrap_or(*id),
        _ => {}
    }
}

/// The type that lists are of.
pub(super) fn innermost(ty: &Type) -> &Type {
    match ty {
        Type::List(item) => innermost(item),
        ty => ty,
    }
}
