//! Einstein summation.

use crate::backend::{Backend, Primitive};
use crate::check::{ensure, fail};
use crate::compose::calc::{T, indices, reshape};
use crate::{ReduceOp, Shape, Tensor, TensorKind, erased};
use alloc::string::String;
use alloc::vec::Vec;

/// Names a dim: a letter, or a dim of the ellipsis counted from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Letter(char),
    Ellipsis(usize),
}

/// A tensor with a label for each dim.
struct Labeled<B: Backend> {
    tensor: T<B>,
    labels: Vec<Label>,
}

/// Sums products over labelled dims: `einsum::<B, 3, Float>("bij,bjk->bik", vec![a.into_backend(), …])`.
///
/// Knows the ellipsis, repeated letters (diagonals) and equations without `->` (then the letters that occur once, in
/// alphabetical order, after the ellipsis). Dims of one letter are equal or 1.
///
/// # Panics
/// When the equation is malformed or does not fit the tensors.
pub fn einsum<B: Backend, const D: usize, K: TensorKind<B>>(
    equation: &str,
    operands: Vec<B::Primitive>,
) -> Tensor<B, D, K> {
    Tensor::from_backend(contract::<B>(equation, operands))
}

#[track_caller]
fn contract<B: Backend>(equation: &str, operands: Vec<T<B>>) -> T<B> {
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (equation, None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    ensure!(
        terms.len() == operands.len(),
        "einsum",
        "{equation:?} has {} terms for {} tensors",
        terms.len(),
        operands.len()
    );
    let mut labeled: Vec<Labeled<B>> = terms
        .iter()
        .zip(operands)
        .map(|(term, tensor)| {
            let labels = labels_of(equation, term, tensor.shape().rank());
            diagonal::<B>(Labeled { tensor, labels })
        })
        .collect();
    let output = match output {
        Some(output) => {
            let widest = labeled.iter().map(|operand| ellipsis_rank(&operand.labels)).max().unwrap_or(0);
            let letters = output.chars().filter(|c| !c.is_whitespace() && *c != '.').count();
            labels_of(equation, output, letters + if output.contains('.') { widest } else { 0 })
        }
        None => implicit_output(inputs, &labeled),
    };
    broadcast_sizes::<B>(equation, &mut labeled);
    let mut rest = labeled.into_iter();
    let Some(mut result) = rest.next() else { fail("einsum", format_args!("there are no tensors")) };
    let mut rest: Vec<Labeled<B>> = rest.collect();
    while !rest.is_empty() {
        let next = rest.remove(0);
        let needed = |label: &Label| {
            output.contains(label) || rest.iter().any(|operand| operand.labels.contains(label))
        };
        result = multiply::<B>(result, next, needed);
    }
    arrange::<B>(equation, result, &output)
}

/// How many dims the ellipsis stands for.
fn ellipsis_rank(labels: &[Label]) -> usize {
    labels.iter().filter(|label| matches!(label, Label::Ellipsis(_))).count()
}

/// The labels of a term for a tensor of the given rank.
#[track_caller]
fn labels_of(equation: &str, term: &str, rank: usize) -> Vec<Label> {
    let term: String = term.chars().filter(|c| !c.is_whitespace()).collect();
    let letters = term.replacen("...", "", 1);
    ensure!(letters.chars().all(char::is_alphabetic), "einsum", "{equation:?} is malformed");
    let count = letters.chars().count();
    let hidden = if term.contains("...") { rank.checked_sub(count) } else { (rank == count).then_some(0) };
    let Some(hidden) = hidden else {
        fail("einsum", format_args!("{term:?} of {equation:?} does not fit a tensor of rank {rank}"))
    };
    let mut labels = Vec::with_capacity(rank);
    let (before, after) = term.split_once("...").unwrap_or((&term, ""));
    labels.extend(before.chars().map(Label::Letter));
    labels.extend((0..hidden).rev().map(Label::Ellipsis));
    labels.extend(after.chars().map(Label::Letter));
    labels
}

/// The ellipsis, then the letters that occur once, in alphabetical order.
fn implicit_output<B: Backend>(inputs: &str, operands: &[Labeled<B>]) -> Vec<Label> {
    let widest = operands.iter().map(|operand| ellipsis_rank(&operand.labels)).max().unwrap_or(0);
    let mut once: Vec<char> =
        inputs.chars().filter(|c| c.is_alphabetic() && inputs.matches(*c).count() == 1).collect();
    once.sort_unstable();
    (0..widest).rev().map(Label::Ellipsis).chain(once.into_iter().map(Label::Letter)).collect()
}

/// Takes the diagonal of dims with one letter.
#[track_caller]
fn diagonal<B: Backend>(operand: Labeled<B>) -> Labeled<B> {
    let Labeled { mut tensor, mut labels } = operand;
    while let Some((first, second)) = repeated(&labels) {
        let shape = tensor.shape();
        let size = shape[first];
        ensure!(size == shape[second], "einsum", "dims {first} and {second} of {shape} have one letter");
        // Both dims last, then every (size + 1)-th of their elements.
        let mut axes: Vec<usize> = (0..labels.len()).filter(|&d| d != first && d != second).collect();
        let mut dims: Vec<usize> = axes.iter().map(|&d| shape[d]).collect();
        let kept = axes.len();
        axes.extend([first, second]);
        dims.push(size * size);
        let flat = reshape::<B>(B::permute(tensor, &axes), &dims);
        let positions = indices::<B>((0..size).map(|i| (i * (size + 1)) as i64).collect(), &flat);
        tensor = B::select(flat, kept, positions);
        let label = labels[first];
        labels = axes[..kept].iter().map(|&d| labels[d]).collect();
        labels.push(label);
    }
    Labeled { tensor, labels }
}

/// The first label that occurs twice.
fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|i| {
        let second = (i + 1..labels.len()).find(|&j| labels[j] == labels[i])?;
        Some((i, second))
    })
}

