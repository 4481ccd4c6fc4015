//! Modules for graphs of which the file names none: from the names of parameters, else from repetition and size.

use super::calls;
use super::layers::Layers;
use super::nodes::{self, Nodes};
use super::outline::Outlines;
use super::placement::{Placement, is_below};
use crate::ids::{Id, OutlineId};
use crate::names::Names;
use kiln_importer::ir::{Graph, NodeId, ScopeEntry, SymbolOrigin, ValueId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

/// Shorter functions are left in one piece.
const MAX_NODES: usize = 48;
/// Pieces are about so long.
const PIECE: usize = 32;
/// More values than this crossing a boundary would be a function with too many parameters or results.
const MAX_CROSSING: usize = 4;
/// Fewer rounds are written one after the other.
const MIN_ROUNDS: usize = 3;
/// Shorter runs of nodes are not worth a module, however often they come.
const MIN_PERIOD: usize = 4;
/// Longer runs of nodes would be functions of more than bearable length.
const MAX_PERIOD: usize = 4 * MAX_NODES;

/// Gives nodes modules, where none has any.
pub fn partition(nodes: &Nodes<'_>, layers: &Layers, placements: &mut BTreeMap<NodeId, Placement>) {
    let is_named = |placement: &Placement| placement.layer.as_deref().is_some_and(|path| path.contains('.'));
    if placements.values().any(is_named) {
        for placement in placements.values_mut() {
            placement.modules = placement.layer.as_deref().map(modules_of).unwrap_or_default();
        }
        return;
    }
    if nodes.root.len() <= MAX_NODES {
        return;
    }
    let mut outlines = Outlines::new(nodes, layers);
    let line = Line {
        outlines: nodes.root.iter().map(|&node| outlines.of(node)).collect(),
        crossing: crossing(nodes),
        max_crossing: MAX_CROSSING,
        flow: (!sizes_depend_on_data(nodes.graph)).then(|| Flow::new(nodes)),
    };
    // Of rounds one is left, in a loop. Modules would need the parameters that they share.
    let repeated: usize = rounds(nodes, &line).into_iter().map(|found| found.covered() - found.period).sum();
    if repeated > 0 && nodes.root.len() - repeated <= MAX_PERIOD {
        return;
    }
    let mut names = Names::default();
    for piece in line.pieces() {
        let stem = names.fresh(piece.stem);
        for (i, start) in (piece.start..piece.end).step_by(piece.period).enumerate() {
            let repeats = piece.period < piece.end - piece.start;
            let path = if repeats { format!("{stem}.{i}") } else { stem.clone() };
            for node in &nodes.root[start..(start + piece.period).min(piece.end)] {
                if let Some(placement) = placements.get_mut(node) {
                    placement.modules = vec![ScopeEntry { path: path.clone(), class: String::new() }];
                }
            }
        }
    }
}

/// The modules that a layer's path names: `layer1` and `layer1.0` for `layer1.0.conv1`.
fn modules_of(path: &str) -> Vec<ScopeEntry> {
    let ends = path.char_indices().filter(|(_, c)| *c == '.').map(|(at, _)| &path[..at]);
    // A number alone names a place in a list, which is no module.
    let mut modules: Vec<ScopeEntry> = Vec::new();
    for outer in ends {
        let next_is_number = path[outer.len() + 1..].starts_with(|c: char| c.is_ascii_digit());
        let below = modules.last().is_none_or(|entry| is_below(outer, &entry.path));
        if below && !next_is_number {
            modules.push(ScopeEntry { path: outer.to_owned(), class: String::new() });
        }
    }
    modules
}

/// A stretch of nodes that becomes modules.
struct Piece {
    start: usize,
    end: usize,
    /// Length of one module.
    period: usize,
    stem: &'static str,
}

/// Nodes in execution order.
struct Line {
    /// What each node does.
    outlines: Vec<OutlineId>,
    /// Number of values that are made before a node and used from it on.
    crossing: Vec<usize>,
    /// How many of them may cross from one piece to the next.
    max_crossing: usize,
    /// `None` where sizes depend on data: what a function needs is not only what its nodes use.
    flow: Option<Flow>,
}

/// Which values nodes use and make, by their places.
#[derive(Default)]
struct Flow {
    /// What each node uses: inputs of the graph and results of nodes.
    used: Vec<Vec<ValueId>>,
    /// What each node makes, and where the last use of each is.
    made: Vec<Vec<(ValueId, usize)>>,
    /// The values of whose sizes each node makes use.
    sized: Vec<Vec<ValueId>>,
}

impl Flow {
    fn new(nodes: &Nodes<'_>) -> Self {
        let graph = nodes.graph;
        let used: Vec<Vec<ValueId>> = nodes.root.iter().map(|&node| nodes::operands(graph, node)).collect();
        let mut last: HashMap<ValueId, usize> = HashMap::new();
        for (i, used) in used.iter().enumerate() {
            last.extend(used.iter().map(|&value| (value, i)));
        }
        last.extend(graph.root.outputs.iter().map(|&output| (output, nodes.root.len())));
        let made = nodes.root.iter().map(|&node| {
            let outputs = graph.node(node).outputs.iter();
            outputs.filter_map(|output| Some((*output, *last.get(output)?))).collect()
        });
        let made = made.collect();
        let is_constant = |value: &ValueId| graph.constant(*value).is_some();
        let without = |mut used: Vec<ValueId>| {
            used.retain(|value| !is_constant(value));
            used
        };
        let sized = nodes.root.iter().map(|&node| {
            let origins = nodes.symbols(node).filter_map(|symbol| graph.symbols.get(symbol));
            let values = origins.filter_map(|origin| match origin {
                SymbolOrigin::Dim { value, .. } => Some(*value),
                SymbolOrigin::Read { .. } | SymbolOrigin::Iteration { .. } => None,
            });
            values.collect()
        });
        Flow { used: used.into_iter().map(without).collect(), made, sized: sized.collect() }
    }

    /// For functions that begin at a node, of no, one, two, … nodes: how many parameters each has, or results, if those are more;
    /// too many for any where sizes are used of a value that is no parameter. Longer ones than the first with more than `most` parameters, which
    /// have more, are not looked at.
    fn passed(&self, start: usize, end: usize, most: usize) -> Vec<usize> {
        let (mut inside, mut parameters) = (HashSet::<ValueId>::new(), HashSet::<ValueId>::new());
        let mut unused: HashMap<usize, usize> = HashMap::new();
        let mut unknown: HashSet<ValueId> = HashSet::new();
        let mut results = 0;
        let mut passed = vec![0];
        for at in start..end {
            parameters.extend(self.used[at].iter().filter(|&value| !inside.contains(value)));
            if parameters.len() > most {
                break;
            }
            unknown.extend(self.sized[at].iter().filter(|&value| !inside.contains(value)));
            unknown.retain(|value| !parameters.contains(value));
            for &(value, last) in &self.made[at] {
                inside.insert(value);
                *unused.entry(last).or_insert(0) += 1;
                results += 1;
            }
            results -= unused.get(&at).copied().unwrap_or(0);
            passed.push(if unknown.is_empty() { results.max(parameters.len()) } else { UNCUT });
        }
        passed.resize(end - start + 1, UNCUT);
        passed
    }
}

/// Whether a size is that of a result, or read back from the device.
fn sizes_depend_on_data(graph: &Graph) -> bool {
    graph.symbols.values().any(|origin| match origin {
        SymbolOrigin::Dim { value, .. } => graph.producer(*value).is_some(),
        SymbolOrigin::Read { .. } | SymbolOrigin::Iteration { .. } => true,
    })
}

/// Nodes that repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repetition {
    start: usize,
    period: usize,
    times: usize,
}

