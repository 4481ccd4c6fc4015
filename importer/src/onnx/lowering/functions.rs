//! Calls of functions, which are inlined.

use super::model::Function;
use super::{Frame, Lowering, cost};
use crate::error::{ImportError, ImportErrorKind};
use crate::ir::RuleError;
use crate::onnx::node::Attribute;
use crate::onnx::operator::Operand;
use crate::onnx::proto::NodeProto;
use std::collections::{HashMap, HashSet};

impl<'m> Lowering<'_, 'm> {
    /// A node's attributes, with those of the function around it put in where it refers to them.
    pub(super) fn attributes(&self, node: &'m NodeProto) -> Result<Vec<Attribute<'m>>, ImportErrorKind> {
        let mut found: Vec<Attribute<'m>> = Vec::with_capacity(node.attribute.len());
        let mut names: HashSet<&str> = HashSet::with_capacity(node.attribute.len());
        for value in &node.attribute {
            let name = value.name.as_str();
            let value = if value.ref_attr_name.is_empty() {
                Some(value)
            } else {
                let frame = self.frames.last();
                frame.and_then(|frame| frame.attributes.get(value.ref_attr_name.as_str()).copied())
            };
            let Some(value) = value else { continue };
            if !names.insert(name) {
                let reason = "is given twice".to_owned();
                return Err(RuleError::Attribute { attribute: name.to_owned(), reason }.into());
            }
            found.push(Attribute { name, value });
        }
        Ok(found)
    }

    /// The nodes of a function in place of its call.
    pub(super) fn inline(
        &mut self,
        function: &'m Function<'m>,
        attributes: Vec<Attribute<'m>>,
        operands: Vec<Option<Operand>>,
    ) -> Result<Vec<Operand>, ImportErrorKind> {
        let proto = function.proto;
        if self.frames.iter().filter_map(|frame| frame.function).any(|around| std::ptr::eq(around, proto)) {
            return Err(ImportErrorKind::Recursion(proto.name.clone()));
        }
        if operands.len() > proto.input.len() {
            let what = format!("{} inputs where the function has {}", operands.len(), proto.input.len());
            return Err(RuleError::Unsupported { what }.into());
        }
        let names = proto.attribute_proto.iter().map(|default| &default.name);
        self.open_scope(true, cost::names(names.chain(&proto.input).chain(&proto.output)))?;
        let defaults = proto.attribute_proto.iter().map(|default| (default.name.as_str(), default));
        let mut values: HashMap<_, _> = defaults.collect();
        values.extend(attributes.iter().map(|attribute| (attribute.name, attribute.value)));
        self.frames.push(Frame { function: Some(proto), opsets: &function.opsets, attributes: values });
        let outputs: Vec<&'m str> = proto.output.iter().map(String::as_str).collect();
        let mut operands = operands.into_iter();
        let bound = proto
            .input
            .iter()
            .try_for_each(|name| self.bind(name, operands.next().flatten()))
            .map_err(ImportError::from);
        let result = bound.and_then(|()| self.body(&proto.node, &outputs));
        self.scopes.pop();
        self.frames.pop();
        self.inner(result).map_err(ImportErrorKind::Rule)
    }
}
