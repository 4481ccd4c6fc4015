//! `Pad`: attributes before version 11, inputs since; `axes` since 18. Negative amounts cut; those that are known do so in a
//! slice of their own.

use super::prelude::*;
use crate::ir::op;
use kiln_types::PadMode;

pub(super) struct Pad {
    mode: PadMode,
    pads: Option<Vec<i64>>,
    value: f64,
}

impl Pad {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let modes = [
            ("constant", PadMode::Constant),
            ("reflect", PadMode::Reflect),
            ("edge", PadMode::Edge),
            ("wrap", PadMode::Wrap),
        ];
        Ok(Self { mode: node.choice("mode", "constant", &modes)?, pads: None, value: 0.0 })
    }

    /// The form with amounts as an attribute.
    fn read_old(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let name = if node.opset < 2 { "paddings" } else { "pads" };
        Ok(Self { pads: node.ints(name)?, value: node.float("value", 0.0)?, ..Self::read(node)? })
    }
}

impl<'m> Operator<'m> for Pad {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Pad", 1, &["data"]).until(10).reads(Self::read_old),
        Spec::onnx("Pad", 11, &["data", "pads", "constant_value?", "axes?"]).reads(Self::read),
        Spec::microsoft("Pad", &["data", "pads", "constant_value?"]).reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let rank = to.rank(x);
        let pads = match args.optional("pads")? {
            Some(pads) => to.host(pads, "pads")?,
            None => {
                let pads = self.pads.as_ref().ok_or_else(|| invalid("pads", "is missing"))?;
                pads.iter().map(|&pad| Dim::constant(pad)).collect()
            }
        };
        let axes = match args.optional("axes")? {
            Some(axes) => to.known_ints(axes, "axes")?,
            None => (0..rank as i64).collect(),
        };
        if pads.len() != 2 * axes.len() {
            if args.optional("axes")?.is_none() {
                let expected = format!("expected half the {} entries of `pads`", pads.len());
                return Err(RuleError::Rank { input: "data".into(), actual: rank, expected });
            }
            return Err(invalid("pads", format!("has {} entries for {} axes", pads.len(), axes.len())));
        }
        let given = args.optional("constant_value")?;
        let default = match to.dtype(x) {
            dtype if dtype.is_bool() => Scalar::Bool(false),
            dtype if dtype.is_int() => Scalar::Int(self.value as i64),
            _ => Scalar::Float(self.value),
        };
        let known = given.map_or(Some(default), |value| to.known_number(value));
        let zero = Dim::constant(0);
        let mut padding = vec![(zero.clone(), zero.clone()); rank];
        let mut ranges = to.full_ranges(x);
        let (mut cuts, mut grows) = (false, false);
        for (i, &axis) in axes.iter().enumerate() {
            let axis = axis_of(axis, rank)?;
            let (before, after) = (&pads[i], &pads[i + axes.len()]);
            let negative = |pad: &Dim| pad.as_constant().is_some_and(|pad| pad < 0);
            let grow = |pad: &Dim| if negative(pad) { zero.clone() } else { pad.clone() };
            if negative(before) {
                ranges[axis].start = -before;
                cuts = true;
            }
            if negative(after) {
                ranges[axis].end = &ranges[axis].end + after;
                cuts = true;
            }
            padding[axis] = (grow(before), grow(after));
            grows |= padding[axis] != (zero.clone(), zero.clone());
        }
        let x = if cuts { to.add(Op::Slice(op::Slice { ranges }), &[x])? } else { x };
        if !grows {
            return Ok(x.into());
        }
        let mode = self.mode;
        let pad = |value| Op::Pad(op::Pad { padding: padding.clone(), mode, value });
        let y = match (known, given) {
            (Some(value), _) => to.add(pad(value), &[x])?,
            (None, Some(value)) if mode == PadMode::Constant => {
                // Only the run tells the number: it stands where nothing of the tensor does.
                let inside = to.fill(to.dims(x), true, DType::Bool)?;
                let inside = to.add(pad(Scalar::Bool(false)), &[inside])?;
                let y = to.add(pad(default), &[x])?;
                let value = to.reshape(value, Vec::new())?;
                to.formula(|f| f.value(inside).where_(f.value(y), f.value(value)))?
            }
            (None, _) => to.add(pad(default), &[x])?,
        };
        Ok(y.into())
    }
}
