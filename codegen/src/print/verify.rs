//! The last look at a source: it must hold the tokens that it was printed from, and nothing else.
//!
//! Those are the tokens of a syntax tree, so a text of the same tokens has that tree too.

use super::{PrintError, markers};
use crate::names::INVALID;
use proc_macro2::{Delimiter, Ident, Literal, TokenStream, TokenTree};
use quote::quote;
use std::iter::Peekable;
use std::{fmt, vec};

/// What a text must hold: the leaves of the tokens that it is printed from, in little memory.
pub struct Expected {
    /// The kind of each leaf, and where its text ends.
    leaves: Vec<(Kind, usize)>,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ident,
    Punct,
    Literal,
    Open,
    Close,
}

impl Expected {
    /// Of tokens, whose markers are read as what the text has in their place.
    pub fn new(tokens: TokenStream) -> Result<Self, PrintError> {
        let mut expected = Self { leaves: Vec::new(), text: String::new() };
        let mut leaves = Leaves::new(tokens, true);
        while let Some(leaf) = leaves.next() {
            if matches!(&leaf, Leaf::Ident(ident) if ident == INVALID) {
                return Err(PrintError::Identifier);
            }
            leaf.write(&mut expected.text);
            expected.leaves.push((leaf.kind(), expected.text.len()));
        }
        Ok(expected)
    }

    /// Reads a printed text as tokens again and compares.
    pub fn verify(&self, text: &str) -> Result<(), PrintError> {
        let printed = text.parse().map_err(|error: proc_macro2::LexError| syn::Error::from(error))?;
        let mut printed = Leaves::new(printed, false);
        let (mut start, mut text) = (0, String::new());
        for &(kind, end) in &self.leaves {
            let wanted = &self.text[start..end];
            start = end;
            let leaf = printed.next();
            text.clear();
            if let Some(leaf) = &leaf {
                leaf.write(&mut text);
            }
            let is_same = |leaf: &Leaf| {
                leaf.kind() == kind
                    && (text == wanted || (kind == Kind::Literal && is_same_string(&text, wanted)))
            };
            if !leaf.as_ref().is_some_and(is_same) {
                let leaf = leaf.as_ref().map_or_else(|| "the end".to_owned(), Leaf::to_string);
                return Err(PrintError::Changed(format!("`{wanted}` became {leaf}")));
            }
        }
        match printed.next() {
            None => Ok(()),
            Some(leaf) => Err(PrintError::Changed(format!("the end became {leaf}"))),
        }
    }
}

