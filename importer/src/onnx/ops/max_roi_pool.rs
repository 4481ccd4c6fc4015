//! `MaxRoiPool`: the largest elements of regions' bins, all regions pooled to one size.

use super::prelude::*;

pub(super) struct MaxRoiPool {
    output_size: [usize; 2],
    spatial_scale: f64,
}

impl MaxRoiPool {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let shape = node.ints("pooled_shape")?.ok_or_else(|| invalid("pooled_shape", "is missing"))?;
        let sizes: Vec<usize> =
            shape.iter().filter_map(|&size| usize::try_from(size).ok()).filter(|&size| size > 0).collect();
        match (sizes.as_slice(), shape.len()) {
            (&[rows, columns], 2) => {
                Ok(Self { output_size: [rows, columns], spatial_scale: node.float("spatial_scale", 1.0)? })
            }
            _ => Err(invalid("pooled_shape", format!("is {shape:?}, must be two sizes"))),
        }
    }
}

impl<'m> Operator<'m> for MaxRoiPool {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("MaxRoiPool", 1, &["X", "rois"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, regions) = (args.value("X")?, args.value("rois")?);
        to.expect_rank("X", x, 4)?;
        to.expect_dims("rois", regions, &[None, Some(Dim::constant(5))])?;
        let [rows, columns] = self.output_size;
        let dims =
            vec![to.dims(regions)[0].clone(), to.dims(x)[1].clone(), Dim::from(rows), Dim::from(columns)];
        let ty = to.ty(x).with_dims(dims);
        let arguments = [
            Arg::Operand(0),
            Arg::Operand(1),
            Arg::Array(Arg::ints(&self.output_size)),
            Arg::Float(self.spatial_scale),
        ];
        Ok(to.call_reading(Call::new("tensor::module::max_roi_pool", arguments), &[x, regions], ty)?.into())
    }
}
