//! Operators on how elements lie in memory, which a graph does not say: a program does, of each of its tensors.

use super::shape::{dims, reshaped};
use super::{Sharing, Table, ViewTable};
use crate::pt2::call::{Call, Int, MAX_RANK, Outputs, Result, Tensor, int, invalid, unsupported};
use crate::pt2::views::{self, put_back};

pub(super) const RULES: Table = &[("sym_stride.int", |call| {
    let x = call.tensor("self")?;
    let axis = call.axis("dim", 0, &x)?;
    let order = storage_order(call)?;
    // As many elements as all axes have that lie within.
    let mut stride = Int::Known(1);
    for &inner in order.iter().skip_while(|&&other| other != axis).skip(1) {
        let size = call.size_of(&x, inner);
        stride = call.size_op("Mul", &stride, &size);
    }
    call.yields_count();
    Ok(vec![call.size_value(&stride)])
})];

/// Operators whose results share elements with what they are given.
pub(super) const VIEWS: ViewTable =
    &[("as_strided.default", as_strided, Sharing::Always, put_back::unchangeable)];

/// The axes of the first argument, outermost first, as its elements lie in memory: one after the other.
fn storage_order(call: &Call<'_, '_>) -> Result<Vec<i64>> {
    let order = call.meta("self").and_then(views::storage_order);
    order.ok_or_else(|| unsupported("the strides of a tensor whose elements do not lie one after the other"))
}

/// Where the elements of a tensor begin in memory, counted from where the first argument's do.
fn offset(call: &mut Call<'_, '_>) -> Result<Int> {
    let Some(offset) = call.optional_size("storage_offset")? else { return Ok(Int::Known(0)) };
    let own = call.meta("self").map(|meta| meta.storage_offset.known());
    let own = own.flatten().ok_or_else(|| unsupported("`as_strided` of a tensor that begins anywhere"))?;
    Ok(call.size_op("Sub", &offset, &Int::Known(own)))
}

/// The elements at these strides, of which any may be there several times.
fn as_strided(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (sizes, strides) = (call.sizes("size")?, call.sizes("stride")?);
    if sizes.len() > MAX_RANK {
        return Err(unsupported(format!("a tensor of rank {}", sizes.len())));
    }
    if sizes.len() != strides.len() {
        return Err(invalid("stride", format!("has {} numbers for {} axes", strides.len(), sizes.len())));
    }
    let (order, offset) = (storage_order(call)?, offset(call)?);
    within(&x, &sizes, &strides, &offset)?;
    // Outer axes that both have stay; of the others the elements are picked.
    let own: Vec<Int> = dims(call, &x);
    let own: Vec<Int> =
        order.iter().filter_map(|&axis| own.get(usize::try_from(axis).ok()?).cloned()).collect();
    let mut own_strides = vec![Int::Known(1)];
    for size in own.iter().skip(1).rev() {
        let outer = own_strides.last().cloned().unwrap_or(Int::Known(1));
        own_strides.push(call.size_op("Mul", &outer, size));
    }
    own_strides.reverse();
    let wanted = sizes.iter().zip(&strides);
    let has = own.iter().zip(&own_strides);
    let at_start = matches!(offset, Int::Known(0));
    let kept = wanted
        .zip(has)
        .take_while(|((size, stride), (own, own_stride))| at_start && size.is(own) && stride.is(own_stride));
    let kept = kept.count();
    let turned = call.transpose(&x, &order);
    if kept == own.len() && kept == sizes.len() {
        return Ok(vec![call.op("Identity", &[&turned], Vec::new())]);
    }
    let mut line: Vec<Int> = own.into_iter().take(kept).collect();
    line.push(Int::Known(-1));
    let line = reshaped(call, &turned, &line);
    let axis = i64::try_from(kept).unwrap_or(i64::MAX);
    let mut places = call.size_value(&offset);
    let rest = sizes.len() - kept;
    for (at, (size, stride)) in sizes.iter().zip(&strides).skip(kept).enumerate() {
        let (zero, size, one) = (call.int64(0), call.size_value(size), call.int64(1));
        let mut steps = call.op("Range", &[&zero, &size, &one], Vec::new());
        if !matches!(stride, Int::Known(1)) {
            let stride = call.size_value(stride);
            steps = call.op("Mul", &[&steps, &stride], Vec::new());
        }
        let behind: Vec<i64> = (1..).take(rest - at - 1).collect();
        let steps = call.unsqueeze(&steps, &behind);
        places = call.op("Add", &[&places, &steps], Vec::new());
    }
    Ok(vec![call.op("Gather", &[&line, &places], vec![int("axis", axis)])])
}

/// Checks that no element is outside of a tensor, which may be a part of what lies in memory.
fn within(x: &Tensor, sizes: &[Int], strides: &[Int], offset: &Int) -> Result<()> {
    let known = |value: &Int| match value {
        Int::Known(value) => Some(*value),
        Int::Value(_) => None,
    };
    let count = x.sizes.iter().try_fold(1i64, |count, size| count.checked_mul((*size)?));
    let mut last = known(offset);
    let mut first = last;
    for (size, stride) in sizes.iter().zip(strides) {
        let (Some(size), Some(stride)) = (known(size), known(stride)) else { return Ok(()) };
        if size == 0 {
            return Ok(());
        }
        let reach = size.saturating_sub(1).saturating_mul(stride);
        let end = if reach < 0 { &mut first } else { &mut last };
        *end = end.map(|end| end.saturating_add(reach));
    }
    let (Some(first), Some(last), Some(count)) = (first, last, count) else { return Ok(()) };
    if first < 0 || last >= count {
        return Err(unsupported("`as_strided` that reads what is in memory beside its tensor"));
    }
    Ok(())
}
