//! Tensors of rows of a batch.

use super::ResolvedInput;
use crate::column::{Misfit, Reason, Source, Target, share};
use crate::dtype::item;
use crate::error::Problem;
use crate::list;
use arrow_array::{Array, ArrayRef};
use kiln_core::tensor::{Bytes, DType, Scalar, TensorData, bf16, f16};
use std::ops::Range;

/// Why an input was not made of its arguments.
#[derive(Debug)]
pub(crate) struct Unread {
    /// The place of the argument among those of the input.
    pub(crate) column: usize,
    /// The row in the batch.
    pub(crate) row: usize,
    /// What is wrong; `None` when nothing tells the dims.
    pub(crate) reason: Option<Reason>,
}

impl Unread {
    pub(crate) fn into_problem(self, input: &ResolvedInput, rows: usize) -> Problem {
        let Self { column, row, reason } = self;
        let column = input.columns.get(column).cloned().unwrap_or_default();
        match reason {
            None => Problem::UnknownDims { column },
            Some(Reason::Null) => Problem::Null { column, row, rows },
            Some(Reason::Number(value)) => Problem::Number { column, row, value, dtype: input.dtype },
            Some(Reason::Length { actual, expected }) => {
                Problem::ListLength { column, row, actual, expected }
            }
            Some(Reason::Type(data_type)) => {
                let rule = "the query was planned with another type".to_owned();
                Problem::ArgumentType { column, data_type, rule }
            }
        }
    }
}

/// What all rows of a batch have in common.
pub(crate) struct Layout {
    /// The dims of the lists, as they are nested.
    lists: Vec<usize>,
    /// The dims of the tensor, without the rows.
    dims: Vec<usize>,
}

impl Layout {
    fn row_len(&self) -> usize {
        self.dims.iter().product()
    }
}

impl ResolvedInput {
    /// The dims of a batch, which has at least one row.
    pub(crate) fn layout(&self, arrays: &[ArrayRef]) -> Result<Layout, Unread> {
        if !self.is_list {
            let dims = if self.rank == 1 { Vec::new() } else { vec![self.columns.len()] };
            return Ok(Layout { lists: Vec::new(), dims });
        }
        let unknown = Unread { column: 0, row: 0, reason: None };
        let Some(array) = arrays.first() else {
            return Err(unknown);
        };
        let (mut data_type, mut depth) = (array.data_type(), 0);
        while let Some(inner) = item(data_type) {
            (data_type, depth) = (inner, depth + 1);
        }
        let lists = match self.read_dims(depth) {
            Some(dims) => dims,
            None => list::infer_dims(array, 0..array.len()).ok_or(unknown)?,
        };
        let dims = self.dims.clone().unwrap_or_else(|| lists.clone());
        Ok(Layout { lists, dims })
    }

    /// Some rows of a batch as a tensor of `size` rows, the last of them repeated.
    pub(crate) fn read(
        &self,
        arrays: &[ArrayRef],
        layout: &Layout,
        rows: Range<usize>,
        size: usize,
        fill: Option<Scalar>,
    ) -> Result<TensorData, Unread> {
        let bytes = match self.share(arrays, layout, &rows, size) {
            Some(bytes) => bytes,
            None => self.write(arrays, layout, rows, size, fill)?,
        };
        let mut shape = vec![size];
        shape.extend(&layout.dims);
        Ok(TensorData { bytes, shape, dtype: self.dtype })
    }

    /// The memory of the rows, where they lie as the tensor has them.
    fn share(&self, arrays: &[ArrayRef], layout: &Layout, rows: &Range<usize>, size: usize) -> Option<Bytes> {
        match arrays {
            [array] if size == rows.len() => {
                let (elements, range) = list::locate(array, rows.clone(), &layout.lists)?;
                share(&elements, &range, self.dtype)
            }
            _ => None,
        }
    }

    fn write(
        &self,
        arrays: &[ArrayRef],
        layout: &Layout,
        rows: Range<usize>,
        size: usize,
        fill: Option<Scalar>,
    ) -> Result<Bytes, Unread> {
        let rows = Rows { arrays, layout, rows, size, fill };
        match self.dtype {
            DType::F64 => rows.write::<f64>(),
            DType::F32 => rows.write::<f32>(),
            DType::F16 => rows.write::<f16>(),
            DType::BF16 => rows.write::<bf16>(),
            DType::I64 => rows.write::<i64>(),
            DType::I32 => rows.write::<i32>(),
            DType::I16 => rows.write::<i16>(),
            DType::I8 | DType::I4 => rows.write::<i8>(),
            DType::U64 => rows.write::<u64>(),
            DType::U32 => rows.write::<u32>(),
            DType::U16 => rows.write::<u16>(),
            DType::U8 | DType::U4 => rows.write::<u8>(),
            DType::Bool => rows.write::<bool>(),
        }
    }
}

/// Rows that are copied.
struct Rows<'a> {
    arrays: &'a [ArrayRef],
    layout: &'a Layout,
    rows: Range<usize>,
    size: usize,
    fill: Option<Scalar>,
}

impl Rows<'_> {
    fn write<T: Target>(self) -> Result<Bytes, Unread> {
        let Self { arrays, layout, rows, size, fill } = self;
        let (row_len, null) = (layout.row_len(), fill.map(T::from_scalar));
        let mut elements = vec![T::default(); size * row_len];
        let written = rows.len() * row_len;
        if layout.lists.is_empty() {
            for (column, array) in arrays.iter().enumerate() {
                let unread = |Misfit { index, reason }| Unread {
                    column,
                    row: rows.start + index,
                    reason: Some(reason),
                };
                let source = Source { array, range: rows.clone(), null };
                let places = elements.get_mut(column..written).unwrap_or_default();
                T::write(source, places, row_len).map_err(unread)?;
            }
        } else if let ([array], Some(places)) = (arrays, elements.get_mut(..written)) {
            let unread = |Misfit { index, reason }| Unread {
                column: 0,
                row: rows.start + index / row_len.max(1),
                reason: Some(reason),
            };
            list::write(array, rows.clone(), &layout.lists, null, places).map_err(unread)?;
        }
        for row in rows.len().max(1)..size {
            elements.copy_within((row - 1) * row_len..row * row_len, row * row_len);
        }
        Ok(Bytes::from_elements(elements))
    }
}
