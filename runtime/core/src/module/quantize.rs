//! Quantization of a module's weights.

use super::{ModuleMapper, Param};
use crate::tensor::quantization::{Calibration, QuantScheme, compute_q_params, compute_range};
use crate::tensor::{Tensor, backend::Backend};

/// Quantizes each float parameter of a module: `module.quantize_weights(&mut quantizer)`. See
/// [`quantization`](crate::tensor::quantization) for what a quantized tensor is.
#[derive(Clone, Debug, Default)]
pub struct Quantizer<S = QuantScheme> {
    /// How the range of a parameter's values is found.
    pub calibration: Calibration,
    /// How values are quantized.
    pub scheme: S,
}

impl<B: Backend, S: Into<QuantScheme> + Clone> ModuleMapper<B> for Quantizer<S> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| {
            let range = compute_range(&self.scheme, &tensor, &self.calibration);
            let qparams = compute_q_params(&self.scheme, range);
            tensor.quantize(&self.scheme, qparams)
        })
    }
}
