//! [`MultiLabelClassificationOutput`].

use crate::metric::{Adaptor, ConfusionStatsInput, HammingScoreInput, ItemLazy, LossInput};
use kiln_core::Tensor;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{Int, Transaction};
use kiln_ndarray::NdArray;

/// What comes of classifying where each item can be of several classes.
#[derive(Clone, Debug)]
pub struct MultiLabelClassificationOutput<B: Backend> {
    /// The loss, `[1]`.
    pub loss: Tensor<B, 1>,
    /// Scores, `[batch, classes]`.
    pub output: Tensor<B, 2>,
    /// Whether an item is of a class, `[batch, classes]` of 0 and 1.
    pub targets: Tensor<B, 2, Int>,
}

impl<B: Backend> MultiLabelClassificationOutput<B> {
    /// From the loss `[1]`, the scores and the targets, both `[batch, classes]`.
    pub fn new(loss: Tensor<B, 1>, output: Tensor<B, 2>, targets: Tensor<B, 2, Int>) -> Self {
        Self { loss, output, targets }
    }
}

impl<B: Backend> ItemLazy for MultiLabelClassificationOutput<B> {
    type ItemSync = MultiLabelClassificationOutput<NdArray>;

    fn sync(self) -> Self::ItemSync {
        let read = Transaction::default().register(self.loss).register(self.output).register(self.targets);
        let [loss, output, targets] = super::read(read);
        MultiLabelClassificationOutput {
            loss: super::on_host(loss),
            output: super::on_host(output),
            targets: super::on_host(targets),
        }
    }
}

impl<B: Backend> Adaptor<HammingScoreInput<B>> for MultiLabelClassificationOutput<B> {
    fn adapt(&self) -> HammingScoreInput<B> {
        HammingScoreInput::new(self.output.clone(), self.targets.clone())
    }
}

impl<B: Backend> Adaptor<LossInput<B>> for MultiLabelClassificationOutput<B> {
    fn adapt(&self) -> LossInput<B> {
        LossInput::new(self.loss.clone())
    }
}

impl<B: Backend> Adaptor<ConfusionStatsInput<B>> for MultiLabelClassificationOutput<B> {
    fn adapt(&self) -> ConfusionStatsInput<B> {
        ConfusionStatsInput::new(self.output.clone(), self.targets.clone().bool())
    }
}
