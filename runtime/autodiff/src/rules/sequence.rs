//! Attention and recurrent layers: their forward passes keep what the way back needs.

use super::T;
use crate::checkpoint::CheckpointStrategy;
use crate::operation::Operation;
use crate::tensor::AutodiffTensor;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::compose::{RnnGradients, RnnOperands, RnnOutput};
use kiln_tensor::{AttentionOptions, RnnOptions, Shape};

pub(crate) fn attention<B: Backend, C: CheckpointStrategy>(
    q: AutodiffTensor<B>,
    k: AutodiffTensor<B>,
    v: AutodiffTensor<B>,
    mask: Option<AutodiffTensor<B>>,
    options: &AttentionOptions,
) -> AutodiffTensor<B> {
    let options = *options;
    let primitive = |tensor: &AutodiffTensor<B>| tensor.primitive.clone();
    let trained = B::attention_train(
        primitive(&q),
        primitive(&k),
        primitive(&v),
        mask.as_ref().map(primitive),
        &options,
    );
    let output = trained.output.clone();
    let forward = move |_: Vec<T<B>>| output.clone();
    let operands = [q, k, v].into_iter().chain(mask).collect();
    Operation::new("attention", operands).run::<C>(forward, move |context| {
        let of_mask = context.wanted.get(3).copied();
        let found = B::attention_gradient(context.gradient, trained, &options, of_mask == Some(true));
        let mut gradients = vec![Some(found.q), Some(found.k), Some(found.v)];
        gradients.extend(of_mask.map(|_| found.mask));
        gradients
    })
}

/// Which operand of a recurrent layer a tensor is.
#[derive(Clone, Copy)]
enum Role {
    Input,
    Weight,
    Recurrent,
    Bias,
    InitialHidden,
    InitialCell,
    Peepholes,
}

impl Role {
    /// The gradient of the operand.
    fn gradient<B: Backend>(self, found: &RnnGradients<B>) -> Option<T<B>> {
        match self {
            Role::Input => Some(found.input.clone()),
            Role::Weight => Some(found.weight.clone()),
            Role::Recurrent => Some(found.recurrent.clone()),
            Role::Bias => found.bias.clone(),
            Role::InitialHidden => Some(found.initial_hidden.clone()),
            Role::InitialCell => found.initial_cell.clone(),
            Role::Peepholes => found.peepholes.clone(),
        }
    }
}

/// A recurrent layer with a tracked operand.
///
/// The results, up to three, are parts of one tensor on the tape: so their gradients reach the layer together.
pub(crate) fn rnn<B: Backend, C: CheckpointStrategy>(
    operands: RnnOperands<crate::Autodiff<B, C>>,
    options: &RnnOptions,
) -> RnnOutput<crate::Autodiff<B, C>> {
    let primitive = |tensor: &AutodiffTensor<B>| tensor.primitive.clone();
    let inner = || RnnOperands::<B> {
        input: primitive(&operands.input),
        weight: primitive(&operands.weight),
        recurrent: primitive(&operands.recurrent),
        bias: operands.bias.as_ref().map(primitive),
        sequence_lengths: operands.sequence_lengths.as_ref().map(primitive),
        initial_hidden: operands.initial_hidden.as_ref().map(primitive),
        initial_cell: operands.initial_cell.as_ref().map(primitive),
        peepholes: operands.peepholes.as_ref().map(primitive),
    };
    let kept = inner();
    let trained = B::rnn_train(inner(), options);
    let results: Vec<T<B>> = [Some(trained.output.output), Some(trained.output.hidden), trained.output.cell]
        .into_iter()
        .flatten()
        .collect();
    let parts = Parts(results.iter().map(Primitive::shape).collect());
    let joined = parts.join::<B>(results);

    let given = [
        (Role::Input, Some(operands.input)),
        (Role::Weight, Some(operands.weight)),
        (Role::Recurrent, Some(operands.recurrent)),
        (Role::Bias, operands.bias),
        (Role::InitialHidden, operands.initial_hidden),
        (Role::InitialCell, operands.initial_cell),
        (Role::Peepholes, operands.peepholes),
    ];
    let (roles, tensors): (Vec<Role>, Vec<AutodiffTensor<B>>) =
        given.into_iter().filter_map(|(role, tensor)| Some((role, tensor?))).unzip();
    let states = trained.states;
    let (options, back) = (options.clone(), parts.clone());
    let forward = move |_: Vec<T<B>>| joined.clone();
    let joined = Operation::new("rnn", tensors).run::<C>(forward, move |context| {
        let mut gradients = (0..back.0.len()).map(|n| back.part::<B>(&context.gradient, n));
        let (Some(output), Some(hidden)) = (gradients.next(), gradients.next()) else {
            unreachable!("a recurrent layer has two results at least")
        };
        let of_results = RnnOutput::<B> { output, hidden, cell: gradients.next() };
        let found = B::rnn_gradient(of_results, kept, states, &options);
        roles.iter().map(|role| role.gradient(&found)).collect()
    });
    let part = |n| parts.part::<crate::Autodiff<B, C>>(&joined, n);
    let cell = (parts.0.len() == 3).then(|| part(2));
    RnnOutput { output: part(0), hidden: part(1), cell }
}

/// The dims of tensors whose elements lie one after the other in one.
#[derive(Clone)]
struct Parts(Vec<Shape>);

impl Parts {
    fn join<B: Backend>(&self, tensors: Vec<T<B>>) -> T<B> {
        let flat = |tensor: T<B>| {
            let count = tensor.shape().num_elements();
            B::reshape(tensor, Shape::from([count]))
        };
        B::cat(&tensors.into_iter().map(flat).collect::<Vec<_>>(), 0)
    }

    fn part<B: Backend>(&self, joined: &T<B>, n: usize) -> T<B> {
        let start = self.0[..n].iter().map(Shape::num_elements).sum();
        let end = start + self.0[n].num_elements();
        B::reshape(B::slice(joined.clone(), &[SliceRange { start, end, step: 1 }]), self.0[n].clone())
    }
}
