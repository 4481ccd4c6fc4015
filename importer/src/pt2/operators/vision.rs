//! Operators on images: resizing, sampling, and those of torchvision.

use super::Table;
use super::linear::{batched, unbatched};
use crate::onnx::proto::AttributeProto;
use crate::pt2::call::{
    Call, Int, Outputs, Result, Tensor, flag, float, int, ints, invalid, string, unsupported,
};
use kiln_types::DType;

pub(super) const RULES: Table = &[
    ("affine_grid_generator.default", |call| {
        let theta = call.tensor("theta")?;
        let sizes = call.sizes("size")?;
        let sizes = call.sizes_value(&sizes);
        let corners = flag("align_corners", call.bool_or("align_corners", false)?);
        Ok(vec![call.op("AffineGrid", &[&theta, &sizes], vec![corners])])
    }),
    ("channel_shuffle.default", channel_shuffle),
    ("native_channel_shuffle.default", channel_shuffle),
    ("col2im.default", col2im),
    ("grid_sampler.default", grid_sample),
    ("grid_sampler_2d.default", grid_sample),
    ("grid_sampler_3d.default", grid_sample),
    ("im2col.default", im2col),
    ("pixel_shuffle.default", pixel_shuffle),
    ("pixel_unshuffle.default", pixel_unshuffle),
    ("torchvision.deform_conv2d.default", deformable_convolution),
    ("torchvision.nms.default", non_max_suppression),
    ("torchvision.roi_align.default", roi_align),
    ("torchvision.roi_pool.default", |call| {
        let (x, rois) = (call.tensor("input")?, call.tensor("rois")?);
        let shape = [call.int("pooled_height")?, call.int("pooled_width")?];
        let attributes =
            vec![ints("pooled_shape", shape), float("spatial_scale", call.float("spatial_scale")?)];
        Ok(vec![call.op("MaxRoiPool", &[&x, &rois], attributes)])
    }),
    ("upsample_bicubic2d.default", |call| resize(call, &CUBIC)),
    ("upsample_bicubic2d.vec", |call| resize(call, &CUBIC)),
    ("_upsample_bicubic2d_aa.default", |call| resize(call, &SMOOTH_CUBIC)),
    ("_upsample_bicubic2d_aa.vec", |call| resize(call, &SMOOTH_CUBIC)),
    ("upsample_bilinear2d.default", |call| resize(call, &LINEAR)),
    ("upsample_bilinear2d.vec", |call| resize(call, &LINEAR)),
    ("_upsample_bilinear2d_aa.default", |call| resize(call, &SMOOTH_LINEAR)),
    ("_upsample_bilinear2d_aa.vec", |call| resize(call, &SMOOTH_LINEAR)),
    ("upsample_linear1d.default", |call| resize(call, &LINEAR)),
    ("upsample_linear1d.vec", |call| resize(call, &LINEAR)),
    ("upsample_nearest1d.default", |call| resize(call, &NEAREST)),
    ("upsample_nearest1d.vec", |call| resize(call, &NEAREST)),
    ("upsample_nearest2d.default", |call| resize(call, &NEAREST)),
    ("upsample_nearest2d.vec", |call| resize(call, &NEAREST)),
    ("upsample_nearest3d.default", |call| resize(call, &NEAREST)),
    ("upsample_nearest3d.vec", |call| resize(call, &NEAREST)),
    ("_upsample_nearest_exact1d.default", |call| resize(call, &EXACT)),
    ("_upsample_nearest_exact1d.vec", |call| resize(call, &EXACT)),
    ("_upsample_nearest_exact2d.default", |call| resize(call, &EXACT)),
    ("_upsample_nearest_exact2d.vec", |call| resize(call, &EXACT)),
    ("_upsample_nearest_exact3d.default", |call| resize(call, &EXACT)),
    ("_upsample_nearest_exact3d.vec", |call| resize(call, &EXACT)),
    ("upsample_trilinear3d.default", |call| resize(call, &LINEAR)),
    ("upsample_trilinear3d.vec", |call| resize(call, &LINEAR)),
];

// ---- resizing ----

/// A way to resize.
struct Resizing {
    mode: &'static str,
    /// Where a pixel of the result lies, but for those whose corners are aligned.
    places: &'static str,
    /// How places are rounded.
    nearest: Option<&'static str>,
    /// The coefficient of cubic functions.
    cubic: Option<f64>,
    antialias: bool,
}

