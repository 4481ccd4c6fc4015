//! What parameters a module has, and where a checkpoint has them.

use super::adapter::{Candidate, Frame, path_of};
use super::derived::{Made, made};
use super::source::Source;
use crate::module::{ModuleVisitor, Origin, Param, Parameter};
use crate::tensor::backend::Backend;
use crate::tensor::{Bool, DType, Element, Int, Tensor};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_types::DerivationTarget;

/// The way to where a visitor or mapper is.
#[derive(Default)]
pub(super) struct Walk {
    frames: Vec<Option<Frame>>,
}

impl Walk {
    pub(super) fn enter(&mut self, name: &str, container: &str) {
        // An enum's variant is no part of a path: the module could as well be there without the enum.
        let frame = (!container.starts_with("Enum:")).then(|| Frame {
            container: container.strip_prefix("Struct:").unwrap_or(container).to_string(),
            name: name.to_string(),
        });
        self.frames.push(frame);
    }

    pub(super) fn exit(&mut self) {
        self.frames.pop();
    }

    fn depth(&self) -> usize {
        self.frames.iter().flatten().count()
    }

    pub(super) fn frames(&self) -> Vec<Frame> {
        self.frames.iter().flatten().cloned().collect()
    }
}

/// A parameter that a module has.
pub(super) struct Wanted {
    pub(super) frames: Vec<Frame>,
    /// What its fields say that it was made of, each with how many frames lead to the field.
    origins: Vec<(usize, Origin)>,
    pub(super) shape: Vec<usize>,
    pub(super) dtype: DType,
}

impl Wanted {
    /// What a derivation of it is for.
    pub(super) fn target(&self) -> DerivationTarget {
        let layer = self.frames.last().map_or_else(String::new, |frame| frame.container.clone());
        DerivationTarget { layer, shape: self.shape.clone() }
    }

    /// What it is made of, if its fields say so. `frames` are its own with the numbers of the file, `candidates` where it
    /// would be else, of which `is_there` tells whether the file has it. The error says what is wrong with an attribute.
    pub(super) fn made(
        &self,
        frames: &[Frame],
        candidates: &[Candidate],
        is_there: impl Fn(&str) -> bool,
    ) -> Result<Option<Made>, String> {
        let present = candidates.iter().find(|candidate| is_there(&candidate.key));
        let own =
            present.or(candidates.first()).map_or(("", false), |own| (own.key.as_str(), own.view.transpose));
        for &(depth, origin) in &self.origins {
            let below = frames.get(depth..).unwrap_or_default();
            let above = frames.get(..depth.saturating_sub(1)).unwrap_or_default();
            if let Some(made) = made(origin, &path_of(below), own, &path_of(above))? {
                return Ok(Some(made));
            }
        }
        Ok(None)
    }
}

/// Collects the parameters that a module wants.
#[derive(Default)]
pub(super) struct Outline {
    walk: Walk,
    pub(super) wanted: Vec<Wanted>,
    /// As [`Wanted::origins`], of the fields around.
    origins: Vec<(usize, Origin)>,
}

impl Outline {
    fn add<T: Parameter>(&mut self, param: &Param<T>, dtype: DType) {
        let shape = param.lazy_shape().as_slice().to_vec();
        // Numbers go to it directly: by way of the usual one they would be rounded twice.
        let dtype = param.lazy_unusual_dtype().unwrap_or(dtype);
        let (frames, origins) = (self.walk.frames(), self.origins.clone());
        self.wanted.push(Wanted { frames, origins, shape, dtype });
    }
}

impl<B: Backend> ModuleVisitor<B> for Outline {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.walk.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.walk.exit();
        let depth = self.walk.depth();
        self.origins.retain(|(above, _)| *above <= depth);
    }

    fn visit_origin(&mut self, origin: Origin) {
        self.origins.push((self.walk.depth(), origin));
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.add(param, B::FloatElem::DTYPE);
    }

    /// A checkpoint has no place for the pair.
    fn visit_low_rank<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.visit_float(param);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(param, B::IntElem::DTYPE);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(param, DType::Bool);
    }
}

/// The numbers that the items of lists have in the file.
pub(super) struct Lists(BTreeMap<String, Vec<(usize, usize)>>);

impl Lists {
    /// Items keep their indices where the file has the same ones; else the n-th item is the n-th index of the file.
    pub(super) fn new(outline: &Outline, source: &Source) -> Self {
        let mut own: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for wanted in &outline.wanted {
            for (depth, frame) in wanted.frames.iter().enumerate().filter(|(_, frame)| is_list(frame)) {
                let list = own.entry(path_of(wanted.frames.get(..depth).unwrap_or_default())).or_default();
                list.extend(frame.name.parse::<usize>());
            }
        }
        let mut lists = Self(BTreeMap::new());
        // Outer lists come first, since a path sorts before those it begins.
        for (path, own) in own {
            let theirs = source.indices(&lists.renumber_path(&path));
            let same = own.iter().all(|index| theirs.contains(index)) && own.len() == theirs.len();
            if !same {
                lists.0.insert(path, own.into_iter().zip(theirs).collect());
            }
        }
        lists
    }

    /// The index that an item has in the file.
    fn index(&self, list: &str, index: &str) -> Option<String> {
        let own: usize = index.parse().ok()?;
        let (_, theirs) = self.0.get(list)?.iter().find(|(known, _)| *known == own)?;
        Some(theirs.to_string())
    }

    pub(super) fn renumber(&self, frames: &[Frame]) -> Vec<Frame> {
        let mut renumbered = frames.to_vec();
        for (depth, frame) in renumbered.iter_mut().enumerate().filter(|(_, frame)| is_list(frame)) {
            let list = path_of(frames.get(..depth).unwrap_or_default());
            if let Some(index) = self.index(&list, &frame.name) {
                frame.name = index;
            }
        }
        renumbered
    }

    fn renumber_path(&self, path: &str) -> String {
        let mut tokens: Vec<String> = Vec::new();
        let mut own = String::new();
        for token in path.split('.') {
            tokens.push(self.index(&own, token).unwrap_or_else(|| token.to_string()));
            own = if own.is_empty() { token.to_string() } else { alloc::format!("{own}.{token}") };
        }
        tokens.join(".")
    }
}

/// Whether a frame is an item of a list.
fn is_list(frame: &Frame) -> bool {
    matches!(frame.container.as_str(), "Vec" | "Array")
}
