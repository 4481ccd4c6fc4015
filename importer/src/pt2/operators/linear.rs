//! Products of matrices, and convolutions.

use super::{Sharing, Table, ViewTable};
use crate::onnx::proto::AttributeProto;
use crate::pt2::call::{Call, Number, Outputs, Result, Tensor, int, ints, invalid, string, unsupported};
use crate::pt2::translation::names_of;
use crate::pt2::views::put_back;
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("addbmm.default", |call| {
        let product = product(call, "batch1", "batch2")?;
        let first = call.int64s(&[0]);
        let sum = call.op("ReduceSum", &[&product, &first], vec![int("keepdims", 0)]);
        added(call, &sum)
    }),
    ("addmm.default", addmm),
    ("addmm.dtype", addmm),
    ("addmv.default", |call| {
        let product = product(call, "mat", "vec")?;
        added(call, &product)
    }),
    ("addr.default", |call| {
        let product = outer(call, "vec1", "vec2")?;
        added(call, &product)
    }),
    ("baddbmm.default", |call| {
        let product = product(call, "batch1", "batch2")?;
        added(call, &product)
    }),
    ("baddbmm.dtype", |call| {
        let product = product(call, "batch1", "batch2")?;
        added(call, &product)
    }),
    ("bilinear.default", bilinear),
    ("_trilinear.default", trilinear),
    ("bmm.default", |call| matmul(call, "self", "mat2")),
    ("bmm.dtype", |call| matmul(call, "self", "mat2")),
    ("chain_matmul.default", |call| chain(call, "matrices")),
    ("conv1d.default", |call| convolution(call, 1)),
    ("conv1d.padding", |call| convolution(call, 1)),
    ("conv2d.default", |call| convolution(call, 2)),
    ("conv2d.padding", |call| convolution(call, 2)),
    ("conv3d.default", |call| convolution(call, 3)),
    ("conv3d.padding", |call| convolution(call, 3)),
    ("conv_transpose1d.default", |call| transposed_convolution(call, 1)),
    ("conv_transpose2d.input", |call| transposed_convolution(call, 2)),
    ("conv_transpose3d.input", |call| transposed_convolution(call, 3)),
    ("convolution.default", any_convolution),
    ("_convolution.default", any_convolution),
    ("_convolution.deprecated", any_convolution),
    ("cross.default", cross),
    ("dot.default", |call| matmul(call, "self", "tensor")),
    ("ger.default", |call| Ok(vec![outer(call, "self", "vec2")?])),
    ("_grouped_mm.default", |call| grouped(call, ["self", "mat2"])),
    ("inner.default", inner),
    ("kron.default", kron),
    ("linalg_cross.default", cross),
    ("linalg_matmul.default", |call| matmul(call, "self", "other")),
    ("linalg_multi_dot.default", |call| chain(call, "tensors")),
    ("linalg_vecdot.default", |call| {
        let (x, y) = (call.tensor("x")?, call.tensor("y")?);
        let dtype = call.result_dtype()?;
        let longer = if x.rank() >= y.rank() { &x } else { &y };
        // Counted from the end, as the shorter is stretched.
        let axis = call.axis("dim", -1, longer)?.saturating_sub_unsigned(longer.rank() as u64);
        let (x, y) = (call.cast_tensor(&x, dtype), call.cast_tensor(&y, dtype));
        let product = call.op("Mul", &[&x, &y], Vec::new());
        let axes = call.int64s(&[axis]);
        Ok(vec![call.op("ReduceSum", &[&product, &axes], vec![int("keepdims", 0)])])
    }),
    ("linear.default", linear),
    ("matmul.default", |call| matmul(call, "self", "other")),
    ("mm.default", |call| matmul(call, "self", "mat2")),
    ("mm.dtype", |call| matmul(call, "self", "mat2")),
    ("mv.default", |call| matmul(call, "self", "vec")),
    ("outer.default", |call| Ok(vec![outer(call, "self", "vec2")?])),
    ("tensordot.default", tensordot),
    ("transformers.grouped_mm_fallback.default", |call| grouped(call, ["input", "weight"])),
    ("vdot.default", |call| matmul(call, "self", "other")),
];

/// Operators whose results share elements with what they are given.
pub(super) const VIEWS: ViewTable = &[("einsum.default", einsum, Sharing::OfOne, turned_back)];

