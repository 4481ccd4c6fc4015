//! Elementwise programs as expressions of Rust.

use super::number;
use crate::program::rust_type;
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
pub(super) struct Formula {
    pub(super) before: Vec<TokenStream>,
    pub(super) result: TokenStream,
}

/// Whether Rust has words for a program of operands of these dtypes.
pub(crate) fn is_spelt(expression: &Expression, dtypes: &[DType]) -> bool {
    let operands: Vec<TokenStream> = dtypes.iter().map(|_| TokenStream::new()).collect();
    formula(expression, dtypes, &operands).is_some()
}

/// A program with these expressions for its operands; nothing when Rust has no words for it.
pub(super) fn formula(expression: &Expression, operands: &[DType], names: &[TokenStream]) -> Option<Formula> {
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
            Step::Constant(value, dtype) => {
                let negative = !dtype.is_bool() && value.to_f64().is_sign_negative();
                let binding = if negative { Binding::Prefix } else { Binding::Tight };
                Some(Code { tokens: number(value, dtype), binding })
            }
            // These are of training.
            Step::Parameter(..) | Step::Iota(..) => None,
            Step::Unary(op, x) => unary(op, code(x)?, dtype(x)?),
            Step::Binary(BinaryOp::Min, a, b) if dtype(a)?.is_int() && self.bounds(a, b).is_some() => {
                let (x, [low, high]) = self.bounds(a, b)?;
                Some(method(code(x)?, "clamp", &[number(low, dtype(a)?), number(high, dtype(a)?)]))
            }
            Step::Binary(op, a, b) => {
                let known = self.constant(b).and_then(|number| usize::try_from(number.to_i64()).ok());
                let places = match known {
                    Some(places) => super::int(places),
                    None if dtype(b)? == DType::U32 => code(b)?.tokens.clone(),
                    None => {
                        let b = code(b)?.within(Binding::Cast);
                        quote!(#b as u32)
                    }
                };
                binary(op, code(a)?, code(b)?, &places, dtype(a)?)
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
            Step::Cast(to, x) => cast(code(x)?, dtype(x)?, to),
        }
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

    /// What has both bounds, and these: the smaller of `b` and the larger of a number and something else.
    fn bounds(&self, a: StepId, b: StepId) -> Option<(StepId, [Scalar; 2])> {
        let Some(&Step::Binary(BinaryOp::Max, x, low)) = self.expression.steps.get(usize::from(a)) else {
            return None;
        };
        let (low, high) = (self.constant(low)?, self.constant(b)?);
        (low.to_i64() <= high.to_i64()).then_some((x, [low, high]))
    }
}

/// The operand of a step that has one.
fn x_of(expression: &Expression, at: usize) -> Option<StepId> {
    expression.steps.get(at)?.operands().next()
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

/// `places` is the second operand as a number of bits, or as an exponent.
fn binary(op: BinaryOp, a: &Code, b: &Code, places: &TokenStream, dtype: DType) -> Option<Code> {
    let infix = |operator: TokenStream, binding: Binding, right: Binding| {
        let (a, b) = (a.within(binding), b.within(right));
        Code { tokens: quote!(#a #operator #b), binding }
    };
    let bits = |operator| {
        let (a, b) = (a.within(Binding::Sum), b.within(Binding::Sum));
        Code { tokens: quote!(#a #operator #b), binding: Binding::Loose }
    };
    let places = |name| method(a, name, std::slice::from_ref(places));
    let wraps = |name| method(a, name, std::slice::from_ref(&b.tokens));
    Some(match (op, dtype) {
        (BinaryOp::Add, DType::F32) => infix(quote!(+), Binding::Sum, Binding::Product),
        (BinaryOp::Sub, DType::F32) => infix(quote!(-), Binding::Sum, Binding::Product),
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
        (BinaryOp::Div, dtype) if dtype.is_int() => {
            let quotient = wraps("checked_div");
            method(&quotient, "unwrap_or", &[quote!(0)])
        }
        (BinaryOp::Fmod, dtype) if dtype.is_int() => {
            let rest = wraps("checked_rem");
            method(&rest, "unwrap_or", &[quote!(0)])
        }
        (BinaryOp::Remainder, dtype) if dtype.is_int() => call("integer_remainder", &[a, b]),
        (BinaryOp::Max, dtype) if dtype.is_int() => wraps("max"),
        (BinaryOp::Min, dtype) if dtype.is_int() => wraps("min"),
        (BinaryOp::Pow, dtype) if dtype.is_int() => places("wrapping_pow"),
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

fn compare(op: CompareOp, a: &Code, b: &Code) -> Code {
    let operator = match op {
        CompareOp::Equal => quote!(==),
        CompareOp::NotEqual => quote!(!=),
        CompareOp::Greater => quote!(>),
        CompareOp::GreaterEqual => quote!(>=),
        CompareOp::Lower => quote!(<),
        CompareOp::LowerEqual => quote!(<=),
    };
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
        ];
        for (steps, expected) in cases {
            assert_eq!(text(DType::I8, steps).as_deref(), Some(*expected));
        }
        assert_eq!(text(DType::I8, &[Step::Unary(UnaryOp::Exp, 0)]), None);
        assert_eq!(text(DType::F16, &[Step::Unary(UnaryOp::Exp, 0)]), None);
    }
}
