//! Steps and memory into Rust source: the last stage.

mod golden;
mod loops;
mod model;

pub use golden::{GoldenTest, golden_tests};

use crate::error::StandaloneError;
use crate::library;
use crate::memory::Memory;
use crate::program::{Origin, Program, Step, TensorId};
use crate::spelling::{float, int, number};
use crate::weights::Weights;
use kiln_codegen::literals;
use kiln_codegen::names::{self, Names, ident};
use kiln_codegen::print::markers;
use kiln_importer::ir::{KernelArg, Loops, activation_call, is_anonymous, scalars};
use kiln_types::{DType, Scalar};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use std::collections::BTreeSet;

/// What is known while a file is written.
pub(crate) struct Emitter<'p, 'g> {
    pub(crate) program: &'p Program<'g>,
    pub(crate) memory: &'p Memory,
    pub(crate) weights: Weights,
    /// The variable of each tensor that has one by now.
    variables: Vec<Option<Ident>>,
    names: Names,
    inputs: Vec<Ident>,
    /// The inputs that some step reads.
    read: BTreeSet<usize>,
    /// The struct's fields, one for each buffer.
    fields: Vec<Ident>,
    /// What the operand that is written is to its module: `fc_weight`.
    role: String,
}

/// What of a step's tensors its arguments have not used yet.
struct Given<'s> {
    scratch: std::slice::Iter<'s, TensorId>,
    known: std::slice::Iter<'s, TensorId>,
}

/// Names in loops, which no tensor may have.
const TAKEN: [&str; 17] =
    ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "y", "folded", "WEIGHTS"];

impl<'p, 'g> Emitter<'p, 'g> {
    pub(crate) fn new(program: &'p Program<'g>, memory: &'p Memory) -> Self {
        let graph = program.graph;
        let temporaries = (1..=u8::MAX).map(|n| format!("t{n}"));
        let in_loops = loops::numbered_names();
        let taken = TAKEN.into_iter().chain(library::names()).map(str::to_owned);
        let taken = taken.chain(temporaries).chain(in_loops);
        let mut names = Names::with(taken);
        let input = |&value| ident(&names.fresh(&names::snake(&graph.value(value).name, "input")));
        let inputs = graph.inputs.iter().map(input).collect();
        // The one operand's element in a loop, which may hide an input but not what the loop writes.
        if !names.contains("x") {
            names.fresh("x");
        }
        let mut count = 0;
        let field = |buffer: &crate::memory::Buffer| {
            let wanted = match buffer.output {
                Some(n) => names::snake(graph.output_names.get(n).map_or("output", String::as_str), "output"),
                None => {
                    count += 1;
                    format!("buffer{count}")
                }
            };
            ident(&names.fresh(&wanted))
        };
        let fields = memory.buffers.iter().map(field).collect();
        let variables = vec![None; program.tensors.len()];
        Self {
            program,
            memory,
            weights: Weights::default(),
            variables,
            names,
            inputs,
            read: BTreeSet::new(),
            fields,
            role: String::new(),
        }
    }

