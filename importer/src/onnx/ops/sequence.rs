//! Sequences whose length is known: they exist while the model is compiled, and nowhere else.

use super::prelude::*;

pub(super) enum Sequence {
    Split { axis: i64, keep_dims: bool },
    Construct,
    Empty,
    Of(Use),
}

/// What is done with a sequence.
pub(super) enum Use {
    At,
    Concat { axis: i64, new_axis: bool },
    Erase,
    Insert,
    Length,
}

impl Sequence {
    fn read_concat(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let (axis, new_axis) = (node.required_int("axis")?, node.flag("new_axis", false)?);
        Ok(Self::Of(Use::Concat { axis, new_axis }))
    }

    fn read_empty(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        node.ignore(&["dtype"]);
        Ok(Self::Empty)
    }

    fn read_split(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self::Split { axis: node.int("axis", 0)?, keep_dims: node.flag("keepdims", true)? })
    }
}

impl<'m> Operator<'m> for Sequence {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("ConcatFromSequence", 11, &["input_sequence"]).reads(Self::read_concat),
        Spec::onnx("SequenceAt", 11, &["input_sequence", "position"]).reads(|_| Ok(Self::Of(Use::At))),
        Spec::onnx("SequenceConstruct", 11, &["inputs*"]).reads(|_| Ok(Self::Construct)),
        Spec::onnx("SequenceEmpty", 11, &[]).reads(Self::read_empty),
        Spec::onnx("SequenceErase", 11, &["input_sequence", "position?"]).reads(|_| Ok(Self::Of(Use::Erase))),
        Spec::onnx("SequenceInsert", 11, &["input_sequence", "tensor", "position?"])
            .reads(|_| Ok(Self::Of(Use::Insert))),
        Spec::onnx("SequenceLength", 11, &["input_sequence"]).reads(|_| Ok(Self::Of(Use::Length))),
        Spec::onnx("SplitToSequence", 11, &["input", "split?"]).reads(Self::read_split),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let operand = match self {
            Self::Split { axis, keep_dims } => Operand::Sequence(split(to, args, *axis, *keep_dims)?.into()),
            Self::Construct => Operand::Sequence(args.all("inputs")?.into()),
            Self::Empty => Operand::Sequence([].into()),
            Self::Of(what) => what.lower(args, to)?,
        };
        Ok(Outputs(vec![operand]))
    }
}

impl Use {
    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Operand> {
        let values = args.sequence("input_sequence")?;
        let position = match args.optional("position")? {
            None => None,
            Some(position) => to.known_ints(position, "position")?.first().copied(),
        };
        match self {
            Self::Insert => {
                let tensor = args.value("tensor")?;
                // One past the end is a place to insert at.
                let at =
                    position.map_or(Ok(values.len()), |at| axis_of(at, values.len() + usize::from(at >= 0)));
                let (before, after) = values.split_at(at.map_err(|_| outside(values.len()))?);
                to.repeat(values.len())?;
                Ok(Operand::Sequence([before, &[tensor], after].concat().into()))
            }
            Self::Erase => {
                let at = axis_of(position.unwrap_or(-1), values.len()).map_err(|_| outside(values.len()))?;
                to.repeat(values.len())?;
                Ok(Operand::Sequence([&values[..at], &values[at + 1..]].concat().into()))
            }
            Self::At => {
                let position =
                    position.ok_or_else(|| RuleError::MissingInput { input: "position".into() })?;
                let at = axis_of(position, values.len()).map_err(|_| outside(values.len()))?;
                Ok(Operand::Tensor(values[at]))
            }
            Self::Concat { axis, new_axis } => {
                to.repeat(values.len())?;
                concat(to, values.to_vec(), *axis, *new_axis).map(Operand::Tensor)
            }
            Self::Length => {
                to.builder.host_tensor(vec![Dim::from(values.len())], Vec::new()).map(Operand::Tensor)
            }
        }
    }
}

fn outside(length: usize) -> RuleError {
    misfit("position", format!("is outside a sequence of {length}"))
}

fn concat(
    to: &mut Lowering<'_, '_>,
    mut values: Vec<ValueId>,
    axis: i64,
    new_axis: bool,
) -> RuleResult<ValueId> {
    let first = *values.first().ok_or_else(|| misfit("input_sequence", "is empty"))?;
    let axis = axis_of(axis, to.rank(first) + usize::from(new_axis))?;
    if new_axis {
        for value in &mut values {
            *value = to.unsqueeze(*value, &[axis])?;
        }
    }
    to.concat(&values, axis)
}

/// Steps of one part of a tensor that a few bytes ask for: each goes through all passes as an operation with a size of its own.
const PIECE: usize = 128;

/// Parts along an axis: of one size (the last may be smaller), of given sizes, or of size 1.
fn split(to: &mut Lowering<'_, '_>, args: &Args, axis: i64, keep_dims: bool) -> RuleResult<Vec<ValueId>> {
    let x = args.value("input")?;
    let axis = axis_of(axis, to.rank(x))?;
    let total = to.dims(x)[axis].clone();
    let sizes = match args.optional("split")? {
        Some(split) if to.rank(split) > 0 => to.host(split, "split")?,
        part => {
            let total =
                total.as_size().ok_or_else(|| RuleError::NotConstant { input: "the split axis".into() })?;
            let size = match part {
                None => 1,
                Some(part) => *to.known_ints(part, "split")?.first().unwrap_or(&1),
            };
            let size = usize::try_from(size).ok().filter(|&size| size > 0);
            let size = size.ok_or_else(|| invalid("split", "must be positive"))?;
            to.repeat(total.div_ceil(size).saturating_mul(PIECE))?;
            (0..total).step_by(size).map(|start| Dim::from(size.min(total - start))).collect()
        }
    };
    let drop_axis = !keep_dims && args.optional("split")?.is_none();
    let mut parts = Vec::with_capacity(sizes.len());
    let mut start = Dim::constant(0);
    for size in &sizes {
        let end = &start + size;
        let part = to.slice(x, axis, start, end.clone())?;
        parts.push(if drop_axis { to.squeeze(part, &[axis])? } else { part });
        start = end;
    }
    Ok(parts)
}
