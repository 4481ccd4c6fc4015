//! `GridSample`: an image or volume, sampled at given places.

use super::prelude::*;

pub(super) struct GridSample {
    mode: &'static str,
    padding: &'static str,
    align_corners: bool,
}

const LINEAR: &str = "tensor::module::SampleMode::Linear";
const CUBIC: &str = "tensor::module::SampleMode::Cubic";
const MODES: &[(&str, &str)] = &[
    ("linear", LINEAR),
    ("bilinear", LINEAR),
    ("nearest", "tensor::module::SampleMode::Nearest"),
    ("cubic", CUBIC),
    ("bicubic", CUBIC),
];
const PADDINGS: &[(&str, &str)] = &[
    ("zeros", "tensor::module::SamplePadding::Zeros"),
    ("border", "tensor::module::SamplePadding::Border"),
    ("reflection", "tensor::module::SamplePadding::Reflection"),
];

impl GridSample {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            mode: node.choice("mode", "linear", MODES)?,
            padding: node.choice("padding_mode", "zeros", PADDINGS)?,
            align_corners: node.flag("align_corners", false)?,
        })
    }
}

impl<'m> Operator<'m> for GridSample {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("GridSample", 16, &["X", "grid"]).reads(Self::read),
        // What exporters wrote before ONNX had it.
        Spec::microsoft("GridSample", &["X", "grid"]).reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, grid) = (args.value("X")?, args.value("grid")?);
        let spatial = to.spatial("X", x)?;
        let (dims, places) = (to.dims(x), to.dims(grid));
        let mut expected = vec![None; dims.len()];
        expected[0] = Some(dims[0].clone());
        expected[spatial + 1] = Some(Dim::from(spatial));
        to.expect_dims("grid", grid, &expected)?;
        if !to.dtype(x).is_float() {
            return Err(invalid("X", format!("is of {}", to.dtype(x).name())));
        }
        let mut shape = vec![dims[0].clone(), dims[1].clone()];
        shape.extend_from_slice(&places[1..=spatial]);
        let ty = to.ty(x).with_dims(shape);
        let options = Arg::fields(
            "tensor::module::GridSampleOptions",
            [
                ("mode", Arg::variant(self.mode)),
                ("padding", Arg::variant(self.padding)),
                ("align_corners", Arg::Bool(self.align_corners)),
            ],
        );
        let call = Call::new("tensor::module::grid_sample", [Arg::Operand(0), Arg::Operand(1), options]);
        Ok(to.call(call, &[x, grid], ty)?.into())
    }
}
