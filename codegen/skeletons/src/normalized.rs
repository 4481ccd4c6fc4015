//! Weights that are computed from others before each use: weight and spectral normalization, and pruning.
//!
//! The first two have an old spelling (`weight_g` beside the other parameters) and a new one
//! (`parametrizations.weight.original0`).
//! Their layers become ordinary ones, whose weight is computed here once; the runtime does the same to checkpoints.

use super::tree::{Branch, Tree};
use kiln_types::TensorData;
use kiln_weights::{LazyTensor, WeightsError};

const FOLDER: &str = "parametrizations";

/// A branch of more parts is no layer: each that may be a weight is looked for among all of them.
const MOST_PARTS: usize = 256;

/// Replaces the tensors of normalized weights by the weights. Yields what is to be said about it.
pub(super) fn fold(branch: &mut Branch) -> Result<Option<String>, WeightsError> {
    let mut said = None;
    if branch.parts.len() > MOST_PARTS {
        return Ok(said);
    }
    for name in candidates(branch) {
        let Some((parts, weight, what)) = find(branch, &name) else { continue };
        let Some(folded) = weight.compute()? else { continue };
        for part in &parts {
            branch.remove(part);
        }
        branch.put_first(&name, LazyTensor::whole(folded, &name));
        said = Some(format!("{what} of its {name} is applied"));
    }
    Ok(said)
}

/// The names of weights that may be normalized.
fn candidates(branch: &Branch) -> Vec<String> {
    let mut names: Vec<String> = match branch.get(&[FOLDER]) {
        Some(Tree::Branch(folder)) => folder.parts.iter().map(|(name, _)| name.clone()).collect(),
        _ => Vec::new(),
    };
    let old = branch.parts.iter().filter_map(|(name, _)| {
        name.strip_suffix("_v").or_else(|| name.strip_suffix("_mask")).map(str::to_owned)
    });
    names.extend(old);
    names
}

/// How a weight is made.
enum Normalized {
    /// Length and direction.
    Weight(LazyTensor, LazyTensor),
    /// The weight before, and the vectors that give its largest singular value.
    Spectral(LazyTensor, LazyTensor, LazyTensor),
    /// The weight before, and what is left of it.
    Pruned(LazyTensor, LazyTensor),
}

