//! Loss on sequences without an alignment.

use super::Reduction;
use crate::config::Config;
use crate::module::Module;
use crate::nn::display::layer_display;
use crate::tensor::{Bool, Int, Tensor, backend::Backend};
use alloc::{vec, vec::Vec};

/// Configuration of [`CTCLoss`].
#[derive(Config, Debug)]
pub struct CTCLossConfig {
    /// The class that stands for no label.
    #[config(default = 0)]
    pub blank: usize,
    /// Whether the loss of targets that no alignment yields, which is infinite, is 0 instead.
    #[config(default = false)]
    pub zero_infinity: bool,
}

/// Connectionist temporal classification (Graves et al. 2006): `-ln` of the probability of a target, summed over all
/// alignments with the input's steps. An alignment has a class for each step; without repetitions and then without
/// blanks, it is the target.
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct CTCLoss {
    /// The class that stands for no label.
    pub blank: usize,
    /// Whether infinite losses are 0 instead.
    pub zero_infinity: bool,
}

impl CTCLossConfig {
    /// The loss.
    pub fn init(&self) -> CTCLoss {
        CTCLoss { blank: self.blank, zero_infinity: self.zero_infinity }
    }
}

impl Default for CTCLoss {
    fn default() -> Self {
        CTCLossConfig::new().init()
    }
}

impl CTCLoss {
    /// The loss with defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The loss of each sequence, `[batch]`.
    ///
    /// - `log_probs`: logarithms of probabilities (`log_softmax` of logits), `[steps, batch, classes]`.
    /// - `targets`: labels without blanks, `[batch, labels]`; what is beyond a target's length does not count.
    /// - `input_lengths`, `target_lengths`: how many steps and labels of each sequence count, `[batch]`.
    ///
    /// Where no alignment yields a target, because it is too long, its loss is infinite and its gradient 0.
    ///
    /// # Panics
    /// When the operands' sizes do not fit, or the blank is no class.
    pub fn forward<B: Backend>(
        &self,
        log_probs: Tensor<B, 3>,
        targets: Tensor<B, 2, Int>,
        input_lengths: Tensor<B, 1, Int>,
        target_lengths: Tensor<B, 1, Int>,
    ) -> Tensor<B, 1> {
        let [steps, batch, classes] = log_probs.dims();
        let [rows, _] = targets.dims();
        let lengths = [input_lengths.dims(), target_lengths.dims()];
        assert!(
            rows == batch && lengths == [[batch]; 2],
            "CTCLoss: {batch} sequences, {rows} targets, lengths {lengths:?}"
        );
        assert!(self.blank < classes, "CTCLoss: the blank {} is none of {classes} classes", self.blank);
        let states = States::new(targets, target_lengths.reshape([batch, 1]), self.blank);
        let [_, count] = states.labels.dims();
        // Before the first step, every alignment is in the first state.
        let first = Tensor::<B, 1, Int>::arange(0..count as i64, &log_probs.device()).equal_elem(0);
        let first = first.reshape([1, count]).expand([batch, count]);
        let nowhere = log_probs.clone().detach().slice([0..steps.min(1), 0..batch, 0..1]);
        let mut alpha = impossible(&nowhere, [batch, count]).mask_fill(first, 0.0);
        let labels = states.labels.clone().reshape([1, batch, count]).expand([steps, batch, count]);
        let counted = (input_lengths - 1).reshape([batch, 1]).expand([batch, count]);
        for (step, emission) in unstacked(log_probs.gather(2, labels)).into_iter().enumerate() {
            let next = states.reached(alpha.clone()) + emission;
            alpha = next.mask_where(counted.clone().lower_elem(step as i64), alpha);
        }
        let loss = states.ended(alpha).neg();
        match self.zero_infinity {
            true => loss.clone().mask_fill(loss.is_inf(), 0.0),
            false => loss,
        }
    }

    /// One loss: the sum, or, as PyTorch has it, the mean of the losses for each label.
    ///
    /// # Panics
    /// As [`CTCLoss::forward`].
    pub fn forward_with_reduction<B: Backend>(
        &self,
        log_probs: Tensor<B, 3>,
        targets: Tensor<B, 2, Int>,
        input_lengths: Tensor<B, 1, Int>,
        target_lengths: Tensor<B, 1, Int>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        let labels = target_lengths.clone().clamp_min(1);
        let losses = self.forward(log_probs, targets, input_lengths, target_lengths);
        match reduction {
            Reduction::Sum => losses.sum(),
            Reduction::Mean | Reduction::Auto => {
                let labels = labels.float().cast(losses.dtype());
                (losses / labels).mean()
            }
        }
    }
}

layer_display!(CTCLoss, |loss| {
    "blank" => loss.blank,
    "zero_infinity" => loss.zero_infinity,
});

