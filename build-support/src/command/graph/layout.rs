//! Places modules and nodes: every module is a box around its items, items in rows by longest path.
//!
//! This is the layering step of Sugiyama, Tagawa and Toda (1981), applied level by level of the module tree, so that boxes
//! nest and never overlap. Rows keep execution order, which for networks crosses few arrows.

use super::{Item, Module, Source, labels, sources};
use kiln_importer::ir::{Graph, NodeId};
use std::collections::BTreeMap;

const CHARACTER: f64 = 6.3;
const GAP: f64 = 18.0;
const ROW_GAP: f64 = 26.0;
const TITLE: f64 = 20.0;

/// A placed box, in absolute coordinates.
#[derive(Clone, Debug, Default)]
pub(super) struct Box {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    pub labels: Vec<String>,
    pub node: Option<NodeId>,
    pub children: Vec<Box>,
}

impl Box {
    /// Calls `visit` for the box and all below it, outer ones first.
    pub(super) fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Box)) {
        visit(self);
        for child in &self.children {
            child.walk(visit);
        }
    }

    fn shift(&mut self, dx: f64, dy: f64) {
        self.x += dx;
        self.y += dy;
        for child in &mut self.children {
            child.shift(dx, dy);
        }
    }
}

/// Places a module and everything in it, its corner at the origin.
pub(super) fn place(graph: &Graph, module: &Module) -> Box {
    let mut boxes: Vec<Box> = module
        .items
        .iter()
        .map(|item| match item {
            Item::Node(id) => node_box(graph, *id),
            Item::Module(child) => place(graph, child),
        })
        .collect();
    let rows = rows(graph, module);
    let count = rows.iter().max().map_or(0, |&row| row + 1);
    let mut widths = vec![0.0; count];
    let mut heights = vec![0.0_f64; count];
    for (item, &row) in boxes.iter().zip(&rows) {
        widths[row] += item.width + GAP;
        heights[row] = heights[row].max(item.height);
    }
    let title = module.label();
    let inner = widths.iter().copied().fold(title.chars().count() as f64 * CHARACTER, f64::max);
    let top = if title.is_empty() { GAP } else { GAP + TITLE };
    let mut cursor: Vec<f64> = widths.iter().map(|width| GAP + (inner - width) / 2.0).collect();
    let mut tops = Vec::with_capacity(count);
    let mut y = top;
    for height in &heights {
        tops.push(y);
        y += height + ROW_GAP;
    }
    for (item, &row) in boxes.iter_mut().zip(&rows) {
        item.shift(cursor[row], tops[row]);
        cursor[row] += item.width + GAP;
    }
    let height = y - ROW_GAP + GAP;
    Box { width: inner + GAP, height, labels: vec![title], children: boxes, ..Box::default() }
}

fn node_box(graph: &Graph, id: NodeId) -> Box {
    let labels = labels(graph, graph.node(id));
    let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or_default();
    let width = longest as f64 * CHARACTER + 16.0;
    Box { width, height: 38.0, labels: labels.to_vec(), node: Some(id), ..Box::default() }
}

/// The row of each item: one below the lowest item that it reads from.
fn rows(graph: &Graph, module: &Module) -> Vec<usize> {
    let mut owner = BTreeMap::new();
    for (i, item) in module.items.iter().enumerate() {
        for_each_node(item, &mut |id| {
            owner.insert(id, i);
        });
    }
    let mut rows = vec![0; module.items.len()];
    for (i, item) in module.items.iter().enumerate() {
        let mut row = 0;
        for_each_node(item, &mut |id| {
            for from in sources(graph, graph.node(id)) {
                // An item that is entered again after others would need a row above itself: such arrows go up.
                if let Source::Node(from) = from
                    && let Some(&j) = owner.get(&from).filter(|&&j| j < i)
                {
                    row = row.max(rows[j] + 1);
                }
            }
        });
        rows[i] = row;
    }
    rows
}

fn for_each_node(item: &Item, visit: &mut impl FnMut(NodeId)) {
    match item {
        Item::Node(id) => visit(*id),
        Item::Module(module) => module.items.iter().for_each(|item| for_each_node(item, visit)),
    }
}
