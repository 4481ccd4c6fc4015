//! Parameters that are parts of others, in a model that is to be trained: what is made of them is made where the model runs.
//!
//! Folding joins parameters as layers have them, and converts them. Where a part is used elsewhere, too, or is there twice, it would
//! learn apart from itself.

use super::layouts::Layout;
use super::{Originals, Reading, Uses};
use crate::data::{Elements, elements};
use crate::ir::{Budget, Cast, Graph, Op, Outcome, Provenance, TensorType, ValueId};
use kiln_types::{DType, TensorData};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What makes each value of which parts are in another one, too.
pub(super) fn readings(graph: &mut Graph, uses: &Uses, originals: &Originals) -> BTreeMap<ValueId, Reading> {
    let made: BTreeMap<ValueId, Arc<Provenance>> = uses
        .users
        .keys()
        .filter_map(|&value| Some((value, graph.provenance(value)?)))
        .filter(|(_, made)| is_moved(made))
        .collect();
    let shared = shared(&graph.budget, &made);
    if shared.is_empty() {
        return BTreeMap::new();
    }
    let kept = kept(graph, &made, &shared, originals);
    let stay: BTreeSet<ValueId> = kept.values().map(|&(_, value)| value).collect();
    let mut readings = BTreeMap::new();
    for (&value, made) in made.iter().filter(|(value, _)| !stay.contains(value)) {
        if is_of(made, &shared) {
            let dtype = graph.ty(value).dtype;
            let reading = Parts { graph, kept: &kept, shared: &shared, originals, dtype }.reading(made);
            readings.extend(reading.map(|reading| (value, reading)));
        }
    }
    readings
}

/// Whether one of these parameters is in it.
fn is_of(made: &Provenance, shared: &BTreeSet<String>) -> bool {
    keys(made).iter().any(|(key, _)| shared.contains(*key))
}

/// Whether elements of parameters are all that is in it, wherever they are and in whatever dtype.
fn is_moved(made: &Provenance) -> bool {
    match made {
        Provenance::Key { .. } | Provenance::Literal(_) => true,
        Provenance::Apply { op, operands } => {
            matches!(op.result(), Outcome::LaidOut | Outcome::Joined)
                && operands.iter().all(|part| is_moved(part))
        }
        Provenance::Scaled { .. }
        | Provenance::NormScale(_)
        | Provenance::NormShift(_)
        | Provenance::Exporter { .. }
        | Provenance::TooMuch { .. } => false,
    }
}

/// The parameters in it, as often as they are there.
fn keys(made: &Provenance) -> Vec<(&str, &[usize])> {
    let mut found = Vec::new();
    let mut waiting = vec![made];
    while let Some(part) = waiting.pop() {
        if let Provenance::Key { key, shape } = part {
            found.push((key.as_str(), shape.as_slice()));
        }
        waiting.extend(part.parts());
    }
    found
}

/// The parameters an element of which is there twice.
fn shared(budget: &Budget, made: &BTreeMap<ValueId, Arc<Provenance>>) -> BTreeSet<String> {
    let mut places: BTreeMap<(&str, &[usize]), Vec<&Provenance>> = BTreeMap::new();
    for made in made.values() {
        keys(made).into_iter().for_each(|key| places.entry(key).or_default().push(made));
    }
    let mut shared: BTreeSet<String> = BTreeSet::new();
    for (&(key, shape), users) in places.iter_mut().filter(|(_, users)| users.len() > 1) {
        users.dedup_by(|a, b| std::ptr::eq(*a, *b));
        let (places, mut taken) = (Places::of(budget, key, shape), vec![false; elements(shape)]);
        let twice = users.iter().any(|made| {
            // What cannot be followed counts as all of it.
            let Some(places) = places.within(made) else { return true };
            places.into_iter().filter(|place| *place > 0.0).any(|place| {
                taken.get_mut(place as usize - 1).is_none_or(|taken| std::mem::replace(taken, true))
            })
        });
        if twice {
            shared.insert(key.to_owned());
        }
    }
    shared
}

