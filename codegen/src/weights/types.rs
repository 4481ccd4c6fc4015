//! From the tree to types: which branch is which layer, struct or list.

use super::layers::{Layer, Leaves, Recognized, recognize};
use super::tree::{Branch, Tree};
use super::{SkeletonError, SkeletonOptions};
use crate::names::{self, Names};
use kiln_types::DTypeKind;
use kiln_weights::LazyTensor;
use std::collections::BTreeMap;

/// What a field holds.
pub(super) enum Content {
    Layer(Layer),
    List(Vec<Content>),
    /// A struct's number, and what its fields hold.
    Module(usize, Vec<Content>),
    Param(LazyTensor),
}

/// A struct of the skeleton.
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) fields: Vec<StructField>,
}

/// A field of a struct.
pub(super) struct StructField {
    /// Its part of the keys.
    pub(super) key: String,
    /// Its identifier.
    pub(super) name: String,
    pub(super) ty: Type,
    /// What the reader should know about it.
    pub(super) note: Option<String>,
}

/// The type of a field.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Type {
    /// A layer, by its path below the runtime.
    Layer(&'static str),
    List(Box<Type>),
    Module(usize),
    Param(usize, &'static str),
}

/// Everything about a skeleton but its text.
pub(super) struct Typed {
    pub(super) structs: Vec<Struct>,
    /// The model's content.
    pub(super) root: Content,
    pub(super) ambiguous: Vec<(String, String)>,
}

/// Names that the skeleton's imports and the prelude take.
const TAKEN: &[&str] = &[
    "AsRef",
    "B",
    "Backend",
    "BinFileRecorder",
    "Bool",
    "Config",
    "Format",
    "FullPrecisionSettings",
    "HalfPrecisionSettings",
    "Initializer",
    "Int",
    "Module",
    "Param",
    "ParamId",
    "Recorder",
    "RecorderError",
    "Result",
    "Self",
    "String",
    "Tensor",
    "TensorData",
    "Vec",
];

/// Gives each branch its type.
pub(super) fn assign(
    root: Branch,
    model_name: &str,
    options: &SkeletonOptions,
) -> Result<Typed, SkeletonError> {
    let mut names = Names::with(TAKEN.iter().copied());
    names.fresh(model_name);
    names.fresh(&format!("{model_name}Config"));
    let mut assigner = Assigner {
        options,
        names,
        structs: Vec::new(),
        known: BTreeMap::new(),
        ambiguous: Vec::new(),
        settled: options.settled.clone(),
        layers: Vec::new(),
    };
    let (fields, contents) = assigner.fields(root, "", model_name)?;
    if let Some((key, _)) = assigner.settled.pop_first() {
        return Err(assigner.no_such_layer(key));
    }
    let mut structs = assigner.structs;
    structs.push(Struct { name: model_name.to_owned(), fields });
    let root = Content::Module(structs.len() - 1, contents);
    Ok(Typed { structs, root, ambiguous: assigner.ambiguous })
}

struct Assigner<'a> {
    options: &'a SkeletonOptions,
    names: Names,
    structs: Vec<Struct>,
    /// Structs by their fields.
    known: BTreeMap<Vec<(String, Type)>, usize>,
    ambiguous: Vec<(String, String)>,
    /// What the user settled and was not met yet.
    settled: BTreeMap<String, String>,
    /// The keys that could be settled.
    layers: Vec<String>,
}

/// How many keys a message names.
const SHOWN: usize = 5;

