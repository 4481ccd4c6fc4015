//! [`ClassificationOutput`].

use crate::metric::{
    AccuracyInput, Adaptor, AurocInput, ConfusionStatsInput, ItemLazy, LossInput, PerplexityInput,
    TopKAccuracyInput,
};
use kiln_core::Tensor;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{Bool, Int, Transaction};
use kiln_ndarray::NdArray;

/// What comes of classifying each item into one of several classes.
#[derive(Clone, Debug)]
pub struct ClassificationOutput<B: Backend> {
    /// The loss, `[1]`.
    pub loss: Tensor<B, 1>,
    /// Scores, `[batch, classes]`.
    pub output: Tensor<B, 2>,
    /// Classes, `[batch]`.
    pub targets: Tensor<B, 1, Int>,
}

impl<B: Backend> ClassificationOutput<B> {
    /// From the loss `[1]`, the scores `[batch, classes]` and the classes `[batch]`.
    pub fn new(loss: Tensor<B, 1>, output: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Self {
        Self { loss, output, targets }
    }
}

impl<B: Backend> ItemLazy for ClassificationOutput<B> {
    type ItemSync = ClassificationOutput<NdArray>;

    fn sync(self) -> Self::ItemSync {
        let read = Transaction::default().register(self.loss).register(self.output).register(self.targets);
        let [loss, output, targets] = super::read(read);
        ClassificationOutput {
            loss: super::on_host(loss),
            output: super::on_host(output),
            targets: super::on_host(targets),
        }
    }
}

impl<B: Backend> Adaptor<AccuracyInput<B>> for ClassificationOutput<B> {
    fn adapt(&self) -> AccuracyInput<B> {
        AccuracyInput::new(self.output.clone(), self.targets.clone())
    }
}

impl<B: Backend> Adaptor<TopKAccuracyInput<B>> for ClassificationOutput<B> {
    fn adapt(&self) -> TopKAccuracyInput<B> {
        TopKAccuracyInput::new(self.output.clone(), self.targets.clone())
    }
}

impl<B: Backend> Adaptor<AurocInput<B>> for ClassificationOutput<B> {
    fn adapt(&self) -> AurocInput<B> {
        AurocInput::new(self.output.clone(), self.targets.clone())
    }
}

impl<B: Backend> Adaptor<PerplexityInput<B>> for ClassificationOutput<B> {
    fn adapt(&self) -> PerplexityInput<B> {
        PerplexityInput::new(self.output.clone(), self.targets.clone())
    }
}

impl<B: Backend> Adaptor<LossInput<B>> for ClassificationOutput<B> {
    fn adapt(&self) -> LossInput<B> {
        LossInput::new(self.loss.clone())
    }
}

impl<B: Backend> Adaptor<ConfusionStatsInput<B>> for ClassificationOutput<B> {
    fn adapt(&self) -> ConfusionStatsInput<B> {
        let [batch, classes] = self.output.dims();
        let targets: Tensor<B, 2, Int> = self.targets.clone().reshape([batch, 1]);
        let targets: Tensor<B, 2, Bool> = if classes > 1 {
            let all = Tensor::<B, 1, Int>::arange(0..classes as i64, &targets.device());
            targets.equal(all.reshape([1, classes]))
        } else {
            targets.bool()
        };
        ConfusionStatsInput::new(self.output.clone(), targets)
    }
}
