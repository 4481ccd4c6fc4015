//! Numbers that are made of sizes by way of floats: a size times 1.5, half a size, the scale from one size to another.

use super::{Dim, Graph, Op, ValueId, known};
use crate::data::Elements;
use kiln_types::{BinaryOp, DType, UnaryOp};

/// Values that are looked at for one number.
const MOST_VALUES: usize = 64;

/// Elements of a tensor that tells sizes.
const MOST_ELEMENTS: usize = 64;

/// The smallest part that is told from a whole.
const MOST_PARTS: i64 = 1 << 20;

/// The smallest part of which floats tell for sure whether something is below or above a whole, with sizes that there are.
const MOST_SURE_PARTS: i64 = 1 << 6;

/// An integer over a positive one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quotient {
    /// What is divided.
    pub(crate) dividend: Dim,
    /// By what.
    pub(crate) divisor: Dim,
}

/// The elements of a value, of one axis at most, that is made of sizes and numbers.
pub(crate) fn quotients(graph: &Graph, value: ValueId) -> Option<Vec<Quotient>> {
    of_value(graph, value, &mut { MOST_VALUES })
}

fn of_value(graph: &Graph, value: ValueId, budget: &mut usize) -> Option<Vec<Quotient>> {
    *budget = budget.checked_sub(1)?;
    let ty = graph.ty(value);
    let count = ty.num_elements().as_size().filter(|&count| count <= MOST_ELEMENTS && ty.rank() <= 1)?;
    if let Some(sizes) = &graph.value(value).host {
        return Some(sizes.iter().cloned().map(Quotient::whole).collect());
    }
    if let Some(data) = known(graph, value) {
        let numbers = Elements::load(&data).floats();
        return numbers.into_iter().map(|number| Quotient::of_number(number, data.dtype)).collect();
    }
    let is_float = matches!(ty.dtype, DType::F32 | DType::F64);
    let node = graph.node(graph.producer(value)?);
    let mut operand = |n: usize| of_value(graph, (*node.inputs.get(n)?)?, budget);
    let results: Vec<Quotient> = match &node.op {
        Op::Reshape(_) => operand(0)?,
        Op::Cast(cast) if cast.to.is_float() && is_float => operand(0)?,
        Op::Unary(UnaryOp::Floor) => operand(0)?.iter().map(Quotient::floor).collect::<Option<_>>()?,
        Op::Unary(UnaryOp::Ceil) => operand(0)?.iter().map(Quotient::ceil).collect::<Option<_>>()?,
        Op::Binary(op) if is_float => elementwise(graph, *op, &operand(0)?, &operand(1)?)?,
        Op::Concat(_) => {
            let parts: Option<Vec<_>> = (0..node.inputs.len()).map(operand).collect();
            parts?.concat()
        }
        Op::Slice(slice) => {
            let [range] = slice.ranges.as_slice() else { return None };
            let (start, end) = (range.start.as_size()?, range.end.as_size()?);
            operand(0)?.get(start..end).filter(|_| range.step == 1)?.to_vec()
        }
        _ => return None,
    };
    (results.len() == count).then_some(results)
}

fn elementwise(graph: &Graph, op: BinaryOp, a: &[Quotient], b: &[Quotient]) -> Option<Vec<Quotient>> {
    let apply = |(a, b): (&Quotient, &Quotient)| match op {
        BinaryOp::Add => a.plus(b),
        BinaryOp::Sub => a.plus(&b.negated()),
        BinaryOp::Mul => a.times(b),
        BinaryOp::Div => a.over(graph, b),
        _ => None,
    };
    match (a, b) {
        (a, b) if a.len() == b.len() => a.iter().zip(b).map(apply).collect(),
        (a, [b]) => a.iter().map(|a| apply((a, b))).collect(),
        ([a], b) => b.iter().map(|b| apply((a, b))).collect(),
        _ => None,
    }
}

impl Quotient {
    fn whole(dividend: Dim) -> Self {
        Self { dividend, divisor: Dim::constant(1) }
    }

