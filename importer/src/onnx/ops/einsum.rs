//! `Einsum`: sums of products, composed from permutations, matrix products and reductions.

use super::prelude::*;
use crate::ir::op;
use kiln_types::PadMode;

/// Names an axis: a letter, or an axis behind an ellipsis, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(std::cmp::Reverse<usize>),
    Letter(u8),
}

pub(super) struct Einsum {
    terms: Vec<Vec<u8>>,
    output: Option<Vec<u8>>,
}

/// Stands for `...` among a term's letters.
const ELLIPSIS: u8 = b'.';

impl Einsum {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let text = node.optional_string("equation")?.ok_or_else(|| invalid("equation", "is missing"))?;
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        Ok(Self {
            terms: left.split(',').map(letters).collect::<RuleResult<_>>()?,
            output: right.map(letters).transpose()?,
        })
    }
}

impl<'m> Operator<'m> for Einsum {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Einsum", 12, &["Inputs*"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let values = args.all("Inputs")?;
        if values.len() != self.terms.len() {
            let reason = format!("has {} terms for {} inputs", self.terms.len(), values.len());
            return Err(invalid("equation", reason));
        }
        let mut operands = Vec::with_capacity(values.len());
        for (value, term) in values.into_iter().zip(&self.terms) {
            let labels = labels(term, to.rank(value))?;
            operands.push(diagonals(to, Labelled { value, labels })?);
        }
        let output = self.output_labels(&operands)?;
        let mut rest = operands.into_iter();
        let mut left = rest.next().ok_or_else(|| RuleError::MissingInput { input: "Inputs".into() })?;
        while let Some(right) = rest.next() {
            let later = |label: &Label| {
                output.contains(label) || rest.as_slice().iter().any(|operand| operand.labels.contains(label))
            };
            left = product(to, left, right, &later)?;
        }
        Ok(arrange(to, left, &output)?.into())
    }
}

/// The letters of a term, blanks left out.
fn letters(term: &str) -> RuleResult<Vec<u8>> {
    let compact: String = term.chars().filter(|c| !c.is_whitespace()).collect();
    let compact = compact.replacen("...", ".", 1);
    let valid = compact.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == ELLIPSIS);
    if !valid || compact.matches('.').count() > 1 {
        return Err(invalid("equation", format!("has the term {}", kiln_types::quoted(term))));
    }
    Ok(compact.into_bytes())
}

/// One label an axis.
fn labels(term: &[u8], rank: usize) -> RuleResult<Vec<Label>> {
    let named = term.iter().filter(|&&letter| letter != ELLIPSIS).count();
    let hidden = rank.checked_sub(named).filter(|&hidden| hidden == 0 || term.contains(&ELLIPSIS));
    let hidden = hidden.ok_or_else(|| misfit("equation", format!("names {named} axes of {rank}")))?;
    let mut labels = Vec::with_capacity(rank);
    for &letter in term {
        if letter == ELLIPSIS {
            labels.extend((0..hidden).rev().map(|n| Label::Ellipsis(std::cmp::Reverse(n))));
        } else {
            labels.push(Label::Letter(letter));
        }
    }
    Ok(labels)
}

/// A tensor whose axes have names.
struct Labelled {
    value: ValueId,
    labels: Vec<Label>,
}

impl Labelled {
    fn axis(&self, label: Label) -> Option<usize> {
        self.labels.iter().position(|&other| other == label)
    }
}

impl Einsum {
    fn output_labels(&self, operands: &[Labelled]) -> RuleResult<Vec<Label>> {
        let all = || operands.iter().flat_map(|operand| operand.labels.iter().copied());
        let mut hidden: Vec<Label> = all().filter(|label| matches!(label, Label::Ellipsis(_))).collect();
        hidden.sort();
        hidden.dedup();
        let mut output = Vec::new();
        match &self.output {
            Some(letters) => {
                for &letter in letters {
                    if letter == ELLIPSIS {
                        output.extend(&hidden);
                    } else {
                        output.push(Label::Letter(letter));
                    }
                }
            }
            None => {
                // Without an arrow: the ellipsis, then the letters that stand once, in order.
                let count =
                    |letter: u8| self.terms.iter().flatten().filter(|&&other| other == letter).count();
                let mut once: Vec<u8> = self.terms.iter().flatten().copied().collect();
                once.retain(|&letter| letter != ELLIPSIS && count(letter) == 1);
                once.sort_unstable();
                output = hidden;
                output.extend(once.into_iter().map(Label::Letter));
            }
        }
        for (n, label) in output.iter().enumerate() {
            if output[..n].contains(label) || !all().any(|other| other == *label) {
                return Err(invalid("equation", "has an output label twice, or one that no input has"));
            }
        }
        Ok(output)
    }
}

