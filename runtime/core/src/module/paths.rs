//! Paths of parameters, and patterns that select some of them.

use alloc::string::String;
use alloc::{borrow::ToOwned, format, vec::Vec};
use kiln_types::in_pytorch;

/// A step on the way to a parameter.
#[derive(Clone, Debug)]
struct Frame {
    /// The type that the field belongs to: `Linear`, `Vec`.
    container: String,
    name: String,
}

/// Where a visitor or mapper is.
#[derive(Clone, Debug, Default)]
pub struct Place {
    frames: Vec<Option<Frame>>,
}

impl Place {
    /// Goes into a field of a container.
    pub fn enter(&mut self, name: &str, container: &str) {
        // An enum's variant is no part of a path: the module could as well be there without the enum.
        self.frames.push((!container.starts_with("Enum:")).then(|| Frame {
            container: container.strip_prefix("Struct:").unwrap_or(container).to_owned(),
            name: name.to_owned(),
        }));
    }

    /// Goes back.
    pub fn exit(&mut self) {
        self.frames.pop();
    }

    /// How many fields lead here.
    pub fn depth(&self) -> usize {
        self.frames.iter().flatten().count()
    }

    /// The name of the field, and the type that has it.
    pub fn field(&self) -> Option<(&str, &str)> {
        let frame = self.frames.iter().flatten().next_back()?;
        Some((&frame.container, &frame.name))
    }

    /// The names of all fields on the way.
    pub fn path(&self) -> String {
        join(self.names())
    }

    /// The path to the module that holds the field.
    pub fn above(&self) -> String {
        join(self.names().take(self.depth().saturating_sub(1)))
    }

    /// The path from the field at a depth on.
    pub fn below(&self, depth: usize) -> String {
        join(self.names().skip(depth))
    }

    /// The path up to the field at a depth, without it.
    pub fn before(&self, depth: usize) -> String {
        join(self.names().take(depth.saturating_sub(1)))
    }

    /// The path as PyTorch has it: a layer's parameter by the name that it has there.
    pub fn key(&self) -> String {
        let Some((container, name)) = self.field() else { return String::new() };
        let (name, _) = in_pytorch(container, name);
        let above = self.above();
        if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.frames.iter().flatten().map(|frame| frame.name.as_str())
    }
}

fn join<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(".")
}

/// Whether a pattern fits a path, or a module on the way.
pub fn selects(pattern: &str, path: &str) -> bool {
    let modules = path.match_indices('.').filter_map(|(at, _)| path.get(..at));
    core::iter::once(path).chain(modules).any(|part| fits(pattern.as_bytes(), part.as_bytes()))
}

/// Whether a pattern with `*` and `?` fits a text as a whole.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last star is, and up to where it has taken text: only the last one ever has to take more.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&byte) = text.get(t) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == byte => {
                p += 1;
                t += 1;
            }
            _ => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, t) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|&rest| rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_paths_and_what_is_in_modules() {
        let fit = [
            ("layer1.*", "layer1.0.conv1.weight"),
            ("layer1", "layer1.0.conv1.weight"),
            ("*.attn.*", "h.0.attn.c_attn.weight"),
            ("*", "fc.bias"),
            ("fc.bias", "fc.bias"),
            ("*.b?as", "fc.bias"),
            ("h.*.ln_?.weight", "h.11.ln_2.weight"),
            ("*.0.*.weight", "a.0.b.0.c.weight"),
        ];
        for (pattern, path) in fit {
            assert!(selects(pattern, path), "{pattern} {path}");
        }
        let miss = [
            ("layer1", "layer10.weight"),
            ("layer1.*", "layer10.weight"),
            ("*.attn.*", "attn.weight"),
            ("fc", "head.fc.bias"),
            ("*.bias", "fc.weight"),
            ("", "fc.weight"),
            ("fc.bias.*", "fc.bias"),
        ];
        for (pattern, path) in miss {
            assert!(!selects(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn a_long_pattern_takes_no_exponential_time() {
        let pattern = "*a".repeat(200);
        assert!(!fits(pattern.as_bytes(), "b".repeat(20_000).as_bytes()));
    }

    #[test]
    fn a_layers_parameter_has_pytorchs_name_too() {
        let mut place = Place::default();
        for (name, container) in [("bn", "Struct:Model"), ("Norm", "Enum:Any"), ("gamma", "Struct:BatchNorm")]
        {
            place.enter(name, container);
        }
        assert_eq!((place.path().as_str(), place.key().as_str()), ("bn.gamma", "bn.weight"));
        place.exit();
        assert_eq!((place.path().as_str(), place.depth()), ("bn", 1));
    }
}
