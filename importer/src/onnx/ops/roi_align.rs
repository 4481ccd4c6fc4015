//! `RoiAlign`: regions of images, pooled to one size.

use super::prelude::*;

/// Points a bin and axis; models have one to four.
const MOST_POINTS: usize = 1 << 8;

pub(super) struct RoiAlign {
    output_size: [usize; 2],
    sampling_ratio: usize,
    spatial_scale: f64,
    half_pixel: bool,
    pool: &'static str,
}

impl RoiAlign {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // Before version 16 of the operator, coordinates were those of samples.
        let coordinates = [("half_pixel", true), ("output_half_pixel", false)];
        let default = if node.opset < 16 { "output_half_pixel" } else { "half_pixel" };
        let pools = [("avg", "tensor::module::RoiPool::Average"), ("max", "tensor::module::RoiPool::Max")];
        let sampling_ratio = node.size("sampling_ratio", 0)?;
        if sampling_ratio > MOST_POINTS {
            let reason = format!("is {sampling_ratio}, must be at most {MOST_POINTS}");
            return Err(invalid("sampling_ratio", reason));
        }
        Ok(Self {
            output_size: [node.size("output_height", 1)?, node.size("output_width", 1)?],
            sampling_ratio,
            spatial_scale: node.float("spatial_scale", 1.0)?,
            half_pixel: node.choice("coordinate_transformation_mode", default, &coordinates)?,
            pool: node.choice("mode", "avg", &pools)?,
        })
    }
}

impl<'m> Operator<'m> for RoiAlign {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("RoiAlign", 10, &["X", "rois", "batch_indices"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, regions, images) = (args.value("X")?, args.value("rois")?, args.value("batch_indices")?);
        to.expect_rank("X", x, 4)?;
        to.expect_dims("rois", regions, &[None, Some(Dim::constant(4))])?;
        to.expect_dims("batch_indices", images, &[to.dims(regions).first().cloned()])?;
        if !to.dtype(images).is_int() {
            let expected = "expected integers".to_owned();
            return Err(RuleError::DType {
                input: "batch_indices".to_owned(),
                actual: to.dtype(images),
                expected,
            });
        }
        let [rows, columns] = self.output_size;
        let dims =
            vec![to.dims(regions)[0].clone(), to.dims(x)[1].clone(), Dim::from(rows), Dim::from(columns)];
        let ty = to.ty(x).with_dims(dims);
        let options = Arg::fields(
            "tensor::module::RoiAlignOptions",
            [
                ("output_size", Arg::Array(Arg::ints(&self.output_size))),
                ("sampling_ratio", Arg::Int(self.sampling_ratio as i64)),
                ("spatial_scale", Arg::Float(self.spatial_scale)),
                ("half_pixel", Arg::Bool(self.half_pixel)),
                ("pool", Arg::variant(self.pool)),
            ],
        );
        let arguments = [Arg::Operand(0), Arg::Operand(1), Arg::Operand(2), options];
        Ok(to
            .call_reading(Call::new("tensor::module::roi_align", arguments), &[x, regions, images], ty)?
            .into())
    }
}
