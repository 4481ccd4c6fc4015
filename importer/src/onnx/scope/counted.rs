//! Names of layers that tell of blocks by counting them: `block_1_expand`, `conv2_block1_1_conv`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Blocks inside each other.
const DEEPEST: usize = 3;
/// So many words of a name are looked at.
const MOST_WORDS: usize = 8;
/// Fewer layers are no block.
const FEWEST: usize = 3;

/// Paths of names that tell of blocks: `block_1/expand` for `block_1_expand`. A block has layers that another one of the same name
/// and another number has, too.
pub(super) fn blocks(names: &BTreeSet<&str>) -> HashMap<String, String> {
    let mut paths = HashMap::new();
    // What stands around, names there, and the same without the blocks around: all start as one.
    let mut levels: Vec<(String, Vec<(&str, &str)>)> =
        vec![(String::new(), names.iter().map(|name| (*name, *name)).collect())];
    for depth in 0..=DEEPEST {
        let mut inner = Vec::new();
        for (around, names) in levels {
            let found = if depth < DEEPEST { groups(&names) } else { BTreeMap::new() };
            let mut grouped = BTreeSet::new();
            for (block, members) in found {
                grouped.extend(members.iter().map(|(full, _)| *full));
                inner.push((format!("{around}{block}/"), members));
            }
            if around.is_empty() {
                continue;
            }
            let left = names.iter().filter(|(full, _)| !grouped.contains(full));
            paths.extend(
                left.map(|(full, name)| ((*full).to_owned(), format!("{around}{}", word_first(name)))),
            );
        }
        levels = inner;
    }
    paths
}

/// What blocks of the same name and another number are: `block` for `stage1/block2`.
pub(super) fn kind(path: &str) -> Option<&str> {
    stem(path.rsplit('/').next().unwrap_or(path))
}

/// The blocks that names tell of, with the names inside.
fn groups<'n>(names: &[(&'n str, &'n str)]) -> BTreeMap<&'n str, Vec<(&'n str, &'n str)>> {
    let mut members: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    let mut shared: HashMap<(&str, &str), usize> = HashMap::new();
    for &(full, name) in names {
        for (block, stem, rest) in parts(name) {
            members.entry(block).or_default().push((full, rest));
            *shared.entry((stem, rest)).or_insert(0) += 1;
        }
    }
    let is_block = |block: &str, members: &[(&str, &str)]| {
        let Some(stem) = stem(block) else { return false };
        let alike =
            members.iter().filter(|(_, rest)| shared.get(&(stem, *rest)).is_some_and(|&n| n > 1)).count();
        members.len() >= FEWEST && 2 * alike >= members.len()
    };
    members.retain(|block, members| is_block(block, members));
    // The outermost blocks; those inside come next.
    let outer: BTreeSet<&str> = members.keys().copied().collect();
    members.retain(|block, _| parts(block).all(|(around, ..)| !outer.contains(around)));
    members
}

/// Each way to see a name as a block, the block without its number, and the layer.
fn parts(name: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let ends = name.match_indices('_').take(MOST_WORDS);
    ends.filter_map(move |(at, _)| {
        Some((&name[..at], stem(&name[..at])?, name[at..].trim_start_matches('_')))
    })
    .filter(|(_, _, rest)| !rest.is_empty())
}

/// A block's name without its number: `block` for `block2` and `block_2a`.
fn stem(block: &str) -> Option<&str> {
    let number = block
        .strip_suffix(|last: char| last.is_ascii_lowercase())
        .filter(|rest| counted(rest))
        .unwrap_or(block);
    let stem = number.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
    (counted(number) && stem.starts_with(|c: char| c.is_ascii_alphabetic())).then_some(stem)
}

fn counted(name: &str) -> bool {
    name.ends_with(|c: char| c.is_ascii_digit())
}

/// `conv_1` for `1_conv`.
fn word_first(name: &str) -> String {
    match name.split_once('_') {
        Some((number, word)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{word}_{number}")
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[String]) -> Vec<String> {
        let found = blocks(&names.iter().map(String::as_str).collect());
        names.iter().map(|name| found.get(name).unwrap_or(name).clone()).collect()
    }

    #[test]
    fn blocks_that_have_the_same_layers_are_blocks() {
        let names = |block: &str| ["expand", "depthwise", "project"].map(|layer| format!("{block}{layer}"));
        let flat =
            [&["stem".to_owned()], &names("block_1_")[..], &names("block_2_"), &names("block3b_")].concat();
        let nested =
            [&["stem".to_owned()], &names("block_1/")[..], &names("block_2/"), &names("block3b/")].concat();
        assert_eq!(paths(&flat), nested);
    }

    #[test]
    fn blocks_lie_in_stages() {
        let layers = ["1_conv", "2_conv", "out"];
        let blocks = ["conv2_block1", "conv2_block2", "conv3_block1", "conv3_block2"];
        let flat: Vec<String> =
            blocks.iter().flat_map(|block| layers.map(|layer| format!("{block}_{layer}"))).collect();
        let found = paths(&flat);
        assert_eq!(
            found[..4],
            ["conv2/block1/conv_1", "conv2/block1/conv_2", "conv2/block1/out", "conv2/block2/conv_1"]
        );
        assert_eq!(found.last().map(String::as_str), Some("conv3/block2/out"));
    }

    #[test]
    fn numbers_alone_make_no_block() {
        for names in
            [["conv2d_1", "conv2d_2", "dense_1"], ["a_1_x", "a_1_y", "a_1_z"], ["a_1_x", "a_2_x", "a_3_x"]]
        {
            let names = names.map(str::to_owned);
            assert_eq!(paths(&names), names);
        }
    }
}
