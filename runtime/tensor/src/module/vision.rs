//! Functions of detection and super-resolution models.

use crate::backend::Backend;
use crate::check::{ensure, fail, ran};
use crate::compose::calc::index_tensor;
use crate::{Int, Numeric, Shape, Tensor, TensorData, TensorKind, Transaction};
use alloc::vec::Vec;

/// The `k` largest, or smallest, along a dim, in that order, and their indices.
pub fn topk<B: Backend, const D: usize, K: Numeric<B>>(
    x: Tensor<B, D, K>,
    k: usize,
    dim: usize,
    largest: bool,
) -> (Tensor<B, D, K>, Tensor<B, D, Int>) {
    x.topk_by(k, dim, largest)
}

/// Moves channels into blocks of space: `[batch, channels, height, width]` to
/// `[batch, channels / block², height · block, width · block]`. With `column_row_depth`, the channels of a block lie
/// next to each other (PyTorch's `pixel_shuffle`), else blocks of channels do.
pub fn depth_to_space<B: Backend, K: TensorKind<B>>(
    x: Tensor<B, 4, K>,
    block: usize,
    column_row_depth: bool,
) -> Tensor<B, 4, K> {
    let [batch, channels, height, width] = x.dims();
    ensure!(
        block > 0 && channels.is_multiple_of(block * block),
        "depth_to_space",
        "blocks of {block}² do not divide the {channels} channels"
    );
    let depth = channels / (block * block);
    let split: Tensor<B, 6, K> = if column_row_depth {
        x.reshape([batch, depth, block, block, height, width]).permute([0, 1, 4, 2, 5, 3])
    } else {
        x.reshape([batch, block, block, depth, height, width]).permute([0, 3, 4, 1, 5, 2])
    };
    split.reshape([batch, depth, height * block, width * block])
}

/// The inverse of [`depth_to_space`] with blocks of channels.
pub fn space_to_depth<B: Backend, K: TensorKind<B>>(x: Tensor<B, 4, K>, block: usize) -> Tensor<B, 4, K> {
    let [batch, channels, height, width] = x.dims();
    ensure!(
        block > 0 && height.is_multiple_of(block) && width.is_multiple_of(block),
        "space_to_depth",
        "blocks of {block}² do not divide {height} by {width}"
    );
    let (rows, columns) = (height / block, width / block);
    let split: Tensor<B, 6, K> =
        x.reshape([batch, channels, rows, block, columns, block]).permute([0, 3, 5, 1, 2, 4]);
    split.reshape([batch, channels * block * block, rows, columns])
}

/// A box by its corners.
#[derive(Clone, Copy)]
struct Corners {
    low: [f32; 2],
    high: [f32; 2],
}

impl Corners {
    /// From two opposite corners in any order, or from center and size.
    fn new(values: &[f32], center: bool) -> Self {
        let [a, b, c, d] = [values[0], values[1], values[2], values[3]];
        if center {
            Self { low: [a - c / 2.0, b - d / 2.0], high: [a + c / 2.0, b + d / 2.0] }
        } else {
            Self { low: [a.min(c), b.min(d)], high: [a.max(c), b.max(d)] }
        }
    }

    fn area(&self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// Whether the share of the common area in the union is above the threshold.
    fn overlaps(&self, other: &Self, threshold: f32) -> bool {
        let side = |i: usize| self.high[i].min(other.high[i]) - self.low[i].max(other.low[i]);
        let (width, height) = (side(0), side(1));
        if width <= 0.0 || height <= 0.0 || self.area() <= 0.0 || other.area() <= 0.0 {
            return false;
        }
        let common = width * height;
        common / (self.area() + other.area() - common) > threshold
    }
}

/// How boxes are chosen by [`non_max_suppression`].
struct Suppression {
    most: usize,
    iou_threshold: f32,
    score_threshold: Option<f64>,
    center: bool,
}

impl Suppression {
    /// The chosen boxes as rows of batch, class and box.
    fn choose(&self, boxes: &TensorData, scores: &TensorData) -> Vec<i64> {
        let [batches, classes, count] = [0, 1, 2].map(|dim| scores.shape[dim]);
        let boxes: Vec<f32> = boxes.iter::<f32>().collect();
        let boxes: Vec<Corners> =
            boxes.chunks_exact(4).map(|values| Corners::new(values, self.center)).collect();
        let scores: Vec<f32> = scores.iter::<f32>().collect();
        let mut chosen: Vec<i64> = Vec::new();
        for batch in 0..batches {
            let boxes = &boxes[batch * count..(batch + 1) * count];
            for class in 0..classes {
                let scores = &scores[(batch * classes + class) * count..][..count];
                for index in self.best_boxes(boxes, scores) {
                    chosen.extend([batch as i64, class as i64, index as i64]);
                }
            }
        }
        chosen
    }