type Found = (Vec<Vec<String>>, Normalized, &'static str);

/// The tensors that a weight is made of, by their places in the branch.
fn find(branch: &Branch, name: &str) -> Option<Found> {
    let get = |path: &[&str]| match branch.get(path)? {
        Tree::Leaf(tensor) => Some(tensor.clone()),
        Tree::Branch(_) => None,
    };
    let own = |ending: &str| format!("{name}_{ending}");
    if let Some(Tree::Branch(folder)) = branch.get(&[FOLDER, name]) {
        let place = vec![vec![FOLDER.to_owned(), name.to_owned()]];
        let count = folder.count();
        let tensor = |part: &[&str]| get(&[&[FOLDER, name], part].concat());
        if let (2, Some(g), Some(v)) = (count, tensor(&["original0"]), tensor(&["original1"])) {
            return Some((place, Normalized::Weight(g, v), "weight normalization"));
        }
        let [u, v] = [tensor(&["0", "_u"]), tensor(&["0", "_v"])];
        return match (count, tensor(&["original"]), u, v) {
            (3, Some(weight), Some(u), Some(v)) => {
                Some((place, Normalized::Spectral(weight, u, v), "spectral normalization"))
            }
            _ => None,
        };
    }
    if branch.get(&[name]).is_some() {
        return None;
    }
    let places = |endings: &[&str]| endings.iter().map(|ending| vec![own(ending)]).collect();
    if let (Some(weight), Some(mask)) = (get(&[&own("orig")]), get(&[&own("mask")])) {
        return Some((places(&["orig", "mask"]), Normalized::Pruned(weight, mask), "pruning"));
    }
    let v = get(&[&own("v")])?;
    if let Some(g) = get(&[&own("g")]) {
        return Some((places(&["g", "v"]), Normalized::Weight(g, v), "weight normalization"));
    }
    let (weight, u) = (get(&[&own("orig")])?, get(&[&own("u")])?);
    Some((places(&["orig", "u", "v"]), Normalized::Spectral(weight, u, v), "spectral normalization"))
}

impl Normalized {
    /// The weight; `None` when the tensors do not fit together.
    fn compute(&self) -> Result<Option<TensorData>, WeightsError> {
        match self {
            Self::Weight(g, v) => scaled(g, v),
            Self::Spectral(weight, u, v) => divided(weight, u, v),
            Self::Pruned(weight, mask) if weight.shape() == mask.shape() => {
                let kept = floats(weight)?.into_iter().zip(floats(mask)?).map(|(weight, mask)| weight * mask);
                Ok(Some(like(kept.collect(), weight)))
            }
            Self::Pruned(..) => Ok(None),
        }
    }
}

fn floats(tensor: &LazyTensor) -> Result<Vec<f32>, WeightsError> {
    Ok(tensor.data()?.iter::<f32>().collect())
}

/// Elements in the dtype that another tensor has.
fn like(elements: Vec<f32>, tensor: &LazyTensor) -> TensorData {
    TensorData::new(elements, tensor.shape().to_vec()).convert_dtype(tensor.dtype())
}

/// `g · v / |v|`, the length being taken over the dims that `g` has not.
fn scaled(g: &LazyTensor, v: &LazyTensor) -> Result<Option<TensorData>, WeightsError> {
    let (shape, lengths) = (v.shape(), g.shape());
    let fits = lengths.iter().zip(shape).all(|(length, dim)| length == dim || *length == 1)
        && lengths.iter().filter(|length| **length != 1).count() <= 1;
    if !fits || (lengths.len() != shape.len() && g.num_elements() != 1) {
        return Ok(None);
    }
    // Where each of `v`'s dims goes in `g`.
    let mut strides = vec![0; shape.len()];
    let mut step = 1;
    for (stride, length) in strides.iter_mut().zip(lengths).rev() {
        *stride = if *length == 1 { 0 } else { step };
        step *= length;
    }
    let place = |mut index: usize| {
        let mut place = 0;
        for (dim, stride) in shape.iter().zip(&strides).rev() {
            place += index % dim * stride;
            index /= dim;
        }
        place
    };
    let (g, directions) = (floats(g)?, floats(v)?);
    let mut squares = vec![0.0_f64; g.len()];
    for (index, x) in directions.iter().enumerate() {
        if let Some(sum) = squares.get_mut(place(index)) {
            *sum += f64::from(*x) * f64::from(*x);
        }
    }
    let factors: Vec<f64> = g.iter().zip(&squares).map(|(g, sum)| f64::from(*g) / sum.sqrt()).collect();
    let weight = directions.iter().enumerate().map(|(index, x)| {
        let factor = factors.get(place(index)).copied().unwrap_or_default();
        (f64::from(*x) * factor) as f32
    });
    Ok(Some(like(weight.collect(), v)))
}

/// `W / (uᵀ W v)`, `W` as a matrix whose rows are the first dim.
fn divided(weight: &LazyTensor, u: &LazyTensor, v: &LazyTensor) -> Result<Option<TensorData>, WeightsError> {
    let Some((&rows, rest)) = weight.shape().split_first() else { return Ok(None) };
    let columns: usize = rest.iter().product();
    if u.shape() != [rows] || v.shape() != [columns] || columns == 0 {
        return Ok(None);
    }
    let (elements, u, v) = (floats(weight)?, floats(u)?, floats(v)?);
    let mut sigma = 0.0_f64;
    for (row, u) in elements.chunks(columns).zip(&u) {
        let product: f64 = row.iter().zip(&v).map(|(w, v)| f64::from(*w) * f64::from(*v)).sum();
        sigma += f64::from(*u) * product;
    }
    let divided = elements.iter().map(|w| (f64::from(*w) / sigma) as f32);
    Ok(Some(like(divided.collect(), weight)))
}
