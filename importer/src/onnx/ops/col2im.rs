//! `Col2Im`: blocks summed back into an image, which is a transposed convolution with unit kernels.

use super::prelude::*;
use kiln_types::ConvTransposeOptions;

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
        let image = sizes("image_shape", to.known_ints(args.value("image_shape")?, "image_shape")?, None)?;
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
            return Err(RuleError::Unsupported { what: format!("blocks {block:?} of an image {image:?}") });
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
        for axis in 0..spatial {
            let (before, after) = (pads[axis], pads[axis + spatial]);
            let extent = dilation[axis] * (block[axis] - 1) + 1;
            let room = (image[axis] + before + after).checked_sub(extent);
            let room = room.ok_or_else(|| misfit("block_shape", "is larger than the image"))?;
            grid.push(Dim::from(room / stride[axis] + 1));
            padding.push((before, after));
            // What the stride does not reach.
            extra.push(room % stride[axis]);
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
        let images = to.add(Op::ConvTranspose(options), &[blocks, kernels])?;
        let mut whole = vec![batch.clone(), channels];
        whole.extend(image.into_iter().map(Dim::from));
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
