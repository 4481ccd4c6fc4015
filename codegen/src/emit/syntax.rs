//! Rust's syntax trees, which the printer takes.
//!
//! What a long model has by the hundred thousand (fields, how they are made, statements) is built; all else is written as
//! tokens and parsed.

use super::Result;
use crate::literals;
use crate::print::PrintError;
use crate::{CodegenError, Defect};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use std::collections::HashMap;
use syn::parse::{Parse, Parser};
use syn::punctuated::Punctuated;
use syn::{
    AngleBracketedGenericArguments, AttrStyle, Attribute, BinOp, Block, Expr, ExprArray, ExprAwait,
    ExprBinary, ExprBlock, ExprCall, ExprField, ExprIf, ExprIndex, ExprLit, ExprMethodCall, ExprParen,
    ExprPath, ExprRange, ExprReference, ExprStruct, ExprTuple, ExprUnary, Field, FieldMutability, FieldValue,
    Fields, FieldsNamed, File, FnArg, GenericArgument, Item, Lit, LitBool, Local, LocalInit, MacroDelimiter,
    Member, Meta, MetaList, Pat, PatIdent, PatTuple, PatType, PatWild, Path, PathArguments, RangeLimits,
    Signature, Stmt, Type, TypePath, UnOp, Visibility,
};

/// Tokens as what they are the text of.
pub(super) fn parsed<T: Parse>(tokens: TokenStream) -> Result<T> {
    syn::parse2(tokens).map_err(syntax)
}

/// The statements that tokens are the text of.
pub(super) fn statements(tokens: TokenStream) -> Result<Vec<Stmt>> {
    Block::parse_within.parse2(tokens).map_err(syntax)
}

/// The items that tokens are the text of.
pub(super) fn items(tokens: TokenStream) -> Result<Vec<Item>> {
    Ok(parsed::<File>(tokens)?.items)
}

fn syntax(error: syn::Error) -> CodegenError {
    Defect::Print(PrintError::Syntax(error)).into()
}

/// `name`
pub(super) fn variable(name: Ident) -> Expr {
    path(Path::from(name))
}

/// `self`
pub(super) fn this() -> Expr {
    variable(Ident::new("self", Span::call_site()))
}

pub(super) fn path(path: Path) -> Expr {
    Expr::Path(ExprPath { attrs: Vec::new(), qself: None, path })
}

/// `path::name`
pub(super) fn below(mut path: Path, name: Ident) -> Path {
    path.segments.push(name.into());
    path
}

/// `path<args>`; in expressions `path::<args>`.
pub(super) fn generic(mut path: Path, args: Vec<GenericArgument>, expression: bool) -> Path {
    if let Some(last) = path.segments.last_mut() {
        let mut list = generics(args);
        if !expression {
            list.colon2_token = None;
        }
        last.arguments = PathArguments::AngleBracketed(list);
    }
    path
}

/// `::<args>`
fn generics(args: Vec<GenericArgument>) -> AngleBracketedGenericArguments {
    AngleBracketedGenericArguments {
        colon2_token: Some(Default::default()),
        lt_token: Default::default(),
        args: args.into_iter().collect(),
        gt_token: Default::default(),
    }
}

/// A type as an argument.
pub(super) fn type_argument(path: Path) -> GenericArgument {
    GenericArgument::Type(ty(path))
}

/// A number as an argument.
pub(super) fn number_argument(number: usize) -> Result<GenericArgument> {
    Ok(GenericArgument::Const(int(number as i64)?))
}

/// The type of a path.
pub(super) fn ty(path: Path) -> Type {
    Type::Path(TypePath { qself: None, path })
}

/// An integer without a suffix.
pub(super) fn int(value: i64) -> Result<Expr> {
    if value < 0 {
        return parsed(literals::int(value));
    }
    Ok(literal(Lit::new(Literal::i64_unsuffixed(value))))
}

pub(super) fn bool(value: bool) -> Expr {
    literal(Lit::Bool(LitBool::new(value, Span::call_site())))
}

fn literal(lit: Lit) -> Expr {
    Expr::Lit(ExprLit { attrs: Vec::new(), lit })
}

/// `function(args)`
pub(super) fn call(function: Expr, args: Vec<Expr>) -> Expr {
    Expr::Call(ExprCall {
        attrs: Vec::new(),
        func: Box::new(function),
        paren_token: Default::default(),
        args: args.into_iter().collect(),
    })
}

/// `receiver.name(args)`
pub(super) fn method(receiver: Expr, name: Ident, args: Vec<Expr>) -> Expr {
    generic_method(receiver, name, Vec::new(), args)
}

