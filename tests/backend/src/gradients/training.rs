//! What keeps something for its gradient, or draws random numbers.

use super::{check, check_in_f32, has_f64, noise};
use crate::primitives::{mask, read, tensor};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::compose::{RnnOperands, RnnOutput};
use kiln_tensor::{
    Activation, AttentionOptions, DType, FullyMasked, RnnDirection, RnnKind, RnnOptions, Scalar, UnaryOp,
};

/// Grouped queries, masks of both kinds, an order, a cap; a query without any key.
pub fn attentions<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    let plain = AttentionOptions::default();
    let causal = AttentionOptions { is_causal: true, ..plain };
    let capped = AttentionOptions { scale: Some(0.7), softcap: Some(1.5), ..plain };
    let keep: Vec<u8> = (0..12).map(|i| u8::from(i >= 3 && i % 4 != 1)).collect();
    let masks = [None, Some(mask::<B>(&keep, &[1, 1, 4, 3]))];
    for options in [plain, causal, capped] {
        let operands =
            || vec![noise::<B>(&[2, 4, 4, 3], 1), noise::<B>(&[2, 2, 3, 3], 2), noise::<B>(&[2, 2, 3, 2], 3)];
        for mask in &masks {
            let train = |t: &[B::Primitive]| {
                B::attention_train(t[0].clone(), t[1].clone(), t[2].clone(), mask.clone(), &options)
            };
            check::<B>(
                &format!("attention {options:?}, masked: {}", mask.is_some()),
                operands(),
                |t| train(t).output,
                |gradient, t| {
                    let found = B::attention_gradient(gradient, train(t), &options, true);
                    assert!(found.mask.is_none());
                    vec![found.q, found.k, found.v]
                },
            );
        }
        // Added masks that are broadcast, as learnt positions are.
        for dims in [&[4, 4, 3][..], &[4, 3], &[2, 1, 1, 3]] {
            let mut operands = operands();
            operands.push(noise::<B>(dims, 4));
            let train = |t: &[B::Primitive]| {
                B::attention_train(t[0].clone(), t[1].clone(), t[2].clone(), Some(t[3].clone()), &options)
            };
            check::<B>(
                &format!("attention {options:?} with an added mask {dims:?}"),
                operands,
                |t| train(t).output,
                |gradient, t| {
                    let found = B::attention_gradient(gradient, train(t), &options, true);
                    vec![found.q, found.k, found.v, found.mask.expect("the mask is added")]
                },
            );
        }
        let [q, k, v] = operands().try_into().expect("three operands");
        let trained = B::attention_train(q.clone(), k.clone(), v.clone(), None, &options);
        let plain = B::attention(q, k, v, None, &options);
        let [trained, plain] = [trained.output, plain].map(super::numbers::<B>);
        assert!(trained.iter().zip(plain).all(|(a, b)| (a - b).abs() < 1e-12));
    }
}

/// A query to which the mask leaves no key: what it yields has a gradient of the values alone, if any.
pub fn attentions_without_keys<B: Backend>() {
    if !has_f64::<B>() {
        return;
    }
    let plain = AttentionOptions::default();
    let capped = AttentionOptions { scale: Some(0.7), softcap: Some(1.5), ..plain };
    let causal = AttentionOptions { is_causal: true, ..plain };
    let [zeros, mean] = [Some(FullyMasked::Zeros), Some(FullyMasked::Mean)];
    let bools = [None, zeros, mean];
    for (options, of_bool, of_added) in [
        (plain, &bools[..], &[zeros, mean][..]),
        (capped, &bools[..], &[zeros, mean][..]),
        // The mean has no meaning beside an order.
        (causal, &[None, zeros][..], &[zeros][..]),
    ] {
        let operands =
            || vec![noise::<B>(&[2, 2, 3, 2], 1), noise::<B>(&[2, 1, 2, 2], 2), noise::<B>(&[2, 1, 2, 2], 3)];
        // Without a key: two queries of one batch, and the last of the other.
        let keep = mask::<B>(&[0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 0], &[2, 1, 3, 2]);
        for &fully_masked in of_bool {
            let options = AttentionOptions { fully_masked, ..options };
            let train = |t: &[B::Primitive]| {
                B::attention_train(t[0].clone(), t[1].clone(), t[2].clone(), Some(keep.clone()), &options)
            };
            check_in_f32::<B>(
                &format!("attention {options:?} without keys"),
                operands(),
                |t| train(t).output,
                |gradient, t| {
                    let found = B::attention_gradient(gradient, train(t), &options, true);
                    vec![found.q, found.k, found.v]
                },
            );
        }
        let added = B::mask_fill(
            noise::<B>(&[2, 1, 3, 2], 4),
            B::unary(UnaryOp::Not, keep.clone()),
            Scalar::Float(f64::NEG_INFINITY),
        );
        for &fully_masked in of_added {
            let options = AttentionOptions { fully_masked, ..options };
            for of_mask in [true, false] {
                let train = |t: &[B::Primitive]| {
                    let mask = t.get(3).cloned().unwrap_or_else(|| B::cast(added.clone(), t[0].dtype()));
                    B::attention_train(t[0].clone(), t[1].clone(), t[2].clone(), Some(mask), &options)
                };
                let mut operands = operands();
                operands.extend(of_mask.then(|| added.clone()));
                check_in_f32::<B>(
                    &format!("attention {options:?} without keys by an added mask, of the mask: {of_mask}"),
                    operands,
                    |t| train(t).output,
                    |gradient, t| {
                        let found = B::attention_gradient(gradient, train(t), &options, of_mask);
                        assert_eq!(found.mask.is_some(), of_mask);
                        [found.q, found.k, found.v].into_iter().chain(found.mask).collect()
                    },
                );
            }
        }
    }
}

