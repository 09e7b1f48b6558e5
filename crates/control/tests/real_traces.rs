//! Compares the hint predictor with the paper's own predictors on real decoding traces. Deterministic: the traces
//! are recordings (`traces/*.trace`; the head of each tells how it was measured). Run with `--nocapture` for the
//! table. Setting for all clips: P = 2.5 ms, T = 40 ms, e = 0.2 T, E = 0, ρ = 1, left end, Q̄ = 95 %.

use qfabric_control::replay::{Score, Setup};
use qfabric_control::traces;
use qfabric_types::{Choice, Nanos};

const CLIPS: [(&str, &str); 3] = [
    ("H.264 1080p, GOP 12", traces::H264_GROUPS),
    ("H.264 1080p, mixed GOP", traces::H264_MIXED),
    ("MPEG-2 1440p, GOP 12", traces::MPEG2),
];
const RIVALS: [&str; 7] = ["ma:3", "ma:12", "mma:3,3", "mma:3,12", "ol:36,60", "ol:45,120", "ol:15,180"];

type Trace = Vec<(f64, Option<f64>)>;

fn read(text: &str) -> Trace {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (cost, bytes) = line.split_once(' ').expect("a line has a cost and a hint");
            (cost.parse().unwrap(), Some(bytes.parse().unwrap()))
        })
        .collect()
}

fn setup(predictor: &str) -> Setup {
    Setup {
        period: Nanos::from_millis(40),
        server_period: Nanos::new(2_500_000),
        predictor: predictor.parse().unwrap(),
        rho: 1.0,
        choice: Choice::Left,
        early: 0.2,
        late: 0.0,
        max_bandwidth: 0.95,
    }
}

fn ratio(score: &Score) -> f64 {
    score.mean_bandwidth / score.mean_demand
}

fn show(name: &str, score: &Score) {
    let (p, late) = (100.0 * score.in_target, 100.0 * score.late);
    println!("  {name:<10} {p:6.1} % in target  {:5.2}x the mean demand  {late:5.1} % late", ratio(score));
}

#[test]
fn the_hint_predictor_keeps_eighty_percent_in_target_at_1_15_times_the_demand() {
    for (clip, text) in CLIPS {
        let score = Score::of(&setup("hint:24"), read(text));
        println!("{clip}");
        show("hint:24", &score);
        assert!(score.in_target >= 0.80, "{clip}: {score:?}");
        assert!(ratio(&score) <= 1.15, "{clip}: {score:?}");
    }
}

#[test]
fn hint_beats_the_papers_predictors_by_ten_points_at_no_more_bandwidth() {
    for (clip, text) in CLIPS {
        let trace = read(text);
        let hint = Score::of(&setup("hint:24"), trace.clone());
        println!("{clip}");
        show("hint:24", &hint);
        for rival in RIVALS {
            let score = Score::of(&setup(rival), trace.clone());
            show(rival, &score);
            assert!(hint.in_target >= score.in_target + 0.10, "{clip}, {rival}: {score:?}");
            assert!(hint.mean_bandwidth <= score.mean_bandwidth, "{clip}, {rival}: {score:?}");
        }
    }
}

#[test]
fn the_result_does_not_depend_on_the_order_of_the_scenes() {
    for (clip, text) in CLIPS {
        let trace = read(text);
        let half = trace.len() / 2;
        let quarters: Vec<&[(f64, Option<f64>)]> = trace.chunks(trace.len() / 4).collect();
        let orders: [(&str, Trace); 4] = [
            ("first half", trace[..half].to_vec()),
            ("second half", trace[half..].to_vec()),
            ("halves swapped", [&trace[half..], &trace[..half]].concat()),
            ("scenes shuffled", [quarters[2], quarters[0], quarters[3], quarters[1]].concat()),
        ];
        println!("{clip}");
        for (order, trace) in orders {
            let score = Score::of(&setup("hint:24"), trace);
            show(order, &score);
            assert!(score.in_target >= 0.75 && ratio(&score) <= 1.17, "{clip}, {order}: {score:?}");
        }
    }
}

#[test]
fn the_result_does_not_depend_on_the_exact_window() {
    for (clip, text) in CLIPS {
        println!("{clip}");
        for window in ["hint:12", "hint:16", "hint:24", "hint:36", "hint:60"] {
            let score = Score::of(&setup(window), read(text));
            show(window, &score);
            assert!(score.in_target >= 0.80 && ratio(&score) <= 1.17, "{clip}, {window}: {score:?}");
        }
    }
}