const LINEAR: Resizing =
    Resizing { mode: "linear", places: "half_pixel", nearest: None, cubic: None, antialias: false };
const SMOOTH_LINEAR: Resizing = Resizing { antialias: true, ..LINEAR };
const CUBIC: Resizing = Resizing { mode: "cubic", cubic: Some(-0.75), ..LINEAR };
const SMOOTH_CUBIC: Resizing = Resizing { mode: "cubic", cubic: Some(-0.5), antialias: true, ..LINEAR };
const NEAREST: Resizing =
    Resizing { mode: "nearest", places: "asymmetric", nearest: Some("floor"), ..LINEAR };
const EXACT: Resizing = Resizing { mode: "nearest", nearest: Some("round_prefer_ceil"), ..LINEAR };

fn resize(call: &mut Call<'_, '_>, resizing: &Resizing) -> Result<Outputs> {
    let x = call.tensor(if call.has("input") { "input" } else { "self" })?;
    let corners = call.bool_or("align_corners", false)?;
    if corners && resizing.antialias {
        // PyTorch places pixels by the distance of the corners, but half a pixel off.
        return Err(unsupported(
            "resizing with `antialias` and `align_corners`, whose pixels no other framework places so",
        ));
    }
    let places = if corners { "align_corners" } else { resizing.places };
    let mut attributes =
        vec![string("mode", resizing.mode), string("coordinate_transformation_mode", places)];
    attributes.extend(resizing.nearest.map(|nearest| string("nearest_mode", nearest)));
    attributes.extend(resizing.cubic.map(|cubic| float("cubic_coeff_a", cubic)));
    if resizing.antialias {
        // Pixels outside of the image have no part in averages.
        attributes.extend([int("antialias", 1), int("exclude_outside", 1)]);
    }
    let axes = x.rank().saturating_sub(2);
    let scales = scales(call, axes)?;
    // Scales say where pixels lie, unless corners are aligned.
    if let Some(scales) = scales.filter(|_| !corners) {
        let result = call.result(0)?;
        let sizes = x.sizes.iter().zip(&result.sizes).skip(2);
        let fitting: Option<Vec<f64>> = sizes.zip(&scales).map(fitting).collect();
        let fitting =
            fitting.ok_or_else(|| unsupported("resizing by scales to other sizes than these yield"))?;
        call.ignore(&["output_size"]);
        let scales = call.floats(&[&[1.0, 1.0], fitting.as_slice()].concat(), DType::F32);
        return Ok(vec![call.op("Resize", &[&x, "", &scales], attributes)]);
    }
    let sizes = output_sizes(call, &x, axes)?;
    let mut all = vec![call.size_of(&x, 0), call.size_of(&x, 1)];
    all.extend(sizes);
    let sizes = call.sizes_value(&all);
    Ok(vec![call.op("Resize", &[&x, "", "", &sizes], attributes)])
}

/// The scale along each axis, if the call gives one. Along others it is that of the sizes.
fn scales(call: &mut Call<'_, '_>, axes: usize) -> Result<Option<Vec<f64>>> {
    let given = call.floats_or("scale_factors", &[])?;
    match given.as_slice() {
        [] => {}
        [only] => return Ok(Some(vec![*only; axes])),
        given => return Ok(Some(given.to_vec()).filter(|given| given.len() == axes)),
    }
    let names: &[&str] = match axes {
        1 => &["scales"],
        2 => &["scales_h", "scales_w"],
        _ => &["scales_d", "scales_h", "scales_w"],
    };
    if axes != names.len() || !names.iter().any(|name| call.has(name)) {
        return Ok(None);
    }
    let mut scales = Vec::with_capacity(axes);
    for (axis, name) in (2..).zip(names) {
        scales.push(match call.has(name) {
            true => call.float(name)?,
            false => {
                let sizes = call.result(0)?.size(axis).zip(call.tensor("self")?.size(axis));
                let (output, input) = sizes.filter(|(_, input)| *input > 0).ok_or_else(|| {
                    unsupported(
                        "resizing by a scale along one axis and by a size that is not known along another",
                    )
                })?;
                output as f64 / input as f64
            }
        });
    }
    Ok(Some(scales))
}

