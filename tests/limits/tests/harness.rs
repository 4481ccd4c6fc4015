//! The limits themselves: who keeps them passes, who does not fails.

use kiln_limits_tests::{ANY_FILE, Limits, bounded, is_child, processor_time};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Work that must be said to be out of its bounds, and how.
fn refused<F: FnOnce() + Send + 'static>(limits: &Limits, work: F, reason: &str) {
    if is_child() {
        return limits.run(work);
    }
    let panic = catch_unwind(AssertUnwindSafe(|| limits.run(work))).expect_err("it is out of its bounds");
    let text = panic.downcast_ref::<String>().expect("a message");
    assert!(text.contains("went out of its bounds") && text.contains(reason), "{text}");
}

fn depth(n: usize) -> usize {
    let on_stack = black_box([n; 64]);
    if n == 0 { 0 } else { 1 + depth(n - 1).max(on_stack[0] - n) }
}

#[test]
fn little_is_allowed() {
    bounded(|| {
        assert_eq!(black_box(vec![1_u8; ANY_FILE.memory / 4]).len(), ANY_FILE.memory / 4);
        assert_eq!(depth(100), 100);
    });
}

#[test]
fn much_memory_is_not() {
    refused(&ANY_FILE, || drop(black_box(vec![1_u8; ANY_FILE.memory])), "memory allocation");
}

#[test]
fn a_deep_stack_is_not() {
    refused(
        &ANY_FILE,
        || assert_eq!(depth(ANY_FILE.stack / 512), ANY_FILE.stack / 512),
        "overflowed its stack",
    );
}

#[test]
fn a_panic_is_not() {
    refused(&ANY_FILE, || panic!("as it should"), "as it should");
}

#[test]
fn much_time_is_not() {
    let limits = Limits { time: Duration::from_millis(100), ..ANY_FILE };
    let work = || {
        let (start, clock) = (processor_time(), std::time::Instant::now());
        let used = || processor_time().map_or(clock.elapsed(), |now| now - start.unwrap_or_default());
        while black_box(used()) <= Duration::from_millis(150) {}
    };
    refused(&limits, work, "the limit is 100ms");
}
