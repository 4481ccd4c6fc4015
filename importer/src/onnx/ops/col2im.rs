//! `Col2Im`: blocks summed back into an image, which is a transposed convolution with unit kernels.

use super::super::lowering::WindowAttributes;
use super::super::node::{MAX_SIZE, sizes_of};
use super::prelude::*;
use crate::ir::op;
use kiln_types::{ConvTransposeOptions, PadMode};

pub(super) struct Col2Im(WindowAttributes);

impl Col2Im {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        WindowAttributes::read_places(node).map(Self)
    }
}

impl<'m> Operator<'m> for Col2Im {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("Col2Im", 18, &["input", "image_shape", "block_shape"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let image = to.host(args.value("image_shape")?, "image_shape")?;
        let known: Option<Vec<i64>> = image.iter().map(Dim::as_constant).collect();
        if let Some(known) = known {
            sizes_of("image_shape", &known, 0..=MAX_SIZE, None)?;
        }
        let spatial = image.len();
        let block = to.known_ints(args.value("block_shape")?, "block_shape")?;
        let window = self.0.over(spatial, sizes_of("block_shape", &block, 1..=MAX_SIZE, Some(spatial))?)?;
        let dims = to.dims(x);
        if !(1..=3).contains(&spatial) {
            let what = format!("blocks {block:?} of an image of {spatial} axes");
            return Err(RuleError::Unsupported { what });
        }
        let area = window.kernel.iter().try_fold(1usize, |area, &size| area.checked_mul(size));
        let area =
            area.ok_or_else(|| RuleError::TooLarge { what: format!("a `block_shape` of {block:?}") })?;
        let [batch, rows, _] = dims.as_slice() else {
            let expected = "expected 3".to_owned();
            return Err(RuleError::Rank { input: "input".to_owned(), actual: dims.len(), expected });
        };
        if rows.as_size().is_some_and(|rows| rows % area != 0) {
            return Err(misfit("block_shape", "does not divide the rows of the input"));
        }
        // Channels are images of their own, so that their number need not be known.
        let channels = rows.floor_div(&Dim::from(area));
        let mut grid = vec![batch * &channels, Dim::from(area)];
        let (mut padding, mut extra) = (Vec::new(), Vec::new());
        // What is cut off at the end, or what the stride does not reach there, of an image whose size only the run tells.
        let mut rest = vec![(Dim::constant(0), Dim::constant(0)); 2];
        for (axis, size) in image.iter().enumerate() {
            let (before, after) = window.explicit[axis];
            let room = &(size + &Dim::from(before + after)) - &window.extent(axis);
            if room.as_constant().is_some_and(|room| room < 0) {
                return Err(misfit("block_shape", "is larger than the image"));
            }
            let step = Dim::from(window.stride[axis]);
            let steps = room.floor_div(&step);
            let unreached = &room - &(&steps * &step);
            grid.push(&steps + &Dim::constant(1));
            match unreached.as_size() {
                Some(unreached) => {
                    padding.push((before, after));
                    extra.push(unreached);
                    rest.push((Dim::constant(0), Dim::constant(0)));
                }
                None => {
                    padding.push((before, 0));
                    extra.push(0);
                    rest.push((Dim::constant(0), &unreached - &Dim::from(after)));
                }
            }
        }
        let blocks = to.reshape(x, grid)?;
        // Each row goes to one place of its block.
        let one = |at: usize| if at / area == at % area { 1.0 } else { 0.0 };
        let dtype = to.dtype(x);
        let kernels = to.table([vec![area, 1], window.kernel].concat(), dtype, one)?;
        let options = ConvTransposeOptions {
            stride: window.stride.into(),
            padding: padding.into(),
            output_padding: extra.into(),
            dilation: window.dilation.into(),
            groups: 1,
        };
        let mut images = to.add(Op::ConvTranspose(options), &[blocks, kernels])?;
        if rest.iter().any(|(_, after)| !after.is(0)) {
            let pad = op::Pad { padding: rest, mode: PadMode::Constant, value: Scalar::Int(0) };
            images = to.add(Op::Pad(pad), &[images])?;
        }
        let mut whole = vec![batch.clone(), channels];
        whole.extend(image);
        Ok(to.reshape(images, whole)?.into())
    }
}
