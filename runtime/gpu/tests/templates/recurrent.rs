//! Recurrent layers, whole and step by step.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::recurrent::{Recurrent, RecurrentStep, StepPart};
use kiln_tensor::{Activation, DType, RnnKind};

pub fn layers(dtypes: &[DType; 2]) -> Vec<Template> {
    let clip = |bound: f64| Activation::Clamp { min: -bound, max: bound };
    let kinds = [
        RnnKind::Rnn,
        RnnKind::Gru { linear_before_reset: true },
        RnnKind::Gru { linear_before_reset: false },
        RnnKind::Lstm { input_forget: true },
        RnnKind::Lstm { input_forget: false },
    ];
    let mut all: Vec<Template> = Vec::new();
    for kind in kinds {
        for (dtype, hidden, full) in [(dtypes[0], 64, false), (dtypes[1], 300, true)] {
            let lstm = matches!(kind, RnnKind::Lstm { .. });
            let apart = matches!(kind, RnnKind::Gru { linear_before_reset: true });
            let recurrent = Recurrent {
                dtype,
                kind,
                hidden,
                clip: full.then_some(clip(3.0)),
                state_clip: full.then_some(clip(0.5)),
                activations: kind.activations().to_vec(),
                bias: full && apart,
                peepholes: full && lstm,
                lengths: full,
            };
            for &part in StepPart::of(kind) {
                for (rows, fours) in [(1, true), (if dtype == DType::F64 { 4 } else { 8 }, !full)] {
                    all.push(RecurrentStep { layer: recurrent.clone(), part, rows, fours }.into());
                }
            }
            all.push(recurrent.into());
        }
    }
    all
}
