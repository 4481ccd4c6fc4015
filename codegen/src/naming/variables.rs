//! Names of functions' variables.

use crate::code::{Block, Callee, Code, Place, Position, Repeat, Statement};
use crate::dims::{Scope, is_signed};
use crate::ids::{Arena, FieldId, StructId, VarId};
use crate::names::{self, Names, ident, names_a_kind, singular, snake};
use crate::structs::{Program, Struct};
use crate::{CodegenError, Defect};
use kiln_importer::ir::{Symbol, TensorType};
use kiln_types::{DType, DTypeKind};
use proc_macro2::Ident;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The variables of one function.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    names: HashMap<VarId, String>,
    symbols: BTreeMap<Symbol, (String, bool)>,
    /// The variable for an item of a sequence or for an optional field, by what the statement yields.
    items: HashMap<VarId, String>,
    /// The variable for the items of a sequence that rounds go over.
    in_hand: HashMap<FieldId, String>,
    /// Variables that are assigned to.
    mutable: HashSet<VarId>,
    /// What rounds carry on and is assigned to the loop's variable where it is made.
    assigned: HashSet<VarId>,
    /// The variables that say whether loops go on, by the symbols that count their rounds.
    flags: HashMap<Symbol, String>,
}

impl Scope for Variables {
    fn symbol(&self, symbol: &Symbol) -> Option<(Ident, bool)> {
        self.symbols.get(symbol).map(|(name, signed)| (ident(name), *signed))
    }
}

impl Variables {
    /// The name of a variable; `_` for one that nothing uses.
    pub fn name(&self, var: VarId) -> Result<&str, CodegenError> {
        self.names.get(&var).map(String::as_str).ok_or_else(|| Defect::Unnamed.into())
    }

    /// The variable for the items of what a loop goes over, or for the optional field of a statement.
    pub fn item(&self, output: VarId) -> Result<&str, CodegenError> {
        self.items.get(&output).map(String::as_str).ok_or_else(|| Defect::Unnamed.into())
    }

    /// The variable for the items of a sequence that the rounds of a loop go over.
    pub fn in_hand(&self, field: FieldId) -> Result<&str, CodegenError> {
        self.in_hand.get(&field).map(String::as_str).ok_or_else(|| Defect::Unnamed.into())
    }

    /// The variable that says whether a loop goes on.
    pub fn flag(&self, iteration: &Symbol) -> Result<&str, CodegenError> {
        self.flags.get(iteration).map(String::as_str).ok_or_else(|| Defect::Unnamed.into())
    }

    /// Whether a variable is assigned to.
    pub fn is_mutable(&self, var: VarId) -> bool {
        self.mutable.contains(&var)
    }

    /// Whether a value goes into a variable that is there, a loop's.
    pub fn is_assigned(&self, var: VarId) -> bool {
        self.assigned.contains(&var)
    }
}

/// Names the variables of all functions in `used`, callers first: a function's inputs are called as in its first call.
pub fn name_variables(
    program: &Program<'_>,
    used: &BTreeSet<StructId>,
    reads: &Arena<StructId, bool>,
    structs: &Arena<StructId, String>,
    fields: &Arena<StructId, Arena<FieldId, String>>,
) -> BTreeMap<StructId, Variables> {
    let mut arguments: HashMap<StructId, Vec<String>> = HashMap::new();
    let mut variables = BTreeMap::new();
    for &id in used.iter().rev() {
        let mut namer = Namer::new(program, id, (structs, reads), &fields[id], &mut arguments);
        namer.name_inputs();
        namer.name_items();
        namer.block(&program.structs[id].body.block);
        variables.insert(id, namer.variables);
    }
    variables
}