    /// The chosen boxes of one class, best first; the first one among equals.
    fn best_boxes(&self, boxes: &[Corners], scores: &[f32]) -> Vec<usize> {
        let passes = |score: f32| self.score_threshold.is_none_or(|least| score > least as f32);
        let mut candidates: Vec<usize> = (0..boxes.len()).filter(|&i| passes(scores[i])).collect();
        candidates.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let mut chosen: Vec<usize> = Vec::new();
        for candidate in candidates {
            if chosen.len() >= self.most {
                break;
            }
            if !chosen.iter().any(|&other| boxes[candidate].overlaps(&boxes[other], self.iou_threshold)) {
                chosen.push(candidate);
            }
        }
        chosen
    }
}

/// The operands of a suppression, ready to be read, and their device.
#[track_caller]
fn suppressible<B: Backend>(boxes: Tensor<B, 3>, scores: Tensor<B, 3>) -> (Transaction<B>, B::Device) {
    let ([batches, count, four], [score_batches, _, score_count]) = (boxes.dims(), scores.dims());
    ensure!(
        four == 4 && batches == score_batches && count == score_count,
        "non_max_suppression",
        "boxes {:?} and scores {:?} do not fit",
        boxes.dims(),
        scores.dims()
    );
    let device = boxes.device();
    (Transaction::default().register(boxes).register(scores), device)
}

/// Chooses among what was read.
fn suppressed<B: Backend>(read: &[TensorData], rule: &Suppression, device: &B::Device) -> Tensor<B, 2, Int> {
    let chosen = match read {
        [boxes, scores] => rule.choose(boxes, scores),
        _ => fail("non_max_suppression", format_args!("the device read {} tensors of two", read.len())),
    };
    let rows = chosen.len() / 3;
    Tensor::wrap(index_tensor::<B>(chosen, Shape::from([rows, 3]), device))
}

/// ONNX `NonMaxSuppression`: for each batch and class, boxes by falling score, without those that overlap a chosen one.
///
/// `boxes` are `[batch, n, 4]` (two opposite corners, or with `center` the center and the size), `scores`
/// `[batch, classes, n]`. Yields `[chosen, 3]`: batch, class, box. Runs on the host, since the number of boxes depends on
/// the data.
///
/// # Panics
/// When the shapes do not fit, or the device failed.
pub fn non_max_suppression<B: Backend>(
    boxes: Tensor<B, 3>,
    scores: Tensor<B, 3>,
    most: usize,
    iou_threshold: f64,
    score_threshold: Option<f64>,
    center: bool,
) -> Tensor<B, 2, Int> {
    let rule = Suppression { most, iou_threshold: iou_threshold as f32, score_threshold, center };
    let (operands, device) = suppressible(boxes, scores);
    suppressed::<B>(&operands.execute(), &rule, &device)
}

/// [`non_max_suppression`] without blocking the thread.
///
/// # Panics
/// When the shapes do not fit, or the device failed.
pub async fn non_max_suppression_async<B: Backend>(
    boxes: Tensor<B, 3>,
    scores: Tensor<B, 3>,
    most: usize,
    iou_threshold: f64,
    score_threshold: Option<f64>,
    center: bool,
) -> Tensor<B, 2, Int> {
    let rule = Suppression { most, iou_threshold: iou_threshold as f32, score_threshold, center };
    let (operands, device) = suppressible(boxes, scores);
    let read = ran("non_max_suppression", operands.execute_async().await);
    suppressed::<B>(&read, &rule, &device)
}

/// [`non_max_suppression`] where the threshold of overlaps is a tensor of one element, which is read with the others.
///
/// # Panics
/// When the shapes do not fit, the threshold is not one number, or the device failed.
pub fn non_max_suppression_within<B: Backend>(
    boxes: Tensor<B, 3>,
    scores: Tensor<B, 3>,
    most: usize,
    iou_threshold: Tensor<B, 1>,
    score_threshold: Option<f64>,
    center: bool,
) -> Tensor<B, 2, Int> {
    let (operands, device) = suppressible(boxes, scores);
    let read = operands.register(iou_threshold).execute();
    suppressed_within::<B>(read, (most, score_threshold, center), &device)
}

/// [`non_max_suppression_within`] without blocking the thread.
///
/// # Panics
/// When the shapes do not fit, the threshold is not one number, or the device failed.
pub async fn non_max_suppression_within_async<B: Backend>(
    boxes: Tensor<B, 3>,
    scores: Tensor<B, 3>,
    most: usize,
    iou_threshold: Tensor<B, 1>,
    score_threshold: Option<f64>,
    center: bool,
) -> Tensor<B, 2, Int> {
    let (operands, device) = suppressible(boxes, scores);
    let read = ran("non_max_suppression", operands.register(iou_threshold).execute_async().await);
    suppressed_within::<B>(read, (most, score_threshold, center), &device)
}

/// Chooses by a threshold that was read behind boxes and scores.
fn suppressed_within<B: Backend>(
    mut read: Vec<TensorData>,
    (most, score_threshold, center): (usize, Option<f64>, bool),
    device: &B::Device,
) -> Tensor<B, 2, Int> {
    let numbers: Vec<f32> = read.pop().map(|data| data.iter::<f32>().collect()).unwrap_or_default();
    match numbers.as_slice() {
        &[iou_threshold] => {
            let rule = Suppression { most, iou_threshold, score_threshold, center };
            suppressed::<B>(&read, &rule, device)
        }
        _ => fail(
            "non_max_suppression",
            format_args!("{} numbers as the threshold of overlaps", numbers.len()),
        ),
    }
}