/// A recurrent layer and its operands, which the case may leave out.
struct Layer {
    options: RnnOptions,
    full: bool,
    lengths: bool,
}

const STEPS: usize = 3;
const BATCH: usize = 2;
const INPUT: usize = 2;
const HIDDEN: usize = 2;

impl Layer {
    fn operands<B: Backend>(&self) -> Vec<B::Primitive> {
        let (directions, gates) = (self.options.direction.count(), self.options.kind.gates());
        let outer = |a, b, c| if self.options.batch_first { [b, a, c] } else { [a, b, c] };
        let mut operands = vec![
            noise::<B>(&outer(STEPS, BATCH, INPUT), 1),
            noise::<B>(&[directions, gates * HIDDEN, INPUT], 2),
            noise::<B>(&[directions, gates * HIDDEN, HIDDEN], 3),
        ];
        if self.full {
            operands.push(noise::<B>(&[directions, 2 * gates * HIDDEN], 4));
            operands.push(noise::<B>(&outer(directions, BATCH, HIDDEN), 5));
            if self.is_lstm() {
                operands.push(noise::<B>(&outer(directions, BATCH, HIDDEN), 6));
                operands.push(noise::<B>(&[directions, 3 * HIDDEN], 7));
            }
        }
        operands
    }

    fn is_lstm(&self) -> bool {
        matches!(self.options.kind, RnnKind::Lstm { .. })
    }

    fn named<B: Backend>(&self, operands: &[B::Primitive]) -> RnnOperands<B> {
        let lengths = || tensor::<B, i32>(&[2, 3], &[2]);
        RnnOperands {
            input: operands[0].clone(),
            weight: operands[1].clone(),
            recurrent: operands[2].clone(),
            bias: operands.get(3).cloned(),
            sequence_lengths: self.lengths.then(lengths),
            initial_hidden: operands.get(4).cloned(),
            initial_cell: operands.get(5).cloned(),
            peepholes: operands.get(6).cloned(),
        }
    }

    /// All results in one vector.
    fn joined<B: Backend>(&self, output: RnnOutput<B>) -> B::Primitive {
        let flat = |t: B::Primitive| {
            let count = t.shape().num_elements();
            B::reshape(t, [count].into())
        };
        let mut parts = vec![flat(output.output), flat(output.hidden)];
        parts.extend(output.cell.map(flat));
        B::cat(&parts, 0)
    }

    /// Gradients of the results from that of the vector.
    fn parted<B: Backend>(&self, gradient: B::Primitive, like: &RnnOutput<B>) -> RnnOutput<B> {
        let mut start = 0;
        let mut part = |like: &B::Primitive| {
            let (shape, end) = (like.shape(), start + like.shape().num_elements());
            let range = kiln_tensor::backend::SliceRange { start, end, step: 1 };
            start = end;
            B::reshape(B::slice(gradient.clone(), &[range]), shape)
        };
        RnnOutput {
            output: part(&like.output),
            hidden: part(&like.hidden),
            cell: like.cell.as_ref().map(part),
        }
    }

