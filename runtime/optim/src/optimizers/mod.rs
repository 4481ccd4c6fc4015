//! The optimizers, a file each.

mod adadelta;
mod adagrad;
mod adam;
mod adamax;
pub mod decay;
mod lion;
pub mod momentum;
mod muon;
mod nadam;
mod rms_prop;
mod sgd;

pub use adadelta::{AdaDelta, AdaDeltaConfig, AdaDeltaState};
pub use adagrad::{AdaGrad, AdaGradConfig, AdaGradState};
pub use adam::{Adam, AdamConfig, AdamState, AdamW, AdamWConfig};
pub use adamax::{AdaMax, AdaMaxConfig, AdaMaxState};
pub use lion::{Lion, LionConfig, LionState};
pub use muon::{AdjustLrFn, Muon, MuonConfig, MuonState};
pub use nadam::{NAdam, NAdamConfig, NAdamState};
pub use rms_prop::{RmsProp, RmsPropConfig, RmsPropState};
pub use sgd::{Sgd, SgdConfig, SgdState};

use kiln_core::Tensor;
use kiln_core::tensor::backend::Backend;

/// `rate · old + (1 - rate) · new`; `new` alone weighs in where there is no old one, as if that were 0.
fn moving_average<B: Backend, const D: usize>(
    rate: f32,
    old: Option<Tensor<B, D>>,
    new: Tensor<B, D>,
) -> Tensor<B, D> {
    let new = new * (1.0 - rate);
    match old {
        Some(old) => old * rate + new,
        None => new,
    }
}

/// `1 - rate^time`: what a moving average that began at 0 has to be divided by (Kingma & Ba 2015, section 3).
fn bias_correction(rate: f32, time: usize) -> f64 {
    1.0 - f64::from(rate).powf(time as f64)
}

/// Methods of an optimizer whose state follows its tensor, to devices and to dtypes, by the state's `each`.
macro_rules! state_follows {
    () => {
        fn to_device<const D: usize>(
            state: Self::State<D>,
            device: &kiln_core::tensor::Device<B>,
        ) -> Self::State<D> {
            state.each(|tensor| tensor.to_device(device))
        }

        fn to_dtype<const D: usize>(
            state: Self::State<D>,
            dtype: kiln_core::tensor::DType,
        ) -> Self::State<D> {
            state.each(|tensor| tensor.cast(dtype))
        }

        fn fits<const D: usize>(state: &Self::State<D>, shape: &kiln_core::tensor::Shape) -> bool {
            let fits = std::cell::Cell::new(true);
            // All that is remembered of a tensor has its shape.
            let _ = state.clone().each(|tensor| {
                fits.set(fits.get() && tensor.shape() == *shape);
                tensor
            });
            fits.get()
        }
    };
}
use state_follows;

/// `init`: the config's optimizer for all parameters of a module.
macro_rules! initialize {
    ($config:ident, $optimizer:ty) => {
        initialize!($config, $optimizer, grad_clipping);

        impl $config {
            /// With bounds on the gradients.
            #[must_use]
            pub fn with_gradient_clipping(self, clipping: crate::GradientClippingConfig) -> Self {
                self.with_grad_clipping(Some(clipping))
            }
        }
    };
    ($config:ident, $optimizer:ty, $clipping:ident) => {
        impl $config {
            /// The optimizer of a module.
            pub fn init<B, M>(&self) -> crate::OptimizerAdaptor<$optimizer, M, B>
            where
                B: kiln_core::tensor::backend::AutodiffBackend,
                M: kiln_core::module::AutodiffModule<B>,
            {
                let optimizer = crate::OptimizerAdaptor::from(<$optimizer>::from(self));
                match &self.$clipping {
                    Some(clipping) => optimizer.with_grad_clipping(clipping.init()),
                    None => optimizer,
                }
            }
        }
    };
}
use initialize;
