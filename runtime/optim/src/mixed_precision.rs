//! Mixed precision (Micikevicius et al. 2018): a module computes in 16 bits, its weights and its optimizer's state have 32.
//!
//! ```ignore
//! let mut scaler = LossScalerConfig::new().init();
//! // …for each batch:
//! let loss = compute_in::<B, _>(&model, DType::F16).forward(batch.cast(DType::F16)).cast(DType::F32).mean();
//! let grads = GradientsParams::from_grads(scaler.scale(loss).backward(), &model);
//! model = scaler.step(&mut optimizer, lr, model, grads);
//! ```
//!
//! bf16 has the range of f32, and needs no scaler.

use crate::{GradientsParams, LearningRate, Optimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param, RunningState};
use kiln_core::record::Record;
use kiln_core::tensor::backend::{AutodiffBackend, Backend};
use kiln_core::tensor::{Bool, DType};
use std::marker::PhantomData;

/// The module as it computes in another float dtype: its parameters are the module's own ones, converted, so that gradients flow
/// back to those. Running statistics stay the module's own. It is made for one `forward`, or for those of one step.
///
/// # Panics
/// When the dtype is none of floats.
pub fn compute_in<B: AutodiffBackend, M: AutodiffModule<B>>(module: &M, dtype: DType) -> M {
    assert!(dtype.is_float(), "compute_in: {dtype:?} is no dtype of floats");
    module.clone().map(&mut Converter { dtype })
}

struct Converter {
    dtype: DType,
}

impl<B: Backend> ModuleMapper<B> for Converter {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, value, mapper) = param.consume();
        // Not `Param::map`, which makes a new leaf: this value leads back to the old one.
        Param::from_mapped_value(id, value.cast(self.dtype), mapper)
    }

    fn map_running<const D: usize>(
        &mut self,
        state: RunningState<Tensor<B, D>>,
    ) -> RunningState<Tensor<B, D>> {
        state
    }
}

/// Config of [`LossScaler`]; defaults as PyTorch's `GradScaler` has them.
#[derive(Config, Debug)]
pub struct LossScalerConfig {
    /// The first factor.
    #[config(default = 65536.0)]
    pub init_scale: f64,
    /// What the factor is multiplied by after [`LossScalerConfig::growth_interval`] steps.
    #[config(default = 2.0)]
    pub growth_factor: f64,
    /// What the factor is multiplied by when a gradient is not finite.
    #[config(default = 0.5)]
    pub backoff_factor: f64,
    /// How many steps in a row have to be finite before the factor grows.
    #[config(default = 2000)]
    pub growth_interval: usize,
    /// The factor does not become smaller than this: gradients that are not finite then either are so of the loss itself, which no
    /// factor helps.
    #[config(default = 1e-4)]
    pub min_scale: f64,
}

impl LossScalerConfig {
    /// The scaler.
    ///
    /// # Panics
    /// When the first factor is not positive, the growth factor not above 1, the backoff factor not between 0 and 1, or the
    /// interval 0.
    pub fn init(&self) -> LossScaler {
        let Self { init_scale, growth_factor, backoff_factor, growth_interval, min_scale } = self;
        assert!(*init_scale > 0.0 && init_scale.is_finite(), "LossScaler: init_scale is {init_scale}");
        assert!(*growth_factor > 1.0, "LossScaler: growth_factor is {growth_factor}, and must be above 1");
        assert!(
            *backoff_factor > 0.0 && *backoff_factor < 1.0,
            "LossScaler: backoff_factor is {backoff_factor}, and must be between 0 and 1"
        );
        assert!(*growth_interval > 0, "LossScaler: growth_interval is 0");
        assert!(
            *min_scale > 0.0 && min_scale <= init_scale,
            "LossScaler: min_scale is {min_scale}, and must be above 0 and at most init_scale"
        );
        LossScaler { config: self.clone(), state: LossScalerRecord { scale: *init_scale, finite_steps: 0 } }
    }
}

