//! What constructors take: the literals in which modules of one struct differ.

use super::build::MAX_PARAMETERS;
use super::variants::{Group, plain_name};
use super::{Derived, Draft, Parameter, ParameterKind, Sharing, field_names};
use crate::code::{Init, Literal};
use crate::ids::{ModuleId, SlotId};
use crate::names::{Names, snake};
use crate::tree::{Content, Field};
use std::collections::HashMap;

/// A parameter with the literal that each module has for it.
struct Found {
    literals: Vec<Option<Literal>>,
    parameter: Parameter,
}

impl Sharing<'_, '_> {
    /// The literals that differ between modules of equal code, equal ones as one parameter; `None` when there are more
    /// than a constructor should take.
    pub(super) fn parameters(&self, group: &Group) -> Option<Vec<Parameter>> {
        let members = group.members.as_slice();
        let first = *members.first()?;
        if members.len() == 1 {
            return Some(Vec::new());
        }
        let mut found: Vec<Found> = Vec::new();
        for (id, slot) in self.modules[first].body.slots.enumerate() {
            let literals = self.literals(members, id);
            let Some(some) = literals.iter().flatten().next() else { continue };
            if literals.iter().flatten().all(|literal| literal == some) {
                continue;
            }
            let passed = self.differs_by_call(members, &literals);
            let kept = slot.field.is_none() && !passed;
            // What a module has no use for goes with any literal.
            let goes_with = |other: &&mut Found| {
                other.literals.iter().zip(&literals).all(|(a, b)| a.is_none() || b.is_none() || a == b)
            };
            if let Some(known) = found.iter_mut().find(goes_with) {
                for (known, literal) in known.literals.iter_mut().zip(literals) {
                    *known = known.take().or(literal);
                }
                known.parameter.slots.push(id);
                known.parameter.kept |= kept;
                continue;
            }
            if found.len() == MAX_PARAMETERS && !group.has_variants {
                return None;
            }
            let name = slot.hint.clone().unwrap_or_else(|| "size".to_owned());
            let kind = ParameterKind::of(some);
            let parameter = Parameter { name, slots: vec![id], kept, passed, kind, derived: None };
            found.push(Found { literals, parameter });
        }
        self.find_in_optional_parts(members, &mut found);
        self.name_parameters(first, &mut found);
        derive(&mut found);
        Some(found.into_iter().map(|found| found.parameter).collect())
    }

    /// What each module has for a literal of their code.
    fn literals(&self, members: &[ModuleId], slot: SlotId) -> Vec<Option<Literal>> {
        let literal = |&member: &ModuleId| self.modules[member].body.slots.get(slot)?.value.clone();
        members.iter().map(literal).collect()
    }

    /// Literals of optional parts, equal wherever the part is, that are those of a parameter of their kind.
    fn find_in_optional_parts(&self, members: &[ModuleId], found: &mut [Found]) {
        let kind =
            |hint: &str| if hint.starts_with("channels") { "channels".to_owned() } else { hint.to_owned() };
        for (id, slot) in members.iter().take(1).flat_map(|&first| self.modules[first].body.slots.enumerate())
        {
            let Some(hint) = slot.hint.as_deref().map(kind) else { continue };
            let known = found.iter().any(|found| found.parameter.slots.contains(&id));
            let literals = self.literals(members, id);
            if known || literals.iter().all(Option::is_some) {
                continue;
            }
            let matching = found.iter_mut().find(|found| {
                let alike = found.literals.iter().zip(&literals).all(|(a, b)| b.is_none() || a == b);
                kind(&found.parameter.name) == hint && alike
            });
            if let Some(found) = matching {
                found.parameter.slots.push(id);
            }
        }
    }

    /// Whether a literal differs between calls of one module, or there is no constructor that could take it.
    fn differs_by_call(&self, members: &[ModuleId], literals: &[Option<Literal>]) -> bool {
        let mut first: HashMap<&str, &Option<Literal>> = HashMap::new();
        members.iter().all(|&member| self.modules[member].fields.is_empty())
            || members.iter().zip(literals).any(|(&member, literal)| {
                *first.entry(self.tree.modules[member].path.as_str()).or_insert(literal) != literal
            })
    }

    /// Names apart: `channels` of two fields become `conv1_channels` and `conv2_channels`.
    fn name_parameters(&self, member: ModuleId, found: &mut [Found]) {
        if found.is_empty() {
            return;
        }
        let mut names = Names::with(["config", "device", "self"]);
        let data = &self.modules[member];
        let class_of = |child: ModuleId| self.tree.modules[child].class_name();
        let fields = field_names(&data.fields, &data.body.inits, &class_of, []);
        let numbers = numbers_of_items(data);
        self.name_channels(member, found);
        let wanted: Vec<String> = found.iter().map(|found| found.parameter.name.clone()).collect();
        for Found { parameter, .. } in found {
            let repeated = wanted.iter().filter(|name| **name == parameter.name).count() > 1;
            let slot = parameter.slots.first().copied();
            let field = slot.and_then(|slot| data.body.slots.get(slot)?.field);
            let wanted = match field {
                Some(field) if repeated && names.contains(&parameter.name) => {
                    let number = slot.and_then(|slot| numbers.get(&slot)).map(usize::to_string);
                    format!("{}{}_{}", fields[field], number.unwrap_or_default(), parameter.name)
                }
                _ => parameter.name.clone(),
            };
            // One that is a field itself has a name of its own in records.
            let is_key = parameter.kept && data.fields.iter().any(|field| field.key == wanted);
            let wanted = if is_key { format!("with_{wanted}") } else { wanted };
            parameter.name = names.fresh(&snake(&wanted, "size"));
        }
    }