/// The dtype that sums of products are computed in. Integers of few bits wrap around, as those of more do when they lose bits.
fn accumulated(dtype: DType) -> DType {
    if dtype.is_int() && dtype.size() < 4 { DType::I32 } else { dtype }
}

/// A product of matrices, in the dtype of the result.
pub(super) fn product(call: &mut Call<'_, '_>, left: &str, right: &str) -> Result<String> {
    let (left, right) = (call.tensor(left)?, call.tensor(right)?);
    let dtype = call.result_dtype()?;
    let wide = accumulated(dtype);
    let (left, right) = (call.cast_tensor(&left, wide), call.cast_tensor(&right, wide));
    let product = call.op("MatMul", &[&left, &right], Vec::new());
    Ok(call.cast(&product, wide, dtype))
}

fn matmul(call: &mut Call<'_, '_>, left: &str, right: &str) -> Result<Outputs> {
    Ok(vec![product(call, left, right)?])
}

fn chain(call: &mut Call<'_, '_>, name: &str) -> Result<Outputs> {
    let mut matrices = call.tensors(name)?.into_iter();
    let first = matrices.next().ok_or_else(|| invalid(name, "has no matrix"))?;
    let dtype = call.result_dtype()?;
    let wide = accumulated(dtype);
    let mut product = call.cast_tensor(&first, wide);
    for matrix in matrices {
        let matrix = call.cast_tensor(&matrix, wide);
        product = call.op("MatMul", &[&product, &matrix], Vec::new());
    }
    Ok(vec![call.cast(&product, wide, dtype)])
}

/// A factor that is 1 unless it is given.
fn factor(call: &mut Call<'_, '_>, name: &str) -> Result<Number> {
    Ok(call.optional_number(name)?.unwrap_or(Number::Known(Scalar::Int(1))))
}

/// A value times a factor, unless that is 1.
fn times(call: &mut Call<'_, '_>, value: &str, factor: &Number, dtype: DType) -> Result<String> {
    if factor.known() == Some(1.0) {
        return Ok(value.to_owned());
    }
    let factor = call.number_value(factor, dtype)?;
    Ok(call.op("Mul", &[value, &factor], Vec::new()))
}

/// `beta · self + alpha · product`; `self` is not read when `beta` is 0.
pub(super) fn added(call: &mut Call<'_, '_>, product: &str) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let (alpha, beta) = (factor(call, "alpha")?, factor(call, "beta")?);
    let product = times(call, product, &alpha, dtype)?;
    if beta.known() == Some(0.0) {
        call.ignore(&["self"]);
        return Ok(vec![product]);
    }
    let x = call.tensor("self")?;
    let x = call.cast_tensor(&x, dtype);
    let x = times(call, &x, &beta, dtype)?;
    Ok(vec![call.op("Add", &[&product, &x], Vec::new())])
}

fn addmm(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let product = product(call, "mat1", "mat2")?;
    added(call, &product)
}

/// `x · weightᵀ + bias`, as PyTorch's exporter to ONNX writes it.
fn linear(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let product = weighted(call)?;
    Ok(vec![match call.optional_tensor("bias")? {
        Some(bias) => {
            let bias = call.as_result(bias)?;
            call.op("Add", &[&product, &bias], Vec::new())
        }
        None => product,
    }])
}

