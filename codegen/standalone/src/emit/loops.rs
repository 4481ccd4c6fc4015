//! Loops over elements.

use super::Emitter;
use crate::StandaloneError;
use crate::program::{Step, TensorId};
use crate::spelling::{Formula, float, formula, int, is_negative, reducing, unsigned};
use kiln_importer::ir::{ElementLoop, Reduction, View};
use kiln_types::{BinaryOp, DType, Expression, ReduceOp, Step as Instruction, StepId};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

/// Elements along dims, for each of several tensors; dims that are one behind the other in all of them are one.
struct Walk {
    dims: Vec<usize>,
    /// Of each tensor, where its first element is, and how far the next along each dim.
    places: Vec<(isize, Vec<isize>)>,
}

impl Walk {
    fn new<'v>(views: impl IntoIterator<Item = &'v View>) -> Self {
        let views: Vec<&View> = views.into_iter().collect();
        let mut walk =
            Walk { dims: Vec::new(), places: views.iter().map(|view| (view.offset(), Vec::new())).collect() };
        let dims = views.first().map_or(&[][..], |view| view.dims());
        for (axis, &dim) in dims.iter().enumerate().filter(|(_, dim)| **dim != 1) {
            walk.push(dim, views.iter().map(|view| view.strides().get(axis).copied().unwrap_or(0)).collect());
        }
        walk
    }

    /// Where a line of a tensor begins, the last dim being along it; nothing where that is its first element.
    fn start_of_line(&self, n: usize) -> Option<TokenStream> {
        let (first, strides) = &self.places[n];
        let outer = strides.split_last().map_or(&[][..], |(_, outer)| outer);
        (*first != 0 || outer.iter().any(|&stride| stride != 0)).then(|| place(*first, outer))
    }

    /// Adds a dim behind the others, or to the last.
    fn push(&mut self, dim: usize, strides: Vec<isize>) {
        let follows = |((_, before), stride): (&(isize, Vec<isize>), &isize)| {
            before.last().is_some_and(|last| *last == stride.saturating_mul(dim as isize))
        };
        let joins = self.places.iter().zip(&strides).all(follows);
        match self.dims.last_mut() {
            Some(last) if joins => {
                *last *= dim;
                for ((_, before), stride) in self.places.iter_mut().zip(strides) {
                    before.pop();
                    before.push(stride);
                }
            }
            Some(_) | None => {
                self.dims.push(dim);
                self.places.iter_mut().zip(strides).for_each(|((_, before), stride)| before.push(stride));
            }
        }
    }
}

const COUNTERS: [&str; 6] = ["i", "j", "k", "l", "m", "n"];
const ELEMENTS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// What variables of loops are called where there are more than have letters; no tensor has more dims, and no loop so many operands.
pub(super) fn numbered_names() -> impl Iterator<Item = String> {
    let counters = (COUNTERS.len()..=64).map(|n| format!("i{n}"));
    counters.chain((ELEMENTS.len()..=256).map(|n| format!("x{n}")))
}

/// The name of the variable that counts along a dim.
fn counter(axis: usize) -> Ident {
    COUNTERS.get(axis).map_or_else(|| format_ident!("i{axis}"), |name| format_ident!("{name}"))
}

