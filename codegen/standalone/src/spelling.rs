//! How Rust writes dtypes, numbers, reductions and elementwise programs.

mod expression;

pub(crate) use expression::{Formula, formula, is_negative, is_spelt, may_divide_by_zero, unsigned};

use kiln_codegen::literals;
use kiln_types::{DType, ReduceOp, Scalar};
use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use quote::{format_ident, quote};
use std::collections::BTreeSet;

/// The type of Rust that elements of a dtype have.
pub(crate) fn rust_type(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("f32"),
        DType::I8 => Some("i8"),
        DType::I16 => Some("i16"),
        DType::I32 => Some("i32"),
        DType::I64 => Some("i64"),
        DType::U8 => Some("u8"),
        DType::U16 => Some("u16"),
        DType::U32 => Some("u32"),
        DType::U64 => Some("u64"),
        DType::Bool => Some("bool"),
        DType::F64 | DType::F16 | DType::BF16 | DType::I4 | DType::U4 => None,
    }
}

/// An integer without a suffix.
pub(crate) fn int(value: usize) -> TokenStream {
    let literal = Literal::usize_unsuffixed(value);
    quote!(#literal)
}

/// An `f32`.
pub(crate) fn float(value: f64) -> TokenStream {
    let value = value as f32;
    if value.is_nan() {
        quote!(f32::NAN)
    } else if value.is_infinite() {
        if value > 0.0 { quote!(f32::INFINITY) } else { quote!(f32::NEG_INFINITY) }
    } else {
        literals::single(f64::from(value))
    }
}

/// A number of a dtype; an integer with its type, so that methods can be called on it.
pub(crate) fn number(value: Scalar, dtype: DType) -> TokenStream {
    match rust_type(dtype) {
        Some("bool") => {
            let value = value.to_bool();
            quote!(#value)
        }
        Some("f32") | None => float(value.to_f64()),
        Some(ty) => {
            let magnitude = match value {
                Scalar::UInt(value) => value,
                other => other.to_i64().unsigned_abs(),
            };
            let is_negative = !matches!(value, Scalar::UInt(_)) && value.to_i64() < 0;
            let (literal, ident_ty) = (format!("{magnitude}_{ty}").parse::<Literal>(), format_ident!("{ty}"));
            match literal {
                // The least number has no positive counterpart.
                _ if is_negative && i64::try_from(magnitude).is_err() => quote!(#ident_ty::MIN),
                Ok(literal) if is_negative => quote!(-#literal),
                Ok(literal) => quote!(#literal),
                Err(_) => quote!(0),
            }
        }
    }
}

/// Whether Rust has words for a reduction.
pub(crate) fn reduces(op: ReduceOp, dtype: DType) -> bool {
    reducing(op, dtype, &format_ident!("folded"), &TokenStream::new()).is_some()
}

/// What a reduction begins with, and how it takes an element in.
pub(crate) fn reducing(
    op: ReduceOp,
    dtype: DType,
    folded: &Ident,
    x: &TokenStream,
) -> Option<(TokenStream, TokenStream)> {
    let ty = format_ident!("{}", rust_type(dtype)?);
    let is_float = dtype == DType::F32;
    Some(match op {
        ReduceOp::Sum | ReduceOp::Mean if is_float => (quote!(0.0), quote!(#folded += #x;)),
        ReduceOp::Prod if is_float => (quote!(1.0), quote!(#folded *= #x;)),
        ReduceOp::Max if is_float => (quote!(f32::NEG_INFINITY), quote!(#folded = max_pair(#folded, #x);)),
        ReduceOp::Min if is_float => (quote!(f32::INFINITY), quote!(#folded = min_pair(#folded, #x);)),
        ReduceOp::Any if dtype.is_bool() => (quote!(false), quote!(#folded |= #x;)),
        ReduceOp::All if dtype.is_bool() => (quote!(true), quote!(#folded &= #x;)),
        ReduceOp::Sum if dtype.is_int() => (quote!(0), quote!(#folded = #ty::wrapping_add(#folded, #x);)),
        ReduceOp::Prod if dtype.is_int() => (quote!(1), quote!(#folded = #ty::wrapping_mul(#folded, #x);)),
        ReduceOp::Max if dtype.is_int() => (quote!(#ty::MIN), quote!(#folded = #folded.max(#x);)),
        ReduceOp::Min if dtype.is_int() => (quote!(#ty::MAX), quote!(#folded = #folded.min(#x);)),
        ReduceOp::Sum
        | ReduceOp::Prod
        | ReduceOp::Mean
        | ReduceOp::Max
        | ReduceOp::Min
        | ReduceOp::Any
        | ReduceOp::All => {
            return None;
        }
    })
}

/// Adds the identifiers of tokens but those of methods and fields.
pub(crate) fn add_identifiers(tokens: TokenStream, found: &mut BTreeSet<String>) {
    // One is a method's or a field's, two begin or end a range.
    let mut dots = 0;
    for token in tokens {
        let before = dots;
        dots = 0;
        match token {
            TokenTree::Ident(ident) if before != 1 => {
                found.insert(ident.to_string());
            }
            TokenTree::Punct(punct) if punct.as_char() == '.' => dots = before + 1,
            TokenTree::Group(group) => add_identifiers(group.stream(), found),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
