//! Identifiers of generated source.
//!
//! Every name that comes from a file passes through here and leaves as a plain ASCII identifier, so nothing in a file
//! can reach the source as anything else.

pub use kiln_importer::ir::{is_anonymous, names_an_operation};

use kiln_types::is_invisible;
use kiln_types::layers::LAYERS;
use proc_macro2::{Ident, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Longer names are cut: a name is for reading.
const MAX_LENGTH: usize = 40;

/// Types, traits and variants that generated source uses for other things, by import or from Rust's prelude.
const TYPES: &[&str] = &[
    "Array",
    "AsMut",
    "AsRef",
    "B",
    "Backend",
    "BinFileRecorder",
    "Bool",
    "Box",
    "Clone",
    "Config",
    "Copy",
    "DType",
    "Debug",
    "Default",
    "Drop",
    "Enum",
    "Eq",
    "Err",
    "Extend",
    "Float",
    "Fn",
    "FnMut",
    "FnOnce",
    "Format",
    "From",
    "FullPrecisionSettings",
    "HalfPrecisionSettings",
    "Initializer",
    "InputDim",
    "InputError",
    "InputSpec",
    "Int",
    "Into",
    "IntoIterator",
    "Iterator",
    "Module",
    "None",
    "Ok",
    "Option",
    "Ord",
    "Param",
    "ParamId",
    "PartialEq",
    "PartialOrd",
    "Path",
    "Recorder",
    "RecorderError",
    "Result",
    "Self",
    "Send",
    "Sized",
    "Some",
    "String",
    "Struct",
    "Sync",
    "Tensor",
    "TensorData",
    "ToOwned",
    "ToString",
    "Tuple",
    "TryFrom",
    "TryInto",
    "Unpin",
    "Vec",
];

/// What derives and generated source put behind a struct's name to name others that go with it.
const COMPANIONS: &[&str] = &["Config", "Record", "RecordItem"];

/// Words that cannot be identifiers, or would be confusing ones.
const RESERVED: &[&str] = &[
    "abstract", "as", "async", "await", "become", "bool", "box", "break", "char", "const", "continue",
    "crate", "do", "dyn", "else", "enum", "extern", "f32", "f64", "false", "final", "fn", "for", "gen",
    "i64", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv",
    "pub", "ref", "return", "self", "static", "str", "struct", "super", "trait", "true", "try", "type",
    "typeof", "u8", "union", "unsafe", "unsized", "usize", "use", "vec", "virtual", "where", "while",
    "yield",
];

/// Visits the words of a name, runs of ASCII letters and digits, split where case rises, while `f` wants more.
fn each_word(text: &str, f: &mut dyn FnMut(&str) -> bool) {
    let mut word = String::new();
    let mut previous = ' ';
    let mut characters = text.chars().take(8 * MAX_LENGTH).peekable();
    while let Some(c) = characters.next() {
        let next_lower = characters.peek().is_some_and(char::is_ascii_lowercase);
        let rises = c.is_ascii_uppercase()
            && (previous.is_ascii_lowercase()
                || (previous.is_ascii_digit() && next_lower)
                || (previous.is_ascii_uppercase() && next_lower));
        if (rises || !c.is_ascii_alphanumeric()) && !word.is_empty() {
            if !f(&word) {
                return;
            }
            word.clear();
        }
        if c.is_ascii_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        }
        previous = c;
    }
    if !word.is_empty() {
        f(&word);
    }
}

/// A `snake_case` identifier for a name, or `fallback` (which must be one) when nothing is left of it.
pub fn snake(text: &str, fallback: &str) -> String {
    let mut name = String::new();
    each_word(text, &mut |word| {
        if name.len() + word.len() > MAX_LENGTH {
            if name.is_empty() {
                name.extend(word.chars().take(MAX_LENGTH));
            }
            return false;
        }
        if !name.is_empty() {
            name.push('_');
        }
        name.push_str(word);
        true
    });
    if name.is_empty() {
        return fallback.to_owned();
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name = format!("{fallback}_{name}");
    }
    if RESERVED.contains(&name.as_str()) {
        name.push('_');
    }
    name
}