/// A place: the first, and the steps along dims.
fn place(first: isize, strides: &[isize]) -> TokenStream {
    let mut added = Vec::new();
    let mut taken = Vec::new();
    for (axis, &stride) in strides.iter().enumerate() {
        let counter = counter(axis);
        let size = int(stride.unsigned_abs());
        let term = if stride.unsigned_abs() == 1 { quote!(#counter) } else { quote!(#counter * #size) };
        match stride {
            0 => {}
            1.. => added.push(term),
            _ => taken.push(term),
        }
    }
    // What is taken away is at most the first place, which therefore comes first.
    if first != 0 || (added.is_empty() && taken.is_empty()) {
        added.insert(0, int(first.unsigned_abs()));
    }
    quote!(#(#added)+* #(- #taken)*)
}

/// Loops around a body, along all dims but the last `inner`.
fn around(dims: &[usize], first: usize, body: TokenStream) -> TokenStream {
    dims.iter().enumerate().rev().fold(body, |body, (axis, &dim)| {
        let (counter, dim) = (counter(first + axis), int(dim));
        quote!(for #counter in 0..#dim { #body })
    })
}

/// The name of an operand's element.
fn element(n: usize, count: usize) -> Ident {
    match (count, ELEMENTS.get(n)) {
        (1, _) => format_ident!("x"),
        (_, Some(name)) => format_ident!("{name}"),
        (_, None) => format_ident!("x{n}"),
    }
}

/// A loop that is being written.
struct Loop<'a> {
    step: &'a Step,
    /// Operands that are one known number are constants in it.
    expression: Expression,
    /// First the result, then the operands.
    walk: Walk,
    result: TensorId,
    operands: Vec<TensorId>,
    dtypes: Vec<DType>,
}

impl Loop<'_> {
    /// What is computed, with these words for the operands' elements.
    fn formula(&self, names: &[TokenStream]) -> Result<Formula, StandaloneError> {
        formula(&self.expression, &self.dtypes, names)
            .ok_or(StandaloneError::Missing("words for an expression"))
    }

    /// What is assigned, and how: `*y = a - *y`, but `*y -= a` where that is what happens.
    fn assigned(&self, names: &[TokenStream]) -> Result<(Formula, TokenStream), StandaloneError> {
        let is_target = |id: StepId| match self.expression.steps.get(usize::from(id)) {
            Some(Instruction::Input(n)) => {
                self.step.is_in_place && self.operands.get(usize::from(*n)) == Some(&self.result)
            }
            Some(_) | None => false,
        };
        let all = || Ok((self.formula(names)?, quote!(=)));
        let Some(&Instruction::Binary(op, a, b)) = self.expression.steps.last() else { return all() };
        let is_float = self.dtypes.iter().all(|dtype| dtype.is_float());
        let (assign, swaps) = match op {
            BinaryOp::Add if is_float => (quote!(+=), true),
            BinaryOp::Mul if is_float => (quote!(*=), true),
            BinaryOp::Sub if is_float => (quote!(-=), false),
            BinaryOp::Div if is_float => (quote!(/=), false),
            BinaryOp::And | BinaryOp::BitwiseAnd => (quote!(&=), true),
            BinaryOp::Or | BinaryOp::BitwiseOr => (quote!(|=), true),
            BinaryOp::Xor | BinaryOp::BitwiseXor => (quote!(^=), true),
            _ => return all(),
        };
        let other = match (is_target(a), is_target(b)) {
            (true, _) => b,
            (false, true) if swaps => a,
            (false, _) => return all(),
        };
        let other = Expression { steps: self.expression.steps.clone(), outputs: vec![other] };
        let mut formula = formula(&other, &self.dtypes, names)
            .ok_or(StandaloneError::Missing("words for an expression"))?;
        let opposite = match op {
            BinaryOp::Add => Some(quote!(-=)),
            BinaryOp::Sub => Some(quote!(+=)),
            _ => None,
        };
        Ok(match opposite.filter(|_| is_float && is_negative(&formula.result)) {
            Some(opposite) => {
                formula.result = unsigned(formula.result);
                (formula, opposite)
            }
            None => (formula, assign),
        })
    }

    /// The operands with where their first element is and how far the next along each dim.
    fn places(&self) -> impl Iterator<Item = (usize, TensorId, isize, &[isize])> {
        let operands = self.operands.iter().zip(&self.walk.places[1..]).enumerate();
        operands.map(|(n, (&tensor, (first, strides)))| (n, tensor, *first, strides.as_slice()))
    }

    /// Whether elements of the result are one behind the other along the last dim, and those of each operand are so too or are all the same one.
    fn is_line(&self) -> bool {
        let mut strides = self.walk.places.iter().map(|(_, strides)| strides.last());
        strides.next().is_some_and(|stride| stride == Some(&1))
            && strides.all(|stride| matches!(stride, Some(0 | 1)))
    }
}

impl Emitter<'_, '_> {
    /// A loop that computes elements of a result.
    pub(super) fn element_loop(
        &mut self,
        step: &Step,
        element_loop: &ElementLoop,
    ) -> Result<TokenStream, StandaloneError> {
        self.role = self.role_of(step, usize::MAX);
        let result = *step.results.first().ok_or(StandaloneError::Missing("a result"))?;
        let operand =
            |n: usize| step.operands.get(n).copied().flatten().ok_or(StandaloneError::Missing("an operand"));
        let operands =
            element_loop.operands.iter().map(|(n, _)| operand(*n)).collect::<Result<Vec<TensorId>, _>>()?;
        let dtypes = operands.iter().map(|&tensor| self.program.tensors[tensor].dtype).collect();
        let walk = Walk::new(
            [&element_loop.result].into_iter().chain(element_loop.operands.iter().map(|(_, view)| view)),
        );
        let expression = self.with_numbers(&element_loop.expression, &operands);
        let it = Loop { step, expression, walk, result, operands, dtypes };
        match it.walk.dims.split_last() {
            Some((&len, outer)) if it.is_line() => {
                let (lets, line) = self.line(&it, len)?;
                let line = quote!(#lets #line);
                // The one operand's element has a name that an input may have, which must not be hidden from what follows.
                let may_hide = outer.is_empty() && it.operands.len() == 1 && !lets.is_empty();
                Ok(if may_hide { quote!({ #line }) } else { around(outer, 0, line) })
            }
            Some(_) | None => Ok(around(&it.walk.dims, 0, self.one(&it)?)),
        }
    }

    /// A program whose operands are constants where they are one known number.
    fn with_numbers(&self, expression: &Expression, operands: &[TensorId]) -> Expression {
        let number = |n: u16| self.number_of(*operands.get(usize::from(n))?);
        let steps = expression.steps.iter().map(|step| match *step {
            Instruction::Input(n) => {
                number(n).map_or(*step, |(value, dtype)| Instruction::Constant(value, dtype))
            }
            other => other,
        });
        Expression { steps: steps.collect(), outputs: expression.outputs.clone() }
    }

    /// One element.
    fn one(&mut self, it: &Loop<'_>) -> Result<TokenStream, StandaloneError> {
        let mut names = Vec::new();
        for (_, tensor, first, strides) in it.places() {
            names.push(match self.literal(tensor) {
                Some(number) => number,
                None => {
                    let (tensor, place) = (self.elements(tensor)?, place(first, strides));
                    quote!(#tensor[#place])
                }
            });
        }
        let (Formula { before, result: value }, assign) = it.assigned(&names)?;
        let (first, strides) = &it.walk.places[0];
        let (tensor, place) = (self.elements(it.result)?, place(*first, strides));
        Ok(quote!(#(#before)* #tensor[#place] #assign #value;))
    }

    /// What a loop along the last dim reads once, and the loop.
    fn line(&mut self, it: &Loop<'_>, len: usize) -> Result<(TokenStream, TokenStream), StandaloneError> {
        let (mut before, mut names) = (TokenStream::new(), Vec::new());
        // The standard library has words for what needs no loop.
        let is_copy = matches!(it.expression.steps.as_slice(), [Instruction::Input(_)]);
        // Operands whose elements are one behind the other, by their numbers.
        let mut lines: Vec<(usize, TensorId)> = Vec::new();
        for (n, tensor, first, strides) in it.places() {
            let name = element(n, it.operands.len());
            let (stride, outer) = strides.split_last().ok_or(StandaloneError::Missing("a dim"))?;
            names.push(match self.literal(tensor) {
                Some(number) => number,
                None if *stride == 0 => {
                    let (elements, place) = (self.elements(tensor)?, place(first, outer));
                    let element = quote!(#elements[#place]);
                    if is_copy {
                        element
                    } else {
                        before.extend(quote!(let #name = #element;));
                        quote!(#name)
                    }
                }
                None if it.step.is_in_place && tensor == it.result => quote!(*y),
                None => {
                    lines.push((n, tensor));
                    quote!(#name)
                }
            });
        }
        let (formula, assign) = it.assigned(&names)?;
        let (value, lets) = (&formula.result, &formula.before);
        let out = self.run(it.result, it.walk.start_of_line(0), len, true)?;
        match *lines.as_slice() {
            [] if lets.is_empty() && !it.step.is_in_place => {
                return Ok((before, quote!(#out.fill(#value);)));
            }
            [(n, tensor)] if is_copy => {
                let place = it.walk.start_of_line(n + 1);
                let is_whole = place.is_none() && self.is_whole(tensor, len);
                let from =
                    if is_whole { self.borrowed(tensor)? } else { self.run(tensor, place, len, false)? };
                return Ok((before, quote!(#out.copy_from_slice(#from);)));
            }
            _ => {}
        }
        let (mut zipped, mut pattern) = (quote!(#out.iter_mut()), quote!(y));
        for (n, tensor) in lines {
            let (from, name) =
                (self.run(tensor, it.walk.start_of_line(n + 1), len, false)?, element(n, it.operands.len()));
            zipped = quote!(#zipped.zip(#from));
            pattern = quote!((#pattern, &#name));
        }
        Ok((before, quote!(for #pattern in #zipped { #(#lets)* *y #assign #value; })))
    }

    /// A loop that reduces elements of an operand.
    pub(super) fn reduction(
        &mut self,
        step: &Step,
        reduction: &Reduction,
    ) -> Result<TokenStream, StandaloneError> {
        let missing = StandaloneError::Missing;
        let result = *step.results.first().ok_or(missing("a result"))?;
        let operand = step.operands.first().copied().flatten().ok_or(missing("an operand"))?;
        let dtype = self.program.tensors[operand].dtype;
        let (dims, kept) =
            (reduction.operand.dims(), reduction.operand.dims().len().saturating_sub(reduction.reduced));
        let result_view = View::new(dims.get(..kept).ok_or(missing("dims"))?);
        // The dims that stay and those that go are joined apart.
        let strides = reduction.operand.strides();
        let mut outer = Walk {
            dims: Vec::new(),
            places: vec![(0, Vec::new()), (reduction.operand.offset(), Vec::new())],
        };
        for axis in (0..kept).filter(|&axis| dims[axis] != 1) {
            outer.push(dims[axis], vec![result_view.strides()[axis], strides[axis]]);
        }
        let mut inner = Walk { dims: Vec::new(), places: vec![(0, Vec::new())] };
        for axis in (kept..dims.len()).filter(|&axis| dims[axis] != 1) {
            inner.push(dims[axis], vec![strides[axis]]);
        }
        let all: Vec<isize> = outer.places[1].1.iter().chain(&inner.places[0].1).copied().collect();
        let (elements, out) = (self.elements(operand)?, self.elements(result)?);
        let folded = format_ident!("folded");
        let (start, combined) =
            reducing(reduction.op, dtype, &folded, &quote!(x)).ok_or(missing("words for a reduction"))?;
        let count = float(inner.dims.iter().map(|&dim| dim as f64).product());
        let value = if reduction.op == ReduceOp::Mean { quote!(#folded / #count) } else { quote!(#folded) };
        let at = place(0, &outer.places[0].1);
        let body = match (inner.dims.as_slice(), inner.places[0].1.as_slice()) {
            (&[len], &[1]) => {
                let (first, strides) = &outer.places[1];
                let start = (*first != 0 || strides.iter().any(|&stride| stride != 0))
                    .then(|| place(*first, strides));
                let run = self.run(operand, start, len, false)?;
                quote!(for &x in #run { #combined })
            }
            _ => {
                let from = place(outer.places[1].0, &all);
                around(&inner.dims, outer.dims.len(), quote! { let x = #elements[#from]; #combined })
            }
        };
        let body = quote! {
            let mut #folded = #start;
            #body
            #out[#at] = #value;
        };
        Ok(if outer.dims.is_empty() { quote!({ #body }) } else { around(&outer.dims, 0, body) })
    }
}
