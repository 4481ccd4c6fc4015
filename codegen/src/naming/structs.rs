//! Names of structs and functions, and of the types of results.

use crate::code::{Code, Init, Literal};
use crate::ids::{Arena, StructId};
use crate::names::{Names, TypeNames, pascal, snake};
use crate::spelling::imported_name;
use crate::structs::Program;
use crate::tree::{Content, is_container_class};
use kiln_importer::ir::Name;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Tuples of more tensors get a name.
const MAX_RESULTS: usize = 3;
/// So do those of more in the model's own functions: they stand in a `Result` there, which clippy takes for complex sooner.
const MAX_MODEL_RESULTS: usize = 2;
/// The same of tensors that are not floats, whose types say so.
const MAX_MODEL_KINDS: usize = 1;

/// The names of a model's structs.
pub struct StructNames {
    /// Of each struct or function; empty for those that nothing calls.
    pub names: Arena<StructId, String>,
    /// Of the types of results that need one.
    pub results: BTreeMap<StructId, String>,
}

/// Decides the name of every struct in `used`, parents first; a function that reads the device has a twin, whose name goes with its own.
pub fn name_structs(
    program: &Program<'_>,
    used: &BTreeSet<StructId>,
    reads: &Arena<StructId, bool>,
    model: &str,
) -> StructNames {
    let mut types = TypeNames::default();
    let mut functions = Names::with(["core", "forward", "std"]);
    // What a function takes hides functions of that name from its body.
    let parameters = used.iter().flat_map(|&id| &program.structs[id].parameters);
    for name in parameters.map(|parameter| &parameter.name).collect::<BTreeSet<_>>() {
        functions.fresh(name);
    }
    let paths = mentioned_paths(program);
    for name in paths.iter().filter_map(|path| imported_name(path)).collect::<BTreeSet<&str>>() {
        types.fresh_alone(name);
        functions.fresh(name);
    }
    let structs = &program.structs;
    let mut names: Arena<StructId, String> = structs.iter().map(|_| String::new()).collect();
    names[program.root] = types.fresh(&pascal(model, "Model"));
    // Of structs that want one name, that of most modules gets it as it is.
    let mut order: Vec<StructId> = used.iter().rev().copied().filter(|&id| id != program.root).collect();
    order.sort_by_key(|&id| std::cmp::Reverse(structs[id].members.len()));
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for id in order {
        names[id] = if structs[id].is_function {
            let wanted = snake(&wanted(program, id), "step");
            if reads[id] { functions.fresh_with_twin(&wanted) } else { functions.fresh(&wanted) }
        } else {
            let wanted = pascal(&wanted(program, id), "Module");
            // The model's part that is called like the model.
            let wanted = if wanted == names[program.root] { format!("Inner{wanted}") } else { wanted };
            let name = match families.get_mut(&wanted) {
                None => {
                    families.insert(wanted.clone(), Family::new(program, id));
                    wanted
                }
                Some(family) => family.told_apart(program, id, &wanted),
            };
            types.fresh(&name)
        };
    }
    let mut results = BTreeMap::new();
    for &id in used.iter().rev() {
        let outputs = &structs[id].outputs;
        let kinds = outputs.iter().filter(|ty| !ty.dtype.is_float()).count();
        let is_long = match id == program.root {
            true => outputs.len() > MAX_MODEL_RESULTS || kinds > MAX_MODEL_KINDS,
            false => outputs.len() > MAX_RESULTS,
        };
        if is_long {
            results.insert(id, types.fresh_alone(&format!("{}Output", pascal(&names[id], "Module"))));
        }
    }
    StructNames { names, results }
}

