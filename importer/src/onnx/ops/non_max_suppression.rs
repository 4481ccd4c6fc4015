//! `NonMaxSuppression`: boxes that no better box overlaps.

use super::prelude::*;

pub(super) struct NonMaxSuppression {
    center: bool,
}

impl NonMaxSuppression {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { center: node.flag("center_point_box", false)? })
    }
}

impl<'m> Operator<'m> for NonMaxSuppression {
    const FORMS: Forms<'m, Self> = &[Spec::onnx(
        "NonMaxSuppression",
        10,
        &["boxes", "scores", "max_output_boxes_per_class?", "iou_threshold?", "score_threshold?"],
    )
    .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (boxes, scores) = (args.value("boxes")?, args.value("scores")?);
        to.expect_dims("boxes", boxes, &[None, None, Some(Dim::constant(4))])?;
        let [batch, count] = [0, 1].map(|axis| to.dims(boxes).get(axis).cloned());
        to.expect_dims("scores", scores, &[batch, None, count])?;
        let overlap = args.optional("iou_threshold")?;
        // `None` where only the run gives it.
        let known = overlap.map_or(Some(0.0), |iou| to.known_number(iou).map(Scalar::to_f64));
        let (scores, least) = match args.optional("score_threshold")? {
            None => (scores, None),
            Some(least) => match to.known_number(least) {
                Some(least) => (scores, Some(least.to_f64())),
                None => (above(to, scores, least)?, Some(f64::MIN)),
            },
        };
        let most = match args.optional("max_output_boxes_per_class")? {
            None => Dim::constant(0),
            Some(most) => to.host_integer(most, "max_output_boxes_per_class")?,
        };
        let count = if most.is(0) { Dim::constant(0) } else { to.fresh("selected") };
        let ty = TensorType { dtype: DType::I64, dims: vec![count, Dim::constant(3)] };
        let mut operands = vec![boxes, scores];
        let (function, iou) = match (known, overlap) {
            (None, Some(overlap)) => {
                operands.push(to.reshape(overlap, vec![Dim::constant(1)])?);
                ("tensor::module::non_max_suppression_within", Arg::Operand(2))
            }
            (known, _) => ("tensor::module::non_max_suppression", Arg::Float(known.unwrap_or(0.0))),
        };
        let arguments = [
            Arg::Operand(0),
            Arg::Operand(1),
            Arg::Size(most),
            iou,
            Arg::option(least.map(Arg::Float)),
            Arg::Bool(self.center),
        ];
        let selected = to.call_reading(Call::new(function, arguments), &operands, ty)?;
        to.declare(selected, 0);
        Ok(selected.into())
    }
}

/// Scores not above a threshold that only the run gives become `-∞`, which is above none.
fn above(to: &mut Lowering<'_, '_>, scores: ValueId, least: ValueId) -> RuleResult<ValueId> {
    let least = to.reshape(least, Vec::new())?;
    let kept = to.compare(CompareOp::Greater, scores, least)?;
    let never = to.number_like(scores, f64::NEG_INFINITY);
    to.select(kept, scores, never)
}
