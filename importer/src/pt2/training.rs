//! What a program has that a network which is trained after its import lacks.

use super::schema::{Argument, Float, Graph, InputSpec, Program};
use super::{operators, scopes};
use crate::error::ImportResult;
use crate::onnx::TrainingLosses;
use std::collections::HashMap;

/// Random operators of training that a program in evaluation mode names and ONNX does not have.
const DROPPED: [&str; 2] = ["alpha_dropout.default", "feature_alpha_dropout.default"];

/// What is lost of the program in an archive.
///
/// # Errors
/// When the file is no archive of an exported program.
pub(crate) fn losses(file: bytes::Bytes) -> ImportResult<TrainingLosses> {
    let (program, _) = super::read(file)?;
    Ok(of_program(&program))
}

fn of_program(program: &Program) -> TrainingLosses {
    let outer = &program.graph_module.graph;
    let mut found = TrainingLosses::default();
    let mut parameters = HashMap::new();
    for spec in &program.graph_module.signature.input_specs {
        if let InputSpec::Parameter { arg, parameter_name } = spec {
            parameters.insert(arg.name.as_str(), parameter_name.as_str());
        }
    }
    let frozen =
        |name: &&str| outer.tensor_values.get(*name).is_some_and(|meta| meta.requires_grad == Some(false));
    found.all_frozen = !parameters.is_empty() && parameters.keys().all(frozen);
    let mut graphs: Vec<&Graph> = vec![outer];
    while let Some(graph) = graphs.pop() {
        for node in &graph.nodes {
            graphs.extend(node.inputs.iter().filter_map(|input| match &input.arg {
                Argument::Graph(inner) => Some(&*inner.graph),
                _ => None,
            }));
            let operator = operators::name(&node.target);
            let place = || {
                let path = scopes::path(node).filter(|path| !path.is_empty());
                path.or(node.name.as_deref()).unwrap_or(operator).to_owned()
            };
            let argument = |name: &str| Some(&node.inputs.iter().find(|input| input.name == name)?.arg);
            if DROPPED.contains(&operator) {
                found.dropped.push(place());
            } else if operator.starts_with("instance_norm.") {
                let by_instance = matches!(argument("use_input_stats"), Some(Argument::Bool(true)) | None);
                if !by_instance {
                    found.instances.push(place());
                }
            } else if operator.contains("batch_norm")
                && matches!(argument("momentum"), Some(Argument::Float(Float(0.0 | 1.0))))
                && matches!(argument("running_mean"), Some(Argument::Tensor(_)))
            {
                found.cumulative.push(place());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str) -> Program {
        serde_json::from_str(text).expect("a program")
    }

    /// A program of an embedding and alpha dropout, the second in a graph without gradients.
    fn dropping(requires_grad: bool) -> Program {
        program(&format!(
            r#"{{"graph_module": {{"signature": {{"input_specs": [{{"parameter": {{"arg": {{"name": "p"}}, "parameter_name": "emb.weight"}}}}],
                "output_specs": []}}, "graph": {{"inputs": [], "outputs": [],
                "tensor_values": {{"p": {{"dtype": 7, "sizes": [], "requires_grad": {requires_grad}}}}},
                "nodes": [
                    {{"target": "torch.ops.aten.embedding.default", "outputs": [], "inputs": [
                        {{"name": "weight", "arg": {{"as_tensor": {{"name": "p"}}}}}}]}},
                    {{"target": "torch.ops.higher_order.wrap_with_set_grad_enabled", "outputs": [], "inputs": [
                        {{"name": "", "arg": {{"as_graph": {{"graph": {{"inputs": [], "outputs": [], "nodes": [
                            {{"target": "torch.ops.aten.alpha_dropout.default", "inputs": [], "outputs": [],
                              "metadata": {{"nn_module_stack": "L__self__,,m.Net;L__self___drop,drop,torch.nn.AlphaDropout"}}}}
                        ]}}}}}}}}]}}
                ]}}}}}}"#
        ))
    }

    #[test]
    fn what_a_program_loses_is_named() {
        let found = of_program(&dropping(true));
        assert_eq!(found.dropped, ["drop"]);
        assert!(!found.all_frozen);
        assert!(found.warnings().join("\n").contains("alpha dropout is left out"), "{found:?}");
    }

    #[test]
    fn what_is_frozen_as_a_whole_is_told() {
        let found = of_program(&dropping(false));
        assert!(found.all_frozen);
        assert!(found.warnings().join("\n").contains("`model.requires_grad_(True)`"), "{found:?}");
    }

    #[test]
    fn norms_whose_statistics_do_not_do_as_in_pytorch_are_named() {
        let norm = |operator: &str, arguments: &str| {
            format!(
                r#"{{"target": "torch.ops.aten.{operator}", "outputs": [], "inputs": [
                    {{"name": "running_mean", "arg": {{"as_tensor": {{"name": "m"}}}}}}, {arguments}],
                    "metadata": {{"nn_module_stack": "L__self__,,m.Net;L__self___n,{operator},torch.nn.Norm"}}}}"#
            )
        };
        let momentum = |value: f64| format!(r#"{{"name": "momentum", "arg": {{"as_float": {value:?}}}}}"#);
        let by_instance =
            |value: bool| format!(r#"{{"name": "use_input_stats", "arg": {{"as_bool": {value}}}}}"#);
        let nodes = [
            norm("batch_norm.default", &momentum(0.0)),
            norm("_native_batch_norm_legit_no_training.default", &momentum(0.1)),
            norm("instance_norm.default", &by_instance(false)),
            norm("instance_norm.default", &by_instance(true)),
        ];
        let lost = of_program(&program(&format!(
            r#"{{"graph_module": {{"signature": {{"input_specs": [], "output_specs": []}},
                "graph": {{"inputs": [], "outputs": [], "tensor_values": {{}}, "nodes": [{}]}}}}}}"#,
            nodes.join(",")
        )));
        assert_eq!(
            (lost.cumulative.as_slice(), lost.instances.as_slice()),
            (&["batch_norm.default".to_owned()][..], &["instance_norm.default".to_owned()][..])
        );
        let text = lost.notes().join("\n");
        assert!(text.contains("momentum=None") && text.contains("track_running_stats"), "{text}");
    }
}
