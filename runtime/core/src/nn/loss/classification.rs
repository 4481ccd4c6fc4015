//! Losses on classes.

use super::{Reduction, check_same};
use crate::config::Config;
use crate::module::{Ignored, Module};
use crate::nn::display::layer_display;
use crate::tensor::compose;
use crate::tensor::module::{self, CrossEntropyOptions};
use crate::tensor::{Int, Tensor, activation, backend::Backend};
use alloc::{format, string::String, vec::Vec};

fn check_options(loss: &str, smoothing: Option<f32>, weights: Option<&Vec<f32>>) {
    if let Some(smoothing) = smoothing {
        assert!((0.0..=1.0).contains(&smoothing), "{loss}: smoothing {smoothing} is not between 0 and 1");
    }
    let positive = weights.is_none_or(|weights| weights.iter().all(|&w| w > 0.0));
    assert!(positive, "{loss}: every class weight must be positive");
}

/// Configuration of [`CrossEntropyLoss`].
#[derive(Config, Debug)]
pub struct CrossEntropyLossConfig {
    /// Targets that do not count.
    pub pad_tokens: Option<Vec<usize>>,
    /// Weight of each class; the mean is weighted likewise.
    pub weights: Option<Vec<f32>>,
    /// How much of the target is spread over all classes (Szegedy et al. 2016).
    pub smoothing: Option<f32>,
    /// Whether the input are logits; else probabilities.
    #[config(default = true)]
    pub logits: bool,
}

/// `-ln softmax(logits)[target]`, its mean over the batch.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct CrossEntropyLoss<B: Backend> {
    /// Targets that do not count.
    pub pad_tokens: Option<Vec<usize>>,
    /// Weight of each class.
    pub weights: Option<Tensor<B, 1>>,
    /// How much of the target is spread over all classes.
    pub smoothing: Option<f32>,
    /// Whether the input are logits; else probabilities.
    pub logits: bool,
}

impl CrossEntropyLossConfig {
    /// The loss.
    ///
    /// # Panics
    /// When the smoothing is not between 0 and 1 or a weight is not positive.
    pub fn init<B: Backend>(&self, device: &B::Device) -> CrossEntropyLoss<B> {
        check_options("CrossEntropyLoss", self.smoothing, self.weights.as_ref());
        CrossEntropyLoss {
            pad_tokens: self.pad_tokens.clone(),
            weights: self.weights.as_ref().map(|weights| Tensor::from_floats(weights.as_slice(), device)),
            smoothing: self.smoothing,
            logits: self.logits,
        }
    }
}

impl<B: Backend> CrossEntropyLoss<B> {
    /// The loss with defaults, and a target that does not count.
    pub fn new(pad_index: Option<usize>, device: &B::Device) -> Self {
        CrossEntropyLossConfig::new().with_pad_tokens(pad_index.map(|index| alloc::vec![index])).init(device)
    }

    /// Logits `[batch, classes]`, targets `[batch]`.
    pub fn forward(&self, logits: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        let ([batch, _], [count]) = (logits.dims(), targets.dims());
        assert!(batch == count, "CrossEntropyLoss: {batch} rows of logits and {count} targets");
        let losses = if self.logits {
            let ignored = self.pad_tokens.iter().flatten().map(|&token| token as i64).collect();
            let smoothing = f64::from(self.smoothing.unwrap_or(0.0));
            let options = CrossEntropyOptions { ignored, smoothing };
            module::cross_entropy(logits, targets.clone(), self.weights.clone(), &options)
        } else {
            self.of_probabilities(logits, targets.clone())
        };
        match self.weights_of(&losses, targets) {
            Some(weights) => quotient_of_sums(losses, weights),
            None => losses.mean(),
        }
    }

    /// The loss of each row of probabilities.
    fn of_probabilities(&self, probabilities: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        let [batch, classes] = probabilities.dims();
        let mask = self.pad_mask(targets.clone());
        let classes_of_rows = match &mask {
            Some(mask) => targets.clone().mask_fill(mask.clone(), 0),
            None => targets.clone(),
        };
        let logarithms = probabilities.log();
        let picked = logarithms.clone().gather(1, classes_of_rows.reshape([batch, 1])).reshape([batch]).neg();
        let mut losses = match self.weights_of(&picked, targets) {
            Some(weights) => picked * weights,
            None => picked,
        };
        if let Some(smoothing) = self.smoothing {
            let weighted = match &self.weights {
                Some(weights) => {
                    let weights = weights.clone().cast(logarithms.dtype());
                    logarithms * weights.reshape([1, classes])
                }
                None => logarithms,
            };
            let spread = weighted.sum_dim(1).reshape([batch]);
            losses = losses * (1.0 - smoothing) - spread * (smoothing / classes as f32);
        }
        match mask {
            Some(mask) => losses.mask_fill(mask, 0.0),
            None => losses,
        }
    }