    /// The statements of a step, and what stands behind the last of them as a comment.
    fn step(&mut self, step: &Step) -> Result<TokenStream, StandaloneError> {
        let mut statements = TokenStream::new();
        for &tensor in step.results.iter().chain(&step.scratch) {
            if !step.is_in_place {
                statements.extend(self.variable(step, tensor)?);
            }
        }
        statements.extend(match &step.loops {
            Loops::Same => TokenStream::new(),
            Loops::Reduction(reduction) => self.reduction(step, reduction)?,
            Loops::Elementwise(loops) => loops
                .iter()
                .map(|element_loop| self.element_loop(step, element_loop))
                .collect::<Result<TokenStream, _>>()?,
            Loops::Kernel(kernel) => {
                let function = ident(kernel.function);
                let mut given = Given { scratch: step.scratch.iter(), known: step.known.iter() };
                let mut args = Vec::new();
                for arg in &kernel.args {
                    args.push(self.argument(step, arg, &mut given)?);
                }
                for &result in &step.results {
                    args.push(self.elements(result)?);
                }
                quote!(#function(#(#args),*);)
            }
        });
        let tail = markers::tail(&self.comment(step));
        statements.extend(tail.to_token_stream());
        Ok(statements)
    }

    /// `let conv1 = &mut buffer1[..5408];`
    fn variable(&mut self, step: &Step, tensor: TensorId) -> Result<TokenStream, StandaloneError> {
        let at = self.memory.buffer(tensor).ok_or(StandaloneError::Missing("a buffer"))?;
        let (field, len) = (&self.fields[at], self.program.tensors[tensor].len);
        let part = if len == self.memory.buffers[at].len { quote!(..) } else { range_to(len) };
        let wanted = match self.program.tensors[tensor].value {
            Some(_) => self.wanted_name(step),
            None => "scratch".to_owned(),
        };
        let name = ident(&self.names.fresh(&wanted));
        self.variables[tensor] = Some(name.clone());
        Ok(quote!(let #name = &mut #field[#part];))
    }

    /// What the result of a step is called: after its module in the original network, or its operator.
    fn wanted_name(&self, step: &Step) -> String {
        let Some(node) = step.node.map(|node| self.program.graph.node(node)) else {
            return "copy".to_owned();
        };
        let path = node.origin.scope.last().map_or("", |scope| scope.path.as_str());
        let operator = node.origin.operator.rsplit(['.', ':']).next().unwrap_or_default();
        let operator = names::snake(operator, "value");
        // The last parts of a path say what it is.
        let parts: Vec<&str> = path.rsplit('.').take(3).collect();
        let module: Vec<&str> = parts.into_iter().rev().collect();
        names::snake(&module.join("_"), &operator)
    }

    /// What an operand of a step is to its module: `fc_weight`.
    fn role_of(&self, step: &Step, operand: usize) -> String {
        let names = step.node.map_or(&[][..], |node| self.program.graph.node(node).op.operands());
        let role = names.get(operand).map_or("constant", |name| name.trim_end_matches(['?', '*']));
        format!("{}_{role}", self.wanted_name(step))
    }

    /// `conv1: [1, 8, 26, 26]`.
    fn comment(&self, step: &Step) -> String {
        let graph = self.program.graph;
        let Some(node) = step.node.map(|node| graph.node(node)) else { return String::new() };
        let shapes: Vec<String> = node
            .outputs
            .iter()
            .map(|&value| {
                let dims: Vec<String> = graph.ty(value).dims.iter().map(ToString::to_string).collect();
                format!("[{}]", dims.join(", "))
            })
            .collect();
        let path = node.origin.scope.last().map_or("", |scope| scope.path.as_str());
        match path {
            "" => shapes.join(", "),
            path => format!("{}: {}", names::comment(path), shapes.join(", ")),
        }
    }

    /// A tensor where it is indexed or handed on.
    fn elements(&mut self, tensor: TensorId) -> Result<TokenStream, StandaloneError> {
        if let Some(variable) = self.variables.get(tensor).and_then(Option::as_ref) {
            return Ok(quote!(#variable));
        }
        let program = self.program;
        match &program.tensors[tensor].origin {
            Origin::Input(n) => {
                self.read.insert(*n);
                let input = self.inputs.get(*n).ok_or(StandaloneError::Missing("an input"))?;
                Ok(quote!(#input))
            }
            Origin::Constant(data) => {
                let constant = program.tensors[tensor].value.and_then(|value| program.graph.constant(value));
                let known =
                    constant.and_then(|constant| constant.name.as_deref()).filter(|name| !is_anonymous(name));
                let name = match known {
                    // So PyTorch's exporter calls a bias that it made of a normalization.
                    Some(name) => match name.strip_suffix(".weight_bias") {
                        Some(layer) => format!("{layer}.bias"),
                        None => name.to_owned(),
                    },
                    None => self.role.clone(),
                };
                let field = self.weights.field(tensor, &name, data);
                let field = ident(&field);
                Ok(quote!(WEIGHTS.#field))
            }
            Origin::Step => Err(StandaloneError::Missing("a variable")),
        }
    }

    /// The one number that a tensor holds, where it is known.
    fn number_of(&self, tensor: TensorId) -> Option<(Scalar, DType)> {
        let Origin::Constant(data) = &self.program.tensors[tensor].origin else { return None };
        match scalars(data)?.as_slice() {
            &[value] => Some((value, data.dtype)),
            _ => None,
        }
    }

    /// The same, as it is written.
    fn literal(&self, tensor: TensorId) -> Option<TokenStream> {
        self.number_of(tensor).map(|(value, dtype)| number(value, dtype))
    }

    /// Whether so many elements are all of a tensor.
    fn is_whole(&self, tensor: TensorId, len: usize) -> bool {
        self.program.tensors[tensor].len == len
    }

    /// Elements that are one behind the other; borrowed, where they are not written.
    fn run(
        &mut self,
        tensor: TensorId,
        place: Option<TokenStream>,
        len: usize,
        is_written: bool,
    ) -> Result<TokenStream, StandaloneError> {
        let elements = self.elements(tensor)?;
        let part = match place {
            None if self.is_whole(tensor, len) && is_written => return Ok(elements),
            None if self.is_whole(tensor, len) => return Ok(quote!(#elements.iter())),
            None => {
                let part = range_to(len);
                quote!(#elements[#part])
            }
            Some(place) => {
                let part = range_to(len);
                quote!(#elements[#place..][#part])
            }
        };
        Ok(if is_written { part } else { quote!(&#part) })
    }

    fn argument(
        &mut self,
        step: &Step,
        arg: &KernelArg,
        given: &mut Given<'_>,
    ) -> Result<TokenStream, StandaloneError> {
        let operand = |n: usize| step.operands.get(n).copied().flatten();
        Ok(match arg {
            KernelArg::Operand(n) => {
                let tensor = operand(*n).ok_or(StandaloneError::Missing("an operand"))?;
                self.role = self.role_of(step, *n);
                self.borrowed(tensor)?
            }
            KernelArg::Optional(n) => match operand(*n) {
                None => quote!(None),
                Some(tensor) => {
                    self.role = self.role_of(step, *n);
                    let elements = self.elements(tensor)?;
                    quote!(Some(&#elements[..]))
                }
            },
            KernelArg::Scratch(_) => {
                let tensor = *given.scratch.next().ok_or(StandaloneError::Missing("memory"))?;
                self.elements(tensor)?
            }
            KernelArg::Known(name, _) => {
                let tensor = *given.known.next().ok_or(StandaloneError::Missing("numbers"))?;
                self.role = format!("{}_{name}", self.wanted_name(step));
                self.borrowed(tensor)?
            }
            KernelArg::Size(size) => int(*size),
            KernelArg::Sizes(sizes) => {
                let sizes = sizes.iter().map(|&size| int(size));
                quote!([#(#sizes),*])
            }
            KernelArg::Bool(flag) => quote!(#flag),
            KernelArg::Float(value) => float(*value),
            KernelArg::Scalar(value) => match value {
                Scalar::Int(value) => literals::int(*value),
                other => number(*other, DType::F32),
            },
            KernelArg::OptionalFloat(None) => quote!(None),
            KernelArg::OptionalFloat(Some(value)) => {
                let value = float(*value);
                quote!(Some(#value))
            }
            KernelArg::Function(None) => quote!(core::convert::identity),
            KernelArg::Function(Some(activation)) => {
                let (function, numbers) = activation_call(*activation);
                let (function, numbers) = (ident(function), numbers.iter().map(|&value| float(value)));
                match numbers.len() {
                    0 => quote!(#function),
                    _ => quote!(|x| #function(x #(, #numbers)*)),
                }
            }
            KernelArg::Fields(ty, fields) => {
                let ty = ident(ty);
                let mut values = Vec::new();
                for (name, value) in fields {
                    let (name, value) = (ident(name), self.argument(step, value, given)?);
                    values.push(quote!(#name: #value));
                }
                quote!(&#ty { #(#values),* })
            }
        })
    }

    /// A tensor that a kernel reads.
    fn borrowed(&mut self, tensor: TensorId) -> Result<TokenStream, StandaloneError> {
        let elements = self.elements(tensor)?;
        let is_static = matches!(self.program.tensors[tensor].origin, Origin::Constant(_));
        Ok(if is_static { quote!(&#elements) } else { elements })
    }
}

/// `..8`.
fn range_to(len: usize) -> TokenStream {
    let len = int(len);
    quote!(..#len)
}