/// The scale nearest to the given one that yields a size in the precision of ONNX, if one does.
fn fitting(((input, output), &scale): ((&Option<i64>, &Option<i64>), &f64)) -> Option<f64> {
    let scale = scale as f32;
    let (Some(input), Some(output)) = (*input, *output) else { return Some(f64::from(scale)) };
    let fits = |scale: &f32| {
        let exact = input as f64 * f64::from(*scale);
        let rounded = input as f32 * scale;
        exact.floor() == output as f64 && f64::from(rounded.floor()) == output as f64
    };
    [scale, scale.next_up(), scale.next_down()].into_iter().find(fits).map(f64::from)
}

/// The sizes that a call gives, or that follow from its scales.
fn output_sizes(call: &mut Call<'_, '_>, x: &Tensor, axes: usize) -> Result<Vec<Int>> {
    if call.has("output_size") {
        let sizes = call.sizes("output_size")?;
        if sizes.len() != axes {
            return Err(invalid("output_size", format!("has {} sizes for {axes} axes", sizes.len())));
        }
        return Ok(sizes);
    }
    let scales = scales(call, axes)?.ok_or_else(|| invalid("output_size", "is missing, as are scales"))?;
    let result = call.result(0)?;
    let mut sizes = Vec::new();
    for (axis, scale) in (2..).zip(scales) {
        sizes.push(match result.size(axis) {
            Some(size) => Int::Known(size),
            None => {
                let size = call.size_of(x, axis);
                let size = call.size_value(&size);
                let size = call.cast(&size, DType::I64, DType::F64);
                let scale = call.number_of(scale, DType::F64);
                let scaled = call.op("Mul", &[&size, &scale], Vec::new());
                // Positive numbers are rounded down.
                Int::Value(call.cast(&scaled, DType::F64, DType::I64))
            }
        });
    }
    Ok(sizes)
}

// ---- sampling ----

fn grid_sample(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, grid) = (call.tensor("input")?, call.tensor("grid")?);
    let choice = |name: &str, choices: [&'static str; 3], index: i64| {
        let found = usize::try_from(index).ok().and_then(|index| choices.get(index).copied());
        found.ok_or_else(|| invalid(name, format!("is {index}, which stands for nothing")))
    };
    let mode = call.int("interpolation_mode")?;
    let padding = call.int("padding_mode")?;
    let attributes = vec![
        string("mode", choice("interpolation_mode", ["linear", "nearest", "cubic"], mode)?),
        string("padding_mode", choice("padding_mode", ["zeros", "border", "reflection"], padding)?),
        flag("align_corners", call.bool_or("align_corners", false)?),
    ];
    Ok(vec![call.op("GridSample", &[&x, &grid], attributes)])
}

// ---- pixels and channels ----

/// All sizes of a tensor.
fn all_sizes(call: &mut Call<'_, '_>, x: &Tensor) -> Vec<Int> {
    (0..).take(x.rank()).map(|axis| call.size_of(x, axis)).collect()
}

fn reshaped(call: &mut Call<'_, '_>, x: &str, sizes: &[Int]) -> String {
    let sizes = call.sizes_value(sizes);
    call.op("Reshape", &[x, &sizes], Vec::new())
}

/// The sizes before the last three, and those.
fn image(sizes: &[Int]) -> Result<(&[Int], &[Int; 3])> {
    sizes.split_last_chunk::<3>().ok_or_else(|| invalid("self", "is no image: it has less than three axes"))
}

fn pixel_shuffle(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let factor = call.int("upscale_factor")?;
    let attributes = vec![int("blocksize", factor), string("mode", "CRD")];
    if x.rank() == 4 {
        return Ok(vec![call.op("DepthToSpace", &[&x], attributes)]);
    }
    let sizes = all_sizes(call, &x);
    let (outer, [channels, height, width]) = image(&sizes)?;
    let images = [Int::Known(-1), channels.clone(), height.clone(), width.clone()];
    let value = reshaped(call, &x, &images);
    let value = call.op("DepthToSpace", &[&value], attributes);
    let factor = Int::Known(factor);
    let area = call.size_op("Mul", &factor, &factor);
    let inner = [
        call.size_op("Div", channels, &area),
        call.size_op("Mul", height, &factor),
        call.size_op("Mul", width, &factor),
    ];
    Ok(vec![reshaped(call, &value, &[outer, &inner].concat())])
}

