//! The low-rank pairs of a module, away from it: the state of a training has them apart from the weights that they stand beside.

use super::adapter::FIELDS;
use super::paths::Place;
use super::{LowRank, Module, ModuleMapper, ModuleVisitor, Param};
use crate::record::{RecordCheck, RecorderError};
use crate::tensor::Tensor;
use crate::tensor::backend::Backend;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// The matrices `A` and `B` of each pair, with the path of the weight beside which it is.
pub type LowRankRecord<B> = Vec<(String, [Param<Tensor<B, 2>>; 2])>;

/// The pairs of [`Module::with_low_rank`], taken off their module.
///
/// A record of the module alone has the products of the pairs in its weights, and nothing of what an optimizer knows the pairs by.
/// With the pairs apart, both can be stored such that a training goes on where it was.
#[derive(Clone, Debug)]
pub struct LowRankPairs<B: Backend> {
    /// By the paths of the weights.
    pairs: BTreeMap<String, LowRank<Tensor<B, 2>>>,
}

impl<B: Backend> LowRankPairs<B> {
    /// Whether a module has any.
    pub fn are_in<M: Module<B>>(module: &M) -> bool {
        let mut seeker = Seeker(false);
        module.visit(&mut seeker);
        seeker.0
    }

    /// Takes the pairs off a module, of which the weights by themselves remain.
    #[must_use]
    pub fn take<M: Module<B>>(module: M) -> (M, Self) {
        let mut taker = Taker { place: Place::default(), pairs: BTreeMap::new() };
        let module = module.map(&mut taker);
        (module, Self { pairs: taker.pairs })
    }

    /// Puts the pairs beside the weights that they were taken from.
    #[must_use]
    pub fn put<M: Module<B>>(self, module: M) -> M {
        module.map(&mut Putter { place: Place::default(), pairs: self.pairs })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Their state.
    pub fn into_record(self) -> LowRankRecord<B> {
        let saved = |pair: LowRank<Tensor<B, 2>>| [pair.a.into_record(), pair.b.into_record()];
        self.pairs.into_iter().map(|(path, pair)| (path, saved(pair))).collect()
    }

    /// The pairs with the state of a record of the same ones.
    ///
    /// # Errors
    /// [`RecorderError::Parameters`] when the record is of other weights, or of another rank.
    pub fn try_load_record(self, record: LowRankRecord<B>) -> Result<Self, RecorderError> {
        let mut check = RecordCheck::default();
        let mut loaded = BTreeMap::new();
        let mut records: BTreeMap<String, [Param<Tensor<B, 2>>; 2]> = record.into_iter().collect();
        for (path, pair) in self.pairs {
            check.enter(&path);
            match records.remove(&path) {
                Some([a, b]) => {
                    for (name, (own, found)) in FIELDS.into_iter().zip([(&pair.a, &a), (&pair.b, &b)]) {
                        check.enter(name);
                        own.check_record(found, &mut check);
                        check.exit();
                    }
                    let (a, b) = (pair.a.load_record(a), pair.b.load_record(b));
                    loaded.insert(path, LowRank { a, b, alpha: pair.alpha, form: pair.form });
                }
                None => check.missing_part(),
            }
            check.exit();
        }
        for path in records.keys() {
            check.enter(path);
            check.unknown_part();
            check.exit();
        }
        check.finish("the record of the low-rank pairs")?;
        Ok(Self { pairs: loaded })
    }
}

/// Finds out whether there is a pair.
struct Seeker(bool);

impl<B: Backend> ModuleVisitor<B> for Seeker {
    fn visit_low_rank<const D: usize>(&mut self, _: &Param<Tensor<B, D>>) {
        self.0 = true;
    }
}

struct Taker<B: Backend> {
    place: Place,
    pairs: BTreeMap<String, LowRank<Tensor<B, 2>>>,
}

impl<B: Backend> ModuleMapper<B> for Taker<B> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.place.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.place.exit();
    }

    fn map_low_rank<const D: usize>(&mut self, mut param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        if let Some(LowRank { a, b, alpha, form }) = param.take_low_rank() {
            self.pairs.insert(self.place.path(), LowRank { a, b, alpha, form });
        }
        param
    }
}

struct Putter<B: Backend> {
    place: Place,
    pairs: BTreeMap<String, LowRank<Tensor<B, 2>>>,
}

impl<B: Backend> ModuleMapper<B> for Putter<B> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.place.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.place.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        match self.pairs.remove(&self.place.path()) {
            Some(LowRank { a, b, alpha, form }) => param.with_low_rank(LowRank { a, b, alpha, form }),
            None => param,
        }
    }
}
