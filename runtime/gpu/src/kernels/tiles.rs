//! Tiles of vectors that warps multiply by tensor cores: how they come into shared memory, and what of them a lane holds.
//!
//! A vector lies there as words, padded with zeros to whole steps of a product, and in rows of an odd number of sixteen bytes, so that
//! eight rows are read at once.

use crate::language::{Array, Buffer, Builder, Builtin, Factors, Fours, Storage, Type, Value, Variable};
use crate::tensor::held_as;
use kiln_tensor::DType;
use kiln_tensor::backend::Layout;

/// Invocations of a warp.
pub(super) const WARP: u32 = 32;
/// Rows that a warp computes at a time.
pub(super) const ROWS: u32 = 16;
/// Words of a vector that one product takes.
const STEP: u32 = 8;
/// Words that are moved at once.
const CHUNK: u32 = 4;

/// Vectors as products take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// The elements' dtype.
    pub dtype: DType,
    /// As what they are multiplied.
    pub factors: Factors,
    /// Elements of a vector.
    pub size: u32,
    /// Whether they lie in memory so that whole words are read.
    pub in_words: bool,
}

impl Form {
    /// Whether vectors along the last dim can be read in words, four at a time.
    pub(super) fn in_words(factors: Factors, layout: &Layout) -> bool {
        let (Some(&size), Some((&last, outer))) = (layout.shape.dims.last(), layout.strides.split_last())
        else {
            return false;
        };
        let chunk = (CHUNK * factors.per_word()) as usize;
        let aligned = |stride: isize| stride.unsigned_abs().is_multiple_of(chunk);
        last == 1
            && size.is_multiple_of(chunk)
            && layout.offset.is_multiple_of(chunk)
            && outer.iter().copied().all(aligned)
    }

    /// Products that a vector takes one after another. Two tiles of 8 columns are always computed together, so that vectors are padded to
    /// 16 elements.
    pub(super) fn steps(&self) -> u32 {
        self.size.next_multiple_of(2 * 8) / self.factors.per_word() / STEP
    }

    /// From each vector to the next in shared memory, in words.
    pub(super) fn row_words(&self) -> u32 {
        self.steps() * STEP + CHUNK
    }

    /// Words that hold elements, the last perhaps not whole.
    fn filled_words(&self) -> u32 {
        self.size.div_ceil(self.factors.per_word())
    }
}

/// What the lane knows of itself.
#[derive(Clone, Copy)]
pub(super) struct Lane<'k> {
    /// Its position in the workgroup.
    pub local: Value<'k>,
    /// Its warp's number.
    pub warp: Value<'k>,
    /// Its number in the warp.
    pub lane: Value<'k>,
    /// The row, and the row after the eighth that follows, of which it holds parts.
    pub row: Value<'k>,
    /// Which words, or pairs of columns, it holds of each.
    pub place: Value<'k>,
}

impl<'k> Lane<'k> {
    pub fn new(k: &'k Builder) -> Self {
        let local = k.builtin(Builtin::LocalX);
        let lane = local % WARP;
        Self { local, warp: local / WARP, lane, row: lane / 4_u32, place: lane % 4_u32 }
    }
}

/// Vectors in memory of which lanes read their own parts of left sides.
pub(super) struct Lefts<'k> {
    buffer: Buffer<'k>,
    form: Form,
    along: Value<'k>,
}

/// Vectors in memory that are brought into shared memory.
pub(super) struct Source<'k> {
    buffer: Words<'k>,
    form: Form,
}

enum Words<'k> {
    Four(Fours<'k>),
    Elements(Buffer<'k>),
}

/// The elements of a word; those beyond the vector's end are 0 unless it is `whole`.
fn elements<'k>(
    buffer: Buffer<'k>,
    form: &Form,
    [start, along]: [Value<'k>; 2],
    at: Value<'k>,
    whole: bool,
) -> Vec<Value<'k>> {
    let count = form.factors.per_word();
    let element = |n| {
        let element = at * count + n;
        let x = buffer.at(start + element * along);
        if whole { x } else { element.below(form.size).select(x, 0.0) }
    };
    (0..count).map(element).collect()
}

