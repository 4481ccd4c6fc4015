//! The same elements in other dims.

use super::prelude::*;
use kiln_types::Bytes;

attributes! {
    /// Other dims (also squeeze, unsqueeze, flatten).
    pub struct Reshape {
        /// New dims; their product is the operand's.
        pub dims: Vec<Dim>,
    }
}

impl Operation for Reshape {
    facts!(operands: ["x"], effect: Pure, folding: Free, result: LaidOut);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        let wanted = x.with_dims(self.dims.clone());
        if !may_equal(&x.num_elements(), &wanted.num_elements()) {
            return Err(dims_error("numbers of elements in a reshape", x, &wanted));
        }
        Ok(vec![wanted])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        // Known contents have a known shape; a symbolic one, as hostile files ask for, cannot be told to fit.
        sizes(&self.dims)?;
        Some(cx.operand(0)?.values.to_vec())
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let x = operands.get(0)?;
        Some(vec![TensorData::from_bytes(x.bytes.clone(), sizes(&self.dims)?, x.dtype).ok()?])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        let sizes = sizes(&self.dims).ok_or_else(|| of.unknown())?;
        Ok(Derivation::Reshape(of.boxed(0)?, Some(sizes)))
    }

    fn loops(&self, _: &Site<'_>) -> Option<Loops> {
        Some(Loops::Same)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(reshape(&self.dims, cx))
    }
}

attributes! {
    /// Other order of axes.
    pub struct Permute {
        /// Output axis `i` is input axis `axes[i]`.
        pub axes: Vec<usize>,
    }
}

impl Operation for Permute {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: LaidOut);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let (x, axes) = (cx.ty(0)?, &self.axes);
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.rank()) {
            return Err(attribute("axes", format!("{axes:?} are not a permutation of {} axes", x.rank())));
        }
        Ok(vec![x.with_dims(axes.iter().map(|&axis| x.dims[axis].clone()).collect())])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        cx.view(|x| Some(x.permute(&self.axes)))
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let x = operands.get(0)?;
        Some(vec![view(x, Strided::new(&x.shape).permute(&self.axes))?])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        Ok(Derivation::Permute(of.boxed(0)?, self.axes.clone()))
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        Some(Loops::copy(Strided::new(&cx.shape(0)?).permute(&self.axes)))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(permute(&self.axes))
    }
}

attributes! {
    /// Axes of size 1 repeated.
    pub struct Expand {
        /// New dims, of the same rank.
        pub dims: Vec<Dim>,
    }
}

impl Operation for Expand {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Repeated);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        let wanted = x.with_dims(self.dims.clone());
        let fits = x.rank() == self.dims.len()
            && x.dims.iter().zip(&self.dims).all(|(from, to)| from.is(1) || may_equal(from, to));
        if fits { Ok(vec![wanted]) } else { Err(dims_error("expansion", x, &wanted)) }
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let dims = sizes(&self.dims)?;
        cx.view(|x| x.expand(&dims))
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let x = operands.get(0)?;
        Some(vec![view(x, Strided::new(&x.shape).expand(&sizes(&self.dims)?)?)?])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        let sizes = sizes(&self.dims).ok_or_else(|| of.unknown())?;
        Ok(Derivation::Expand(of.boxed(0)?, sizes))
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        Some(Loops::copy(Strided::new(&cx.shape(0)?).expand(&sizes(&self.dims)?)?))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(Arg::Operand(0).then("expand", [Arg::Array(Arg::sizes(&self.dims))]))
    }
}

/// The elements of a view of `x`, with the view's dims.
pub(super) fn view(x: &TensorData, view: Strided) -> Option<TensorData> {
    pick(x, view.dims().to_vec(), view.len(), |visit| view.for_each(visit))
}

/// Elements of `x` at the places that `walk` visits.
pub(super) fn pick(
    x: &TensorData,
    shape: Vec<usize>,
    count: usize,
    walk: impl FnOnce(&mut dyn FnMut(usize)),
) -> Option<TensorData> {
    fn run<const N: usize>(
        x: &[u8],
        count: usize,
        walk: impl FnOnce(&mut dyn FnMut(usize)),
    ) -> Option<Vec<u8>> {
        let (elements, _) = x.as_chunks::<N>();
        let mut out: Vec<[u8; N]> = Vec::with_capacity(count);
        let mut inside = true;
        walk(&mut |at| match elements.get(at) {
            Some(element) => out.push(*element),
            None => inside = false,
        });
        inside.then(|| out.into_flattened())
    }
    let bytes = match x.dtype.size() {
        1 => run::<1>(&x.bytes, count, walk),
        2 => run::<2>(&x.bytes, count, walk),
        4 => run::<4>(&x.bytes, count, walk),
        _ => run::<8>(&x.bytes, count, walk),
    }?;
    TensorData::from_bytes(Bytes::from_vec(bytes), shape, x.dtype).ok()
}