/// What one of the things in a field is called.
pub fn singular(field: &str) -> String {
    let field = field.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
    // Branches, boxes and losses.
    let has_es = ["nches", "tches", "shes", "sses", "xes"].iter().any(|end| field.ends_with(end));
    if let Some(stem) = field.strip_suffix("ies").filter(|_| !field.ends_with("series")) {
        return snake(&format!("{stem}y"), "block");
    }
    match field.strip_suffix(if has_es { "es" } else { "s" }) {
        Some(stem) if stem.len() > 2 && (has_es || !stem.ends_with('s')) => snake(stem, "block"),
        _ if field.len() < 3 => "block".to_owned(),
        _ => snake(field, "block"),
    }
}

/// Names of devices, which Windows gives to no file, whatever its extension.
const DEVICES: &[&str] = &["aux", "con", "nul", "prn"];

/// The name of a module and of its file for a file's name: up to the first dot, without what no module's name has.
pub fn module_name(file: &str) -> String {
    let stem = file.split('.').next().unwrap_or_default();
    let mut name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.chars().all(|c| c == '_') {
        return "model".to_owned();
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert_str(0, "model_");
    }
    let lower = name.to_ascii_lowercase();
    let numbered = lower.strip_prefix("com").or_else(|| lower.strip_prefix("lpt"));
    let is_device = DEVICES.contains(&lower.as_str())
        || numbered.is_some_and(|number| number.len() == 1 && number.bytes().all(|b| b.is_ascii_digit()));
    if is_device || RESERVED.contains(&name.as_str()) || name == "Self" {
        name.push('_');
    }
    name
}

/// A `PascalCase` identifier for a name, or `fallback` when nothing is left of it. Inner capitals stay as they are.
pub fn pascal(text: &str, fallback: &str) -> String {
    let mut name = String::new();
    for part in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        let mut characters = part.chars();
        if let Some(first) = characters.next() {
            name.push(first.to_ascii_uppercase());
            name.extend(characters);
        }
        if name.len() > MAX_LENGTH {
            break;
        }
    }
    name.truncate(MAX_LENGTH);
    if name.is_empty() {
        return fallback.to_owned();
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name = format!("{fallback}{name}");
    }
    if name.len() > 1 && !name.contains(|c: char| c.is_ascii_lowercase()) {
        // An acronym: `LSTM` as `Lstm`.
        name =
            name.chars().enumerate().map(|(i, c)| if i == 0 { c } else { c.to_ascii_lowercase() }).collect();
    }
    if name == "Self" {
        name.push_str("Module");
    }
    name
}

/// The name of the function beside another that does the same without blocking the thread.
pub fn twin(function: &str) -> String {
    format!("{function}_async")
}

/// Names that are taken in one scope.
#[derive(Clone, Debug, Default)]
pub struct Names {
    taken: BTreeSet<String>,
    /// The number that the last name of each kind got.
    numbers: BTreeMap<String, usize>,
    /// What to do to go back, in order.
    journal: Vec<Change>,
}

/// A change of [`Names`], to be taken back.
#[derive(Clone, Debug)]
enum Change {
    Taken(String),
    Number(String, usize),
}

