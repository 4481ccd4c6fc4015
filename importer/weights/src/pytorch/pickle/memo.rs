//! The memo: values by the numbers that a pickle gave them.

use super::Value;
use std::collections::HashMap;

/// How many numbers may be left out before the ones that follow are kept apart.
const GAP: usize = 16;

/// Values by number. Picklers count up from zero or one, so most lie in a row; others may have any number.
#[derive(Default)]
pub(super) struct Memo {
    row: Vec<Option<Value>>,
    /// Only looked up, never walked, so its order is in no result.
    others: HashMap<u32, Value>,
    count: u32,
}

impl Memo {
    /// How many values there are.
    pub(super) fn len(&self) -> u32 {
        self.count
    }

    pub(super) fn get(&self, index: u32) -> Option<Value> {
        let in_row = self.row.get(index as usize).copied().flatten();
        in_row.or_else(|| self.others.get(&index).copied())
    }

    /// Puts a value under a number; one that is there is replaced.
    pub(super) fn insert(&mut self, index: u32, value: Value) {
        if self.get(index).is_none() {
            self.count += 1;
        }
        let place = index as usize;
        if place >= self.row.len() && place - self.row.len() <= GAP {
            self.row.resize(place + 1, None);
        }
        match self.row.get_mut(place) {
            Some(known) => {
                self.others.remove(&index);
                *known = Some(value);
            }
            None => {
                self.others.insert(index, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_and_others() {
        let mut memo = Memo::default();
        for (number, index) in [1, 2, 40, 7, 40, 23, u32::MAX, 3].into_iter().enumerate() {
            memo.insert(index, Value::Int(number as i64));
        }
        assert_eq!(memo.len(), 7);
        assert_eq!(memo.get(40), Some(Value::Int(4)));
        assert_eq!(memo.get(u32::MAX), Some(Value::Int(6)));
        assert_eq!((memo.get(3), memo.get(4), memo.get(0)), (Some(Value::Int(7)), None, None));
        // 40 was kept apart, and is in the row now.
        memo.insert(39, Value::None);
        memo.insert(40, Value::None);
        assert_eq!((memo.len(), memo.get(40)), (8, Some(Value::None)));
    }
}