/// ONNX's `SpaceToDepth` has another order of channels.
fn pixel_unshuffle(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let factor = call.int("downscale_factor")?;
    if factor < 1 {
        return Err(invalid("downscale_factor", "is less than 1"));
    }
    let factor = Int::Known(factor);
    let sizes = all_sizes(call, &x);
    let (outer, [channels, height, width]) = image(&sizes)?;
    let (height, width) = (call.size_op("Div", height, &factor), call.size_op("Div", width, &factor));
    let blocks =
        [Int::Known(-1), channels.clone(), height.clone(), factor.clone(), width.clone(), factor.clone()];
    let value = reshaped(call, &x, &blocks);
    let value = call.transpose(&value, &[0, 1, 3, 5, 2, 4]);
    let area = call.size_op("Mul", &factor, &factor);
    let inner = [call.size_op("Mul", channels, &area), height, width];
    Ok(vec![reshaped(call, &value, &[outer, &inner].concat())])
}

/// The groups of channels, one channel of each in turn.
fn channel_shuffle(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let groups = call.int("groups")?;
    if groups < 1 || x.rank() < 3 {
        return Err(invalid("groups", "does not divide channels"));
    }
    let sizes = all_sizes(call, &x);
    let Some((batch, [channels, rest @ ..])) = sizes.split_first() else { return Ok(Vec::new()) };
    let groups = Int::Known(groups);
    let each = call.size_op("Div", channels, &groups);
    let split = [&[batch.clone(), groups, each], rest].concat();
    let value = reshaped(call, &x, &split);
    let order: Vec<i64> = [0, 2, 1].into_iter().chain((3..).take(rest.len())).collect();
    let value = call.transpose(&value, &order);
    Ok(vec![reshaped(call, &value, &sizes)])
}

// ---- blocks ----

/// Elements that a block may have along an axis, and indices that are listed.
const LISTED: i64 = 1 << 20;

/// The indices along an axis of each block's elements, of a tensor that is padded: `[kernel, blocks]`.
fn block_indices(
    call: &mut Call<'_, '_>,
    size: &Int,
    [kernel, dilation, padding, stride]: [i64; 4],
) -> Result<String> {
    let plain = |number: &i64| (0..=LISTED).contains(number);
    if ![kernel, dilation, padding, stride].iter().all(plain) || kernel == 0 || stride == 0 {
        return Err(invalid(
            "kernel_size",
            "or another number of the blocks is negative, nothing or too large",
        ));
    }
    let reach = dilation * (kernel - 1) + 1 - 2 * padding;
    let (reach, step) = (Int::Known(reach), Int::Known(stride));
    let free = call.size_op("Sub", size, &reach);
    let blocks = call.size_op("Div", &free, &step);
    let blocks = call.size_op("Add", &blocks, &Int::Known(1));
    if let Int::Known(blocks) = blocks
        && kernel.saturating_mul(blocks) <= LISTED
    {
        call.to.spend(usize::try_from(kernel.saturating_mul(blocks)).unwrap_or(usize::MAX))?;
        let indices: Vec<i64> =
            (0..kernel).flat_map(|at| (0..blocks).map(move |block| at * dilation + block * stride)).collect();
        let indices = call.int64s(&indices);
        let shape = call.int64s(&[kernel, blocks]);
        return Ok(call.op("Reshape", &[&indices, &shape], Vec::new()));
    }
    let elements: Vec<i64> = (0..kernel).map(|at| at * dilation).collect();
    let elements = call.int64s(&elements);
    let elements = call.unsqueeze(&elements, &[1]);
    let end = call.size_op("Mul", &blocks, &step);
    let (start, end, step) = (call.int64(0), call.size_value(&end), call.size_value(&step));
    let starts = call.op("Range", &[&start, &end, &step], Vec::new());
    Ok(call.op("Add", &[&elements, &starts], Vec::new()))
}

fn im2col(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (kernel, dilation) = (call.spread("kernel_size", 1, 2)?, call.spread("dilation", 1, 2)?);
    let (padding, stride) = (call.spread("padding", 0, 2)?, call.spread("stride", 1, 2)?);
    let ([tall, wide], [above, left]) = (pair(&kernel)?, pair(&padding)?);
    if stride.iter().chain(&kernel).any(|&number| number < 1) {
        return Err(invalid("kernel_size", "and `stride` must be at least 1"));
    }
    let last = i64::try_from(x.rank()).unwrap_or(i64::MAX);
    let (height, width) = (call.size_of(&x, last - 2), call.size_of(&x, last - 1));
    let channels = call.size_of(&x, last - 3);
    let (mut value, added) = batched(call, &x, 4);
    if padding.iter().any(|&padding| padding != 0) {
        let pads = call.int64s(&[0, 0, above, left, 0, 0, above, left]);
        value = call.op("Pad", &[&value, &pads], Vec::new());
    }
    let (vertical, horizontal) = (pair(&dilation)?, pair(&stride)?);
    let rows = block_indices(call, &height, [tall, vertical[0], above, horizontal[0]])?;
    let columns = block_indices(call, &width, [wide, vertical[1], left, horizontal[1]])?;
    let value = call.op("Gather", &[&value, &rows], vec![int("axis", 2)]);
    let value = call.op("Gather", &[&value, &columns], vec![int("axis", 4)]);
    let value = call.transpose(&value, &[0, 1, 2, 4, 3, 5]);
    let area = Int::Known(tall * wide);
    let elements = call.size_op("Mul", &channels, &area);
    let value = reshaped(call, &value, &[Int::Known(0), elements, Int::Known(-1)]);
    Ok(vec![unbatched(call, value, added)])
}

