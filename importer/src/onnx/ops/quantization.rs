//! How integers stand for numbers, in operators that take scales and zero points beside their operands.

use super::super::lowering::Formula;
use super::prelude::*;
use super::quantize_linear::{measured_number, measured_zero, range_of};

/// Integers `q` of a dtype stand for `(q - zero) · scale`, all of a tensor likewise.
#[derive(Clone, Copy)]
pub(super) struct Quantization {
    /// One number, in f32.
    pub(super) scale: ValueId,
    /// One number, in f32; none where it is 0.
    zero: Option<ValueId>,
    dtype: DType,
    /// The least integer and the greatest.
    range: [i64; 2],
    /// Scale and zero point, where the graph alone tells them.
    given: Option<[f64; 2]>,
    /// Both as what was measured, `[1]` each, where the file has them.
    measured: Option<[ValueId; 2]>,
}

impl Quantization {
    /// From the inputs of these names, for a tensor of `dtype`.
    pub(super) fn read(
        args: &Args,
        to: &mut Lowering<'_, '_>,
        dtype: DType,
        [scale, zero]: [&str; 2],
    ) -> RuleResult<Self> {
        let scale = (scale, args.value(scale)?);
        let zero = args.optional(zero)?.map(|value| (zero, value));
        Self::new(to, dtype, scale, zero)
    }

    /// From values, which have names for errors.
    pub(super) fn new(
        to: &mut Lowering<'_, '_>,
        dtype: DType,
        (scale_name, scale): (&str, ValueId),
        zero: Option<(&str, ValueId)>,
    ) -> RuleResult<Self> {
        // Of these f32 holds every difference.
        let narrow = matches!(dtype, DType::U8 | DType::I8 | DType::U16 | DType::I16);
        let range = range_of(dtype).filter(|_| narrow);
        let unsupported = || RuleError::Unsupported { what: format!("{dtype} under a scale") };
        let range = range.ok_or_else(unsupported)?;
        let actual = to.dtype(scale);
        if !actual.is_float() {
            let expected = "expected a float".to_owned();
            return Err(RuleError::DType { input: scale_name.to_owned(), actual, expected });
        }
        let mut given = given_number(to, scale).map(|scale| [scale, 0.0]);
        let is_f32 = actual == DType::F32;
        let measured_scale = measured_number(to, scale).filter(|_| is_f32);
        single(to, scale_name, scale)?;
        let scale = single(to, scale_name, measured_scale.unwrap_or(scale))?;
        let scale = to.cast(scale, DType::F32)?;
        let Some((name, zero)) = zero else {
            let measured = measured_scale.map(|scale| [scale, measured_zero(to, dtype)]);
            return Ok(Self { scale, zero: None, dtype, range, given, measured });
        };
        if to.dtype(zero) != dtype {
            let expected = format!("expected {dtype}, that of what it shifts");
            return Err(RuleError::DType { input: name.to_owned(), actual: to.dtype(zero), expected });
        }
        let number = given_number(to, zero);
        given = given.zip(number).map(|([scale, _], zero)| [scale, zero]);
        single(to, name, zero)?;
        let measured_zero = measured_number(to, zero);
        let zero = single(to, name, measured_zero.unwrap_or(zero))?;
        let zero = to.cast(zero, DType::F32)?;
        let measured = measured_scale.zip(measured_zero).map(|(scale, zero)| [scale, zero]);
        Ok(Self { scale, zero: Some(zero).filter(|_| number != Some(0.0)), dtype, range, given, measured })
    }

    /// The zero point, `[1]` of its dtype.
    pub(super) fn zero_point(&self, to: &mut Lowering<'_, '_>) -> RuleResult<ValueId> {
        match (self.measured, self.zero) {
            (Some([_, zero]), _) => Ok(zero),
            (None, None) => Ok(measured_zero(to, self.dtype)),
            (None, Some(zero)) => {
                let zero = to.cast(zero, self.dtype)?;
                to.reshape(zero, vec![Dim::constant(1)])
            }
        }
    }

    /// The numbers that integers stand for: [`Quantization::numbers`] as one operation where scale and zero point were measured.
    pub(super) fn dequantized(&self, to: &mut Lowering<'_, '_>, q: ValueId) -> RuleResult<ValueId> {
        match self.measured.filter(|_| to.rank(q) > 0) {
            Some([scale, zero]) => to.add(Op::Dequantize, &[q, scale, zero]),
            None => to.formula(|f| self.numbers(f, q)),
        }
    }

    /// The integers that stand for numbers: [`Quantization::integers`], likewise.
    pub(super) fn quantized(&self, to: &mut Lowering<'_, '_>, numbers: ValueId) -> RuleResult<ValueId> {
        match self.measured.filter(|_| to.rank(numbers) > 0) {
            Some([scale, zero]) => to.add(Op::Quantize, &[numbers, scale, zero]),
            None => to.formula(|f| self.integers(f, f.value(numbers))),
        }
    }

