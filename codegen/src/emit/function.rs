//! The body of a `forward`.

use super::{Emitter, Result, profile, syntax, tensor_type};
use crate::Defect;
use crate::code::{Block, Callee, Code, Position, Repeat, Statement};
use crate::dims;
use crate::ids::{FieldId, StructId, VarId};
use crate::literals;
use crate::names::ident;
use crate::naming::Variables;
use crate::print::markers;
use kiln_importer::ir::{Dim, Symbol};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use std::collections::{BTreeSet, HashMap};
use syn::{Expr, Pat, Stmt};

/// Writes the code of one struct.
pub(super) struct FunctionEmitter<'e, 'p> {
    pub(super) emitter: &'e mut Emitter<'p>,
    pub(super) id: StructId,
    pub(super) variables: &'p Variables,
    /// Whether numbers are the constructor's parameters, there being no `self`.
    pub(super) in_init: bool,
    /// Whether the function is the one for browsers.
    pub(super) asynchronous: bool,
    /// Whether something was made on the device.
    pub(super) uses_device: bool,
    /// The optional field that is known to be there, and the variable for it.
    pub(super) bound: Option<(FieldId, Ident)>,
    /// The variable that the loop in hand carries.
    pub(super) carried: Option<VarId>,
    /// The number of the item of a sequence that a round of the loop in hand calls.
    pub(super) counted: HashMap<FieldId, Dim>,
    /// The symbols that are found in the dims of each variable, with their axes.
    sources: HashMap<VarId, Vec<(usize, &'p Symbol)>>,
    /// The symbols that the body uses, once something was read: a number that is read for nothing has no name.
    symbols: Option<BTreeSet<Symbol>>,
}

impl<'p> Emitter<'p> {
    /// What writes the functions of a struct.
    pub(super) fn function(&mut self, id: StructId, asynchronous: bool) -> Result<FunctionEmitter<'_, 'p>> {
        let mut sources: HashMap<VarId, Vec<(usize, &'p Symbol)>> = HashMap::new();
        for source in &self.structure(id).body.sources {
            sources.entry(source.var).or_default().push((source.axis, &source.symbol));
        }
        Ok(FunctionEmitter {
            id,
            variables: self.names.variables(id)?,
            symbols: None,
            emitter: self,
            in_init: false,
            asynchronous,
            uses_device: false,
            bound: None,
            carried: None,
            counted: HashMap::new(),
            sources,
        })
    }

    /// What writes the constructor of a struct.
    pub(super) fn initializer(&mut self, id: StructId) -> Result<FunctionEmitter<'_, 'p>> {
        let mut function = self.function(id, false)?;
        function.in_init = true;
        Ok(function)
    }
}

impl FunctionEmitter<'_, '_> {
    fn branch(&mut self, block: &Block) -> Result<syn::Block> {
        let (statements, result) = self.block(block, false)?;
        Ok(syntax::block(statements, result))
    }

    /// The statements of a block, and its result; `is_outermost` when it is no branch.
    pub(super) fn block(&mut self, block: &Block, is_outermost: bool) -> Result<(Vec<Stmt>, Expr)> {
        let mut statements = Vec::new();
        let (last, others) = match block.statements.split_last() {
            Some((last, others)) if block.ends_with_branches() => (Some(last), others),
            _ => (None, block.statements.as_slice()),
        };
        self.statements(others, is_outermost, &mut statements)?;
        let result = match last {
            Some(statement) => self.value(statement)?,
            None => match block.results.as_slice() {
                [result] => self.code(result)?,
                results => syntax::tuple(self.all(results)?),
            },
        };
        Ok((statements, result))
    }

