//! Chains, places and learning, on a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use qfabric_energy::{Approximation, evaluate};

use super::super::corpus::Content;
use super::super::{Crop, Gray, Huffman, Image, Lz77, MAX_PIXEL_BYTES, Reduce, receive};
use super::*;

const COSTS: Costs = Costs { run_w: 0.6, data_j_per_kb: 1e-3, sleep_j_per_kb: 0.0, selection_j: 0.0 };

/// Measurements of a transcoder that takes `ms_per_kb` and leaves `ratio`.
fn table(ms_per_kb: f64, ratio: f64) -> TranscoderTable {
    let entry =
        |input_kb: f64| Measurement { input_kb, output_kb: ratio * input_kb, run_s: ms_per_kb * input_kb / 1e3 };
    TranscoderTable::new(&[10.0, 100.0, 1_000.0].map(entry), Approximation::Linear).unwrap()
}

fn setting(transcoder: impl Transcoder + 'static, ms_per_kb: f64, ratio: f64) -> Setting {
    Setting { transcoder: Box::new(transcoder), table: table(ms_per_kb, ratio) }
}

fn stage(is_mandatory: bool, setting: Setting) -> Stage {
    Stage { is_mandatory, settings: vec![setting] }
}

/// Crop is mandatory, gray and the two compressions are optional.
fn pipeline() -> Pipeline {
    let compression = vec![setting(Huffman, 0.2, 0.9), setting(Lz77, 0.4, 0.7)];
    let stages = vec![
        stage(true, setting(Crop::new(50), 0.3, 0.5)),
        stage(false, setting(Gray, 0.1, 1.0 / 3.0)),
        Stage { is_mandatory: false, settings: compression },
    ];
    Pipeline::new(stages, COSTS, COSTS).unwrap().with_clock(|| Duration::ZERO)
}

fn photo() -> Image {
    Content::Photo.image(100.0, 7)
}

#[test]
fn the_receiver_learns_what_was_applied_and_gets_the_same_picture_from_either_place() {
    let mut pictures = Vec::new();
    for (place, applied, left) in
        [(Place::Sender, vec!["crop:50", "gray"], vec![]), (Place::Receiver, vec!["gray"], vec!["crop:50"])]
    {
        let mut pipeline = pipeline();
        pipeline.set_place(place);
        let sent = pipeline.prepare(Data::Image(photo())).unwrap();
        let received = receive(&sent.payload, &mut [], MAX_PIXEL_BYTES).unwrap();
        assert_eq!(
            (&received.header.left, &received.header),
            (&left.iter().map(|s: &&str| s.to_string()).collect(), &sent.header)
        );
        assert!(applied.iter().all(|name| received.header.applied.iter().any(|one| one == name)), "{received:?}");
        let Data::Image(picture) = received.data else { panic!("no picture") };
        pictures.push(picture);
    }
    assert_eq!(pictures[0], pictures[1], "gray and crop commute");
    assert!(pictures[0].pixels().len() < photo().pixels().len() / 5);
}

#[test]
fn an_optional_transcoder_whose_real_run_is_dear_is_left_out_after_it_was_learned() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = now.clone();
    // Each look at the clock takes 20 ms, so each run seems to take 20 ms: 12 mJ for at most 67 mJ saved.
    let clock = move || Duration::from_millis(clock.fetch_add(200, Ordering::Relaxed));
    let stages = vec![stage(false, setting(Gray, 0.01, 1.0 / 3.0))];
    let mut pipeline = Pipeline::new(stages, COSTS, COSTS).unwrap().with_clock(clock);
    let mut applied = (0..20).map(|_| !pipeline.prepare(Data::Image(photo())).unwrap().header.applied.is_empty());
    let first: Vec<bool> = applied.by_ref().collect();
    assert!(first[0] && !first[19], "{first:?}");
}

/// A transcoder that always fails.
struct Failing;

impl Transcoder for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn apply(&mut self, _data: &Data) -> Result<Data, TranscodeError> {
        Err(TranscodeError::Own { name: "failing".into(), why: "no memory".into() })
    }
}