/// Which elements of a parameter are where in what is made of it.
struct Places<'a> {
    budget: &'a Budget,
    key: &'a str,
    /// The numbers of its elements, from 1 on, in its own layout.
    numbers: TensorData,
}

impl<'a> Places<'a> {
    fn of(budget: &'a Budget, key: &'a str, shape: &[usize]) -> Self {
        let numbers = Elements::Float((1..=elements(shape)).map(|n| n as f64).collect());
        Self { budget, key, numbers: numbers.store(DType::F64, shape.to_vec()) }
    }

    /// For each element its number in the parameter, and 0 where it is none of the parameter's. `None` where that would take too long.
    fn within(&self, made: &Provenance) -> Option<Vec<f64>> {
        Some(Elements::load(&self.moved(made)?).floats())
    }

    fn moved(&self, made: &Provenance) -> Option<TensorData> {
        let zeros = |shape: &[usize]| {
            let count = elements(shape);
            self.budget
                .elements
                .take(count as u64)
                .then(|| Elements::Float(vec![0.0; count]).store(DType::F64, shape.to_vec()))
        };
        match made {
            Provenance::Key { key, .. } if key == self.key => Some(self.numbers.clone()),
            Provenance::Key { shape, .. } => zeros(shape),
            Provenance::Literal(data) => zeros(&data.shape),
            Provenance::Apply { op: Op::Cast(_), operands } => self.moved(operands.first()?),
            Provenance::Apply { op, operands } => {
                let count = elements(&made.shape()?);
                let operands: Vec<TensorData> =
                    operands.iter().map(|part| self.moved(part)).collect::<Option<_>>()?;
                if !self.budget.elements.take(count as u64) {
                    return None;
                }
                op.evaluate(&operands.iter().map(Some).collect::<Vec<_>>())?.pop()
            }
            Provenance::Scaled { .. }
            | Provenance::NormScale(_)
            | Provenance::NormShift(_)
            | Provenance::Exporter { .. }
            | Provenance::TooMuch { .. } => None,
        }
    }
}

/// Where each shared parameter stays, and how it is read from there in its own layout: a value that is all of it, in another layout
/// perhaps, or else the parameter as the file has it. So it is there as a whole, even where some of its elements are not used: the
/// optimizer sees what PyTorch's does.
fn kept(
    graph: &mut Graph,
    made: &BTreeMap<ValueId, Arc<Provenance>>,
    shared: &BTreeSet<String>,
    originals: &Originals,
) -> BTreeMap<String, (Reading, ValueId)> {
    let mut kept = BTreeMap::new();
    for &value in made.keys() {
        let Some(layout) = Layout::of(graph, value) else { continue };
        if !shared.contains(layout.key) || kept.contains_key(layout.key) {
            continue;
        }
        if let Some(steps) = layout.undone() {
            let reading = Reading::after(value, graph.ty(value).dtype, steps);
            kept.insert(layout.key.to_owned(), (reading, value));
        }
    }
    for key in shared {
        let users = made.iter().filter(|(_, made)| keys(made).iter().any(|(of, _)| of == key));
        let first = users.map(|(&value, _)| value).next();
        if !kept.contains_key(key)
            && let (Some(first), Some(original)) = (first, originals.get(key))
        {
            let from = Provenance::Key { key: key.clone(), shape: original.shape.clone() };
            let data = original.clone().convert_dtype(graph.ty(first).dtype);
            let value = graph.add_derived(Some(key.clone()), data, Some(Arc::new(from)));
            kept.insert(key.clone(), (Reading::Parameter(value), value));
        }
    }
    kept
}

/// What values of a dtype are made of where the model runs.
struct Parts<'a> {
    graph: &'a mut Graph,
    kept: &'a BTreeMap<String, (Reading, ValueId)>,
    shared: &'a BTreeSet<String>,
    originals: &'a Originals,
    dtype: DType,
}