/// A word as it is multiplied, of one as it lies in memory.
fn rounded<'k>(factors: Factors, word: Value<'k>) -> Value<'k> {
    match factors {
        Factors::TF32 => factors.word(&[word.bits(Type::F32)]),
        Factors::F16 | Factors::BF16 | Factors::I8 | Factors::U8 => word,
    }
}

impl<'k> Lefts<'k> {
    /// The next buffer.
    pub fn declare(k: &'k Builder, form: Form) -> impl FnOnce(Value<'k>) -> Self {
        let buffer = k.input(if form.in_words { Storage::U32 } else { held_as(form.dtype) });
        move |along| Self { buffer, form, along }
    }

    pub fn form(&self) -> &Form {
        &self.form
    }

    /// The lane's words for a step of a product whose rows are vectors that start there.
    pub fn at(&self, lane: &Lane<'k>, starts: [Value<'k>; 2], step: u32) -> [Value<'k>; 4] {
        let factors = self.form.factors;
        self.each(lane, starts, step, |x| rounded(factors, x), |elements| factors.word(elements))
    }

    /// The elements of those words, as they are in memory.
    pub fn floats(&self, lane: &Lane<'k>, starts: [Value<'k>; 2], step: u32) -> [Vec<Value<'k>>; 4] {
        let factors = self.form.factors;
        self.each(lane, starts, step, |x| factors.floats(x), <[Value<'k>]>::to_vec)
    }

    /// What is made of the lane's words for a step, or of their elements where they are not read as words.
    fn each<T>(
        &self,
        lane: &Lane<'k>,
        starts: [Value<'k>; 2],
        step: u32,
        of_word: impl Fn(Value<'k>) -> T,
        of_elements: impl Fn(&[Value<'k>]) -> T,
    ) -> [T; 4] {
        let form = &self.form;
        [0, 1, 2, 3].map(|n| {
            let start = starts[n % 2];
            let at = lane.place + (step * STEP + n as u32 / 2 * CHUNK);
            let whole = (step + 1) * STEP * form.factors.per_word() <= form.size;
            if !form.in_words {
                return of_elements(&elements(self.buffer, form, [start, self.along], at, whole));
            }
            let x = self.buffer.at(start / form.factors.per_word() + at);
            of_word(if whole { x } else { at.below(form.filled_words()).select(x, 0_u32) })
        })
    }
}

impl<'k> Source<'k> {
    /// The next buffer.
    pub fn declare(k: &'k Builder, form: Form) -> Self {
        let buffer = match form.in_words {
            true => Words::Four(k.input_of_fours(Storage::U32)),
            false => Words::Elements(k.input(held_as(form.dtype))),
        };
        Self { buffer, form }
    }

    /// The fours that a vector lies in as it is multiplied, if it does.
    fn fours(&self) -> Option<Fours<'k>> {
        match (&self.buffer, self.form.factors) {
            (&Words::Four(buffer), Factors::F16 | Factors::BF16 | Factors::I8 | Factors::U8) => Some(buffer),
            (Words::Four(_), Factors::TF32) | (Words::Elements(_), _) => None,
        }
    }

    /// Four words of the vector that starts there.
    fn chunk(&self, start: Value<'k>, along: Value<'k>, chunk: Value<'k>) -> [Value<'k>; 4] {
        let form = &self.form;
        match self.buffer {
            Words::Four(buffer) => {
                let words = buffer.at(start / (CHUNK * form.factors.per_word()) + chunk);
                words.map(|word| rounded(form.factors, word))
            }
            Words::Elements(buffer) => {
                let whole = form.size.is_multiple_of(CHUNK * form.factors.per_word());
                let at = |n: u32| elements(buffer, form, [start, along], chunk * CHUNK + n, whole);
                [0, 1, 2, 3].map(|n| form.factors.word(&at(n)))
            }
        }
    }
}

/// Vectors in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Tile<'k> {
    array: Array<'k>,
    /// The word that they begin with.
    first: Value<'k>,
    form: Form,
    rows: u32,
}

impl<'k> Tile<'k> {
    pub fn new(k: &'k Builder, form: Form, rows: u32) -> Self {
        Self { array: k.shared(Type::U32, rows * form.row_words()), first: k.value(0_u32), form, rows }
    }

    /// Room for two tiles.
    fn two(k: &'k Builder, form: Form, rows: u32) -> Self {
        Self { array: k.shared(Type::U32, 2 * rows * form.row_words()), first: k.value(0_u32), form, rows }
    }

    /// Of two tiles the one with an even number, or the other.
    fn numbered(self, number: Value<'k>) -> Self {
        Self { first: number % 2_u32 * (self.rows * self.form.row_words()), ..self }
    }

    /// Begins to bring vectors as [`bring`](Self::bring) does, of a source whose [fours](Source::fours) they are; they are there when
    /// [copies are done](Builder::copies_done).
    fn begin(
        &self,
        lane: &Lane<'k>,
        threads: u32,
        source: Fours<'k>,
        count: Value<'k>,
        start: impl Fn(Value<'k>) -> Value<'k>,
    ) {
        self.chunks(lane, threads, count, |row, chunk, within| {
            let four = start(row) / (CHUNK * self.form.factors.per_word()) + chunk;
            source.copy(four, within, self.array, self.place(row, chunk));
        });
    }

    /// Brings vectors, which start where `start` says; those beyond `count` are zeros.
    fn bring(
        &self,
        lane: &Lane<'k>,
        threads: u32,
        source: &Source<'k>,
        along: Value<'k>,
        count: Value<'k>,
        start: impl Fn(Value<'k>) -> Value<'k>,
    ) {
        let k = lane.local.kernel();
        self.chunks(lane, threads, count, |row, chunk, within| {
            let words = [(); 4].map(|()| k.variable(0_u32));
            k.when(within, || {
                for (own, word) in words.iter().zip(source.chunk(start(row), along, chunk)) {
                    own.set(word);
                }
            });
            self.array.set_four(self.place(row, chunk), words.map(Variable::get));
        });
    }

    /// Where a chunk of a row is in shared memory.
    fn place(&self, row: Value<'k>, chunk: Value<'k>) -> Value<'k> {
        self.first + row * self.form.row_words() + chunk * CHUNK
    }

    /// Divides what is brought among the invocations: of each chunk its row, its number in that, and whether it is there.
    fn chunks(
        &self,
        lane: &Lane<'k>,
        threads: u32,
        count: Value<'k>,
        each: impl Fn(Value<'k>, Value<'k>, Value<'k>),
    ) {
        let k = lane.local.kernel();
        let chunks = self.form.steps() * STEP / CHUNK;
        let filled = self.form.filled_words().div_ceil(CHUNK);
        let one = |row: Value<'k>, chunk: Value<'k>| {
            let within = row.below(count);
            let within = if filled < chunks { within & chunk.below(filled) } else { within };
            each(row, chunk, within);
        };
        if threads.is_multiple_of(chunks) && self.rows.is_multiple_of(threads / chunks) {
            // All have as many, of rows that are as far apart.
            let (row, chunk, apart) = (lane.local / chunks, lane.local % chunks, threads / chunks);
            (0..self.rows).step_by(apart as usize).for_each(|behind| one(row + behind, chunk));
            return;
        }
        k.range(lane.local, self.rows * chunks, threads, |n| one(n / chunks, n % chunks));
    }

    /// The lane's words of 16 columns that are vectors from `first` on: of the first eight, and of the others.
    fn columns(&self, lane: &Lane<'k>, first: u32, step: u32) -> [[Value<'k>; 2]; 2] {
        let row = lane.lane % 8_u32 + lane.lane / 16_u32 * 8_u32 + first;
        let word = lane.lane / 8_u32 % 2_u32 * CHUNK + step * STEP;
        let [a, b, c, d] = self.array.matrices(self.first + row * self.form.row_words() + word, false);
        [[a, b], [c, d]]
    }

    /// `left · vectorᵀ` of all vectors, for each eight of them.
    pub fn scores(&self, lane: &Lane<'k>, left: impl Fn(u32) -> [Value<'k>; 4]) -> Vec<[Value<'k>; 4]> {
        let k = lane.local.kernel();
        let sums: Vec<_> = (0..self.rows / 8).map(|_| [(); 4].map(|()| k.variable(0.0))).collect();
        for step in 0..self.form.steps() {
            let left = left(step);
            for (n, sums) in sums.chunks(2).enumerate() {
                let rights = self.columns(lane, 16 * n as u32, step);
                for (&sums, right) in sums.iter().zip(rights) {
                    k.multiply(self.form.factors, left, right, sums);
                }
            }
        }
        sums.into_iter().map(|sums| sums.map(Variable::get)).collect()
    }

    /// Adds the vectors by their weights, which lie as [`Tile::scores`] yields them, to sums for each eight of their elements.
    pub fn add_weighted(&self, lane: &Lane<'k>, weights: &[[Value<'k>; 4]], sums: &[[Variable<'k>; 4]]) {
        let (k, factors) = (lane.local.kernel(), self.form.factors);
        let row_words = self.form.row_words();
        if factors == Factors::TF32 {
            // Both sides take the columns that a lane has, 2 t and 2 t + 1, as words t and t + 4: sums do not care for the order.
            for (n, &[a, b, c, d]) in weights.iter().enumerate() {
                let left = [a, c, b, d].map(|x| factors.word(&[x]));
                let row = (lane.place * 2_u32 + 8 * n as u32) * row_words;
                for (m, &sums) in sums.iter().enumerate() {
                    let at = self.first + row + lane.row + 8 * m as u32;
                    k.multiply(factors, left, [self.array.at(at), self.array.at(at + row_words)], sums);
                }
            }
            return;
        }
        let row = lane.lane % 16_u32;
        let word = lane.lane / 16_u32 * CHUNK;
        for (n, pair) in weights.chunks(2).enumerate() {
            let left = [0, 1, 2, 3].map(|at| {
                let of = pair[at / 2];
                factors.word(&[of[at % 2 * 2], of[at % 2 * 2 + 1]])
            });
            for (m, sums) in sums.chunks(2).enumerate() {
                let at = self.first + (row + 16 * n as u32) * row_words + word + 8 * m as u32;
                let [a, b, c, d] = self.array.matrices(at, true);
                for (&sums, right) in sums.iter().zip([[a, b], [c, d]]) {
                    k.multiply(factors, left, right, sums);
                }
            }
        }
    }
}

/// The longest vector of which two tiles fit into shared memory, so that one is brought while the other is computed with.
const LONGEST_OF_TWO: u32 = 128;

/// Vectors of two sources that go by in tiles.
pub(super) struct Passing<'k> {
    sources: [Source<'k>; 2],
    /// Vectors of a tile.
    pub rows: u32,
    tiles: [Tile<'k>; 2],
    /// What is copied without being looked at: while one tile is computed with, the next is on its way.
    copied: Option<[Fours<'k>; 2]>,
}

/// Which vectors go by.
pub(super) struct Passage<'k> {
    /// The first, and behind the last.
    pub range: [Value<'k>; 2],
    /// How many there are; beyond those are zeros.
    pub count: Value<'k>,
    /// From one element of a vector to the next.
    pub along: [Value<'k>; 2],
}

impl<'k> Passing<'k> {
    /// Tiles of at most so many vectors.
    pub fn new(k: &'k Builder, sources: [Source<'k>; 2], most: u32) -> Self {
        let forms = [0, 1].map(|n: usize| sources[n].form);
        let are_short = forms.iter().all(|form| form.size <= LONGEST_OF_TWO);
        let copied = match [0, 1].map(|n: usize| sources[n].fours().filter(|_| are_short)) {
            [Some(first), Some(second)] => Some([first, second]),
            [None, _] | [_, None] => None,
        };
        let held = if copied.is_some() { 2 } else { 1 };
        let rows = tile_rows([&forms[0], &forms[1]], most, held);
        let tiles = forms.map(|form| match copied {
            Some(_) => Tile::two(k, form, rows),
            None => Tile::new(k, form, rows),
        });
        Self { sources, rows, tiles, copied }
    }

    /// Has the workgroup, of so many invocations, compute with one tile of both after another; `start` says where a vector of either begins.
    pub fn each(
        &self,
        (lane, threads): (&Lane<'k>, u32),
        passage: &Passage<'k>,
        start: impl Fn(usize, Value<'k>) -> Value<'k>,
        compute: impl Fn(Value<'k>, [Tile<'k>; 2]),
    ) {
        let (k, rows, &Passage { range: [first, end], count, along }) =
            (lane.local.kernel(), self.rows, passage);
        let Some(copied) = self.copied else {
            k.range(first, end, rows, |tile| {
                for (n, tile_of) in self.tiles.iter().enumerate() {
                    let at = |row| start(n, tile + row);
                    tile_of.bring(lane, threads, &self.sources[n], along[n], count - tile, at);
                }
                k.barrier();
                compute(tile, self.tiles);
                k.barrier();
            });
            return;
        };
        let numbered = |tile: Value<'k>| self.tiles.map(|tiles| tiles.numbered(tile / rows));
        let begin = |tile: Value<'k>| {
            for (n, tile_of) in numbered(tile).iter().enumerate() {
                tile_of.begin(lane, threads, copied[n], count - tile, |row| start(n, tile + row));
            }
        };
        // All have computed with what went by before.
        k.barrier();
        k.when(first.below(end), || begin(first));
        k.range(first, end, rows, |tile| {
            k.copies_done();
            // And with the tile before, which the next may replace.
            k.barrier();
            let next = tile + rows;
            k.when(next.below(end), || begin(next));
            compute(tile, numbered(tile));
        });
    }
}

/// Sums for each eight elements of vectors of a form.
pub(super) fn sums<'k>(k: &'k Builder, form: &Form) -> Vec<[Variable<'k>; 4]> {
    let count = form.steps() * STEP * form.factors.per_word() / 8;
    (0..count).map(|_| [(); 4].map(|()| k.variable(0.0))).collect()
}

/// Where vectors that products yield are written.
pub(super) struct Rows<'k> {
    buffer: Buffer<'k>,
    form: Form,
    in_pairs: bool,
}

impl<'k> Rows<'k> {
    /// The next buffer. Vectors start at multiples of their size, and their elements lie one after another.
    pub fn declare(k: &'k Builder, form: Form) -> Self {
        let in_pairs = form.factors.per_word() == 2 && form.size.is_multiple_of(2);
        let buffer = k.output(if in_pairs { Storage::U32 } else { held_as(form.dtype) });
        Self { buffer, form, in_pairs }
    }

    /// Writes what the lane holds of a vector, of each eight elements two.
    pub fn set(&self, lane: &Lane<'k>, start: Value<'k>, elements: &[[Value<'k>; 2]]) {
        let k = start.kernel();
        for (first, pair) in (0_u32..).step_by(8).zip(elements) {
            let at = lane.place * 2_u32 + first;
            let when_within = |at: Value<'k>, write: &dyn Fn()| match first + 8 <= self.form.size {
                true => write(),
                false => k.when(at.below(self.form.size), write),
            };
            if self.in_pairs {
                let word = self.form.factors.word(pair);
                when_within(at, &|| self.buffer.set((start + at) / 2_u32, word));
                continue;
            }
            for (n, &x) in (0_u32..).zip(pair) {
                when_within(at + n, &|| self.buffer.set(start + at + n, x));
            }
        }
    }
}

/// A reduction of what the four lanes of a row have.
pub(super) fn among_row<'k>(x: Value<'k>, join: impl Fn(Value<'k>, Value<'k>) -> Value<'k>) -> Value<'k> {
    let pair = join(x, x.exchanged(1));
    join(pair, pair.exchanged(2))
}

/// Words of shared memory that every GPU has for a workgroup.
const SHARED_WORDS: u32 = 48 * 1024 / 4;

/// How many vectors of so many tiles of each of two forms fit into shared memory together: at most so many.
fn tile_rows(shared: [&Form; 2], most: u32, tiles: u32) -> u32 {
    let words: u32 = tiles * shared.iter().map(|form| form.row_words()).sum::<u32>();
    [64, 32].into_iter().find(|&rows| rows <= most && words * rows <= SHARED_WORDS).unwrap_or(ROWS)
}

/// Warps of a workgroup for so many rows.
pub(super) fn warps_for(rows: usize) -> u32 {
    rows.div_ceil(ROWS as usize).next_power_of_two().min(4) as u32
}
