//! Error rates of sequences: [`CharErrorRate`], [`WordErrorRate`].

use super::{MetricName, NumericMetricState, state_metric};
use kiln_core::Tensor;
use kiln_core::tensor::Int;
use kiln_core::tensor::backend::Backend;
use std::marker::PhantomData;

/// Sequences of characters or words, by their numbers.
#[derive(Clone, Debug)]
pub struct CerInput<B: Backend> {
    /// What was recognised, `[batch, length]`.
    pub outputs: Tensor<B, 2, Int>,
    /// What it is, `[batch, length]`.
    pub targets: Tensor<B, 2, Int>,
}

/// [`CerInput`], of words.
pub type WerInput<B> = CerInput<B>;

impl<B: Backend> CerInput<B> {
    /// What was recognised and what it is, each `[batch, length]`, of any lengths.
    ///
    /// # Panics
    /// When there are not as many of both.
    pub fn new(outputs: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>) -> Self {
        let (found, there) = (outputs.dims(), targets.dims());
        assert_eq!(found[0], there[0], "CerInput: outputs are {found:?}, targets {there:?}");
        Self { outputs, targets }
    }

    /// The edits that make the outputs of the targets, for 100 elements of these; and how many those are, by which an epoch's mean weighs batches.
    fn rate(&self, pad: Option<usize>) -> (f64, usize) {
        let (outputs, targets) = (rows(&self.outputs, pad), rows(&self.targets, pad));
        let pairs = targets.iter().zip(&outputs);
        let edits: usize = pairs.map(|(target, output)| edit_distance(target, output)).sum();
        let length: usize = targets.iter().map(Vec::len).sum();
        (super::percent(edits, length), length)
    }
}

/// The sequences, each up to where its padding begins.
fn rows<B: Backend>(sequences: &Tensor<B, 2, Int>, pad: Option<usize>) -> Vec<Vec<i64>> {
    let [count, length] = sequences.dims();
    let numbers: Vec<i64> = sequences.to_data().iter().collect();
    let is_kept = |number: &i64| pad.is_none_or(|pad| i64::try_from(pad) != Ok(*number));
    let row = |n: usize| numbers[n * length..][..length].iter().copied().take_while(is_kept).collect();
    (0..count).map(row).collect()
}

/// The least number of elements to replace, insert or leave out (Levenshtein 1966).
fn edit_distance(from: &[i64], to: &[i64]) -> usize {
    // Distances of the elements of `from` so far to each beginning of `to`.
    let mut distances: Vec<usize> = (0..=to.len()).collect();
    for (row, a) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut distances[0], row + 1);
        for (column, b) in to.iter().enumerate() {
            let above = distances[column + 1];
            let changed = 1 + diagonal.min(above).min(distances[column]);
            distances[column + 1] = if a == b { diagonal } else { changed };
            diagonal = above;
        }
    }
    distances[to.len()]
}

macro_rules! error_rate {
    ($(#[$doc:meta])* $metric:ident, $name:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $metric<B: Backend> {
            name: MetricName,
            state: NumericMetricState,
            pad_token: Option<usize>,
            backend: PhantomData<B>,
        }

        impl<B: Backend> Default for $metric<B> {
            fn default() -> Self {
                Self::new()
            }
        }

        impl<B: Backend> $metric<B> {
            /// Of whole sequences.
            pub fn new() -> Self {
                let (name, state) = (MetricName::new($name.to_owned()), NumericMetricState::new());
                Self { name, state, pad_token: None, backend: PhantomData }
            }

            /// A sequence ends where this number comes first.
            #[must_use]
            pub fn with_pad_token(mut self, index: usize) -> Self {
                self.pad_token = Some(index);
                self
            }
        }

        state_metric!($metric, CerInput<B>, unit: Some("%"), higher_is_better: false, |metric, input, _metadata| {
            input.rate(metric.pad_token)
        });
    };
}

error_rate!(
    /// How many characters have to be replaced, inserted or left out, in percent of those that there are.
    CharErrorRate, "CER"
);
error_rate!(
    /// How many words have to be replaced, inserted or left out, in percent of those that there are.
    WordErrorRate, "WER"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let cases: [(&[i64], &[i64], usize); 6] = [
            (&[], &[], 0),
            (&[1, 2, 3], &[], 3),
            (&[], &[1, 2], 2),
            (&[1, 2, 3], &[1, 3], 1),
            (&[1, 2, 3, 4], &[2, 3, 4, 5], 2),
            // kitten, sitting
            (&[11, 9, 20, 20, 5, 14], &[19, 9, 20, 20, 9, 14, 7], 3),
        ];
        for (from, to, expected) in cases {
            assert_eq!(edit_distance(from, to), expected, "{from:?} {to:?}");
            assert_eq!(edit_distance(to, from), expected, "{to:?} {from:?}");
        }
    }
}
