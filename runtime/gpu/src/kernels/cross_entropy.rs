//! Softmax and cross-entropy as one: a workgroup reads a row of logits and yields its loss, with what its gradient needs.

use super::index::{named_row, read_where};
use super::reduce::{Group, Reducer, subgroups_of};
use super::rows::{Sums, lanes_of_row};
use super::{elementwise, launch, line_of_groups, program};
use crate::language::{Builder, Builtin, Kernel};
use crate::runtime::{Runtime, Subgroups};
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::compose::{CrossEntropyOptions, CrossEntropyTrained};
use kiln_tensor::{DType, Scalar, Shape};

/// The loss of each row. See [`Backend::cross_entropy_train`](kiln_tensor::backend::Backend::cross_entropy_train).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CrossEntropy {
    /// The dtype of logits, weights and losses.
    pub dtype: DType,
    /// The dtype of the largest logit and of the logarithm.
    pub wide: DType,
    /// The dtype of targets.
    pub index: DType,
    /// Whether classes have weights.
    pub weighted: bool,
    /// Whether targets are spread over all classes.
    pub smooth: bool,
    /// How many targets do not count.
    pub ignored: usize,
    /// Invocations of a workgroup.
    pub lanes: u32,
    /// What joins their numbers.
    pub subgroups: Subgroups,
}

impl CrossEntropy {
    /// The kernel. Buffers: logits, targets, weights if there are any; losses, largest logits, logarithms. Parameters: the number of
    /// rows, their length, where logits and targets start, where weights do; the targets that do not count; where targets are spread, the
    /// share that stays and the one that each class gets.
    pub fn kernel(&self) -> Kernel {
        let (storage, index, wide) = (held_as(self.dtype), held_as(self.index), held_as(self.wide));
        let ty = storage.value();
        Builder::kernel("cross_entropy", [self.lanes, 1], |k| {
            if storage.bytes() == 8 {
                k.resident(4);
            }
            let (x, targets) = (k.input(storage), k.input(index));
            let weights = self.weighted.then(|| k.input(storage));
            let (losses, largest_out, log_sum_out) = (k.output(storage), k.output(wide), k.output(wide));
            let (rows, length, start, targets_start) =
                (k.parameter(), k.parameter(), k.parameter(), k.parameter());
            let weights = weights.map(|weights| (weights, k.parameter()));
            let ignored: Vec<_> = (0..self.ignored).map(|_| k.parameter_of(index.value())).collect();
            let shares = self.smooth.then(|| (k.parameter_of(ty), k.parameter_of(ty)));

            let (local, group) = (k.builtin(Builtin::LocalIndex), k.group());
            // A group beyond the last repeats it, so that none leaves before the barriers.
            let row = group.min(rows - 1_u32);
            let logit = |at| x.at(start + row * length + at);
            let sums = Sums { group: Group::new(k, ty, local, self.lanes, self.subgroups), ty, length };
            let largest = sums.reduce(Reducer::Max, logit);
            let log_sum = sums.reduce(Reducer::Sum, |at| (logit(at) - largest).exp()).log();
            let weight = |at| weights.map(|(weights, first)| weights.at(first + at));
            let loss_of = |at| {
                let loss = log_sum - (logit(at) - largest);
                weight(at).map_or(loss, |weight| loss * weight)
            };
            let all = shares.map(|_| sums.reduce(Reducer::Sum, loss_of));
            k.when(group.below(rows) & local.equals(0_u32), || {
                let target = targets.at(targets_start + row);
                let (class, is_class) = named_row(target, length);
                let picked = read_where(is_class, ty, || loss_of(class));
                let loss = match (shares, all) {
                    (Some((stays, spread)), Some(all)) => picked * stays + all * spread,
                    (_, _) => picked,
                };
                let counted = ignored
                    .iter()
                    .fold(loss, |loss, &class| target.equals(class).select(k.whole(0, ty), loss));
                losses.set(row, counted);
                largest_out.set(row, largest);
                log_sum_out.set(row, log_sum);
            });
        })
    }
}

/// The losses of rows of logits, `[rows, classes]`, with what the gradient needs.
pub(crate) fn cross_entropy<R: Runtime>(
    logits: GpuTensor<R>,
    targets: GpuTensor<R>,
    weights: Option<GpuTensor<R>>,
    options: &CrossEntropyOptions,
) -> CrossEntropyTrained<GpuTensor<R>> {
    let (rows, classes, device) = (logits.dims()[0], logits.dims()[1], logits.device.clone());
    let (dtype, wide) = (logits.dtype, computed_in(logits.dtype));
    let empty = |shape: Shape, dtype| GpuTensor::<R>::empty(shape, dtype, &device);
    let trained = CrossEntropyTrained {
        losses: empty(Shape::from([rows]), dtype),
        largest: empty(Shape::from([rows, 1]), wide),
        log_sum: empty(Shape::from([rows, 1]), wide),
    };
    if rows == 0 {
        return trained;
    }
    let (logits, targets) = (elementwise::contiguous(logits), elementwise::contiguous(targets));
    let weights = weights.map(|weights| elementwise::contiguous(elementwise::cast(&weights, dtype)));
    let smooth = options.smoothing > 0.0;
    let mut words = [rows, classes, logits.layout.offset, targets.layout.offset].map(|n| n as u32).to_vec();
    words.extend(weights.as_ref().map(|weights| weights.layout.offset as u32));
    words.extend(
        options.ignored.iter().flat_map(|&class| program::scalar_words(Scalar::Int(class), targets.dtype)),
    );
    for share in [1.0 - options.smoothing, options.smoothing / classes as f64].into_iter().filter(|_| smooth)
    {
        words.extend(program::scalar_words(Scalar::Float(share), wide));
    }
    let template = CrossEntropy {
        dtype,
        wide,
        index: targets.dtype,
        weighted: weights.is_some(),
        smooth,
        ignored: options.ignored.len(),
        lanes: lanes_of_row::<R>(&device),
        subgroups: subgroups_of::<R>(&device, dtype),
    };
    let read = [Some(&logits), Some(&targets), weights.as_ref()].into_iter().flatten();
    let tensors: Vec<_> = read.chain([&trained.losses, &trained.largest, &trained.log_sum]).collect();
    launch::<R>(&device, template, &tensors, &words, line_of_groups::<R>(&device, rows));
    trained
}
