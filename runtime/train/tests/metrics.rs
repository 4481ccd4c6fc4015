//! Metrics against values computed by hand from their definitions.
#![allow(refining_impl_trait)]

use kiln_core::Tensor;
use kiln_core::tensor::{Bool, Int};
use kiln_ndarray::NdArray;
use kiln_train::metric::state::{FormatOptions, NumericMetricState};
use kiln_train::metric::vision::{DiceInput, DiceMetric, DiceMetricConfig};
use kiln_train::metric::*;
use kiln_train::{ClassificationOutput, MultiLabelClassificationOutput, RegressionOutput};

type B = NdArray;

/// Four items of three classes. The highest scores are 0, 1, 2, 0; the targets 0, 2, 2, 1.
fn classified() -> ClassificationOutput<B> {
    let device = Default::default();
    let scores = [[3.0, 1.0, 2.0], [0.0, 2.0, 1.0], [1.0, 2.0, 4.0], [5.0, 1.0, 3.0]];
    ClassificationOutput::new(
        Tensor::from_floats([0.75], &device),
        Tensor::from_floats(scores, &device),
        Tensor::from_ints([0, 2, 2, 1], &device),
    )
}

/// The value of a step, how many items it is of, and what people read.
fn step<M: Metric + Numeric, T: Adaptor<M::Input>>(metric: &mut M, item: &T) -> (f64, usize, String) {
    let metadata = MetricMetadata { lr: Some(0.25), iteration: 1, ..MetricMetadata::default() };
    let entry: MetricEntry = metric.update(&item.adapt(), &metadata).into();
    let value: NumericEntry = metric.value().into();
    assert_eq!(NumericEntry::deserialize(&entry.serialize), Ok(value), "what is logged is the value");
    (value.current(), value.count(), entry.formatted)
}

fn assert_value<M: Metric + Numeric, T: Adaptor<M::Input>>(mut metric: M, item: &T, expected: (f64, usize)) {
    let name: MetricName = metric.name().into();
    let (value, count, _) = step(&mut metric, item);
    assert!((value - expected.0).abs() < 1e-4, "{name}: {value} instead of {}", expected.0);
    assert_eq!(count, expected.1, "{name}");
    metric.clear();
    assert_eq!(step(&mut metric, item).0, value, "{name}: cleared");
}

#[test]
fn classes() {
    let item = classified();
    assert_value(AccuracyMetric::new(), &item, (50.0, 4));
    // Without the items of class 2: one of two is right.
    assert_value(AccuracyMetric::new().with_pad_token(2), &item, (50.0, 2));
    assert_value(AccuracyMetric::new().with_pad_token(1), &item, (200.0 / 3.0, 3));
    assert_value(TopKAccuracyMetric::new(1), &item, (50.0, 4));
    assert_value(TopKAccuracyMetric::new(2), &item, (75.0, 4));
    assert_value(TopKAccuracyMetric::new(5), &item, (100.0, 4));
    assert_value(TopKAccuracyMetric::new(2).with_pad_token(1), &item, (100.0, 3));
    assert_value(LossMetric::new(), &item, (0.75, 1));
    // By class: said 2, 1, 1; right 1, 0, 1; there are 1, 1, 2.
    let (micro, macro_) = (ClassReduction::Micro, ClassReduction::Macro);
    assert_value(PrecisionMetric::multiclass(1, micro), &item, (50.0, 4));
    assert_value(PrecisionMetric::multiclass(1, macro_), &item, (50.0, 4));
    assert_value(RecallMetric::multiclass(1, micro), &item, (50.0, 4));
    assert_value(RecallMetric::multiclass(1, macro_), &item, (50.0, 4));
    // F1 by class: 2/3, 0, 2/3.
    assert_value(FBetaScoreMetric::multiclass(1.0, 1, macro_), &item, (400.0 / 9.0, 4));
    // F2 by class: 5/(5+1), 0, 5/(5+4).
    let f2 = 100.0 * (5.0 / 6.0 + 5.0 / 9.0) / 3.0;
    assert_value(FBetaScoreMetric::multiclass(2.0, 1, macro_), &item, (f2, 4));
    // With two guesses each: 8 said, 3 right.
    assert_value(PrecisionMetric::multiclass(2, micro), &item, (37.5, 4));
    assert_value(RecallMetric::multiclass(2, micro), &item, (75.0, 4));
    // Class 0: its item's 3 is above 0 and 1 but not 5: 2 of 3 pairs. Class 1: 1 is below 2 and 2 and a tie with 1: 1/6.
    // Class 2: 1 and 4 against 2 and 3: 2 of 4 pairs.
    assert_value(AurocMetric::new(), &item, (100.0 * (2.0 / 3.0 + 1.0 / 6.0 + 0.5) / 3.0, 4));
}

