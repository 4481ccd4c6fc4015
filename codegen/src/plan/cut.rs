//! Modules for graphs of which the file tells none: from the names of parameters, else from repetition and size.

use super::home::{Home, is_below};
use super::{Plan, live};
use kiln_importer::ir::{Graph, NodeId, ScopeEntry, SymbolOrigin, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Shorter functions are left in one piece.
const MAX_NODES: usize = 48;
/// Pieces are about so long.
const PIECE: usize = 32;
/// More values than this crossing a cut would be a function with too many parameters or results.
const MAX_CROSSING: usize = 4;
/// Shorter runs of nodes are not worth a module, however often they come.
const MIN_PERIOD: usize = 4;

/// Gives nodes homes, where none has any.
pub fn cut(plan: &Plan<'_>, nodes: &[NodeId], homes: &mut BTreeMap<NodeId, Home>) {
    let named =
        homes.values().filter(|home| home.layer.as_deref().is_some_and(|path| path.contains('.'))).count();
    if named > 0 {
        for home in homes.values_mut() {
            home.chain = home.layer.as_deref().map(chain_of).unwrap_or_default();
        }
        return;
    }
    if nodes.len() <= MAX_NODES {
        return;
    }
    let cutter = Cutter {
        tokens: nodes.iter().map(|&node| token(plan, node)).collect(),
        crossing: crossing(plan, nodes),
    };
    let mut pieces = Vec::new();
    cutter.cut(0, nodes.len(), &mut pieces);
    let mut names = crate::names::Names::default();
    for piece in pieces {
        let stem = names.fresh(piece.stem);
        for (i, start) in (piece.start..piece.end).step_by(piece.period).enumerate() {
            let path =
                if piece.period < piece.end - piece.start { format!("{stem}.{i}") } else { stem.clone() };
            for node in &nodes[start..(start + piece.period).min(piece.end)] {
                if let Some(home) = homes.get_mut(node) {
                    home.chain = vec![ScopeEntry { path: path.clone(), class: String::new() }];
                }
            }
        }
    }
}

/// The modules that a layer's path names: `layer1` and `layer1.0` for `layer1.0.conv1`.
fn chain_of(path: &str) -> Vec<ScopeEntry> {
    let ends = path.char_indices().filter(|(_, c)| *c == '.').map(|(at, _)| &path[..at]);
    // A number alone names a place in a list, which is no module.
    let mut chain: Vec<ScopeEntry> = Vec::new();
    for outer in ends {
        let next_is_number = path[outer.len() + 1..].starts_with(|c: char| c.is_ascii_digit());
        let below = chain.last().is_none_or(|entry| is_below(outer, &entry.path));
        if below && !next_is_number {
            chain.push(ScopeEntry { path: outer.to_owned(), class: String::new() });
        }
    }
    chain
}

/// A stretch of nodes that becomes modules.
struct Piece {
    start: usize,
    end: usize,
    /// Length of one module.
    period: usize,
    stem: &'static str,
}

struct Cutter {
    /// What each node does, without its numbers.
    tokens: Vec<String>,
    /// Number of values that are made before a node and used from it on.
    crossing: Vec<usize>,
}

/// Nodes that repeat.
struct Repetition {
    start: usize,
    period: usize,
    times: usize,
}

impl Cutter {
    fn cut(&self, start: usize, end: usize, pieces: &mut Vec<Piece>) {
        if let Some(found) = self.repetition(start, end) {
            let stop = found.start + found.period * found.times;
            self.cut(start, found.start, pieces);
            pieces.push(Piece { start: found.start, end: stop, period: found.period, stem: "blocks" });
            self.cut(stop, end, pieces);
            return;
        }
        let mut at = start;
        while end - at > MAX_NODES {
            let Some(next) = self.next_cut(at, end) else { break };
            pieces.push(Piece { start: at, end: next, period: next - at, stem: "part" });
            at = next;
        }
        if at > start && at < end {
            pieces.push(Piece { start: at, end, period: end - at, stem: "part" });
        }
    }

    /// The cheapest cut near the wanted length, the longest of equals; later ones when all near it are too dear.
    fn next_cut(&self, at: usize, end: usize) -> Option<usize> {
        let mut from = at + PIECE / 2;
        while from < end {
            let to = (from + PIECE / 2).min(end - 1);
            let cheapest = (from..=to).min_by_key(|&i| (self.crossing[i], std::cmp::Reverse(i)));
            if let Some(cut) = cheapest.filter(|&i| self.crossing[i] <= MAX_CROSSING) {
                return Some(cut);
            }
            from = to + 1;
        }
        None
    }

    /// The repetition that covers most; of equals, that with the shortest period.
    fn repetition(&self, start: usize, end: usize) -> Option<Repetition> {
        let mut best: Option<Repetition> = None;
        let mut period = MIN_PERIOD;
        while period * 2 <= end - start {
            let mut run = 0;
            for i in start..=end - period {
                let equal = i < end - period && self.tokens[i] == self.tokens[i + period];
                if equal {
                    run += 1;
                    continue;
                }
                if run >= period {
                    let found = self.aligned(i - run, run + period, period);
                    let covered = |r: &Repetition| r.period * r.times;
                    if best.as_ref().is_none_or(|best| covered(&found) > covered(best)) {
                        best = Some(found);
                    }
                }
                run = 0;
            }
            period += 1;
        }
        best.filter(|found| {
            let cheap = |k: usize| self.crossing[found.start + k * found.period] <= MAX_CROSSING;
            found.period <= 4 * MAX_NODES && (0..=found.times).all(cheap)
        })
    }

    /// Where to begin within a stretch that repeats, so that the fewest values cross from one module to the next.
    fn aligned(&self, start: usize, length: usize, period: usize) -> Repetition {
        let most = length / period;
        let cost = |offset: usize| {
            let times = (length - offset) / period;
            let crossing: usize =
                (0..=times).map(|k| self.crossing[start + offset + k * period]).max().unwrap_or(0);
            (most - times, crossing, offset)
        };
        let offset = (0..period.min(length - period)).min_by_key(|&offset| cost(offset)).unwrap_or(0);
        // One module fewer, cut where less crosses, is better than one more that takes half of its neighbours' values.
        let better = (0..period.min(length.saturating_sub(2 * period) + 1)).min_by_key(|&offset| {
            let (_, crossing, offset) = cost(offset);
            (crossing, offset)
        });
        let offset = better.filter(|&other| cost(other).1 < cost(offset).1).unwrap_or(offset);
        Repetition { start: start + offset, period, times: (length - offset) / period }
    }
}

/// What a node does, without its numbers.
pub fn token(plan: &Plan<'_>, node: NodeId) -> String {
    let spelling = match plan.layer(node) {
        Some(layer) => format!("{} {} {:?}", layer.ty, layer.method, layer.args),
        None => format!("{:?}", plan.call(node)),
    };
    let ranks: Vec<usize> =
        plan.graph.node(node).outputs.iter().map(|&value| plan.graph.ty(value).rank()).collect();
    format!("{} {ranks:?}", spelling.replace(|c: char| c.is_ascii_digit(), ""))
}

/// Positions that no cut may take count as so many values: still few enough to add to.
const UNCUT: usize = usize::MAX / 2;

/// How many values cross each position. A number that is read back from the device is a local variable, so its uses stay
/// together with the read.
fn crossing(plan: &Plan<'_>, nodes: &[NodeId]) -> Vec<usize> {
    let graph = plan.graph;
    let mut first: BTreeMap<ValueId, usize> = graph.inputs.iter().map(|&input| (input, 0)).collect();
    let mut last: BTreeMap<ValueId, usize> = BTreeMap::new();
    for (i, &node) in nodes.iter().enumerate() {
        for value in live::operands(graph, node) {
            last.insert(value, i);
        }
        first.extend(graph.node(node).outputs.iter().map(|&output| (output, i + 1)));
    }
    let outputs: BTreeSet<ValueId> = graph.root.outputs.iter().copied().collect();
    let mut counts = vec![0; nodes.len() + 1];
    for (value, from) in first {
        let to = if outputs.contains(&value) { nodes.len() } else { last.get(&value).map_or(0, |&i| i) };
        for count in counts.iter_mut().take(to + 1).skip(from) {
            *count += 1;
        }
    }
    for (from, to) in reads(graph, nodes) {
        counts.iter_mut().take(to + 1).skip(from + 1).for_each(|count| *count = UNCUT);
    }
    counts
}

/// The stretches from each reading node to the last use of what it read.
fn reads(graph: &Graph, nodes: &[NodeId]) -> Vec<(usize, usize)> {
    let places: BTreeMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, &node)| (node, i)).collect();
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for (i, &node) in nodes.iter().enumerate() {
        for symbol in live::symbols(graph, node) {
            if let Some(SymbolOrigin::Read { node: reader, .. }) = graph.symbols.get(&symbol)
                && let Some(&from) = places.get(reader)
            {
                last.insert(from, i);
            }
        }
    }
    last.into_iter().collect()
}
