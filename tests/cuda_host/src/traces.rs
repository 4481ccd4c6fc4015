//! What a device does not forgive, and threads that take turns would not show: two of them at one number with no barrier between, a place beyond a shared
//! array, a copy that is read before it was waited for, a block that is counted before others see what it wrote.

use std::ffi::c_void;

/// What is told of a place.
const READ: u32 = 0;
const WRITE_THE_SAME: u32 = 2;
/// And of a thread.
const AT_BARRIER: u32 = 0;
const FOR_LANES: u32 = 1;
const FENCE: u32 = 2;
const COUNTED: u32 = 3;
const LAST_COUNTED: u32 = 4;
const COPIES_DONE: u32 = 5;
const END: u32 = 6;

/// Whom a trace names where nobody was, and where several were.
const NOBODY: u16 = u16::MAX;
const SEVERAL: u16 = u16::MAX - 1;
/// When a copy writes that nobody waited for: not yet.
const LATER: u16 = u16::MAX - 1;
/// Numbers in buffers of which something is known at a time: a power of two. What comes to another's place takes that.
const NUMBERS: usize = 1 << 18;

/// Who wrote a number of a shared array last and who read it, and how many barriers each had passed.
#[repr(C)]
struct Shared {
    written: u16,
    writer: u16,
    read: u16,
    reader: u16,
}

/// What is known of a number in a buffer that a launch writes: where it is, and by their numbers in the grid, from 1 on, who wrote it and who read it.
#[derive(Clone, Default)]
struct Number {
    place: u64,
    launch: u32,
    writer: u32,
    reader: u32,
}

/// A copy that a thread asked for, and has not waited for.
struct Copy {
    to: *mut [u32; 4],
    traces: *mut Shared,
    from: *const [u32; 4],
    within: bool,
}

/// A thread of a block.
#[derive(Default)]
struct Thread {
    /// Barriers that it passed.
    passed: u16,
    /// How often it waited, at barriers or for lanes.
    waited: u32,
    /// Whether it wrote to a buffer what others do not see yet.
    is_unseen: bool,
    copies: Vec<Copy>,
}

/// What is known of a block and its launch.
pub(crate) struct Traces {
    numbers: Vec<Number>,
    launch: u32,
    block: u32,
    threads: Vec<Thread>,
    /// The thread that runs.
    own: u16,
    /// How often all waited, and for what they do now.
    waits: (u32, u32),
    /// Whether the block is the last that counted: it sees what all of them wrote.
    sees_all: bool,
    fault: Option<String>,
}

/// The kernel's way to say what it does.
#[repr(C)]
pub(crate) struct Tracer {
    state: *mut c_void,
    shared: extern "C" fn(*mut c_void, *mut Shared, u32, u32, u32, u32) -> bool,
    buffer: extern "C" fn(*mut c_void, u64, u32, u32),
    copy: extern "C" fn(*mut c_void, *mut [u32; 4], *mut Shared, *const [u32; 4], bool),
    event: extern "C" fn(*mut c_void, u32),
}

impl Tracer {
    /// For as long as the traces stay where they are.
    pub fn of(traces: *mut Traces) -> Self {
        Self { state: traces.cast(), shared, buffer, copy, event }
    }
}

/// The traces that a kernel tells of.
///
/// # Safety
/// They are those of [`Tracer::of`], and nobody else uses them meanwhile.
unsafe fn known<'a>(state: *mut c_void) -> &'a mut Traces {
    // SAFETY: the caller says so.
    unsafe { &mut *state.cast() }
}

/// Notes that so many numbers of a shared array are read or written; says whether they are there.
extern "C" fn shared(
    state: *mut c_void,
    traces: *mut Shared,
    length: u32,
    place: u32,
    count: u32,
    how: u32,
) -> bool {
    // SAFETY: the kernel tells of the traces that it was given.
    let known = unsafe { known(state) };
    if !place.is_multiple_of(count) {
        known.blame("four neighbours of a shared array that do not lie at 16 bytes", place, 0);
        return false;
    }
    if place >= length || count > length - place {
        known.blame("a place beyond a shared array", place, length);
        return false;
    }
    for at in place..place + count {
        // SAFETY: there is a trace for each number of the array.
        let trace = unsafe { &mut *traces.add(at as usize) };
        known.note_shared(trace, at, how);
    }
    true
}

/// Notes that a number of a buffer is read or written.
extern "C" fn buffer(state: *mut c_void, place: u64, bytes: u32, how: u32) {
    // SAFETY: as above.
    unsafe { known(state) }.note_number(place, bytes, how);
}

/// Begins a copy of four words, which was noted as written.
extern "C" fn copy(
    state: *mut c_void,
    to: *mut [u32; 4],
    traces: *mut Shared,
    from: *const [u32; 4],
    within: bool,
) {
    // SAFETY: as above; four numbers and their traces are there.
    unsafe {
        let known = known(state);
        if !(from as usize).is_multiple_of(16) {
            known.blame("a copy of 16 bytes from where they do not begin", 0, 0);
        }
        to.write([u32::MAX; 4]);
        (0..4).for_each(|n| (*traces.add(n)).written = LATER);
        let own = usize::from(known.own);
        known.threads[own].copies.push(Copy { to, traces, from, within });
    }
}

