//! Softmax and cross-entropy as one.

use crate::backend::{Backend, Primitive};
use crate::compose::calc::{T, mul, mul_scalar, reshape, sub, to_dtype, wide};
use crate::trace::{self, Traced};
use crate::{BinaryOp, CompareOp, DType, ReduceOp, Scalar, UnaryOp};
use alloc::vec::Vec;

/// Options of [`Backend::cross_entropy`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrossEntropyOptions {
    /// Targets that do not count: the loss of their rows is 0, whatever their logits are. They may lie beyond the classes.
    pub ignored: Vec<i64>,
    /// How much of each target is spread over all classes, 0 to 1 (Szegedy et al. 2016).
    pub smoothing: f64,
}

/// What cross-entropy keeps in training. Largest logit and logarithm stay two numbers: far from 0 their sum would round away
/// what distinguishes the classes.
#[derive(Clone, Debug)]
pub struct CrossEntropyTrained<P> {
    /// The loss of each row, `[rows]`.
    pub losses: P,
    /// The largest logit of each row, `[rows, 1]`; of half-precision logits in f32.
    pub largest: P,
    /// The logarithm of the sum of the exponentials of what each logit is below the largest, `[rows, 1]`; likewise.
    pub log_sum: P,
}

/// Targets as columns.
struct Targets<P> {
    /// The class of each row, `[rows, 1]`; 0 where none counts.
    classes: P,
    /// Which rows do not count, `[rows, 1]`; nothing when all do.
    ignored: Option<P>,
}

impl<P: Primitive> Targets<P> {
    fn new<B: Backend<Primitive = P>>(targets: P, ignored: &[i64]) -> Self {
        let rows = targets.shape().num_elements();
        let targets = reshape::<B>(targets, &[rows, 1]);
        let is = |&class: &i64| B::compare_scalar(CompareOp::Equal, targets.clone(), Scalar::Int(class));
        let masks = ignored.iter().map(is);
        let ignored = masks.reduce(|a, b| B::binary(BinaryOp::Or, a, b));
        let classes = match &ignored {
            Some(mask) => B::mask_fill(targets, mask.clone(), Scalar::Int(0)),
            None => targets,
        };
        Self { classes, ignored }
    }

    /// The rows that do not count, as 0.
    fn counted<B: Backend<Primitive = P>>(&self, rows: P) -> P {
        match &self.ignored {
            Some(mask) => B::mask_fill(rows, mask.clone(), Scalar::Int(0)),
            None => rows,
        }
    }

    /// Each row's number times the weight of its class.
    fn weighted<B: Backend<Primitive = P>>(&self, rows: P, weights: Option<&P>) -> P {
        let Some(weights) = weights else { return rows };
        let count = self.classes.shape().num_elements();
        let picked = B::select(weights.clone(), 0, reshape::<B>(self.classes.clone(), &[count]));
        mul::<B>(rows, reshape::<B>(picked, &[count, 1]))
    }
}

/// The weights as one row, in the dtype that rows are computed in.
fn row_of<B: Backend>(weights: T<B>, dtype: DType) -> T<B> {
    let classes = weights.shape().num_elements();
    reshape::<B>(to_dtype::<B>(weights, wide(dtype)), &[1, classes])
}

/// The sum of the weights of all classes, `[1, 1]`; nothing for weights of 1.
fn total<B: Backend>(weights: Option<&T<B>>) -> Option<T<B>> {
    weights.map(|weights| B::reduce(ReduceOp::Sum, weights.clone(), &[1]))
}

/// Default of [`Backend::cross_entropy`].
pub fn cross_entropy<B: Backend>(
    logits: T<B>,
    targets: T<B>,
    weights: Option<T<B>>,
    options: &CrossEntropyOptions,
) -> T<B> {
    cross_entropy_train::<B>(logits, targets, weights, options).losses
}

