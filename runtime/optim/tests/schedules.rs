//! Records of schedules are Burn's, byte for byte. The bytes are written down here by what Burn 0.20 keeps (its fields, their
//! types and what they hold after a step) and by its format (bincode with integers of variable length, signed ones zigzag).

use kiln_core::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use kiln_ndarray::NdArray;
use kiln_optim::lr_scheduler::LrScheduler;
use kiln_optim::lr_scheduler::composed::ComposedLrSchedulerConfig;
use kiln_optim::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use kiln_optim::lr_scheduler::exponential::ExponentialLrSchedulerConfig;
use kiln_optim::lr_scheduler::linear::LinearLrSchedulerConfig;
use kiln_optim::lr_scheduler::noam::NoamLrSchedulerConfig;
use kiln_optim::lr_scheduler::one_cycle::OneCycleLrSchedulerConfig;
use kiln_optim::lr_scheduler::step::StepLrSchedulerConfig;

type B = NdArray;

const RECORDER: fn() -> BinBytesRecorder<FullPrecisionSettings> = BinBytesRecorder::default;

/// What stands before every record: of what kind it is.
fn head() -> Vec<u8> {
    let mut bytes = Recorder::<B>::record(&RECORDER(), 0_usize, ()).expect("a record");
    bytes.pop();
    bytes
}

/// Checks the record of a schedule after each number of steps, and that it goes on from such a record.
fn check<S: LrScheduler>(schedule: S, records: &[&[u8]]) {
    let mut stepped = schedule.clone();
    for (steps, expected) in records.iter().enumerate() {
        let bytes = Recorder::<B>::record(&RECORDER(), stepped.to_record::<B>(), ()).expect("a record");
        let expected = [&head()[..], expected].concat();
        assert_eq!(bytes, expected, "after {steps} steps");
        let record = Recorder::<B>::load(&RECORDER(), expected, &Default::default()).expect("a record");
        let mut resumed = schedule.clone().load_record::<B>(record);
        assert_eq!(resumed.step(), stepped.step(), "the step after {steps}");
    }
}

/// `u64::MAX`, which Burn counts up from.
const MAX: [u8; 9] = [253, 255, 255, 255, 255, 255, 255, 255, 255];

#[test]
fn records_are_burns() {
    check(
        LinearLrSchedulerConfig::new(0.9, 0.5, 2).init().expect("a schedule"),
        &[&[3], &[2], &[1], &[0], &[0]],
    );
    let rates = [1.0_f64, 0.5, 0.25].map(f64::to_le_bytes);
    let [before, first, second] = &rates;
    check(ExponentialLrSchedulerConfig::new(0.5, 0.5).init().expect("a schedule"), &[before, first, second]);
    let cosine = CosineAnnealingLrSchedulerConfig::new(0.5, 2);
    check(cosine.init().expect("a schedule"), &[&MAX, &[0], &[1], &[2], &[0]]);
    // -1, 0, 1, 2
    check(StepLrSchedulerConfig::new(3.1, 2).init().expect("a schedule"), &[&[1], &[0], &[2], &[4]]);
    check(NoamLrSchedulerConfig::new(0.5).init().expect("a schedule"), &[&[0], &[1], &[2]]);
}

/// A struct of a list of variants, which are numbered.
#[test]
fn records_of_composed_schedules_are_burns() {
    let schedule = ComposedLrSchedulerConfig::new()
        .linear(LinearLrSchedulerConfig::new(0.9, 0.5, 2))
        .exponential(ExponentialLrSchedulerConfig::new(0.5, 0.5))
        .noam(NoamLrSchedulerConfig::new(0.5))
        .init()
        .expect("a schedule");
    let [before, first] = [1.0_f64, 0.5].map(f64::to_le_bytes);
    let record = |linear: u8, rate: &[u8], noam: u8| [&[3, 0, linear, 2], rate, &[3, noam]].concat();
    check(schedule, &[&record(3, &before, 0), &record(2, &first, 1)]);
}

/// Burn writes the record of a part that is a cosine as that of a line.
#[test]
fn a_cosine_goes_on_from_what_burn_writes() {
    let cosine = CosineAnnealingLrSchedulerConfig::new(0.5, 2);
    let mut expected = cosine.init().expect("a schedule");
    expected.step();
    let bytes = [&head()[..], &[1, 0, 0]].concat();
    let record = Recorder::<B>::load(&RECORDER(), bytes, &Default::default()).expect("a record");
    let schedule = ComposedLrSchedulerConfig::new().cosine(cosine).init().expect("a schedule");
    assert_eq!(schedule.load_record::<B>(record).step(), expected.step());
}

/// A record of other parts is told before it is loaded.
#[test]
fn records_of_other_schedules_are_refused() {
    let linear = LinearLrSchedulerConfig::new(0.9, 0.5, 2);
    let composed = ComposedLrSchedulerConfig::new().linear(linear.clone());
    let one = composed.clone().init().expect("a schedule");
    let two = composed.linear(linear).init().expect("a schedule");
    let noam =
        ComposedLrSchedulerConfig::new().noam(NoamLrSchedulerConfig::new(0.5)).init().expect("a schedule");
    let record = one.to_record::<B>();
    assert!(one.check_record::<B>(&record).is_ok());
    let error =
        |refused: Result<(), kiln_core::record::RecorderError>| refused.expect_err("other parts").to_string();
    assert!(error(two.check_record::<B>(&record)).contains("of 1 parts, and this one has 2"));
    assert!(error(noam.check_record::<B>(&record)).contains("has Linear"));
    // Of a schedule of ten steps, which would begin this one at a rate of 2.5.
    let long = LinearLrSchedulerConfig::new(0.9, 0.5, 10).init().expect("a schedule");
    let mut short = LinearLrSchedulerConfig::new(0.9, 0.5, 2).init().expect("a schedule");
    let record = long.to_record::<B>();
    let refused = error(short.check_record::<B>(&record));
    assert!(refused.contains("has 10 iterations to go, and this one has 2:"), "{refused}");
    assert_eq!(short.load_record::<B>(record).step(), 0.9);
    short.step();
    assert!(short.check_record::<B>(&short.to_record::<B>()).is_ok());
}

/// Steps that no training has taken end nothing, and count on where they can.
#[test]
fn records_of_all_steps_there_are_are_taken_up() {
    let mut noam = NoamLrSchedulerConfig::new(0.5).init().expect("a schedule").load_record::<B>(usize::MAX);
    assert!((0.0..1e-3).contains(&noam.step()));
    let cycle = OneCycleLrSchedulerConfig::new(0.5, 6).init().expect("a schedule");
    let mut cycle = cycle.load_record::<B>(usize::MAX);
    let last = cycle.step();
    assert_eq!(last, cycle.step());
}