/// `receiver.name::<generics>(args)`
pub(super) fn generic_method(
    receiver: Expr,
    method: Ident,
    turbofish: Vec<GenericArgument>,
    args: Vec<Expr>,
) -> Expr {
    Expr::MethodCall(ExprMethodCall {
        attrs: Vec::new(),
        receiver: Box::new(receiver),
        dot_token: Default::default(),
        method,
        turbofish: (!turbofish.is_empty()).then(|| generics(turbofish)),
        paren_token: Default::default(),
        args: args.into_iter().collect(),
    })
}

/// `base.name`
pub(super) fn field(base: Expr, name: Ident) -> Expr {
    Expr::Field(ExprField {
        attrs: Vec::new(),
        base: Box::new(base),
        dot_token: Default::default(),
        member: Member::Named(name),
    })
}

/// `base[index]`
pub(super) fn item(base: Expr, index: Expr) -> Expr {
    Expr::Index(ExprIndex {
        attrs: Vec::new(),
        expr: Box::new(base),
        bracket_token: Default::default(),
        index: Box::new(index),
    })
}

/// `base.await`, where it `waits`.
pub(super) fn awaited(base: Expr, waits: bool) -> Expr {
    if !waits {
        return base;
    }
    Expr::Await(ExprAwait {
        attrs: Vec::new(),
        base: Box::new(base),
        dot_token: Default::default(),
        await_token: Default::default(),
    })
}

/// `[items]`
pub(super) fn array(items: Vec<Expr>) -> Expr {
    Expr::Array(ExprArray {
        attrs: Vec::new(),
        bracket_token: Default::default(),
        elems: items.into_iter().collect(),
    })
}

/// `(a, b)`; of one item, that in parentheses.
pub(super) fn tuple(items: Vec<Expr>) -> Expr {
    match <[Expr; 1]>::try_from(items) {
        Ok([item]) => paren(item),
        Err(items) => Expr::Tuple(ExprTuple {
            attrs: Vec::new(),
            paren_token: Default::default(),
            elems: items.into_iter().collect(),
        }),
    }
}

/// `(inner)`
pub(super) fn paren(inner: Expr) -> Expr {
    Expr::Paren(ExprParen { attrs: Vec::new(), paren_token: Default::default(), expr: Box::new(inner) })
}

/// `&inner`
pub(super) fn reference(inner: Expr) -> Expr {
    Expr::Reference(ExprReference {
        attrs: Vec::new(),
        and_token: Default::default(),
        mutability: None,
        expr: Box::new(inner),
    })
}

/// `start..end`
pub(super) fn range(start: Expr, end: Expr) -> Expr {
    Expr::Range(ExprRange {
        attrs: Vec::new(),
        start: Some(Box::new(start)),
        limits: RangeLimits::HalfOpen(Default::default()),
        end: Some(Box::new(end)),
    })
}

/// `left op right`
pub(super) fn infix(left: Expr, op: &'static str, right: Expr) -> Result<Expr> {
    let op = match op {
        "+" => BinOp::Add(Default::default()),
        "-" => BinOp::Sub(Default::default()),
        "*" => BinOp::Mul(Default::default()),
        "/" => BinOp::Div(Default::default()),
        "%" => BinOp::Rem(Default::default()),
        "&" => BinOp::BitAnd(Default::default()),
        "|" => BinOp::BitOr(Default::default()),
        "^" => BinOp::BitXor(Default::default()),
        "<<" => BinOp::Shl(Default::default()),
        ">>" => BinOp::Shr(Default::default()),
        other => return Err(Defect::Operator(other).into()),
    };
    Ok(Expr::Binary(ExprBinary { attrs: Vec::new(), left: Box::new(left), op, right: Box::new(right) }))
}

/// `op inner`
pub(super) fn prefix(op: &'static str, inner: Expr) -> Result<Expr> {
    let op = match op {
        "-" => UnOp::Neg(Default::default()),
        "!" => UnOp::Not(Default::default()),
        other => return Err(Defect::Operator(other).into()),
    };
    Ok(Expr::Unary(ExprUnary { attrs: Vec::new(), op, expr: Box::new(inner) }))
}

/// `path { field: value }`
pub(super) fn structure(path: Path, fields: Vec<FieldValue>) -> Expr {
    Expr::Struct(ExprStruct {
        attrs: Vec::new(),
        qself: None,
        path,
        brace_token: Default::default(),
        fields: fields.into_iter().collect(),
        dot2_token: None,
        rest: None,
    })
}

/// `name: value`; without a value, the variable of the name.
pub(super) fn field_value(name: Ident, value: Option<Expr>) -> FieldValue {
    FieldValue {
        attrs: Vec::new(),
        colon_token: value.is_some().then(Default::default),
        expr: value.unwrap_or_else(|| variable(name.clone())),
        member: Member::Named(name),
    }
}

