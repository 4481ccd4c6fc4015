//! Low-rank adaptation: a weight that stays as it is, and a pair of small matrices beside it that learns.

use super::paths::Place;
use super::selection::Selection;
use super::{
    Initializer, Module, ModuleMapper, ModuleVisitor, NothingSelected, Param, Parameter, RunningState,
};
use crate::tensor::backend::Backend;
use crate::tensor::{Shape, Tensor, module};
use core::fmt;

/// What the pair's fields are called in paths: PEFT's names.
pub const FIELDS: [&str; 2] = ["lora_A", "lora_B"];

/// The container that visitors see around the pair.
const CONTAINER: &str = "LowRank";

/// A pair of matrices beside a parameter (Hu et al. 2021, LoRA): the parameter acts as `W + alpha / rank · B · A`.
///
/// [`Module::with_low_rank`] makes them. [`Param::val`] is the whole value, `B · A` in it; the parameter's own is what
/// `*param` is. Visitors and mappers see the pair as two more parameters. A record has no place for them: it holds the whole value,
/// which any module of the same form loads, and one that still has a pair then begins it anew. The pairs alone are saved with
/// `weights::save_low_rank`. The state of a training has them by themselves, so that it goes on with them; see
/// [`LowRankPairs`](super::LowRankPairs).
pub struct LowRank<T: Parameter> {
    /// `[rank, inputs]`.
    pub a: Param<T::Matrix>,
    /// `[outputs, rank]`.
    pub b: Param<T::Matrix>,
    /// The product is multiplied by `alpha / rank`.
    pub alpha: f64,
    pub(crate) form: Form,
}

/// How a weight's dims are a matrix's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `[inputs, outputs]`.
    Linear,
    /// `[inputs, outputs]`, whose rows are looked up.
    Table,
    /// `[outputs, inputs…]`.
    Kernel,
}

impl Form {
    /// What a layer's parameter is, if it can have a pair.
    pub(crate) fn of(layer: &str, field: &str) -> Option<Self> {
        match (layer, field) {
            ("Linear", "weight") => Some(Self::Linear),
            ("Embedding", "weight") => Some(Self::Table),
            ("Conv1d" | "Conv2d" | "Conv3d", "weight") => Some(Self::Kernel),
            _ => None,
        }
    }

    /// Inputs and outputs of a weight.
    pub(crate) fn sizes(self, shape: &Shape) -> (usize, usize) {
        let dims = shape.as_slice();
        let first = dims.first().copied().unwrap_or(1);
        let rest = dims.get(1..).unwrap_or_default().iter().product();
        match self {
            Self::Linear | Self::Table => (first, rest),
            Self::Kernel => (rest, first),
        }
    }
}

impl<T: Parameter> LowRank<T> {
    /// The inner size of the product.
    pub fn rank(&self) -> usize {
        self.a.lazy_shape().as_slice().first().copied().unwrap_or(1)
    }

    /// What the product is multiplied by.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank().max(1) as f64
    }

    /// The whole value of the parameter.
    pub(super) fn applied(&self, base: T) -> T {
        let transposed = self.form != Form::Kernel;
        base.add_product(self.b.val(), self.a.val(), self.scale(), transposed)
    }

    /// Whether gradients flow through the pair.
    pub(super) fn is_tracked(&self) -> bool {
        self.a.is_tracked() || self.b.is_tracked()
    }

    /// The pair, each matrix changed.
    pub(super) fn map_each(self, mut change: impl FnMut(&str, Param<T::Matrix>) -> Param<T::Matrix>) -> Self {
        let [a, b] = FIELDS;
        Self { a: change(a, self.a), b: change(b, self.b), alpha: self.alpha, form: self.form }
    }

    /// The pair with a product of zeros, from which it can learn again.
    pub(super) fn begun(self) -> Self {
        match self.form {
            Form::Table => Self { a: self.a.zeros(), ..self },
            Form::Linear | Form::Kernel => Self { b: self.b.zeros(), ..self },
        }
    }

    /// The pair beside a parameter of another backend.
    pub(super) fn convert<U: Parameter>(
        &self,
        convert: impl Fn(&Param<T::Matrix>) -> Param<U::Matrix>,
    ) -> LowRank<U> {
        LowRank { a: convert(&self.a), b: convert(&self.b), alpha: self.alpha, form: self.form }
    }
}

impl<B: Backend> LowRank<Tensor<B, 2>> {
    /// What the pair of a linear layer adds to its output: `alpha / rank · x · Aᵀ · Bᵀ`, without the whole weight's product.
    pub(crate) fn linear<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let inner = module::linear(input, self.a.val().transpose(), None);
        module::linear(inner, self.b.val().transpose(), None) * self.scale()
    }
}

impl<T: Parameter> Clone for LowRank<T> {
    fn clone(&self) -> Self {
        Self { a: self.a.clone(), b: self.b.clone(), alpha: self.alpha, form: self.form }
    }
}

