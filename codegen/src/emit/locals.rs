//! Names of a function's variables.

use super::dims::Scope;
use crate::code::{Block, Code, Statement};
use crate::names::{self, Names, ident};
use crate::plan::{Plan, Step};
use kiln_importer::ir::{Symbol, SymbolOrigin, ValueId};
use kiln_types::DTypeKind;
use proc_macro2::Ident;
use std::collections::{BTreeMap, BTreeSet};

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
    "self",
];

/// The variables of one function.
#[derive(Clone, Debug, Default)]
pub struct Locals {
    values: BTreeMap<ValueId, String>,
    symbols: BTreeMap<Symbol, (String, bool)>,
    names: Names,
    carried: String,
    /// Values whose variables may be assigned to.
    mutable: BTreeSet<ValueId>,
    /// Blocks around the one in hand, whose later statements are not seen.
    nested: usize,
}

impl Scope for Locals {
    fn symbol(&self, symbol: &Symbol) -> (Ident, bool) {
        match self.symbols.get(symbol) {
            Some((name, signed)) => (ident(name), *signed),
            None => (ident(&names::snake(symbol, "size")), false),
        }
    }
}

impl Locals {
    /// Names for a function's inputs (hints, one each) and symbols.
    pub fn new(plan: &Plan<'_>, module: usize, hints: &[String]) -> Self {
        let data = &plan.modules[module];
        let passed = plan.structs[data.struct_id].parameters.iter().filter(|parameter| parameter.passed);
        let taken = passed.map(|parameter| parameter.name.as_str()).chain(["device", "self"]);
        let taken = taken.chain(called_again(plan, &data.steps));
        let mut locals = Self { names: Names::with(taken), ..Self::default() };
        for (&value, hint) in data.inputs.iter().zip(hints) {
            let name = locals.names.fresh(hint);
            locals.values.insert(value, name);
        }
        let mut symbols: BTreeSet<Symbol> = data.body.symbols.iter().cloned().collect();
        symbols.extend(data.body.sources.iter().map(|(symbol, _, _)| symbol.clone()));
        for statement in &data.body.block.statements {
            collect_read_symbols(statement, &mut symbols);
        }
        for symbol in symbols {
            let signed = matches!(plan.origin(&symbol), Some(SymbolOrigin::Read { .. }));
            let name = locals.names.fresh(&names::snake(&symbol, "size"));
            locals.symbols.insert(symbol, (name, signed));
        }
        locals
    }

    /// The variable of a value.
    pub fn name(&self, value: ValueId) -> String {
        self.values.get(&value).cloned().unwrap_or_else(|| "x".to_owned())
    }

    /// The variable of a symbol.
    pub fn symbol_name(&self, symbol: &Symbol) -> String {
        self.symbols.get(symbol).map_or_else(|| names::snake(symbol, "size"), |(name, _)| name.clone())
    }

    /// The variable that a loop carries.
    pub fn carried(&self) -> String {
        self.carried.clone()
    }

    /// Sets the variable that the loop in hand carries.
    pub fn set_carried(&mut self, name: &str) {
        name.clone_into(&mut self.carried);
    }

    /// Notes that a value's variable may be assigned to.
    pub fn make_mutable(&mut self, value: ValueId) {
        self.mutable.insert(value);
    }

    /// Whether a value's variable may be assigned to.
    pub fn is_mutable(&self, value: ValueId) -> bool {
        self.mutable.contains(&value)
    }

    /// Enters a nested block.
    pub fn nest(&mut self) {
        self.nested += 1;
    }

    /// The variable for the items of a field.
    pub fn item_name(&self, field: &str) -> String {
        let field = field.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
        let singular = match field.strip_suffix('s') {
            Some(stem) if stem.len() > 2 && !stem.ends_with('s') => stem,
            _ if field.len() < 3 => "block",
            _ => field,
        };
        let mut names = self.names.clone();
        names.fresh(singular)
    }