/// Names the variables of one function.
struct Namer<'a> {
    program: &'a Program<'a>,
    id: StructId,
    structure: &'a Struct,
    fields: &'a Arena<FieldId, String>,
    /// How the first call of each function calls its arguments.
    arguments: &'a mut HashMap<StructId, Vec<String>>,
    variables: Variables,
    names: Names,
    /// Names that are no tensor's.
    reserved: Vec<String>,
    /// The variables that have each name, by block: the function's first, the one in hand last.
    holders: Vec<HashMap<String, Vec<VarId>>>,
    uses: HashMap<VarId, usize>,
    /// Variables whose dims are read.
    sources: HashSet<VarId>,
    /// How often layers and modules are called on each variable.
    calls_on: HashMap<VarId, usize>,
    structs: &'a Arena<StructId, String>,
    /// How often each function is called. A variable of its name would hide it from calls that are still to come.
    calls: BTreeMap<StructId, usize>,
    /// What rounds of loops begin with: no other variable may have the name in the body.
    carried: HashSet<VarId>,
    /// How often variables are read once the one in hand is there: by what the loop's later ones begin with.
    pending: HashMap<VarId, usize>,
}

/// Where variables are used in one block.
struct Uses {
    /// The last statement that uses each; the results come after all.
    last: HashMap<VarId, usize>,
    /// Those that loops go on with.
    looped: HashSet<VarId>,
    /// Those that have a `let` of their own.
    bound: HashSet<VarId>,
    /// Those that each loop of the network's own uses in its body.
    within: HashMap<usize, HashSet<VarId>>,
}

impl Uses {
    fn of(block: &Block) -> Self {
        let mut uses = Uses {
            last: HashMap::new(),
            looped: HashSet::new(),
            bound: HashSet::new(),
            within: HashMap::new(),
        };
        for (i, statement) in block.statements.iter().enumerate() {
            let vars = statement.codes().into_iter().flat_map(Code::vars);
            uses.last.extend(vars.map(|var| (var, i)));
            match statement {
                Statement::Loop { init: Code::Use(init), .. } => {
                    uses.looped.insert(*init);
                }
                Statement::Repeat(repeat) => {
                    let vars = repeat.body.codes().into_iter().flat_map(Code::vars);
                    uses.within.insert(i, vars.collect());
                }
                Statement::Bind { outputs, .. } => uses.bound.extend(outputs),
                Statement::If { outputs, .. } if outputs.len() == 1 => uses.bound.extend(outputs),
                Statement::Read { .. }
                | Statement::If { .. }
                | Statement::Optional { .. }
                | Statement::List { .. }
                | Statement::Push { .. }
                | Statement::Loop { .. } => {}
            }
        }
        uses.last.extend(block.results.iter().flat_map(Code::vars).map(|var| (var, usize::MAX)));
        uses
    }

