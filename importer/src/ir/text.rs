//! A graph as text, for people: one line a node.

use super::{Graph, Node, NodeId, Op, Region, SymbolOrigin, ValueDef, ValueId};
use std::fmt::{self, Display, Formatter};

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {:?} {{", self.name)?;
        for &input in &self.inputs {
            let value = self.value(input);
            writeln!(f, "  {input}: {} = input {:?}", value.ty, value.name)?;
        }
        for (symbol, origin) in &self.symbols {
            if let SymbolOrigin::Dim { value, axis } = origin {
                writeln!(f, "  {symbol} = dim {axis} of {value}")?;
            }
        }
        self.write_region(f, &self.root, 1)?;
        writeln!(f, "}}")
    }
}

impl Graph {
    fn write_region(&self, f: &mut Formatter<'_>, region: &Region, depth: usize) -> fmt::Result {
        for &id in &region.nodes {
            self.write_node(f, id, depth)?;
        }
        write!(f, "{:1$}return", "", depth * 2)?;
        for (i, &output) in region.outputs.iter().enumerate() {
            write!(f, "{} {}", if i > 0 { "," } else { "" }, self.operand(Some(output)))?;
        }
        writeln!(f)
    }

    fn write_node(&self, f: &mut Formatter<'_>, id: NodeId, depth: usize) -> fmt::Result {
        let node = self.node(id);
        write!(f, "{:1$}", "", depth * 2)?;
        for (i, &output) in node.outputs.iter().enumerate() {
            write!(f, "{}{output}: {}", if i > 0 { ", " } else { "" }, self.ty(output))?;
        }
        if !node.outputs.is_empty() {
            write!(f, " = ")?;
        }
        write!(f, "{}", &node.op)?;
        for (i, &input) in node.inputs.iter().enumerate() {
            write!(f, "{} {}", if i > 0 { "," } else { "" }, self.operand(input))?;
        }
        writeln!(f, "{}", Comment(node))?;
        for (n, region) in node.op.regions().into_iter().enumerate() {
            writeln!(f, "{:1$}region {n} {{", "", depth * 2)?;
            self.write_region(f, region, depth + 1)?;
            writeln!(f, "{:1$}}}", "", depth * 2)?;
        }
        Ok(())
    }

    /// An operand as text: `%7`, `c3("conv1.weight")`, a literal for a scalar, `_` for an absent one.
    fn operand(&self, id: Option<ValueId>) -> String {
        let Some(id) = id else {
            return "_".into();
        };
        let Some(value) = self.values.get(id.index()) else {
            return format!("{id}?");
        };
        let (ValueDef::Constant(c), Some(constant)) = (value.def, self.constant(id)) else {
            return id.to_string();
        };
        match (&constant.name, crate::fold::scalar(&constant.data)) {
            (_, Some(scalar)) => format!("{}:{}", crate::fold::scalar_text(scalar), value.ty),
            (Some(name), _) => format!("{c}({name:?})"),
            (None, _) => format!("{c}:{}", value.ty),
        }
    }
}

impl Op {
    /// The operation's name alone: `Conv`, `Add`, `Relu`.
    pub fn name(&self) -> String {
        let text = self.to_string();
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    }
}

/// An operation without its regions; its name comes first.
impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Op::If { condition, .. } => write!(f, "If({condition})"),
            Op::Binary(op) => write!(f, "{op:?}"),
            Op::Unary(op) => write!(f, "{op:?}"),
            Op::Compare(op) => write!(f, "{op:?}"),
            Op::Activation(activation) => write!(f, "{activation:?}"),
            op => write!(f, "{op:?}"),
        }
    }
}

/// Where a node comes from: the innermost module, or the node's name.
struct Comment<'a>(&'a Node);

impl Display for Comment<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.origin.scope.last().filter(|scope| !scope.path.is_empty()) {
            Some(scope) => write!(f, "  // {}", scope.path.escape_debug()),
            None if self.0.origin.name.is_empty() => Ok(()),
            None => write!(f, "  // {:?}", self.0.origin.name),
        }
    }
}
