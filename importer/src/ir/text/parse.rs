//! Reading of graphs.

use super::types::{dims, tensor_type};
use super::{Cursor, TextErrorKind, TextResult, data, read};
use crate::ir::builder::host_of;
use crate::ir::{
    Constant, ConstantId, Dim, Graph, HostRead, Loop, Op, Origin, Provenance, Region, ScopeEntry, Symbol,
    SymbolOrigin, TensorType, Value, ValueDef, ValueId,
};
use kiln_types::TensorData;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads one graph and nothing after it.
pub(super) fn graph(text: &str) -> TextResult<Graph> {
    let mut parser = Parser {
        cursor: Cursor::new(text),
        graph: Graph::default(),
        labels: BTreeMap::new(),
        scopes: BTreeMap::new(),
        symbols: Vec::new(),
    };
    parser.cursor.expect("graph")?;
    parser.graph.name = parser.cursor.string()?;
    parser.cursor.expect("{")?;
    let root = parser.region(true)?;
    parser.cursor.end()?;
    parser.graph.root = root;
    parser.resolve_symbols()?;
    Ok(parser.graph)
}

/// A value where it is defined: its label, its name, its type, its contents.
struct Definition {
    at: usize,
    label: String,
    name: Option<String>,
    ty: TensorType,
    host: Option<Vec<Dim>>,
}

/// A symbol's line; the value it names may come later.
struct SymbolLine {
    at: usize,
    symbol: Symbol,
    axis: usize,
    label: String,
}

struct Parser<'t> {
    cursor: Cursor<'t>,
    graph: Graph,
    labels: BTreeMap<String, ValueId>,
    scopes: BTreeMap<String, Vec<ScopeEntry>>,
    symbols: Vec<SymbolLine>,
}