#[test]
fn a_failing_transcoder_is_left_out_if_it_is_optional_and_an_error_if_it_is_mandatory() {
    for is_mandatory in [false, true] {
        let stages = vec![stage(is_mandatory, setting(Failing, 0.01, 0.1))];
        let mut pipeline = Pipeline::new(stages, COSTS, COSTS).unwrap();
        match pipeline.prepare(Data::Image(photo())) {
            Ok(sent) => assert!(!is_mandatory && sent.header.applied.is_empty()),
            Err(error) => assert_eq!((is_mandatory, error.to_string()), (true, "failing: no memory".to_owned())),
        }
    }
}

#[test]
fn invalid_pipelines_are_refused_with_the_limit() {
    let refused = |stages| Pipeline::new(stages, COSTS, COSTS).err().unwrap().to_string();
    assert!(refused((0..9).map(|_| stage(false, setting(Gray, 1.0, 1.0))).collect()).contains("at most 8"));
    assert!(refused(vec![Stage { is_mandatory: true, settings: vec![] }]).contains("stage 0 has no setting"));
    let many = |_| Stage { is_mandatory: false, settings: (0..9).map(|_| setting(Gray, 1.0, 1.0)).collect() };
    assert!(refused((0..4).map(many).collect()).contains("10000 chains"));
}

#[test]
fn a_ladder_of_presets_is_one_stage_of_which_one_setting_runs() {
    let presets = [(20, 0.05), (40, 0.4), (80, 0.9)];
    let settings = presets.map(|(percent, ratio)| setting(Reduce::new(percent), 0.01, ratio));
    let stages = vec![Stage { is_mandatory: true, settings: settings.into() }];
    let mut pipeline = Pipeline::new(stages, COSTS, COSTS).unwrap().with_clock(|| Duration::ZERO);
    assert_eq!(pipeline.prepare(Data::Image(photo())).unwrap().header.applied, ["reduce:20"]);
}

#[test]
fn the_gains_for_the_directives_come_from_the_predictions() {
    let gains = pipeline().prepare(Data::Image(photo())).unwrap().gains;
    // 100 kB become 50 kB by the mandatory crop; the optional stages run at either place.
    assert!(gains.teq_s > 0.0 && gains.teq_r > 0.0, "{gains:?}");
    assert!((gains.e_rcvr - 0.6 * 0.03).abs() < 1e-3, "0.3 ms for each of 100 kB at 0.6 W: {gains:?}");
}

proptest! {
    #[test]
    fn the_chain_that_runs_is_that_of_brute_force(
        ratios in prop::collection::vec((0.01..1.0f64, 0.05..1.2f64, any::<bool>()), 1..6),
        size in 20.0..900.0f64,
    ) {
        let stages = ratios.iter().map(|(time, ratio, mandatory)| stage(*mandatory, setting(Gray, *time, *ratio)));
        let pipeline = Pipeline::new(stages.collect(), COSTS, COSTS).unwrap();
        let chosen = pipeline.predict(size);
        let flat: Vec<_> = pipeline.stages.iter().map(|stage| qfabric_energy::Transcoder {
            name: String::new(),
            is_mandatory: false,
            table: stage.settings[0].table.clone(),
        }).collect();
        let subsets = (0..1usize << ratios.len()).filter(|set| {
            ratios.iter().enumerate().all(|(at, (_, _, mandatory))| !mandatory || set & (1 << at) != 0)
        });
        let teq = |set: usize| {
            let chain: Vec<usize> = (0..ratios.len()).filter(|at| set & (1 << at) != 0).collect();
            if chain.is_empty() { 0.0 } else { evaluate(&flat, &chain, size, &COSTS).teq_j }
        };
        let most = subsets.map(teq).fold(f64::MIN, f64::max);
        prop_assert!((chosen.teq_j - most).abs() < 1e-12, "{} {}", chosen.teq_j, most);
    }

    #[test]
    fn arbitrary_events_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), name in "[a-z:0-9]{1,10}") {
        let mut event = Vec::new();
        Header { applied: vec!["huffman".into(), name], left: vec!["crop:40".into()] }.encode(&mut event);
        event.extend(bytes);
        if let Ok(received) = receive(&event, &mut [], 10_000) {
            prop_assert!(received.data.length() <= 10_000);
        }
    }
}
