//! The stack, its marks and the memo.

use super::super::value::{Node, Value};
use super::{Machine, NEWEST_PROTOCOL, Step};
use crate::{Result, WeightsError, limits};

impl Machine<'_> {
    /// The stack itself, the memo, and what only frames the pickle.
    pub(super) fn stack_and_memo(&mut self, opcode: u8) -> Result<Step> {
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
            0x94 => self.memorize(self.memo.len())?,
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
        let value = self.memo.get(index);
        value.map(Step::Push).ok_or_else(|| WeightsError::pickle(format!("memo {index} is empty")))
    }

    pub(super) fn push(&mut self, value: Value) -> Result<()> {
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

    pub(super) fn pop(&mut self) -> Result<Value> {
        let value = if self.stack.len() > self.floor() { self.stack.pop() } else { None };
        value.ok_or_else(|| WeightsError::pickle("a value is missing from the stack"))
    }

    fn top(&self) -> Result<Value> {
        let value = if self.stack.len() > self.floor() { self.stack.last() } else { None };
        value.copied().ok_or_else(|| WeightsError::pickle("a value is missing from the stack"))
    }

    pub(super) fn top_node(&mut self) -> Result<&mut Node> {
        let top = self.top()?;
        let kind = self.arena.kind(top);
        self.arena.node_mut(top).ok_or_else(|| WeightsError::pickle(format!("{kind} is no container")))
    }

    pub(super) fn pop_to_mark(&mut self) -> Result<Vec<Value>> {
        let mark =
            self.marks.pop().ok_or_else(|| WeightsError::pickle("a mark is missing from the stack"))?;
        let items = self.stack.split_off(mark.min(self.stack.len()));
        self.arena.spend(items.len())?;
        Ok(items)
    }

    /// The path of the dict entry that was being read, for messages.
    pub(super) fn pending_key(&self) -> Option<String> {
        // A mark follows a dict of many entries. A dict of one entry has none before it, so that one that has entries
        // already is finished, a value among others. (An empty dict among others is taken for one that is not finished.)
        let is_open = |(place, value): (usize, &Value)| match self.arena.node(*value) {
            Some(Node::Dict(pairs)) => pairs.is_empty() || self.marks.binary_search(&(place + 1)).is_ok(),
            _ => false,
        };
        let open: Vec<usize> =
            self.stack.iter().enumerate().filter(|entry| is_open(*entry)).map(|entry| entry.0).collect();
        let mut path: Vec<&str> = Vec::new();
        for (at, place) in open.iter().enumerate() {
            // Its entries end at the next mark, or where the next dict stands among them.
            let first = place + 1;
            let mark = self.marks.get(self.marks.partition_point(|mark| *mark <= first));
            let ends = [mark, open.get(at + 1)].into_iter().flatten().copied();
            let entries = self.stack.get(first..ends.min().unwrap_or(self.stack.len())).unwrap_or_default();
            let key = entries.len().checked_sub(1).and_then(|last| entries.get(last / 2 * 2));
            path.extend(key.and_then(|key| self.arena.text(*key)));
        }
        let known = !path.is_empty();
        // The whole path may be far longer than the file: keys can be one long text, told again and again.
        let parts = path.into_iter().enumerate().flat_map(|(at, key)| [if at > 0 { "." } else { "" }, key]);
        known.then(|| parts.flat_map(str::chars).take(200).collect())
    }
}