impl Parser<'_> {
    // ---- regions ----

    /// Lines up to the closing brace; those of the root may also define inputs, constants, symbols and scopes.
    fn region(&mut self, root: bool) -> TextResult<Region> {
        let mut region = Region::default();
        loop {
            match self.cursor.peek() {
                Some('%') => self.value_line(&mut region, root)?,
                Some('@') if root => self.scope_line()?,
                _ if self.cursor.eat_word("return") => {
                    region.outputs = self.results(root)?;
                    self.cursor.expect("}")?;
                    return Ok(region);
                }
                _ if root && self.cursor.eat_word("symbol") => self.symbol_line()?,
                _ => self.node(Vec::new(), &mut region)?,
            }
        }
    }

    fn results(&mut self, root: bool) -> TextResult<Vec<ValueId>> {
        let mut outputs = Vec::new();
        while self.cursor.peek() == Some('%') || !outputs.is_empty() {
            let (at, label) = self.label()?;
            outputs.push(self.known(at, &label)?);
            if root {
                let name =
                    if self.cursor.peek() == Some('"') { self.cursor.string()? } else { String::new() };
                self.graph.output_names.push(name);
            }
            if !self.cursor.eat(",") {
                break;
            }
        }
        Ok(outputs)
    }

    // ---- lines of the head ----

    fn scope_line(&mut self) -> TextResult<()> {
        let at = self.cursor.position();
        self.cursor.expect("@")?;
        let label = self.cursor.label()?.to_owned();
        self.cursor.expect("=")?;
        self.cursor.expect("scope")?;
        let mut scope = if self.cursor.peek() == Some('@') { self.scope()? } else { Vec::new() };
        scope.push(ScopeEntry { path: self.cursor.string()?, class: self.cursor.string()? });
        match self.scopes.insert(label.clone(), scope) {
            None => Ok(()),
            Some(_) => Err(self.cursor.fail_at(at, TextErrorKind::Twice(format!("@{label}")))),
        }
    }

    /// A scope that was defined: `@3`.
    fn scope(&mut self) -> TextResult<Vec<ScopeEntry>> {
        let at = self.cursor.position();
        self.cursor.expect("@")?;
        let label = self.cursor.label()?;
        let unknown = TextErrorKind::Invalid(format!("the scope @{label} is not defined before"));
        self.scopes.get(label).cloned().ok_or_else(|| self.cursor.fail_at(at, unknown))
    }

    fn symbol_line(&mut self) -> TextResult<()> {
        let at = self.cursor.position();
        let name = if self.cursor.peek() == Some('"') {
            self.cursor.string()?
        } else {
            self.cursor.word("a symbol")?.to_owned()
        };
        self.cursor.expect("=")?;
        self.cursor.expect("dim")?;
        let axis = self.cursor.size()?;
        self.cursor.expect("of")?;
        let (_, label) = self.label()?;
        self.symbols.push(SymbolLine { at, symbol: Symbol::from(name), axis, label });
        Ok(())
    }

    fn resolve_symbols(&mut self) -> TextResult<()> {
        for SymbolLine { at, symbol, axis, label } in std::mem::take(&mut self.symbols) {
            let value = self.known(at, &label)?;
            if self.graph.ty(value).dims.get(axis).is_none() {
                let what = format!("%{label} has no axis {axis}");
                return Err(self.cursor.fail_at(at, TextErrorKind::Invalid(what)));
            }
            self.add_symbol(at, symbol, SymbolOrigin::Dim { value, axis })?;
        }
        Ok(())
    }

    fn add_symbol(&mut self, at: usize, symbol: Symbol, origin: SymbolOrigin) -> TextResult<()> {
        match self.graph.symbols.insert(symbol.clone(), origin) {
            None => Ok(()),
            Some(_) => Err(self.cursor.fail_at(at, TextErrorKind::Twice(format!("the symbol `{symbol}`")))),
        }
    }

    // ---- lines that define values ----

    fn value_line(&mut self, region: &mut Region, root: bool) -> TextResult<()> {
        let mut definitions = vec![self.definition()?];
        while self.cursor.eat(",") {
            definitions.push(self.definition()?);
        }
        self.cursor.expect("=")?;
        if root && definitions.len() == 1 {
            if self.cursor.eat_word("input") {
                return self.input(definitions);
            }
            if self.cursor.eat_word("constant") {
                return self.constant(definitions, false);
            }
            if self.cursor.eat_word("parameter") {
                return self.constant(definitions, true);
            }
        }
        self.node(definitions, region)
    }

    fn input(&mut self, definitions: Vec<Definition>) -> TextResult<()> {
        let name = self.cursor.string()?;
        for definition in definitions {
            let n = self.graph.inputs.len() as u32;
            let id = self.define(definition, ValueDef::Input(n))?;
            self.graph.value_mut(id).name.clone_from(&name);
            self.graph.inputs.push(id);
        }
        Ok(())
    }

    /// Contents known from the graph, or a parameter of the original network: as it is there, or made `from` some.
    fn constant(&mut self, definitions: Vec<Definition>, parameter: bool) -> TextResult<()> {
        let name = if self.cursor.peek() == Some('"') { Some(self.cursor.string()?) } else { None };
        for definition in definitions {
            let contents = self.contents(&definition)?;
            let id = ConstantId(self.graph.constants.len() as u32);
            let (hint, host) = (definition.name.clone(), definition.host.clone());
            let value = self.define(definition, ValueDef::Constant(id))?;
            let value = self.graph.value_mut(value);
            value.name = hint.or_else(|| name.clone()).unwrap_or_default();
            value.host = host.or_else(|| host_of(&contents));
            let provenance = match &name {
                Some(key) if parameter => {
                    Some(Arc::new(Provenance::Key { key: key.clone(), shape: contents.shape.clone() }))
                }
                _ if self.cursor.eat_word("from") => Some(Arc::new(read::value(&mut self.cursor)?)),
                _ => None,
            };
            self.graph.constants.push(Constant { name: name.clone(), data: contents, provenance });
        }
        Ok(())
    }

    fn contents(&mut self, definition: &Definition) -> TextResult<TensorData> {
        let Some(shape) = definition.ty.shape() else {
            let what = "the dims of a constant are numbers".to_owned();
            return Err(self.cursor.fail_at(definition.at, TextErrorKind::Invalid(what)));
        };
        data::parse(&mut self.cursor, definition.ty.dtype, shape)
    }

    fn node(&mut self, definitions: Vec<Definition>, region: &mut Region) -> TextResult<()> {
        let at = self.cursor.position();
        let mut op: Op = read::value(&mut self.cursor)?;
        let inputs = self.operands()?;
        let origin = self.origin()?;
        let mut parameters = Vec::new();
        for inner in op.regions_mut() {
            self.cursor.expect("region")?;
            *inner = self.cursor_deeper(Self::inner_region)?;
            parameters.push(inner.parameters.clone());
        }
        let read = if let Op::HostRead(HostRead { symbols }) = &op { symbols.clone() } else { Vec::new() };
        let iteration =
            if let Op::Loop(Loop { iteration, .. }) = &op { Some(iteration.clone()) } else { None };
        let id = self.graph.add_node(op, inputs, Vec::new(), origin);
        for (n, parameter) in parameters.concat().into_iter().enumerate() {
            self.graph.value_mut(parameter).def = ValueDef::RegionParameter(id, n as u32);
        }
        if let Some(symbol) = iteration {
            self.add_symbol(at, symbol, SymbolOrigin::Iteration { node: id })?;
        }
        for (index, symbol) in read.into_iter().enumerate() {
            self.add_symbol(at, symbol, SymbolOrigin::Read { node: id, index })?;
        }
        for (n, definition) in definitions.into_iter().enumerate() {
            let output = self.define(definition, ValueDef::Node(id, n as u32))?;
            self.graph.node_mut(id).outputs.push(output);
        }
        region.nodes.push(id);
        Ok(())
    }

    /// [`Cursor::deeper`] for what needs more than the cursor.
    fn cursor_deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> TextResult<T>) -> TextResult<T> {
        self.cursor.enter()?;
        let result = read(self);
        self.cursor.leave();
        result
    }

    /// Parameters and lines; what is defined inside is known inside only.
    fn inner_region(&mut self) -> TextResult<Region> {
        let outside = self.labels.clone();
        let mut parameters = Vec::new();
        if self.cursor.eat("(") {
            while !self.cursor.eat(")") {
                if !parameters.is_empty() {
                    self.cursor.expect(",")?;
                }
                let definition = self.definition()?;
                // The node that the region belongs to is not there yet.
                parameters.push(self.define(definition, ValueDef::Input(u32::MAX))?);
            }
        }
        self.cursor.expect("{")?;
        let region = self.region(false)?;
        // A symbol may come from a value inside; all others forget them.
        self.labels.retain(|label, value| {
            outside.get(label) == Some(value) || self.symbols.iter().any(|line| line.label == *label)
        });
        Ok(Region { parameters, ..region })
    }

    fn operands(&mut self) -> TextResult<Vec<Option<ValueId>>> {
        let mut operands = Vec::new();
        loop {
            if self.cursor.eat_word("_") {
                operands.push(None);
            } else if self.cursor.peek() == Some('%') && !(operands.is_empty() && self.at_definition()) {
                let (at, label) = self.label()?;
                operands.push(Some(self.known(at, &label)?));
            } else if operands.is_empty() {
                return Ok(operands);
            } else {
                return Err(self.cursor.expected("an operand"));
            }
            if !self.cursor.eat(",") {
                return Ok(operands);
            }
        }
    }

    /// Whether a value is defined here: a line's start looks like an operand after an operation that has none.
    fn at_definition(&mut self) -> bool {
        let rest = self.cursor.ahead();
        let after =
            rest.trim_start_matches('%').trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        after.trim_start().starts_with([':', '"'])
    }

    fn origin(&mut self) -> TextResult<Origin> {
        if !self.cursor.eat_word("at") {
            return Ok(Origin::default());
        }
        let scope = if self.cursor.peek() == Some('@') { self.scope()? } else { Vec::new() };
        Ok(Origin { scope, name: self.cursor.string()?, operator: self.cursor.string()? })
    }

    // ---- values ----

    fn definition(&mut self) -> TextResult<Definition> {
        let (at, label) = self.label()?;
        let name = if self.cursor.peek() == Some('"') { Some(self.cursor.string()?) } else { None };
        self.cursor.expect(":")?;
        let ty = tensor_type(&mut self.cursor)?;
        let host = if self.cursor.eat_word("host") { Some(dims(&mut self.cursor)?) } else { None };
        Ok(Definition { at, label, name, ty, host })
    }

    fn define(&mut self, definition: Definition, def: ValueDef) -> TextResult<ValueId> {
        let Definition { at, label, name, ty, host } = definition;
        if self.labels.contains_key(&label) {
            return Err(self.cursor.fail_at(at, TextErrorKind::Twice(format!("%{label}"))));
        }
        let id = self.graph.add_value(Value { name: name.unwrap_or_default(), ty, def, host });
        self.labels.insert(label, id);
        Ok(id)
    }

    /// A label and where it stands: `%7`.
    fn label(&mut self) -> TextResult<(usize, String)> {
        let at = self.cursor.position();
        self.cursor.expect("%")?;
        Ok((at, self.cursor.label()?.to_owned()))
    }

    fn known(&mut self, at: usize, label: &str) -> TextResult<ValueId> {
        let unknown = || TextErrorKind::UnknownValue(label.to_owned());
        self.labels.get(label).copied().ok_or_else(|| self.cursor.fail_at(at, unknown()))
    }
}