/// Notes what a thread does.
extern "C" fn event(state: *mut c_void, event: u32) {
    // SAFETY: as above.
    let known = unsafe { known(state) };
    let own = usize::from(known.own);
    match event {
        AT_BARRIER | FOR_LANES => known.wait(event),
        FENCE => known.threads[own].is_unseen = false,
        COUNTED | LAST_COUNTED => {
            if known.threads.iter().any(|thread| thread.is_unseen) {
                known.blame("a block is counted before others see what it wrote", 0, 0);
            }
            known.sees_all |= event == LAST_COUNTED;
        }
        COPIES_DONE => known.end_copies(),
        END if known.threads[own].copies.is_empty() => {}
        END => known.blame("a thread ends before its copies", 0, 0),
        _ => known.blame("something that no thread does", event, 0),
    }
}

impl Traces {
    pub fn new() -> Self {
        Self {
            numbers: Vec::new(),
            launch: 0,
            block: 0,
            threads: Vec::new(),
            own: 0,
            waits: (0, 0),
            sees_all: false,
            fault: None,
        }
    }

    pub fn begin_launch(&mut self) {
        self.numbers.resize(NUMBERS, Number::default());
        self.launch = self.launch.wrapping_add(1);
        self.fault = None;
    }

    /// Begins a block of so many threads, by its number.
    pub fn begin_block(&mut self, block: u32, threads: u32) {
        self.block = block;
        self.threads.clear();
        self.threads.resize_with(threads as usize, Thread::default);
        self.waits = (0, 0);
        self.sees_all = false;
    }

    /// Says which thread runs.
    pub fn run(&mut self, thread: u32) {
        self.own = thread as u16;
    }

    /// What went wrong first.
    pub fn fault(&mut self) -> Option<String> {
        self.fault.take()
    }

    fn blame(&mut self, what: &str, place: u32, other: u32) {
        let Self { own, block, .. } = *self;
        self.fault
            .get_or_insert_with(|| format!("{what}: at {place}, thread {own}, other {other}, block {block}"));
    }

    fn note_shared(&mut self, trace: &mut Shared, place: u32, how: u32) {
        let (own, now) = (self.own, self.threads[usize::from(self.own)].passed);
        let Shared { written, writer, read, reader } = *trace;
        let is_others = |of: u16| of != NOBODY && of != own;
        if how == READ {
            if writer != NOBODY && written == LATER {
                self.blame("a copy is looked at before it is waited for", place, writer.into());
            }
            if is_others(writer) && written == now {
                let what = "a thread reads of a shared array what another wrote before no barrier";
                self.blame(what, place, writer.into());
            }
            let is_alone = reader == NOBODY || read != now || reader == own;
            (trace.reader, trace.read) = (if is_alone { own } else { SEVERAL }, now);
            return;
        }
        // What is the same number is no matter whose it is.
        if is_others(writer) && written == now && how != WRITE_THE_SAME {
            let what = "two threads write different numbers to a place of a shared array before a barrier";
            self.blame(what, place, writer.into());
        }
        if is_others(reader) && read == now {
            let what = "a thread writes over what another read of a shared array before no barrier";
            self.blame(what, place, reader.into());
        }
        (trace.writer, trace.written) = (own, now);
    }

    fn note_number(&mut self, place: u64, bytes: u32, how: u32) {
        if self.sees_all {
            return;
        }
        let own = self.block.wrapping_mul(1024).wrapping_add(u32::from(self.own) + 1);
        let hashed = (place / u64::from(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let (launch, at) = (self.launch, hashed as usize % NUMBERS);
        let number = &mut self.numbers[at];
        if number.place != place || number.launch != launch {
            *number = Number { place, launch, writer: 0, reader: 0 };
        }
        let Number { writer, reader, .. } = *number;
        let is_others = |of: u32| of != 0 && of != own;
        if how == READ {
            number.reader = own;
            if is_others(writer) {
                self.blame("a thread reads of a buffer what another of the launch wrote", 0, writer);
            }
            return;
        }
        number.writer = own;
        self.threads[usize::from(self.own)].is_unseen = true;
        if is_others(writer) && how != WRITE_THE_SAME {
            self.blame("two threads of a launch write different numbers to a place of a buffer", 0, writer);
        }
        if is_others(reader) {
            self.blame("a thread writes to a buffer what another of the launch read", 0, reader);
        }
    }

    /// A thread waits for the others of its block, or of its warp, for which all of the block do.
    fn wait(&mut self, kind: u32) {
        let thread = &mut self.threads[usize::from(self.own)];
        thread.waited += 1;
        thread.passed += u16::from(kind == AT_BARRIER);
        let now = (thread.waited, kind);
        if self.waits.0 != now.0 {
            self.waits = now;
        }
        if self.waits != now {
            self.blame("some threads wait at a barrier, others for lanes", 0, 0);
        }
    }

    /// Does what the thread that runs asked to be copied.
    fn end_copies(&mut self) {
        for Copy { to, traces, from, within } in
            std::mem::take(&mut self.threads[usize::from(self.own)].copies)
        {
            // SAFETY: the arrays are the block's, whose threads all run, and the buffer outlives the launch.
            unsafe {
                (0..4).for_each(|n| self.note_shared(&mut *traces.add(n), n as u32, 1));
                to.write(if within { from.read() } else { [0; 4] });
            }
        }
    }
}