impl Assigner<'_> {
    /// The fields of a struct, and what they hold.
    fn fields(
        &mut self,
        branch: Branch,
        path: &str,
        struct_name: &str,
    ) -> Result<(Vec<StructField>, Vec<Content>), SkeletonError> {
        let mut own = Names::default();
        let (mut fields, mut contents) = (Vec::new(), Vec::new());
        for (key, part) in branch.parts {
            let part_path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let (content, note) = match part {
                Tree::Leaf(tensor) => (Content::Param(tensor), None),
                Tree::Branch(branch) => self.content(branch, &part_path, &key, struct_name)?,
            };
            let name = own.fresh(&names::snake(&key, "layer"));
            fields.push(StructField { key, name, ty: content.ty(), note });
            contents.push(content);
        }
        Ok((fields, contents))
    }

    /// What a branch is, and what is to be said about it.
    fn content(
        &mut self,
        branch: Branch,
        path: &str,
        key: &str,
        parent: &str,
    ) -> Result<(Content, Option<String>), SkeletonError> {
        let wanted = self.settled.remove(path);
        if let Some(leaves) = branch.leaves() {
            self.layers.push(path.to_owned());
            let leaves = Leaves { name: key, tensors: &leaves, pytorch: self.options.pytorch };
            match recognize(&leaves, wanted.is_some()) {
                Some(Recognized::List(layers)) if wanted.is_none() => {
                    return Ok((Content::List(layers.into_iter().map(Content::Layer).collect()), None));
                }
                Some(Recognized::Layer(layers)) if wanted.as_deref() != Some("Param") => {
                    return self.choose(layers, path, wanted.as_deref());
                }
                _ => {}
            }
        }
        match wanted {
            Some(wanted) if wanted != "Param" => {
                let reason = "its tensors look like no layer that Kiln has".to_owned();
                return Err(SkeletonError::DoesNotFit { key: path.to_owned(), wanted, reason });
            }
            _ => {}
        }
        let name = names::pascal(singular(key), "Layer");
        let name = if key.starts_with(|c: char| c.is_ascii_digit()) {
            format!("{}{key}", singular(parent))
        } else {
            name
        };
        let indices = branch.indices();
        let (fields, contents) = self.fields(branch, path, &name)?;
        let counted = indices.is_some_and(|indices| indices.into_iter().eq(0..contents.len()));
        let same = fields.windows(2).all(|pair| matches!(pair, [a, b] if a.ty == b.ty));
        let modules = !matches!(fields.first().map(|field| &field.ty), Some(Type::Param(..)) | None);
        if counted && same && modules {
            return Ok((Content::List(contents), fields.into_iter().find_map(|field| field.note)));
        }
        let shape = fields.iter().map(|field| (field.key.clone(), field.ty.clone())).collect();
        let id = match self.known.get(&shape) {
            Some(id) => *id,
            None => {
                self.known.insert(shape, self.structs.len());
                let name = self.fresh(&name);
                self.structs.push(Struct { name, fields });
                self.structs.len() - 1
            }
        };
        Ok((Content::Module(id, contents), None))
    }

    /// The layer that is meant among those that fit.
    fn choose(
        &mut self,
        layers: Vec<Layer>,
        path: &str,
        wanted: Option<&str>,
    ) -> Result<(Content, Option<String>), SkeletonError> {
        let names: Vec<&str> = layers.iter().map(|layer| layer.name).collect();
        let place = wanted.map_or(Some(0), |wanted| names.iter().position(|name| *name == wanted));
        let others: Vec<&str> = names.iter().skip(1).copied().collect();
        let Some(layer) = place.and_then(|place| layers.get(place)).cloned() else {
            let (key, wanted) = (path.to_owned(), wanted.unwrap_or_default().to_owned());
            return Err(SkeletonError::DoesNotFit {
                key,
                wanted,
                reason: format!("it may be {}", names.join(", ")),
            });
        };
        let mut notes: Vec<String> =
            layer.assumed.iter().map(|assumed| format!("{assumed} assumed")).collect();
        if wanted.is_none() && !others.is_empty() {
            let hint = format!(
                "may be {} (`--as {}={}`)",
                others.join(" or "),
                names::comment(path),
                others.join("|")
            );
            self.ambiguous.push((path.to_owned(), hint.clone()));
            notes.push(hint);
        }
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Ok((Content::Layer(layer), note))
    }

    /// The error of a key that is no layer; it names those that begin most like it.
    fn no_such_layer(&self, key: String) -> SkeletonError {
        let common = |layer: &String| layer.chars().zip(key.chars()).take_while(|(a, b)| a == b).count();
        let mut nearest: Vec<&String> = self.layers.iter().collect();
        nearest.sort_by_key(|layer| std::cmp::Reverse(common(layer)));
        let shown: Vec<String> = nearest.iter().take(SHOWN).map(|layer| format!("{layer:?}")).collect();
        let candidates = match (shown.len(), nearest.len().saturating_sub(SHOWN)) {
            (0, _) => "it has none".to_owned(),
            (_, 0) => format!("there are {}", shown.join(", ")),
            (_, more) => format!("there are {} and {more} others", shown.join(", ")),
        };
        SkeletonError::NoSuchLayer { key, candidates }
    }

    /// A struct's name that is free, together with its config's.
    fn fresh(&mut self, wanted: &str) -> String {
        loop {
            let name = self.names.fresh(wanted);
            if !self.names.contains(&format!("{name}Config")) {
                self.names.fresh(&format!("{name}Config"));
                return name;
            }
        }
    }
}

/// `layers` without its `s`.
fn singular(name: &str) -> &str {
    match name.strip_suffix('s') {
        Some(stem) if stem.len() > 2 && !stem.ends_with(['s', 'u', 'i']) => stem,
        _ => name,
    }
}

impl Content {
    /// The type of the field that holds it.
    pub(super) fn ty(&self) -> Type {
        match self {
            Content::Layer(layer) => Type::Layer(layer.path),
            Content::List(items) => {
                Type::List(Box::new(items.first().map_or(Type::Param(0, ""), Content::ty)))
            }
            Content::Module(id, _) => Type::Module(*id),
            Content::Param(tensor) => Type::Param(
                tensor.shape().len(),
                match tensor.dtype().kind() {
                    DTypeKind::Float => "",
                    DTypeKind::Int => "Int",
                    DTypeKind::Bool => "Bool",
                },
            ),
        }
    }
}