/// `squeeze_dim`, `unsqueeze_dim`, `flatten` or `reshape`, whichever says most and needs the fewest sizes.
fn reshape(dims: &[Dim], cx: &Site<'_>) -> Arg {
    let from = cx.ty(0).map(|ty| ty.dims.as_slice()).unwrap_or_default();
    if let Some(axis) = inserted_axis(from, dims) {
        return Arg::Operand(0).then("unsqueeze_dim", [Arg::Rank(dims.len()), Arg::axis(axis)]);
    }
    if let Some(axis) = inserted_axis(dims, from) {
        return Arg::Operand(0).then("squeeze_dim", [Arg::Rank(dims.len()), Arg::axis(axis)]);
    }
    if let Some(axes) = dropped_axes(from, dims) {
        return Arg::Operand(0).then("squeeze_dims", [Arg::Rank(dims.len()), Arg::List(Arg::ints(&axes))]);
    }
    if let Some(axes) = inserted_axes(from, dims) {
        return Arg::Operand(0).then("unsqueeze_dims", [Arg::Rank(dims.len()), Arg::List(Arg::ints(&axes))]);
    }
    if let Some((start, end)) = flattened_axes(from, dims) {
        let args = [Arg::Rank(dims.len()), Arg::axis(start), Arg::axis(end)];
        return Arg::Operand(0).then("flatten", args);
    }
    if dims.is_empty() {
        // An empty array says no type.
        return Arg::Operand(0).then("squeeze", [Arg::Rank(0)]);
    }
    let name = if has_literal_zero(dims) { "reshape_exact" } else { "reshape" };
    Arg::Operand(0).then(name, [target(dims)])
}

/// Whether all dims are numbers and one is 0, which `reshape` would take for "as it is".
fn has_literal_zero(dims: &[Dim]) -> bool {
    dims.iter().all(|dim| dim.as_constant().is_some()) && dims.iter().any(|dim| dim.is(0))
}

/// New dims; a single one that the other sizes determine is `-1`, so that its symbol need not be known.
fn target(dims: &[Dim]) -> Arg {
    let unknown: Vec<usize> = (0..dims.len()).filter(|&i| dims[i].as_constant().is_none()).collect();
    let others_positive = dims.iter().all(|dim| dim.as_constant().is_none_or(|size| size > 0));
    match unknown.as_slice() {
        [at] if others_positive && dims[*at].as_symbol().is_none() => Arg::Array(
            (0..dims.len())
                .map(|i| if i == *at { Arg::Int(-1) } else { Arg::Int(dims[i].as_constant().unwrap_or(1)) })
                .collect(),
        ),
        _ => Arg::Array(Arg::sizes(dims)),
    }
}

/// The axis of size 1 that `long` has and `short` has not, all others being equal.
fn inserted_axis(short: &[Dim], long: &[Dim]) -> Option<usize> {
    if long.len() != short.len() + 1 {
        return None;
    }
    (0..long.len())
        .find(|&axis| long[axis].is(1) && long[..axis] == short[..axis] && long[axis + 1..] == short[axis..])
}

/// The axes of size 1 that `short` lacks, when `long` has no others that it lacks.
fn lacking_axes(long: &[Dim], short: &[Dim]) -> Option<Vec<usize>> {
    let mut rest = short.iter().peekable();
    let mut lacking = Vec::new();
    for (axis, dim) in long.iter().enumerate() {
        if rest.peek() == Some(&dim) && !(dim.is(1) && long.len() - axis > rest.len()) {
            rest.next();
        } else if dim.is(1) {
            lacking.push(axis);
        } else {
            return None;
        }
    }
    (rest.next().is_none() && !lacking.is_empty()).then_some(lacking)
}

/// Axes of size 1 that are left out, when nothing else happens and they are not at the end, where it is a flattening.
fn dropped_axes(from: &[Dim], to: &[Dim]) -> Option<Vec<usize>> {
    let flattens = |axes: &[usize]| axes.last().is_some_and(|&axis| axis + 1 == from.len()) && !to.is_empty();
    lacking_axes(from, to).filter(|axes| !flattens(axes))
}

/// Axes of size 1 that are put in, when nothing else happens and other sizes would have to be found out to say it otherwise.
fn inserted_axes(from: &[Dim], to: &[Dim]) -> Option<Vec<usize>> {
    if sizes(from).is_some() {
        return None;
    }
    lacking_axes(to, from)
}

/// The axis of the operand that each axis of a reshape's result is, when only axes of size 1 are put in or left out, which
/// needs no sizes.
pub(crate) fn moved_by_ones(from: &[Dim], to: &[Dim]) -> Option<Vec<Option<usize>>> {
    let from_axes =
        |lacking: &[usize]| (0..from.len()).filter(|axis| !lacking.contains(axis)).map(Some).collect();
    if let Some(axis) = inserted_axis(to, from) {
        return Some(from_axes(&[axis]));
    }
    if let Some(axes) = dropped_axes(from, to) {
        return Some(from_axes(&axes));
    }
    let inserted = inserted_axis(from, to).map(|axis| vec![axis]).or_else(|| inserted_axes(from, to))?;
    let mut next = 0..from.len();
    Some((0..to.len()).map(|axis| if inserted.contains(&axis) { None } else { next.next() }).collect())
}

/// The first and last axis that a flattening joins.
fn flattened_axes(from: &[Dim], to: &[Dim]) -> Option<(usize, usize)> {
    let joined = from.len().checked_sub(to.len())?;
    if joined == 0 || to.is_empty() {
        return None;
    }
    (0..to.len()).map(|start| (start, start + joined)).find(|&(start, end)| {
        from[..start] == to[..start]
            && from[end + 1..] == to[start + 1..]
            && Dim::product(&from[start..=end]) == to[start]
    })
}

fn permute(axes: &[usize]) -> Arg {
    let moved: Vec<usize> = (0..axes.len()).filter(|&i| axes[i] != i).collect();
    match moved.as_slice() {
        [] => Arg::Operand(0),
        &[0, 1] if axes.len() == 2 => Arg::Operand(0).then("transpose", []),
        &[a, b] => Arg::Operand(0).then("swap_dims", [Arg::axis(a), Arg::axis(b)]),
        _ => Arg::Operand(0).then("permute", [Arg::Array(Arg::ints(axes))]),
    }
}