    /// The weight of each row, 0 for one that does not count; nothing when all weigh 1.
    fn weights_of(&self, losses: &Tensor<B, 1>, targets: Tensor<B, 1, Int>) -> Option<Tensor<B, 1>> {
        let mask = self.pad_mask(targets.clone());
        let picked =
            |weights: &Tensor<B, 1>, targets| weights.clone().cast(losses.dtype()).gather(0, targets);
        let weights = match (&self.weights, &mask) {
            (None, None) => return None,
            (Some(weights), None) => picked(weights, targets),
            (Some(weights), Some(mask)) => picked(weights, targets.mask_fill(mask.clone(), 0)),
            (None, Some(_)) => losses.clone().detach().ones_like(),
        };
        Some(match mask {
            Some(mask) => weights.mask_fill(mask, 0.0),
            None => weights,
        })
    }

    fn pad_mask(&self, targets: Tensor<B, 1, Int>) -> Option<Tensor<B, 1, crate::tensor::Bool>> {
        let tokens = self.pad_tokens.as_ref()?;
        let masks = tokens.iter().map(|&token| targets.clone().equal_elem(token as i64));
        masks.reduce(|a, b| a.bool_or(b))
    }
}

layer_display!(CrossEntropyLoss<B>, |loss| {
    "pad_tokens" => optional(loss.pad_tokens.as_ref().map(|tokens| format!("{tokens:?}"))),
    "weights" => optional(loss.weights.as_ref().map(|weights| format!("{:?}", weights.dims()))),
    "smoothing" => optional(loss.smoothing.map(|smoothing| format!("{smoothing}"))),
    "logits" => loss.logits,
});

fn optional(text: Option<String>) -> String {
    text.unwrap_or_else(|| "None".into())
}

/// Configuration of [`BinaryCrossEntropyLoss`].
#[derive(Config, Debug)]
pub struct BinaryCrossEntropyLossConfig {
    /// Weight of each class (of the last dim; two for rank 1).
    pub weights: Option<Vec<f32>>,
    /// How much of the target is spread over all classes.
    pub smoothing: Option<f32>,
    /// Whether the input are logits; else probabilities.
    #[config(default = false)]
    pub logits: bool,
}

/// `-(target · ln p + (1 - target) · ln(1 - p))`, its mean.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BinaryCrossEntropyLoss<B: Backend> {
    /// Weight of each class.
    pub weights: Option<Tensor<B, 1>>,
    /// How much of the target is spread over all classes.
    pub smoothing: Option<f32>,
    /// Whether the input are logits; else probabilities.
    pub logits: bool,
}

impl BinaryCrossEntropyLossConfig {
    /// The loss.
    ///
    /// # Panics
    /// When the smoothing is not between 0 and 1 or a weight is not positive.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BinaryCrossEntropyLoss<B> {
        check_options("BinaryCrossEntropyLoss", self.smoothing, self.weights.as_ref());
        BinaryCrossEntropyLoss {
            weights: self.weights.as_ref().map(|weights| Tensor::from_floats(weights.as_slice(), device)),
            smoothing: self.smoothing,
            logits: self.logits,
        }
    }
}

impl<B: Backend> BinaryCrossEntropyLoss<B> {
    /// Operands of one shape; targets are 0 or 1.
    pub fn forward<const D: usize>(&self, logits: Tensor<B, D>, targets: Tensor<B, D, Int>) -> Tensor<B, 1> {
        check_same("BinaryCrossEntropyLoss", &logits, targets.dims());
        let classes = if D > 1 { logits.dims()[D - 1] } else { 2 };
        let mut expected = targets.clone().float().cast(logits.dtype());
        if let Some(smoothing) = self.smoothing {
            expected = expected * (1.0 - smoothing) + smoothing / classes as f32;
        }
        let losses = if self.logits {
            // (1 - t) x - ln σ(x)
            (expected.neg() + 1.0) * logits.clone() - activation::log_sigmoid(logits)
        } else {
            of_probabilities(logits, expected)
        };
        let Some(weights) = &self.weights else { return losses.mean() };
        let [given] = weights.dims();
        let fits = if D > 1 { given == classes } else { given >= classes };
        assert!(fits, "BinaryCrossEntropyLoss: {classes} classes and {given} weights");
        let weights = weights.clone().cast(losses.dtype());
        let weights = if D > 1 {
            let mut shape = [1; D];
            shape[D - 1] = classes;
            weights.reshape(shape).expand(losses.dims())
        } else {
            let [count] = targets.clone().reshape([-1]).dims();
            weights.gather(0, targets.reshape([count])).reshape(losses.dims())
        };
        let dtype = losses.dtype();
        let weights = weights.cast(compose::wide(dtype));
        quotient_of_sums(losses.cast(compose::wide(dtype)) * weights.clone(), weights).cast(dtype)
    }
}