/// The fields of a struct.
pub(super) fn fields(fields: Vec<Field>) -> Fields {
    let named: Punctuated<Field, _> = fields.into_iter().collect();
    Fields::Named(FieldsNamed { brace_token: Default::default(), named })
}

/// `#[name(tokens)]`
pub(super) fn attribute(name: Ident, tokens: TokenStream) -> Attribute {
    let delimiter = MacroDelimiter::Paren(Default::default());
    Attribute {
        pound_token: Default::default(),
        style: AttrStyle::Outer,
        bracket_token: Default::default(),
        meta: Meta::List(MetaList { path: name.into(), delimiter, tokens }),
    }
}

/// `name: ty`, with attributes.
pub(super) fn declaration(attrs: Vec<Attribute>, name: Ident, ty: Type) -> Field {
    Field {
        attrs,
        vis: Visibility::Inherited,
        mutability: FieldMutability::None,
        ident: Some(name),
        colon_token: Some(Default::default()),
        ty,
    }
}

/// `let pattern = value;`
pub(super) fn bind(pat: Pat, value: Expr) -> Stmt {
    Stmt::Local(Local {
        attrs: Vec::new(),
        let_token: Default::default(),
        pat,
        init: Some(LocalInit { eq_token: Default::default(), expr: Box::new(value), diverge: None }),
        semi_token: Default::default(),
    })
}

/// `name` or `mut name`, for a variable that is bound.
pub(super) fn bound(ident: Ident, is_mutable: bool) -> Pat {
    Pat::Ident(PatIdent {
        attrs: Vec::new(),
        by_ref: None,
        mutability: is_mutable.then(Default::default),
        ident,
        subpat: None,
    })
}

/// `_`
pub(super) fn unbound() -> Pat {
    Pat::Wild(PatWild { attrs: Vec::new(), underscore_token: Default::default() })
}

/// `(a, b)` as a pattern.
pub(super) fn tuple_pattern(items: Vec<Pat>) -> Pat {
    Pat::Tuple(PatTuple {
        attrs: Vec::new(),
        paren_token: Default::default(),
        elems: items.into_iter().collect(),
    })
}

/// Gives a function its body. A parameter that is only made mutable, `let mut x = x;`, is mutable itself.
pub(super) fn set_body(signature: &mut Signature, body: &mut Block, mut statements: Vec<Stmt>, result: Expr) {
    let mut parameters: HashMap<Ident, &mut PatIdent> = HashMap::new();
    for input in &mut signature.inputs {
        if let FnArg::Typed(PatType { pat, .. }) = input
            && let Pat::Ident(pattern) = &mut **pat
        {
            parameters.insert(pattern.ident.clone(), pattern);
        }
    }
    statements.retain(|statement| {
        let Stmt::Local(Local { pat, init, .. }) = statement else { return true };
        // A name that is bound anew is the parameter's no more.
        let bound: Vec<_> = names_of(pat).iter().filter_map(|name| parameters.remove(name)).collect();
        match (pat, init, bound.as_slice()) {
            (Pat::Ident(PatIdent { ident, mutability: Some(mutable), .. }), Some(init), [_])
                if matches!(&*init.expr, Expr::Path(value) if value.path.is_ident(ident)) =>
            {
                bound.into_iter().for_each(|parameter| parameter.mutability = Some(*mutable));
                false
            }
            _ => true,
        }
    });
    *body = block(statements, result);
}

/// The names that a pattern binds.
fn names_of(pattern: &Pat) -> Vec<Ident> {
    match pattern {
        Pat::Ident(pattern) => vec![pattern.ident.clone()],
        Pat::Tuple(tuple) => tuple.elems.iter().flat_map(names_of).collect(),
        Pat::Slice(slice) => slice.elems.iter().flat_map(names_of).collect(),
        Pat::Type(typed) => names_of(&typed.pat),
        _ => Vec::new(),
    }
}

/// `{ statements result }`
pub(super) fn block(mut stmts: Vec<Stmt>, result: Expr) -> Block {
    stmts.push(Stmt::Expr(result, None));
    Block { brace_token: Default::default(), stmts }
}

/// A block as an expression.
pub(super) fn in_braces(block: Block) -> Expr {
    Expr::Block(ExprBlock { attrs: Vec::new(), label: None, block })
}

/// `if condition { … } else { … }`
pub(super) fn branches(condition: Expr, then: Block, otherwise: Block) -> Expr {
    Expr::If(ExprIf {
        attrs: Vec::new(),
        if_token: Default::default(),
        cond: Box::new(condition),
        then_branch: then,
        else_branch: Some((Default::default(), Box::new(in_braces(otherwise)))),
    })
}
