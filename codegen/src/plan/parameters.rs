//! What constructors take: the literals in which modules of one struct differ.

use super::share::plain_name;
use super::{Content, Derived, Field, ParameterKind, Plan, StructParameter};
use crate::code::Literal;
use std::collections::BTreeMap;

/// The literals that differ between modules of one form, equal ones as one parameter.
pub(super) fn parameters(plan: &Plan<'_>, members: &[usize]) -> Vec<StructParameter> {
    let Some(&first) = members.first() else { return Vec::new() };
    let mut found: Vec<(Vec<Option<Literal>>, StructParameter)> = Vec::new();
    for (i, slot) in plan.modules[first].body.slots.iter().enumerate() {
        let literal = |&member: &usize| plan.modules[member].body.slots.get(i)?.value.clone();
        let literals: Vec<Option<Literal>> = members.iter().map(literal).collect();
        let Some(some) = literals.iter().flatten().next() else { continue };
        if literals.iter().flatten().all(|literal| literal == some) {
            continue;
        }
        let passed = differs_by_call(plan, members, &literals);
        let kept = slot.field.is_none() && !passed;
        // What a module has no use for goes with any literal.
        let goes_with = |(other, _): &&mut (Vec<Option<Literal>>, StructParameter)| {
            other.iter().zip(&literals).all(|(a, b)| a.is_none() || b.is_none() || a == b)
        };
        match found.iter_mut().find(goes_with) {
            Some((known, parameter)) => {
                for (known, literal) in known.iter_mut().zip(literals) {
                    *known = known.take().or(literal);
                }
                parameter.slots.push(i);
                parameter.kept |= kept;
            }
            None => {
                let name = slot.hint.clone().unwrap_or_else(|| "size".to_owned());
                let kind = ParameterKind::of(some);
                found.push((
                    literals,
                    StructParameter { name, slots: vec![i], kept, passed, kind, derived: None },
                ));
            }
        }
    }
    find_in_optional_parts(plan, members, &mut found);
    let parameters = name_parameters(plan, first, found.iter().map(|(_, known)| known.clone()).collect());
    derive(&found.into_iter().map(|(literals, _)| literals).collect::<Vec<_>>(), parameters)
}

/// Literals of optional parts, equal wherever the part is, that are those of a parameter of their kind.
fn find_in_optional_parts(
    plan: &Plan<'_>,
    members: &[usize],
    found: &mut [(Vec<Option<Literal>>, StructParameter)],
) {
    let slots = &plan.modules[members[0]].body.slots;
    let kind =
        |hint: &str| if hint.starts_with("channels") { "channels".to_owned() } else { hint.to_owned() };
    for (i, slot) in slots.iter().enumerate() {
        let literal = |&member: &usize| plan.modules[member].body.slots.get(i)?.value.clone();
        let literals: Vec<Option<Literal>> = members.iter().map(literal).collect();
        let known = found.iter().any(|(_, parameter)| parameter.slots.contains(&i));
        if known || literals.iter().all(Option::is_some) {
            continue;
        }
        let Some(hint) = slot.hint.as_deref().map(kind) else { continue };
        let matching = found.iter_mut().find(|(numbers, parameter)| {
            let alike = numbers.iter().zip(&literals).all(|(a, b)| b.is_none() || a == b);
            kind(&parameter.name) == hint && alike
        });
        if let Some((_, parameter)) = matching {
            parameter.slots.push(i);
        }
    }
}

/// What follows from other parameters in all modules: a padding from a kernel, a flag from numbers of channels.
fn derive(literals: &[Vec<Option<Literal>>], mut parameters: Vec<StructParameter>) -> Vec<StructParameter> {
    let number = |literal: &Option<Literal>| match literal {
        Some(Literal::Number(number)) => Some(*number),
        _ => None,
    };
    let numbers: Vec<Option<Vec<i64>>> =
        literals.iter().map(|literals| literals.iter().map(number).collect()).collect();
    let flags = |literals: &[Option<Literal>]| -> Option<Vec<bool>> {
        let flag = |literal: &Option<Literal>| match literal {
            Some(Literal::Flag(flag)) => Some(*flag),
            _ => None,
        };
        literals.iter().map(flag).collect()
    };
    for i in 0..parameters.len() {
        let named = |ending: &str| {
            let plain = |(n, parameter): (usize, &StructParameter)| {
                let numbers = numbers[n].as_ref().filter(|_| parameter.name.contains(ending))?;
                parameter.is_given().then_some((parameter.name.clone(), numbers))
            };
            parameters.iter().enumerate().filter_map(plain).collect::<Vec<_>>()
        };
        let derived = if let Some(own) =
            numbers[i].as_ref().filter(|_| parameters[i].name.ends_with("padding"))
        {
            let half = |(_, kernel): &(String, &Vec<i64>)| own.iter().zip(*kernel).all(|(p, k)| *p == k / 2);
            named("kernel").into_iter().find(half).map(|(name, _)| Derived::Half(name))
        } else {
            flags(&literals[i]).and_then(|own| comparison(&own, &named("channels")))
        };
        if !parameters[i].passed && (!parameters[i].kept || parameters[i].kind == ParameterKind::Flag) {
            parameters[i].derived = derived;
        }
    }
    parameters
}

