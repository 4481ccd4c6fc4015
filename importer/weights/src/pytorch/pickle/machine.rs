//! The opcodes.

use super::input::{Input, Integer, parse_float, parse_integer, read_integer, unescape, unquote, utf8};
use super::value::{Arena, Node, StorageSpecs, Value};
use super::{Dialect, Global, Pickled};
use crate::{Result, WeightsError, limits};
use std::collections::HashMap;

/// The newest protocol. Later ones may have opcodes that are not known here; those are errors when they come.
const NEWEST_PROTOCOL: u8 = 5;

/// Runs the pickle that begins at a position; also yields where it ends. Positions in errors count from the beginning
/// of `bytes`.
pub(crate) fn run(bytes: &[u8], start: usize, dialect: Dialect<'_>) -> Result<(Pickled, usize)> {
    let end = bytes.len().min(start.saturating_add(limits::MAX_PICKLE_BYTES));
    let input = Input::new(bytes.get(start..end).unwrap_or_default());
    let mut machine = Machine {
        input,
        stack: Vec::new(),
        marks: Vec::new(),
        // Only looked up, never walked, so its order is in no result.
        memo: HashMap::new(),
        arena: Arena::default(),
        storages: StorageSpecs::default(),
        dialect,
    };
    loop {
        let position = machine.input.position();
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => {
                let end = start + machine.input.position();
                return Ok((Pickled { arena: machine.arena, root, storages: machine.storages }, end));
            }
            Err(error) => {
                let error = error.at_position(start + position);
                return Err(match machine.pending_key() {
                    Some(key) => error.at_key(key),
                    None => error,
                });
            }
        }
    }
}

/// What an instruction did.
enum Step {
    /// Put a value on the stack.
    Push(Value),
    /// Nothing that is left to do.
    Done,
    /// It is of another family.
    Other,
}

/// The state of a pickle that runs.
pub(super) struct Machine<'a> {
    input: Input<'a>,
    stack: Vec<Value>,
    /// Where on the stack the open marks are.
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    pub(super) arena: Arena,
    pub(super) storages: StorageSpecs,
    pub(super) dialect: Dialect<'a>,
}