impl Parts<'_> {
    /// What makes it of the parameters that are kept, and of parameters of its own where none of those is in a part of it.
    fn reading(&mut self, made: &Arc<Provenance>) -> Option<Reading> {
        if !keys(made).is_empty() && !is_of(made, self.shared) {
            return self.parameter(made);
        }
        match &**made {
            Provenance::Key { key, shape } => {
                let (reading, of) = self.kept.get(key)?;
                Some(self.converted(self.graph.ty(*of).dtype, shape, reading.clone()))
            }
            Provenance::Literal(data) => {
                Some(self.converted(data.dtype, &data.shape, Reading::Number(data.clone())))
            }
            Provenance::Apply { op: Op::Cast(_), operands } => self.reading(operands.first()?),
            Provenance::Apply { op, operands } => {
                let ty = TensorType::new(self.dtype, made.shape()?);
                let operands = operands.iter().map(|part| self.reading(part)).collect::<Option<_>>()?;
                Some(Reading::Of { op: Box::new(op.clone()), ty, operands })
            }
            Provenance::Scaled { .. }
            | Provenance::NormScale(_)
            | Provenance::NormShift(_)
            | Provenance::Exporter { .. }
            | Provenance::TooMuch { .. } => None,
        }
    }

    /// Parameters that learn are widened at most on the way to their users, and other dtypes may have been asked for since: elements are
    /// converted once, to the value's dtype.
    fn converted(&self, from: DType, shape: &[usize], reading: Reading) -> Reading {
        match from == self.dtype {
            true => reading,
            false => Reading::Of {
                op: Box::new(Op::Cast(Cast { to: self.dtype })),
                ty: TensorType::new(self.dtype, shape.iter().copied()),
                operands: vec![reading],
            },
        }
    }

    /// A part as a parameter of its own.
    fn parameter(&mut self, part: &Arc<Provenance>) -> Option<Reading> {
        let data = part.evaluate(&|key| self.originals.get(key).cloned())?;
        let name = keys(part).first().map(|(key, _)| (*key).to_owned());
        let value = self.graph.add_derived(name, data.convert_dtype(self.dtype), Some(part.clone()));
        Some(Reading::Parameter(value))
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::{AxisRange, Builder, Cast, Concat, Graph, Op, Permute, Provenance, Slice, Take, ValueId};
    use crate::passes::testing::{constant, graph, kinds};
    use crate::passes::{Options, optimize};
    use kiln_types::{DType, FloatDType, TensorData};
    use std::sync::Arc;

    fn trained(make: impl Fn(&mut Builder, ValueId, ValueId) -> ValueId) -> Graph {
        let mut g = graph(&["i64[n]"], |b, x| {
            let table = constant(b, Some("e.weight"), &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            vec![make(b, x[0], table)]
        });
        optimize(&mut g, &Options { trainable: true, ..Options::default() });
        g.verify().unwrap();
        g
    }

    fn looked_up(b: &mut Builder, table: ValueId, words: ValueId) -> ValueId {
        b.add(Op::Take(Take { axis: 0, wrapped: false }), &[table, words]).unwrap()
    }

    fn head(b: &mut Builder, h: ValueId, rows: ValueId) -> ValueId {
        let turned = b.add(Op::Permute(Permute { axes: vec![1, 0] }), &[rows]).unwrap();
        b.add(Op::MatMul, &[h, turned]).unwrap()
    }

    #[test]
    fn what_is_joined_and_used_elsewhere_is_joined_where_the_model_runs() {
        let g = trained(|b, words, table| {
            let more = constant(b, Some("more"), &[1, 2], &[7.0, 8.0]);
            let rows = b.add(Op::Concat(Concat { axis: 0 }), &[table, more]).unwrap();
            let h = looked_up(b, table, words);
            head(b, h, rows)
        });
        assert_eq!(kinds(&g), ["Take", "Concat", "Permute", "Linear"], "{g}");
    }

    /// Of what is joined with a shared parameter a part is enough.
    #[test]
    fn what_is_joined_may_be_a_part_that_is_used_nowhere_else() {
        let g = trained(|b, words, table| {
            let more = constant(b, Some("more"), &[2, 2], &[7.0, 8.0, 9.0, 10.0]);
            let range = |end: i64| AxisRange { start: 0.into(), end: end.into(), step: 1 };
            let first = b.add(Op::Slice(Slice { ranges: vec![range(1), range(2)] }), &[more]).unwrap();
            let rows = b.add(Op::Concat(Concat { axis: 0 }), &[table, first]).unwrap();
            let h = looked_up(b, table, words);
            head(b, h, rows)
        });
        assert_eq!(kinds(&g), ["Take", "Concat", "Permute", "Linear"], "{g}");
    }

    /// Slices that overlap, of a parameter that is nowhere whole.
    #[test]
    fn elements_that_two_slices_have_are_there_once() {
        let g = trained(|b, words, table| {
            let range = |start: i64, end: i64| AxisRange { start: start.into(), end: end.into(), step: 1 };
            let mut rows = |start, end| {
                let ranges = vec![range(start, end), range(0, 2)];
                b.add(Op::Slice(Slice { ranges }), &[table]).unwrap()
            };
            let (first, second) = (rows(0, 1), rows(0, 2));
            let h = looked_up(b, first, words);
            head(b, h, second)
        });
        assert_eq!(kinds(&g), ["Slice", "Take", "Slice", "Permute", "Linear"], "{g}");
        let slices = g.root.nodes.iter().map(|&id| g.node(id)).filter(|node| matches!(node.op, Op::Slice(_)));
        let sources: Vec<_> = slices.map(|node| node.inputs[0].unwrap()).collect();
        assert!(sources.iter().all(|source| *source == sources[0]), "{g}");
        assert_eq!(g.constant(sources[0]).unwrap().data.shape, [3, 2], "the whole of it");
    }

    #[test]
    fn what_is_joined_with_itself_is_joined_where_the_model_runs() {
        let g = trained(|b, words, table| {
            let twice = b.add(Op::Concat(Concat { axis: 0 }), &[table, table]).unwrap();
            looked_up(b, twice, words)
        });
        assert_eq!(kinds(&g), ["Concat", "Take"], "{g}");
    }

    #[test]
    fn what_is_joined_and_used_nowhere_else_is_one_parameter() {
        let g = trained(|b, words, table| {
            let more = constant(b, Some("more"), &[1, 2], &[7.0, 8.0]);
            let rows = b.add(Op::Concat(Concat { axis: 0 }), &[table, more]).unwrap();
            looked_up(b, rows, words)
        });
        assert_eq!(kinds(&g), ["Take"], "{g}");
    }

    /// A table of 16 bits that is looked up and multiplied by in 32, or in what was asked for instead.
    #[test]
    fn what_is_widened_is_read_in_the_dtype_of_its_users() {
        for float_dtype in [None, Some(FloatDType::BF16)] {
            let mut g = graph(&["i64[n]"], |b, x| {
                let numbers = TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]);
                let key = Provenance::Key { key: "e.weight".into(), shape: vec![3, 2] };
                let (name, data) = (Some("e.weight".into()), numbers.convert_dtype(DType::F16));
                let table = b.graph.add_derived(name, data, Some(Arc::new(key)));
                let wide = b.add(Op::Cast(Cast { to: DType::F32 }), &[table]).unwrap();
                let h = looked_up(b, wide, x[0]);
                vec![head(b, h, wide)]
            });
            optimize(&mut g, &Options { trainable: true, float_dtype });
            g.verify().unwrap();
            let first = g.node(g.root.nodes[0]).inputs[0];
            let users = g.root.nodes.iter().filter(|&&id| g.node(id).inputs.contains(&first));
            assert_eq!(users.count(), 2, "one table: {g}");
        }
    }

    /// Rounded, it could not take small steps.
    #[test]
    fn a_parameter_keeps_its_precision() {
        let g = trained(|b, words, table| {
            let rows = b.add(Op::Cast(Cast { to: DType::F16 }), &[table]).unwrap();
            looked_up(b, rows, words)
        });
        assert_eq!(kinds(&g), ["Cast", "Take"], "{g}");
    }
}
