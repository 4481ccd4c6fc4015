//! Weights that PyTorch computes from others before each use: weight and spectral normalization, in the old spelling
//! (`weight_g` beside the other parameters) and the new one (`parametrizations.weight.original0`), and pruning.

use super::adapter::Candidate;
use super::source::Source;
use crate::module::Derivation;
use crate::tensor::{BinaryOp, ReduceOp, UnaryOp};
use alloc::{boxed::Box, format, string::String, vec, vec::Vec};
use kiln_types::KeyBase;

/// How the parameter is computed for which these are the candidates, if the file has what a normalized weight is made of.
pub(super) fn weight(source: &Source, candidates: &[Candidate]) -> Option<Derivation> {
    candidates.iter().find_map(|candidate| {
        let (weight, shape) = whole(source, &candidate.key)?;
        let part = match candidate.view.part {
            Some((index, count)) => {
                let length = shape.first()? / count;
                let (start, end) = (index * length, (index + 1) * length);
                Derivation::Slice { of: Box::new(weight), axis: 0, start, end, step: 1 }
            }
            None => weight,
        };
        let turned = candidate.view.transpose;
        Some(if turned { Derivation::Permute(Box::new(part), vec![1, 0]) } else { part })
    })
}

/// The whole weight under a key, and its shape.
fn whole(source: &Source, key: &str) -> Option<(Derivation, Vec<usize>)> {
    let (above, name) = key.rsplit_once('.').map_or(("", key), |(above, name)| (above, name));
    let new = match above {
        "" => format!("parametrizations.{name}"),
        above => format!("{above}.parametrizations.{name}"),
    };
    let there = |path: String| source.get(&path).is_some().then_some(path);
    let all = |paths: [String; 2]| {
        let [a, b] = paths.map(there);
        Some([a?, b?])
    };
    let lengths = all([format!("{key}_g"), format!("{key}_v")])
        .or_else(|| all([format!("{new}.original0"), format!("{new}.original1")]));
    if let Some([length, direction]) = lengths {
        return scaled(source, length, direction);
    }
    if let Some([kept, mask]) = all([format!("{key}_orig"), format!("{key}_mask")]) {
        let shape = source.get(&kept)?.shape().to_vec();
        let same = source.get(&mask)?.shape() == shape;
        return same.then(|| (Derivation::binary(BinaryOp::Mul, self::key(kept), self::key(mask)), shape));
    }
    let old = (format!("{key}_orig"), [format!("{key}_u"), format!("{key}_v")]);
    let new = (format!("{new}.original"), [format!("{new}.0._u"), format!("{new}.0._v")]);
    [old, new].into_iter().find_map(|(weight, vectors)| divided(source, there(weight)?, all(vectors)?))
}

/// A tensor of the file.
fn key(path: String) -> Derivation {
    Derivation::key(path, KeyBase::Root)
}

/// `v · g / |v|`, the length being taken over the axes that `g` has not.
fn scaled(source: &Source, g: String, v: String) -> Option<(Derivation, Vec<usize>)> {
    let (lengths, shape) = (source.get(&g)?.shape(), source.get(&v)?.shape().to_vec());
    if lengths.iter().filter(|length| **length != 1).count() > 1 {
        return None;
    }
    let one = |axis: &usize| lengths.get(*axis).is_none_or(|length| *length == 1);
    let axes: Vec<usize> = (0..shape.len()).filter(one).collect();
    let (g, v) = (key(g), key(v));
    let squares = Derivation::binary(BinaryOp::Mul, v.clone(), v.clone());
    let sum = Derivation::Reduce(ReduceOp::Sum, Box::new(squares), axes);
    let length = Derivation::Unary(UnaryOp::Sqrt, Box::new(sum));
    let factor = Derivation::binary(BinaryOp::Div, g, length);
    Some((Derivation::binary(BinaryOp::Mul, v, factor), shape))
}

/// `W / (uᵀ W v)`, `W` as a matrix whose rows are the first axis.
fn divided(source: &Source, weight: String, [u, v]: [String; 2]) -> Option<(Derivation, Vec<usize>)> {
    let shape = source.get(&weight)?.shape().to_vec();
    let &[rows] = source.get(&u)?.shape() else { return None };
    let rest: usize = shape.iter().skip(1).product();
    if shape.first() != Some(&rows) || source.get(&v)?.shape() != [rest] {
        return None;
    }
    let weight = key(weight);
    let reshaped = |x: Derivation, sizes: Vec<usize>| Derivation::Reshape(Box::new(x), Some(sizes));
    let matrix = reshaped(weight.clone(), vec![rows, rest]);
    let columns = Derivation::binary(BinaryOp::Mul, matrix, key(v));
    let product = Derivation::binary(BinaryOp::Mul, columns, reshaped(key(u), vec![rows, 1]));
    let sigma = Derivation::Reduce(ReduceOp::Sum, Box::new(product), vec![0, 1]);
    Some((Derivation::binary(BinaryOp::Div, weight, sigma), shape))
}
