//! `Col2Im`: blocks summed back into an image, which is a transposed convolution with unit kernels.

use super::prelude::*;
use crate::ir::op;
use kiln_types::{ConvTransposeOptions, PadMode};

pub(super) struct Col2Im {
    dilations: Option<Vec<i64>>,
    pads: Option<Vec<i64>>,
    strides: Option<Vec<i64>>,
}

impl Col2Im {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            dilations: node.ints("dilations")?,
            pads: node.ints("pads")?,
            strides: node.ints("strides")?,
        })
    }
}

impl<'m> Operator<'m> for Col2Im {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("Col2Im", 18, &["input", "image_shape", "block_shape"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let image = to.host(args.value("image_shape")?, "image_shape")?;
        let known: Option<Vec<i64>> = image.iter().map(Dim::as_constant).collect();
        known.map(|known| sizes("image_shape", known, None)).transpose()?;
        let spatial = image.len();
        let count = Some(spatial);
        let block = sizes("block_shape", to.known_ints(args.value("block_shape")?, "block_shape")?, count)?;
        let or = |given: &Option<Vec<i64>>, default: i64, n: usize| {
            given.clone().unwrap_or_else(|| vec![default; n])
        };
        let dilation = sizes("dilations", or(&self.dilations, 1, spatial), count)?;
        let stride = sizes("strides", or(&self.strides, 1, spatial), count)?;
        let pads = sizes("pads", or(&self.pads, 0, 2 * spatial), Some(2 * spatial))?;
        let dims = to.dims(x);
        if !(1..=3).contains(&spatial) || stride.contains(&0) {
            let what = format!("blocks {block:?} of an image of {spatial} axes by strides {stride:?}");
            return Err(RuleError::Unsupported { what });
        }
        let area = block.iter().try_fold(1usize, |area, &size| area.checked_mul(size));
        let area = area.filter(|&area| area > 0).ok_or_else(|| invalid("block_shape", "is no size"))?;
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
        for axis in 0..spatial {
            let (before, after) = (pads[axis], pads[axis + spatial]);
            let extent = dilation[axis] * (block[axis] - 1) + 1;
            let room = &image[axis] + &Dim::constant((before + after) as i64 - extent as i64);
            if room.as_constant().is_some_and(|room| room < 0) {
                return Err(misfit("block_shape", "is larger than the image"));
            }
            let step = Dim::from(stride[axis]);
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
        let kernels = to.table([vec![area, 1], block].concat(), dtype, one)?;
        let options = ConvTransposeOptions {
            stride: stride.into(),
            padding: padding.into(),
            output_padding: extra.into(),
            dilation: dilation.into(),
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

/// Sizes of a machine's order, so many as wanted.
fn sizes(name: &str, values: Vec<i64>, count: Option<usize>) -> RuleResult<Vec<usize>> {
    let size = |&value: &i64| usize::try_from(value).ok().filter(|&size| size <= 1 << 24);
    let sizes: Option<Vec<usize>> = values.iter().map(size).collect();
    sizes
        .filter(|sizes| count.is_none_or(|count| sizes.len() == count))
        .ok_or_else(|| invalid(name, format!("is {values:?}")))
}