    fn check<B: Backend>(&self) {
        check::<B>(
            &format!("{:?}, full: {}, lengths: {}", self.options, self.full, self.lengths),
            self.operands::<B>(),
            |t| self.joined::<B>(B::rnn(self.named::<B>(t), &self.options)),
            |gradient, t| {
                let trained = B::rnn_train(self.named::<B>(t), &self.options);
                let gradient = self.parted::<B>(gradient, &trained.output);
                let found = B::rnn_gradient(gradient, self.named::<B>(t), trained.states, &self.options);
                let mut all = vec![found.input, found.weight, found.recurrent];
                if self.full {
                    all.extend(found.bias);
                    all.push(found.initial_hidden);
                    all.extend(found.initial_cell);
                    all.extend(found.peepholes);
                }
                all
            },
        );
    }
}

/// Every kind of cell in every direction, with everything that a layer may have and with nothing of it.
pub fn recurrent<B: Backend>() {
    use Activation::{Sigmoid, Softplus, Tanh};
    if !has_f64::<B>() {
        return;
    }
    let kinds: [(RnnKind, &[Activation]); 5] = [
        (RnnKind::Lstm { input_forget: false }, &[Sigmoid, Tanh, Tanh]),
        (RnnKind::Lstm { input_forget: true }, &[Sigmoid, Tanh, Softplus]),
        (RnnKind::Gru { linear_before_reset: true }, &[Sigmoid, Tanh]),
        (RnnKind::Gru { linear_before_reset: false }, &[Sigmoid, Tanh]),
        (RnnKind::Rnn, &[Tanh]),
    ];
    for (kind, activations) in kinds {
        for direction in [RnnDirection::Forward, RnnDirection::Reverse, RnnDirection::Bidirectional] {
            for (full, lengths) in [(false, false), (true, false), (true, true)] {
                let options = RnnOptions {
                    kind,
                    direction,
                    hidden_size: HIDDEN,
                    activations: activations.repeat(direction.count()).into(),
                    clip: full.then_some(0.9),
                    state_clip: full.then_some(0.4),
                    batch_first: lengths,
                };
                Layer { options, full, lengths }.check::<B>();
            }
        }
    }
}

/// The same key drops the same elements, about as many as it should, and the others make up for them.
pub fn dropout<B: Backend>() {
    let device = B::Device::default();
    let ones = || B::full([100, 50].into(), Scalar::Int(1), DType::F32, &device);
    let first = read::<B, f32>(B::dropout(ones(), 0.25, 7));
    assert_eq!(read::<B, f32>(B::dropout(ones(), 0.25, 7)), first);
    assert_ne!(read::<B, f32>(B::dropout(ones(), 0.25, 8)), first);
    let dropped = first.iter().filter(|&&x| x == 0.0).count();
    assert!((1100..1400).contains(&dropped), "{dropped} of 5000");
    assert!(first.iter().all(|&x| x == 0.0 || (x - 4.0 / 3.0).abs() < 1e-6));
    // Whatever the dtype is.
    for dtype in crate::supported::<B>().filter(|dtype| dtype.is_float()) {
        let found = B::dropout(B::cast(ones(), dtype), 0.25, 7);
        assert_eq!(found.dtype(), dtype);
        let found = read::<B, f32>(B::cast(found, DType::F32));
        assert!(found.iter().zip(&first).all(|(a, b)| (*a == 0.0) == (*b == 0.0) && (a - b).abs() < 0.01));
    }
    // Which ones depends on the row-major position, not on the memory's order.
    let turned = B::permute(B::reshape(ones(), [50, 100].into()), &[1, 0]);
    assert_eq!(read::<B, f32>(B::dropout(turned, 0.25, 7)), first);
    assert_eq!(read::<B, f32>(B::dropout(ones(), 0.0, 7)), [1.0; 5000]);
    assert_eq!(read::<B, f32>(B::dropout(ones(), 1.0, 7)), [0.0; 5000]);
    // What every backend drops under this key.
    let few = B::full([8].into(), Scalar::Int(1), DType::F32, &device);
    assert_eq!(read::<B, f32>(B::dropout(few, 0.5, 1)), EIGHT);
    let _alone = crate::drawing();
    let keys = [B::random_key(&device), B::random_key(&device)];
    assert_ne!(keys[0], keys[1]);
}

const EIGHT: [f32; 8] = [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0, 2.0];