impl Names {
    /// A scope in which these are taken.
    pub fn with(taken: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { taken: taken.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Takes a name, with a number behind it when it is not free.
    pub fn fresh(&mut self, wanted: &str) -> String {
        let (name, number) = self.next(wanted);
        if let Some(number) = number {
            let before = self.numbers.insert(wanted.to_owned(), number).unwrap_or(1);
            self.journal.push(Change::Number(wanted.to_owned(), before));
        }
        self.taken.insert(name.clone());
        self.journal.push(Change::Taken(name.clone()));
        name
    }

    /// Takes a name for a function, and that of its asynchronous twin with it.
    pub fn fresh_with_twin(&mut self, wanted: &str) -> String {
        loop {
            // One that something stands in the way of stays taken: nothing else wants it.
            let name = self.fresh(wanted);
            let twin = twin(&name);
            if !self.contains(&twin) {
                self.fresh(&twin);
                return name;
            }
        }
    }

    /// The name that [`fresh`](Self::fresh) would take.
    pub fn free(&self, wanted: &str) -> String {
        self.next(wanted).0
    }

    fn next(&self, wanted: &str) -> (String, Option<usize>) {
        if !self.taken.contains(wanted) {
            return (wanted.to_owned(), None);
        }
        let separator = if wanted.ends_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
        let mut number = self.numbers.get(wanted).copied().unwrap_or(1);
        loop {
            number += 1;
            let name = format!("{wanted}{separator}{number}");
            if !self.taken.contains(&name) {
                return (name, Some(number));
            }
        }
    }

    /// Gives a name back.
    pub fn give_back(&mut self, name: &str) {
        self.taken.remove(name);
    }

    /// Whether a name is taken.
    pub fn contains(&self, name: &str) -> bool {
        self.taken.contains(name)
    }

    /// Where to [go back](Self::go_back) to.
    pub fn mark(&self) -> usize {
        self.journal.len()
    }

    /// Gives back all names that were taken since a mark.
    pub fn go_back(&mut self, mark: usize) {
        for change in self.journal.drain(mark..).rev() {
            match change {
                Change::Taken(name) => {
                    self.taken.remove(&name);
                }
                Change::Number(wanted, number) => {
                    self.numbers.insert(wanted, number);
                }
            }
        }
    }
}

/// Names of structs in one scope. What goes with a struct is taken with it: its record, its config.
#[derive(Clone, Debug)]
pub struct TypeNames(Names);

impl Default for TypeNames {
    /// A scope in which only what all generated source uses is taken. By their names the runtime tells layers (`kiln_types::layers`), so that no other struct
    /// has one of those.
    fn default() -> Self {
        let layers = LAYERS.iter().map(|layer| layer.name);
        Self(Names::with(TYPES.iter().copied().chain(layers)))
    }
}

impl TypeNames {
    fn companions(name: &str) -> impl Iterator<Item = String> {
        COMPANIONS.iter().map(move |companion| format!("{name}{companion}"))
    }

    /// Takes a name that nothing goes with: of an import, of a type of results.
    pub fn fresh_alone(&mut self, wanted: &str) -> String {
        self.0.fresh(wanted)
    }

    /// Whether a struct may have a name.
    pub fn is_free(&self, name: &str) -> bool {
        !self.0.contains(name) && Self::companions(name).all(|companion| !self.0.contains(&companion))
    }

    /// Takes a name for a struct: the wanted one, `Module` behind it where that is a layer's, or a number.
    pub fn fresh(&mut self, wanted: &str) -> String {
        let is_layer = LAYERS.iter().any(|layer| layer.name == wanted);
        let wanted = if is_layer { format!("{wanted}Module") } else { wanted.to_owned() };
        loop {
            // One that something stands in the way of stays taken: nothing else wants it.
            let name = self.0.fresh(&wanted);
            if Self::companions(&name).all(|companion| !self.0.contains(&companion)) {
                for companion in Self::companions(&name) {
                    self.0.fresh(&companion);
                }
                return name;
            }
        }
    }
}

/// What stands where an identifier should, and none was given; no name becomes it.
pub(crate) const INVALID: &str = "__kiln_invalid";

/// An identifier as a token. What is none, which would be a defect of Kiln's, becomes a marker that printing refuses.
pub fn ident(name: &str) -> Ident {
    let plain = !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if plain {
        return Ident::new(name, Span::call_site());
    }
    let invalid = |_| Ident::new(INVALID, Span::call_site());
    syn::parse_str(name).unwrap_or_else(invalid)
}

/// Words that name a layer's kind rather than what it yields.
const KINDS: &[&str] = &[
    "act",
    "activation",
    "attn",
    "attention",
    "block",
    "bn",
    "classifier",
    "cls",
    "conv",
    "dense",
    "downsample",
    "dropout",
    "fc",
    "features",
    "head",
    "layer",
    "layer_norm",
    "layernorm",
    "linear",
    "ln",
    "mlp",
    "norm",
    "out",
    "output",
    "proj",
    "quantized_add",
    "quantized_mul",
    "quantizer",
    "self",
];

/// Whether a word names a layer's kind: `norm`, `final_layer_norm`, `c_proj`.
pub fn names_a_kind(word: &str) -> bool {
    KINDS.contains(&word) || word.rsplit('_').next().is_some_and(|last| KINDS.contains(&last))
}

/// Text from a file for a comment: one line, printable, of bearable length.
pub fn comment(text: &str) -> String {
    let mut clean: String = text
        .chars()
        .take(96)
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '`') { ' ' } else { c })
        // What reorders text on screen rustc refuses, and rightly; nobody sees the others.
        .filter(|c| !is_invisible(*c))
        .collect();
    clean = clean.replace("*/", "* /").replace("/*", "/ *");
    if text.chars().count() > 96 {
        clean.push('…');
    }
    clean.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_an_identifier() {
        let cases = [
            ("", "x"),
            ("input.1", "input_1"),
            ("1st", "x_1st"),
            ("type", "type_"),
            ("a\"b\nc", "a_b_c"),
            ("LayerNorm", "layer_norm"),
            ("conv2dBN", "conv2d_bn"),
            ("日本", "x"),
            ("*/ fn main() {}", "fn_main"),
            ("self", "self_"),
            ("../../etc/passwd", "etc_passwd"),
        ];
        for (text, expected) in cases {
            assert_eq!(snake(text, "x"), expected, "{text:?}");
            assert!(syn::parse_str::<Ident>(&snake(text, "x")).is_ok());
        }
        assert_eq!(snake(&"a".repeat(10_000), "x").len(), MAX_LENGTH);
        assert_eq!(pascal("transformers.BertLayer", "Module"), "TransformersBertLayer");
        assert_eq!(pascal("9", "Module"), "Module9");
    }

