//! Softmax and cross-entropy of rows as one, and its gradient.
//!
//! With `w` the weights of the classes, `t` a row's target and `s` the smoothing, the loss of logits `x` is
//! `(1 - s) w_t (L - x_t) + s/C Σ w_c (L - x_c)`, where `L = ln Σ e^x`. `L` is kept as the largest logit and the logarithm of the
//! sum below it: far from 0, their sum would round away what distinguishes the classes.

use crate::InOut;
use crate::math::exp;
use crate::simd::dispatched;
use crate::softmax::{exp_sum, row_max};
use crate::threads::{SharedMut, parallel_for};

/// What rows of logits are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a> {
    /// The class of each row; nothing for one that does not count.
    pub classes: &'a [Option<usize>],
    /// The weight of each class; 1 where there are none.
    pub weights: Option<&'a [f32]>,
    /// How much of each target is spread over all classes.
    pub smoothing: f32,
}

impl Targets<'_> {
    /// Number of classes of `logits`, with all sizes checked.
    fn check(&self, logits: usize) -> usize {
        let rows = self.classes.len();
        let classes = logits.checked_div(rows).unwrap_or(0);
        assert_eq!(logits, rows * classes, "{logits} logits are not {rows} rows");
        if let Some(class) = self.classes.iter().flatten().find(|&&class| class >= classes) {
            panic!("target {class} is out of range for {classes} classes");
        }
        if let Some(weights) = self.weights {
            assert!(weights.len() == classes || rows == 0, "{} weights for {classes} classes", weights.len());
        }
        classes
    }

    fn total_weight(&self, classes: usize) -> f32 {
        self.weights
            .map_or(classes as f32, |weights| weights.iter().map(|&w| f64::from(w)).sum::<f64>() as f32)
    }

    fn weight(&self, class: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[class])
    }
}

/// What the forward pass yields, one number a row.
#[derive(Debug)]
pub struct Losses<'a> {
    /// The losses.
    pub losses: &'a mut [f32],
    /// The largest logit.
    pub largest: &'a mut [f32],
    /// `ln Σ e^(x - largest)`.
    pub log_sum: &'a mut [f32],
}

/// The cross-entropy of each row of `logits`. A row that does not count costs 0.
///
/// # Panics
/// When sizes do not fit, or a target is beyond the classes.
pub fn cross_entropy(targets: Targets<'_>, logits: &[f32], into: Losses<'_>) {
    let rows = targets.classes.len();
    let classes = targets.check(logits.len());
    let Losses { losses, largest, log_sum } = into;
    let sizes = [losses.len(), largest.len(), log_sum.len()];
    assert_eq!(sizes, [rows; 3], "one number a row of what the cross-entropy yields");
    let spread = targets.smoothing / classes.max(1) as f32;
    let total = targets.total_weight(classes);
    let [losses, largest, log_sum] = [losses, largest, log_sum].map(SharedMut::new);
    parallel_for(rows, classes + 10, |range| {
        for row in range {
            let x = &logits[row * classes..][..classes];
            // SAFETY: the row has `classes` elements, and so have the weights.
            let (max, log) = unsafe { log_sum_of(x) };
            let loss = targets.classes[row].map_or(0.0, |class| {
                let at_target = targets.weight(class) * (log - (x[class] - max));
                if targets.smoothing == 0.0 {
                    return at_target;
                }
                // SAFETY: as above.
                let below = unsafe { weighted_sum(x, targets.weights, max) };
                (1.0 - targets.smoothing) * at_target + spread * (total * log - below)
            });
            // SAFETY: each row is written once.
            unsafe { (*losses.ptr(row), *largest.ptr(row), *log_sum.ptr(row)) = (loss, max, log) };
        }
    });
}