#[test]
fn two_classes_and_one() {
    let device = Default::default();
    let input = AurocInput::<B>::new(
        Tensor::from_floats([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]], &device),
        Tensor::<B, 1, Int>::from_ints([0, 0, 1, 1], &device),
    );
    // scikit-learn's own example: an area of 0.75.
    let mut auroc = AurocMetric::<B>::new();
    let _: MetricEntry = auroc.update(&input, &MetricMetadata::default()).into();
    let value: NumericEntry = auroc.value().into();
    assert_eq!(value.current(), 75.0);

    let input = ConfusionStatsInput::<B>::new(
        Tensor::from_floats([[0.7], [0.2], [0.6], [0.4]], &device),
        Tensor::<B, 2, Bool>::from_bool([[true], [false], [false], [true]].into(), &device),
    );
    let mut precision = PrecisionMetric::<B>::binary(0.5);
    let mut recall = RecallMetric::<B>::binary(0.65);
    let _: MetricEntry = precision.update(&input, &MetricMetadata::default()).into();
    let _: MetricEntry = recall.update(&input, &MetricMetadata::default()).into();
    let (precision, recall): (NumericEntry, NumericEntry) = (precision.value().into(), recall.value().into());
    assert_eq!((precision.current(), recall.current()), (50.0, 50.0));
}

#[test]
fn labels() {
    let device = Default::default();
    let item = MultiLabelClassificationOutput::<B>::new(
        Tensor::from_floats([1.0], &device),
        Tensor::from_floats([[0.9, 0.1, 0.7], [0.2, 0.8, 0.6]], &device),
        Tensor::<B, 2, Int>::from_ints([[1, 0, 0], [1, 1, 1]], &device),
    );
    assert_value(HammingScore::new(), &item, (400.0 / 6.0, 2));
    assert_value(HammingScore::new().with_threshold(0.75), &item, (400.0 / 6.0, 2));
    // Every logit above 0 is above a half then.
    assert_value(HammingScore::new().with_sigmoid(true), &item, (400.0 / 6.0, 2));
    let (micro, macro_) = (ClassReduction::Micro, ClassReduction::Macro);
    assert_value(PrecisionMetric::multilabel(0.5, micro), &item, (75.0, 2));
    assert_value(RecallMetric::multilabel(0.5, micro), &item, (75.0, 2));
    assert_value(PrecisionMetric::multilabel(0.5, macro_), &item, (250.0 / 3.0, 2));
    assert_value(FBetaScoreMetric::multilabel(1.0, 0.5, micro), &item, (75.0, 2));
}

#[test]
fn numbers() {
    let device = Default::default();
    let item = RegressionOutput::<B>::new(
        Tensor::from_floats([2.5], &device),
        Tensor::zeros([2, 1], &device),
        Tensor::ones([2, 1], &device),
    );
    assert_value(LossMetric::new(), &item.sync(), (2.5, 1));
    // Two tokens of even odds among two and four: exp((ln 2 + ln 4) / 2).
    let ninf = f32::NEG_INFINITY;
    let item = ClassificationOutput::<B>::new(
        Tensor::from_floats([1.0], &device),
        Tensor::from_floats([[0.0, 0.0, ninf, ninf], [1.0, 1.0, 1.0, 1.0]], &device),
        Tensor::from_ints([1, 3], &device),
    );
    assert_value(PerplexityMetric::new(), &item.clone().sync(), (8.0_f64.sqrt(), 2));
    assert_value(PerplexityMetric::new().with_pad_token(3), &item.sync(), (2.0, 1));
    // Padding that is no token of the vocabulary.
    let item = ClassificationOutput::<B>::new(
        Tensor::from_floats([1.0], &device),
        Tensor::from_floats([[0.0, 0.0, ninf, ninf], [1.0, 1.0, 1.0, 1.0]], &device),
        Tensor::from_ints([1, 50_000], &device),
    );
    assert_value(PerplexityMetric::new().with_pad_token(50_000), &item.sync(), (2.0, 1));
    let (lr, _, formatted) = step(&mut LearningRateMetric::new(), &());
    assert_eq!((lr, formatted.as_str()), (0.25, "0.250000"));
}

/// A metric as the book writes one, and one with what Burn 0.20 calls these things.
#[derive(Default)]
struct LargestScore {
    state: NumericMetricState,
}

impl Metric for LargestScore {
    type Input = AccuracyScores;

    fn name(&self) -> String {
        "Largest score".to_string()
    }

    fn update(&mut self, item: &Self::Input, _metadata: &MetricMetadata) -> MetricEntry {
        self.state.update(item.0, 1, FormatOptions::new(self.name()).precision(2))
    }

    fn clear(&mut self) {
        self.state.reset()
    }
}

impl Numeric for LargestScore {
    fn value(&self) -> f64 {
        self.state.value()
    }
}

struct AccuracyScores(f64);