/// A string may be escaped in several ways: documentation is printed as a comment, and read back as a string.
fn is_same_string(a: &str, b: &str) -> bool {
    let value = |text: &str| syn::parse_str::<syn::LitStr>(text).ok().map(|string| string.value());
    value(a).is_some_and(|a| Some(a) == value(b))
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

impl Leaf {
    fn kind(&self) -> Kind {
        match self {
            Self::Ident(_) => Kind::Ident,
            Self::Punct(_) => Kind::Punct,
            Self::Literal(_) => Kind::Literal,
            Self::Open(_) => Kind::Open,
            Self::Close(_) => Kind::Close,
        }
    }

    /// Appends its text.
    fn write(&self, text: &mut String) {
        use fmt::Write;
        // Writing to a string cannot fail.
        let _ = match self {
            Self::Ident(ident) => write!(text, "{ident}"),
            Self::Punct(c) => text.write_char(*c),
            Self::Literal(literal) => write!(text, "{literal}"),
            Self::Open(Delimiter::Parenthesis) => text.write_char('('),
            Self::Open(Delimiter::Brace) => text.write_char('{'),
            Self::Open(Delimiter::Bracket) => text.write_char('['),
            Self::Close(Delimiter::Parenthesis) => text.write_char(')'),
            Self::Close(Delimiter::Brace) => text.write_char('}'),
            Self::Close(Delimiter::Bracket) => text.write_char(']'),
            Self::Open(Delimiter::None) | Self::Close(Delimiter::None) => Ok(()),
        };
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        write!(f, "`{text}`")
    }
}

/// The leaves of tokens, without what printing adds and takes away: commas and semicolons before a bracket closes, and commas
/// behind the arms of a `match` and brackets around what they, or closures, yield.
struct Leaves {
    open: Vec<Trees>,
    /// Whether markers are read as what the text has in their place.
    with_markers: bool,
}

/// What is between two brackets. Trees are taken out as they are read, so that none is copied.
struct Trees {
    trees: Peekable<vec::IntoIter<TokenTree>>,
    /// Whether they are the arms of a `match`.
    are_arms: bool,
    /// The two trees before the next one, where they are characters.
    before: [Option<char>; 2],
    /// Whether the next one is the first.
    at_start: bool,
    /// The bracket at the end, unless it does not count.
    close: Option<Delimiter>,
    /// Whether all of it is what a closure or an arm yields.
    is_result: bool,
}

impl Trees {
    fn new(tokens: TokenStream, close: Option<Delimiter>, is_result: bool) -> Self {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let are_arms = trees.windows(2).any(|pair| is_punct(&pair[0], "=") && is_punct(&pair[1], ">"));
        Self {
            trees: trees.into_iter().peekable(),
            are_arms,
            before: [None; 2],
            at_start: true,
            close,
            is_result,
        }
    }

    /// Whether a comma or a semicolon that was just read is the printer's business.
    fn is_optional(&mut self, separator: char) -> bool {
        match self.trees.peek() {
            None => true,
            // Generics have no brackets to the lexer.
            Some(next) => separator == ',' && (self.are_arms || is_punct(next, ">|")),
        }
    }

    /// The next tree, and whether it is what a closure or an arm yields.
    fn next(&mut self) -> Option<(TokenTree, bool)> {
        let tree = self.trees.next()?;
        let is_result = (self.at_start && self.is_result)
            || matches!(self.before, [_, Some('|')] | [Some('='), Some('>')]);
        let this = match &tree {
            TokenTree::Punct(punct) => Some(punct.as_char()),
            TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => None,
        };
        self.before = [self.before[1], this];
        self.at_start = false;
        Some((tree, is_result))
    }
}

/// Whether a tree is one of these characters.
fn is_punct(tree: &TokenTree, characters: &str) -> bool {
    matches!(tree, TokenTree::Punct(punct) if characters.contains(punct.as_char()))
}

impl Leaves {
    fn new(tokens: TokenStream, with_markers: bool) -> Self {
        Self { open: vec![Trees::new(tokens, None, false)], with_markers }
    }

    fn next(&mut self) -> Option<Leaf> {
        loop {
            let trees = self.open.last_mut()?;
            let Some((tree, is_result)) = trees.next() else {
                match self.open.pop()?.close {
                    Some(delimiter) => return Some(Leaf::Close(delimiter)),
                    None => continue,
                }
            };
            match tree {
                TokenTree::Punct(punct) => match punct.as_char() {
                    c @ (',' | ';') if trees.is_optional(c) => {}
                    c => return Some(Leaf::Punct(c)),
                },
                TokenTree::Literal(literal) => return Some(Leaf::Literal(literal)),
                TokenTree::Ident(ident) if self.with_markers && markers::is_comment(&ident) => {
                    // The exclamation mark, the parentheses, the semicolon.
                    for _ in 0..3 {
                        trees.next();
                    }
                }
                TokenTree::Ident(ident) if self.with_markers && markers::is_list(&ident) => {
                    let Some((TokenTree::Group(items), _)) = trees.next() else {
                        return Some(Leaf::Ident(ident));
                    };
                    let items = items.stream();
                    self.open.push(Trees::new(quote!(vec! #items), None, false));
                }
                TokenTree::Ident(ident) => return Some(Leaf::Ident(ident)),
                TokenTree::Group(group) => {
                    let delimiter = group.delimiter();
                    let counts = match delimiter {
                        Delimiter::None => false,
                        Delimiter::Bracket => true,
                        Delimiter::Brace | Delimiter::Parenthesis => !is_result,
                    };
                    let close = counts.then_some(delimiter);
                    let inner = group.stream();
                    // The stream is the only one of its trees then, which are taken from it and not copied.
                    drop(group);
                    self.open.push(Trees::new(inner, close, is_result && !counts));
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
        let expected = Expected::new(tokens).expect("identifiers");
        assert!(expected.verify(same).is_ok());
        for other in [
            same.replace("h()", "h(); evil()"),
            same.replace("h()", "\"h()\""),
            same.replace("vec![1, 2,]", "vec![1, 2, 3]"),
            same.replace("vec![1, 2,]", "vec![1 2]"),
            same.replace("Result<u8, u8,>", "Result<u8 u8>"),
            same.replace("vec![1, 2,]", "__kiln_list([1, 2])"),
            same.replace("\"so\"", "so"),
            same.replace("// said", "/* said"),
            format!("{same} fn g() {{}}"),
        ] {
            assert!(expected.verify(&other).is_err(), "{other}");
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