    /// A number that is a fraction of few parts, or that is the nearest float to one.
    fn of_number(number: f64, dtype: DType) -> Option<Self> {
        // Beyond this, floats have no fractions, and counts no meaning.
        const MOST: f64 = (1u64 << 52) as f64;
        let over = |parts: i64| {
            let dividend = (number * parts as f64).round();
            let of = Self { dividend: Dim::constant(dividend as i64), divisor: Dim::constant(parts) };
            (dividend.abs() < MOST).then_some((of, dividend / parts as f64))
        };
        let mut powers = (0..=MOST_PARTS.ilog2()).map(|power| 1i64 << power).filter_map(over);
        if let Some((of, _)) = powers.find(|(_, value)| *value == number) {
            return Some(of);
        }
        // So near that a product with a size which would be whole rounds to it: nearer than half of what f32 are apart.
        let near = number.abs() * f64::from(f32::EPSILON) / 4.0;
        let mut fractions = (3..=MOST_SURE_PARTS).filter_map(over);
        let found = fractions.find(|(_, value)| dtype == DType::F32 && (value - number).abs() < near);
        found.map(|(of, _)| of)
    }

    /// Whether floats hold it exactly, so that what is computed of it is rounded once.
    pub(crate) fn is_exact(&self) -> bool {
        self.divisor.as_constant().is_some_and(|parts| parts > 0 && parts & (parts - 1) == 0)
    }

    fn is_whole(&self) -> bool {
        self.divisor.is(1)
    }

    pub(crate) fn negated(&self) -> Self {
        Self { dividend: -&self.dividend, divisor: self.divisor.clone() }
    }

    pub(crate) fn plus(&self, other: &Self) -> Option<Self> {
        if !self.is_exact() || !other.is_exact() {
            return None;
        }
        let parts = self.divisor.maximum(&other.divisor);
        let over = |of: &Self| &of.dividend * &parts.floor_div(&of.divisor);
        Some(Self { dividend: &over(self) + &over(other), divisor: parts })
    }

    fn times(&self, other: &Self) -> Option<Self> {
        // A fraction that stands in the file, not one that was rounded on the way.
        let is_known = |of: &Self| of.dividend.as_constant().and(of.divisor.as_constant()).is_some();
        let rounds_once = (self.is_exact() && other.is_exact())
            || (self.is_whole() && is_known(other))
            || (other.is_whole() && is_known(self));
        let product =
            Self { dividend: &self.dividend * &other.dividend, divisor: &self.divisor * &other.divisor };
        let parts = product.divisor.as_constant().is_none_or(|parts| parts <= MOST_PARTS);
        Some(product).filter(|_| rounds_once && parts)
    }

    fn over(&self, graph: &Graph, other: &Self) -> Option<Self> {
        let is_positive = graph.least(&other.dividend, 1).is_some_and(|least| least > 0);
        if !is_positive || !self.is_exact() || !other.is_exact() {
            return None;
        }
        let (dividend, divisor) = (&self.dividend * &other.divisor, &self.divisor * &other.dividend);
        // What is a multiple is one.
        match dividend.modulo(&divisor).is(0) {
            true => Some(Self::whole(dividend.floor_div(&divisor))),
            false => Some(Self { dividend, divisor }),
        }
    }

    /// Whether floats that it was computed in round to the same whole number: of a part of a size, or of a size over another.
    fn is_sure(&self) -> bool {
        self.divisor.as_constant().is_none_or(|parts| parts <= MOST_SURE_PARTS)
    }

    /// The greatest whole number that is no more.
    pub(crate) fn floor(&self) -> Option<Self> {
        self.is_sure().then(|| Self::whole(self.dividend.floor_div(&self.divisor)))
    }

    /// The least whole number that is no less.
    pub(crate) fn ceil(&self) -> Option<Self> {
        let rest = &self.divisor - &Dim::constant(1);
        let whole = match self.divisor.as_constant() {
            // As it is written for sizes, none of which is negative.
            Some(_) => (&self.dividend + &rest).floor_div(&self.divisor),
            None => self.dividend.ceil_div(&self.divisor),
        };
        self.is_sure().then(|| Self::whole(whole))
    }

