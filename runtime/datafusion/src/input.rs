//! [`Input`]: which arguments of a query's call make which tensor.

mod read;

use crate::dtype::{arrow_type, converts, dtype, item, list_field};
use crate::error::Problem;
use crate::tensors::TensorType;
use arrow_schema::DataType;
use kiln_core::tensor::{DType, Scalar, TensorData};

/// One tensor that a model takes, and the arguments of which it is made.
#[derive(Clone, Debug)]
pub struct Input {
    columns: Vec<String>,
    is_list: bool,
    dims: Option<Vec<usize>>,
    dtype: Option<DType>,
}

impl Input {
    /// A tensor `[rows, features]` of columns of numbers, each a feature, or `[rows]` of a single one. The names are those of the function's parameters:
    /// arguments come in this order, or by name (`score(age => a, height => h)`).
    pub fn columns<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let columns = names.into_iter().map(Into::into).collect();
        Self { columns, is_list: false, dims: None, dtype: None }
    }

    /// A tensor `[rows, n, …]` of a column of lists (`List`, `LargeList`, `FixedSizeList`), nested for more than two dims. All lists of a batch must have the
    /// same lengths.
    pub fn list(name: impl Into<String>) -> Self {
        Self { columns: vec![name.into()], is_list: true, dims: None, dtype: None }
    }

    /// All dims of the tensor but the rows. Lists must be nested like that, or be flat and have as many elements as these dims together. Without it the lists tell
    /// their lengths themselves.
    #[must_use]
    pub fn with_dims(mut self, dims: impl Into<Vec<usize>>) -> Self {
        self.dims = Some(dims.into());
        self
    }

    /// The dtype of the tensor, of the kind that the closure takes; by default that kind's usual one.
    #[must_use]
    pub fn with_dtype(mut self, dtype: impl Into<DType>) -> Self {
        self.dtype = Some(dtype.into());
        self
    }

    /// The input as a tensor of this type, if it can be that.
    pub(crate) fn resolve(self, tensor: TensorType) -> Result<ResolvedInput, Problem> {
        let Self { columns, is_list, dims, dtype } = self;
        let (rank, dtype) = (tensor.rank, dtype.unwrap_or(tensor.dtype));
        let problem = |value: String, rule: String| Problem::Config { field: "input", value, rule };
        let name = columns.join(", ");
        if dtype.kind() != tensor.kind || dtype.is_packed() {
            let rule = format!("the closure takes it as {:?}, and integers have 8 bits or more", tensor.kind);
            return Err(problem(format!("{name} of {dtype}"), rule));
        }
        if let Some(dims) = &dims
            && (!is_list || dims.contains(&0) || dims.len() + 1 != rank)
        {
            let rule = format!(
                "dims are those of lists, at least 1 each, and with the rows as many as the closure's tensor has, which is of rank {rank}"
            );
            return Err(problem(format!("{name} with dims {dims:?}"), rule));
        }
        let fits = match (is_list, rank) {
            (true, rank) => rank >= 2,
            (false, 1) => columns.len() == 1,
            (false, rank) => rank == 2 && !columns.is_empty(),
        };
        if !fits {
            let rule = format!(
                "the closure takes a tensor of rank {rank}: columns of numbers make one of rank 2, a single one also of rank 1, lists the others"
            );
            let what = if is_list { "the lists" } else { "the columns" };
            return Err(problem(format!("{what} {name}"), rule));
        }
        Ok(ResolvedInput { columns, is_list, dims, dtype, rank })
    }
}

/// An input of which all is known but the data.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedInput {
    pub(crate) columns: Vec<String>,
    is_list: bool,
    dims: Option<Vec<usize>>,
    pub(crate) dtype: DType,
    rank: usize,
}