    /// Whether a variable is used after what a statement yields is there; a loop's arguments and its body are used again and again.
    fn after(&self, i: usize, statement: &Statement, var: VarId) -> bool {
        let again = match statement {
            Statement::Loop { args, .. } => args.iter().any(|arg| arg.vars().contains(&var)),
            Statement::Repeat(_) => self.within.get(&i).is_some_and(|vars| vars.contains(&var)),
            Statement::Bind { .. }
            | Statement::Read { .. }
            | Statement::If { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Optional { .. } => false,
        };
        again || self.last.get(&var).is_some_and(|&last| last > i)
    }
}

impl<'a> Namer<'a> {
    fn new(
        program: &'a Program<'_>,
        id: StructId,
        (structs, reads): (&'a Arena<StructId, String>, &Arena<StructId, bool>),
        fields: &'a Arena<FieldId, String>,
        arguments: &'a mut HashMap<StructId, Vec<String>>,
    ) -> Self {
        let structure = &program.structs[id];
        let passed = structure.parameters.iter().filter(|parameter| parameter.passed);
        let taken: HashSet<&str> =
            passed.map(|parameter| parameter.name.as_str()).chain(["device", "self"]).collect();
        let block = &structure.body.block;
        let mut calls = function_calls(block);
        // A parameter's name stays taken.
        calls.retain(|&id, _| !taken.contains(structs[id].as_str()));
        let mut calls_on = HashMap::new();
        for code in block.codes() {
            code.visit(&mut |part| {
                if let Code::Layer(_, _, args) | Code::Module(_, args) = part
                    && let Some(var) = args.first().and_then(Code::first_var)
                {
                    *calls_on.entry(var).or_insert(0) += 1;
                }
            });
        }
        let reserved: Vec<String> = taken
            .into_iter()
            .map(str::to_owned)
            .chain(calls.keys().map(|&id| structs[id].clone()))
            .chain(calls.keys().filter(|&&id| reads[id]).map(|&id| names::twin(&structs[id])))
            .collect();
        Namer {
            program,
            id,
            structure,
            fields,
            arguments,
            variables: Variables::default(),
            names: Names::with(reserved.clone()),
            reserved,
            structs,
            calls,
            holders: vec![HashMap::new()],
            uses: block.uses(),
            sources: structure.body.sources.iter().map(|source| source.var).collect(),
            calls_on,
            carried: HashSet::new(),
            pending: HashMap::new(),
        }
    }

    fn ty(&self, var: VarId) -> &TensorType {
        self.program.graph().ty(self.structure.body.vars[var])
    }

    /// Names inputs and symbols.
    fn name_inputs(&mut self) {
        let body = &self.structure.body;
        let wanted = self.wanted_inputs();
        for (&input, wanted) in body.inputs.iter().zip(wanted) {
            let name = self.names.fresh(&wanted);
            self.hold(input, name);
        }
        let mut symbols: BTreeSet<&Symbol> = body.symbols.iter().collect();
        symbols.extend(body.sources.iter().map(|source| &source.symbol));
        for statement in body.block.all_statements() {
            symbols.extend(statement.symbols());
        }
        for symbol in symbols {
            let signed = is_signed(self.program.graph(), symbol);
            let name = self.names.fresh(&snake(symbol, "size"));
            self.reserved.push(name.clone());
            self.variables.symbols.insert(symbol.clone(), (name, signed));
        }
    }

    fn wanted_inputs(&self) -> Vec<String> {
        let body = &self.structure.body;
        let mut taken = Names::default();
        let mut added: HashMap<VarId, usize> = HashMap::new();
        for code in body.block.codes() {
            code.visit(&mut |part| {
                if let Code::Infix(a, "+", b) = part {
                    for var in [a, b].into_iter().filter_map(|side| side.var()) {
                        *added.entry(var).or_insert(0) += 1;
                    }
                }
            });
        }
        let arguments = self.arguments.get(&self.id);
        let name = |(i, &input): (usize, &VarId)| {
            let value = self.program.graph().value(body.vars[input]);
            if self.id == self.program.root {
                return taken.fresh(&snake(&value.name, "x"));
            }
            let argument = arguments.and_then(|names| names.get(i)).map(String::as_str).unwrap_or_default();
            let argument = argument.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
            let kind = kind_of(value.ty.dtype);
            if i == 0 && kind == DTypeKind::Float {
                return taken.fresh("x");
            }
            // All that happens to it is that it is added to something.
            let is_added = added.get(&input).is_some_and(|added| self.uses.get(&input) == Some(added));
            let plain = matches!(argument, "x" | "hidden") || is_added;
            if !argument.is_empty() && !plain && !taken.contains(argument) {
                return taken.fresh(&snake(argument, "x"));
            }
            taken.fresh(match kind {
                DTypeKind::Float if is_added => "residual",
                DTypeKind::Float => "other",
                DTypeKind::Int => "indices",
                DTypeKind::Bool => "mask",
            })
        };
        body.inputs.iter().enumerate().map(name).collect()
    }

    /// Gives a variable its name.
    fn hold(&mut self, var: VarId, name: String) {
        if let Some(holders) = self.holders.last_mut() {
            holders.entry(name.clone()).or_default().push(var);
        }
        self.variables.names.insert(var, name);
    }

    fn name(&self, var: VarId) -> &str {
        self.variables.names.get(&var).map_or("_", String::as_str)
    }

    /// Names what the statements of a block yield; branches at the end of one that yields what they do need no variable.
    fn block(&mut self, block: &'a Block) {
        let last = if block.ends_with_branches() { block.statements.len() - 1 } else { usize::MAX };
        self.statements(block, last);
    }

    fn statements(&mut self, block: &'a Block, last: usize) {
        let uses = Uses::of(block);
        for (i, statement) in block.statements.iter().enumerate() {
            if let Statement::Bind { code, .. } | Statement::Read { code, .. } = statement {
                self.give_back_names(code);
            }
            if let Statement::Repeat(repeat) = statement {
                self.name_repeat(&uses, i, statement, repeat);
            } else if let Statement::List { output, .. } = statement {
                let name = self.names.fresh("outputs");
                self.hold(*output, name);
                self.variables.mutable.insert(*output);
            } else if i != last {
                let looped = matches!(statement.outputs(), [output] if uses.looped.contains(output))
                    || matches!(statement, Statement::Loop { .. });
                self.name_outputs(&uses, i, statement, looped);
                if let (true, Statement::Bind { outputs, .. } | Statement::If { outputs, .. }) =
                    (looped, statement)
                    && let &[output] = outputs.as_slice()
                {
                    self.variables.mutable.insert(output);
                }
            }
            self.inside(statement);
        }
        block.results.iter().for_each(|code| self.note_calls(code, None));
    }

    /// Names what there is in the body of a loop: as in a function of its own, but for what it has from around it.
    fn round(&mut self, repeat: &'a Repeat) {
        let mut visible: HashSet<VarId> = repeat.parameters.iter().chain(repeat.left()).copied().collect();
        visible.extend(repeat.body.codes().into_iter().flat_map(Code::vars));
        visible.extend(repeat.body.all_statements().into_iter().filter_map(|statement| match statement {
            Statement::Push { list, .. } => Some(*list),
            _ => None,
        }));
        let mut holders: HashMap<String, Vec<VarId>> = HashMap::new();
        for var in visible {
            if let Some(name) = self.variables.names.get(&var).filter(|name| *name != "_") {
                holders.entry(name.clone()).or_default().push(var);
            }
        }
        let reserved = self.reserved.iter().filter(|name| self.names.contains(name));
        let names = Names::with(reserved.chain(holders.keys()).cloned());
        let around = std::mem::replace(&mut self.names, names);
        let around_holders = std::mem::replace(&mut self.holders, vec![holders, HashMap::new()]);
        self.statements(&repeat.body, usize::MAX);
        self.names = around;
        self.holders = around_holders;
    }

    /// Names what is known in a block alone.
    fn inner(&mut self, name: impl FnOnce(&mut Self)) {
        let mark = self.names.mark();
        self.holders.push(HashMap::new());
        name(self);
        self.holders.pop();
        self.names.go_back(mark);
    }

    /// Names what a loop carries, which has one variable for all rounds and after them, and the lists of what rounds leave.
    fn name_repeat(&mut self, uses: &Uses, i: usize, statement: &Statement, repeat: &Repeat) {
        for var in repeat.init.iter().chain(&repeat.none).flat_map(Code::vars) {
            *self.pending.entry(var).or_insert(0) += 1;
        }
        for (n, &output) in repeat.outputs.iter().enumerate() {
            for var in repeat.init.get(n).map(Code::vars).unwrap_or_default() {
                self.pending.entry(var).and_modify(|reads| *reads -= 1);
            }
            let wanted = match repeat.init.get(n) {
                Some(Code::Use(var) | Code::Clone(var)) if self.name(*var) != "_" => {
                    self.name(*var).to_owned()
                }
                _ => self.wanted(statement, output),
            };
            let used = |var: &VarId| self.uses.contains_key(var) || self.sources.contains(var);
            let parameter = repeat.parameters.get(n);
            if !used(&output) && !parameter.is_some_and(used) {
                for var in [Some(&output), parameter].into_iter().flatten() {
                    self.variables.names.insert(*var, "_".to_owned());
                }
                continue;
            }
            let name = self.fresh(&wanted, uses, i, statement);
            for var in [Some(&output), parameter].into_iter().flatten() {
                self.hold(*var, name.clone());
            }
            self.carried.extend(parameter);
            self.variables.mutable.insert(output);
            // What the loop begins with is its variable already.
            if let Some(Code::Use(var)) = repeat.init.get(n)
                && uses.bound.contains(var)
                && self.name(*var) == name
            {
                self.variables.mutable.insert(*var);
            }
        }
        self.pending.clear();
        for (parameter, result) in assignable(repeat, &self.sources) {
            let name = self.name(parameter).to_owned();
            if name != "_" {
                self.variables.names.insert(result, name);
                self.variables.assigned.insert(result);
                self.variables.mutable.insert(result);
            }
        }
        if repeat.trip_count.is_none() {
            let name = self.names.fresh("go_on");
            self.reserved.push(name.clone());
            self.variables.flags.insert(repeat.iteration.clone(), name);
        }
    }

    /// Names the variables for the items of sequences that rounds go over, which no other variable has.
    fn name_items(&mut self) {
        let structure = self.structure;
        for statement in structure.body.block.all_statements() {
            let Statement::Repeat(repeat) = statement else { continue };
            let Some((field, _)) = repeat.in_hand() else { continue };
            if !self.variables.in_hand.contains_key(&field) {
                let name = self.names.fresh(&singular(&self.fields[field]));
                self.reserved.push(name.clone());
                self.variables.in_hand.insert(field, name);
            }
        }
    }

    /// Names what there is in a statement, and notes how functions are called.
    fn inside(&mut self, statement: &'a Statement) {
        match statement {
            Statement::Bind { code, .. } | Statement::Read { code, .. } => self.note_calls(code, None),
            Statement::If { then, otherwise, .. } => {
                for branch in [then, otherwise] {
                    self.inner(|namer| namer.block(branch));
                }
            }
            Statement::Repeat(repeat) => {
                repeat.init.iter().for_each(|code| self.note_calls(code, None));
                self.round(repeat);
            }
            Statement::List { items, .. } => items.iter().for_each(|item| self.note_calls(item, None)),
            Statement::Push { value, .. } => self.note_calls(value, None),
            Statement::Optional { output, code, otherwise, field, .. } => {
                self.note_calls(otherwise, None);
                if let Some(field) = field {
                    self.name_item(*output, *field);
                }
                self.note_calls(code, None);
            }
            Statement::Loop { output, init, callee, args, .. } => {
                self.note_calls(init, None);
                self.variables.mutable.insert(*output);
                if let Some(place) = callee.place {
                    self.name_item(*output, place.field);
                }
                let carried = self.name(*output).to_owned();
                self.note_arguments(callee.structure, args, Some(&carried));
                args.iter().for_each(|arg| self.note_calls(arg, Some(&carried)));
            }
        }
    }

    /// Names the variable for the items of a field.
    fn name_item(&mut self, output: VarId, field: FieldId) {
        self.variables.items.insert(output, self.names.free(&singular(&self.fields[field])));
    }

    /// Gives back the names of functions that are called here alone: what they yield may be called like them.
    fn give_back_names(&mut self, code: &Code) {
        code.visit(&mut |part| {
            if let Code::Module(callee, _) = part
                && callee.place.is_none()
                && self.calls.get(&callee.structure) == Some(&1)
            {
                self.names.give_back(&self.structs[callee.structure]);
            }
        });
    }

    /// Notes the names of arguments in all calls of an expression.
    fn note_calls(&mut self, code: &Code, carried: Option<&str>) {
        let mut calls = Vec::new();
        code.visit(&mut |part| {
            if let Code::Module(callee, args) = part
                && !self.arguments.contains_key(&callee.structure)
            {
                calls.push((callee.structure, args.clone()));
            }
        });
        for (structure, args) in calls {
            self.note_arguments(structure, &args, carried);
        }
    }

    /// Remembers the names of a call's arguments for the function's inputs.
    fn note_arguments(&mut self, structure: StructId, args: &[Code], carried: Option<&str>) {
        if self.arguments.contains_key(&structure) {
            return;
        }
        let name = |arg: &Code| match arg {
            Code::Parameter(_) => "weight".to_owned(),
            Code::Carried => carried.unwrap_or_default().to_owned(),
            arg => arg.first_var().map(|var| self.name(var).to_owned()).unwrap_or_default(),
        };
        let names = args.iter().map(name).collect();
        self.arguments.insert(structure, names);
    }

    /// Names what a statement yields.
    ///
    /// What a loop goes on with (`looped`) is named after neither its maker nor the loop's modules.
    fn name_outputs(&mut self, uses: &Uses, i: usize, statement: &Statement, looped: bool) {
        let body = &self.structure.body;
        let mut pattern: BTreeSet<String> = BTreeSet::new();
        for (n, &output) in statement.outputs().iter().enumerate() {
            if self.variables.assigned.contains(&output) {
                continue;
            }
            if !self.uses.contains_key(&output) && !self.sources.contains(&output) {
                self.variables.names.insert(output, "_".to_owned());
                continue;
            }
            let hint = body.hints.get(&output);
            let reused = if n == 0 { self.reused(uses, i, statement, output) } else { None };
            let reused = reused.map(|var| self.name(var).to_owned()).filter(|name| {
                let plain = is_plain(name);
                (!looped || plain) && hint.is_none_or(|hint| hint == name)
            });
            let begun = self.begun(statement).map(|var| self.name(var).to_owned());
            let mut name = match (begun.or(reused), hint) {
                (Some(name), _) => name,
                (None, Some(hint)) => self.fresh(hint, uses, i, statement),
                (None, None) => {
                    let wanted = self.wanted(statement, output);
                    let wanted = if looped { "hidden" } else { &wanted };
                    let plain = wanted == "hidden" && self.is_free("x", uses, i, statement);
                    self.fresh(if plain { "x" } else { wanted }, uses, i, statement)
                }
            };
            if !pattern.insert(name.clone()) {
                name = self.names.fresh(&name);
                pattern.insert(name.clone());
            }
            self.hold(output, name);
        }
    }

    /// The variable that a loop goes on with, which is there already: its name is the loop's whatever the result would be called.
    fn begun(&self, statement: &Statement) -> Option<VarId> {
        let [_, begin] = statement.carried()?;
        self.variables.mutable.contains(&begin).then_some(begin)
    }

    /// The variable that goes on with a result: the one that the expression begins with, when it ends here.
    fn reused(&self, uses: &Uses, i: usize, statement: &Statement, output: VarId) -> Option<VarId> {
        let code = match statement {
            Statement::Bind { code, .. } => code,
            Statement::Optional { otherwise, .. } => otherwise,
            Statement::Loop { init, .. } => init,
            Statement::Read { .. }
            | Statement::If { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Repeat(_) => return None,
        };
        let head =
            code.first_var().filter(|&head| moves(statement, head) && !uses.after(i, statement, head))?;
        if self.carried.contains(&head) {
            return None;
        }
        let kind = |var: VarId| kind_of(self.ty(var).dtype);
        let name = self.variables.names.get(&head)?;
        let is_mask = name.contains("mask");
        let converted = kind(head) != kind(output) && (!is_mask || is_choice(code));
        let converted = converted || (is_mask && self.counts(Some(head), output));
        if converted || (joins(code) && !matches!(name.as_str(), "x" | "hidden")) {
            return None;
        }
        // `query`, `key` and `value` of one `x`: the last is no `x` either.
        let named = self.word(code).is_some_and(|word| !names_a_kind(&word));
        let siblings = self.calls_on.get(&head).copied().unwrap_or(0);
        // What a layer makes of a thing is that thing no more.
        let made = makes_new(code) && !is_plain(name);
        let other = made || (named && siblings > 1);
        (!other).then_some(head)
    }

    /// Whether integers of a mask are of another number: how many it has, or where they end, and no mask.
    fn counts(&self, mask: Option<VarId>, output: VarId) -> bool {
        let of = self.ty(output);
        kind_of(of.dtype) == DTypeKind::Int
            && mask.is_some_and(|mask| self.ty(mask).num_elements() != of.num_elements())
    }

    /// A good name for a new variable.
    fn wanted(&self, statement: &Statement, output: VarId) -> String {
        let code = match statement {
            Statement::Bind { code, .. }
            | Statement::Optional { code, .. }
            | Statement::Loop { init: code, .. } => Some(code),
            Statement::Read { .. }
            | Statement::If { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Repeat(_) => None,
        };
        // Neither the mask nor what it is filled into says what comes of it.
        let code = code.filter(|code| !is_choice(code));
        let first = code.and_then(Code::first_var).map(|var| self.name(var));
        if let Some(mask) = first.filter(|name| name.contains("mask"))
            && code.is_some_and(|code| !makes_new(code))
            && !self.counts(code.and_then(Code::first_var), output)
        {
            return mask.to_owned();
        }
        if let Some(word) = code.and_then(|code| self.word(code))
            && !names_a_kind(&word)
        {
            return word;
        }
        match kind_of(self.ty(output).dtype) {
            DTypeKind::Bool => "mask".to_owned(),
            DTypeKind::Int => "indices".to_owned(),
            DTypeKind::Float => "hidden".to_owned(),
        }
    }

    /// A name whose variable nothing needs any more, or a new one.
    fn fresh(&mut self, wanted: &str, uses: &Uses, i: usize, statement: &Statement) -> String {
        if self.names.contains(wanted) && self.is_free(wanted, uses, i, statement) {
            return wanted.to_owned();
        }
        self.names.fresh(wanted)
    }

    /// Whether no variable of this name is needed after a statement. Of the blocks around, later statements are not seen.
    fn is_free(&mut self, name: &str, uses: &Uses, i: usize, statement: &Statement) -> bool {
        let Some((inner, outer)) = self.holders.split_last_mut() else { return false };
        if outer.iter().any(|holders| holders.contains_key(name)) {
            return false;
        }
        // A name that is taken without a holder belongs to a symbol or a word of the language.
        let Some(holders) = inner.get_mut(name) else { return !self.names.contains(name) };
        let pending = |var: &VarId| self.pending.get(var).is_some_and(|&reads| reads > 0);
        while holders.pop_if(|var| !pending(var) && !uses.after(i, statement, *var)).is_some() {}
        holders.is_empty()
    }

    /// The last word of the field that an expression begins with, when it is a word.
    fn word(&self, code: &Code) -> Option<String> {
        let mut part = code;
        let mut is_one_of_several = false;
        let key = loop {
            let field = match part {
                Code::Parameter(field) => *field,
                Code::Layer(Place { field, position: None }, ..) => *field,
                Code::Module(Callee { place: Some(Place { field, position }), .. }, _)
                    if !matches!(position, Some(Position::OfRound)) =>
                {
                    is_one_of_several = position.is_some();
                    *field
                }
                // One of several has not the name of all; the item that a round has in hand has that of one.
                Code::Layer(..) | Code::Module(..) => return None,
                Code::Make(_, name, _) => return made(name).map(str::to_owned),
                _ => {
                    part = part.parts().into_iter().next()?;
                    continue;
                }
            };
            let first = self.structure.members.first()?;
            break self.program.modules[*first].fields.get(field)?.key.as_str();
        };
        let last = key.rsplit('.').next().unwrap_or(key);
        let plain = last.len() > 2 && last.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        let word = plain.then(|| snake(last, "hidden"))?;
        if !is_one_of_several {
            return Some(word);
        }
        Some(singular(&word)).filter(|one| *one != word)
    }
}

/// What rounds carry on that can go into the loop's variable where it is made, since nothing reads what the round began
/// with after that: with what the round began with.
fn assignable(repeat: &Repeat, sources: &HashSet<VarId>) -> Vec<(VarId, VarId)> {
    let carried = repeat.body.results.get(repeat.left().len()..).unwrap_or_default();
    let mut makers: HashMap<VarId, usize> = HashMap::new();
    let mut last: HashMap<VarId, usize> = HashMap::new();
    for (i, statement) in repeat.body.statements.iter().enumerate() {
        makers.extend(statement.outputs().iter().map(|&output| (output, i)));
        last.extend(statement.codes().into_iter().flat_map(Code::vars).map(|var| (var, i)));
    }
    let results: HashSet<VarId> = repeat.body.results.iter().flat_map(Code::vars).collect();
    let mut counts: HashMap<VarId, usize> = HashMap::new();
    for var in carried.iter().flat_map(Code::vars) {
        *counts.entry(var).or_insert(0) += 1;
    }
    let pair = |(&parameter, code): (&VarId, &Code)| {
        let &Code::Use(result) = code else { return None };
        let &maker = makers.get(&result)?;
        let is_read = results.contains(&parameter) || last.get(&parameter).is_some_and(|&last| last > maker);
        let can_assign = match &repeat.body.statements[maker] {
            Statement::Bind { .. } => true,
            Statement::Loop { init, args, .. } => {
                !matches!(init, Code::Use(_)) && args.iter().all(|arg| !arg.vars().contains(&parameter))
            }
            Statement::Read { .. }
            | Statement::If { .. }
            | Statement::Repeat(_)
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Optional { .. } => false,
        };
        (can_assign && !is_read && counts.get(&result) == Some(&1)).then_some((parameter, result))
    };
    let mut pairs: Vec<(VarId, VarId)> = repeat.parameters.iter().zip(carried).filter_map(pair).collect();
    // A pattern has variables that are there, or new ones.
    let found: HashSet<VarId> = pairs.iter().map(|&(_, result)| result).collect();
    let is_there = |var: &VarId| {
        found.contains(var) || !results.contains(var) && !last.contains_key(var) && !sources.contains(var)
    };
    pairs.retain(|(_, result)| {
        let maker = makers.get(result).and_then(|&maker| repeat.body.statements.get(maker));
        maker.is_some_and(|maker| maker.outputs().iter().all(is_there))
    });
    pairs
}

/// How often each function is called.
fn function_calls(block: &Block) -> BTreeMap<StructId, usize> {
    let mut calls: BTreeMap<StructId, usize> = BTreeMap::new();
    for code in block.codes() {
        code.visit(&mut |part| {
            if let Code::Module(callee, _) = part
                && callee.place.is_none()
            {
                *calls.entry(callee.structure).or_insert(0) += 1;
            }
        });
    }
    calls
}

/// What a constructor's tensor is called, if it has a word for that.
fn made(constructor: &str) -> Option<&'static str> {
    match constructor {
        "arange" | "arange_step" => Some("positions"),
        "zeros" => Some("zeros"),
        "ones" => Some("ones"),
        "full" => Some("filled"),
        _ => None,
    }
}

/// Whether a variable has no name of its own: `x`, `hidden2`.
fn is_plain(name: &str) -> bool {
    matches!(name.trim_end_matches(|c: char| c.is_ascii_digit()), "x" | "hidden")
}

/// Whether an expression begins with the call of a layer or module.
fn makes_new(code: &Code) -> bool {
    match code {
        Code::Layer(..) | Code::Module(..) => true,
        Code::Method(inner, ..) | Code::Infix(inner, ..) => makes_new(inner),
        Code::Call(_, args) => args.first().is_some_and(makes_new),
        _ => false,
    }
}

/// So far below 0 are numbers at most that hide scores.
const MOST_HIDDEN: f64 = -1e3;

/// Whether an expression is one of two numbers for each element of a mask, and no mask that is added to scores.
fn is_choice(code: &Code) -> bool {
    let Code::Method(receiver, name, ..) = code else { return false };
    if name != "mask_fill" {
        return is_choice(receiver);
    }
    let mut hides = false;
    code.visit(&mut |part| {
        if let Code::Scalar(number, _) | Code::Float(number) = part {
            hides |= number.0.to_f64() <= MOST_HIDDEN;
        }
    });
    receiver.first_var().is_none() && !hides
}

/// Whether an expression is a call that joins several values into something new.
fn joins(code: &Code) -> bool {
    match code {
        Code::Method(receiver, ..) => joins(receiver),
        Code::Call(..) => {
            let vars = code.vars();
            vars.iter().any(|var| Some(var) != vars.first())
        }
        _ => false,
    }
}

/// Whether a statement moves a variable.
fn moves(statement: &Statement, var: VarId) -> bool {
    let mut moved = false;
    for code in statement.codes() {
        code.visit(&mut |part| moved |= matches!(part, Code::Use(used) if *used == var));
    }
    moved
}
/// What numbers of a dtype are: those of few bits stand for others, or are pixels.
fn kind_of(dtype: DType) -> DTypeKind {
    match dtype {
        DType::I8 | DType::U8 | DType::I16 | DType::U16 => DTypeKind::Float,
        dtype => dtype.kind(),
    }
}
