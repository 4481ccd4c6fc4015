//! [`ScoringFunction`]: a model as DataFusion's planner and executor see it.

use crate::error::{Problem, ScoringError};
use crate::scoring::Scoring;
use arrow_array::Array;
use arrow_schema::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A scalar function that scores rows.
pub(crate) struct ScoringFunction {
    name: String,
    signature: Signature,
    scoring: Arc<Scoring>,
}

impl ScoringFunction {
    pub(crate) fn new(name: String, scoring: Scoring) -> std::result::Result<Self, Problem> {
        let columns: Vec<String> = scoring.columns().cloned().collect();
        // Types are checked by `coerce_types`, whose errors say more than a list of signatures.
        let signature = Signature::user_defined(Volatility::Immutable).with_parameter_names(columns);
        let signature = signature.map_err(|error| Problem::Internal(error.to_string()))?;
        Ok(Self { name, signature, scoring: Arc::new(scoring) })
    }

    fn error(&self, problem: Problem) -> ScoringError {
        ScoringError { function: self.name.clone(), problem }
    }
}

impl ScalarUDFImpl for ScoringFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(self.scoring.coerce(types).map_err(|problem| self.error(problem))?)
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(self.scoring.data_type())
    }

    fn return_field_from_args(&self, _args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(&self.name, self.scoring.data_type(), self.scoring.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        // A call of literals alone is scored once, when the query is planned.
        let is_scalar = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let arguments = args.args.iter().map(|value| value.to_array(rows)).collect::<Result<Vec<_>>>()?;
        // Plans that were not made by DataFusion's planner may have other types.
        let types: Vec<_> = arguments.iter().map(|array| array.data_type().clone()).collect();
        let coerced = self.scoring.coerce(&types).map_err(|problem| self.error(problem))?;
        for ((column, from), to) in self.scoring.columns().zip(types).zip(coerced) {
            if from != to {
                let rule =
                    format!("the function takes it as {to}, to which the planner should have converted it");
                let problem = Problem::ArgumentType { column: column.clone(), data_type: from, rule };
                return Err(self.error(problem).into());
            }
        }
        let scores = self.scoring.score(&arguments, rows).map_err(|problem| self.error(problem))?;
        if is_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&scores, 0)?));
        }
        Ok(ColumnarValue::Array(scores))
    }
}

impl fmt::Debug for ScoringFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoringFunction")
            .field("name", &self.name)
            .field("inputs", &self.scoring.inputs)
            .field("outputs", &self.scoring.outputs)
            .finish_non_exhaustive()
    }
}

/// Functions are equal that are one: two closures may differ in what they captured.
impl PartialEq for ScoringFunction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.scoring, &other.scoring)
    }
}

impl Eq for ScoringFunction {}

impl Hash for ScoringFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
