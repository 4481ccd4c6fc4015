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

/// What is at a place.
fn content_at(fields: &Arena<FieldId, Field>, place: Place) -> Option<&Content> {
    match (&fields.get(place.field)?.content, place.position) {
        (Content::Sequence(items), Some(Position::At(position))) => items.get(position),
        (content, None) => Some(content),
        _ => None,
    }
}

impl Sharing<'_, '_> {
    /// Looks where everything is in a module whose children have their structs.
    pub(super) fn places(&self, draft: &Draft) -> Places {
        let mut places = Places::default();
        for (field, data) in draft.fields.enumerate() {
            match &data.content {
                Content::Sequence(items) => {
                    for (position, item) in items.iter().enumerate() {
                        self.add(&mut places, item, Place { field, position: Some(Position::At(position)) });
                    }
                }
                content => self.add(&mut places, content, Place { field, position: None }),
            }
        }
        places
    }

    fn add(&self, places: &mut Places, content: &Content, place: Place) {
        match content {
            Content::Layer(layer) => {
                places.layers.entry(*layer).or_insert(place);
            }
            Content::Parameter(value) => {
                places.parameters.entry(*value).or_insert(place.field);
            }
            Content::Module(child) => self.add_child(places, *child, place),
            // Items are no sequences themselves.
            Content::Sequence(_) | Content::Absent => {}
        }
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
            match content_at(&draft.fields, place)? {
                Content::Module(child) => draft = &self.modules[*child],
                Content::Layer(_) | Content::Parameter(_) | Content::Sequence(_) | Content::Absent => {
                    return Some(way);
                }
            }
        }
    }

    /// The place of a layer that a module holds itself.
    pub(super) fn layer_place(&self, draft: &Draft, layer: NodeId) -> Option<Place> {
        let place = *draft.places.layers.get(&layer)?;
        matches!(content_at(&draft.fields, place)?, Content::Layer(_)).then_some(place)
    }
}
