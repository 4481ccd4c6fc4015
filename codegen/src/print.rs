//! Tokens into text: formatted, with comments and lists in place of their markers, and checked.
//!
//! The printer formats what is Rust syntax to it, which comments and `vec![…]` are not. Markers stand for them (`markers`) and are
//! replaced where they are *tokens* of the printed text: what a string or a comment says, which a model's file may have said, is
//! never looked at. At the end the text is parsed again, and must hold the tokens that it was printed from (`verify`).

mod lexer;
pub mod markers;
mod verify;

use proc_macro2::TokenStream;
use quote::ToTokens;
use verify::Expected;

/// Why tokens did not become text. Each is a defect of Kiln's.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    /// The tokens are no Rust file.
    #[error("generated code does not parse: {0}")]
    Syntax(#[from] syn::Error),
    /// A name that should be an identifier is none.
    #[error("a name in generated code is no identifier")]
    Identifier,
    /// The text has other tokens than those it was printed from.
    #[error("printing changed the source: {0}")]
    Changed(String),
}

/// The text of a file, below a head of comments.
pub fn print(head: &str, tokens: TokenStream) -> Result<String, PrintError> {
    print_file(head, syn::parse2(tokens)?)
}

/// The text of a file whose syntax tree is there, below a head of comments.
pub fn print_file(head: &str, file: syn::File) -> Result<String, PrintError> {
    let expected = Expected::new(file.to_token_stream())?;
    let text = format!("{head}{}", markers::replace(&prettyplease::unparse(&file)));
    drop(file);
    expected.verify(&text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::literals;
    use quote::quote;

    #[test]
    fn names_in_strings_are_no_markers() {
        let names = [
            "__kiln_list([]",
            "])",
            "\"]) + evil() //",
            "__kiln_tail!(\"x\");",
            "__kiln_blank!();",
            "*/",
            "a\nb",
        ];
        let items: Vec<_> = names.iter().map(|name| literals::string(name)).collect();
        let (list, tail) = (markers::list(&items), markers::tail("__kiln_list([ \" */"));
        let tokens = quote! { fn f() { let x = #list; #tail let y = (#(#items),*); } };
        let text = print("", tokens).expect("it prints");
        for name in names {
            assert_eq!(text.matches(&literals::string(name).to_string()).count(), 2, "{text}");
        }
        assert!(text.contains("vec![\n") && text.contains("]; // __kiln_list([ \" */\n"), "{text}");
    }
}