    /// The integer that a cast makes of it, of what is not negative.
    pub(crate) fn truncated(&self, graph: &Graph) -> Option<Dim> {
        if self.is_whole() {
            return Some(self.dividend.clone());
        }
        let is_negative = graph.least(&self.dividend, 0).is_none_or(|least| least < 0);
        self.floor().filter(|_| !is_negative).map(|whole| whole.dividend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Builder, Cast, RuleResult, TensorType};
    use kiln_types::TensorData;

    type Made = fn(&mut Builder<'_>, ValueId, ValueId) -> RuleResult<ValueId>;

    fn number(b: &mut Builder<'_>, number: f32) -> ValueId {
        b.constant(TensorData::new(vec![number], []))
    }

    fn binary(b: &mut Builder<'_>, op: BinaryOp, x: ValueId, y: ValueId) -> RuleResult<ValueId> {
        b.add(Op::Binary(op), &[x, y])
    }

    fn integer(b: &mut Builder<'_>, x: ValueId) -> RuleResult<ValueId> {
        b.add(Op::Cast(Cast { to: DType::I64 }), &[x])
    }

    /// What an integer is that was made of two sizes, `h` and `w`, in floats.
    fn found(made: Made) -> Option<String> {
        let mut graph = Graph::default();
        let mut b = Builder::new(&mut graph);
        let dims = ["h", "w"].map(Dim::symbol);
        b.input("x", TensorType { dtype: DType::F32, dims: dims.to_vec() });
        let sizes = dims.map(|dim| {
            let size = b.host_tensor(vec![dim], Vec::new()).unwrap();
            b.add(Op::Cast(Cast { to: DType::F32 }), &[size]).unwrap()
        });
        let result = made(&mut b, sizes[0], sizes[1]).unwrap();
        graph.value(result).host.as_ref().map(|host| host[0].to_string())
    }

    #[test]
    fn sizes_go_through_floats() {
        let cases: [(Made, Option<&str>); 10] = [
            (
                |b, h, _| {
                    let factor = number(b, 1.5);
                    let scaled = binary(b, BinaryOp::Mul, h, factor)?;
                    integer(b, scaled)
                },
                Some("(3 * h) / 2"),
            ),
            (
                |b, h, _| {
                    let two = number(b, 2.0);
                    let half = binary(b, BinaryOp::Div, h, two)?;
                    let whole = b.add(Op::Unary(UnaryOp::Ceil), &[half])?;
                    integer(b, whole)
                },
                Some("(h + 1) / 2"),
            ),
            (
                |b, h, w| {
                    let ratio = binary(b, BinaryOp::Div, h, w)?;
                    integer(b, ratio)
                },
                Some("h / w"),
            ),
            // The nearest float to seven tenths yields 7 for 10; that to three tenths is farther from it.
            (
                |b, h, _| {
                    let factor = number(b, 0.7);
                    let scaled = binary(b, BinaryOp::Mul, h, factor)?;
                    integer(b, scaled)
                },
                Some("(7 * h) / 10"),
            ),
            (
                |b, h, _| {
                    let factor = number(b, 0.3);
                    let scaled = binary(b, BinaryOp::Mul, h, factor)?;
                    integer(b, scaled)
                },
                None,
            ),
            // Rounded twice: what this yields is the device's business.
            (
                |b, h, w| {
                    let ratio = binary(b, BinaryOp::Div, h, w)?;
                    let again = binary(b, BinaryOp::Mul, ratio, w)?;
                    integer(b, again)
                },
                None,
            ),
            (
                |b, h, w| {
                    let two = number(b, 2.0);
                    let step = binary(b, BinaryOp::Div, two, h)?;
                    let last = binary(b, BinaryOp::Mul, step, w)?;
                    integer(b, last)
                },
                None,
            ),
            // Less than nothing is cut off towards zero, a whole number or not.
            (
                |b, h, w| {
                    let difference = binary(b, BinaryOp::Sub, h, w)?;
                    integer(b, difference)
                },
                Some("h - w"),
            ),
            (
                |b, h, w| {
                    let (difference, two) = (binary(b, BinaryOp::Sub, h, w)?, number(b, 2.0));
                    let half = binary(b, BinaryOp::Div, difference, two)?;
                    integer(b, half)
                },
                None,
            ),
            // By what may be nothing.
            (
                |b, h, w| {
                    let (difference, two) = (binary(b, BinaryOp::Sub, h, w)?, number(b, 2.0));
                    let ratio = binary(b, BinaryOp::Div, two, difference)?;
                    integer(b, ratio)
                },
                None,
            ),
        ];
        for (n, (made, expected)) in cases.into_iter().enumerate() {
            assert_eq!(found(made).as_deref(), expected, "case {n}");
        }
    }

    #[test]
    fn what_is_found_is_bounded() {
        let mut graph = Graph::default();
        let mut b = Builder::new(&mut graph);
        let size = b.host_tensor(vec![Dim::symbol("h")], Vec::new()).unwrap();
        let mut sum = b.add(Op::Cast(Cast { to: DType::F32 }), &[size]).unwrap();
        for _ in 0..200 {
            sum = binary(&mut b, BinaryOp::Add, sum, sum).unwrap();
        }
        assert_eq!(quotients(&graph, sum), None);
    }
}
