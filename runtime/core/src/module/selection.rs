//! Parts of modules, chosen by patterns of their paths: what is frozen, what gets a low-rank pair.

use super::paths::{Place, selects};
use super::{Module, ModuleMapper, ModuleVisitor, Origin, Param, ParamId, RunningState};
use crate::tensor::Tensor;
use crate::tensor::backend::Backend;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::{vec, vec::Vec};
use kiln_types::Derivation;

/// No parameter's path fits a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {what} fits the pattern `{pattern}`; there are, among others: {}", .examples.join(", "))]
pub struct NothingSelected {
    /// The pattern.
    pub pattern: String,
    /// What was looked for: `parameter`.
    pub what: &'static str,
    /// Some paths that could have been meant.
    pub examples: Vec<String>,
}

/// Where a visitor is, and what the fields on the way were made of.
#[derive(Default)]
pub struct Trail {
    /// Where it is.
    pub place: Place,
    /// Each with how many fields lead to the one that it is said of.
    origins: Vec<(usize, Origin)>,
}

impl Trail {
    /// Goes into a field of a container.
    pub fn enter(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    /// Goes back.
    pub fn exit(&mut self) {
        self.place.exit();
        let depth = self.place.depth();
        self.origins.retain(|(above, _)| *above <= depth);
    }

    /// Notes what the field that was just entered was made of.
    pub fn note(&mut self, origin: Origin) {
        self.origins.push((self.place.depth(), origin));
    }

    /// The keys of the tensors that the parameter here is made of, as far as its fields say so.
    pub fn made_of(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for &(depth, origin) in &self.origins {
            let Origin::Derived { parameter, from } = origin else { continue };
            let below = self.place.below(depth);
            if parameter != Origin::parameter(&below) {
                continue;
            }
            let Ok(derivation) = Origin::text_for(from, &below).parse::<Derivation>() else { continue };
            let base = self.place.before(depth);
            let mut parts = vec![&derivation];
            while let Some(part) = parts.pop() {
                if let Derivation::Key { path, base: of, .. } = part {
                    keys.extend(of.whole(path, &base));
                }
                parts.extend(part.parts());
            }
        }
        keys
    }
}

/// The paths of parameters, those that fit a pattern among them.
pub struct Selection<'p> {
    pattern: &'p str,
    trail: Trail,
    /// Whether a parameter is looked at, by its place.
    wanted: fn(&Place) -> bool,
    /// Paths that fit, by the names of fields.
    chosen: BTreeSet<String>,
    /// The parameters at these, each once for every path.
    ids: Vec<ParamId>,
    seen: Vec<String>,
}

impl<'p> Selection<'p> {
    /// What fits of the float parameters that are `wanted`.
    pub fn of<B: Backend, M: Module<B>>(module: &M, pattern: &'p str, wanted: fn(&Place) -> bool) -> Self {
        let mut selection = Self {
            pattern,
            trail: Trail::default(),
            wanted,
            chosen: BTreeSet::new(),
            ids: Vec::new(),
            seen: Vec::new(),
        };
        module.visit(&mut selection);
        selection
    }

    /// The paths that fit.
    ///
    /// # Errors
    /// When there are none; `what` says what they would have been.
    pub fn some(self, what: &'static str) -> Result<BTreeSet<String>, NothingSelected> {
        Ok(self.paths_and_ids(what)?.0)
    }

    /// The parameters at the paths that fit.
    ///
    /// # Errors
    /// When there are none.
    pub fn params(self) -> Result<Vec<ParamId>, NothingSelected> {
        Ok(self.paths_and_ids("parameter")?.1)
    }

    fn paths_and_ids(self, what: &'static str) -> Result<(BTreeSet<String>, Vec<ParamId>), NothingSelected> {
        /// More would hide the message before them.
        const SHOWN: usize = 8;
        if self.chosen.is_empty() {
            let examples = self.seen.into_iter().take(SHOWN).collect();
            return Err(NothingSelected { pattern: self.pattern.to_string(), what, examples });
        }
        Ok((self.chosen, self.ids))
    }

    fn add(&mut self, id: ParamId) {
        let place = &self.trail.place;
        if !(self.wanted)(place) {
            return;
        }
        let (path, key) = (place.path(), place.key());
        let keys = self.trail.made_of();
        let by_keys = !keys.is_empty() && keys.iter().all(|key| selects(self.pattern, key));
        if selects(self.pattern, &path) || selects(self.pattern, &key) || by_keys {
            self.chosen.insert(path);
            self.ids.push(id);
        }
        self.seen.push(key);
    }
}

impl<B: Backend> ModuleVisitor<B> for Selection<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.trail.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.trail.exit();
    }

    fn visit_origin(&mut self, origin: Origin) {
        self.trail.note(origin);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.add(param.id);
    }
}

/// The module with what fits a pattern frozen, or trained again.
pub fn set_frozen<B: Backend, M: Module<B>>(
    module: M,
    pattern: &str,
    frozen: bool,
) -> Result<M, NothingSelected> {
    let chosen = Selection::of::<B, M>(&module, pattern, |_| true).some("parameter")?;
    Ok(module.map(&mut Freezer { place: Place::default(), which: Which::Paths(chosen), frozen }))
}

/// Says of parameters whether they are trained.
pub struct Freezer<'f> {
    place: Place,
    which: Which<'f>,
    frozen: bool,
}

/// Of which parameters.
enum Which<'f> {
    All,
    /// By their whole paths.
    Paths(BTreeSet<String>),
    /// By the names of a layer's fields.
    Fields(&'f [&'f str]),
}

impl<'f> Freezer<'f> {
    /// Freezes all.
    pub fn all() -> Self {
        Self { place: Place::default(), which: Which::All, frozen: true }
    }

    /// Freezes a layer's parameters in some fields.
    pub fn fields(fields: &'f [&'f str]) -> Self {
        Self { place: Place::default(), which: Which::Fields(fields), frozen: true }
    }

    fn is_here(&self) -> bool {
        match &self.which {
            Which::All => true,
            Which::Paths(paths) => paths.contains(&self.place.path()),
            Which::Fields(fields) => fields.contains(&self.place.path().as_str()),
        }
    }
}

impl<B: Backend> ModuleMapper<B> for Freezer<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.place.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.place.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        if self.is_here() { param.set_require_grad(!self.frozen) } else { param }
    }

    fn map_running<const D: usize>(
        &mut self,
        state: RunningState<Tensor<B, D>>,
    ) -> RunningState<Tensor<B, D>> {
        if self.is_here() { state.set_frozen(self.frozen) } else { state }
    }
}
