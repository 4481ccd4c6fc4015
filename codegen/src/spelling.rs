//! How Rust writes calls of the runtime.
//!
//! The IR says which function is called with which arguments. What a programmer knows beside is known here: what is an
//! operator, what makes a tensor of the type that is asked for, what is borrowed, which values have names. Nothing here knows
//! an operator of ONNX, or what a function does.

use kiln_importer::ir::Arg;
use kiln_types::{Activation, AttentionOptions};

/// How a function is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `path(args)`.
    Function,
    /// `receiver.name(args)`.
    Method,
    /// `a op b`.
    Infix(&'static str),
    /// `op a`.
    Prefix(&'static str),
    /// `Tensor::<B, 2>::name(args)`, for the tensor that the node yields; most are told on which device.
    Maker { device: bool },
}

/// How a function of the runtime is written: paths are functions, bare names are methods of tensors.
pub fn form(function: &str) -> Form {
    match function {
        "add" => Form::Infix("+"),
        "sub" => Form::Infix("-"),
        "mul" => Form::Infix("*"),
        "div" => Form::Infix("/"),
        "neg" => Form::Prefix("-"),
        "zeros" | "ones" | "full" | "arange" | "arange_step" | "from_ints" | "random" => {
            Form::Maker { device: true }
        }
        "elementwise" => Form::Maker { device: false },
        path if path.contains("::") => Form::Function,
        _ => Form::Method,
    }
}

/// The function that takes a list of tensors where a function takes an array of them.
pub fn of_list(function: &str) -> Option<&'static str> {
    match function {
        "tensor::module::cat" => Some("tensor::Tensor::cat"),
        _ => None,
    }
}

/// A type whose values may differ between modules of one struct, with the name of a constructor's parameter for them.
pub struct Choice {
    pub ty: &'static str,
    pub parameter: &'static str,
}

/// The type of choices that a variant belongs to, if it does.
pub fn choice(variant: &str) -> Option<Choice> {
    const CHOICES: [Choice; 1] = [Choice { ty: "tensor::Activation", parameter: "activation" }];
    CHOICES
        .into_iter()
        .find(|choice| variant.strip_prefix(choice.ty).is_some_and(|rest| rest.starts_with("::")))
}

/// What the runtime calls a value, if it has a name for it: a constant's path, or that of a function without arguments.
pub enum Known {
    Constant(&'static str),
    Function(&'static str),
}

/// The name of a value.
pub fn known(ty: &str, value: &Arg) -> Option<Known> {
    let named = |path, of: Arg| same(value, &of).then_some(Known::Constant(path));
    match ty {
        "tensor::Activation::Clamp" => named("tensor::Activation::RELU6", Arg::options(&Activation::RELU6)),
        "tensor::Activation::HardSigmoid" => {
            named("tensor::Activation::HARD_SIGMOID", Arg::options(&Activation::HARD_SIGMOID))
        }
        "tensor::AttentionOptions" => (*value == Arg::options(&AttentionOptions::default()))
            .then_some(Known::Function("tensor::AttentionOptions::default")),
        _ => None,
    }
}

/// Whether two values are the same but for what rounding to f32, as files have their numbers, took away.
fn same(a: &Arg, b: &Arg) -> bool {
    match (a, b) {
        (Arg::Float(a), Arg::Float(b)) => *a as f32 == *b as f32,
        (Arg::Struct(a, left), Arg::Struct(b, right)) => {
            let fields = left.iter().zip(right).all(|((a, x), (b, y))| a == b && same(x, y));
            a == b && left.len() == right.len() && fields
        }
        (a, b) => a == b,
    }
}

/// The variable of a chain's operand: `a`, `b`, … `h`, `x8`, ….
pub fn operand(n: usize) -> String {
    const LETTERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    LETTERS.get(n).map_or_else(|| format!("x{n}"), |letter| (*letter).to_owned())
}

/// A path as it is imported and as it is written then.
pub struct Import<'p> {
    /// The module of the runtime.
    pub module: Vec<&'p str>,
    /// What is imported of it.
    pub name: &'p str,
    /// The segments that are written.
    pub written: Vec<&'p str>,
}

fn is_type(segment: &str) -> bool {
    segment.starts_with(|c: char| c.is_ascii_uppercase())
}

/// How a path of the runtime is imported: types by name, functions through their module: `activation::relu`.
pub fn import(path: &str) -> Option<Import<'_>> {
    let segments: Vec<&str> = path.split("::").collect();
    let ty = segments.iter().position(|segment| is_type(segment));
    let at = match ty {
        Some(0) => return None,
        Some(at) => at,
        None => segments.len().checked_sub(2)?,
    };
    Some(Import { module: segments[..at].to_vec(), name: segments[at], written: segments[at..].to_vec() })
}

/// The name that a path brings into scope.
pub fn imported_name(path: &str) -> Option<&str> {
    import(path).map(|import| import.name)
}