impl Adaptor<AccuracyScores> for ClassificationOutput<B> {
    fn adapt(&self) -> AccuracyScores {
        AccuracyScores(self.output.clone().max().into_scalar().into())
    }
}

#[derive(Clone)]
struct Named {
    name: MetricName,
    state: NumericMetricState,
}

impl Metric for Named {
    type Input = AccuracyScores;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn update(&mut self, item: &Self::Input, _metadata: &MetricMetadata) -> SerializedEntry {
        self.state.update(item.0, 2, FormatOptions::new(self.name()).unit("points"))
    }

    fn clear(&mut self) {
        self.state.reset()
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: Some("points".to_string()), higher_is_better: true }.into()
    }
}

impl Numeric for Named {
    fn value(&self) -> NumericEntry {
        self.state.current_value()
    }

    fn running_value(&self) -> NumericEntry {
        self.state.running_value()
    }
}

#[test]
fn metrics_of_ones_own() {
    let mut metric = LargestScore::default();
    let entry = metric.update(&classified().adapt(), &MetricMetadata::default());
    assert_eq!((entry.name.as_str(), entry.formatted.as_str()), ("Largest score", "epoch 5.00 - batch 5.00"));
    assert_eq!(metric.value(), 5.0);
    let mut metric = Named { name: "Named".to_string().into(), state: NumericMetricState::new() };
    let entry = metric.update(&classified().adapt(), &MetricMetadata::default());
    assert_eq!(entry.formatted, "epoch 5 points - batch 5 points");
    assert_eq!((metric.value().count(), entry.serialized.as_str()), (2, "5,2"));
}

/// What is a metric's input already.
struct Input<T>(T);

impl Adaptor<CerInput<B>> for Input<CerInput<B>> {
    fn adapt(&self) -> CerInput<B> {
        self.0.clone()
    }
}

impl Adaptor<DiceInput<B>> for Input<DiceInput<B>> {
    fn adapt(&self) -> DiceInput<B> {
        self.0.clone()
    }
}

#[test]
fn errors_of_sequences() {
    let device = Default::default();
    // One replaced of 4; one left out and one inserted of 4, or, up to the 0, one inserted after 3.
    let outputs = [[1, 2, 9, 4], [6, 7, 8, 5]];
    let targets = [[1, 2, 3, 4], [6, 7, 8, 0]];
    let input =
        Input(CerInput::<B>::new(Tensor::from_ints(outputs, &device), Tensor::from_ints(targets, &device)));
    // An epoch's mean weighs a batch by how long its targets are.
    assert_value(CharErrorRate::<B>::new(), &input, (25.0, 8));
    assert_value(CharErrorRate::<B>::new().with_pad_token(0), &input, (200.0 / 7.0, 7));
    assert_value(WordErrorRate::<B>::new().with_pad_token(6), &input, (25.0, 4));
}

#[test]
fn masks() {
    let device = Default::default();
    // The background agrees in 1 of 2 + 1, the class in 2 of 2 + 3.
    let outputs = Tensor::<B, 4, Int>::from_ints([[[[1, 0], [1, 0]], [[0, 1], [0, 1]]]], &device);
    let targets = Tensor::from_ints([[[[1, 0], [0, 0]], [[0, 1], [1, 1]]]], &device);
    let input = Input(DiceInput::new(outputs.clone(), targets));
    assert_value(DiceMetric::<B>::new(), &input, (4.0 / 5.0, 1));
    let all = DiceMetricConfig { include_background: true, ..DiceMetricConfig::default() };
    assert_value(DiceMetric::<B>::with_config(all), &input, (6.0 / 8.0, 1));
    let empty = Input(DiceInput::new(outputs.zeros_like(), outputs.zeros_like()));
    assert_value(DiceMetric::<B>::new(), &empty, (1.0, 1));
}

/// Elements of tensors that do not belong together are not paired.
#[test]
fn shapes_that_do_not_fit_are_refused() {
    let device = Default::default();
    let scores = || Tensor::<B, 2>::zeros([4, 3], &device);
    let refused = |make: &dyn Fn()| {
        let message = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make)).expect_err("refused");
        message.downcast_ref::<String>().expect("a message").clone()
    };
    let classes = refused(&|| {
        ConfusionStatsInput::new(scores(), Tensor::from_bool([[true, false]; 4].into(), &device));
    });
    assert!(classes.contains("predictions are [4, 3], targets [4, 2]"), "{classes}");
    let items = refused(&|| {
        AurocInput::new(scores(), Tensor::from_ints([0, 1, 2], &device));
    });
    assert!(items.contains("outputs are [4, 3], targets [3]"), "{items}");
    let texts = refused(&|| {
        CerInput::<B>::new(Tensor::from_ints([[1, 2]], &device), Tensor::from_ints([[1], [2]], &device));
    });
    assert!(texts.contains("outputs are [1, 2], targets [2, 1]"), "{texts}");
}
