//! Names that try to become code, where they stand in a model, and what source may hold all the same. Tests and the fuzz target
//! share them.

use kiln_importer::onnx::proto::*;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeMap;

/// What names are made of: markers of the printer, ends of literals and comments, keywords, separators; and `__intruder`, an identifier
/// that no name becomes, since what is made of names has no underscore in front.
pub const FRAGMENTS: &[&str] = &[
    "__kiln_list([",
    "__kiln_list([])",
    "__kiln_tail!(\"",
    "__kiln_result!(\"",
    "__kiln_blank!();",
    "])",
    "]])",
    "\"]), __intruder!(), vec![(\"",
    "\"); __intruder!(); //",
    "*/ __intruder!(); /*",
    "\n__intruder!();\n",
    "\r",
    "__intruder",
    "\"",
    "'",
    "\\",
    "\\\"",
    "\"#",
    "`",
    "```",
    "//",
    "/*",
    "{",
    "}",
    "{}",
    "{__intruder}",
    "(",
    ")",
    "[",
    "#![",
    ";",
    ",",
    ".",
    "/",
    "::",
    "\0",
    "\u{1b}[2J",
    "\u{9b}",
    "\u{2028}",
    "\u{202e}",
    "é",
    "r#",
    "type",
    "Self",
    "self",
    "crate",
    "fn",
    "Vec",
    "Tensor",
    "layer.0.weight",
    "layer.1.weight",
    "bias",
    "9",
    "%s",
    " ",
];

/// New names for all of a model, the same for the same.
pub struct Renaming<'a> {
    names: &'a [String],
    given: BTreeMap<String, String>,
}

impl<'a> Renaming<'a> {
    /// Names are taken from these in turn, with numbers that keep them apart.
    pub fn new(names: &'a [String]) -> Self {
        Self { names, given: BTreeMap::new() }
    }

    fn text(&self, n: usize) -> String {
        self.names.get(n % self.names.len().max(1)).cloned().unwrap_or_default()
    }

    fn name(&mut self, name: &mut String) {
        if !name.is_empty() {
            let n = self.given.len();
            let new = format!("{}{n}", self.text(n));
            *name = self.given.entry(name.clone()).or_insert(new).clone();
        }
    }

    /// Renames everything that has a name.
    pub fn model(&mut self, model: &mut ModelProto) {
        let functions: Vec<(String, String)> =
            model.functions.iter().map(|function| (function.domain.clone(), function.name.clone())).collect();
        let domains: Vec<String> = functions.iter().map(|(domain, _)| domain.clone()).collect();
        for import in model.opset_import.iter_mut().filter(|import| domains.contains(&import.domain)) {
            self.name(&mut import.domain);
        }
        for function in &mut model.functions {
            for import in function.opset_import.iter_mut().filter(|import| domains.contains(&import.domain)) {
                self.name(&mut import.domain);
            }
            self.name(&mut function.domain);
            self.name(&mut function.name);
            function.input.iter_mut().chain(&mut function.output).for_each(|name| self.name(name));
            function.node.iter_mut().for_each(|node| self.node(node, &functions));
        }
        model.graph.iter_mut().for_each(|graph| self.graph(graph, &functions));
    }

    fn graph(&mut self, graph: &mut GraphProto, functions: &[(String, String)]) {
        self.name(&mut graph.name);
        graph.initializer.iter_mut().for_each(|tensor| self.name(&mut tensor.name));
        for port in graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info) {
            self.name(&mut port.name);
            let ty = port.r#type.as_mut().and_then(|ty| ty.value.as_mut());
            if let Some(TypeValue::Tensor(TensorTypeProto { shape: Some(shape), .. })) = ty {
                for dim in &mut shape.dim {
                    if let Some(DimensionValue::Param(name)) = &mut dim.value {
                        self.name(name);
                    }
                }
            }
        }
        graph.node.iter_mut().for_each(|node| self.node(node, functions));
    }

    fn node(&mut self, node: &mut NodeProto, functions: &[(String, String)]) {
        if functions.iter().any(|(domain, name)| *domain == node.domain && *name == node.op_type) {
            self.name(&mut node.domain);
            self.name(&mut node.op_type);
        }
        self.name(&mut node.name);
        node.input.iter_mut().chain(&mut node.output).for_each(|name| self.name(name));
        // A list of texts, as Python writes it.
        let n = self.given.len();
        let texts = (0..1 + n % 4).map(|i| format!("{:?}", self.text(n / 7 + i)));
        let list = format!("[{}]", texts.collect::<Vec<_>>().join(", "));
        node.metadata_props.iter_mut().for_each(|entry| entry.value.clone_from(&list));
        for attribute in &mut node.attribute {
            let graph = attribute.g.as_deref_mut().into_iter();
            graph.chain(&mut attribute.graphs).for_each(|graph| self.graph(graph, functions));
        }
    }
}

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

/// Whether a source is a file of the items that are generated, and holds no name of a file but in literals and comments and as a
/// checked identifier.
pub fn check_source(source: &str) {
    let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{error}:\n{source}"));
    for item in &file.items {
        let expected = match item {
            syn::Item::Use(_)
            | syn::Item::Struct(_)
            | syn::Item::Impl(_)
            | syn::Item::Fn(_)
            | syn::Item::Const(_)
            | syn::Item::Static(_)
            | syn::Item::Type(_)
            | syn::Item::Enum(_) => true,
            syn::Item::Mod(module) => module.ident == "golden",
            syn::Item::ExternCrate(extern_crate) => extern_crate.ident == "alloc",
            _ => false,
        };
        assert!(expected, "an item that is not generated:\n{source}");
    }
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
    // Terminals and people read the text too.
    assert!(!source.contains(|c| c != '\n' && kiln_types::is_invisible(c)), "{source:?}");
}
