//! Short lists that need no memory of their own: dims, strides, what options say of each dim, the operands of a program.

use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut, Range};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

/// Items that lie inline: the highest rank that networks commonly have.
const INLINE: usize = 6;

/// A list of which up to six items lie inline; a longer one lies on the heap. So a tensor of any rank has its dims, and one of a usual rank
/// allocates none. It reads as a slice, and is written to a record as a `Vec` is.
pub struct InlineVec<T>(SmallVec<[T; INLINE]>);

/// One size per dim, outermost first.
pub type Dims = InlineVec<usize>;

impl<T> InlineVec<T> {
    /// Without items.
    pub fn new() -> Self {
        Self(SmallVec::new())
    }

    /// Without items, and with room for so many.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(SmallVec::with_capacity(capacity))
    }

    /// `len` times the same item.
    pub fn repeat(item: T, len: usize) -> Self
    where
        T: Clone,
    {
        Self(SmallVec::from_elem(item, len))
    }

    /// The items of a slice, several times over.
    pub fn repeated(items: &[T], times: usize) -> Self
    where
        T: Clone,
    {
        (0..times).flat_map(|_| items.iter().cloned()).collect()
    }

    /// The items.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }

    /// Appends an item.
    pub fn push(&mut self, item: T) {
        self.0.push(item);
    }

    /// Takes the last item away.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Puts an item in at a place.
    ///
    /// # Panics
    /// When the place is beyond the end.
    pub fn insert(&mut self, at: usize, item: T) {
        self.0.insert(at, item);
    }

    /// Takes the item at a place away.
    ///
    /// # Panics
    /// When there is none.
    pub fn remove(&mut self, at: usize) -> T {
        self.0.remove(at)
    }

    /// Keeps the first `len` items.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Keeps the items for which the function says so.
    pub fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.0.retain(|item| keeps(item));
    }

    /// Appends the items of a slice.
    pub fn extend_from_slice(&mut self, items: &[T])
    where
        T: Copy,
    {
        self.0.extend_from_slice(items);
    }

    /// Puts others in the place of some items.
    ///
    /// # Panics
    /// When the range is beyond the end.
    pub fn splice(&mut self, range: Range<usize>, items: impl IntoIterator<Item = T>)
    where
        T: Copy,
    {
        let after = Self::from(&self[range.end..]);
        self.truncate(range.start);
        self.extend(items);
        self.extend(after);
    }

    /// The items in a list on the heap.
    pub fn into_vec(self) -> Vec<T> {
        self.0.into_vec()
    }
}

/// Of items that are copied as they lie: each handle of a tensor has two such lists, and item by item they take as long as small operations.
impl<T: Copy> Clone for InlineVec<T> {
    fn clone(&self) -> Self {
        Self::from(self.as_slice())
    }

    fn clone_from(&mut self, other: &Self) {
        if self.len() != other.len() {
            *self = other.clone();
        } else {
            self.copy_from_slice(other);
        }
    }
}

impl<T> Default for InlineVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for InlineVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for InlineVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T> AsRef<[T]> for InlineVec<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: fmt::Debug> fmt::Debug for InlineVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Hash> Hash for InlineVec<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: Eq> Eq for InlineVec<T> {}

impl<T: PartialEq> PartialEq for InlineVec<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

macro_rules! equals {
    ($([$($generic:tt)*] $list:ty;)*) => {
        $(
            impl<T: PartialEq, $($generic)*> PartialEq<$list> for InlineVec<T> {
                fn eq(&self, other: &$list) -> bool {
                    self[..] == other[..]
                }
            }

            impl<T: PartialEq, $($generic)*> PartialEq<InlineVec<T>> for $list {
                fn eq(&self, other: &InlineVec<T>) -> bool {
                    self[..] == other[..]
                }
            }
        )*
    };
}

equals! {
    [] Vec<T>;
    [] [T];
    [] &[T];
    [const N: usize] [T; N];
    [const N: usize] &[T; N];
}

impl<T, const N: usize> From<[T; N]> for InlineVec<T> {
    fn from(items: [T; N]) -> Self {
        items.into_iter().collect()
    }
}

impl<T: Copy> From<&[T]> for InlineVec<T> {
    fn from(items: &[T]) -> Self {
        Self(SmallVec::from_slice(items))
    }
}

impl<T> From<Vec<T>> for InlineVec<T> {
    fn from(items: Vec<T>) -> Self {
        Self(items.into())
    }
}

impl<T> From<InlineVec<T>> for Vec<T> {
    fn from(items: InlineVec<T>) -> Self {
        items.into_vec()
    }
}

impl<T, const N: usize> TryFrom<InlineVec<T>> for [T; N] {
    type Error = InlineVec<T>;

    /// The items, if there are `N`.
    fn try_from(items: InlineVec<T>) -> Result<Self, InlineVec<T>> {
        if items.len() != N {
            return Err(items);
        }
        let mut items = items.into_iter();
        Ok(core::array::from_fn(|_| match items.next() {
            Some(item) => item,
            None => unreachable!("there are as many items as were counted"),
        }))
    }
}

impl<T> FromIterator<T> for InlineVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<T> Extend<T> for InlineVec<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        self.0.extend(items);
    }
}

impl<'a, T: Clone + 'a> Extend<&'a T> for InlineVec<T> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, items: I) {
        self.0.extend(items.into_iter().cloned());
    }
}

impl<T> IntoIterator for InlineVec<T> {
    type Item = T;
    type IntoIter = smallvec::IntoIter<[T; INLINE]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a InlineVec<T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut InlineVec<T> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: Serialize> Serialize for InlineVec<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for InlineVec<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn lists_of_any_length_are_lists() {
        for len in [0, 1, 6, 7, 40] {
            let want: Vec<usize> = (0..len).collect();
            let mut list: Dims = want.iter().copied().collect();
            assert_eq!((&list, list.len()), (&Dims::from(want.clone()), len));
            assert_eq!(list, want);
            list.insert(0, 9);
            list.push(8);
            assert_eq!((list.remove(0), list.pop()), (9, Some(8)));
            assert_eq!(list.clone().into_vec(), want);
            list.splice(0..len, [7, 5]);
            list.splice(1..1, want.iter().copied());
            list.splice(len + 1..len + 2, []);
            assert_eq!((list.remove(0), &list), (7, &Dims::from(&want[..])));
            list.retain(|item| item % 2 == 1);
            assert_eq!(list, want.iter().copied().filter(|item| item % 2 == 1).collect::<Vec<_>>());
        }
        let mut copy = Dims::from([1, 2]);
        for other in [Dims::from([3, 4]), (0..9).collect(), Dims::new()] {
            copy.clone_from(&other);
            assert_eq!(copy, other);
        }
        assert_eq!(<[usize; 2]>::try_from(Dims::from([3, 4])), Ok([3, 4]));
        assert_eq!(<[usize; 3]>::try_from(Dims::from([3, 4])), Err([3, 4].into()));
        assert_eq!(Dims::repeat(3, 2), [3, 3]);
        assert_eq!(Dims::repeated(&[3, 1], 2), [3, 1, 3, 1]);
    }

    #[test]
    fn few_dims_lie_inline() {
        let list: Dims = [1, 2, 3, 4, 5, 6].into();
        assert!(!list.0.spilled());
        assert_eq!(alloc::format!("{list:?}"), alloc::format!("{:?}", vec![1, 2, 3, 4, 5, 6]));
    }
}