    #[test]
    fn no_other_text_becomes_an_identifier() {
        for name in ["", "1a", "a b", "a::b", "\"", "__intruder!()", "🦀"] {
            let name = ident(name);
            let printed = crate::print::print("", quote::quote!(fn #name() {}));
            assert!(matches!(printed, Err(crate::print::PrintError::Identifier)), "{name}");
        }
        for name in ["_", "self", "größe", "x1"] {
            assert_eq!(ident(name), name);
        }
    }

    #[test]
    fn any_file_can_be_a_module() {
        let cases = [
            ("model.onnx", "model"),
            ("ResNet-18.v2.pt", "ResNet_18"),
            ("18.pt", "model_18"),
            ("type.safetensors", "type_"),
            ("Self.pt", "Self_"),
            ("CON.pt", "CON_"),
            ("com1.bin", "com1_"),
            ("lpt9", "lpt9_"),
            ("com10.pt", "com10"),
            ("..", "model"),
            ("日本.pt", "model"),
            ("_.pt", "model"),
            ("a\n\"b", "a__b"),
        ];
        for (file, expected) in cases {
            assert_eq!(module_name(file), expected, "{file:?}");
            assert!(syn::parse_str::<Ident>(&module_name(file)).is_ok());
        }
    }

    #[test]
    fn one_of_several_is_a_word_that_may_be_a_name() {
        let cases = [
            ("layers", "layer"),
            ("branches2", "branch"),
            ("bodies", "body"),
            ("h", "block"),
            ("loss", "loss"),
        ];
        for (field, expected) in cases {
            assert_eq!(singular(field), expected);
        }
        for word in RESERVED {
            for plural in [format!("{word}s"), format!("{word}es"), format!("{word}_"), format!("{word}s_1")]
            {
                let one = singular(&snake(&plural, "x"));
                assert!(
                    syn::parse_str::<Ident>(&one).is_ok() && !RESERVED.contains(&one.as_str()),
                    "{plural}: {one}"
                );
            }
        }
    }

    #[test]
    fn what_goes_with_a_struct_is_taken_with_it() {
        let mut types = TypeNames::default();
        let names = ["Foo", "FooRecord", "Foo", "BarRecordItem", "Bar", "Vec", "AsRef", "Linear", "Linear"];
        let taken = names.map(|name| types.fresh(name));
        assert_eq!(
            taken,
            [
                "Foo",
                "FooRecord2",
                "Foo2",
                "BarRecordItem",
                "Bar2",
                "Vec2",
                "AsRef2",
                "LinearModule",
                "LinearModule2"
            ]
        );
        assert!(!types.is_free("Foo2Config") && !types.is_free("Lstm") && types.is_free("Baz"));
    }

    #[test]
    fn a_twin_is_taken_with_its_function() {
        let mut names = Names::with(["look_async"]);
        let taken = ["pick", "pick_async", "look", "pick"].map(|name| names.fresh_with_twin(name));
        assert_eq!(taken, ["pick", "pick_async2", "look2", "pick2"]);
        assert!(["pick2_async", "pick_async2_async"].iter().all(|name| names.contains(name)));
        let mut names = Names::default();
        assert_eq!(["pick_async", "pick"].map(|name| names.fresh_with_twin(name)), ["pick_async", "pick2"]);
    }

    #[test]
    fn names_stay_apart() {
        let mut names = Names::with(["x"]);
        assert_eq!(names.fresh("x"), "x2");
        assert_eq!(names.fresh("conv1"), "conv1");
        assert_eq!(names.fresh("conv1"), "conv1_2");
        let mark = names.mark();
        assert_eq!([names.free("x"), names.fresh("x"), names.fresh("x")], ["x3", "x3", "x4"]);
        names.go_back(mark);
        assert_eq!(names.fresh("x"), "x3");
    }
}
