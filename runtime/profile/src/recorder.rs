//! What a thread records: calls of operations, and the modules that they are in.

use crate::cost::{Cost, Results};
use kiln_tensor::Precision;
use kiln_tensor::backend::Primitive;
use kiln_types::{ProfiledCall, ProfiledModule, ProfiledOperation, ProfiledPass};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

/// One forward pass as it is recorded: nothing is looked up meanwhile.
struct RecordedPass {
    started: Instant,
    /// The path of the module in hand, and of those around it.
    paths: Vec<Rc<str>>,
    calls: Vec<Call>,
    modules: Vec<ProfiledModule>,
    /// Work that waits for whoever reads its result: the module that called for it, and what it costs.
    waiting: HashMap<usize, (Rc<str>, Cost, Results)>,
}

struct Call {
    path: Rc<str>,
    cost: Cost,
    results: Results,
    start: u64,
    end: u64,
}

std::thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(false) };
    static PASS: RefCell<Option<RecordedPass>> = const { RefCell::new(None) };
}

/// Whether this thread records.
#[inline]
pub(crate) fn is_recording() -> bool {
    RECORDING.get()
}

/// Notes a call that has returned.
pub(crate) fn add(cost: Cost, results: Results, started: Instant, ended: Instant) {
    PASS.with_borrow_mut(|pass| {
        if let Some(pass) = pass {
            let path = pass.paths.last().cloned().unwrap_or_default();
            let [start, end] = [started, ended].map(|time| nanoseconds(pass.started, time));
            let cost = match results.waiting {
                Some(work) => {
                    let put_off = cost.put_off();
                    pass.waiting.insert(work, (path.clone(), cost, results.clone()));
                    put_off
                }
                None => cost,
            };
            pass.calls.push(Call { path, cost, results, start, end });
        }
    });
}

/// The cost of work that waits, which is to be told with that of whoever reads its result.
pub(crate) fn take_waiting(work: usize) -> Option<(Cost, Results)> {
    PASS.with_borrow_mut(|pass| {
        pass.as_mut()?.waiting.remove(&work).map(|(_, cost, results)| (cost, results))
    })
}

/// Does the work that a tensor waits for, as a call of its own, before an operation that reads it begins.
pub(crate) fn settle(tensor: &impl Primitive) {
    settle_by(tensor, Primitive::complete);
}

/// [`settle`] before a convolution, which may round its operands.
pub(crate) fn settle_for_conv(tensor: &impl Primitive) {
    match Precision::current() {
        Precision::F32 => settle(tensor),
        Precision::Bf16 => settle_by(tensor, Primitive::complete_rounded),
    }
}

fn settle_by<P: Primitive>(tensor: &P, complete: impl FnOnce(&P)) {
    let Some(work) = tensor.waiting() else { return };
    let started = Instant::now();
    complete(tensor);
    let ended = Instant::now();
    PASS.with_borrow_mut(|pass| {
        if let Some(pass) = pass
            && let Some((path, cost, results)) = pass.waiting.remove(&work)
        {
            let [start, end] = [started, ended].map(|time| nanoseconds(pass.started, time));
            pass.calls.push(Call { path, cost, results, start, end });
        }
    });
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    to.duration_since(from).as_nanos().try_into().unwrap_or(u64::MAX)
}

/// A module that was entered; it is left when this is dropped.
struct Entered {
    /// Its position among the pass's modules.
    module: usize,
}

impl Entered {
    /// Nothing when nothing is recorded.
    fn new(name: &str, position: Option<usize>) -> Option<Self> {
        if !is_recording() {
            return None;
        }
        PASS.with_borrow_mut(|pass| {
            let pass = pass.as_mut()?;
            let parent = pass.paths.last().map(|path| &**path).unwrap_or_default();
            let dot = if parent.is_empty() || name.is_empty() { "" } else { "." };
            let path = match position {
                Some(position) => format!("{parent}{dot}{name}.{position}"),
                None => format!("{parent}{dot}{name}"),
            };
            let start = nanoseconds(pass.started, Instant::now());
            let depth = pass.paths.len();
            pass.paths.push(Rc::from(path.as_str()));
            pass.modules.push(ProfiledModule { path, depth, start, end: start });
            Some(Self { module: pass.modules.len() - 1 })
        })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        PASS.with_borrow_mut(|pass| {
            if let Some(pass) = pass {
                pass.paths.pop();
                let end = nanoseconds(pass.started, Instant::now());
                if let Some(module) = pass.modules.get_mut(self.module) {
                    module.end = end;
                }
            }
        });
    }
}

/// Calls a module: what `call` does belongs to the module of that name below the one in hand, at a position when that is a sequence. What made the
/// arguments does not.
pub fn scope<A, R>(name: &str, position: Option<usize>, arguments: A, call: impl FnOnce(A) -> R) -> R {
    let _entered = Entered::new(name, position);
    call(arguments)
}

/// Records forward passes.
///
/// ```
/// # use kiln_ndarray::NdArray;
/// # use kiln_profile::{Profiled, Recorder, scope};
/// # use kiln_tensor::Tensor;
/// let x = Tensor::<Profiled<NdArray>, 2>::ones([2, 3], &Default::default());
/// let mut recorder = Recorder::default();
/// recorder.pass(|| scope("layer", Some(4), (x,), |(x,)| x.matmul(Tensor::ones([3, 5], &Default::default()))));
/// let (operations, passes) = recorder.finish();
/// let product = operations.iter().find(|operation| operation.name == "matmul").expect("the product");
/// assert_eq!((product.path.as_str(), product.flops), ("layer.4", Some(2 * 2 * 3 * 5)));
/// assert_eq!(passes[0].modules[0].path, "layer.4");
/// ```
#[derive(Default)]
pub struct Recorder {
    positions: HashMap<ProfiledOperation, usize>,
    passes: Vec<ProfiledPass>,
}

impl Recorder {
    /// Records what `forward` does on this thread, as one pass.
    ///
    /// # Panics
    /// When it is called within itself.
    pub fn pass<R>(&mut self, forward: impl FnOnce() -> R) -> R {
        /// Ends the recording, after a panic too.
        struct Recording;

        impl Drop for Recording {
            fn drop(&mut self) {
                RECORDING.set(false);
            }
        }

        assert!(!is_recording(), "a pass is recorded within another");
        let started = Instant::now();
        PASS.set(Some(RecordedPass {
            started,
            paths: Vec::new(),
            calls: Vec::new(),
            modules: Vec::new(),
            waiting: HashMap::new(),
        }));
        RECORDING.set(true);
        let recording = Recording;
        let result = forward();
        let time = nanoseconds(started, Instant::now());
        drop(recording);
        if let Some(pass) = PASS.take() {
            let calls = pass.calls.into_iter().map(|call| {
                let (start, end) = (call.start, call.end);
                let operation = call.cost.operation(&call.path, call.results);
                let next = self.positions.len();
                ProfiledCall { operation: *self.positions.entry(operation).or_insert(next), start, end }
            });
            let calls = calls.collect();
            self.passes.push(ProfiledPass { time, calls, modules: pass.modules });
        }
        result
    }

    /// The operations that calls refer to, and the passes.
    pub fn finish(self) -> (Vec<ProfiledOperation>, Vec<ProfiledPass>) {
        let mut operations: Vec<_> = self.positions.into_iter().collect();
        operations.sort_unstable_by_key(|(_, position)| *position);
        (operations.into_iter().map(|(operation, _)| operation).collect(), self.passes)
    }
}