/// The sum of losses over that of weights, both in the wide dtype: sums over a batch soon are more than 16 bits hold.
fn quotient_of_sums<B: Backend, const D: usize>(losses: Tensor<B, D>, weights: Tensor<B, D>) -> Tensor<B, 1> {
    let dtype = losses.dtype();
    let sum = |values: Tensor<B, D>| values.cast(compose::wide(dtype)).sum();
    (sum(losses) / sum(weights)).cast(dtype)
}

/// `-(t · ln p + (1 - t) · ln(1 - p))`. At both ends of the probabilities PyTorch bounds the logarithms at -100, and what the
/// derivative `(p - t) / (p (1 - p))` is divided by at 1e-12, so that a sure wrong answer costs no infinity, yet is corrected.
fn of_probabilities<B: Backend, const D: usize>(p: Tensor<B, D>, t: Tensor<B, D>) -> Tensor<B, D> {
    let loss = |p: Tensor<B, D>| {
        let wrong = p.clone().neg().log1p().clamp_min(-100.0);
        (t.clone() - 1.0) * wrong - t.clone() * p.log().clamp_min(-100.0)
    };
    let end = p.clone().detach();
    let spread = end.clone() * (end.clone().neg() + 1.0);
    let at_end = spread.clone().lower_elem(1e-12);
    let slope = (end.clone() - t.clone()) / spread.clamp_min(1e-12);
    // Between the ends as it is; at them a line through the bounded value.
    let line = loss(end.clone()) + (p.clone() - end) * slope;
    loss(p.mask_fill(at_end.clone(), 0.5)).mask_where(at_end, line)
}

layer_display!(BinaryCrossEntropyLoss<B>, |loss| {
    "weights" => optional(loss.weights.as_ref().map(|weights| format!("{:?}", weights.dims()))),
    "smoothing" => optional(loss.smoothing.map(|smoothing| format!("{smoothing}"))),
    "logits" => loss.logits,
});

/// Configuration of [`CosineEmbeddingLoss`].
#[derive(Config, Debug)]
pub struct CosineEmbeddingLossConfig {
    /// Similarity that unlike vectors may have.
    #[config(default = 0.0)]
    pub margin: f32,
    /// How many losses become one.
    #[config(default = "Reduction::Mean")]
    pub reduction: Reduction,
}

/// `1 - cos(a, b)` for like vectors (target 1), `max(0, cos(a, b) - margin)` for unlike ones (target -1).
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct CosineEmbeddingLoss {
    /// Similarity that unlike vectors may have.
    pub margin: f32,
    /// How many losses become one.
    pub reduction: Ignored<Reduction>,
}

impl CosineEmbeddingLossConfig {
    /// The loss.
    pub fn init(&self) -> CosineEmbeddingLoss {
        CosineEmbeddingLoss { margin: self.margin, reduction: Ignored(self.reduction) }
    }
}

impl Default for CosineEmbeddingLoss {
    fn default() -> Self {
        CosineEmbeddingLossConfig::new().init()
    }
}

impl CosineEmbeddingLoss {
    /// The loss with defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Vectors `[batch, size]`, targets `[batch]` of 1 and -1.
    pub fn forward<B: Backend>(
        &self,
        input1: Tensor<B, 2>,
        input2: Tensor<B, 2>,
        target: Tensor<B, 1, Int>,
    ) -> Tensor<B, 1> {
        self.reduction.0.apply(self.forward_no_reduction(input1, input2, target))
    }

    /// One loss a pair.
    pub fn forward_no_reduction<B: Backend>(
        &self,
        input1: Tensor<B, 2>,
        input2: Tensor<B, 2>,
        target: Tensor<B, 1, Int>,
    ) -> Tensor<B, 1> {
        check_same("CosineEmbeddingLoss", &input1, input2.dims());
        let [batch, _] = input1.dims();
        // Within the root, as in PyTorch, so that vectors of zeros have a gradient.
        let square = |x: Tensor<B, 2>| x.powf_scalar(2.0).sum_dim(1) + 1e-12;
        let scale = (square(input1.clone()) * square(input2.clone())).sqrt();
        let cosine = ((input1 * input2).sum_dim(1) / scale).reshape([batch]);
        let like = cosine.clone().neg() + 1.0;
        let unlike = activation::relu(cosine - self.margin);
        unlike.mask_where(target.equal_elem(1), like)
    }
}

layer_display!(CosineEmbeddingLoss, |loss| {
    "margin" => loss.margin,
    "reduction" => format!("{:?}", loss.reduction.0),
});