impl Repetition {
    fn covered(&self) -> usize {
        self.period * self.times
    }

    fn end(&self) -> usize {
        self.start + self.covered()
    }
}

/// A stretch of at least two periods in which each node does what the node a period before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    end: usize,
    period: usize,
}

impl Run {
    /// The most nodes that its repetition can cover.
    fn bound(&self) -> usize {
        (self.end - self.start) / self.period * self.period
    }

    /// Its part in a stretch, if it still repeats there.
    fn within(&self, start: usize, end: usize) -> Option<Run> {
        let run = Run { start: self.start.max(start), end: self.end.min(end), period: self.period };
        (run.start + 2 * run.period <= run.end).then_some(run)
    }
}

/// A run that waits to be chosen. The greatest is the next: that which covers most, of equals the one with the shortest
/// period, then the first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// How many nodes its repetition covers.
    covered: usize,
    /// Whether that is only a bound.
    is_bound: bool,
    period: Reverse<usize>,
    start: Reverse<usize>,
    end: usize,
}

impl Candidate {
    fn new(run: Run, covered: Option<usize>) -> Self {
        Candidate {
            covered: covered.unwrap_or_else(|| run.bound()),
            is_bound: covered.is_none(),
            period: Reverse(run.period),
            start: Reverse(run.start),
            end: run.end,
        }
    }

