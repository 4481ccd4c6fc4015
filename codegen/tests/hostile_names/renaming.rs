//! A model under other names.

use kiln_importer::onnx::proto::*;
use std::collections::BTreeMap;

/// New names for all of a model, the same for the same.
pub struct Renaming<'a> {
    names: &'a [String],
    given: BTreeMap<String, String>,
}

impl<'a> Renaming<'a> {
    /// Names are taken from these in turn, with numbers that keep them apart.
    pub fn new(names: &'a [String]) -> Self {
        Self { names, given: BTreeMap::new() }
    }

    fn text(&self, n: usize) -> String {
        self.names.get(n % self.names.len().max(1)).cloned().unwrap_or_default()
    }

    fn name(&mut self, name: &mut String) {
        if !name.is_empty() {
            let n = self.given.len();
            let new = format!("{}{n}", self.text(n));
            *name = self.given.entry(name.clone()).or_insert(new).clone();
        }
    }

    /// Renames everything that has a name.
    pub fn model(&mut self, model: &mut ModelProto) {
        let functions: Vec<(String, String)> =
            model.functions.iter().map(|function| (function.domain.clone(), function.name.clone())).collect();
        model.graph.iter_mut().for_each(|graph| self.graph(graph, &functions));
        let domains: Vec<String> = functions.iter().map(|(domain, _)| domain.clone()).collect();
        for import in model.opset_import.iter_mut().filter(|import| domains.contains(&import.domain)) {
            self.name(&mut import.domain);
        }
        for function in &mut model.functions {
            for import in function.opset_import.iter_mut().filter(|import| domains.contains(&import.domain)) {
                self.name(&mut import.domain);
            }
            self.name(&mut function.domain);
            self.name(&mut function.name);
            function.input.iter_mut().chain(&mut function.output).for_each(|name| self.name(name));
            function.node.iter_mut().for_each(|node| self.node(node, &functions));
        }
    }

    fn graph(&mut self, graph: &mut GraphProto, functions: &[(String, String)]) {
        self.name(&mut graph.name);
        graph.initializer.iter_mut().for_each(|tensor| self.name(&mut tensor.name));
        for port in graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info) {
            self.name(&mut port.name);
            let ty = port.r#type.as_mut().and_then(|ty| ty.value.as_mut());
            if let Some(TypeValue::Tensor(TensorTypeProto { shape: Some(shape), .. })) = ty {
                for dim in &mut shape.dim {
                    if let Some(DimensionValue::Param(name)) = &mut dim.value {
                        self.name(name);
                    }
                }
            }
        }
        graph.node.iter_mut().for_each(|node| self.node(node, functions));
    }

    fn node(&mut self, node: &mut NodeProto, functions: &[(String, String)]) {
        if functions.iter().any(|(domain, name)| *domain == node.domain && *name == node.op_type) {
            self.name(&mut node.domain);
            self.name(&mut node.op_type);
        }
        self.name(&mut node.name);
        node.input.iter_mut().chain(&mut node.output).for_each(|name| self.name(name));
        // A list of texts, as Python writes it.
        let n = self.given.len();
        let texts = (0..1 + n % 4).map(|i| format!("{:?}", self.text(n / 7 + i)));
        let list = format!("[{}]", texts.collect::<Vec<_>>().join(", "));
        node.metadata_props.iter_mut().for_each(|entry| entry.value.clone_from(&list));
        for attribute in &mut node.attribute {
            if ["cats_strings", "classlabels_strings", "keys_strings", "values_strings"]
                .contains(&attribute.name.as_str())
            {
                for text in &mut attribute.strings {
                    let mut renamed = String::from_utf8_lossy(text).into_owned();
                    self.name(&mut renamed);
                    *text = renamed.into_bytes().into();
                }
            }
            let graph = attribute.g.as_deref_mut().into_iter();
            graph.chain(&mut attribute.graphs).for_each(|graph| self.graph(graph, functions));
        }
    }
}
