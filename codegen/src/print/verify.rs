//! The last look at a source: it must hold the tokens that it was printed from, and nothing else.

use super::{PrintError, markers};
use proc_macro2::{Delimiter, Ident, Literal, TokenStream, TokenTree};
use quote::quote;
use std::fmt;

/// Parses a printed text and compares.
pub fn verify(tokens: TokenStream, text: &str) -> Result<(), PrintError> {
    let printed: TokenStream =
        text.parse().map_err(|error: proc_macro2::LexError| syn::Error::from(error))?;
    syn::parse2::<syn::File>(printed.clone())?;
    let (mut before, mut after) = (Leaves::new(tokens, true), Leaves::new(printed, false));
    loop {
        match (before.next(), after.next()) {
            (None, None) => return Ok(()),
            (Some(Leaf::Ident(ident)), _) if ident == markers::INVALID => return Err(PrintError::Identifier),
            (before, after) if before == after => {}
            (before, after) => {
                let shown =
                    |leaf: Option<Leaf>| leaf.map_or_else(|| "the end".to_owned(), |leaf| leaf.to_string());
                return Err(PrintError::Changed(format!("{} became {}", shown(before), shown(after))));
            }
        }
    }
}

/// A token with no others in it.
#[derive(Debug)]
enum Leaf {
    Ident(Ident),
    /// How closely it stands by the next is the printer's business.
    Punct(char),
    Literal(Literal),
    Open(Delimiter),
    Close(Delimiter),
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ident(a), Self::Ident(b)) => a == b,
            (Self::Punct(a), Self::Punct(b)) => a == b,
            (Self::Open(a), Self::Open(b)) | (Self::Close(a), Self::Close(b)) => a == b,
            (Self::Literal(a), Self::Literal(b)) => is_same_literal(a, b),
            (Self::Ident(_) | Self::Punct(_) | Self::Literal(_) | Self::Open(_) | Self::Close(_), _) => false,
        }
    }
}

/// A string may be escaped in several ways: documentation is printed as a comment, and read back as a string.
fn is_same_literal(a: &Literal, b: &Literal) -> bool {
    a.to_string() == b.to_string()
        || match (syn::Lit::new(a.clone()), syn::Lit::new(b.clone())) {
            (syn::Lit::Str(a), syn::Lit::Str(b)) => a.value() == b.value(),
            _ => false,
        }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ident(ident) => write!(f, "`{ident}`"),
            Self::Punct(c) => write!(f, "`{c}`"),
            Self::Literal(literal) => write!(f, "`{literal}`"),
            Self::Open(delimiter) => write!(f, "the start of {delimiter:?}"),
            Self::Close(delimiter) => write!(f, "the end of {delimiter:?}"),
        }
    }
}

/// The leaves of tokens, without what printing adds and takes away: commas, a semicolon before a bracket closes, and brackets
/// around what a closure or an arm of a `match` yields.
struct Leaves {
    open: Vec<Trees>,
    /// Whether markers are read as what the text has in their place.
    with_markers: bool,
}

/// What is between two brackets.
struct Trees {
    trees: Vec<TokenTree>,
    next: usize,
    /// The bracket at the end, unless it does not count.
    close: Option<Delimiter>,
    /// Whether all of it is what a closure or an arm yields.
    is_result: bool,
}

impl Trees {
    fn new(tokens: TokenStream, close: Option<Delimiter>, is_result: bool) -> Self {
        Self { trees: tokens.into_iter().collect(), next: 0, close, is_result }
    }

    /// Whether the tree at a place is what a closure or an arm yields.
    fn is_result(&self, at: usize) -> bool {
        let is = |before: usize, c: char| {
            let tree = at.checked_sub(before).and_then(|at| self.trees.get(at));
            matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == c)
        };
        (at == 0 && self.is_result) || is(1, '|') || (is(2, '=') && is(1, '>'))
    }
}

impl Leaves {
    fn new(tokens: TokenStream, with_markers: bool) -> Self {
        Self { open: vec![Trees::new(tokens, None, false)], with_markers }
    }

    fn next(&mut self) -> Option<Leaf> {
        loop {
            let trees = self.open.last_mut()?;
            let at = trees.next;
            let Some(tree) = trees.trees.get(at).cloned() else {
                match self.open.pop()?.close {
                    Some(delimiter) => return Some(Leaf::Close(delimiter)),
                    None => continue,
                }
            };
            trees.next += 1;
            match tree {
                TokenTree::Punct(punct) => match punct.as_char() {
                    ',' => {}
                    ';' if trees.next == trees.trees.len() => {}
                    c => return Some(Leaf::Punct(c)),
                },
                TokenTree::Literal(literal) => return Some(Leaf::Literal(literal)),
                TokenTree::Ident(ident) if self.with_markers && markers::is_comment(&ident.to_string()) => {
                    // The exclamation mark, the parentheses, the semicolon.
                    trees.next += 3;
                }
                TokenTree::Ident(ident) if self.with_markers && markers::is_list(&ident.to_string()) => {
                    let Some(TokenTree::Group(items)) = trees.trees.get(trees.next) else {
                        return Some(Leaf::Ident(ident));
                    };
                    let items = items.stream();
                    trees.next += 1;
                    self.open.push(Trees::new(quote!(vec! #items), None, false));
                }
                TokenTree::Ident(ident) => return Some(Leaf::Ident(ident)),
                TokenTree::Group(group) => {
                    let delimiter = group.delimiter();
                    let is_result = trees.is_result(at);
                    let counts = match delimiter {
                        Delimiter::None => false,
                        Delimiter::Bracket => true,
                        Delimiter::Brace | Delimiter::Parenthesis => !is_result,
                    };
                    let close = counts.then_some(delimiter);
                    self.open.push(Trees::new(group.stream(), close, is_result && !counts));
                    if counts {
                        return Some(Leaf::Open(delimiter));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::literals;

    #[test]
    fn what_the_printer_may_change() {
        let list = markers::list(&[quote!(1), quote!(2)]);
        let tail = markers::tail("said");
        let tokens = quote! {
            #[doc = " It's \"so\"."]
            fn f(x: Result<u8, u8>) -> Vec<u8> {
                let y = match x { Some(_) => g(|z| (z + 1) * 2), None => { h() } };
                #tail
                #list
            }
        };
        let same = "/// It's \"so\".\nfn f(x: Result<u8, u8,>,) -> Vec<u8> { let y = match x { Some(_) => { g(|z| { (z + 1) * 2 }) } \
                    None => h(), }; // said\n vec![1, 2,] }";
        assert!(verify(tokens.clone(), same).is_ok());
        for other in [
            same.replace("h()", "h(); evil()"),
            same.replace("h()", "\"h()\""),
            same.replace("vec![1, 2,]", "vec![1, 2, 3]"),
            same.replace("vec![1, 2,]", "__kiln_list([1, 2])"),
            same.replace("\"so\"", "so"),
            same.replace("// said", "/* said"),
            format!("{same} fn g() {{}}"),
        ] {
            assert!(verify(tokens.clone(), &other).is_err(), "{other}");
        }
    }

    #[test]
    fn depth_is_no_recursion() {
        let deep = |n: usize| format!("fn f() {{ {} {} }}", "[".repeat(n), "]".repeat(n));
        let leaves = |text: &str| {
            let mut leaves = Leaves::new(text.parse().expect("tokens"), false);
            std::iter::from_fn(move || leaves.next()).count()
        };
        assert_eq!(leaves(&deep(100_000)), 2 * 100_000 + 6);
        assert_eq!(leaves(&literals::string("a\"").to_string()), 1);
    }
}