    /// Of several numbers of channels, those of the last layer are the module's own, those of the first are in the middle.
    fn name_channels(&self, member: ModuleId, found: &mut [Found]) {
        let data = &self.modules[member];
        let field_of = |found: &Found| data.body.slots.get(*found.parameter.slots.first()?)?.field;
        let is_channels = |found: &&mut Found| found.parameter.name == "channels_out";
        let of_layers: Vec<_> = found
            .iter()
            .enumerate()
            .filter(|(_, found)| found.parameter.name == "channels_out")
            .filter_map(|(i, found)| Some((i, field_of(found)?)))
            .filter(|(_, field)| holds_layers(&data.fields[*field].content))
            .collect();
        let &[(first, _), .., (last, at)] = of_layers.as_slice() else { return };
        let after = data.fields.enumerate().filter(|(field, _)| *field > at);
        if after.into_iter().any(|(_, field)| matches!(field.content, Content::Module(_))) {
            return;
        }
        found[first].parameter.name = "channels_mid".to_owned();
        for &(between, at) in &of_layers[1..of_layers.len() - 1] {
            let key = plain_name(&data.fields[at].key);
            found[between].parameter.name = format!("{key}_channels_out");
        }
        // The last is renamed first, so that it keeps its name.
        for found in found.iter_mut().filter(is_channels) {
            let field = field_of(found).map(|field| &data.fields[field]);
            if let Some(Field { content: Content::Module(child), .. }) = field {
                let class = self.tree.modules[*child].class_name();
                found.parameter.name = format!("{}_channels", snake(class, "inner"));
            }
        }
        found[last].parameter.name = "channels_out".to_owned();
    }
}

/// The number of the item of a sequence that each literal belongs to.
fn numbers_of_items(data: &Draft) -> HashMap<SlotId, usize> {
    let sequences = data.body.inits.iter().filter_map(|init| match init {
        Init::Sequence(items) => Some(items),
        Init::Layer { .. } | Init::Parameter { .. } | Init::Module { .. } => None,
    });
    let of_item = |(n, item): (usize, &Init)| item.slots().into_iter().map(move |slot| (slot, n));
    sequences.flat_map(|items| items.iter().enumerate().flat_map(of_item)).collect()
}

/// Whether a field is a layer or a list of layers.
fn holds_layers(content: &Content) -> bool {
    match content {
        Content::Layer(_) => true,
        Content::Sequence(items) => items.first().is_some_and(holds_layers),
        Content::Parameter(_) | Content::Module(_) | Content::Absent => false,
    }
}

/// What follows from other parameters in all modules: a padding from a kernel, a flag from numbers of channels.
fn derive(found: &mut [Found]) {
    let number = |literal: &Option<Literal>| match literal {
        Some(Literal::Number(number)) => Some(*number),
        _ => None,
    };
    let flag = |literal: &Option<Literal>| match literal {
        Some(Literal::Flag(flag)) => Some(*flag),
        _ => None,
    };
    let numbers: Vec<Option<Vec<i64>>> =
        found.iter().map(|found| found.literals.iter().map(number).collect()).collect();
    for i in 0..found.len() {
        let named = |word: &str| {
            let given = |(found, numbers): (&Found, &'_ Option<Vec<i64>>)| {
                let parameter = &found.parameter;
                let numbers = numbers.clone().filter(|_| parameter.name.contains(word))?;
                parameter.is_given().then(|| (parameter.name.clone(), numbers))
            };
            found.iter().zip(&numbers).filter_map(given).collect::<Vec<_>>()
        };
        let parameter = &found[i].parameter;
        let derived = match numbers[i].as_ref().filter(|_| parameter.name.ends_with("padding")) {
            Some(paddings) => {
                let is_half = |(_, kernels): &(String, Vec<i64>)| {
                    paddings.iter().zip(kernels).all(|(padding, kernel)| *padding == kernel / 2)
                };
                named("kernel").into_iter().find(is_half).map(|(name, _)| Derived::Half(name))
            }
            None => {
                let flags: Option<Vec<bool>> = found[i].literals.iter().map(flag).collect();
                flags.and_then(|flags| comparison(&flags, &named("channels")))
            }
        };
        if !parameter.passed && (!parameter.kept || parameter.kind == ParameterKind::Flag) {
            found[i].parameter.derived = derived;
        }
    }
}

/// The comparison of two numbers that a flag is, in all modules.
fn comparison(flags: &[bool], numbers: &[(String, Vec<i64>)]) -> Option<Derived> {
    numbers.iter().enumerate().find_map(|(n, (a, left))| {
        numbers[n + 1..].iter().find_map(|(b, right)| {
            let equal: Vec<bool> = left.iter().zip(right).map(|(a, b)| a == b).collect();
            if equal == flags {
                return Some(Derived::Equal(a.clone(), b.clone()));
            }
            let differs = equal.iter().zip(flags).all(|(equal, flag)| equal != flag);
            differs.then(|| Derived::Differ(a.clone(), b.clone()))
        })
    })
}