/// Expands dims of size 1 to the size that their label has elsewhere.
#[track_caller]
fn broadcast_sizes<B: Backend>(equation: &str, operands: &mut [Labeled<B>]) {
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for operand in operands.iter() {
        for (&label, &size) in operand.labels.iter().zip(operand.tensor.shape().iter()) {
            match sizes.iter_mut().find(|(known, _)| *known == label) {
                None => sizes.push((label, size)),
                Some((_, known)) if *known == 1 => *known = size,
                Some((_, known)) => {
                    let fits = *known == size || size == 1;
                    ensure!(fits, "einsum", "a dim of {equation:?} is both {known} and {size}");
                }
            }
        }
    }
    let size_of = |label: &Label| sizes.iter().find(|(known, _)| known == label).map_or(1, |&(_, size)| size);
    for operand in operands {
        let wanted = Shape::from(operand.labels.iter().map(size_of).collect::<Vec<_>>());
        if operand.tensor.shape() != wanted {
            operand.tensor = B::expand(operand.tensor.clone(), wanted);
        }
    }
}

/// Sums the dims that are needed no more.
fn summed<B: Backend>(operand: Labeled<B>, keep: impl Fn(&Label) -> bool) -> Labeled<B> {
    let Labeled { tensor, labels } = operand;
    let axes: Vec<usize> = (0..labels.len()).filter(|&d| !keep(&labels[d])).collect();
    let shape = tensor.shape();
    let (labels, dims): (Vec<Label>, Vec<usize>) =
        labels.iter().zip(shape.iter()).filter(|(label, _)| keep(label)).map(|(&l, &d)| (l, d)).unzip();
    let tensor = reshape::<B>(erased::reduce::<B>(ReduceOp::Sum, tensor, &axes), &dims);
    Labeled { tensor, labels }
}

/// A tensor with its dims in the order of the given groups, each group joined into one.
fn grouped<B: Backend>(operand: Labeled<B>, groups: [&[Label]; 3]) -> T<B> {
    let place = |label: &Label| operand.labels.iter().position(|own| own == label);
    let axes: Vec<usize> = groups.iter().flat_map(|group| group.iter().filter_map(place)).collect();
    let shape = operand.tensor.shape();
    let size = |group: &[Label]| group.iter().filter_map(place).map(|d| shape[d]).product::<usize>();
    let dims = groups.map(size);
    reshape::<B>(B::permute(operand.tensor, &axes), &dims)
}

/// Multiplies two operands as matrices, summing the dims that both have and nobody needs.
#[track_caller]
fn multiply<B: Backend>(a: Labeled<B>, b: Labeled<B>, needed: impl Fn(&Label) -> bool) -> Labeled<B> {
    let a = summed::<B>(a, |label| needed(label) || b.labels.contains(label));
    let b = summed::<B>(b, |label| needed(label) || a.labels.contains(label));
    let in_both = |label: &Label| a.labels.contains(label) && b.labels.contains(label);
    let pick = |labels: &[Label], test: &dyn Fn(&Label) -> bool| -> Vec<Label> {
        labels.iter().copied().filter(|label| test(label)).collect()
    };
    let batch = pick(&a.labels, &|label| in_both(label) && needed(label));
    let inner = pick(&a.labels, &|label| in_both(label) && !needed(label));
    let left = pick(&a.labels, &|label| !in_both(label));
    let right = pick(&b.labels, &|label| !in_both(label));
    let size = |operand: &Labeled<B>, group: &[Label]| -> Vec<usize> {
        let shape = operand.tensor.shape();
        group
            .iter()
            .filter_map(|label| operand.labels.iter().position(|own| own == label))
            .map(|d| shape[d])
            .collect()
    };
    let mut dims = size(&a, &batch);
    dims.extend(size(&a, &left));
    dims.extend(size(&b, &right));
    let labels = [batch.as_slice(), &left, &right].concat();
    let product = erased::matmul::<B>(
        grouped::<B>(a, [&batch, &left, &inner]),
        grouped::<B>(b, [&batch, &inner, &right]),
    );
    Labeled { tensor: reshape::<B>(product, &dims), labels }
}

/// Brings the result's dims into the output's order.
#[track_caller]
fn arrange<B: Backend>(equation: &str, result: Labeled<B>, output: &[Label]) -> T<B> {
    let result = summed::<B>(result, |label| output.contains(label));
    let axes: Vec<usize> =
        output.iter().filter_map(|label| result.labels.iter().position(|own| own == label)).collect();
    ensure!(
        axes.len() == output.len() && repeated(output).is_none(),
        "einsum",
        "the output of {equation:?} names a dim that no input has, or one twice"
    );
    B::permute(result.tensor, &axes)
}