/// Axes with one label become their diagonal.
fn diagonals(to: &mut Lowering<'_, '_>, mut operand: Labelled) -> RuleResult<Labelled> {
    loop {
        let labels = &operand.labels;
        let pair = (0..labels.len()).find_map(|i| {
            let j = (i + 1..labels.len()).find(|&j| labels[j] == labels[i])?;
            Some((i, j))
        });
        let Some((i, j)) = pair else {
            return Ok(operand);
        };
        let label = labels[i];
        let mut axes: Vec<usize> = (0..labels.len()).filter(|&axis| axis != i && axis != j).collect();
        let mut kept: Vec<Label> = axes.iter().map(|&axis| labels[axis]).collect();
        axes.extend([i, j]);
        let moved = to.permute(operand.value, axes)?;
        let mut dims = to.dims(moved);
        let (columns, rows) = (dims.pop(), dims.pop());
        let size = rows.zip(columns).and_then(|(rows, columns)| (rows == columns).then_some(rows));
        let size = size.ok_or_else(|| RuleError::Unsupported {
            what: "the diagonal of axes that are not known to be equal".to_owned(),
        })?;
        let value = diagonal(to, moved, dims, size)?;
        kept.push(label);
        operand = Labelled { value, labels: kept };
    }
}

/// The diagonal of matrices `[dims…, size, size]`.
fn diagonal(to: &mut Lowering<'_, '_>, x: ValueId, dims: Vec<Dim>, size: Dim) -> RuleResult<ValueId> {
    let with = |last: &[Dim]| dims.iter().chain(last).cloned().collect::<Vec<Dim>>();
    let flat = to.reshape(x, with(&[&size * &size]))?;
    // Every `size + 1`-th element lies on it: a step, where the size is known.
    if let Some(size) = size.as_size().filter(|&size| size <= i32::MAX as usize) {
        let mut ranges = to.full_ranges(flat);
        if let Some(last) = ranges.last_mut() {
            last.step = size as i64 + 1;
        }
        return to.add(Op::Slice(op::Slice { ranges }), &[flat]);
    }
    // Otherwise the first column of rows that are longer by one.
    let mut padding = vec![(Dim::constant(0), Dim::constant(0)); dims.len()];
    padding.push((Dim::constant(0), size.clone()));
    let value = if to.dtype(x).is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
    let longer = to.add(Op::Pad(op::Pad { padding, mode: PadMode::Constant, value }), &[flat])?;
    let rows = to.reshape(longer, with(&[size.clone(), &size + &Dim::constant(1)]))?;
    let column = to.slice(rows, dims.len() + 1, Dim::constant(0), Dim::constant(1))?;
    to.reshape(column, with(&[size]))
}

/// Sums axes away that nothing needs.
fn reduced(
    to: &mut Lowering<'_, '_>,
    operand: Labelled,
    needed: &dyn Fn(Label) -> bool,
) -> RuleResult<Labelled> {
    let axes: Vec<usize> = (0..operand.labels.len()).filter(|&axis| !needed(operand.labels[axis])).collect();
    let value = to.reduce(ReduceOp::Sum, operand.value, &axes, false)?;
    let labels = operand.labels.into_iter().filter(|&label| needed(label)).collect();
    Ok(Labelled { value, labels })
}

