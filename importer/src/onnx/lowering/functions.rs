//! Calls of functions, which are inlined.

use super::{Frame, Lowering, MAX_DEPTH, Scope, opsets};
use crate::error::{ImportError, ImportErrorKind};
use crate::ir::RuleError;
use crate::onnx::node::Attribute;
use crate::onnx::operator::Operand;
use crate::onnx::proto::{FunctionProto, NodeProto};
use std::collections::HashMap;

impl<'m> Lowering<'_, 'm> {
    /// A node's attributes, with those of the function around it put in where it refers to them.
    pub(super) fn attributes(&self, node: &'m NodeProto) -> Result<Vec<Attribute<'m>>, ImportErrorKind> {
        let mut found: Vec<Attribute<'m>> = Vec::with_capacity(node.attribute.len());
        for value in &node.attribute {
            if found.iter().any(|attribute| attribute.name == value.name) {
                let reason = "is given twice".to_owned();
                return Err(RuleError::Attribute { attribute: value.name.clone(), reason }.into());
            }
            let name = value.name.as_str();
            if value.ref_attr_name.is_empty() {
                found.push(Attribute { name, value });
            } else if let Some(frame) = self.frames.last()
                && let Some(actual) = frame.attributes.iter().find(|a| a.name == value.ref_attr_name)
            {
                found.push(Attribute { name, value: actual.value });
            }
        }
        Ok(found)
    }

    /// The nodes of a function in place of its call.
    pub(super) fn inline(
        &mut self,
        function: &'m FunctionProto,
        mut attributes: Vec<Attribute<'m>>,
        operands: Vec<Option<Operand>>,
    ) -> Result<Vec<Operand>, ImportErrorKind> {
        if self.frames.iter().filter_map(|frame| frame.function).any(|around| std::ptr::eq(around, function))
        {
            return Err(ImportErrorKind::Recursion(function.name.clone()));
        }
        if self.frames.len() > MAX_DEPTH {
            return Err(ImportErrorKind::Limit { what: "functions inside functions", limit: MAX_DEPTH });
        }
        if operands.len() > function.input.len() {
            let what = format!("{} inputs where the function has {}", operands.len(), function.input.len());
            return Err(RuleError::Unsupported { what }.into());
        }
        for default in &function.attribute_proto {
            if !attributes.iter().any(|attribute| attribute.name == default.name) {
                attributes.push(Attribute { name: &default.name, value: default });
            }
        }
        self.frames.push(Frame {
            function: Some(function),
            opsets: opsets(&function.opset_import),
            attributes,
        });
        self.scopes.push(Scope { values: HashMap::new(), closed: true });
        let outputs: Vec<&'m str> = function.output.iter().map(String::as_str).collect();
        let mut operands = operands.into_iter();
        let bound = function
            .input
            .iter()
            .try_for_each(|name| self.bind(name, operands.next().flatten()))
            .map_err(ImportError::from);
        let result = bound.and_then(|()| self.body(&function.node, &outputs));
        self.scopes.pop();
        self.frames.pop();
        self.inner(result).map_err(ImportErrorKind::Rule)
    }
}