impl Machine<'_> {
    /// Runs one instruction; yields the result at the end.
    fn step(&mut self) -> Result<Option<Value>> {
        let opcode = self.input.byte()?;
        if opcode == b'.' {
            let root = self.pop()?;
            return if self.stack.is_empty() && self.marks.is_empty() {
                Ok(Some(root))
            } else {
                Err(WeightsError::pickle("it stops with values left over"))
            };
        }
        let mut step = self.number(opcode)?;
        for family in [Self::text, Self::container, Self::stack_and_memo, Self::object] {
            if !matches!(step, Step::Other) {
                break;
            }
            step = family(self, opcode)?;
        }
        match step {
            Step::Push(value) => self.push(value)?,
            Step::Done => {}
            Step::Other => return Err(WeightsError::pickle(format!("opcode {opcode:#04x} does not exist"))),
        }
        Ok(None)
    }

    /// Numbers and constants.
    fn number(&mut self, opcode: u8) -> Result<Step> {
        let integer = match opcode {
            b'N' => return Ok(Step::Push(Value::None)),
            0x88 => return Ok(Step::Push(Value::Bool(true))),
            0x89 => return Ok(Step::Push(Value::Bool(false))),
            b'K' => Integer::Small(self.input.byte()?.into()),
            b'M' => Integer::Small(u16::from_le_bytes(self.input.array()?).into()),
            b'J' => Integer::Small(i32::from_le_bytes(self.input.array()?).into()),
            b'I' => match self.input.text_line()? {
                "00" => return Ok(Step::Push(Value::Bool(false))),
                "01" => return Ok(Step::Push(Value::Bool(true))),
                line => parse_integer(line)?,
            },
            b'L' => parse_integer(self.input.text_line()?.trim_end_matches('L'))?,
            0x8a => read_integer(self.input.sized::<1>()?)?,
            0x8b => read_integer(self.input.signed_sized()?)?,
            b'G' => return Ok(Step::Push(Value::Float(f64::from_be_bytes(self.input.array()?)))),
            b'F' => return Ok(Step::Push(Value::Float(parse_float(self.input.text_line()?)?))),
            _ => return Ok(Step::Other),
        };
        Ok(Step::Push(match integer {
            Integer::Small(value) => Value::Int(value),
            Integer::Big(digits) => self.arena.add(Node::BigInt(digits.into()))?,
        }))
    }

    /// Texts and bytes.
    fn text(&mut self, opcode: u8) -> Result<Step> {
        let bytes = match opcode {
            b'X' | 0x8c | 0x8d => {
                let bytes = match opcode {
                    b'X' => self.input.sized::<4>()?,
                    0x8c => self.input.sized::<1>()?,
                    _ => self.input.sized::<8>()?,
                };
                let text = self.arena.add_text(utf8(bytes)?)?;
                return Ok(Step::Push(text));
            }
            b'V' => {
                let text = unescape(self.input.line()?)?;
                return Ok(Step::Push(self.arena.add_text(text)?));
            }
            b'B' => self.input.sized::<4>()?.to_vec(),
            b'C' => self.input.sized::<1>()?.to_vec(),
            0x8e | 0x96 => self.input.sized::<8>()?.to_vec(),
            // Strings of Python 2 are bytes that mostly mean text.
            b'S' | b'T' | b'U' => {
                let bytes = match opcode {
                    b'S' => unquote(self.input.line()?)?,
                    b'T' => self.input.signed_sized()?.to_vec(),
                    _ => self.input.sized::<1>()?.to_vec(),
                };
                let node = match String::from_utf8(bytes) {
                    Ok(text) => Node::Text(text.into()),
                    Err(error) => Node::Bytes(error.into_bytes().into()),
                };
                return Ok(Step::Push(self.arena.add(node)?));
            }
            _ => return Ok(Step::Other),
        };
        Ok(Step::Push(self.arena.add(Node::Bytes(bytes.into()))?))
    }

    /// Lists, tuples, sets and dicts.
    fn container(&mut self, opcode: u8) -> Result<Step> {
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
            other => return Err(WeightsError::pickle(format!("items are appended to {}", other.kind()))),
        }
        Ok(Step::Done)
    }

    fn extend_dict(&mut self, items: &[Value]) -> Result<Step> {
        let pairs = self.pairs(items)?;
        match self.top_node()? {
            Node::Dict(dict) => dict.extend(pairs),
            other => return Err(WeightsError::pickle(format!("keys are set in {}", other.kind()))),
        }
        Ok(Step::Done)
    }

    /// Keys and values in turn, as pairs.
    pub(super) fn pairs(&mut self, items: &[Value]) -> Result<Vec<(Value, Value)>> {
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

    /// The stack itself, the memo, and what only frames the pickle.
    fn stack_and_memo(&mut self, opcode: u8) -> Result<Step> {
        match opcode {
            b'(' => {
                if self.marks.len() >= limits::MAX_MARKS {
                    return Err(WeightsError::limit("the pickle nests too deeply", limits::MAX_MARKS));
                }
                self.marks.push(self.stack.len());
            }
            b'0' if self.marks.last() == Some(&self.stack.len()) => {
                self.marks.pop();
            }
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                self.pop_to_mark()?;
            }
            b'2' => return Ok(Step::Push(self.top()?)),
            b'p' => {
                let index = self.memo_index()?;
                self.memorize(index)?;
            }
            b'q' => {
                let index = self.input.byte()?.into();
                self.memorize(index)?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.input.array()?);
                self.memorize(index)?;
            }
            0x94 => self.memorize(self.memo.len() as u32)?,
            b'g' => {
                let index = self.memo_index()?;
                return self.recall(index);
            }
            b'h' => {
                let index = self.input.byte()?.into();
                return self.recall(index);
            }
            b'j' => {
                let index = u32::from_le_bytes(self.input.array()?);
                return self.recall(index);
            }
            0x80 => {
                let protocol = self.input.byte()?;
                if protocol > NEWEST_PROTOCOL {
                    return Err(WeightsError::pickle(format!("protocol {protocol} is not known")));
                }
            }
            0x95 => {
                let size = self.input.size::<8>()?;
                self.input.expect(size)?;
            }
            _ => return Ok(Step::Other),
        }
        Ok(Step::Done)
    }

    fn memo_index(&mut self) -> Result<u32> {
        let text = self.input.text_line()?;
        text.trim().parse().map_err(|_| WeightsError::pickle("a memo's index is no 32-bit number"))
    }

    fn memorize(&mut self, index: u32) -> Result<()> {
        let value = self.top()?;
        self.arena.spend(1)?;
        self.memo.insert(index, value);
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Result<Step> {
        let value = self.memo.get(&index).copied();
        value.map(Step::Push).ok_or_else(|| WeightsError::pickle(format!("memo {index} is empty")))
    }

    /// Globals, calls, objects and persistent ids.
    fn object(&mut self, opcode: u8) -> Result<Step> {
        let (callable, arguments) = match opcode {
            b'c' => {
                let (module, name) = (self.input.text_line()?, self.input.text_line()?);
                return Ok(Step::Push(Value::Global(Global::find(module, name, self.dialect)?)));
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                return match (self.arena.text(module), self.arena.text(name)) {
                    (Some(module), Some(name)) => {
                        Ok(Step::Push(Value::Global(Global::find(module, name, self.dialect)?)))
                    }
                    _ => Err(WeightsError::pickle("a global's name is no text")),
                };
            }
            b'i' => {
                let (module, name) = (self.input.text_line()?, self.input.text_line()?);
                (Value::Global(Global::find(module, name, self.dialect)?), self.pop_to_mark()?)
            }
            b'o' => {
                let mut items = self.pop_to_mark()?.into_iter();
                let class = items.next().ok_or_else(|| WeightsError::pickle("an object has no class"))?;
                (class, items.collect())
            }
            b'R' | 0x81 => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                (callable, self.arguments(arguments)?)
            }
            0x92 => {
                let (keywords, arguments, callable) = (self.pop()?, self.pop()?, self.pop()?);
                if !matches!(self.arena.node(keywords), Some(Node::Dict(pairs)) if pairs.is_empty()) {
                    return Err(WeightsError::pickle("an object is made with keywords"));
                }
                (callable, self.arguments(arguments)?)
            }
            b'b' => {
                let state = self.pop()?;
                self.set_state(state)?;
                return Ok(Step::Done);
            }
            b'P' => {
                let id = self.input.text_line()?;
                let id = self.arena.add_text(id)?;
                return Ok(Step::Push(self.load_persistent(id)?));
            }
            b'Q' => {
                let id = self.pop()?;
                return Ok(Step::Push(self.load_persistent(id)?));
            }
            0x82..=0x84 => {
                return Err(WeightsError::pickle("it uses an extension code, which names code to run"));
            }
            0x97 | 0x98 => return Err(WeightsError::pickle("it refers to a buffer outside of the pickle")),
            _ => return Ok(Step::Other),
        };
        Ok(Step::Push(self.call(callable, &arguments)?))
    }

    fn arguments(&self, arguments: Value) -> Result<Vec<Value>> {
        let items = self.arena.tuple(arguments);
        let fail = || WeightsError::pickle(format!("a call's arguments are {}", self.arena.kind(arguments)));
        items.map(<[_]>::to_vec).ok_or_else(fail)
    }

    /// Gives the value on the stack its state: a script module its attributes. Attributes of dicts and tensors are
    /// nothing that a checkpoint needs.
    fn set_state(&mut self, state: Value) -> Result<()> {
        let pairs = match self.arena.node(state) {
            Some(Node::Dict(pairs)) => Some(pairs.clone()),
            _ => None,
        };
        let cost = pairs.as_ref().map_or(0, |pairs| 2 * pairs.len());
        self.arena.spend(cost)?;
        match (self.top_node()?, pairs) {
            (Node::Object(attributes), Some(pairs)) => attributes.extend(pairs),
            (Node::Object(_), None) => {
                return Err(WeightsError::pickle("a script module packs its state in a way of its own"));
            }
            (Node::Dict(_) | Node::Set(_) | Node::Tensor(_) | Node::Refused(_), _) => {}
            (other, _) => return Err(WeightsError::pickle(format!("{} is given a state", other.kind()))),
        }
        Ok(())
    }

    fn push(&mut self, value: Value) -> Result<()> {
        if self.stack.len() >= limits::MAX_STACK {
            return Err(WeightsError::limit("the pickle's stack grows too high", limits::MAX_STACK));
        }
        self.stack.push(value);
        Ok(())
    }

    /// The lowest place that may be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value> {
        let value = if self.stack.len() > self.floor() { self.stack.pop() } else { None };
        value.ok_or_else(|| WeightsError::pickle("a value is missing from the stack"))
    }

    fn top(&self) -> Result<Value> {
        let value = if self.stack.len() > self.floor() { self.stack.last() } else { None };
        value.copied().ok_or_else(|| WeightsError::pickle("a value is missing from the stack"))
    }

    fn top_node(&mut self) -> Result<&mut Node> {
        let top = self.top()?;
        let kind = self.arena.kind(top);
        self.arena.node_mut(top).ok_or_else(|| WeightsError::pickle(format!("{kind} is no container")))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>> {
        let mark =
            self.marks.pop().ok_or_else(|| WeightsError::pickle("a mark is missing from the stack"))?;
        let items = self.stack.split_off(mark.min(self.stack.len()));
        self.arena.spend(items.len())?;
        Ok(items)
    }

    /// The path of the dict entry that was being read, for messages.
    fn pending_key(&self) -> Option<String> {
        let mut path: Vec<&str> = Vec::new();
        for (place, value) in self.stack.iter().enumerate() {
            if !matches!(self.arena.node(*value), Some(Node::Dict(_))) {
                continue;
            }
            // Entries follow the dict, after a mark if there are many, up to the next mark.
            let first = place + 1;
            let end = self.marks.iter().find(|mark| **mark > first).copied().unwrap_or(self.stack.len());
            let entries = self.stack.get(first..end).unwrap_or_default();
            let key = entries.len().checked_sub(1).and_then(|last| entries.get(last / 2 * 2));
            path.extend(key.and_then(|key| self.arena.text(*key)));
        }
        let known = !path.is_empty();
        known.then(|| path.join(".").chars().take(200).collect())
    }
}
