//! Opcodes of lists, tuples, sets and dicts.

use super::super::value::{Node, Value};
use super::{Machine, Step};
use crate::{Result, WeightsError};

impl Machine<'_> {
    /// Lists, tuples, sets and dicts.
    pub(super) fn container(&mut self, opcode: u8) -> Result<Step> {
        let node = match opcode {
            b']' => Node::List(Vec::new()),
            b'}' => Node::Dict(Vec::new()),
            0x8f => Node::Set(Vec::new()),
            b')' => Node::Tuple(Box::default()),
            b'l' => Node::List(self.pop_to_mark()?),
            b't' => Node::Tuple(self.pop_to_mark()?.into()),
            0x91 => Node::Set(self.pop_to_mark()?),
            b'd' => {
                let items = self.pop_to_mark()?;
                Node::Dict(self.pairs(&items)?)
            }
            0x85..=0x87 => {
                let mut items = Vec::with_capacity(3);
                for _ in 0..=(opcode - 0x85) {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.arena.spend(items.len())?;
                Node::Tuple(items.into())
            }
            b'a' => {
                let item = self.pop()?;
                return self.extend_list(&[item]);
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                return self.extend_list(&items);
            }
            0x90 => {
                let items = self.pop_to_mark()?;
                return match self.top_node()? {
                    Node::Set(set) => {
                        set.extend_from_slice(&items);
                        Ok(Step::Done)
                    }
                    Node::Foreign(foreign) => {
                        foreign.given.extend_from_slice(&items);
                        Ok(Step::Done)
                    }
                    other => Err(WeightsError::pickle(format!("items are added to {}", other.kind()))),
                };
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                return self.extend_dict(&[key, value]);
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                return self.extend_dict(&items);
            }
            _ => return Ok(Step::Other),
        };
        Ok(Step::Push(self.arena.add(node)?))
    }

    fn extend_list(&mut self, items: &[Value]) -> Result<Step> {
        self.arena.spend(items.len())?;
        match self.top_node()? {
            Node::List(list) => list.extend_from_slice(items),
            Node::Foreign(foreign) => foreign.given.extend_from_slice(items),
            other => return Err(WeightsError::pickle(format!("items are appended to {}", other.kind()))),
        }
        Ok(Step::Done)
    }

    fn extend_dict(&mut self, items: &[Value]) -> Result<Step> {
        let pairs = self.pairs(items)?;
        match self.top_node()? {
            Node::Dict(dict) => dict.extend(pairs),
            Node::Foreign(foreign) => foreign.given.extend_from_slice(items),
            other => return Err(WeightsError::pickle(format!("keys are set in {}", other.kind()))),
        }
        Ok(Step::Done)
    }

    /// Keys and values in turn, as pairs.
    pub(in super::super) fn pairs(&mut self, items: &[Value]) -> Result<Vec<(Value, Value)>> {
        self.arena.spend(items.len())?;
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(WeightsError::pickle("a key has no value"));
        }
        let checked = |[key, value]: &[Value; 2]| match self.arena.node(*key) {
            Some(node @ (Node::List(_) | Node::Dict(_) | Node::Set(_))) => {
                Err(WeightsError::pickle(format!("{} is a dict's key", node.kind())))
            }
            _ => Ok((*key, *value)),
        };
        pairs.iter().map(checked).collect()
    }
}