impl ResolvedInput {
    /// The type in which an argument is taken: its own, or what the query is to convert it to.
    pub(crate) fn coerce(&self, column: &str, data_type: &DataType) -> Result<DataType, Problem> {
        let refuse = |rule: String| Problem::ArgumentType {
            column: column.to_owned(),
            data_type: data_type.clone(),
            rule,
        };
        let coerced = match data_type {
            DataType::Dictionary(_, values) => values,
            other => other,
        };
        let coerced = match coerced {
            DataType::Null => self.null_type(),
            decimal if decimal.is_decimal() && self.dtype.is_float() && !self.is_list => DataType::Float64,
            other => other.clone(),
        };
        let (mut element, mut depth) = (&coerced, 0);
        while let Some(inner) = item(element) {
            (element, depth) = (inner, depth + 1);
        }
        self.check_nesting(&coerced, depth).map_err(refuse)?;
        let from = dtype(element)
            .ok_or_else(|| refuse("it must be of numbers; cast it, such as CAST(… AS DOUBLE)".to_owned()))?;
        if converts(from, self.dtype) {
            return Ok(coerced);
        }
        Err(refuse(format!(
            "the model takes {}, which is not made of that by itself; cast it in the query",
            self.dtype
        )))
    }

    /// Whether so many rows are no more than memory can have.
    pub(crate) fn check_size(&self, rows: usize) -> Result<(), Problem> {
        let mut shape = vec![rows];
        shape.extend(self.dims.as_deref().unwrap_or(&[self.columns.len()]));
        if self.dtype.bytes_of(&shape).is_some() {
            return Ok(());
        }
        let value = format!("{} of shape {shape:?}", self.columns.join(", "));
        Err(Problem::Config { field: "input", value, rule: "memory has no room for it".to_owned() })
    }

    /// Whether the dtype holds what is to stand in for nulls, as it is.
    pub(crate) fn check_fill(&self, number: Scalar) -> Result<(), Problem> {
        let converted = match number {
            Scalar::Float(x) => TensorData::from([x]),
            Scalar::Int(x) => TensorData::from([x]),
            Scalar::UInt(x) => TensorData::from([x]),
            Scalar::Bool(x) => TensorData::from([x]),
        };
        if converts(converted.dtype, self.dtype) && converted.fits(self.dtype) {
            return Ok(());
        }
        let rule =
            format!("the input {} is of {}, which does not hold that", self.columns.join(", "), self.dtype);
        Err(Problem::Config { field: "nulls", value: number.to_string(), rule })
    }

    fn check_nesting(&self, data_type: &DataType, depth: usize) -> Result<(), String> {
        if !self.is_list {
            let rule = "this input is made of columns of numbers; lists are declared by `Input::list`";
            return if depth == 0 { Ok(()) } else { Err(rule.to_owned()) };
        }
        let flat = depth == 1 && self.dims.is_some();
        if depth + 1 != self.rank && !flat {
            return Err(format!(
                "the model takes a tensor of rank {}, which lists make that are nested {} deep, or flat ones if `with_dims` says the dims",
                self.rank,
                self.rank - 1
            ));
        }
        let (mut data_type, expected) = (data_type, self.read_dims(depth));
        for place in 0..depth {
            let expected = expected.as_ref().and_then(|dims| dims.get(place)).copied();
            if let DataType::FixedSizeList(_, size) = data_type {
                let size = usize::try_from(*size).unwrap_or(0);
                if size == 0 || expected.is_some_and(|expected| expected != size) {
                    let expected =
                        expected.map_or("at least one".to_owned(), |expected| expected.to_string());
                    return Err(format!("its lists have {size} elements, and the input takes {expected}"));
                }
            }
            data_type = item(data_type).unwrap_or(data_type);
        }
        Ok(())
    }

    /// The declared dims of lists that are nested so deep: flat ones hold all elements of a row.
    fn read_dims(&self, depth: usize) -> Option<Vec<usize>> {
        let dims = self.dims.as_ref()?;
        Some(if depth == 1 { vec![dims.iter().product()] } else { dims.clone() })
    }

    /// The type that a null without one has.
    fn null_type(&self) -> DataType {
        let depth = if self.is_list { self.rank - 1 } else { 0 };
        (0..depth).fold(arrow_type(self.dtype), |inner, _| DataType::List(list_field(inner, true)))
    }
}