/// Default of [`Backend::cross_entropy_train`].
pub fn cross_entropy_train<B: Backend>(
    logits: T<B>,
    targets: T<B>,
    weights: Option<T<B>>,
    options: &CrossEntropyOptions,
) -> CrossEntropyTrained<T<B>> {
    let (dtype, rows, classes) = (logits.dtype(), logits.dims()[0], logits.dims()[1]);
    let logits = to_dtype::<B>(logits, wide(dtype));
    let weights = weights.map(|weights| row_of::<B>(weights, dtype));
    let targets = Targets::new::<B>(targets, &options.ignored);

    // The results do not depend on what is subtracted, so no gradient needs to flow through it.
    let largest = B::reduce(ReduceOp::Max, B::detach(logits.clone()), &[1]);
    let below = sub::<B>(logits, largest.clone());
    let sum = B::reduce(ReduceOp::Sum, B::unary(UnaryOp::Exp, below.clone()), &[1]);
    let log_sum = B::unary(UnaryOp::Log, sum);

    let picked = sub::<B>(log_sum.clone(), B::gather(below.clone(), 1, targets.classes.clone()));
    let flat = weights.clone().map(|weights| reshape::<B>(weights, &[classes]));
    let mut losses = targets.weighted::<B>(picked, flat.as_ref());
    if options.smoothing > 0.0 {
        let below = match &weights {
            Some(weights) => mul::<B>(below, weights.clone()),
            None => below,
        };
        let all = match total::<B>(weights.as_ref()) {
            Some(total) => mul::<B>(log_sum.clone(), total),
            None => mul_scalar::<B>(log_sum.clone(), classes as f64),
        };
        let spread = sub::<B>(all, B::reduce(ReduceOp::Sum, below, &[1]));
        let spread = mul_scalar::<B>(spread, options.smoothing / classes as f64);
        losses = B::binary(BinaryOp::Add, mul_scalar::<B>(losses, 1.0 - options.smoothing), spread);
    }
    let losses = reshape::<B>(targets.counted::<B>(losses), &[rows]);
    CrossEntropyTrained { losses: to_dtype::<B>(losses, dtype), largest, log_sum }
}

/// Default of [`Backend::cross_entropy_gradient`], one pass over the logits. With `w` the weights, `t` the target and `s` the smoothing,
/// that of logit `c` is `p_c ((1 - s) w_t + s/C Σ w) - s/C w_c`, less `(1 - s) w_t` at the target, all times the gradient of the row.
pub fn cross_entropy_gradient<B: Backend>(
    gradient: T<B>,
    logits: T<B>,
    targets: T<B>,
    weights: Option<T<B>>,
    (largest, log_sum): (T<B>, T<B>),
    options: &CrossEntropyOptions,
) -> T<B> {
    let (dtype, rows, classes) = (logits.dtype(), logits.dims()[0], logits.dims()[1]);
    let wide = wide(dtype);
    let gradient = to_dtype::<B>(reshape::<B>(gradient, &[rows, 1]), wide);
    let (stays, spread) = (1.0 - options.smoothing, options.smoothing / classes as f64);
    let operands = [logits, reshape::<B>(targets.clone(), &[rows, 1]), largest, log_sum];
    // What a row's shares are multiplied by; that the target has less, `stays` of it, and each class, `spread` of it.
    let Some(weights) = weights else {
        let [x, target, largest, log_sum] = operands;
        let [result] = trace::run::<B, 5, 1>([x, target, largest, log_sum, gradient], |[x, t, m, l, g]| {
            let row = Row { flow: g.clone(), at_target: g.clone() * stays, spread: Some(g * spread) };
            [row.gradient([x, t, m, l], wide, options).cast(dtype)]
        });
        return result;
    };
    let class = Targets::new::<B>(targets, &options.ignored);
    let weights = row_of::<B>(weights, dtype);
    let picked = class.weighted::<B>(gradient.clone(), Some(&reshape::<B>(weights.clone(), &[classes])));
    let [x, target, largest, log_sum] = operands;
    if options.smoothing == 0.0 {
        let [result] = trace::run::<B, 5, 1>([x, target, largest, log_sum, picked], |[x, t, m, l, g]| {
            let row = Row { flow: g.clone(), at_target: g, spread: None };
            [row.gradient([x, t, m, l], wide, options).cast(dtype)]
        });
        return result;
    }
    let total = B::reduce(ReduceOp::Sum, weights.clone(), &[1]);
    let operands = [x, target, largest, log_sum, picked, gradient, weights, total];
    let [result] = trace::run::<B, 8, 1>(operands, |[x, t, m, l, picked, g, w, total]| {
        let at_target = picked * stays;
        let spread = g * spread;
        let flow = at_target.clone() + spread.clone() * total;
        let row = Row { flow, at_target, spread: Some(spread * w) };
        [row.gradient([x, t, m, l], wide, options).cast(dtype)]
    });
    result
}

/// What the gradient of a row's logits is made of, in a program.
struct Row {
    /// What each share is multiplied by.
    flow: Traced,
    /// What the target has less.
    at_target: Traced,
    /// What each class has less.
    spread: Option<Traced>,
}

impl Row {
    /// The gradient of a logit of `target`'s row, beside the largest and the logarithm.
    fn gradient(
        self,
        [x, target, largest, log_sum]: [Traced; 4],
        wide: DType,
        options: &CrossEntropyOptions,
    ) -> Traced {
        let (class, target) = (x.iota(1), target.int());
        let share = (x.cast(wide) - largest - log_sum).exp();
        let mut result = share * self.flow;
        if let Some(spread) = self.spread.filter(|_| options.smoothing > 0.0) {
            result = result - spread;
        }
        let less = result.clone() - self.at_target;
        let result = result.mask_where(class.equal(target.clone()), less);
        options
            .ignored
            .iter()
            .fold(result, |result, &class| result.mask_fill(target.clone().equal_elem(class), 0.0))
    }
}