    fn statements(&mut self, block: &[Statement], is_outermost: bool, to: &mut Vec<Stmt>) -> Result<()> {
        for statement in block {
            self.statement(statement, is_outermost, to)?;
            for &output in statement.outputs() {
                to.extend(self.symbols_of(output)?);
            }
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement, is_outermost: bool, to: &mut Vec<Stmt>) -> Result<()> {
        match statement {
            Statement::Bind { outputs, code } => {
                if let (&[output], Code::Make(ty, name, args)) = (outputs.as_slice(), code)
                    && !self.variables.is_assigned(output)
                {
                    let pattern = self.pattern(outputs, true)?;
                    let of = tensor_type(&mut self.emitter.uses, ty.dtype.kind(), ty.rank(), false)?;
                    let tensor = syntax::below(self.emitter.uses.path("tensor::Tensor"), ident(name));
                    let value = syntax::call(syntax::path(tensor), self.all(args)?);
                    to.push(syntax::parsed(quote!(let #pattern: #of = #value;))?);
                } else {
                    let value = self.code(code)?;
                    if outputs.iter().any(|&output| self.variables.is_assigned(output)) {
                        let pattern = self.pattern(outputs, false)?;
                        to.push(syntax::parsed(quote!(#pattern = #value;))?);
                        return Ok(());
                    }
                    to.push(syntax::bind(self.pattern(outputs, true)?, value));
                }
                let comment = if is_outermost { self.bind_comment(outputs, code) } else { None };
                to.extend(comment.map(|text| markers::tail(&text)));
            }
            Statement::Read { code, symbols } => to.push(self.read(code, symbols)?),
            Statement::If { outputs, .. } => {
                let value = self.value(statement)?;
                to.push(syntax::bind(self.pattern(outputs, true)?, value));
            }
            Statement::Repeat(repeat) => self.rounds(repeat, to)?,
            Statement::List { output, items } => {
                let (list, items) = (ident(self.variables.name(*output)?), self.all(items)?);
                let value = if items.is_empty() { quote!(Vec::new()) } else { quote!(vec![#(#items),*]) };
                to.push(syntax::parsed(quote!(let mut #list = #value;))?);
            }
            Statement::Push { list, value } => {
                let (list, value) = (ident(self.variables.name(*list)?), self.code(value)?);
                to.push(syntax::parsed(quote!(#list.push(#value);))?);
            }
            Statement::Optional { output, .. } => {
                let value = self.value(statement)?;
                to.push(syntax::bind(self.pattern(&[*output], true)?, value));
            }
            Statement::Loop { output, init, callee, again, times, args } => {
                self.repeat(*output, init, *callee, (*again, *times), args, to)?;
            }
        }
        Ok(())
    }

    /// What branches yield: `if … { … } else { … }`, `match &self.field { Some(field) => …, None => … }`.
    fn value(&mut self, statement: &Statement) -> Result<Expr> {
        match statement {
            Statement::If { condition, then, otherwise, .. } => {
                let condition = syntax::parsed(dims::condition(condition, self.variables)?)?;
                let then = self.branch(then)?;
                Ok(syntax::branches(condition, then, self.branch(otherwise)?))
            }
            Statement::Optional { output, code, otherwise, flag, field } => {
                let without = self.code(otherwise)?;
                let Some(field) = *field else {
                    let (flag, with) = (self.code(&Code::Slot(*flag))?, self.code(code)?);
                    let [with, without] = [with, without].map(|value| syntax::block(Vec::new(), value));
                    return Ok(syntax::branches(flag, with, without));
                };
                let name = ident(self.emitter.names.field(self.id, field)?);
                let item = ident(self.variables.item(*output)?);
                self.bound = Some((field, item.clone()));
                let with = self.code(code)?;
                self.bound = None;
                syntax::parsed(quote!(match &self.#name { Some(#item) => #with, None => #without }))
            }
            Statement::Bind { .. }
            | Statement::Read { .. }
            | Statement::Repeat(_)
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Loop { .. } => Err(Defect::NoBranches.into()),
        }
    }

    /// The variables for what a statement yields, new ones or a loop's.
    fn pattern(&self, outputs: &[VarId], is_new: bool) -> Result<Pat> {
        let name = |var: VarId, is_mutable| {
            Ok(match self.variables.name(var)? {
                "_" => syntax::unbound(),
                name => syntax::bound(ident(name), is_mutable),
            })
        };
        match *outputs {
            [output] => name(output, is_new && self.variables.is_mutable(output)),
            _ => {
                let names =
                    outputs.iter().map(|&output| name(output, is_new && self.variables.is_mutable(output)));
                Ok(syntax::tuple_pattern(names.collect::<Result<_>>()?))
            }
        }
    }

    /// The shape, where it differs from that of the value it was made of.
    fn bind_comment(&self, outputs: &[VarId], code: &Code) -> Option<String> {
        let &[output] = outputs else { return None };
        let (graph, body) = (self.emitter.program.graph(), &self.emitter.structure(self.id).body);
        let dims = |var: VarId| &graph.ty(body.vars[var]).dims;
        if code.first_var().is_some_and(|before| dims(before) == dims(output)) {
            return None;
        }
        self.emitter.shape_comment(self.id, output)
    }

    /// `let [batch, _] = x.dims();` when a value's dims are symbols that are needed.
    pub(super) fn symbols_of(&self, var: VarId) -> Result<Option<Stmt>> {
        let Some(sources) = self.sources.get(&var) else { return Ok(None) };
        let body = &self.emitter.structure(self.id).body;
        let rank = self.emitter.program.graph().ty(body.vars[var]).rank();
        let name = |axis: usize| {
            let Some((_, symbol)) = sources.iter().find(|(at, _)| *at == axis) else { return Ok(quote!(_)) };
            let (name, _) = dims::variable(symbol, self.variables)?;
            Ok(quote!(#name))
        };
        let names: Vec<TokenStream> = (0..rank).map(name).collect::<Result<_>>()?;
        let value = ident(self.variables.name(var)?);
        Ok(Some(syntax::parsed(quote!(let [#(#names),*] = #value.dims();))?))
    }

    fn read(&mut self, code: &Code, symbols: &[Symbol]) -> Result<Stmt> {
        let value = self.operand(code)?;
        let block = &self.emitter.structure(self.id).body.block;
        let used = self.symbols.get_or_insert_with(|| block.symbols());
        let name = |symbol: &Symbol| {
            if !used.contains(symbol) {
                return Ok(quote!(_));
            }
            let (name, _) = dims::variable(symbol, self.variables)?;
            Ok(quote!(#name))
        };
        let names: Vec<TokenStream> = symbols.iter().map(name).collect::<Result<_>>()?;
        let read = if self.asynchronous {
            quote!(#value.into_integers_async().await)
        } else {
            quote!(#value.into_integers())
        };
        syntax::parsed(quote!(let [#(#names),*] = #read;))
    }

    /// `let mut x = init; for i in 0..n { …; x = result; }`, or `while go_on { … }` where there is no bound.
    fn rounds(&mut self, repeat: &Repeat, to: &mut Vec<Stmt>) -> Result<()> {
        for (&parameter, init) in repeat.parameters.iter().zip(&repeat.init) {
            let name = self.variables.name(parameter)?;
            // The variable may be that of the value that the loop begins with.
            let goes_on = match init {
                Code::Use(var) => self.variables.is_mutable(*var) && self.variables.name(*var)? == name,
                _ => false,
            };
            if name != "_" && !goes_on {
                let init = self.code(init)?;
                to.push(syntax::bind(syntax::bound(ident(name), true), init));
            }
        }
        for &list in repeat.left() {
            let name = ident(self.variables.name(list)?);
            to.push(syntax::parsed(quote!(let mut #name = Vec::new();))?);
        }
        let in_hand = repeat.in_hand();
        let counts = repeat.counts() || (in_hand.is_none() && !repeat.items.is_empty());
        for &(field, from) in repeat.items.iter().filter(|_| counts) {
            let number = Dim::symbol(repeat.iteration.clone());
            self.counted.insert(field, &number + &Dim::constant(from as i64 - repeat.start));
        }
        let body = self.round(repeat)?;
        repeat.items.iter().for_each(|(field, _)| {
            self.counted.remove(field);
        });
        let counter = dims::variable(&repeat.iteration, self.variables)?.0;
        let again = repeat.again.as_ref();
        match &repeat.trip_count {
            Some(most) => {
                let numbers = match most.as_constant() {
                    Some(most) if counts && repeat.start != 0 => {
                        let (start, end) = (literals::int(repeat.start), literals::int(repeat.start + most));
                        quote!(#start..#end)
                    }
                    _ => dims::numbers(most, self.variables)?,
                };
                let counter = if counts { quote!(#counter) } else { quote!(_) };
                let end = again.map(|again| dims::negated(again, self.variables)).transpose()?;
                let end = end.map(|end| quote!(if #end { break; }));
                let head = match (in_hand, most.as_constant().and_then(|most| usize::try_from(most).ok())) {
                    (Some((field, from)), Some(times)) => {
                        let item = ident(self.variables.in_hand(field)?);
                        self.items(field, from, times, &item)?
                    }
                    _ => quote!(#counter in #numbers),
                };
                to.push(syntax::parsed(quote!(for #head { #(#body)* #end }))?);
            }
            None => {
                let flag = ident(self.variables.flag(&repeat.iteration)?);
                let condition = |dim: &Dim| match dim.as_constant() {
                    Some(value) => Ok(if value != 0 { quote!(true) } else { quote!(false) }),
                    None => dims::condition(dim, self.variables),
                };
                let first = condition(&repeat.condition)?;
                let next = again.map(condition).transpose()?;
                let next = next.map(|next| quote!(#flag = #next;));
                let (start, step) = if counts {
                    (quote!(let mut #counter = 0_i64;), quote!(#counter += 1;))
                } else {
                    (TokenStream::new(), TokenStream::new())
                };
                to.extend(syntax::statements(quote! {
                    let mut #flag = #first;
                    #start
                    while #flag { #(#body)* #next #step }
                })?);
            }
        }
        for (n, &list) in repeat.left().iter().enumerate() {
            let name = ident(self.variables.name(list)?);
            let graph = self.emitter.program.graph();
            let rank =
                syntax::number_argument(graph.ty(self.emitter.structure(self.id).body.vars[list]).rank())?;
            let tensor = self.emitter.uses.path("tensor::Tensor");
            let joined: Expr = syntax::parsed(quote!(#tensor::stack::<#rank>(#name, 0)))?;
            let value = match repeat.none.get(n) {
                Some(none) => {
                    let none = self.code(none)?;
                    let [none, joined] = [none, joined].map(|value| syntax::block(Vec::new(), value));
                    syntax::branches(syntax::parsed(quote!(#name.is_empty()))?, none, joined)
                }
                None => joined,
            };
            to.push(syntax::bind(syntax::bound(name, false), value));
        }
        Ok(())
    }

    /// What a round does, to where it is known whether another follows.
    fn round(&mut self, repeat: &Repeat) -> Result<Vec<Stmt>> {
        let mut statements = Vec::new();
        for &parameter in &repeat.parameters {
            statements.extend(self.symbols_of(parameter)?);
        }
        self.statements(&repeat.body.statements, false, &mut statements)?;
        let (left, carried) =
            repeat.body.results.split_at(repeat.left().len().min(repeat.body.results.len()));
        for (&list, code) in repeat.left().iter().zip(left) {
            let (name, value) = (ident(self.variables.name(list)?), self.code(code)?);
            statements.push(syntax::parsed(quote!(#name.push(#value);))?);
        }
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (&parameter, code) in repeat.parameters.iter().zip(carried) {
            let name = self.variables.name(parameter)?;
            let is_there = code.var().is_some_and(|var| {
                var == parameter
                    || self.variables.is_assigned(var) && self.variables.name(var).is_ok_and(|of| of == name)
            });
            if name != "_" && !is_there {
                names.push(syntax::variable(ident(name)));
                values.push(self.code(code)?);
            }
        }
        if !names.is_empty() {
            let (names, values) = (one_or_tuple(names), one_or_tuple(values));
            statements.push(syntax::parsed(quote!(#names = #values;))?);
        }
        Ok(statements)
    }

    /// `for layer in &self.layers { x = layer.forward(x); }`, or a module that is called again and again.
    fn repeat(
        &mut self,
        output: VarId,
        init: &Code,
        callee: Callee,
        (again, times): (bool, usize),
        args: &[Code],
        to: &mut Vec<Stmt>,
    ) -> Result<()> {
        let name = ident(self.variables.name(output)?);
        // The variable may be that of the value that the loop begins with.
        let goes_on = match init {
            Code::Use(var) => self.variables.is_mutable(*var),
            _ => false,
        };
        if !goes_on {
            let init = self.code(init)?;
            to.push(if self.variables.is_assigned(output) {
                syntax::parsed(quote!(#name = #init;))?
            } else {
                syntax::bind(syntax::bound(name.clone(), true), init)
            });
        }
        self.carried = Some(output);
        if again {
            let (call, times) = (Code::Module(callee, args.to_vec()), literals::int(times as i64));
            let call = self.code(&call)?;
            to.push(syntax::parsed(quote!(for _ in 0..#times { #name = #call; }))?);
            return Ok(());
        }
        let place = callee.place.ok_or(Defect::EmptyLoop)?;
        let from = match place.position {
            Some(Position::At(from)) => from,
            Some(Position::OfRound) | None => 0,
        };
        let item = ident(self.variables.item(output)?);
        let head = self.items(place.field, from, times, &item)?;
        let args = self.all(args)?;
        let call = self.emitter.forward_name(callee.structure, self.asynchronous);
        let waits = self.emitter.waits(callee.structure, self.asynchronous);
        let module = syntax::variable(item.clone());
        let call = self.called_at(place.field, args, |args| syntax::method(module, call, args))?;
        let call = syntax::awaited(call, waits);
        to.push(syntax::parsed(quote!(for #head { #name = #call; }))?);
        Ok(())
    }

    /// `block in &self.blocks[1..]`: items of a sequence, by the first and their number.
    fn items(&self, field: FieldId, from: usize, times: usize, item: &Ident) -> Result<TokenStream> {
        let length = self.emitter.structure(self.id).body.length_at(field);
        let field = ident(self.emitter.names.field(self.id, field)?);
        let (start_at, end_at) = (literals::int(from as i64), literals::int((from + times) as i64));
        let items = match (from == 0, from + times == length) {
            (true, true) => quote!(&self.#field),
            (false, true) => quote!(&self.#field[#start_at..]),
            (_, false) => quote!(&self.#field[#start_at..#end_at]),
        };
        Ok(if self.is_profiled() {
            let position = profile::position();
            quote!((#position, #item) in (#start_at..).zip(#items))
        } else {
            quote!(#item in #items)
        })
    }
}

fn one_or_tuple(mut items: Vec<Expr>) -> Expr {
    match (items.pop(), items.is_empty()) {
        (Some(item), true) => item,
        (last, _) => {
            items.extend(last);
            syntax::tuple(items)
        }
    }
}