/// Scales losses so that small gradients do not vanish in f16, whose smallest number is 6e-8, and finds by itself by how much: steps
/// whose gradients overflow are left out and make the factor smaller, many good ones make it larger.
#[derive(Clone, Debug)]
pub struct LossScaler {
    config: LossScalerConfig,
    state: LossScalerRecord,
}

/// Where a [`LossScaler`] is, to store beside a checkpoint.
#[derive(Record, Clone, Debug, PartialEq)]
pub struct LossScalerRecord {
    /// The factor.
    pub scale: f64,
    /// How many steps in a row were finite since the factor changed.
    pub finite_steps: usize,
}

impl LossScaler {
    /// The loss times the factor: what gradients are computed of.
    pub fn scale<B: Backend, const D: usize>(&self, loss: Tensor<B, D>) -> Tensor<B, D> {
        loss * self.state.scale
    }

    /// Whether the factor is as small as it may be.
    pub fn is_smallest(&self) -> bool {
        self.state.scale <= self.config.min_scale
    }

    /// The factor of the next loss.
    pub fn factor(&self) -> f64 {
        self.state.scale
    }

    /// The gradients of the loss itself, or nothing when one of them is not finite, in which case there must be no step. Either way
    /// this ends the step: the factor is another afterwards. It waits for the device once.
    pub fn unscale<B: AutodiffBackend, M: AutodiffModule<B>>(
        &mut self,
        module: &M,
        grads: GradientsParams,
    ) -> Option<GradientsParams> {
        let mut visitor = Unscaler::<B> {
            factor: 1.0 / self.state.scale,
            grads,
            unscaled: GradientsParams::new(),
            finite: Vec::new(),
            backend: PhantomData,
        };
        module.visit(&mut visitor);
        let finite = all_true(visitor.finite);
        self.update(finite);
        finite.then_some(visitor.unscaled)
    }

    /// A step of an optimizer, if the gradients are finite.
    pub fn step<B, M, O>(
        &mut self,
        optimizer: &mut O,
        lr: LearningRate,
        module: M,
        grads: GradientsParams,
    ) -> M
    where
        B: AutodiffBackend,
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        match self.unscale::<B, M>(&module, grads) {
            Some(grads) => optimizer.step(lr, module, grads),
            None => module,
        }
    }

    fn update(&mut self, finite: bool) {
        let LossScalerRecord { scale, finite_steps } = &mut self.state;
        if !finite {
            *scale = (*scale * self.config.backoff_factor).max(self.config.min_scale);
            *finite_steps = 0;
            return;
        }
        *finite_steps += 1;
        if *finite_steps >= self.config.growth_interval {
            let larger = *scale * self.config.growth_factor;
            // The loss is f32.
            if larger <= f64::from(f32::MAX) {
                *scale = larger;
            }
            *finite_steps = 0;
        }
    }

    /// Where it is.
    pub fn to_record(&self) -> LossScalerRecord {
        self.state.clone()
    }

    /// The scaler as it was when the record was made.
    #[must_use]
    pub fn load_record(mut self, record: LossScalerRecord) -> Self {
        self.state = record;
        self
    }
}

/// Whether all flags are set.
fn all_true<B: Backend>(flags: Vec<Tensor<B, 1, Bool>>) -> bool {
    let Some(device) = flags.first().map(Tensor::device) else { return true };
    let flags =
        flags.into_iter().map(|flag| if flag.device() == device { flag } else { flag.to_device(&device) });
    Tensor::cat(flags.collect(), 0).all().into_data().iter::<bool>().all(|flag| flag)
}

/// Divides gradients by the factor of their loss as it visits their parameters.
struct Unscaler<B: AutodiffBackend> {
    factor: f64,
    grads: GradientsParams,
    unscaled: GradientsParams,
    /// For each gradient whether it is finite.
    finite: Vec<Tensor<B::InnerBackend, 1, Bool>>,
    backend: PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Unscaler<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(gradient) = self.grads.remove::<B::InnerBackend, D>(param.id) else { return };
        // By a small factor, what is finite is divided into what is not.
        let gradient = gradient * self.factor;
        self.finite.push(gradient.clone().is_finite().all());
        self.unscaled.register(param.id, gradient);
    }
}