/// `x · weightᵀ`.
pub(super) fn weighted(call: &mut Call<'_, '_>) -> Result<String> {
    let (x, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let (x, weight) = (call.as_result(x)?, call.as_result(weight)?);
    let weight = if weight.rank() < 2 { weight.name } else { call.transpose(&weight, &[1, 0]) };
    Ok(call.op("MatMul", &[&x, &weight], Vec::new()))
}

/// Each group of rows times a matrix of its own; `offs` says where groups end.
fn grouped(call: &mut Call<'_, '_>, [x, weight]: [&str; 2]) -> Result<Outputs> {
    let (x, weight) = (call.tensor(x)?, call.tensor(weight)?);
    let dtype = call.result_dtype()?;
    if call.has("bias") {
        return Err(unsupported("`_grouped_mm` with a bias"));
    }
    let ends = call.optional_tensor("offs")?;
    let product = match ends.filter(|_| x.rank() == 2 && weight.rank() == 3) {
        Some(ends) => call.kiln("GroupedMatMul", &[&x, &weight, &ends], Vec::new()),
        None if call.has("offs") => return Err(unsupported("`_grouped_mm` of other than groups of rows")),
        None => call.op("MatMul", &[&x, &weight], Vec::new()),
    };
    Ok(vec![call.cast(&product, x.dtype, dtype)])
}

fn outer(call: &mut Call<'_, '_>, left: &str, right: &str) -> Result<String> {
    let (left, right) = (call.tensor(left)?, call.tensor(right)?);
    let dtype = call.result_dtype()?;
    let (left, right) = (call.cast_tensor(&left, dtype), call.cast_tensor(&right, dtype));
    let (left, right) = (call.unsqueeze(&left, &[1]), call.unsqueeze(&right, &[0]));
    Ok(call.op("Mul", &[&left, &right], Vec::new()))
}

// ---- sums over indices ----

fn einsum(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let wide = accumulated(dtype);
    let tensors = call.tensors("tensors")?;
    let inputs: Vec<String> = tensors.iter().map(|tensor| call.cast_tensor(tensor, wide)).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let sum = summed(call, &inputs)?;
    Ok(vec![call.cast(&sum, wide, dtype)])
}

/// The call's equation without spaces.
fn equation(call: &Call<'_, '_>) -> Result<String> {
    Ok(call.string_or("equation", "")?.split_whitespace().collect())
}

/// What the call's equation says of these operands.
pub(super) fn summed(call: &mut Call<'_, '_>, inputs: &[&str]) -> Result<String> {
    let equation = equation(call)?;
    Ok(call.op("Einsum", inputs, vec![string("equation", &equation)]))
}

/// Whether an equation of one operand sums over an index; operators without one do not.
pub(in crate::pt2) fn sums(call: &Call<'_, '_>) -> bool {
    let Ok(equation) = equation(call) else { return true };
    match equation.split_once("->") {
        Some((operand, result)) => {
            let letters = || operand.chars().filter(char::is_ascii_alphabetic);
            // Dots may stand for no axis at all.
            let dots = operand.contains('.') && !result.contains('.');
            letters().any(|index| !result.contains(index))
                || dots && rank_of_only(call) != Some(letters().count())
        }
        // The result has all indices that are there once.
        None => {
            let mut indices: Vec<char> = equation.chars().filter(char::is_ascii_alphabetic).collect();
            indices.sort_unstable();
            indices.windows(2).any(|pair| matches!(pair, [own, next] if own == next))
        }
    }
}

/// The rank of the only operand.
fn rank_of_only(call: &Call<'_, '_>) -> Option<usize> {
    let only = call.node.inputs.iter().flat_map(|input| names_of(&input.arg)).next()?;
    call.to.meta(only).map(|meta| meta.sizes.len())
}

/// Of axes in another order: the equation from its result to its operand. That of a diagonal has no such.
fn turned_back(call: &mut Call<'_, '_>, _: &Tensor, value: &str, _: usize) -> Result<String> {
    let equation = equation(call)?;
    match equation.split_once("->") {
        Some((operand, result)) if operand.len() == result.len() => {
            let back = format!("{result}->{operand}");
            Ok(call.op("Einsum", &[value], vec![string("equation", &back)]))
        }
        _ => Err(put_back::not_put_back(call)),
    }
}

/// Letters for the indices of tensors.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The sum over pairs of axes, one of each tensor.
fn contracted(call: &mut Call<'_, '_>, [x, y]: [&Tensor; 2], pairs: &[(i64, i64)]) -> Result<Outputs> {
    let mut letters = LETTERS.chars();
    let mut letter = || letters.next().ok_or_else(|| invalid("dims", "has too many axes"));
    let mut of_x = Vec::new();
    for _ in 0..x.rank() {
        of_x.push(letter()?);
    }
    let mut of_y = Vec::new();
    for axis in 0..y.rank() {
        let with = pairs.iter().find(|(_, of_y)| usize::try_from(*of_y) == Ok(axis));
        let shared = with.and_then(|(of_x_axis, _)| of_x.get(usize::try_from(*of_x_axis).ok()?).copied());
        of_y.push(match shared {
            Some(shared) => shared,
            None => letter()?,
        });
    }
    let kept = of_x
        .iter()
        .filter(|letter| !of_y.contains(letter))
        .chain(of_y.iter().filter(|letter| !of_x.contains(letter)));
    let kept: String = kept.collect();
    let (of_x, of_y) = (String::from_iter(of_x), String::from_iter(of_y));
    let equation = format!("{of_x},{of_y}->{kept}");
    Ok(vec![call.op("Einsum", &[x, y], vec![string("equation", &equation)])])
}

fn tensordot(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, y) = (call.tensor("self")?, call.tensor("other")?);
    let (of_x, of_y) = (call.axes("dims_self", &x)?, call.axes("dims_other", &y)?);
    if of_x.len() != of_y.len() {
        return Err(invalid("dims_other", "has another number of axes than `dims_self`"));
    }
    let pairs: Vec<(i64, i64)> = of_x.into_iter().zip(of_y).collect();
    contracted(call, [&x, &y], &pairs)
}

