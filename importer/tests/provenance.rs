//! Every ONNX case under `fixtures/`, with other weights: what the passes make of them is what the provenance of the
//! constants says, and no pass takes the contents of a parameter for given.

use kiln_importer::ir::{Constant, Graph, Op, Permute, Provenance, Region, ValueId};
use kiln_importer::onnx::proto::{ModelProto, TensorProto};
use kiln_importer::onnx::{LoadOptions, load_bytes};
use kiln_importer::passes::{Options, optimize};
use kiln_types::{DType, TensorData};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn cases() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let folders = [fixtures.join("cases"), fixtures];
    let mut cases: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("model.onnx").is_file())
        .collect();
    cases.sort();
    cases
}

/// Constants that the graph uses, in order of use.
fn constants(graph: &Graph) -> Vec<ValueId> {
    fn walk(graph: &Graph, region: &Region, found: &mut Vec<ValueId>) {
        for &node in &region.nodes {
            let node = graph.node(node);
            found.extend(node.inputs.iter().flatten());
            node.op.regions().into_iter().for_each(|inner| walk(graph, inner, found));
        }
        found.extend(&region.outputs);
    }
    let mut found = Vec::new();
    walk(graph, &graph.root, &mut found);
    found.retain(|&id| graph.constant(id).is_some());
    found
}

/// Other numbers of the same signs: variances stay positive.
fn disturb(tensor: &mut TensorProto) {
    fn other<'a>(values: impl Iterator<Item = &'a mut f32>) {
        values.enumerate().for_each(|(i, x)| *x = *x * (1.1 + 0.03 * (i % 7) as f32) + 1e-3 * x.signum());
    }
    if tensor.data_type != 1 {
        return;
    }
    other(tensor.float_data.iter_mut());
    let mut values: Vec<f32> =
        tensor.raw_data.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect();
    other(values.iter_mut());
    tensor.raw_data = values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>().into();
}

fn numbers(data: &TensorData) -> Vec<f64> {
    data.clone().convert_dtype(DType::F64).to_vec::<f64>().unwrap()
}

fn close(a: &TensorData, b: &TensorData) -> bool {
    let near = |(x, y): (&f64, &f64)| x == y || (x - y).abs() <= 1e-6 + 1e-5 * y.abs() || x.is_nan();
    a.shape == b.shape && a.dtype == b.dtype && numbers(a).iter().zip(&numbers(b)).all(near)
}

/// The contents of the file's initializers.
fn contents(bytes: &[u8]) -> BTreeMap<String, TensorData> {
    let graph = load_bytes(bytes.to_vec(), &LoadOptions::default()).unwrap();
    let mut found = BTreeMap::new();
    for Constant { name, data, provenance } in graph.constants {
        match provenance.as_deref() {
            // The exporter turned a weight: the file has it under no key.
            Some(Provenance::Apply { op: Op::Permute(Permute { axes }), operands }) if axes == &[1, 0] => {
                let back =
                    Op::Permute(Permute { axes: vec![1, 0] }).evaluate(&[Some(&data)]).unwrap().remove(0);
                found.insert(operands[0].keys().remove(0), back);
            }
            Some(Provenance::Key { key, .. }) => drop(found.insert(key.clone(), data)),
            _ => found.extend(name.map(|name| (name, data))),
        }
    }
    found
}

/// The keys of which constants are made; not what the exporter put under the name of a key.
fn keys_of<'g>(constants: impl Iterator<Item = &'g Constant>) -> BTreeSet<String> {
    let (mut keys, mut exporters) = (BTreeSet::new(), BTreeSet::new());
    for provenance in constants.filter_map(|constant| constant.provenance.as_deref()) {
        keys.extend(provenance.keys());
        match provenance {
            Provenance::Exporter { name, .. } => exporters.extend([name.clone()]),
            // A weight that the exporter turned, and left as it was beside that.
            Provenance::Apply { .. } => exporters.extend(provenance.keys()),
            _ => {}
        }
    }
    &keys - &exporters
}