fn pair(numbers: &[i64]) -> Result<[i64; 2]> {
    <[i64; 2]>::try_from(numbers).map_err(|_| invalid("kernel_size", "does not have two numbers"))
}

fn col2im(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let sizes = call.sizes("output_size")?;
    let kernel = call.spread("kernel_size", 1, 2)?;
    let padding = call.spread("padding", 0, 2)?;
    let attributes = vec![
        ints("dilations", call.spread("dilation", 1, 2)?),
        super::linear::pads(&padding),
        ints("strides", call.spread("stride", 1, 2)?),
    ];
    let (value, added) = batched(call, &x, 3);
    let (sizes, kernel) = (call.sizes_value(&sizes), call.int64s(&kernel));
    let result = call.op("Col2Im", &[&value, &sizes, &kernel], attributes);
    Ok(vec![unbatched(call, result, added)])
}

// ---- torchvision ----

fn non_max_suppression(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (boxes, scores) = (call.tensor("dets")?, call.tensor("scores")?);
    let threshold = call.float("iou_threshold")?;
    let count = call.size_at(&boxes, 0);
    let (boxes, scores) = (call.cast_tensor(&boxes, DType::F32), call.cast_tensor(&scores, DType::F32));
    let (boxes, scores) = (call.unsqueeze(&boxes, &[0]), call.unsqueeze(&scores, &[0, 1]));
    let threshold = call.floats(&[threshold], DType::F32);
    let found = call.op("NonMaxSuppression", &[&boxes, &scores, &count, &threshold], Vec::new());
    let column = call.int64(2);
    Ok(vec![call.op("Gather", &[&found, &column], vec![int("axis", 1)])])
}

fn roi_align(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, rois) = (call.tensor("input")?, call.tensor("rois")?);
    let places = if call.bool_or("aligned", false)? { "half_pixel" } else { "output_half_pixel" };
    let attributes = vec![
        string("coordinate_transformation_mode", places),
        float("spatial_scale", call.float("spatial_scale")?),
        int("output_height", call.int("pooled_height")?),
        int("output_width", call.int("pooled_width")?),
        // As many as are needed.
        int("sampling_ratio", call.int_or("sampling_ratio", -1)?.max(0)),
    ];
    let boxes = call.slice(&rois, 1, [&Int::Known(1), &Int::Known(5)], 1);
    let first = call.int64(0);
    let images = call.op("Gather", &[&rois, &first], vec![int("axis", 1)]);
    let images = call.cast(&images, rois.dtype, DType::I64);
    Ok(vec![call.op("RoiAlign", &[&x, &boxes, &images], attributes)])
}

fn deformable_convolution(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let (offset, bias) = (call.tensor("offset")?, call.tensor("bias")?);
    let mask = if call.bool_or("use_mask", true)? { call.tensor("mask")?.name } else { String::new() };
    let mut two =
        |names: [&str; 2]| -> Result<Vec<i64>> { names.iter().map(|name| call.int(name)).collect() };
    let attributes: Vec<AttributeProto> = vec![
        ints("strides", two(["stride_h", "stride_w"])?),
        super::linear::pads(&two(["pad_h", "pad_w"])?),
        ints("dilations", two(["dilation_h", "dilation_w"])?),
        int("group", call.int_or("groups", 1)?),
        int("offset_group", call.int_or("offset_groups", 1)?),
    ];
    let inputs: [&str; 5] = [&x, &weight, &offset, &bias, &mask];
    let inputs = if mask.is_empty() { &inputs[..4] } else { &inputs[..] };
    Ok(vec![call.op("DeformConv", inputs, attributes)])
}