fn inner(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, y) = (call.tensor("self")?, call.tensor("other")?);
    if x.rank() == 0 || y.rank() == 0 {
        return Ok(vec![call.op("Mul", &[&x, &y], Vec::new())]);
    }
    let pair = (x.axis(-1)?, y.axis(-1)?);
    contracted(call, [&x, &y], &[pair])
}

/// `Σ input1ᵢ · weightₒᵢⱼ · input2ⱼ + bias`.
fn bilinear(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, y, weight) = (call.tensor("input1")?, call.tensor("input2")?, call.tensor("weight")?);
    let inputs: [&str; 3] = [&x, &weight, &y];
    let sum = call.op("Einsum", &inputs, vec![string("equation", "...i,oij,...j->...o")]);
    Ok(vec![match call.optional_tensor("bias")? {
        Some(bias) => call.op("Add", &[&sum, &bias], Vec::new()),
        None => sum,
    }])
}

/// The sum over some axes of the product of three tensors that have new axes.
fn trilinear(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let mut product: Option<String> = None;
    for (tensor, axes) in [("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")] {
        let (tensor, axes) = (call.tensor(tensor)?, call.ints(axes)?);
        let tensor = call.unsqueeze(&tensor, &axes);
        product = Some(match product {
            Some(product) => call.op("Mul", &[&product, &tensor], Vec::new()),
            None => tensor,
        });
    }
    let product = product.unwrap_or_default();
    let axes = call.ints("sumdim")?;
    if axes.is_empty() {
        return Ok(vec![product]);
    }
    let axes = call.int64s(&axes);
    Ok(vec![call.op("ReduceSum", &[&product, &axes], vec![int("keepdims", 0)])])
}

/// Vectors at right angles to two others: `a₁b₂ − a₂b₁` and so on around.
fn cross(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let result = call.result(0)?;
    let along = match call.optional_int("dim")? {
        Some(dim) => result.axis(dim)?,
        None if super::family(&call.node.target) == "linalg_cross" => result.axis(-1)?,
        // The first axis of size 3.
        None => {
            let found = (0..).zip(&result.sizes).find(|(_, size)| **size == Some(3));
            found.map(|(axis, _)| axis).ok_or_else(|| invalid("dim", "is none of size 3"))?
        }
    };
    // Broadcast dims are counted from the end.
    let from_end = along.saturating_sub(i64::try_from(result.rank()).unwrap_or(0));
    let mut turned = [[String::new(), String::new()], [String::new(), String::new()]];
    for (name, turned) in ["self", "other"].into_iter().zip(&mut turned) {
        let tensor = call.tensor(name)?;
        let value = call.cast_tensor(&tensor, result.dtype);
        let axis = tensor.axis(from_end)?;
        for (places, turned) in [[1, 2, 0], [2, 0, 1]].iter().zip(turned) {
            let places = call.int64s(places);
            *turned = call.op("Gather", &[&value, &places], vec![int("axis", axis)]);
        }
    }
    let [[a_next, a_last], [b_next, b_last]] = &turned;
    let plus = call.op("Mul", &[a_next, b_last], Vec::new());
    let minus = call.op("Mul", &[a_last, b_next], Vec::new());
    Ok(vec![call.op("Sub", &[&plus, &minus], Vec::new())])
}