    /// Names what statement `i` of a block yields.
    ///
    /// What a loop goes on with (`looped`) is named after neither its maker nor the loop's modules.
    pub fn name_outputs(&mut self, plan: &Plan<'_>, module: usize, block: &Block, i: usize, looped: bool) {
        let statement = &block.statements[i];
        let used_later = |value: ValueId| uses_after(block, i, value);
        let dying: BTreeSet<ValueId> =
            moved(statement).into_iter().filter(|&value| !used_later(value)).collect();
        let body = &plan.modules[module].body;
        let mut pattern: BTreeSet<String> = BTreeSet::new();
        for (n, &output) in statement.outputs().iter().enumerate() {
            if body.block.count(output) == 0 && !body.sources.iter().any(|(_, source, _)| *source == output) {
                self.values.insert(output, "_".to_owned());
                continue;
            }
            let hint = body.hints.get(&output);
            let reused = self.reused(plan, module, statement, &dying, n).map(|value| self.name(value));
            let reused = reused.filter(|name| {
                let plain = is_plain(name);
                (!looped || plain) && hint.is_none_or(|hint| hint == name)
            });
            let mut name = match (reused, hint) {
                (Some(name), _) => name,
                (None, Some(hint)) => self.fresh(hint, block, i),
                (None, None) => {
                    let wanted = self.wanted(plan, module, statement, output);
                    let wanted = if looped { "hidden" } else { &wanted };
                    let plain = wanted == "hidden" && self.is_free("x", block, i);
                    self.fresh(if plain { "x" } else { wanted }, block, i)
                }
            };
            if !pattern.insert(name.clone()) {
                name = self.names.fresh(&name);
                pattern.insert(name.clone());
            }
            self.values.insert(output, name);
        }
    }

    /// The value whose variable goes on with this result: the one that the expression begins with, when it ends here.
    fn reused(
        &self,
        plan: &Plan<'_>,
        module: usize,
        statement: &Statement,
        dying: &BTreeSet<ValueId>,
        n: usize,
    ) -> Option<ValueId> {
        if n > 0 {
            return None;
        }
        let code = match statement {
            Statement::Bind { code, .. } => code,
            Statement::Optional { otherwise, .. } => otherwise,
            Statement::Loop { init, .. } => init,
            _ => return None,
        };
        if let (Statement::Loop { .. }, Code::Use(value)) = (statement, code)
            && self.mutable.contains(value)
        {
            return Some(*value);
        }
        let head = code.values().first().copied().filter(|value| dying.contains(value))?;
        let output = statement.outputs().first()?;
        let kind = |value: ValueId| plan.graph.ty(value).dtype.kind();
        let name = self.values.get(&head)?;
        let converted = kind(head) != kind(*output) && !name.contains("mask");
        if converted || (joins(code) && !matches!(name.as_str(), "x" | "hidden")) {
            return None;
        }
        // `query`, `key` and `value` of one `x`: the last is no `x` either.
        let named = word(plan, module, code).is_some_and(|word| !names_a_kind(&word));
        let siblings = sibling_calls(plan, module, head);
        // What a layer makes of a thing is that thing no more.
        let made = makes_new(code) && !is_plain(name);
        let other = made || (named && siblings > 1);
        (!other).then_some(head)
    }

    /// A good name for a new variable.
    fn wanted(&self, plan: &Plan<'_>, module: usize, statement: &Statement, output: ValueId) -> String {
        let code = match statement {
            Statement::Bind { code, .. }
            | Statement::Optional { code, .. }
            | Statement::Loop { init: code, .. } => Some(code),
            _ => None,
        };
        let names = code.into_iter().flat_map(Code::values).map(|value| self.name(value));
        if let Some(mask) = names.into_iter().next().filter(|name| name.contains("mask"))
            && code.is_some_and(|code| !matches!(code, Code::Layer(..) | Code::Module(..)))
        {
            return mask;
        }
        if let Some(word) = code.and_then(|code| word(plan, module, code))
            && !names_a_kind(&word)
        {
            return word;
        }
        match plan.graph.ty(output).dtype.kind() {
            DTypeKind::Bool => "mask".to_owned(),
            DTypeKind::Int => "indices".to_owned(),
            DTypeKind::Float => "hidden".to_owned(),
        }
    }

    /// A name whose variable nothing needs any more, or a new one.
    fn fresh(&mut self, wanted: &str, block: &Block, i: usize) -> String {
        if self.is_free(wanted, block, i) && self.names.contains(wanted) {
            return wanted.to_owned();
        }
        self.names.fresh(wanted)
    }

    /// Whether no variable of this name is needed after statement `i`.
    fn is_free(&self, name: &str, block: &Block, i: usize) -> bool {
        let holders = self.values.iter().filter(|(_, holder)| *holder == name);
        let mut holders = holders.map(|(&value, _)| value).peekable();
        let over = |value| !uses_after(block, i, value) && (self.nested == 0 || !self.is_outer(block, value));
        // A name that is taken without a holder belongs to a symbol or a word of the language.
        (holders.peek().is_some() || !self.names.contains(name)) && holders.all(over)
    }