/// The gradient of the logits, from that of the losses and what [`cross_entropy`] yielded beside them; of a row that does not
/// count 0.
///
/// # Panics
/// When sizes do not fit, or a target is beyond the classes.
pub fn cross_entropy_gradient(
    targets: Targets<'_>,
    gradient: &[f32],
    largest: &[f32],
    log_sum: &[f32],
    logits: InOut<'_>,
) {
    let rows = targets.classes.len();
    let classes = targets.check(logits.len());
    let sizes = [gradient.len(), largest.len(), log_sum.len()];
    assert_eq!(sizes, [rows; 3], "one number a row of what the gradient needs");
    let spread = targets.smoothing / classes.max(1) as f32;
    let total = targets.total_weight(classes);
    let (from, to) = logits.into_shared();
    parallel_for(rows, classes + 10, |range| {
        for row in range {
            let at = row * classes;
            let Some(class) = targets.classes[row] else {
                // SAFETY: rows are disjoint and inside.
                unsafe { to.slice(at..at + classes) }.fill(0.0);
                continue;
            };
            let at_target = (1.0 - targets.smoothing) * targets.weight(class) * gradient[row];
            let spread = spread * gradient[row];
            let weights = targets.weights.filter(|_| targets.smoothing != 0.0);
            // SAFETY: rows are disjoint and inside; source and destination are equal or apart. The class is below the number of
            // classes.
            unsafe {
                let flow = at_target + spread * total;
                row_gradient(
                    from.ptr(at),
                    to.ptr(at),
                    classes,
                    largest[row],
                    log_sum[row],
                    flow,
                    spread,
                    weights,
                );
                *to.ptr(at + class) -= at_target;
            }
        }
    });
}

dispatched! {
    /// The largest element and `ln Σ e^(x - largest)`.
    ///
    /// # Safety
    /// None beyond the slice's own.
    unsafe fn log_sum_of<S>(s, x: &[f32]) -> (f32, f32) {
        let max = row_max(s, x.as_ptr(), x.len());
        let sum = exp_sum(s, x.as_ptr(), x.len(), max);
        (max, s.to_array(crate::math::log(s, s.splat(sum)))[0])
    }
}

dispatched! {
    /// `Σ w (x - shift)`.
    ///
    /// # Safety
    /// Weights have as many elements as `x`.
    unsafe fn weighted_sum<S>(s, x: &[f32], weights: Option<&[f32]>, shift: f32) -> f32 {
        let shift = s.splat(shift);
        let mut sum = s.splat(0.0);
        for i in (0..x.len()).step_by(S::LANES) {
            let count = S::LANES.min(x.len() - i);
            // Lanes beyond the row have the weight 0.
            let weight = match weights {
                Some(weights) => s.load_up_to(weights.as_ptr().add(i), count),
                None => s.load_up_to(ONES.as_ptr(), count),
            };
            sum = s.mul_add(weight, s.sub(s.load_up_to(x.as_ptr().add(i), count), shift), sum);
        }
        s.sum(sum)
    }
}

/// As many as the widest vector has lanes.
const ONES: [f32; 16] = [1.0; 16];

