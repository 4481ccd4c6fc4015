//! [`Output`]: which column is made of a tensor that a model yields.

use crate::dtype::{arrow_type, list_field};
use crate::error::Problem;
use crate::tensors::TensorType;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, BooleanArray, FixedSizeListArray, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use kiln_core::tensor::{Bytes, DType, TensorData};
use std::sync::Arc;

/// One tensor that a model yields, and the column that it becomes. Of several outputs a struct is made, whose fields have their names.
#[derive(Clone, Debug)]
pub struct Output {
    name: String,
    dims: Vec<usize>,
    dtype: Option<DType>,
}

impl Output {
    /// A number a row, of a tensor `[rows]` or `[rows, 1]`.
    pub fn number(name: impl Into<String>) -> Self {
        Self::list(name, [])
    }

    /// A list a row (`FixedSizeList`), nested for several dims, of a tensor `[rows, dims…]`.
    pub fn list(name: impl Into<String>, dims: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), dims: dims.into(), dtype: None }
    }

    /// The dtype of the column, of the kind that the closure yields; by default that kind's usual one. bf16 is a column of `Float32`.
    #[must_use]
    pub fn with_dtype(mut self, dtype: impl Into<DType>) -> Self {
        self.dtype = Some(dtype.into());
        self
    }

    /// The output as a tensor of this type, if it can be that.
    pub(crate) fn resolve(self, tensor: TensorType) -> Result<ResolvedOutput, Problem> {
        let Self { name, dims, dtype } = self;
        let dtype = dtype.unwrap_or(tensor.dtype);
        let problem = |value: String, rule: String| Problem::Config { field: "output", value, rule };
        if dtype.kind() != tensor.kind || dtype.is_packed() {
            let rule = format!("the closure yields {:?}, and integers have 8 bits or more", tensor.kind);
            return Err(problem(format!("{name} of {dtype}"), rule));
        }
        let fits = match dims.len() {
            0 => tensor.rank == 1 || tensor.rank == 2,
            dims => tensor.rank == dims + 1,
        };
        if !fits {
            let rule = format!(
                "the closure yields a tensor of rank {}: a number a row is of rank 1 or 2, a list of as many dims as it has, and the rows",
                tensor.rank
            );
            return Err(problem(format!("{name} with dims {dims:?}"), rule));
        }
        let sizes = dims.iter().map(|&dim| i32::try_from(dim).ok().filter(|&size| size > 0));
        let sizes = sizes.collect::<Option<Vec<_>>>().filter(|_| dtype.bytes_of(&dims).is_some());
        let Some(sizes) = sizes else {
            let rule = "dims are from 1 to 2^31 - 1, and memory has room for a row".to_owned();
            return Err(problem(format!("{name} with dims {dims:?}"), rule));
        };
        let dtype = if dtype == DType::BF16 { DType::F32 } else { dtype };
        Ok(ResolvedOutput { name, dims, sizes, dtype })
    }
}

/// An output of which all is known but the data.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedOutput {
    pub(crate) name: String,
    dims: Vec<usize>,
    /// The dims, as Arrow counts.
    sizes: Vec<i32>,
    dtype: DType,
}

impl ResolvedOutput {
    pub(crate) fn data_type(&self) -> DataType {
        self.sizes.iter().rev().fold(arrow_type(self.dtype), |inner, &size| {
            DataType::FixedSizeList(list_field(inner, false), size)
        })
    }

    fn row_len(&self) -> usize {
        self.dims.iter().product()
    }

    fn row_bytes(&self) -> usize {
        self.row_len() * self.dtype.size()
    }

    /// Adds the first `rows` rows of what the model made of `size` rows.
    pub(crate) fn append(
        &self,
        column: &mut MutableBuffer,
        data: TensorData,
        rows: usize,
        size: usize,
    ) -> Result<(), Problem> {
        let mut expected = vec![size];
        expected.extend(&self.dims);
        let is_column = self.dims.is_empty() && data.shape == [size, 1];
        if data.shape != expected && !is_column {
            let is_list = self.dims.is_empty() && data.shape.first() == Some(&size);
            let hint = if is_list { "; lists are declared by `Output::list`" } else { "" };
            return Err(Problem::OutputShape {
                output: self.name.clone(),
                actual: data.shape,
                expected,
                hint,
            });
        }
        if !data.fits(self.dtype) {
            let value = misfit(&data, self.dtype).unwrap_or_default();
            return Err(Problem::OutputNumber { output: self.name.clone(), value, dtype: self.dtype });
        }
        let data = data.convert_dtype(self.dtype);
        column.extend_from_slice(data.as_bytes().get(..rows * self.row_bytes()).unwrap_or_default());
        Ok(())
    }

