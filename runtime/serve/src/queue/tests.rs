use super::*;
use kiln_core::Tensor;
use kiln_ndarray::NdArray;

const DELAY: Duration = Duration::from_millis(10);

fn queues() -> Queues<&'static str, ()> {
    Queues::new(Limits { max_batch_size: 4, max_queue_delay: DELAY, max_queue_size: 8 })
}

/// A request of so many rows of such a width.
fn shape(rows: usize, width: usize) -> (Signature, usize) {
    Signature::of(&Tensor::<NdArray, 2>::zeros([rows, width], &Default::default())).expect("a batch")
}

/// The names of the batch that a worker runs now.
fn run(queues: &mut Queues<&'static str, ()>, now: Instant) -> Vec<&'static str> {
    match queues.next(now) {
        Next::Run(batch) => batch.into_iter().map(|request| request.input).collect(),
        Next::WaitUntil(_) | Next::Wait | Next::End => Vec::new(),
    }
}

#[test]
fn a_request_waits_for_others_until_its_delay_is_over() {
    let (mut queues, start) = (queues(), Instant::now());
    let (_a, news) = queues.push(shape(1, 2), "a", start).expect("room");
    assert!(news, "somebody must wait for its deadline");
    let (_b, news) = queues.push(shape(1, 2), "b", start + DELAY / 2).expect("room");
    assert!(!news, "the deadline is still that of the first");
    assert!(matches!(queues.next(start + DELAY / 2), Next::WaitUntil(until) if until == start + DELAY));
    assert_eq!(run(&mut queues, start + DELAY), ["a", "b"]);
    assert!(matches!(queues.next(start + DELAY), Next::Wait));
}

#[test]
fn a_full_batch_goes_at_once_and_holds_whole_requests() {
    let (mut queues, start) = (queues(), Instant::now());
    let (_a, _) = queues.push(shape(3, 2), "a", start).expect("room");
    let (_b, news) = queues.push(shape(3, 2), "b", start).expect("room");
    assert!(news, "a batch is full");
    assert_eq!(run(&mut queues, start), ["a"]);
    assert!(matches!(queues.next(start), Next::WaitUntil(_)), "what is left is not full");
    let (_c, _) = queues.push(shape(1, 2), "c", start).expect("room");
    assert_eq!(run(&mut queues, start), ["b", "c"]);
}

#[test]
fn shapes_are_not_mixed_and_the_oldest_goes_first() {
    let (mut queues, start) = (queues(), Instant::now());
    let wait: Vec<_> = [("old", 1, 2), ("full", 4, 3), ("young", 1, 4)]
        .map(|(name, rows, width)| queues.push(shape(rows, width), name, start).expect("room"))
        .into();
    assert_eq!(run(&mut queues, start), ["full"]);
    // More of a busy shape, which is full again, comes behind those that waited long enough.
    let (_more, _) = queues.push(shape(4, 3), "full again", start + DELAY).expect("room");
    let order: Vec<_> = (0..3).flat_map(|_| run(&mut queues, start + DELAY)).collect();
    assert_eq!(order, ["old", "young", "full again"]);
    drop(wait);
}

#[test]
fn what_is_above_the_queue_is_refused_until_there_is_room() {
    let (mut queues, start) = (queues(), Instant::now());
    let (first, _) = queues.push(shape(4, 2), "a", start).expect("room");
    let (_b, _) = queues.push(shape(3, 3), "b", start).expect("room");
    let refused = queues.push(shape(2, 2), "c", start).expect_err("no room");
    assert!(matches!(refused, ServeError::Overloaded { rows: 2, waiting: 7, max_queue_size: 8 }));
    let refused = queues.push(shape(5, 2), "d", start).expect_err("too large");
    assert!(matches!(refused, ServeError::TooManyRows { rows: 5, max_batch_size: 4 }));
    // Who leaves makes room.
    drop(first);
    let (_c, _) = queues.push(shape(2, 2), "c", start).expect("room");
    assert_eq!((queues.waiting(), queues.take_removed()), (5, 1));
    let order: Vec<_> = (0..2).flat_map(|_| run(&mut queues, start + DELAY)).collect();
    assert_eq!(order, ["b", "c"]);
}

#[test]
fn what_waits_when_the_queues_close_is_ready() {
    let (mut queues, start) = (queues(), Instant::now());
    let (_a, _) = queues.push(shape(1, 2), "a", start).expect("room");
    queues.close();
    assert!(matches!(queues.push(shape(1, 2), "b", start), Err(ServeError::ShutDown)));
    assert_eq!(run(&mut queues, start), ["a"]);
    assert!(matches!(queues.next(start), Next::End));
}

#[test]
fn a_delay_that_no_clock_reaches_waits_for_a_full_batch() {
    let limits = Limits { max_batch_size: 2, max_queue_delay: Duration::MAX, max_queue_size: 2 };
    let (mut queues, start) = (Queues::new(limits), Instant::now());
    let (_a, _) = queues.push(shape(1, 2), "a", start).expect("room");
    assert!(matches!(queues.next(start), Next::Wait));
    let (_b, _) = queues.push(shape(1, 2), "b", start).expect("room");
    assert_eq!(run(&mut queues, start), ["a", "b"]);
}