/// The comparison of two numbers that a flag is, in all modules.
fn comparison(flags: &[bool], numbers: &[(String, &Vec<i64>)]) -> Option<Derived> {
    numbers.iter().enumerate().find_map(|(n, (a, left))| {
        numbers[n + 1..].iter().find_map(|(b, right)| {
            let equal: Vec<bool> = left.iter().zip(*right).map(|(a, b)| a == b).collect();
            if equal == flags {
                return Some(Derived::Equal(a.clone(), b.clone()));
            }
            let differs = equal.iter().zip(flags).all(|(equal, flag)| equal != flag);
            differs.then(|| Derived::Differ(a.clone(), b.clone()))
        })
    })
}

/// Whether a literal differs between calls of one module, or there is no constructor that could take it.
fn differs_by_call(plan: &Plan<'_>, members: &[usize], literals: &[Option<Literal>]) -> bool {
    let path = |member: usize| plan.modules[member].path.as_str();
    let function = members.iter().all(|&member| plan.modules[member].fields.is_empty());
    let mut first: BTreeMap<&str, &Option<Literal>> = BTreeMap::new();
    function
        || members
            .iter()
            .zip(literals)
            .any(|(&member, literal)| *first.entry(path(member)).or_insert(literal) != literal)
}

/// Names apart: `channels` of two fields become `conv1_channels` and `conv2_channels`.
fn name_parameters(
    plan: &Plan<'_>,
    member: usize,
    mut parameters: Vec<StructParameter>,
) -> Vec<StructParameter> {
    let mut names = crate::names::Names::with(["config", "device", "self"]);
    let data = &plan.modules[member];
    let fields = super::field_names(plan, member, &[]);
    let field_name = |key: &str| {
        let at = data.fields.iter().position(|field| field.key == key);
        at.map_or_else(|| key.to_owned(), |at| fields[at].clone())
    };
    name_channels(plan, member, &mut parameters);
    let wanted: Vec<String> = parameters.iter().map(|parameter| parameter.name.clone()).collect();
    for parameter in &mut parameters {
        let repeated = wanted.iter().filter(|name| **name == parameter.name).count() > 1;
        let field =
            parameter.slots.first().and_then(|&slot| plan.modules[member].body.slots[slot].field.clone());
        let wanted = match field {
            Some(key) if repeated && names.contains(&parameter.name) => {
                format!("{}_{}", field_name(&key), parameter.name)
            }
            _ => parameter.name.clone(),
        };
        parameter.name = names.fresh(&crate::names::snake(&wanted, "size"));
    }
    parameters
}

/// Of several numbers of channels, those of the last layer are the module's own, those of the first are in the middle.
fn name_channels(plan: &Plan<'_>, member: usize, parameters: &mut [StructParameter]) {
    let data = &plan.modules[member];
    let of_layer = |parameter: &StructParameter| {
        let key = data.body.slots.get(*parameter.slots.first()?)?.field.as_ref()?;
        let at = data.fields.iter().position(|field| field.key == *key)?;
        matches!(data.fields[at].content, Content::Layer(_)).then_some(at)
    };
    let found: Vec<(usize, usize)> = parameters
        .iter()
        .enumerate()
        .filter(|(_, parameter)| parameter.name == "channels_out")
        .filter_map(|(i, parameter)| Some((i, of_layer(parameter)?)))
        .collect();
    if let &[(first, _), .., (last, at)] = found.as_slice()
        && data.fields.iter().skip(at + 1).all(|field| !matches!(field.content, Content::Module(_)))
    {
        parameters[first].name = "channels_mid".to_owned();
        for &(between, at) in &found[1..found.len() - 1] {
            let key = plain_name(&data.fields[at].key);
            parameters[between].name = format!("{key}_channels_out");
        }
        // The last is told first, so that it keeps its name.
        for parameter in parameters.iter_mut().filter(|parameter| parameter.name == "channels_out") {
            let key = parameter.slots.first().and_then(|&slot| data.body.slots[slot].field.clone());
            let of_child = key.and_then(|key| data.fields.iter().find(|field| field.key == key));
            if let Some(Field { content: Content::Module(child), .. }) = of_child {
                let class = plan.modules[*child].class.rsplit('.').next().unwrap_or_default();
                parameter.name = format!("{}_channels", crate::names::snake(class, "inner"));
            }
        }
        parameters[last].name = "channels_out".to_owned();
    }
}