    fn run(&self) -> Run {
        Run { start: self.start.0, end: self.end, period: self.period.0 }
    }
}

/// Stretches of which it is decided whether they are modules. The rest are gaps.
#[derive(Default)]
struct Decided {
    /// Ends by starts.
    ends: BTreeMap<usize, usize>,
}

impl Decided {
    fn insert(&mut self, start: usize, end: usize) {
        self.ends.insert(start, end);
    }

    /// The gaps between two positions.
    fn gaps(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let mut gaps = Vec::new();
        let mut at = self.ends.range(..=start).next_back().map_or(start, |(_, &end)| end.max(start));
        for (&next, &after) in self.ends.range(start..end) {
            if at < next {
                gaps.push((at, next));
            }
            at = at.max(after);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// The gap around a stretch that lies in one.
    fn around(&self, start: usize, end: usize, length: usize) -> (usize, usize) {
        let before = self.ends.range(..=start).next_back().map_or(0, |(_, &end)| end);
        let after = self.ends.range(end..).next().map_or(length, |(&start, _)| start);
        (before, after)
    }
}

impl Line {
    /// All pieces, in order: what repeats, and what lies between in pieces of bearable length.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = 0;
        for found in self.repetitions() {
            self.cut(at, found.start, &mut pieces);
            let (start, end, period) = (found.start, found.end(), found.period);
            pieces.push(Piece { start, end, period, stem: "blocks" });
            at = end;
        }
        self.cut(at, self.outlines.len(), &mut pieces);
        pieces
    }

    /// Cuts a stretch that does not repeat. A node that uses too many values of different pieces is in none.
    fn cut(&self, start: usize, end: usize, pieces: &mut Vec<Piece>) {
        let mut at = start;
        let mut piece = |at: usize, to: usize| {
            pieces.push(Piece { start: at, end: to, period: to - at, stem: "part" });
        };
        while end - at > MAX_NODES {
            let to = end.min(at + MAX_PERIOD);
            let passed =
                self.flow.as_ref().map(|flow| flow.passed(at, to, self.max_crossing)).unwrap_or_default();
            if let Some(next) = self.next_cut(at, end, &passed) {
                piece(at, next);
                at = next;
            } else if self.flow.is_none()
                || (self.crossing[at] <= self.max_crossing && end - at <= MAX_PERIOD)
            {
                break;
            } else {
                at = self.before_joint(at, end, &passed, &mut piece);
            }
        }
        while at > start && at < end {
            let passed =
                self.flow.as_ref().map(|flow| flow.passed(at, end, self.max_crossing)).unwrap_or_default();
            if self.flow.is_none()
                || self.crossing[at] <= self.max_crossing
                || passed[end - at] <= self.max_crossing
            {
                piece(at, end);
                return;
            }
            at = self.before_joint(at, end, &passed, &mut piece);
        }
    }

    /// Makes a piece of what comes before a node that uses too many values; the next place behind that node where a piece may begin.
    fn before_joint(
        &self,
        at: usize,
        end: usize,
        passed: &[usize],
        piece: &mut impl FnMut(usize, usize),
    ) -> usize {
        let cheap =
            |&length: &usize| passed[length] <= self.max_crossing && self.crossing[at + length] < UNCUT;
        let length = (MIN_PERIOD..passed.len().min(MAX_NODES)).rev().find(cheap).unwrap_or(0);
        if length > 0 {
            piece(at, at + length);
        }
        let behind = at + length + 1;
        (behind..end).find(|&i| self.crossing[i] < UNCUT).unwrap_or(end)
    }

    /// The cheapest cut near the wanted length, the longest of equals; later ones when all near it are too dear. `passed` says
    /// what functions of so many nodes cost.
    fn next_cut(&self, at: usize, end: usize, passed: &[usize]) -> Option<usize> {
        let is_cheap = |cost: usize| cost <= self.max_crossing;
        // A cut that few values cross is one for what lies before it, too, if few values came in.
        let enters = self.flow.is_none() || is_cheap(self.crossing[at]);
        let passed = |i: usize| passed.get(i - at).copied().filter(|_| self.crossing[i] < UNCUT);
        let mut from = at + PIECE / 2;
        while from < end {
            let to = (from + PIECE / 2).min(end - 1);
            let cheapest = (from..=to).min_by_key(|&i| (self.crossing[i], Reverse(i)));
            let cut = cheapest
                .filter(|&i| is_cheap(self.crossing[i]) && (enters || passed(i).is_some_and(is_cheap)));
            if cut.is_some() {
                return cut;
            }
            // Where many values wait for something far behind, a piece has little to do with most of them.
            let cheapest = (from..=to).filter_map(|i| Some((passed(i)?, Reverse(i)))).min();
            if let Some((_, Reverse(cut))) = cheapest.filter(|(cost, _)| is_cheap(*cost)) {
                return Some(cut);
            }
            if self.flow.is_some() && to - at > MAX_PERIOD {
                return None;
            }
            from = to + 1;
        }
        None
    }

    /// Repetitions that do not overlap, in order. That which covers most comes first, and what is left of others goes on
    /// in the gaps beside it; a gap whose best repetition would be too dear to cut out has none.
    fn repetitions(&self) -> Vec<Repetition> {
        let length = self.outlines.len();
        let runs = self.runs().into_iter();
        let mut waiting: BinaryHeap<Candidate> = runs.map(|run| Candidate::new(run, None)).collect();
        let mut decided = Decided::default();
        let mut chosen: Vec<Repetition> = Vec::new();
        while let Some(candidate) = waiting.pop() {
            let run = candidate.run();
            let gaps = decided.gaps(run.start, run.end);
            if gaps != [(run.start, run.end)] {
                let parts = gaps.into_iter().filter_map(|(start, end)| run.within(start, end));
                waiting.extend(parts.map(|part| Candidate::new(part, None)));
                continue;
            }
            let found = self.aligned(run);
            if candidate.is_bound {
                waiting.push(Candidate::new(run, Some(found.covered())));
                continue;
            }
            let is_cheap = |k: usize| self.crossing[found.start + k * found.period] <= self.max_crossing;
            if (0..=found.times).all(is_cheap) {
                decided.insert(found.start, found.end());
                chosen.push(found);
                waiting.push(Candidate::new(run, None));
            } else {
                let (start, end) = decided.around(run.start, run.end, length);
                decided.insert(start, end);
            }
        }
        chosen.sort_unstable_by_key(|found| found.start);
        chosen
    }

    /// Every run of a bearable period.
    fn runs(&self) -> Vec<Run> {
        let length = self.outlines.len();
        let mut runs = Vec::new();
        for period in MIN_PERIOD..=MAX_PERIOD.min(length / 2) {
            let mut start = 0;
            for i in 0..=length - period {
                if i < length - period && self.outlines[i] == self.outlines[i + period] {
                    continue;
                }
                runs.extend(Run { start, end: i + period, period }.within(0, length));
                start = i + 1;
            }
        }
        runs
    }

    /// Where to begin within a run, so that the fewest values cross from one module to the next.
    fn aligned(&self, run: Run) -> Repetition {
        let Run { start, end, period } = run;
        let length = end - start;
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

/// Nodes that repeat with the same parameters, on the same values or on what was made as long before.
fn rounds(nodes: &Nodes<'_>, line: &Line) -> Vec<Repetition> {
    let graph = nodes.graph;
    let parameters: Vec<Vec<ValueId>> =
        nodes.root.iter().map(|&node| calls::parameters(nodes, node)).collect();
    let mut known: HashMap<(OutlineId, &[ValueId]), OutlineId> = HashMap::new();
    let outlines = line.outlines.iter().zip(&parameters).map(|(&outline, parameters)| {
        let next = OutlineId::at(known.len());
        *known.entry((outline, parameters)).or_insert(next)
    });
    let crossing = line.crossing.clone();
    let line = Line { outlines: outlines.collect(), crossing, max_crossing: UNCUT - 1, flow: None };
    let places: HashMap<NodeId, usize> = nodes.root.iter().enumerate().map(|(i, &node)| (node, i)).collect();
    let maker = |value: ValueId| graph.producer(value).and_then(|node| places.get(&node)).copied();
    let follows = |i: usize, period: usize| {
        let of = |i: usize| nodes.root.get(i).map(|&node| nodes::operands(graph, node)).unwrap_or_default();
        let (now, before) = (of(i), of(i - period));
        now.len() == before.len()
            && now.into_iter().zip(before).all(|(now, before)| {
                now == before
                    || maker(now).is_some_and(|at| maker(before).is_some_and(|other| at == other + period))
            })
    };
    let mut found = line.repetitions();
    found.retain(|found| {
        let mut first = parameters.iter().skip(found.start).take(found.period);
        found.times >= MIN_ROUNDS
            && first.any(|parameters| !parameters.is_empty())
            && (found.start + 2 * found.period..found.end()).all(|i| follows(i, found.period))
    });
    found
}

/// Positions that no cut may take count as so many values: still few enough to add to.
const UNCUT: usize = usize::MAX / 2;

/// How many values cross each position. A number that is read back from the device is a local variable, so its uses stay
/// together with the read.
fn crossing(nodes: &Nodes<'_>) -> Vec<usize> {
    let graph = nodes.graph;
    let length = nodes.root.len();
    let mut first: BTreeMap<ValueId, usize> = graph.inputs.iter().map(|&input| (input, 0)).collect();
    let mut last: BTreeMap<ValueId, usize> = BTreeMap::new();
    for (i, &node) in nodes.root.iter().enumerate() {
        for value in nodes::operands(graph, node) {
            last.insert(value, i);
        }
        first.extend(graph.node(node).outputs.iter().map(|&output| (output, i + 1)));
    }
    let outputs: BTreeSet<ValueId> = graph.root.outputs.iter().copied().collect();
    let spans = first.into_iter().map(|(value, from)| {
        let to = if outputs.contains(&value) { length } else { last.get(&value).copied().unwrap_or(0) };
        (from, to)
    });
    let mut counts = covered(spans, length);
    let reads = reads(graph, nodes).into_iter().map(|(from, to)| (from + 1, to));
    for (count, reads) in counts.iter_mut().zip(covered(reads, length)) {
        if reads > 0 {
            *count = UNCUT;
        }
    }
    counts
}

/// How many of the spans, their ends included, lie over each position up to `length`.
fn covered(spans: impl Iterator<Item = (usize, usize)>, length: usize) -> Vec<usize> {
    let (mut begin, mut end) = (vec![0usize; length + 2], vec![0usize; length + 2]);
    for (from, to) in spans.filter(|(from, to)| from <= to) {
        begin[from] += 1;
        end[to + 1] += 1;
    }
    let mut open = 0;
    (0..=length)
        .map(|i| {
            open = open + begin[i] - end[i];
            open
        })
        .collect()
}

/// The stretches from each reading node to the last use of what it read.
fn reads(graph: &Graph, nodes: &Nodes<'_>) -> Vec<(usize, usize)> {
    let places: BTreeMap<NodeId, usize> = nodes.root.iter().enumerate().map(|(i, &node)| (node, i)).collect();
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for (i, &node) in nodes.root.iter().enumerate() {
        for symbol in nodes.symbols(node) {
            if let Some(SymbolOrigin::Read { node: reader, .. }) = graph.symbols.get(symbol)
                && let Some(&from) = places.get(reader)
            {
                last.insert(from, i);
            }
        }
    }
    last.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_importer::ir::{Builder, TensorType};
    use kiln_types::DType;

    /// A line of nodes, a letter for what each does, that one value crosses everywhere.
    fn line(text: &str) -> Line {
        Line {
            outlines: text.bytes().map(|letter| OutlineId::at(usize::from(letter))).collect(),
            crossing: vec![1; text.len() + 1],
            max_crossing: MAX_CROSSING,
            flow: Some(Flow::default()),
        }
    }

    fn repetitions(line: &Line) -> Vec<(usize, usize, usize)> {
        line.repetitions().iter().map(|found| (found.start, found.period, found.times)).collect()
    }

    #[test]
    fn what_covers_most_is_cut_first() {
        assert_eq!(repetitions(&line("xyabcdabcdabcdz")), [(2, 4, 3)]);
        // What is left of a run beside a better one is found too.
        assert_eq!(repetitions(&line("abcdeabcdeabcdeqrstqrst")), [(0, 5, 3), (15, 4, 2)]);
        assert_eq!(repetitions(&line("abcabcabc")), [], "too short to be worth a module");
    }

    #[test]
    fn pieces_are_cut_where_values_wait_that_they_do_not_use() {
        // Three branches of one value, and what joins them.
        let (branch, count) = (40, 3);
        let mut line = line(&"x".repeat(branch * count + 1));
        line.crossing.fill(MAX_CROSSING + 1);
        let mut graph = Graph::default();
        let mut builder = Builder::new(&mut graph);
        let ty = || TensorType::new(DType::F32, [1]);
        let values: Vec<ValueId> = (0..=branch * count + 5).map(|_| builder.input("x", ty())).collect();
        let value = |i: usize| values[i];
        let last = |i: usize| if i % branch == branch - 1 { branch * count } else { i + 1 };
        let nodes = 0..branch * count;
        let mut made: Vec<Vec<(ValueId, usize)>> = nodes.clone().map(|i| vec![(value(i), last(i))]).collect();
        made.push(vec![(value(branch * count), branch * count + 1)]);
        let first = value(branch * count + 1);
        let mut used: Vec<Vec<ValueId>> =
            nodes.map(|i| vec![if i % branch == 0 { first } else { value(i - 1) }]).collect();
        let others = (branch * count + 2..branch * count + 6).map(value);
        used.push((1..=count).map(|n| value(n * branch - 1)).chain(others).collect());
        let sized = vec![Vec::new(); branch * count + 1];
        line.flow = Some(Flow { used, made, sized });
        let mut pieces = Vec::new();
        line.cut(0, branch * count + 1, &mut pieces);
        assert!(pieces.len() > 2 && pieces.iter().all(|piece| piece.end - piece.start <= MAX_NODES));
        assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
        // What joins them stays where the branches are called.
        assert_eq!(pieces.last().unwrap().end, branch * count);
    }

    #[test]
    fn a_gap_whose_best_repetition_is_too_dear_has_none() {
        let mut line = line("abcdeabcdeabcdeqrstqrst");
        line.crossing[5] = MAX_CROSSING + 1;
        line.crossing[6..].fill(MAX_CROSSING + 1);
        assert_eq!(repetitions(&line), []);
    }

    #[test]
    fn values_cross_from_where_they_are_made_to_their_last_use() {
        assert_eq!(covered([(0, 2), (1, 1), (3, 2)].into_iter(), 3), [1, 2, 1, 0]);
    }
}
