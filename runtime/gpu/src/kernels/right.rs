//! The right side of tiled products: elements where a depth meets a column.
//!
//! An invocation brings elements of one column and of many depths. What it takes to find them, it finds of its column once. What it takes of a depth may be
//! the larger part (of a convolution the channel, the place in the window, and whether that is inside the image): then the invocations of a workgroup find
//! that of a depth each, and share it.

use crate::language::{Array, Builder, Type, Value};

/// A right side.
pub(super) trait Right<'k> {
    /// What is known of a column.
    type Column;

    /// What is known of a column of the product.
    fn column(&self, column: Value<'k>) -> Self::Column;

    /// Words of what is known of a depth, where the workgroup shares that; 0 where each invocation finds it.
    fn shared_words(&self) -> u32 {
        0
    }

    /// What is known of a depth. What is shared is asked for beyond the product too.
    fn depth(&self, depth: Value<'k>) -> Vec<Value<'k>>;

    /// The element where they meet; of what is shared, 0 where the depth is beyond the product.
    fn element(&self, depth: &[Value<'k>], column: &Self::Column) -> Value<'k>;
}

/// A right side by two functions: what is known of a column, and the element where a depth meets that.
pub(super) struct Columns<P, E>(pub P, pub E);

impl<'k, C: Copy, P: Fn(Value<'k>) -> C, E: Fn(Value<'k>, C) -> Value<'k>> Right<'k> for Columns<P, E> {
    type Column = C;

    fn column(&self, column: Value<'k>) -> C {
        self.0(column)
    }

    fn depth(&self, depth: Value<'k>) -> Vec<Value<'k>> {
        vec![depth]
    }

    fn element(&self, depth: &[Value<'k>], &column: &C) -> Value<'k> {
        self.1(depth[0], column)
    }
}

/// A right side as the invocations of a workgroup ask for it, one stage of the depth after another.
pub(super) struct Staged<'k, R> {
    right: R,
    columns: Value<'k>,
    depth: Value<'k>,
    /// Depths of a stage.
    stage: u32,
    /// What is known of those, if it is shared.
    words: Option<Array<'k>>,
}

impl<'k, R: Right<'k>> Staged<'k, R> {
    /// That of a product of so many rows, columns and depths.
    pub fn new(k: &'k Builder, right: R, [_, columns, depth]: [Value<'k>; 3], stage: u32) -> Self {
        let words = right.shared_words();
        let words = (words > 0).then(|| k.shared(Type::U32, stage * words));
        Self { right, columns, depth, stage, words }
    }

    /// A column that an invocation asks for, and what is known of it.
    pub fn column(&self, column: Value<'k>) -> (Value<'k>, R::Column) {
        (column, self.right.column(column.min(self.columns - 1_u32)))
    }

    /// Finds what is shared of the depths of the first stage, before anything else.
    pub fn begin(&self, local: Value<'k>) {
        if self.words.is_some() {
            let k = local.kernel();
            self.bring(local, k.value(0_u32));
            k.barrier();
        }
    }

    /// Behind what asked for the elements of the first stage, if the next is brought right after.
    pub fn end_first(&self, k: &'k Builder) {
        if self.words.is_some() {
            k.barrier();
        }
    }

    /// Finds what is shared of the depths of the stage that begins with one. All have asked for the elements of the stage before, and there is a barrier before
    /// any asks for one of these.
    pub fn bring(&self, local: Value<'k>, first: Value<'k>) {
        let Some(words) = self.words else { return };
        let each = self.right.shared_words();
        local.kernel().when(local.below(self.stage), || {
            for (n, word) in (0_u32..).zip(self.right.depth(first + local)) {
                words.set(local * each + n, word);
            }
        });
    }

    /// The element of a column at a place behind the first depth of a stage: 0 where that is beyond the product, anything where the column is.
    pub fn element(
        &self,
        [first, place]: [Value<'k>; 2],
        column: &(Value<'k>, R::Column),
        zero: Value<'k>,
    ) -> Value<'k> {
        if let Some(words) = self.words {
            let each = self.right.shared_words();
            let known: Vec<_> = (0..each).map(|n| words.at(place * each + n)).collect();
            return self.right.element(&known, &column.1);
        }
        let (k, depth) = (place.kernel(), first + place);
        let element = k.variable(zero);
        k.when(self.is_inside(depth, column), || {
            element.set(self.right.element(&self.right.depth(depth), &column.1));
        });
        element.get()
    }

    /// Whether a depth and a column meet inside the product.
    pub fn is_inside(&self, depth: Value<'k>, (column, _): &(Value<'k>, R::Column)) -> Value<'k> {
        column.below(self.columns) & depth.below(self.depth)
    }
}
