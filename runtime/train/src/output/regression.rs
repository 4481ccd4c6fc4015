//! [`RegressionOutput`].

use crate::metric::{Adaptor, ItemLazy, LossInput};
use kiln_core::Tensor;
use kiln_core::tensor::Transaction;
use kiln_core::tensor::backend::Backend;
use kiln_ndarray::NdArray;

/// What comes of predicting numbers.
#[derive(Clone, Debug)]
pub struct RegressionOutput<B: Backend> {
    /// The loss, `[1]`.
    pub loss: Tensor<B, 1>,
    /// Predictions, `[batch, values]`.
    pub output: Tensor<B, 2>,
    /// What was to be predicted, `[batch, values]`.
    pub targets: Tensor<B, 2>,
}

impl<B: Backend> RegressionOutput<B> {
    /// From the loss `[1]`, the predictions and the targets, both `[batch, values]`.
    pub fn new(loss: Tensor<B, 1>, output: Tensor<B, 2>, targets: Tensor<B, 2>) -> Self {
        Self { loss, output, targets }
    }
}

impl<B: Backend> ItemLazy for RegressionOutput<B> {
    type ItemSync = RegressionOutput<NdArray>;

    fn sync(self) -> Self::ItemSync {
        let read = Transaction::default().register(self.loss).register(self.output).register(self.targets);
        let [loss, output, targets] = super::read(read);
        RegressionOutput {
            loss: super::on_host(loss),
            output: super::on_host(output),
            targets: super::on_host(targets),
        }
    }
}

impl<B: Backend> Adaptor<LossInput<B>> for RegressionOutput<B> {
    fn adapt(&self) -> LossInput<B> {
        LossInput::new(self.loss.clone())
    }
}