/// Every path that the code mentions.
fn mentioned_paths(program: &Program<'_>) -> BTreeSet<Name> {
    let mut paths: BTreeSet<Name> = BTreeSet::new();
    for structure in program.structs.iter() {
        let body = &structure.body;
        let mut collect = |code: &Code| {
            code.visit(&mut |code| {
                if let Code::Call(path, _) | Code::Path(path) | Code::Struct(path, _) = code {
                    paths.insert(path.clone());
                }
            });
        };
        for init in body.inits.iter() {
            for item in init.items() {
                if let Init::Layer { config, .. } = item {
                    collect(config);
                }
            }
        }
        body.block.codes().into_iter().for_each(&mut collect);
        // Where modules differ in a choice, its type stands in the place.
        for slot in body.slots.iter() {
            if let Some(Literal::Choice(_, code)) = &slot.value {
                collect(code);
            }
        }
        for init in body.inits.iter() {
            for item in init.items() {
                if let Init::Layer { ty, .. } = item {
                    paths.insert((*ty).into());
                }
            }
        }
    }
    paths
}

/// What a struct would be called if nothing else were.
fn wanted(program: &Program<'_>, id: StructId) -> String {
    let members = &program.structs[id].members;
    let Some(data) = members.first().map(|&first| &program.tree.modules[first]) else { return String::new() };
    if !is_container_class(data.class_name()) {
        return data.class_name().to_owned();
    }
    let mut words = data.path.rsplit('.');
    let word = words.find(|word| word.chars().any(|c| c.is_ascii_alphabetic())).unwrap_or("Block");
    let stem = word.trim_end_matches(|c: char| c.is_ascii_digit());
    // One of a list: `blocks.3` is a block.
    let listed = data.path.ends_with(|c: char| c.is_ascii_digit()) && !data.path.ends_with(word);
    let stem = match stem.strip_suffix('s') {
        Some(single) if listed && single.len() > 2 && !single.ends_with('s') => single,
        _ => stem,
    };
    match members.len() {
        1 => word.to_owned(),
        _ if stem.len() < 3 => "Block".to_owned(),
        _ => stem.to_owned(),
    }
}

/// Structs that want one name.
struct Family {
    /// The words of the first one's fields, in order, and the number of layers, parameters and modules in them.
    first: Vec<String>,
    parts: usize,
    /// The words of all of them.
    words: HashSet<String>,
}

impl Family {
    fn new(program: &Program<'_>, id: StructId) -> Self {
        let first = words_of(program, id);
        let words = first.iter().cloned().collect();
        Self { first, parts: parts_of(program, id), words }
    }

    /// A name that says how a struct differs from the others: `BlockDownsample`, `BlockWithoutExcitation`, `ShortBlock`.
    fn told_apart(&mut self, program: &Program<'_>, id: StructId, wanted: &str) -> String {
        let own = words_of(program, id);
        let word = |word: &str| pascal(word.trim_end_matches(|c: char| c.is_ascii_digit()), "");
        let name = if let Some(extra) = own.iter().find(|word| !self.words.contains(*word)) {
            format!("{wanted}{}", word(extra))
        } else if let Some(lacking) = self.first.iter().find(|word| !own.contains(word)) {
            format!("{wanted}Without{}", word(lacking))
        } else {
            match parts_of(program, id).cmp(&self.parts) {
                std::cmp::Ordering::Less => format!("Short{wanted}"),
                std::cmp::Ordering::Greater => format!("Long{wanted}"),
                std::cmp::Ordering::Equal => wanted.to_owned(),
            }
        };
        self.words.extend(own);
        name
    }
}

/// The number of layers, parameters and modules in the fields of a struct.
fn parts_of(program: &Program<'_>, id: StructId) -> usize {
    program.structs[id].body.inits.iter().map(|init| init.items().len()).sum()
}

/// The words that say what a struct has: classes of its children, parts of its fields' keys.
fn words_of(program: &Program<'_>, id: StructId) -> Vec<String> {
    let Some(&first) = program.structs[id].members.first() else { return Vec::new() };
    let fields = &program.modules[first].fields;
    let classes = fields.iter().filter_map(|field| match field.content {
        Content::Module(child) => Some(program.tree.modules[child].class_name()),
        _ => None,
    });
    let words = classes.chain(fields.iter().flat_map(|field| field.key.split('.')));
    let is_word = |word: &&str| word.len() > 2 && word.chars().any(|c| c.is_ascii_alphabetic());
    words.filter(is_word).map(str::to_owned).collect()
}
