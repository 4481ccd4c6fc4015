//! What generated source may hold: exactly the items that are generated, whatever names are in it.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::{ImplItem, Item, ItemMod, Type, UseTree};

/// Crates and modules that are imported from.
const ROOTS: &[&str] = &["kiln", "alloc", "core", "std", "super"];

/// Methods of the structs.
const METHODS: &[&str] = &[
    "default",
    "forward",
    "forward_async",
    "from_embedded",
    "from_file",
    "init",
    "new",
    "of_checkpoint",
    "try_forward",
    "try_forward_async",
];

/// Macros that generated source calls.
const MACROS: &[&str] = &[
    "assert",
    "concat",
    "env",
    "format",
    "from_checkpoints",
    "include_bytes",
    "include_record",
    "matches",
    "no_checkpoints",
    "panic",
    "unreachable",
    "vec",
];

/// Whether a source is a file of exactly the items that are generated, and holds no name of a file but in literals and comments and
/// as a checked identifier.
pub fn check_source(source: &str) {
    let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{error}:\n{source}"));
    assert!(file.attrs.is_empty(), "an attribute of the file:\n{source}");
    if let Err(unexpected) = check_items(&file.items) {
        panic!("{unexpected}:\n{source}");
    }
    check_tokens(source);
    // Terminals and people read the text too.
    assert!(!source.contains(|c| c != '\n' && kiln_types::is_invisible(c)), "{source:?}");
}

/// The structs and their methods, each once; the model's `Default`; its constants; the golden tests.
fn check_items(items: &[Item]) -> Result<(), String> {
    let mut methods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for item in items {
        if let Item::Struct(item) = item
            && methods.insert(item.ident.to_string(), BTreeSet::new()).is_some()
        {
            return Err(format!("two structs {}", item.ident));
        }
    }
    // What the derives name after structs.
    for item in items.iter().filter_map(|item| if let Item::Struct(item) = item { Some(item) } else { None })
    {
        for companion in ["Record", "RecordItem"].map(|companion| format!("{}{companion}", item.ident)) {
            if methods.contains_key(&companion) {
                return Err(format!("{companion} stands twice"));
            }
        }
    }
    let mut functions: BTreeSet<String> = BTreeSet::new();
    for item in items.iter().filter_map(|item| if let Item::Fn(item) = item { Some(item) } else { None }) {
        if !functions.insert(item.sig.ident.to_string()) {
            return Err(format!("two functions {}", item.sig.ident));
        }
    }
    for item in items.iter().filter_map(|item| if let Item::Fn(item) = item { Some(item) } else { None }) {
        for input in &item.sig.inputs {
            if let syn::FnArg::Typed(input) = input
                && let syn::Pat::Ident(parameter) = &*input.pat
                && functions.contains(&parameter.ident.to_string())
            {
                return Err(format!("{} hides a function", parameter.ident));
            }
        }
    }
    for item in items {
        match item {
            Item::Struct(_) | Item::Type(_) | Item::Fn(_) => {}
            Item::Use(item) if is_known(&item.tree) => {}
            Item::Const(item) if item.ident == "INPUTS" || item.ident == "STRINGS" => {}
            Item::Static(item) if item.ident == "RECORD" => {}
            Item::ExternCrate(item) if item.ident == "alloc" => {}
            Item::Mod(module) if module.ident == "golden" && items.len() == 1 => check_golden(module)?,
            Item::Impl(item) => {
                let Type::Path(path) = &*item.self_ty else { return Err("a block of no struct".to_owned()) };
                let name = path.path.segments.last().map(|segment| segment.ident.to_string());
                let Some(methods) = name.and_then(|name| methods.get_mut(&name)) else {
                    return Err("a block of another type".to_owned());
                };
                if item.trait_.as_ref().is_some_and(|(_, path, _)| !path.is_ident("Default")) {
                    return Err("another trait".to_owned());
                }
                for item in &item.items {
                    match item {
                        ImplItem::Fn(method)
                            if METHODS.iter().any(|name| method.sig.ident == name)
                                && methods.insert(method.sig.ident.to_string()) => {}
                        ImplItem::Macro(_) => {}
                        _ => return Err("another method".to_owned()),
                    }
                }
            }
            _ => return Err("another item".to_owned()),
        }
    }
    Ok(())
}

/// Whether all that is imported is of a crate that is known.
fn is_known(tree: &UseTree) -> bool {
    match tree {
        UseTree::Path(path) => ROOTS.iter().any(|root| path.ident == root),
        UseTree::Group(group) => group.items.iter().all(is_known),
        UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_) => false,
    }
}

/// Nothing but imports and tests.
fn check_golden(module: &ItemMod) -> Result<(), String> {
    for item in module.content.iter().flat_map(|(_, items)| items) {
        match item {
            Item::Use(item) if is_known(&item.tree) => {}
            Item::Fn(test) if test.attrs.len() == 1 && test.attrs[0].path().is_ident("test") => {}
            _ => return Err("another item among the golden tests".to_owned()),
        }
    }
    Ok(())
}

/// No identifier is one of a name's own, and no macro is called but those of generated source.
fn check_tokens(source: &str) {
    let tokens: TokenStream = source.parse().expect("it has tokens: it was parsed");
    let mut left = vec![tokens];
    while let Some(tokens) = left.pop() {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, tree) in trees.iter().enumerate() {
            match tree {
                TokenTree::Group(group) => left.push(group.stream()),
                TokenTree::Ident(ident) => {
                    let ident = ident.to_string();
                    assert!(ident.is_ascii() && !ident.starts_with("__"), "{ident} became code:\n{source}");
                    let is = |at: usize, c: char| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
                    let called = is(at + 1, '!') && matches!(trees.get(at + 2), Some(TokenTree::Group(_)));
                    assert!(!called || MACROS.contains(&ident.as_str()), "{ident}! is called:\n{source}");
                }
                TokenTree::Literal(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}