    /// Whether a value comes from around a nested block, where uses after the block are not seen.
    fn is_outer(&self, block: &Block, value: ValueId) -> bool {
        !block.statements.iter().any(|statement| statement.outputs().contains(&value))
    }
}

/// Functions that steps call more than once: a variable of the name would hide one from its later calls.
fn called_again<'p>(plan: &'p Plan<'_>, steps: &[Step]) -> Vec<&'p str> {
    fn count<'p>(plan: &'p Plan<'_>, steps: &[Step], found: &mut BTreeMap<&'p str, usize>) {
        for step in steps {
            match step {
                Step::Call(child) => {
                    let called = &plan.structs[plan.modules[*child].struct_id];
                    if called.function {
                        *found.entry(called.name.as_str()).or_insert(0) += 1;
                    }
                }
                Step::Branches { then, otherwise, .. } => {
                    count(plan, then, found);
                    count(plan, otherwise, found);
                }
                Step::Node(_) | Step::Loop { .. } => {}
            }
        }
    }
    let mut found = BTreeMap::new();
    count(plan, steps, &mut found);
    found.into_iter().filter(|(_, calls)| *calls > 1).map(|(name, _)| name).collect()
}

/// Whether a word names a layer's kind: `norm`, `final_layer_norm`, `c_proj`.
fn names_a_kind(word: &str) -> bool {
    KINDS.contains(&word) || word.rsplit('_').next().is_some_and(|last| KINDS.contains(&last))
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

/// Whether an expression is a call that joins several values into something new.
fn joins(code: &Code) -> bool {
    match code {
        Code::Method(receiver, ..) => joins(receiver),
        Code::Call(..) => {
            let values: BTreeSet<ValueId> = code.values().into_iter().collect();
            values.len() > 1
        }
        _ => false,
    }
}

/// Values that a statement moves.
fn moved(statement: &Statement) -> Vec<ValueId> {
    let mut values = Vec::new();
    for code in statement.codes() {
        code.visit(&mut |part| {
            if let Code::Use(value) = part {
                values.push(*value);
            }
        });
    }
    values
}

/// Whether a value is used after what statement `i` yields is there; a loop's arguments are used again and again.
fn uses_after(block: &Block, i: usize, value: ValueId) -> bool {
    if let Statement::Loop { args, .. } = &block.statements[i]
        && args.iter().any(|arg| arg.count(value) > 0)
    {
        return true;
    }
    block.statements[i + 1..]
        .iter()
        .flat_map(Statement::codes)
        .chain(&block.results)
        .any(|code| code.count(value) > 0)
}

/// How often the layers and modules of a function are called on a value.
fn sibling_calls(plan: &Plan<'_>, module: usize, value: ValueId) -> usize {
    let mut calls = 0;
    for code in plan.modules[module].body.block.codes() {
        code.visit(&mut |part| {
            if let Code::Layer(_, _, args) | Code::Module(_, args) = part {
                calls += usize::from(args.first().is_some_and(|arg| arg.values().first() == Some(&value)));
            }
        });
    }
    calls
}

/// The last word of the field that an expression begins with, when it is a word.
fn word(plan: &Plan<'_>, module: usize, code: &Code) -> Option<String> {
    let mut part = code;
    let key = loop {
        match part {
            Code::Layer(..) | Code::Module(..) | Code::Parameter(_) => {
                let field = crate::plan::field_index(plan, module, part)?;
                break plan.modules[module].fields[field].key.clone();
            }
            Code::Make(_, name, _) => break name.clone().into_owned(),
            _ => part = part.parts().into_iter().next()?,
        }
    };
    let last = key.rsplit('.').next().unwrap_or(&key);
    let plain = last.len() > 2 && last.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    plain.then(|| names::snake(last, "hidden"))
}

fn collect_read_symbols(statement: &Statement, symbols: &mut BTreeSet<Symbol>) {
    match statement {
        Statement::Read { symbols: read, .. } => symbols.extend(read.iter().cloned()),
        Statement::If { then, otherwise, .. } => {
            for inner in then.statements.iter().chain(&otherwise.statements) {
                collect_read_symbols(inner, symbols);
            }
        }
        _ => {}
    }
}