/// What an alignment goes through: the labels of a target with blanks between them and at both ends.
struct States<B: Backend> {
    /// `[batch, 2 labels + 1]`.
    labels: Tensor<B, 2, Int>,
    /// Whether a state cannot be reached from the one before the last: blanks, and repetitions, which would be one label.
    no_skip: Tensor<B, 2, Bool>,
    /// The number of labels, `[batch, 1]`.
    lengths: Tensor<B, 2, Int>,
}

impl<B: Backend> States<B> {
    fn new(targets: Tensor<B, 2, Int>, lengths: Tensor<B, 2, Int>, blank: usize) -> Self {
        let [batch, count] = targets.dims();
        let device = targets.device();
        let places = Tensor::<B, 1, Int>::arange(0..count as i64, &device).reshape([1, count]);
        let beyond = places.expand([batch, count]).greater_equal(lengths.clone().expand([batch, count]));
        // What is beyond a target may be no class at all.
        let targets = targets.mask_fill(beyond, blank as i64);
        let blanks = targets.full_like(blank as i64);
        let pairs: Tensor<B, 3, Int> = Tensor::stack(vec![blanks.clone(), targets], 2);
        let last = Tensor::full([batch, 1], blank as i64, &device).cast(blanks.dtype());
        let labels = Tensor::cat(vec![pairs.reshape([batch, 2 * count]), last.clone()], 1);
        let before = Tensor::cat(vec![last.clone(), last, labels.clone()], 1).narrow(1, 0, 2 * count + 1);
        // Before the first label there is none: a blank is not equal to it, and a label there may be entered at once.
        let no_skip = labels.clone().equal(before).bool_or(labels.clone().equal_elem(blank as i64));
        Self { labels, no_skip, lengths }
    }

    /// The logarithm of the probability of coming to each state, from the state itself, the one before, or two before.
    fn reached(&self, alpha: Tensor<B, 2>) -> Tensor<B, 2> {
        let [batch, count] = alpha.dims();
        let front = impossible(&alpha, [batch, 2]);
        let padded = Tensor::cat(vec![front, alpha.clone()], 1);
        let skipped = padded.clone().narrow(1, 0, count).mask_fill(self.no_skip.clone(), f32::NEG_INFINITY);
        log_sum_exp([alpha, padded.narrow(1, 1, count), skipped])
    }

    /// The logarithm of the probability of having come to the last label or the blank behind it.
    fn ended(&self, alpha: Tensor<B, 2>) -> Tensor<B, 1> {
        let [batch, _] = alpha.dims();
        let last = self.lengths.clone() * 2;
        let label = alpha.clone().gather(1, (last.clone() - 1).clamp_min(0));
        let label = label.mask_fill(self.lengths.clone().equal_elem(0), f32::NEG_INFINITY);
        log_sum_exp([alpha.gather(1, last), label]).reshape([batch])
    }
}

/// Logarithms of the probability 0, like `like` in all but the size.
fn impossible<B: Backend, const D: usize>(like: &Tensor<B, D>, size: [usize; 2]) -> Tensor<B, 2> {
    Tensor::full(size, f32::NEG_INFINITY, &like.device()).cast(like.dtype())
}

/// `ln Σ exp xᵢ`, `-∞` where all are, with gradient 0 there.
fn log_sum_exp<B: Backend, const N: usize>(terms: [Tensor<B, 2>; N]) -> Tensor<B, 2> {
    let detached = terms.clone().map(Tensor::detach);
    let Some(largest) = detached.into_iter().reduce(Tensor::max_pair) else {
        unreachable!("there are terms")
    };
    let none = largest.clone().equal_elem(f32::NEG_INFINITY);
    let largest = largest.mask_fill(none.clone(), 0.0);
    let terms = terms.map(|term| (term - largest.clone()).exp());
    let Some(sum) = terms.into_iter().reduce(|a, b| a + b) else { unreachable!("there are terms") };
    // Where all are -∞, the logarithm of the sum, 0, has no derivative.
    (sum.mask_fill(none.clone(), 1.0).log() + largest).mask_fill(none, f32::NEG_INFINITY)
}

/// The matrices along the first dim. They are cut in halves: the gradient of a slice has the size of what it was cut from,
/// so that the sum over single slices would take time in proportion to the square of the length.
fn unstacked<B: Backend>(tensor: Tensor<B, 3>) -> Vec<Tensor<B, 2>> {
    let [count, rows, columns] = tensor.dims();
    match count {
        0 => Vec::new(),
        1 => vec![tensor.reshape([rows, columns])],
        _ => {
            let half = count / 2;
            let mut first = unstacked(tensor.clone().narrow(0, 0, half));
            first.extend(unstacked(tensor.narrow(0, half, count - half)));
            first
        }
    }
}
