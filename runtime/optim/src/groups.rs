//! [`ParamGroup`]: several optimizers on one module, by the paths of parameters.

use crate::{GradientsParams, LearningRate, Optimizer};
use kiln_core::module::{AutodiffModule, NothingSelected, ParamId};
use kiln_core::record::RecorderError;
use kiln_core::tensor::backend::AutodiffBackend;
use std::collections::{HashMap, HashSet};

/// Steps the parameters whose paths fit a pattern with an optimizer of their own, and at a learning rate of their own, and
/// all others with the optimizer that there was, which may be such a group again: then the group that was made last comes
/// first.
///
/// ```ignore
/// let all = AdamWConfig::new().with_weight_decay(0.1).init::<B, Model<B>>();
/// let biases = ParamGroup::new(["*.bias"], AdamWConfig::new().with_weight_decay(0.0).init(), all);
/// let mut optimizer = ParamGroup::new(["head.*"], SgdConfig::new().init(), biases).with_lr_factor(10.0);
/// ```
///
/// Patterns are those of [`Module::freeze`](kiln_core::module::Module::freeze): paths with `*` and `?`, by the names that
/// PyTorch gives to parameters or by those of fields. A parameter that is in several places of a module belongs to the group of any
/// of them.
///
/// The record of a group is the pair of both optimizers' records. A parameter that changed to another group since starts anew there.
#[derive(Clone, Debug)]
pub struct ParamGroup<O, R> {
    patterns: Vec<String>,
    lr_factor: f64,
    optimizer: O,
    others: R,
    /// Which parameters were looked at, and whether they belong to the group.
    known: HashMap<ParamId, bool>,
}

impl<O, R> ParamGroup<O, R> {
    /// `optimizer` for the parameters that one of the patterns fits, `others` for all others.
    pub fn new<P: Into<String>>(patterns: impl IntoIterator<Item = P>, optimizer: O, others: R) -> Self {
        let patterns = patterns.into_iter().map(Into::into).collect();
        Self { patterns, lr_factor: 1.0, optimizer, others, known: HashMap::new() }
    }

    /// The group's learning rate as a multiple of the others', so that one schedule serves all.
    #[must_use]
    pub fn with_lr_factor(mut self, lr_factor: f64) -> Self {
        self.lr_factor = lr_factor;
        self
    }

    /// The parameters of a module that belong to the group.
    ///
    /// # Errors
    /// When a pattern fits no parameter.
    pub fn params<B, M>(&self, module: &M) -> Result<HashSet<ParamId>, NothingSelected>
    where
        B: AutodiffBackend,
        M: AutodiffModule<B>,
    {
        let mut ids = HashSet::new();
        for pattern in &self.patterns {
            ids.extend(module.select_params(pattern)?);
        }
        Ok(ids)
    }

    /// Looks at a module when there are parameters that are not known yet.
    fn learn<B, M>(&mut self, module: &M, grads: &GradientsParams)
    where
        B: AutodiffBackend,
        M: AutodiffModule<B>,
    {
        if grads.ids().all(|id| self.known.contains_key(&id)) {
            return;
        }
        let chosen = self.params::<B, M>(module).unwrap_or_else(|error| panic!("ParamGroup: {error}"));
        self.known.extend(grads.ids().map(|id| (id, chosen.contains(&id))));
    }
}

impl<O, R, M, B> Optimizer<M, B> for ParamGroup<O, R>
where
    O: Optimizer<M, B>,
    R: Optimizer<M, B>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    type Record = (O::Record, R::Record);

    /// # Panics
    /// When a pattern fits no parameter of the module; [`ParamGroup::params`] says so before.
    fn step(&mut self, lr: LearningRate, module: M, mut grads: GradientsParams) -> M {
        self.learn::<B, M>(&module, &grads);
        let others = grads.split_off(|id| self.known.get(id) != Some(&true));
        let module = self.optimizer.step(lr * self.lr_factor, module, grads);
        self.others.step(lr, module, others)
    }

    fn to_record(&self) -> Self::Record {
        (self.optimizer.to_record(), self.others.to_record())
    }

    fn check_record(&self, (optimizer, others): &Self::Record, module: &M) -> Result<(), RecorderError> {
        self.optimizer.check_record(optimizer, module)?;
        self.others.check_record(others, module)
    }

    fn load_record(self, (optimizer, others): Self::Record) -> Self {
        Self {
            optimizer: self.optimizer.load_record(optimizer),
            others: self.others.load_record(others),
            ..self
        }
    }
}