dispatched! {
    /// `to = e^(x - largest - log_sum) · flow - spread · weights`.
    ///
    /// # Safety
    /// Pointers hold `n` elements, and are equal or apart; so do the weights.
    unsafe fn row_gradient<S>(
        s,
        x: *const f32,
        to: *mut f32,
        n: usize,
        largest: f32,
        log_sum: f32,
        flow: f32,
        spread: f32,
        weights: Option<&[f32]>,
    ) {
        let [largest, log_sum, flow, spread] = [largest, log_sum, flow, spread].map(|x| s.splat(x));
        for i in (0..n).step_by(S::LANES) {
            let count = S::LANES.min(n - i);
            let below = s.sub(s.sub(s.load_up_to(x.add(i), count), largest), log_sum);
            let away = match weights {
                Some(weights) => s.mul(spread, s.load_up_to(weights.as_ptr().add(i), count)),
                None => spread,
            };
            s.store_up_to(to.add(i), count, s.sub(s.mul(exp(s, below), flow), away));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    struct Case {
        classes: usize,
        targets: Vec<Option<usize>>,
        weights: Option<Vec<f32>>,
        smoothing: f32,
        logits: Vec<f32>,
    }

    impl Case {
        fn new(rows: usize, classes: usize, weighted: bool, smoothing: f32, scale: f32) -> Self {
            // Every fifth row does not count.
            let targets = (0..rows).map(|row| (row % 5 != 3).then_some(row * 7 % classes)).collect();
            let weights = weighted.then(|| noise(classes, 2).iter().map(|x| x.abs() + 0.1).collect());
            let logits = noise(rows * classes, 1).iter().map(|x| x * scale + scale).collect();
            Self { classes, targets, weights, smoothing, logits }
        }

        fn targets(&self) -> Targets<'_> {
            Targets { classes: &self.targets, weights: self.weights.as_deref(), smoothing: self.smoothing }
        }

        fn run(&self) -> [Vec<f32>; 3] {
            let mut all = [(); 3].map(|()| vec![7.0; self.targets.len()]);
            let [losses, largest, log_sum] = &mut all;
            cross_entropy(self.targets(), &self.logits, Losses { losses, largest, log_sum });
            all
        }

        /// The formula in f64: the loss of a row, and its gradient.
        fn expected(&self, row: usize) -> (f64, Vec<f64>) {
            let x: Vec<f64> =
                self.logits[row * self.classes..][..self.classes].iter().map(|&x| x.into()).collect();
            let Some(class) = self.targets[row] else { return (0.0, vec![0.0; x.len()]) };
            let weight = |c: usize| self.weights.as_ref().map_or(1.0, |w| f64::from(w[c]));
            let s = f64::from(self.smoothing);
            let part = |c: usize| {
                s / x.len() as f64 * weight(c) + if c == class { (1.0 - s) * weight(c) } else { 0.0 }
            };
            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let log_sum = x.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            let loss = (0..x.len()).map(|c| part(c) * (log_sum - (x[c] - max))).sum();
            let all: f64 = (0..x.len()).map(part).sum();
            (loss, (0..x.len()).map(|c| (x[c] - max - log_sum).exp() * all - part(c)).collect())
        }
    }

    #[test]
    fn losses_and_gradients_are_those_of_the_formula() {
        let run = || {
            for (rows, classes) in [(1, 1), (6, 4), (9, 17), (4, 1000), (7, 64)] {
                for (weighted, smoothing) in [(false, 0.0), (true, 0.0), (false, 0.2), (true, 0.3)] {
                    for scale in [3.0, 1e4] {
                        let case = Case::new(rows, classes, weighted, smoothing, scale);
                        let [losses, largest, log_sum] = case.run();
                        let gradient: Vec<f32> = noise(rows, 5);
                        let mut found = vec![7.0; case.logits.len()];
                        let data = InOut::Copy { from: &case.logits, to: &mut found };
                        cross_entropy_gradient(case.targets(), &gradient, &largest, &log_sum, data);
                        let mut same = case.logits.clone();
                        let data = InOut::InPlace(&mut same);
                        cross_entropy_gradient(case.targets(), &gradient, &largest, &log_sum, data);
                        assert_eq!(found, same);
                        for row in 0..rows {
                            let (loss, of_logits) = case.expected(row);
                            let off = (f64::from(losses[row]) - loss).abs();
                            assert!(off <= 1e-5 * (1.0 + loss.abs()), "{classes}: {} {loss}", losses[row]);
                            for (got, want) in found[row * classes..].iter().zip(of_logits) {
                                let want = want * f64::from(gradient[row]);
                                assert!(
                                    (f64::from(*got) - want).abs() < 2e-6 * (1.0 + want.abs()),
                                    "{got} {want}"
                                );
                            }
                        }
                    }
                }
            }
        };
        at_each_level(|_| run());
        run();
    }

    #[test]
    fn classes_that_cannot_be_and_rows_that_do_not_count() {
        at_each_level(|_| {
            let mut case = Case::new(5, 20, false, 0.0, 3.0);
            case.logits[20..40].fill(f32::NEG_INFINITY);
            case.logits[27] = 1.0;
            case.targets[1] = Some(7);
            case.logits[60..80].fill(f32::NAN);
            case.logits[80..100].fill(f32::NEG_INFINITY);
            let [losses, largest, log_sum] = case.run();
            assert_eq!((losses[1], losses[3]), (0.0, 0.0));
            assert!(losses[4].is_nan());
            let mut found = case.logits.clone();
            let data = InOut::InPlace(&mut found);
            cross_entropy_gradient(case.targets(), &[1.0; 5], &largest, &log_sum, data);
            assert_eq!((&found[20..40], &found[60..80]), (&[0.0; 20][..], &[0.0; 20][..]));
            assert!(found[80..].iter().all(|x| x.is_nan()));
        });
    }

    #[test]
    #[should_panic(expected = "target 4 is out of range for 4 classes")]
    fn targets_beyond_the_classes_are_refused() {
        let mut case = Case::new(2, 4, false, 0.0, 1.0);
        case.targets[1] = Some(4);
        case.run();
    }
}
