//! The opcodes. Those that build containers, and those that work on the stack, have files of their own.

mod container;
mod stack;

use super::globals::Named;
use super::input::{Input, Integer, parse_float, parse_integer, read_integer, unescape, unquote, utf8};
use super::memo::Memo;
use super::value::{Arena, Foreign, Node, StorageSpecs, Value};
use super::{Dialect, Pickled};
use crate::{Result, WeightsError, limits};

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
        memo: Memo::default(),
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
    memo: Memo,
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
            Integer::Big(digits) => {
                // To print it took time that grows with the square; about as long as that many values take.
                self.arena.spend(digits.len() * digits.len() / 3000)?;
                self.arena.add(Node::BigInt(digits.into()))?
            }
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

    /// Globals, calls, objects and persistent ids.
    fn object(&mut self, opcode: u8) -> Result<Step> {
        let (callable, arguments) = match opcode {
            b'c' => {
                let (module, name) = (self.input.text_line()?, self.input.text_line()?);
                return Ok(Step::Push(self.named(Named::find(module, name, self.dialect)?)?));
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let found = match (self.arena.text(module), self.arena.text(name)) {
                    (Some(module), Some(name)) => Named::find(module, name, self.dialect)?,
                    _ => return Err(WeightsError::pickle("a global's name is no text")),
                };
                return Ok(Step::Push(self.named(found)?));
            }
            b'i' => {
                let (module, name) = (self.input.text_line()?, self.input.text_line()?);
                (self.named(Named::find(module, name, self.dialect)?)?, self.pop_to_mark()?)
            }
            b'o' => {
                let mut items = self.pop_to_mark()?.into_iter();
                let class = items.next().ok_or_else(|| WeightsError::pickle("an object has no class"))?;
                (class, items.collect())
            }
            b'R' => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                (callable, self.arguments(arguments)?)
            }
            0x81 => {
                let (arguments, class) = (self.pop()?, self.pop()?);
                let arguments = self.arguments(arguments)?;
                return Ok(Step::Push(self.object_of(class, arguments)?));
            }
            0x92 => {
                let (keywords, arguments, class) = (self.pop()?, self.pop()?, self.pop()?);
                let mut arguments = self.arguments(arguments)?;
                if !matches!(self.arena.node(keywords), Some(Node::Dict(pairs)) if pairs.is_empty()) {
                    if self.arena.foreign(class).is_none() {
                        return Err(WeightsError::pickle("an object is made with keywords"));
                    }
                    arguments.push(keywords);
                }
                return Ok(Step::Push(self.object_of(class, arguments)?));
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

    /// What was named, as a value.
    fn named(&mut self, named: Named) -> Result<Value> {
        match named {
            Named::Known(global) => Ok(Value::Global(global)),
            Named::Foreign(name) => {
                self.arena.add(Node::Foreign(Box::new(Foreign { name, given: Vec::new() })))
            }
        }
    }

    /// An object of a class. Of one that is not known it is noted what it was given: nothing is run to make it, as a call would be.
    fn object_of(&mut self, class: Value, given: Vec<Value>) -> Result<Value> {
        match self.arena.foreign(class) {
            Some(foreign) => {
                let name = foreign.name.clone();
                self.arena.add(Node::Foreign(Box::new(Foreign { name, given })))
            }
            None => self.call(class, &given),
        }
    }

    /// The arguments of a call. They are copied, and counted each time: many calls may share them.
    fn arguments(&mut self, arguments: Value) -> Result<Vec<Value>> {
        let items = self.arena.tuple(arguments);
        let fail = || WeightsError::pickle(format!("a call's arguments are {}", self.arena.kind(arguments)));
        let items = items.ok_or_else(fail)?.to_vec();
        self.arena.spend(items.len())?;
        Ok(items)
    }

    /// Gives the value on the stack its state: a script module or a namespace its attributes, an array of NumPy's its
    /// contents. Attributes of dicts and tensors are nothing that a checkpoint needs.
    fn set_state(&mut self, state: Value) -> Result<()> {
        let pairs = match self.arena.node(state) {
            Some(Node::Dict(pairs)) => Some(pairs.clone()),
            _ => None,
        };
        let cost = pairs.as_ref().map_or(0, |pairs| 2 * pairs.len());
        self.arena.spend(cost)?;
        self.arena.spend(1)?;
        if let Node::Foreign(foreign) = self.top_node()? {
            foreign.given.push(state);
            return Ok(());
        }
        let built = match self.top_node()? {
            Node::Array(_) => Some(self.array_state(state)?),
            Node::ArrayType(kind) => {
                let kind = *kind;
                Some(Node::ArrayType(self.array_type_state(kind, state)?))
            }
            _ => None,
        };
        if let Some(built) = built {
            *self.top_node()? = built;
            return Ok(());
        }
        match (self.top_node()?, pairs) {
            (Node::Object(attributes) | Node::Namespace(attributes), Some(pairs)) => attributes.extend(pairs),
            (Node::Object(_), None) => {
                return Err(WeightsError::pickle("a script module packs its state in a way of its own"));
            }
            (Node::Dict(_) | Node::Set(_) | Node::Tensor(_) | Node::Refused(_), _) => {}
            (other, _) => return Err(WeightsError::pickle(format!("{} is given a state", other.kind()))),
        }
        Ok(())
    }
}