    /// The column of all rows; of those that are not valid nothing was added.
    pub(crate) fn finish(
        &self,
        column: MutableBuffer,
        rows: usize,
        validity: Option<&NullBuffer>,
    ) -> Result<ArrayRef, Problem> {
        let buffer = match validity {
            Some(validity) => spread(&column, validity, self.row_bytes()),
            None => column.into(),
        };
        // Of lists, null is a whole list.
        let nulls = |depth: usize| validity.filter(|_| depth == 0).cloned();
        let elements = rows * self.row_len();
        if buffer.len() != elements * self.dtype.size() {
            return Err(Problem::Internal(format!("{} bytes for {elements} elements", buffer.len())));
        }
        let mut array = numbers(buffer, elements, self.dtype, nulls(self.sizes.len()));
        for (depth, &size) in self.sizes.iter().enumerate().rev() {
            let field = list_field(array_type(&array), false);
            let lists = FixedSizeListArray::try_new(field, size, array, nulls(depth));
            array = Arc::new(lists.map_err(|error| Problem::Internal(error.to_string()))?);
        }
        Ok(array)
    }
}

/// The first number that a dtype does not hold.
fn misfit(data: &TensorData, dtype: DType) -> Option<String> {
    let bytes = data.bytes.chunks_exact(data.dtype.size());
    let mut numbers = bytes.map(|bytes| TensorData {
        bytes: Bytes::from_vec(bytes.to_vec()),
        shape: vec![1],
        dtype: data.dtype,
    });
    numbers.find(|number| !number.fits(dtype))?.scalars().next().map(|number| number.to_string())
}

fn array_type(array: &ArrayRef) -> DataType {
    array.data_type().clone()
}

/// Rows at the places of those that are valid, zeros at the others.
fn spread(column: &MutableBuffer, validity: &NullBuffer, row_bytes: usize) -> Buffer {
    let mut all = MutableBuffer::from_len_zeroed(validity.len() * row_bytes);
    let places = all.chunks_exact_mut(row_bytes).zip(validity.iter()).filter(|(_, valid)| *valid);
    for ((place, _), row) in places.zip(column.chunks_exact(row_bytes)) {
        place.copy_from_slice(row);
    }
    all.into()
}

/// An array over as many elements as the buffer has.
fn numbers(buffer: Buffer, len: usize, dtype: DType, nulls: Option<NullBuffer>) -> ArrayRef {
    fn array<T: ArrowPrimitiveType>(buffer: Buffer, len: usize, nulls: Option<NullBuffer>) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::new(buffer, 0, len), nulls))
    }
    match dtype {
        DType::F64 => array::<Float64Type>(buffer, len, nulls),
        DType::F32 | DType::BF16 => array::<Float32Type>(buffer, len, nulls),
        DType::F16 => array::<Float16Type>(buffer, len, nulls),
        DType::I64 => array::<Int64Type>(buffer, len, nulls),
        DType::I32 => array::<Int32Type>(buffer, len, nulls),
        DType::I16 => array::<Int16Type>(buffer, len, nulls),
        DType::I8 | DType::I4 => array::<Int8Type>(buffer, len, nulls),
        DType::U64 => array::<UInt64Type>(buffer, len, nulls),
        DType::U32 => array::<UInt32Type>(buffer, len, nulls),
        DType::U16 => array::<UInt16Type>(buffer, len, nulls),
        DType::U8 | DType::U4 => array::<UInt8Type>(buffer, len, nulls),
        DType::Bool => {
            let bits = buffer.iter().map(|&byte| byte != 0).collect::<BooleanBuffer>();
            Arc::new(BooleanArray::new(bits, nulls))
        }
    }
}
