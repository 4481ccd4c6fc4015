//! Sizes as Rust expressions.
//!
//! Sizes are `usize` where no difference can go below zero on the way, `i64` otherwise.

use crate::{CodegenError, literals};
use kiln_importer::ir::{Atom, Dim, Graph, Loop, Op, Symbol, SymbolOrigin};
use kiln_types::CompareOp;
use proc_macro2::{Delimiter, Ident, Literal, TokenStream, TokenTree};
use quote::quote;

type Result<T> = std::result::Result<T, CodegenError>;

/// How symbols are found in a function.
pub trait Scope {
    /// The variable that holds a symbol, and whether it is an `i64` (else a `usize`), if there is one.
    fn symbol(&self, symbol: &Symbol) -> Option<(Ident, bool)>;
}

/// Whether the variable of a symbol is an `i64`: what is read back, and the number of a round where that of all rounds is one.
pub fn is_signed(graph: &Graph, symbol: &Symbol) -> bool {
    /// Symbols without names of their own.
    struct Unnamed<'g>(&'g Graph);

    impl Scope for Unnamed<'_> {
        fn symbol(&self, symbol: &Symbol) -> Option<(Ident, bool)> {
            Some((crate::names::ident("symbol"), is_signed(self.0, symbol)))
        }
    }

    match graph.symbols.get(symbol) {
        Some(SymbolOrigin::Read { .. }) => true,
        Some(SymbolOrigin::Iteration { node }) => match &graph.node(*node).op {
            Op::Loop(Loop { trip_count: Some(most), condition, .. }) => {
                !is_plain(&(most * condition), &Unnamed(graph), true).unwrap_or(false)
            }
            _ => true,
        },
        Some(SymbolOrigin::Dim { .. }) | None => false,
    }
}