/// Blocks that are the second tensor times each element of the first.
fn kron(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, y) = (call.tensor("self")?, call.tensor("other")?);
    let dtype = call.result_dtype()?;
    let rank = x.rank().max(y.rank());
    let mut parts = Vec::new();
    for tensor in [&x, &y] {
        let value = call.cast_tensor(tensor, dtype);
        let missing: Vec<i64> = (0..).take(rank - tensor.rank()).collect();
        parts.push(call.unsqueeze(&value, &missing));
    }
    let [x, y] = parts.as_slice() else { return Ok(Vec::new()) };
    let blocks: Vec<i64> = (0..).step_by(2).take(rank).collect();
    let elements: Vec<i64> = (1..).step_by(2).take(rank).collect();
    let (spread_x, spread_y) = (call.unsqueeze(x, &elements), call.unsqueeze(y, &blocks));
    let product = call.op("Mul", &[&spread_x, &spread_y], Vec::new());
    let (sizes_x, sizes_y) = (call.shape(x), call.shape(y));
    let sizes = call.op("Mul", &[&sizes_x, &sizes_y], Vec::new());
    Ok(vec![call.op("Reshape", &[&product, &sizes], Vec::new())])
}

// ---- convolutions ----

/// A tensor with a batch, and whether that was added.
pub(super) fn batched(call: &mut Call<'_, '_>, x: &Tensor, rank: usize) -> (String, bool) {
    if x.rank() + 1 == rank { (call.unsqueeze(x, &[0]), true) } else { (x.name.clone(), false) }
}

/// Takes away a batch that was added.
pub(super) fn unbatched(call: &mut Call<'_, '_>, value: String, added: bool) -> String {
    if added { call.squeeze(&value, &[0]) } else { value }
}

/// Pads of ONNX: those before each axis, then those after.
pub(super) fn pads(before: &[i64]) -> AttributeProto {
    ints("pads", [before, before].concat())
}

fn convolution(call: &mut Call<'_, '_>, axes: usize) -> Result<Outputs> {
    let weight = call.tensor("weight")?;
    let dilations = call.spread("dilation", 1, axes)?;
    let padding = match call.text("padding") {
        None => pads(&call.spread("padding", 0, axes)?),
        Some("valid") => pads(&vec![0; axes]),
        Some(_) => {
            // What is left over of an odd number is added at the end.
            let total = |(axis, dilation): (i64, &i64)| {
                Some(dilation.saturating_mul(weight.size(axis)?.saturating_sub(1).max(0)))
            };
            match (2..).zip(&dilations).map(total).collect::<Option<Vec<i64>>>() {
                Some(totals) => {
                    let ends = totals.iter().map(|total| total - total / 2);
                    ints("pads", totals.iter().map(|total| total / 2).chain(ends).collect::<Vec<i64>>())
                }
                None => string("auto_pad", "SAME_UPPER"),
            }
        }
    };
    let attributes = vec![
        ints("strides", call.spread("stride", 1, axes)?),
        padding,
        ints("dilations", dilations),
        int("group", call.int_or("groups", 1)?),
    ];
    convolved(call, "Conv", axes, attributes)
}

fn transposed_convolution(call: &mut Call<'_, '_>, axes: usize) -> Result<Outputs> {
    let attributes = vec![
        ints("strides", call.spread("stride", 1, axes)?),
        pads(&call.spread("padding", 0, axes)?),
        ints("output_padding", call.spread("output_padding", 0, axes)?),
        ints("dilations", call.spread("dilation", 1, axes)?),
        int("group", call.int_or("groups", 1)?),
    ];
    convolved(call, "ConvTranspose", axes, attributes)
}

fn any_convolution(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let axes = call.tensor("weight")?.rank().saturating_sub(2);
    if call.bool_or("transposed", false)? {
        transposed_convolution(call, axes)
    } else {
        convolution(call, axes)
    }
}

fn convolved(
    call: &mut Call<'_, '_>,
    operator: &str,
    axes: usize,
    attributes: Vec<AttributeProto>,
) -> Result<Outputs> {
    let (x, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let (x, weight) = (call.as_result(x)?, call.as_result(weight)?);
    let bias = call.optional_tensor("bias")?.map(|bias| call.as_result(bias)).transpose()?;
    let (x, added) = batched(call, &x, axes + 2);
    let mut inputs: Vec<&str> = vec![&x, &weight];
    inputs.extend(bias.as_deref());
    let result = call.op(operator, &inputs, attributes);
    Ok(vec![unbatched(call, result, added)])
}