    /// The integers that stand for numbers that were divided by the scale: [`Quantization::shifted_after`], likewise.
    pub(super) fn quantized_steps(&self, to: &mut Lowering<'_, '_>, steps: ValueId) -> RuleResult<ValueId> {
        match self.measured.filter(|_| to.rank(steps) > 0) {
            Some([_, zero]) => to.add_optional(Op::Quantize, &[Some(steps), None, Some(zero)]),
            None => to.formula(|f| self.shifted_after(f, f.value(steps))),
        }
    }

    /// `q - zero` in f32, which holds it exactly.
    pub(super) fn centered<'f>(&self, f: Formula<'f>, q: ValueId) -> Value<'f> {
        let wide = f.value(q).cast(DType::F32);
        self.zero(f).map_or(wide, |zero| wide - zero)
    }

    /// The numbers that integers stand for.
    pub(super) fn numbers<'f>(&self, f: Formula<'f>, q: ValueId) -> Value<'f> {
        self.centered(f, q) * f.value(self.scale)
    }

    /// The integers that stand for numbers, as `QuantizeLinear` finds them.
    pub(super) fn integers<'f>(&self, f: Formula<'f>, numbers: Value<'f>) -> Value<'f> {
        self.shifted_after(f, numbers / f.value(self.scale))
    }

    /// `round(steps) + zero`, of numbers that were divided by the scale.
    pub(super) fn shifted_after<'f>(&self, f: Formula<'f>, steps: Value<'f>) -> Value<'f> {
        let steps = steps.round();
        self.saturated(self.zero(f).map_or(steps, |zero| steps + zero))
    }

    /// `round(steps + zero)`, of numbers that were divided by the scale. Halves round to even, so that where the zero point is
    /// odd this is another integer than `round(steps) + zero`.
    pub(super) fn shifted_before<'f>(&self, f: Formula<'f>, steps: Value<'f>) -> Value<'f> {
        self.saturated(self.zero(f).map_or(steps, |zero| steps + zero).round())
    }

    /// Whole numbers as integers.
    pub(super) fn saturated<'f>(&self, whole: Value<'f>) -> Value<'f> {
        let [low, high] = self.range;
        whole.clamp(low as f64, high as f64).cast(self.dtype)
    }

    /// The zero point, unless it is known to be 0.
    pub(super) fn zero<'f>(&self, f: Formula<'f>) -> Option<Value<'f>> {
        self.zero.map(|zero| f.value(zero))
    }

    /// The integers that stand under another quantization for what `q` stands for under this one.
    pub(super) fn converted(
        &self,
        to: &mut Lowering<'_, '_>,
        q: ValueId,
        other: &Self,
    ) -> RuleResult<ValueId> {
        if self.equals(other) {
            return Ok(q);
        }
        let numbers = self.dequantized(to, q)?;
        other.quantized(to, numbers)
    }

    /// Whether both are known to be the same.
    fn equals(&self, other: &Self) -> bool {
        let values = self.scale == other.scale && self.zero == other.zero;
        self.dtype == other.dtype && (values || (self.given.is_some() && self.given == other.given))
    }
}

/// The number that a constant holds, unless it is a parameter, which may be another in a checkpoint.
fn given_number(to: &Lowering<'_, '_>, value: ValueId) -> Option<f64> {
    let constant = to.builder.graph.constant(value)?;
    let number = to.known_number(value).filter(|_| constant.provenance.is_none());
    number.map(Scalar::to_f64)
}

/// One number, without axes.
pub(super) fn single(to: &mut Lowering<'_, '_>, name: &str, value: ValueId) -> RuleResult<ValueId> {
    let ty = to.ty(value);
    if !ty.num_elements().is(1) {
        return Err(invalid(name, format!("is {ty}, must be one number")));
    }
    to.reshape(value, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Graph;
    use crate::onnx::lowering::Model;
    use crate::onnx::proto::ModelProto;
    use crate::onnx::source::Folder;

    #[test]
    fn integers_that_stand_for_the_same_stay_as_they_are() {
        let (proto, folder) = (ModelProto::default(), Folder::none());
        let model = Model::new(&proto, &folder).unwrap();
        let mut graph = Graph::default();
        let mut to = Lowering::new(&mut graph, &model, false);
        let q = to.fill(vec![Dim::constant(3)], 7, DType::U8).unwrap();
        let quantization = |to: &mut Lowering<'_, '_>, scale: f64, zero: Option<i64>| {
            let scale = to.scalar(scale, DType::F32);
            let zero = zero.map(|zero| ("zero", to.scalar(zero, DType::U8)));
            Quantization::new(to, DType::U8, ("scale", scale), zero).unwrap()
        };
        let [a, same] = [(); 2].map(|()| quantization(&mut to, 0.5, Some(3)));
        assert_eq!(a.converted(&mut to, q, &same).unwrap(), q);
        let others = [(0.25, Some(3)), (0.5, Some(4)), (0.5, None)];
        for (scale, zero) in others {
            let other = quantization(&mut to, scale, zero);
            assert_ne!(a.converted(&mut to, q, &other).unwrap(), q, "{scale} {zero:?}");
        }
        let [none, zero] = [None, Some(0)].map(|zero| quantization(&mut to, 0.5, zero));
        assert_eq!(none.converted(&mut to, q, &zero).unwrap(), q);
    }
}