/// The bytes of a matrix's transpose.
fn turned(tensor: &TensorProto) -> Option<Vec<u8>> {
    let &[rows, columns] = tensor.dims.as_slice() else { return None };
    let (rows, columns) = (rows as usize, columns as usize);
    let element = |i: usize| tensor.raw_data.get(4 * i..4 * i + 4);
    let all = (0..columns).flat_map(|j| (0..rows).map(move |i| i * columns + j)).map(element);
    (tensor.data_type == 1).then(|| all.collect::<Option<Vec<&[u8]>>>().map(|found| found.concat()))?
}

/// The model with other contents of these initializers.
fn disturbed(bytes: &[u8], keys: &BTreeSet<String>) -> Vec<u8> {
    let mut proto = ModelProto::decode(bytes).unwrap();
    let initializers = &mut proto.graph.as_mut().unwrap().initializer;
    // A table of which the exporter wrote a turned copy is known for the same parameter by its contents.
    let turned: BTreeSet<Vec<u8>> = initializers.iter().filter_map(turned).collect();
    for tensor in initializers {
        if keys.contains(&tensor.name) && !turned.contains(tensor.raw_data.as_ref()) {
            disturb(tensor);
        }
    }
    proto.encode_to_vec()
}

/// Optimizes a model with its own and with other weights; the number of constants that were made of others.
fn check(bytes: &[u8], trainable: bool) -> Result<usize, String> {
    let options = LoadOptions { trainable, ..LoadOptions::default() };
    let mut graph = load_bytes(bytes.to_vec(), &options).map_err(|error| error.to_string())?;
    // Not what an operator had to know to be lowered: sizes, scales.
    let used = constants(&graph);
    let keys = keys_of(used.iter().filter_map(|&id| graph.constant(id)));
    let other_bytes = disturbed(bytes, &keys);
    let lookup = contents(&other_bytes);
    let mut other = load_bytes(other_bytes, &options).map_err(|error| error.to_string())?;
    optimize(&mut graph, &Options { trainable, ..Options::default() });
    optimize(&mut other, &Options { trainable, ..Options::default() });
    let (ours, theirs) = (constants(&graph), constants(&other));
    if ours.len() != theirs.len() {
        return Err(format!("{} and {} constants\n{graph}\n{other}", ours.len(), theirs.len()));
    }
    let mut derived = 0;
    for (&id, &other_id) in ours.iter().zip(&theirs) {
        let (constant, expected) = (graph.constant(id).unwrap(), other.constant(other_id).unwrap());
        let actual = match constant.provenance.as_deref() {
            None => constant.data.clone(),
            Some(provenance) if provenance.is_exporters() => continue,
            Some(provenance) if !provenance.is_repeatable() && constant.data.dtype.is_float() => {
                return Err(format!("no checkpoint can be taken: {:?} is {provenance:?}", constant.name));
            }
            Some(provenance) => {
                derived += usize::from(!matches!(provenance, Provenance::Key { .. }));
                let found = provenance.evaluate(&|key| lookup.get(key).cloned());
                found.ok_or_else(|| format!("{:?} is made by {provenance:?}", constant.name))?
            }
        };
        if !close(&actual, &expected.data) {
            return Err(format!("{id} {:?} {:?}\n{graph}", constant.name, constant.provenance));
        }
    }
    Ok(derived)
}

#[test]
fn passes_do_the_same_to_other_weights() {
    let mut failures = Vec::new();
    let mut derived = 0;
    for case in cases() {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(case.join("model.onnx")).unwrap();
        let plain = load_bytes(bytes.clone(), &LoadOptions::default());
        // Data in other files is not there when a model is read from memory.
        if plain.is_err() {
            continue;
        }
        for trainable in [false, true] {
            match check(&bytes, trainable) {
                Ok(count) => derived += count,
                Err(what) => failures.push(format!("{name}, trainable {trainable}: {what}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(derived > 100, "{derived}");
}
