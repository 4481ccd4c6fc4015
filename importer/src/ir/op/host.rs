//! Shape arithmetic: the contents of small integer tensors, as dims.

use crate::data::{Strided, elements, is_long_and_empty};
use crate::ir::builder::MAX_HOST_ELEMENTS;
use crate::ir::{Dim, Graph, ValueId};
use kiln_types::DType;

/// An operand whose contents are known.
pub(super) struct Contents<'a> {
    pub(super) dims: Vec<usize>,
    pub(super) values: &'a [Dim],
    pub(super) dtype: DType,
}

/// Operands as shape arithmetic sees them.
pub(super) struct Host<'a> {
    pub(super) graph: &'a Graph,
    pub(super) inputs: &'a [Option<ValueId>],
}

impl<'a> Host<'a> {
    /// The `n`-th operand.
    pub(super) fn operand(&self, n: usize) -> Option<Contents<'a>> {
        let value = self.graph.value((*self.inputs.get(n)?)?);
        let (values, dims) = (value.host.as_deref()?, value.ty.shape()?);
        let fits = elements(&dims) == values.len() && !is_long_and_empty(&dims);
        fits.then_some(Contents { dims, values, dtype: value.ty.dtype })
    }

    /// The elements of a view of the first operand.
    pub(super) fn view(&self, make: impl FnOnce(Strided) -> Option<Strided>) -> Option<Vec<Dim>> {
        let x = self.operand(0)?;
        let view = make(Strided::new(&x.dims))?;
        (view.len() <= MAX_HOST_ELEMENTS).then(|| view.gather(x.values))
    }

    /// Applies `f` to broadcast operands.
    pub(super) fn elementwise(
        &self,
        operands: &[usize],
        f: impl Fn(&[&Dim]) -> Option<Dim>,
    ) -> Option<Vec<Dim>> {
        let operands: Vec<Contents<'a>> = operands.iter().map(|&n| self.operand(n)).collect::<Option<_>>()?;
        let mut dims: Vec<usize> = Vec::new();
        for operand in &operands {
            dims = kiln_types::Shape::from(dims).broadcast(&operand.dims.as_slice().into())?.into();
        }
        let mut columns: Vec<Vec<&Dim>> = Vec::new();
        for operand in &operands {
            let view = Strided::new(&operand.dims).expand(&dims)?;
            if view.len() > MAX_HOST_ELEMENTS {
                return None;
            }
            let mut column = Vec::with_capacity(view.len());
            view.for_each(|at| column.push(&operand.values[at]));
            columns.push(column);
        }
        let count = columns.first()?.len();
        (0..count).map(|i| f(&columns.iter().map(|column| column[i]).collect::<Vec<_>>())).collect()
    }
}

/// A known index, counted from the end when negative; `None` outside.
pub(super) fn position(index: &Dim, size: usize) -> Option<usize> {
    let index = index.as_constant()?;
    let size_i = i64::try_from(size).ok()?;
    let index = if index < 0 { index.checked_add(size_i)? } else { index };
    usize::try_from(index).ok().filter(|&i| i < size)
}
/// The result of arithmetic; `None` when a number in it came to the end of its range: there tensors wrap around, and dims
/// do not.
pub(super) fn exact(dim: Dim) -> Option<Dim> {
    (!dim.is_saturated()).then_some(dim)
}

/// Whether a dtype holds a value; what is not known counts as a size, which all but the smallest dtypes hold.
pub(super) fn fits(dtype: DType, value: &Dim) -> bool {
    let Some(value) = value.as_constant() else {
        return dtype.size() > 2;
    };
    match dtype.integers() {
        Some((least, greatest)) => (least..=greatest).contains(&i128::from(value)),
        None => dtype.is_bool() && (value == 0 || value == 1),
    }
}