/// The numbers from 0 to before an integer; none where that is negative, which a difference may be.
pub fn numbers(end: &Dim, scope: &dyn Scope) -> Result<TokenStream> {
    if !is_plain(end, scope, true)? {
        let end = integer(end, scope)?;
        return Ok(quote!(0..#end));
    }
    let (more, less) = end.difference();
    if let Some(end) = end.as_constant() {
        let end = usize::try_from(end).unwrap_or(0);
        // Where nobody says what type the numbers have, it is `i32`.
        let fits = i32::try_from(end).is_ok();
        let end = if fits { Literal::usize_unsuffixed(end) } else { Literal::usize_suffixed(end) };
        return Ok(quote!(0..#end));
    }
    if less.is(0) {
        let end = size(end, scope)?;
        return Ok(quote!(0..#end));
    }
    let (more, less) = (operand(&more, scope, false)?, bare(sum(&less, scope, false)?));
    Ok(quote!(0..#more.saturating_sub(#less)))
}

/// The variable that holds a symbol, and whether it is an `i64`.
pub fn variable(symbol: &Symbol, scope: &dyn Scope) -> Result<(Ident, bool)> {
    scope.symbol(symbol).ok_or_else(|| CodegenError::UnknownSymbol(symbol.to_string()))
}

/// A size as `usize`.
pub fn size(dim: &Dim, scope: &dyn Scope) -> Result<TokenStream> {
    if let Some(value) = dim.as_size() {
        return Ok(literals::int(value as i64));
    }
    if is_plain(dim, scope, true)? {
        return Ok(bare(sum(dim, scope, false)?));
    }
    let value = bare(sum(dim, scope, true)?);
    Ok(match dim.as_symbol() {
        Some(_) => quote!(#value as usize),
        None => quote!((#value) as usize),
    })
}

/// A size as `i64`.
pub fn integer(dim: &Dim, scope: &dyn Scope) -> Result<TokenStream> {
    Ok(match dim.as_constant() {
        Some(value) => literals::int(value),
        None => bare(sum(dim, scope, true)?),
    })
}

/// An expression without parentheses around all of it.
fn bare(tokens: TokenStream) -> TokenStream {
    let mut trees = tokens.clone().into_iter();
    match (trees.next(), trees.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::Parenthesis => {
            group.stream()
        }
        _ => tokens,
    }
}

/// A condition: whether a size is not 0.
pub fn condition(dim: &Dim, scope: &dyn Scope) -> Result<TokenStream> {
    let Some(((op, a, b), rest)) = dim.split_comparison() else {
        return against_zero(dim, scope, quote!(!=));
    };
    let holds = compare(op, a, b, scope)?;
    if rest.is(1) {
        return Ok(holds);
    }
    let rest = against_zero(&rest, scope, quote!(!=))?;
    Ok(quote!(#holds && #rest))
}

/// A condition: whether a size is 0.
pub fn negated(dim: &Dim, scope: &dyn Scope) -> Result<TokenStream> {
    let Some(((op, a, b), rest)) = dim.split_comparison() else {
        return against_zero(dim, scope, quote!(==));
    };
    let fails = compare(op.opposite(), a, b, scope)?;
    if rest.is(1) {
        return Ok(fails);
    }
    let rest = against_zero(&rest, scope, quote!(==))?;
    Ok(quote!(#fails || #rest))
}

/// Whether a size is 0, or is not: what is taken from a number is compared with that.
fn against_zero(dim: &Dim, scope: &dyn Scope, relation: TokenStream) -> Result<TokenStream> {
    let (more, less) = dim.difference();
    let (left, right) =
        if more.as_constant().is_some() { (less, more) } else { (dim.clone(), Dim::constant(0)) };
    let (left, right) = (sum(&left, scope, true)?, sum(&right, scope, true)?);
    Ok(quote!(#left #relation #right))
}

/// Whether `usize` arithmetic gives the right number. At the top a difference is a size and so not negative.
fn is_plain(dim: &Dim, scope: &dyn Scope, top: bool) -> Result<bool> {
    for (coefficient, atoms) in dim.terms() {
        if !top && coefficient < 0 {
            return Ok(false);
        }
        for atom in atoms {
            let plain = match atom {
                Atom::Symbol(symbol) => !variable(symbol, scope)?.1,
                Atom::Max(a, b) if let Some((more, less)) = cut_off(a, b) => {
                    is_plain(&more, scope, false)? && is_plain(&less, scope, false)?
                }
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    is_plain(a, scope, false)? && is_plain(b, scope, false)?
                }
                Atom::TruncDiv(..) | Atom::Compare(..) | Atom::Beyond => false,
            };
            if !plain {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The sum of a dim's terms, positive ones first.
fn sum(dim: &Dim, scope: &dyn Scope, signed: bool) -> Result<TokenStream> {
    let with_symbols = dim.terms().filter(|(_, atoms)| !atoms.is_empty());
    let constant = dim.terms().filter(|(_, atoms)| atoms.is_empty());
    let terms: Vec<_> = with_symbols.chain(constant).collect();
    let positive = terms.iter().filter(|(coefficient, _)| *coefficient > 0);
    let negative = terms.iter().filter(|(coefficient, _)| *coefficient < 0);
    let mut tokens = TokenStream::new();
    for (coefficient, atoms) in positive.chain(negative) {
        let magnitude = coefficient.saturating_abs();
        let mut factors: Vec<TokenStream> =
            atoms.iter().map(|atom| factor(atom, scope, signed)).collect::<Result<_>>()?;
        if magnitude != 1 || factors.is_empty() {
            factors.insert(0, literals::int(magnitude));
        }
        let term = product(&factors);
        tokens.extend(match (tokens.is_empty(), *coefficient < 0) {
            (true, false) => term,
            (_, true) => quote!(-#term),
            (false, false) => quote!(+ #term),
        });
    }
    Ok(if tokens.is_empty() { quote!(0) } else { tokens })
}

fn product(factors: &[TokenStream]) -> TokenStream {
    let mut tokens = TokenStream::new();
    for factor in factors {
        tokens = if tokens.is_empty() { quote!(#factor) } else { quote!(#tokens * #factor) };
    }
    tokens
}

/// A dim as a factor or operand: in parentheses unless it is one token.
fn operand(dim: &Dim, scope: &dyn Scope, signed: bool) -> Result<TokenStream> {
    let tokens = bare(sum(dim, scope, signed)?);
    Ok(if tokens.clone().into_iter().count() == 1 { tokens } else { quote!((#tokens)) })
}

fn factor(atom: &Atom, scope: &dyn Scope, signed: bool) -> Result<TokenStream> {
    Ok(match atom {
        Atom::Symbol(symbol) => match variable(symbol, scope)? {
            (name, false) if signed => quote!((#name as i64)),
            (name, _) => quote!(#name),
        },
        // As Rust divides signed integers.
        Atom::TruncDiv(a, b) => {
            let (a, b) = (operand(a, scope, true)?, operand(b, scope, true)?);
            quote!((#a / #b))
        }
        Atom::FloorDiv(a, b) if signed => {
            let (a, b) = (receiver(a, scope)?, bare(sum(b, scope, true)?));
            quote!(#a.div_euclid(#b))
        }
        Atom::Mod(a, b) if signed => {
            let (a, b) = (receiver(a, scope)?, bare(sum(b, scope, true)?));
            quote!(#a.rem_euclid(#b))
        }
        Atom::FloorDiv(a, b) => {
            if let Some(up) = rounded_up(a, b) {
                let (up, b) = (operand(&up, scope, false)?, bare(sum(b, scope, false)?));
                return Ok(quote!(#up.div_ceil(#b)));
            }
            let (a, b) = (operand(a, scope, false)?, operand(b, scope, false)?);
            quote!((#a / #b))
        }
        Atom::Mod(a, b) => {
            let (a, b) = (operand(a, scope, false)?, operand(b, scope, false)?);
            quote!((#a % #b))
        }
        Atom::Max(a, b) if let Some((more, less)) = cut_off(a, b).filter(|_| !signed) => {
            let (more, less) = (typed_receiver(&more, scope, false)?, bare(sum(&less, scope, false)?));
            quote!(#more.saturating_sub(#less))
        }
        Atom::Max(a, b) => {
            let (a, b) = (typed_receiver(a, scope, signed)?, bare(sum(b, scope, signed)?));
            quote!(#a.max(#b))
        }
        Atom::Min(a, b) => {
            if let Some((inner, low, high)) = clamped(a, b)
                && (signed || is_plain(inner, scope, false)?)
            {
                let inner = typed_receiver(inner, scope, signed)?;
                let (low, high) = (literals::int(low), literals::int(high));
                return Ok(quote!(#inner.clamp(#low, #high)));
            }
            let (a, b) = (typed_receiver(a, scope, signed)?, bare(sum(b, scope, signed)?));
            quote!(#a.min(#b))
        }
        Atom::Compare(op, a, b) => {
            let condition = compare(*op, a, b, scope)?;
            quote!(i64::from(#condition))
        }
        // No operation is given one, which the verifier checks.
        Atom::Beyond => return Err(CodegenError::UnknownSymbol(Atom::Beyond.to_string())),
    })
}

/// `n` and `m` when the larger of `a` and `b` is `max(n - m, 0)`.
fn cut_off(a: &Dim, b: &Dim) -> Option<(Dim, Dim)> {
    let difference = if b.is(0) { a } else { Some(b).filter(|_| a.is(0))? };
    let (more, less) = difference.difference();
    (!less.is(0)).then_some((more, less))
}

/// `n` when `a / b` is `(n + b - 1) / b`.
fn rounded_up(a: &Dim, b: &Dim) -> Option<Dim> {
    let rest = a - &Dim::constant(b.as_constant()? - 1);
    let whole = rest.terms().all(|(coefficient, atoms)| coefficient > 0 && !atoms.is_empty());
    (whole && b.as_constant()? > 1 && rest.as_constant().is_none()).then_some(rest)
}

/// `x`, `low` and `high` when the smaller of `a` and `b` is `min(max(x, low), high)` with known bounds.
fn clamped<'d>(a: &'d Dim, b: &'d Dim) -> Option<(&'d Dim, i64, i64)> {
    let (inner, high) = match (a.as_constant(), b.as_constant()) {
        (None, Some(high)) => (a, high),
        (Some(high), None) => (b, high),
        _ => return None,
    };
    let mut terms = inner.terms();
    let (Some((1, [Atom::Max(x, y)])), None) = (terms.next(), terms.next()) else { return None };
    let (x, low) = match (x.as_constant(), y.as_constant()) {
        (None, Some(low)) => (x, low),
        (Some(low), None) => (y, low),
        _ => return None,
    };
    (low <= high).then_some((x.as_ref(), low, high))
}

/// An `i64` to call a method on: literals need their type.
fn receiver(dim: &Dim, scope: &dyn Scope) -> Result<TokenStream> {
    typed_receiver(dim, scope, true)
}

fn typed_receiver(dim: &Dim, scope: &dyn Scope, signed: bool) -> Result<TokenStream> {
    Ok(match dim.as_constant() {
        None => operand(dim, scope, signed)?,
        Some(value) => literals::typed_int(value, signed),
    })
}

fn compare(op: CompareOp, a: &Dim, b: &Dim, scope: &dyn Scope) -> Result<TokenStream> {
    let signed = !(is_plain(a, scope, false)? && is_plain(b, scope, false)?);
    let (a, b) = (sum(a, scope, signed)?, sum(b, scope, signed)?);
    let op = literals::comparison(op);
    Ok(quote!(#a #op #b))
}
