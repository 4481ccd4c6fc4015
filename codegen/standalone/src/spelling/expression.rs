//! Elementwise programs as expressions of Rust.

use super::{number, rust_type};
use kiln_codegen::literals;
use kiln_codegen::names::ident;
use kiln_importer::ir::activation_call;
use kiln_types::{BinaryOp, CompareOp, DType, Expression, Scalar, Step, StepId, UnaryOp};
use proc_macro2::{TokenStream, TokenTree};
use quote::{format_ident, quote};

/// How tightly an expression binds, from the loosest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    /// A choice, a comparison, or a bitwise operation: it goes between parentheses.
    Loose,
    Sum,
    Product,
    Cast,
    Prefix,
    Tight,
}

/// An expression.
#[derive(Clone)]
struct Code {
    tokens: TokenStream,
    binding: Binding,
}

impl Code {
    fn tight(tokens: TokenStream) -> Self {
        Self { tokens, binding: Binding::Tight }
    }

    /// The expression where something that binds as tightly as this stands around it.
    fn within(&self, binding: Binding) -> TokenStream {
        let tokens = &self.tokens;
        if self.binding < binding { quote!((#tokens)) } else { tokens.clone() }
    }
}

/// An elementwise program: what is named before, and the result.
pub(crate) struct Formula {
    pub(crate) before: Vec<TokenStream>,
    pub(crate) result: TokenStream,
}

/// Whether Rust has words for a program of operands of these dtypes.
pub(crate) fn is_spelt(expression: &Expression, dtypes: &[DType]) -> bool {
    let operands: Vec<TokenStream> = dtypes.iter().map(|_| TokenStream::new()).collect();
    formula(expression, dtypes, &operands).is_some()
}

/// A program with these expressions for its operands; nothing when Rust has no words for it.
pub(crate) fn formula(expression: &Expression, operands: &[DType], names: &[TokenStream]) -> Option<Formula> {
    let dtypes = expression.dtypes(operands)?.to_vec();
    if !dtypes.iter().all(|&dtype| rust_type(dtype).is_some()) {
        return None;
    }
    let mut uses = vec![0usize; expression.steps.len()];
    for operand in expression.steps.iter().flat_map(Step::operands) {
        *uses.get_mut(usize::from(operand))? += 1;
    }
    let result = usize::from(expression.only_result()?);
    let mut writing = Writing { expression, dtypes, names, codes: Vec::new() };
    let mut before = Vec::new();
    for (at, uses) in uses.iter().enumerate().take(result + 1) {
        let mut code = writing.step(at)?;
        let is_simple = matches!(expression.steps[at], Step::Input(_) | Step::Constant(..));
        if !is_simple && *uses > 1 {
            let (name, tokens) = (format_ident!("t{}", before.len() + 1), &code.tokens);
            before.push(quote!(let #name = #tokens;));
            code = Code::tight(quote!(#name));
        }
        writing.codes.push(code);
    }
    Some(Formula { before, result: writing.codes.pop()?.tokens })
}

/// The parts of a program that are written.
struct Writing<'a> {
    expression: &'a Expression,
    dtypes: Vec<DType>,
    names: &'a [TokenStream],
    codes: Vec<Code>,
}

impl Writing<'_> {
    fn step(&self, at: usize) -> Option<Code> {
        let code = |id: StepId| self.codes.get(usize::from(id));
        let dtype = |id: StepId| self.dtypes.get(usize::from(id)).copied();
        match self.expression.steps[at] {
            Step::Input(n) => {
                let tokens = self.names.get(usize::from(n))?.clone();
                // An element that is written in place is `*y`, a negative number has its sign.
                let has_prefix = matches!(tokens.clone().into_iter().next(), Some(TokenTree::Punct(_)));
                Some(Code { tokens, binding: if has_prefix { Binding::Prefix } else { Binding::Tight } })
            }
            Step::Constant(value, dtype) => Some(literal(value, dtype)),
            // These are of training.
            Step::Parameter(..) | Step::Iota(..) => None,
            Step::Unary(op, x) => unary(op, code(x)?, dtype(x)?),
            Step::Binary(BinaryOp::Min, a, b) if dtype(a)?.is_int() && self.bounds(a, b).is_some() => {
                let (x, [low, high]) = self.bounds(a, b)?;
                Some(method(code(x)?, "clamp", &[number(low, dtype(a)?), number(high, dtype(a)?)]))
            }
            Step::Binary(op, a, b) => {
                let divisor = self.constant(b).map(as_integer);
                let power = divisor.and_then(|power| u32::try_from(power).ok());
                let right = Right {
                    code: code(b)?,
                    divides: divisor.is_some_and(|divisor| ![0, -1].contains(&divisor)),
                    power: power.map(|power| super::int(power as usize)).or(self.exponent(b)),
                    places: self.places(b)?,
                };
                binary(op, code(a)?, &right, dtype(a)?)
            }
            Step::Compare(op, a, b) => Some(compare(op, code(a)?, code(b)?)),
            Step::Activation(activation, x) => {
                let (function, numbers) = activation_call(activation);
                let (function, x) = (ident(function), &code(x)?.tokens);
                let numbers = numbers.iter().map(|&number| super::float(number));
                (dtype(x_of(self.expression, at)?)? == DType::F32)
                    .then(|| Code::tight(quote!(#function(#x #(, #numbers)*))))
            }
            Step::Where(condition, a, b) => {
                let (condition, a, b) = (&code(condition)?.tokens, &code(a)?.tokens, &code(b)?.tokens);
                Some(Code { tokens: quote!(if #condition { #a } else { #b }), binding: Binding::Loose })
            }
            Step::Cast(to, x) => match self.constant(x).and_then(|value| held(value, dtype(x)?, to)) {
                Some(value) => Some(literal(value, to)),
                None => cast(code(x)?, dtype(x)?, to),
            },
        }
    }
}

fn literal(value: Scalar, dtype: DType) -> Code {
    let negative = !dtype.is_bool() && value.to_f64().is_sign_negative();
    let binding = if negative { Binding::Prefix } else { Binding::Tight };
    Code { tokens: number(value, dtype), binding }
}

/// An integer as another dtype has it, where that has it.
fn held(value: Scalar, from: DType, to: DType) -> Option<Scalar> {
    let has_it = |(least, greatest)| (least..=greatest).contains(&as_integer(value));
    match (from.is_int(), to) {
        (true, DType::F32) => Some(Scalar::Float(f64::from(value.to_f64() as f32))),
        (true, to) if to.integers().is_some_and(has_it) => Some(value),
        _ => None,
    }
}

impl Writing<'_> {
    /// The number that a step is, where it is one.
    fn constant(&self, id: StepId) -> Option<Scalar> {
        match self.expression.steps.get(usize::from(id)) {
            Some(&Step::Constant(value, _)) => Some(value),
            _ => None,
        }
    }

    /// An exponent, or a number of bits, that is no constant, where none that its dtype has is negative or beyond 32 bits.
    fn exponent(&self, id: StepId) -> Option<TokenStream> {
        if self.constant(id).is_some() {
            return None;
        }
        let code = self.codes.get(usize::from(id))?;
        match self.dtypes.get(usize::from(id))? {
            DType::U32 => Some(code.tokens.clone()),
            DType::U8 | DType::U16 => {
                let tokens = &code.tokens;
                Some(quote!(u32::from(#tokens)))
            }
            _ => None,
        }
    }

    /// How far something is shifted, in 32 bits: as many as there are stand for all that is more, or negative.
    fn places(&self, id: StepId) -> Option<TokenStream> {
        if let Some(places) = self.constant(id).map(as_integer) {
            return Some(super::int(u32::try_from(places).unwrap_or(u32::MAX) as usize));
        }
        self.exponent(id).or_else(|| {
            let tokens = &self.codes.get(usize::from(id))?.tokens;
            Some(quote!(u32::try_from(#tokens).unwrap_or(u32::MAX)))
        })
    }

    /// What has both bounds, and these: the smaller of `b` and the larger of a number and something else.
    fn bounds(&self, a: StepId, b: StepId) -> Option<(StepId, [Scalar; 2])> {
        let Some(&Step::Binary(BinaryOp::Max, x, low)) = self.expression.steps.get(usize::from(a)) else {
            return None;
        };
        let (low, high) = (self.constant(low)?, self.constant(b)?);
        (as_integer(low) <= as_integer(high)).then_some((x, [low, high]))
    }
}

/// A number as an integer, which holds all of 64 bits.
fn as_integer(number: Scalar) -> i128 {
    match number {
        Scalar::UInt(number) => number.into(),
        other => other.to_i64().into(),
    }
}

/// Whether a program of operands of these dtypes divides integers by what may be 0.
pub(crate) fn may_divide_by_zero(expression: &Expression, operands: &[DType]) -> bool {
    let Some(dtypes) = expression.dtypes(operands) else { return false };
    let is_integer = |id: StepId| dtypes.get(usize::from(id)).is_some_and(|dtype| dtype.is_int());
    expression.steps.iter().any(|step| match step {
        Step::Binary(BinaryOp::Div | BinaryOp::Fmod | BinaryOp::Remainder, a, b) => {
            let divisor = expression.steps.get(usize::from(*b));
            is_integer(*a) && !matches!(divisor, Some(Step::Constant(value, _)) if as_integer(*value) != 0)
        }
        _ => false,
    })
}

/// The operand of a step that has one.
fn x_of(expression: &Expression, at: usize) -> Option<StepId> {
    expression.steps.get(at)?.operands().next()
}

/// Whether an expression is a number with a sign.
pub(crate) fn is_negative(tokens: &TokenStream) -> bool {
    let mut trees = tokens.clone().into_iter();
    matches!(trees.next(), Some(TokenTree::Punct(sign)) if sign.as_char() == '-')
        && matches!((trees.next(), trees.next()), (Some(TokenTree::Literal(_)), None))
}

/// A number without its sign; any other expression as it is.
pub(crate) fn unsigned(tokens: TokenStream) -> TokenStream {
    let sign = usize::from(is_negative(&tokens));
    tokens.into_iter().skip(sign).collect()
}

/// A method of an expression.
fn method(x: &Code, name: &str, args: &[TokenStream]) -> Code {
    let (x, name) = (x.within(Binding::Tight), ident(name));
    Code::tight(quote!(#x.#name(#(#args),*)))
}

/// A kernel's function of expressions.
fn call(name: &str, args: &[&Code]) -> Code {
    let (name, args) = (ident(name), args.iter().map(|arg| &arg.tokens));
    Code::tight(quote!(#name(#(#args),*)))
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

fn unary(op: UnaryOp, x: &Code, dtype: DType) -> Option<Code> {
    let prefix = |sign: TokenStream| {
        let x = x.within(Binding::Prefix);
        Code { tokens: quote!(#sign #x), binding: Binding::Prefix }
    };
    Some(match (op, dtype) {
        (UnaryOp::Not, DType::Bool) => prefix(quote!(!)),
        (UnaryOp::BitwiseNot, dtype) if dtype.is_int() => prefix(quote!(!)),
        (UnaryOp::Neg, DType::F32) => prefix(quote!(-)),
        (UnaryOp::Neg, dtype) if dtype.is_int() => method(x, "wrapping_neg", &[]),
        (UnaryOp::Abs, DType::F32) => method(x, "abs", &[]),
        (UnaryOp::Abs, dtype) if is_signed(dtype) => method(x, "wrapping_abs", &[]),
        (UnaryOp::Abs, dtype) if dtype.is_int() => x.clone(),
        (UnaryOp::Sign, dtype) if is_signed(dtype) => method(x, "signum", &[]),
        (UnaryOp::Sign, dtype) if dtype.is_int() => method(x, "min", &[quote!(1)]),
        (UnaryOp::IsNan, DType::F32) => method(x, "is_nan", &[]),
        (UnaryOp::IsInf, DType::F32) => method(x, "is_infinite", &[]),
        (UnaryOp::Recip, DType::F32) => {
            let x = x.within(Binding::Cast);
            Code { tokens: quote!(1.0 / #x), binding: Binding::Product }
        }
        // The other functions of floats are kernels of their names.
        (op, DType::F32) => call(op.name(), &[x]),
        _ => return None,
    })
}

/// A second operand.
struct Right<'a> {
    code: &'a Code,
    /// Whether it is a number that integers are divided by without an error or an overflow.
    divides: bool,
    /// The same as an exponent of 32 bits, where it is one.
    power: Option<TokenStream>,
    /// The same as a number of bits.
    places: TokenStream,
}

/// Integers are computed with as the runtime does it: they wrap, powers and shifts take all bits of their second operand, and a division by 0 ends the program.
fn binary(op: BinaryOp, a: &Code, right: &Right<'_>, dtype: DType) -> Option<Code> {
    let b = right.code;
    let infix = |operator: TokenStream, binding: Binding, right: Binding| {
        let (a, b) = (a.within(binding), b.within(right));
        Code { tokens: quote!(#a #operator #b), binding }
    };
    let bits = |operator| {
        let (a, b) = (a.within(Binding::Sum), b.within(Binding::Sum));
        Code { tokens: quote!(#a #operator #b), binding: Binding::Loose }
    };
    let places = |name| method(a, name, std::slice::from_ref(&right.places));
    let wraps = |name| method(a, name, std::slice::from_ref(&b.tokens));
    Some(match (op, dtype) {
        (BinaryOp::Add | BinaryOp::Sub, DType::F32) => {
            let is_sum = (op == BinaryOp::Add) != is_negative(&b.tokens);
            let sign = if is_sum { quote!(+) } else { quote!(-) };
            let (a, b) = (a.within(Binding::Sum), unsigned(b.within(Binding::Product)));
            Code { tokens: quote!(#a #sign #b), binding: Binding::Sum }
        }
        (BinaryOp::Mul, DType::F32) => infix(quote!(*), Binding::Product, Binding::Cast),
        (BinaryOp::Div, DType::F32) => infix(quote!(/), Binding::Product, Binding::Cast),
        (BinaryOp::Fmod, DType::F32) => infix(quote!(%), Binding::Product, Binding::Cast),
        (
            BinaryOp::Pow | BinaryOp::Remainder | BinaryOp::Max | BinaryOp::Min | BinaryOp::Atan2,
            DType::F32,
        ) => call(op.name(), &[a, b]),
        (BinaryOp::Add, dtype) if dtype.is_int() => wraps("wrapping_add"),
        (BinaryOp::Sub, dtype) if dtype.is_int() => wraps("wrapping_sub"),
        (BinaryOp::Mul, dtype) if dtype.is_int() => wraps("wrapping_mul"),
        (BinaryOp::Div, dtype) if dtype.is_int() => match right.divides {
            true => infix(quote!(/), Binding::Product, Binding::Cast),
            false => wraps("wrapping_div"),
        },
        (BinaryOp::Fmod | BinaryOp::Remainder, dtype) if dtype.is_int() => {
            let rest = match right.divides {
                true => infix(quote!(%), Binding::Product, Binding::Cast),
                false => wraps("wrapping_rem"),
            };
            if op == BinaryOp::Fmod { rest } else { call("integer_remainder", &[&rest, b]) }
        }
        (BinaryOp::Max, dtype) if dtype.is_int() => wraps("max"),
        (BinaryOp::Min, dtype) if dtype.is_int() => wraps("min"),
        (BinaryOp::Pow, dtype) if dtype.is_int() => match &right.power {
            Some(power) => method(a, "wrapping_pow", std::slice::from_ref(power)),
            None => power(a, b, dtype)?,
        },
        (BinaryOp::ShiftLeft, dtype) if dtype.is_int() => {
            method(&places("checked_shl"), "unwrap_or", &[quote!(0)])
        }
        (BinaryOp::ShiftRight, dtype) if dtype.is_int() && !is_signed(dtype) => {
            method(&places("checked_shr"), "unwrap_or", &[quote!(0)])
        }
        (BinaryOp::And, DType::Bool) => bits(quote!(&)),
        (BinaryOp::Or, DType::Bool) => bits(quote!(|)),
        (BinaryOp::Xor, DType::Bool) => bits(quote!(^)),
        (BinaryOp::BitwiseAnd, dtype) if dtype.is_int() => bits(quote!(&)),
        (BinaryOp::BitwiseOr, dtype) if dtype.is_int() => bits(quote!(|)),
        (BinaryOp::BitwiseXor, dtype) if dtype.is_int() => bits(quote!(^)),
        _ => return None,
    })
}

/// A power whose exponent may be negative or have more than 32 bits: it is computed in 64, of which those are kept that the integers have.
fn power(a: &Code, b: &Code, dtype: DType) -> Option<Code> {
    let (function, wide) = match is_signed(dtype) {
        true => ("signed_power", DType::I64),
        false => ("integer_power", DType::U64),
    };
    let in_wide = |code: &Code| {
        let (tokens, wide) = (&code.tokens, ident(rust_type(wide)?));
        Some(if is_wide(dtype) { code.clone() } else { Code::tight(quote!(#wide::from(#tokens))) })
    };
    let result = call(function, &[&in_wide(a)?, &in_wide(b)?]);
    if is_wide(dtype) {
        return Some(result);
    }
    let (result, ty) = (result.within(Binding::Cast), ident(rust_type(dtype)?));
    Some(Code { tokens: quote!(#result as #ty), binding: Binding::Cast })
}

fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::U64)
}

fn compare(op: CompareOp, a: &Code, b: &Code) -> Code {
    let operator = literals::comparison(op);
    let (a, b) = (a.within(Binding::Sum), b.within(Binding::Sum));
    Code { tokens: quote!(#a #operator #b), binding: Binding::Loose }
}

fn cast(x: &Code, from: DType, to: DType) -> Option<Code> {
    let ty = ident(rust_type(to)?);
    let whole = &x.tokens;
    Some(match (from, to) {
        _ if from == to => x.clone(),
        (DType::F32, DType::Bool) => compare(CompareOp::NotEqual, x, &Code::tight(quote!(0.0))),
        (_, DType::Bool) => compare(CompareOp::NotEqual, x, &Code::tight(quote!(0))),
        (DType::Bool, DType::F32) => Code::tight(quote!(f32::from(u8::from(#whole)))),
        (DType::Bool, _) => Code::tight(quote!(#ty::from(#whole))),
        _ => {
            let x = x.within(Binding::Cast);
            Code { tokens: quote!(#x as #ty), binding: Binding::Cast }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_types::Activation;

    /// The text of a program of operands `a`, `b`, `c`, without spaces.
    fn text(dtype: DType, steps: &[Step]) -> Option<String> {
        let names = [quote!(a), quote!(b), quote!(c)];
        let all = [Step::Input(0), Step::Input(1), Step::Input(2)].iter().chain(steps).copied().collect();
        let formula = formula(&Expression::new(all), &[dtype; 3], &names)?;
        let before: String = formula.before.iter().map(ToString::to_string).collect();
        Some(format!("{before}{}", formula.result).replace(' ', ""))
    }

    #[test]
    fn parentheses_stand_where_they_are_needed() {
        use BinaryOp::{Add, Div, Mul, Sub};
        let cases: &[(&[Step], &str)] = &[
            (&[Step::Binary(Add, 0, 1), Step::Binary(Mul, 3, 2)], "(a+b)*c"),
            (&[Step::Binary(Mul, 0, 1), Step::Binary(Add, 3, 2)], "a*b+c"),
            (&[Step::Binary(Sub, 1, 2), Step::Binary(Sub, 0, 3)], "a-(b-c)"),
            (&[Step::Binary(Sub, 0, 1), Step::Binary(Sub, 3, 2)], "a-b-c"),
            (&[Step::Binary(Mul, 1, 2), Step::Binary(Div, 0, 3)], "a/(b*c)"),
            (&[Step::Unary(UnaryOp::Neg, 0), Step::Unary(UnaryOp::Abs, 3)], "(-a).abs()"),
            (&[Step::Binary(Add, 0, 1), Step::Unary(UnaryOp::Recip, 3)], "1.0/(a+b)"),
            (&[Step::Binary(Add, 0, 1), Step::Binary(Mul, 3, 3)], "lett1=a+b;t1*t1"),
            (
                &[Step::Compare(CompareOp::Greater, 0, 1), Step::Where(3, 0, 2), Step::Binary(Add, 4, 1)],
                "(ifa>b{a}else{c})+b",
            ),
            (&[Step::Activation(Activation::LeakyRelu { slope: 0.1 }, 0)], "leaky_relu(a,0.1)"),
            (&[Step::Cast(DType::I32, 0), Step::Cast(DType::F32, 3)], "aasi32asf32"),
            (&[Step::Unary(UnaryOp::IsNan, 0), Step::Cast(DType::F32, 3)], "f32::from(u8::from(a.is_nan()))"),
        ];
        for (steps, expected) in cases {
            assert_eq!(text(DType::F32, steps).as_deref(), Some(*expected));
        }
    }

    #[test]
    fn integers_wrap() {
        let three = Step::Constant(Scalar::Int(-3), DType::I8);
        let nine = Step::Constant(Scalar::Int(9), DType::I8);
        let cases: &[(&[Step], &str)] = &[
            (&[Step::Binary(BinaryOp::Add, 0, 1)], "a.wrapping_add(b)"),
            (&[three, Step::Binary(BinaryOp::Mul, 3, 1)], "(-3_i8).wrapping_mul(b)"),
            (
                &[three, nine, Step::Binary(BinaryOp::Max, 0, 3), Step::Binary(BinaryOp::Min, 5, 4)],
                "a.clamp(-3_i8,9_i8)",
            ),
            (&[nine, Step::Binary(BinaryOp::ShiftLeft, 0, 3)], "a.checked_shl(9).unwrap_or(0)"),
            (&[three, Step::Binary(BinaryOp::ShiftLeft, 0, 3)], "a.checked_shl(4294967295).unwrap_or(0)"),
            (
                &[Step::Binary(BinaryOp::ShiftLeft, 0, 1)],
                "a.checked_shl(u32::try_from(b).unwrap_or(u32::MAX)).unwrap_or(0)",
            ),
            (&[Step::Binary(BinaryOp::Div, 0, 1)], "a.wrapping_div(b)"),
            (&[Step::Binary(BinaryOp::Fmod, 0, 1)], "a.wrapping_rem(b)"),
            (&[Step::Binary(BinaryOp::Remainder, 0, 1)], "integer_remainder(a.wrapping_rem(b),b)"),
            (&[nine, Step::Binary(BinaryOp::Div, 0, 3)], "a/9_i8"),
            (&[three, Step::Binary(BinaryOp::Remainder, 0, 3)], "integer_remainder(a%-3_i8,-3_i8)"),
            (&[nine, Step::Binary(BinaryOp::Pow, 0, 3)], "a.wrapping_pow(9)"),
        ];
        for (steps, expected) in cases {
            assert_eq!(text(DType::I8, steps).as_deref(), Some(*expected));
        }
        // What is divided by -1 may overflow.
        let minus_one = Step::Constant(Scalar::Int(-1), DType::I8);
        let divided = text(DType::I8, &[minus_one, Step::Binary(BinaryOp::Div, 0, 3)]);
        assert_eq!(divided.as_deref(), Some("a.wrapping_div(-1_i8)"));
        // Exponents that may be negative, or have more bits.
        let negative = text(DType::I8, &[three, Step::Binary(BinaryOp::Pow, 0, 3)]);
        assert_eq!(negative.as_deref(), Some("signed_power(i64::from(a),i64::from(-3_i8))asi8"));
        let any = text(DType::I64, &[Step::Binary(BinaryOp::Pow, 0, 1)]);
        assert_eq!(any.as_deref(), Some("signed_power(a,b)"));
        let to_power = text(DType::U8, &[Step::Binary(BinaryOp::Pow, 0, 1)]);
        assert_eq!(to_power.as_deref(), Some("a.wrapping_pow(u32::from(b))"));
        let far = Step::Constant(Scalar::Int(1 << 40), DType::U64);
        let shifted = text(DType::U64, &[far, Step::Binary(BinaryOp::ShiftRight, 0, 3)]);
        assert_eq!(shifted.as_deref(), Some("a.checked_shr(4294967295).unwrap_or(0)"));
        let far_power = text(DType::U64, &[far, Step::Binary(BinaryOp::Pow, 0, 3)]);
        assert_eq!(far_power.as_deref(), Some("integer_power(a,1099511627776_u64)"));
        // Bounds that are no bounds are no argument of `clamp`, which ends the program there.
        let crossed = [
            Step::Constant(Scalar::UInt(u64::MAX), DType::U64),
            Step::Constant(Scalar::UInt(1 << 63), DType::U64),
            Step::Binary(BinaryOp::Max, 0, 3),
            Step::Binary(BinaryOp::Min, 5, 4),
        ];
        assert_eq!(
            text(DType::U64, &crossed).as_deref(),
            Some("a.max(18446744073709551615_u64).min(9223372036854775808_u64)")
        );
        assert_eq!(text(DType::I8, &[Step::Unary(UnaryOp::Exp, 0)]), None);
        assert_eq!(text(DType::F16, &[Step::Unary(UnaryOp::Exp, 0)]), None);
    }
}