/// The product of two operands, summed over what they share and nothing later needs.
fn product(
    to: &mut Lowering<'_, '_>,
    left: Labelled,
    right: Labelled,
    later: &dyn Fn(&Label) -> bool,
) -> RuleResult<Labelled> {
    let in_right: Vec<Label> = right.labels.clone();
    let left = reduced(to, left, &|label| later(&label) || in_right.contains(&label))?;
    let in_left: Vec<Label> = left.labels.clone();
    let right = reduced(to, right, &|label| later(&label) || in_left.contains(&label))?;
    let shared: Vec<Label> =
        left.labels.iter().copied().filter(|&label| right.axis(label).is_some()).collect();
    let (batch, summed): (Vec<Label>, Vec<Label>) = shared.iter().copied().partition(|label| later(label));
    let only = |a: &Labelled| -> Vec<Label> {
        a.labels.iter().copied().filter(|label| !shared.contains(label)).collect()
    };
    let (rows, columns) = (only(&left), only(&right));
    let size = |to: &Lowering<'_, '_>, a: &Labelled, label: Label| {
        a.axis(label).map_or(Dim::constant(1), |axis| to.dims(a.value)[axis].clone())
    };
    let uneven = summed.iter().any(|&label| size(to, &left, label) != size(to, &right, label));
    if summed.is_empty() || uneven {
        return multiplied(to, left, right, &batch, &summed, &rows, &columns);
    }
    let row_sizes: Vec<Dim> = rows.iter().map(|&label| size(to, &left, label)).collect();
    let column_sizes: Vec<Dim> = columns.iter().map(|&label| size(to, &right, label)).collect();
    let a = matrix(to, &left, &batch, &rows, &summed)?;
    let b = matrix(to, &right, &batch, &summed, &columns)?;
    let result = to.add(Op::MatMul, &[a, b])?;
    let mut dims = to.dims(result)[..batch.len()].to_vec();
    dims.extend(row_sizes);
    dims.extend(column_sizes);
    let value = to.reshape(result, dims)?;
    Ok(Labelled { value, labels: [batch, rows, columns].concat() })
}

/// `[batch…, rows, columns]` with the rows' and the columns' axes joined.
fn matrix(
    to: &mut Lowering<'_, '_>,
    operand: &Labelled,
    batch: &[Label],
    rows: &[Label],
    columns: &[Label],
) -> RuleResult<ValueId> {
    let order: Vec<Label> = [batch, rows, columns].concat();
    let axes: Option<Vec<usize>> = order.iter().map(|&label| operand.axis(label)).collect();
    let axes = axes.ok_or_else(|| invalid("equation", "loses an axis"))?;
    let moved = to.permute(operand.value, axes)?;
    let dims = to.dims(moved);
    let (lead, rest) = dims.split_at(batch.len());
    let (rows, columns) = rest.split_at(rows.len());
    let mut dims = lead.to_vec();
    dims.push(Dim::product(rows));
    dims.push(Dim::product(columns));
    to.reshape(moved, dims)
}

/// Element by element with broadcasting, then summed.
fn multiplied(
    to: &mut Lowering<'_, '_>,
    left: Labelled,
    right: Labelled,
    batch: &[Label],
    summed: &[Label],
    rows: &[Label],
    columns: &[Label],
) -> RuleResult<Labelled> {
    let order: Vec<Label> = [batch, rows, columns, summed].concat();
    let a = spread(to, &left, &order)?;
    let b = spread(to, &right, &order)?;
    let value = to.add(Op::Binary(BinaryOp::Mul), &[a, b])?;
    let axes: Vec<usize> = (order.len() - summed.len()..order.len()).collect();
    let value = to.reduce(ReduceOp::Sum, value, &axes, false)?;
    Ok(Labelled { value, labels: order[..order.len() - summed.len()].to_vec() })
}

/// Axes in the given order, of size 1 where the operand has none.
fn spread(to: &mut Lowering<'_, '_>, operand: &Labelled, order: &[Label]) -> RuleResult<ValueId> {
    let axes: Vec<usize> = order.iter().filter_map(|&label| operand.axis(label)).collect();
    let moved = to.permute(operand.value, axes)?;
    let missing: Vec<usize> = (0..order.len()).filter(|&n| operand.axis(order[n]).is_none()).collect();
    to.unsqueeze(moved, &missing)
}

/// The output's axes in order, the others summed.
fn arrange(to: &mut Lowering<'_, '_>, operand: Labelled, output: &[Label]) -> RuleResult<ValueId> {
    let operand = reduced(to, operand, &|label| output.contains(&label))?;
    let axes: Option<Vec<usize>> = output.iter().map(|&label| operand.axis(label)).collect();
    to.permute(operand.value, axes.ok_or_else(|| invalid("equation", "loses an axis"))?)
}
