//! Loops over elements.

use super::expression::{Formula, formula};
use super::{Emitter, float, int};
use crate::StandaloneError;
use crate::program::{Step, TensorId};
use kiln_importer::ir::{Fold, Pass, View};
use kiln_types::{DType, ReduceOp};
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
        let mut walk = Walk { dims: Vec::new(), places: views.iter().map(|view| (view.offset(), Vec::new())).collect() };
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

/// The name of the variable that counts along a dim.
fn counter(axis: usize) -> Ident {
    const NAMES: [&str; 6] = ["i", "j", "k", "l", "m", "n"];
    NAMES.get(axis).map_or_else(|| format_ident!("i{axis}"), |name| format_ident!("{name}"))
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

/// The first elements' names.
fn element(n: usize, count: usize) -> Ident {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    match (count, NAMES.get(n)) {
        (1, _) => format_ident!("x"),
        (_, Some(name)) => format_ident!("{name}"),
        (_, None) => format_ident!("x{n}"),
    }
}

impl Emitter<'_, '_> {
    /// A loop that computes elements of a result.
    pub(super) fn pass(&mut self, step: &Step, pass: &Pass) -> Result<TokenStream, StandaloneError> {
        let result = *step.results.first().ok_or(StandaloneError::Missing("a result"))?;
        let operand = |n: usize| step.operands.get(n).copied().flatten().ok_or(StandaloneError::Missing("an operand"));
        let operands = pass.operands.iter().map(|(n, view)| Ok((operand(*n)?, view)));
        let operands = operands.collect::<Result<Vec<(TensorId, &View)>, StandaloneError>>()?;
        self.role = self.role_of(step, usize::MAX);
        let dtypes: Vec<DType> = operands.iter().map(|(tensor, _)| self.program.tensors[*tensor].dtype).collect();
        let walk = Walk::new([&pass.result].into_iter().chain(operands.iter().map(|(_, view)| *view)));
        let tensors: Vec<TensorId> = operands.iter().map(|(tensor, _)| *tensor).collect();
        let spelt = |names: &[TokenStream]| {
            formula(&pass.expression, &dtypes, names).ok_or(StandaloneError::Missing("words for an expression"))
        };
        let Some((&inner, outer)) = walk.dims.split_last() else {
            return self.one(&walk, result, &tensors, spelt);
        };
        let steps = |n: usize| walk.places[n].1.last().copied().unwrap_or(0);
        let (is_line, others) = (steps(0) == 1, (1..walk.places.len()).map(steps));
        if is_line && others.clone().all(|stride| stride == 0 || stride == 1) {
            let line = self.line(step, &walk, (result, &tensors), inner, spelt)?;
            return Ok(around(outer, 0, line));
        }
        // Elements are apart: each is looked up.
        let body = self.one(&walk, result, &tensors, spelt)?;
        Ok(around(&walk.dims, 0, body))
    }

    /// One element.
    fn one(
        &mut self,
        walk: &Walk,
        result: TensorId,
        operands: &[TensorId],
        spelt: impl Fn(&[TokenStream]) -> Result<Formula, StandaloneError>,
    ) -> Result<TokenStream, StandaloneError> {
        let mut names = Vec::new();
        for (&tensor, (first, strides)) in operands.iter().zip(&walk.places[1..]) {
            names.push(match self.literal(tensor) {
                Some(number) => number,
                None => {
                    let (tensor, place) = (self.elements(tensor)?, place(*first, strides));
                    quote!(#tensor[#place])
                }
            });
        }
        let Formula { before, result: value } = spelt(&names)?;
        let (first, strides) = &walk.places[0];
        let (tensor, place) = (self.elements(result)?, place(*first, strides));
        Ok(quote!(#(#before)* #tensor[#place] = #value;))
    }

    /// A loop along a line of elements that are one behind the other, or always the same.
    fn line(
        &mut self,
        step: &Step,
        walk: &Walk,
        (result, operands): (TensorId, &[TensorId]),
        len: usize,
        spelt: impl Fn(&[TokenStream]) -> Result<Formula, StandaloneError>,
    ) -> Result<TokenStream, StandaloneError> {
        let (mut before, mut names) = (Vec::new(), Vec::new());
        // Lines of operands, with the pattern that takes an element of each.
        let mut lines: Vec<(TensorId, usize, Ident)> = Vec::new();
        let count = operands.len();
        let target = format_ident!("y");
        for (n, (&tensor, (first, strides))) in operands.iter().zip(&walk.places[1..]).enumerate() {
            let name = element(n, count);
            let (stride, outer) = strides.split_last().ok_or(StandaloneError::Missing("a dim"))?;
            if let Some(number) = self.literal(tensor) {
                names.push(number);
            } else if *stride == 0 {
                let (elements, place) = (self.elements(tensor)?, place(*first, outer));
                before.push(quote!(let #name = #elements[#place];));
                names.push(quote!(#name));
            } else if step.is_in_place && tensor == result {
                names.push(quote!(*#target));
            } else {
                names.push(quote!(#name));
                lines.push((tensor, n + 1, name));
            }
        }
        let formula = spelt(&names)?;
        let (value, lets) = (&formula.result, &formula.before);
        let out = self.run(result, walk.start_of_line(0), len, true)?;
        // The standard library has words for what needs no loop.
        let is_plain = lets.is_empty() && !step.is_in_place;
        match lines.as_slice() {
            [] if is_plain => return Ok(quote!(#(#before)* #out.fill(#value);)),
            [(tensor, at, name)] if is_plain && name.to_string() == value.to_string() => {
                let place = walk.start_of_line(*at);
                let is_whole = place.is_none() && self.is_whole(*tensor, len);
                let from = if is_whole { self.borrowed(*tensor)? } else { self.run(*tensor, place, len, false)? };
                return Ok(quote!(#out.copy_from_slice(#from);));
            }
            _ => {}
        }
        let (mut zipped, mut pattern) = (quote!(#out.iter_mut()), quote!(#target));
        for (tensor, at, name) in lines {
            let from = self.run(tensor, walk.start_of_line(at), len, false)?;
            zipped = quote!(#zipped.zip(#from));
            pattern = quote!((#pattern, &#name));
        }
        Ok(quote!(#(#before)* for #pattern in #zipped { #(#lets)* *#target = #value; }))
    }

    /// A loop that folds elements of an operand.
    pub(super) fn fold(&mut self, step: &Step, fold: &Fold) -> Result<TokenStream, StandaloneError> {
        let missing = StandaloneError::Missing;
        let result = *step.results.first().ok_or(missing("a result"))?;
        let operand = step.operands.first().copied().flatten().ok_or(missing("an operand"))?;
        let dtype = self.program.tensors[operand].dtype;
        let (dims, kept) = (fold.operand.dims(), fold.operand.dims().len().saturating_sub(fold.folded));
        let result_view = View::new(dims.get(..kept).ok_or(missing("dims"))?);
        // The dims that stay and those that go are joined apart.
        let strides = fold.operand.strides();
        let mut outer = Walk { dims: Vec::new(), places: vec![(0, Vec::new()), (fold.operand.offset(), Vec::new())] };
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
        let (start, combined) = folding(fold.op, dtype, &folded, &quote!(x)).ok_or(missing("words for a fold"))?;
        let count = float(inner.dims.iter().map(|&dim| dim as f64).product());
        let value = if fold.op == ReduceOp::Mean { quote!(#folded / #count) } else { quote!(#folded) };
        let at = place(0, &outer.places[0].1);
        let body = match (inner.dims.as_slice(), inner.places[0].1.as_slice()) {
            (&[len], &[1]) => {
                let (first, strides) = &outer.places[1];
                let start = (*first != 0 || strides.iter().any(|&stride| stride != 0)).then(|| place(*first, strides));
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

/// Whether Rust has words for a fold.
pub(crate) fn folds(op: ReduceOp, dtype: DType) -> bool {
    folding(op, dtype, &format_ident!("folded"), &TokenStream::new()).is_some()
}

/// What a fold begins with, and how an element is folded in.
fn folding(op: ReduceOp, dtype: DType, folded: &Ident, x: &TokenStream) -> Option<(TokenStream, TokenStream)> {
    let ty = format_ident!("{}", crate::program::rust_type(dtype)?);
    let is_float = dtype == DType::F32;
    Some(match op {
        ReduceOp::Sum | ReduceOp::Mean if is_float => (quote!(0.0), quote!(#folded += #x;)),
        ReduceOp::Prod if is_float => (quote!(1.0), quote!(#folded *= #x;)),
        ReduceOp::Max if is_float => (quote!(f32::NEG_INFINITY), quote!(#folded = max_pair(#folded, #x);)),
        ReduceOp::Min if is_float => (quote!(f32::INFINITY), quote!(#folded = min_pair(#folded, #x);)),
        ReduceOp::Any if dtype.is_bool() => (quote!(false), quote!(#folded |= #x;)),
        ReduceOp::All if dtype.is_bool() => (quote!(true), quote!(#folded &= #x;)),
        ReduceOp::Sum if dtype.is_int() => (quote!(0), quote!(#folded = #ty::wrapping_add(#folded, #x);)),
        ReduceOp::Prod if dtype.is_int() => (quote!(1), quote!(#folded = #ty::wrapping_mul(#folded, #x);)),
        ReduceOp::Max if dtype.is_int() => (quote!(#ty::MIN), quote!(#folded = #folded.max(#x);)),
        ReduceOp::Min if dtype.is_int() => (quote!(#ty::MAX), quote!(#folded = #folded.min(#x);)),
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min | ReduceOp::Any | ReduceOp::All => {
            return None;
        }
    })
}
