//! Typed ids, and lists that they index.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Names an item of an [`Arena`].
pub trait Id: Copy {
    /// The id of the item at a position.
    fn at(index: usize) -> Self;
    /// The item's position.
    fn index(self) -> usize;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(usize);

        impl Id for $name {
            fn at(index: usize) -> Self {
                Self(index)
            }

            fn index(self) -> usize {
                self.0
            }
        }
    };
}

id!(
    /// Names a module: a place in the model's tree.
    ModuleId
);
id!(
    /// Names a struct (or a function) of the generated source.
    StructId
);
id!(
    /// Names a field of a module.
    FieldId
);
id!(
    /// Names a literal of a body, which may differ between modules of one struct.
    SlotId
);
id!(
    /// Names a variable of a body: a value, which is another one in each module of a struct.
    VarId
);
id!(
    /// Names what a node does, numbers aside: equal outlines have one id.
    OutlineId
);

/// A list whose items are named by ids of one type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arena<I, T> {
    items: Vec<T>,
    id: PhantomData<I>,
}

impl<I, T> Default for Arena<I, T> {
    fn default() -> Self {
        Self { items: Vec::new(), id: PhantomData }
    }
}

impl<I: Id, T> Arena<I, T> {
    /// Adds an item.
    pub fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::at(self.items.len() - 1)
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The item, if there is one.
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// Every id, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.items.len()).map(I::at)
    }

    /// Every item, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// Every item with its id, in order.
    pub fn enumerate(&self) -> impl DoubleEndedIterator<Item = (I, &T)> {
        self.items.iter().enumerate().map(|(i, item)| (I::at(i), item))
    }
}

impl<I, T> FromIterator<T> for Arena<I, T> {
    fn from_iter<S: IntoIterator<Item = T>>(items: S) -> Self {
        Self { items: items.into_iter().collect(), id: PhantomData }
    }
}

impl<I, T> IntoIterator for Arena<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<I: Id, T> Index<I> for Arena<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}
