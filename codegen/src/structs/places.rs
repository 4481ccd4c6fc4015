//! Where things are in a module's fields.

use super::{Draft, Sharing};
use crate::code::{Place, Position};
use crate::ids::{Arena, FieldId, ModuleId};
use crate::tree::{Content, Field};
use kiln_importer::ir::{NodeId, ValueId};
use std::collections::HashMap;

/// What the fields of a module hold, by content.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    parameters: HashMap<ValueId, FieldId>,
    modules: HashMap<ModuleId, Place>,
    /// The first step to each layer, in the module itself or in its children.
    layers: HashMap<NodeId, Place>,
}

impl Places {
    /// The field of a parameter.
    pub(super) fn parameter(&self, value: ValueId) -> Option<FieldId> {
        self.parameters.get(&value).copied()
    }

    /// The place of a child, by its first call.
    pub(super) fn module(&self, first_call: ModuleId) -> Option<Place> {
        self.modules.get(&first_call).copied()
    }
}

/// The child at a place.
fn child_at(fields: &Arena<FieldId, Field>, place: Place) -> Option<ModuleId> {
    match (&fields.get(place.field)?.content, place.position) {
        (Content::Module(child), None) => Some(*child),
        (Content::Sequence(children), Some(Position::At(position))) => children.get(position).copied(),
        _ => None,
    }
}

impl Sharing<'_, '_> {
    /// Looks where everything is in a module whose children have their structs.
    pub(super) fn places(&self, draft: &Draft) -> Places {
        let mut places = Places::default();
        for (field, data) in draft.fields.enumerate() {
            let alone = Place { field, position: None };
            match &data.content {
                Content::Layer(layer) => {
                    places.layers.entry(*layer).or_insert(alone);
                }
                Content::Parameter(value) => {
                    places.parameters.entry(*value).or_insert(field);
                }
                Content::Module(child) => self.add_child(&mut places, *child, alone),
                Content::Sequence(children) => {
                    for (position, &child) in children.iter().enumerate() {
                        self.add_child(
                            &mut places,
                            child,
                            Place { field, position: Some(Position::At(position)) },
                        );
                    }
                }
                Content::Absent => {}
            }
        }
        places
    }

    fn add_child(&self, places: &mut Places, child: ModuleId, place: Place) {
        places.modules.entry(child).or_insert(place);
        for &layer in self.modules[child].places.layers.keys() {
            places.layers.entry(layer).or_insert(place);
        }
    }

    /// The way from a module to a layer that it holds, itself or in its children.
    pub(super) fn way_to(&self, draft: &Draft, layer: NodeId) -> Option<Vec<Place>> {
        let mut way = Vec::new();
        let mut draft = draft;
        loop {
            let place = *draft.places.layers.get(&layer)?;
            way.push(place);
            match child_at(&draft.fields, place) {
                Some(child) => draft = &self.modules[child],
                None => return Some(way),
            }
        }
    }

    /// The field of a layer that a module holds itself.
    pub(super) fn layer_field(&self, draft: &Draft, layer: NodeId) -> Option<FieldId> {
        let field = draft.places.layers.get(&layer)?.field;
        matches!(draft.fields.get(field)?.content, Content::Layer(_)).then_some(field)
    }
}