impl<T: Parameter> fmt::Debug for LowRank<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LowRank").field("rank", &self.rank()).field("alpha", &self.alpha).finish()
    }
}

/// Shows a parameter and its pair to a visitor.
pub fn visit<B: Backend, V: ModuleVisitor<B>, const D: usize>(param: &Param<Tensor<B, D>>, visitor: &mut V) {
    visitor.visit_float(param);
    let Some(pair) = param.low_rank() else { return };
    for (name, matrix) in FIELDS.into_iter().zip([&pair.a, &pair.b]) {
        visitor.enter_module(name, CONTAINER);
        visitor.visit_float(matrix);
        visitor.exit_module(name, CONTAINER);
    }
}

/// Maps a parameter and its pair, each by itself.
pub fn map<B: Backend, M: ModuleMapper<B>, const D: usize>(
    mut param: Param<Tensor<B, D>>,
    mapper: &mut M,
) -> Param<Tensor<B, D>> {
    let pair = param.take_low_rank();
    let param = mapper.map_float(param);
    let Some(pair) = pair else { return param };
    param.with_low_rank(pair.map_each(|name, matrix| {
        mapper.enter_module(name, CONTAINER);
        let matrix = mapper.map_float(matrix);
        mapper.exit_module(name, CONTAINER);
        matrix
    }))
}

/// A new pair for a weight.
///
/// # Panics
/// When the rank is 0.
pub(crate) fn pair<B: Backend, const D: usize>(
    weight: &Param<Tensor<B, D>>,
    form: Form,
    rank: usize,
    alpha: f64,
) -> LowRank<Tensor<B, D>> {
    assert!(rank > 0, "a low-rank pair has a rank of 1 or more");
    let (inputs, outputs) = form.sizes(&weight.lazy_shape());
    let device = weight.lazy_device();
    let (of_a, of_b) = match form {
        Form::Linear | Form::Kernel => (Initializer::UNIFORM_FAN_IN, Initializer::Zeros),
        Form::Table => (Initializer::Zeros, Initializer::Normal { mean: 0.0, std: 1.0 }),
    };
    let matrix = |initializer: Initializer, dims: [usize; 2]| {
        let matrix: Param<Tensor<B, 2>> = initializer.init_with(dims, Some(dims[1]), None, &device);
        match weight.lazy_unusual_dtype() {
            Some(dtype) => matrix.with_dtype(dtype),
            None => matrix,
        }
    };
    LowRank { a: matrix(of_a, [rank, inputs]), b: matrix(of_b, [outputs, rank]), alpha, form }
}

/// Whether a weight at a place can have a pair.
fn takes_pair(place: &Place) -> bool {
    place.field().is_some_and(|(layer, field)| Form::of(layer, field).is_some())
}

/// The module with pairs beside what fits a pattern, and everything else frozen.
pub fn attach<B: Backend, M: Module<B>>(
    module: M,
    pattern: &str,
    rank: usize,
    alpha: f64,
) -> Result<M, NothingSelected> {
    let what = "weight of a linear layer, an embedding or a convolution";
    let chosen = Selection::of::<B, M>(&module, pattern, takes_pair).some(what)?;
    let chosen = |path: &str| chosen.contains(path).then_some((rank, alpha));
    Ok(module.map(&mut Attacher { place: Place::default(), chosen }))
}

/// The module with pairs of ranks and alphas by path, and everything else frozen.
#[cfg(feature = "weights")]
pub(crate) fn attach_each<B: Backend, M: Module<B>>(
    module: M,
    chosen: impl Fn(&str) -> Option<(usize, f64)>,
) -> M {
    module.map(&mut Attacher { place: Place::default(), chosen })
}

/// Puts pairs beside weights; `chosen` says of which rank and alpha.
struct Attacher<F> {
    place: Place,
    chosen: F,
}

impl<B: Backend, F: Fn(&str) -> Option<(usize, f64)>> ModuleMapper<B> for Attacher<F> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.place.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.place.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let param = param.set_require_grad(false);
        let form = self.place.field().and_then(|(layer, field)| Form::of(layer, field));
        match (form, (self.chosen)(&self.place.path())) {
            (Some(form), Some((rank, alpha))) => {
                let pair = pair(&param, form, rank, alpha);
                param.with_low_rank(pair)
            }
            _ => param,
        }
    }

    /// One that is there stays as it is.
    fn map_low_rank<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.set_require_grad(false)
    }

    fn map_running<const D: usize>(
        &mut self,
        state: RunningState<Tensor<B, D>>,
    ) -> RunningState<Tensor<B, D>> {
        state.set_frozen(true)
    }
}

/// Adds pairs to their weights.
pub struct Merger;

impl<B: Backend> ModuleMapper<B> for Merger {
    fn map_low_rank<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let whole = Parameter::detach(param.val());
        let (id, base, mapper) = param.consume();
        Param::from_mapped_value(id, whole.set_require_grad(base.is_require_grad()), mapper)
    }
}
