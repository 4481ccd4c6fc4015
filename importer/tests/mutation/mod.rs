//! Changes to model files: of bytes, and of messages (so that what comes out still reads as a model and the damage
//! reaches inference, passes and code generation). The fuzz target and the test of mutated models share them.

use kiln_importer::onnx::proto::*;
use kiln_importer::onnx::supported;
use prost::Message;

/// SplitMix64: the same mutations on every machine.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// An integer of the kind that breaks arithmetic, or a small one.
    fn integer(&mut self) -> i64 {
        const EDGES: [i64; 16] = [
            0,
            1,
            -1,
            2,
            3,
            -2,
            7,
            64,
            1 << 16,
            1 << 24,
            1 << 31,
            (1 << 32) + 1,
            1 << 40,
            1 << 62,
            i64::MAX,
            i64::MIN,
        ];
        if self.below(3) == 0 { self.below(12) as i64 - 3 } else { EDGES[self.below(EDGES.len())] }
    }

    fn float(&mut self) -> f32 {
        const EDGES: [f32; 9] =
            [0.0, -0.0, 1.0, -1.0, 0.5, f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE];
        EDGES[self.below(EDGES.len())]
    }
}

/// One to four changes of bytes, of a kind that breaks lengths, tags, numbers or names.
pub fn mutate_bytes(model: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = model.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(7) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            3 => {
                let end = (at + 1 + random.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let piece: Vec<u8> = bytes[at..].iter().take(1 + random.below(64)).copied().collect();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            5 => {
                let from = random.below(other.len());
                let piece: Vec<u8> = other[from..].iter().take(1 + random.below(200)).copied().collect();
                bytes.splice(at..at, piece);
            }
            // The greatest varint, where a length or a dim may stand.
            _ => {
                bytes.splice(at..at, [0xff; 9].into_iter().chain([0x01]));
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// One to four changes of messages; `None` when the bytes are no model.
pub fn mutate_model(model: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut proto = ModelProto::decode(model).ok()?;
    for _ in 0..1 + random.below(4) {
        match random.below(12) {
            0 => proto.opset_import.iter_mut().for_each(|set| set.version = 1 + random.below(26) as i64),
            1 if !proto.functions.is_empty() => {
                let n = random.below(proto.functions.len());
                let nodes = &mut proto.functions[n].node;
                mutate_nodes(nodes, random);
            }
            _ => mutate_graph(proto.graph.as_mut()?, random),
        }
    }
    Some(proto.encode_to_vec())
}

fn mutate_graph(graph: &mut GraphProto, random: &mut Random) {
    // One time in three, go down into a branch or a body.
    let inner = graph.node.iter_mut().flat_map(|node| &mut node.attribute).filter_map(|a| a.g.as_mut());
    let mut inner: Vec<_> = inner.collect();
    if !inner.is_empty() && random.below(3) == 0 {
        let n = random.below(inner.len());
        return mutate_graph(inner[n], random);
    }
    match random.below(8) {
        0 => {
            let n = random.below(graph.initializer.len());
            graph.initializer.get_mut(n).into_iter().for_each(|tensor| mutate_tensor(tensor, random));
        }
        1 => {
            let n = random.below(graph.input.len());
            graph.input.get_mut(n).into_iter().for_each(|input| mutate_input(input, random));
        }
        2 if graph.output.len() > 1 => {
            let n = random.below(graph.output.len());
            graph.output.remove(n);
        }
        2 => {
            let names: Vec<&String> = graph.node.iter().flat_map(|node| &node.output).collect();
            if let Some(&name) = random.of(&names) {
                let output = ValueInfoProto { name: name.clone(), ..ValueInfoProto::default() };
                graph.output.push(output);
            }
        }
        _ => mutate_nodes_of(graph, random),
    }
}

fn mutate_nodes_of(graph: &mut GraphProto, random: &mut Random) {
    let mut names: Vec<String> = graph.node.iter().flat_map(|node| node.output.clone()).collect();
    names.extend(graph.input.iter().map(|input| input.name.clone()));
    names.extend(graph.initializer.iter().map(|tensor| tensor.name.clone()));
    let n = random.below(graph.node.len());
    match (graph.node.get_mut(n), random.below(3)) {
        // Another value at an input.
        (Some(node), 0) if !node.input.is_empty() => {
            let at = random.below(node.input.len());
            node.input[at] = random.of(&names).cloned().unwrap_or_default();
        }
        _ => mutate_nodes(&mut graph.node, random),
    }
}

fn mutate_nodes(nodes: &mut Vec<NodeProto>, random: &mut Random) {
    let n = random.below(nodes.len());
    let Some(mut node) = nodes.get(n).cloned() else {
        return;
    };
    match random.below(9) {
        0 => {
            let supported = supported();
            if let Some(operator) = random.of(&supported) {
                node.op_type = operator.operator.to_owned();
                node.domain = operator.domain.to_owned();
            }
        }
        1 => node.input.truncate(random.below(4)),
        2 => node.input.push(node.input.first().cloned().unwrap_or_default()),
        3 => node.output.push(format!("{}_more", node.name)),
        4 => {
            let at = random.below(node.input.len());
            node.input.get_mut(at).into_iter().for_each(String::clear);
        }
        5 if nodes.len() > 1 => {
            // Without the node, its users read its input.
            nodes.remove(n);
            if let (Some(input), Some(output)) = (node.input.first(), node.output.first()) {
                let users = nodes.iter_mut().flat_map(|user| &mut user.input);
                users.filter(|name| *name == output).for_each(|name| name.clone_from(input));
            }
            return;
        }
        6 => {
            // The same node again, on its own result.
            let mut twin = node.clone();
            twin.output.iter_mut().for_each(|name| name.push('\''));
            if let (Some(input), Some(output)) = (twin.input.first_mut(), node.output.first()) {
                input.clone_from(output);
            }
            nodes.insert(n + 1, twin);
            return;
        }
        _ => mutate_attribute(&mut node, random),
    }
    nodes[n] = node;
}

fn mutate_attribute(node: &mut NodeProto, random: &mut Random) {
    let n = random.below(node.attribute.len());
    if node.attribute.is_empty() || random.below(8) == 0 {
        const NAMES: [&str; 12] = [
            "axis",
            "axes",
            "perm",
            "pads",
            "strides",
            "kernel_shape",
            "group",
            "keepdims",
            "to",
            "mode",
            "dilations",
            "split",
        ];
        let name = NAMES[random.below(NAMES.len())].to_owned();
        let list = random.below(2) == 0;
        node.attribute.push(AttributeProto {
            name,
            r#type: if list { attribute_type::INTS } else { attribute_type::INT },
            i: random.integer(),
            ints: (0..random.below(5)).map(|_| random.integer()).collect(),
            ..AttributeProto::default()
        });
        return;
    }
    if random.below(6) == 0 {
        node.attribute.remove(n);
        return;
    }
    let attribute = &mut node.attribute[n];
    match attribute.r#type {
        attribute_type::INT => attribute.i = random.integer(),
        attribute_type::FLOAT => attribute.f = random.float(),
        attribute_type::INTS => match random.below(3) {
            0 => attribute.ints.push(random.integer()),
            1 => drop(attribute.ints.pop()),
            _ => {
                let at = random.below(attribute.ints.len());
                attribute.ints.get_mut(at).into_iter().for_each(|x| *x = random.integer());
            }
        },
        attribute_type::FLOATS => attribute.floats.iter_mut().for_each(|x| *x = random.float()),
        attribute_type::TENSOR => attribute.t.iter_mut().for_each(|tensor| mutate_tensor(tensor, random)),
        _ => attribute.r#type = random.below(9) as i32,
    }
}

/// Dims, contents, or the dtype.
fn mutate_tensor(tensor: &mut TensorProto, random: &mut Random) {
    match random.below(4) {
        // A list of integers, as shapes, axes, pads and repeats are.
        0 => {
            let count = random.below(5);
            let values: Vec<u8> = (0..count).flat_map(|_| random.integer().to_le_bytes()).collect();
            tensor.data_type = 7;
            tensor.dims = vec![count as i64];
            tensor.raw_data = values.into();
            tensor.int64_data.clear();
        }
        1 if tensor.data_type == 7 && tensor.raw_data.len() >= 8 => {
            let mut raw = tensor.raw_data.to_vec();
            let at = random.below(raw.len() / 8) * 8;
            raw[at..at + 8].copy_from_slice(&random.integer().to_le_bytes());
            tensor.raw_data = raw.into();
        }
        2 => {
            let at = random.below(tensor.dims.len());
            tensor.dims.get_mut(at).into_iter().for_each(|dim| *dim = random.integer());
        }
        _ => {
            let rank_one: i64 = tensor.dims.iter().fold(1i64, |count, &dim| count.wrapping_mul(dim));
            tensor.dims = if random.below(2) == 0 { vec![rank_one] } else { vec![1, rank_one] };
        }
    }
}

/// A dim, the rank, or the dtype.
fn mutate_input(input: &mut ValueInfoProto, random: &mut Random) {
    let Some(TypeProto { value: Some(TypeValue::Tensor(ty)), .. }) = &mut input.r#type else {
        return;
    };
    let dims = &mut ty.shape.get_or_insert_default().dim;
    let at = random.below(dims.len());
    match random.below(5) {
        0 => ty.elem_type = random.below(24) as i32,
        1 => drop(dims.pop()),
        2 => dims.push(DimensionProto { value: Some(DimensionValue::Value(random.integer())) }),
        3 => dims.iter_mut().skip(at).take(1).for_each(|dim| {
            dim.value = Some(DimensionValue::Param(["n", "batch", "2*n + 1", ""][random.below(4)].into()));
        }),
        _ => dims.iter_mut().skip(at).take(1).for_each(|dim| {
            dim.value = Some(DimensionValue::Value(random.integer()));
        }),
    }
}
