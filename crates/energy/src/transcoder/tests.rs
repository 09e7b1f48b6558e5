//! Figures 46, 48 and 52 and Table 4, with run times derived from Table 4 (0.16, 0.31 and 0.27 ms for each kilobyte), and
//! the selection against brute force.

use proptest::prelude::*;

use super::*;
use crate::clock::work_cost;
use crate::model::Model;

/// Sizes of the off-line measurements, kB: between 1 and 900 (§6.2.3).
const SIZES: [f64; 18] = [
    1.0, 5.0, 10.0, 25.0, 58.0, 100.0, 150.0, 200.0, 230.0, 300.0, 360.0, 420.0, 470.0, 518.0, 600.0, 700.0, 800.0,
    900.0,
];

fn transcoder(name: &str, ms_per_kb: f64, ratio: f64, approximation: Approximation) -> Transcoder {
    let measured =
        SIZES.map(|input_kb| Measurement { input_kb, output_kb: ratio * input_kb, run_s: ms_per_kb * input_kb / 1e3 });
    let table = TranscoderTable::new(&measured, approximation).unwrap();
    Transcoder { name: name.into(), is_mandatory: false, table }
}

fn gray() -> Transcoder {
    transcoder("gray", 0.16, 1.0 / 3.0, Approximation::Linear)
}

/// Its run time grows with the part that remains.
fn crop(ratio: f64) -> Transcoder {
    transcoder("crop", 0.31 * ratio / 0.25, ratio, Approximation::Linear)
}

/// The iPAQ at its highest clock, as in all measurements of chapter 6: active energy, without the card's sleep.
fn ipaq() -> Costs {
    let model = Model::shipped("ipaq-h3870-orinoco").unwrap();
    let data_j_per_kb = model.radio.send_j_per_kb(&model.cpu);
    Costs {
        run_w: work_cost(&model.cpu, model.cpu.highest(), 0.0),
        data_j_per_kb,
        sleep_j_per_kb: 0.0,
        selection_j: 1e-6,
    }
}

#[test]
fn gray_saves_energy_from_58_kilobytes_on_and_in_proportion_to_the_size() {
    let teq = |size| evaluate(&[gray()], &[0], size, &ipaq()).teq_j;
    assert!([58.0, 230.0, 518.0].iter().all(|&size| teq(size) > 0.0), "Figure 46");
    assert!((teq(518.0) / teq(230.0) - 518.0 / 230.0).abs() < 0.01);
}

#[test]
fn a_smaller_crop_saves_more_and_crosses_gray() {
    let teq = |transcoder: Transcoder| evaluate(&[transcoder], &[0], 518.0, &ipaq()).teq_j;
    let ratios: Vec<f64> = (1..=10).map(|tenth| f64::from(tenth) / 10.0).collect();
    let saved: Vec<f64> = ratios.iter().map(|&ratio| teq(crop(ratio))).collect();
    assert!(saved.windows(2).all(|pair| pair[0] > pair[1]), "Figure 46: {saved:?}");
    let crossing = ratios.iter().zip(&saved).filter(|(_, saved)| **saved > teq(gray())).map(|(ratio, _)| *ratio);
    let crossing = crossing.fold(0.0, f64::max);
    assert!((0.2..=0.5).contains(&crossing), "Figure 52: crop beats gray up to {crossing}");
}

/// Crop works on pixels, whatever their bytes: behind gray its run time for each kilobyte is three times as long.
#[test]
fn crop_before_gray_costs_less_than_gray_before_crop() {
    let behind_gray = transcoder("crop", 3.0 * 0.31, 0.25, Approximation::Linear);
    let all = [gray(), crop(0.25), behind_gray];
    let cost = |chain: &[usize]| evaluate(&all, chain, 230.0, &ipaq());
    let (gray_first, crop_first) = (cost(&[0, 2]), cost(&[1, 0]));
    assert!((gray_first.output_kb - crop_first.output_kb).abs() < 1e-9, "Figure 48");
    assert!(gray_first.run_s >= 1.2 * crop_first.run_s, "{gray_first:?}, {crop_first:?}");
    assert!(crop_first.teq_j > gray_first.teq_j, "{gray_first:?}, {crop_first:?}");
    let chains = [vec![0, 2], vec![1, 0]];
    assert_eq!(select(&all, &chains, 230.0, &ipaq()).unwrap().chain, [1, 0]);
}

#[test]
fn predictions_between_entries_deviate_as_little_as_in_table_4() {
    for (approximation, most) in [(Approximation::Linear, 0.01), (Approximation::Mean, 0.30)] {
        let gray = transcoder("gray", 0.16, 1.0 / 3.0, approximation);
        let sizes = (0..100).map(|n| 30.0 + 8.7 * f64::from(n));
        let deviations: Vec<f64> =
            sizes.map(|kb| (gray.table.predict(kb).run_s / (0.16e-3 * kb) - 1.0).abs()).collect();
        let mean = deviations.iter().sum::<f64>() / 100.0;
        assert!(mean <= most, "{approximation:?}: {mean}");
    }
}

#[test]
fn a_table_learns_and_stays_bounded() {
    let mut table = gray().table;
    let slow = Measurement { input_kb: 230.0, output_kb: 100.0, run_s: 0.1 };
    (0..40).for_each(|_| table.learn(slow).unwrap());
    let learned = table.predict(230.0);
    assert!((learned.run_s - 0.1).abs() < 1e-4 && (learned.output_kb - 100.0).abs() < 0.1);
    for n in 1..1_000 {
        table.learn(Measurement { input_kb: 1.3f64.powi(n % 80), output_kb: 1.0, run_s: 0.0 }).unwrap();
    }
    assert!(table.entries.len() <= MAX_ENTRIES);
    let refusal = table.learn(Measurement { input_kb: 0.0, ..slow }).unwrap_err().to_string();
    assert!(refusal.contains("input_kb is 0"), "{refusal}");
    assert!(table.learn(Measurement { run_s: f64::NAN, ..slow }).is_err());
}

#[test]
fn a_mandatory_transcoder_is_in_every_chosen_chain() {
    let expensive = transcoder("expensive", 50.0, 0.9, Approximation::Linear);
    let pair = [gray(), Transcoder { is_mandatory: true, ..expensive }];
    let chains = [vec![0], vec![1], vec![0, 1]];
    let chosen = select(&pair, &chains, 230.0, &ipaq()).unwrap();
    assert!(chosen.chain.contains(&1) && chosen.teq_j < 0.0);
    assert_eq!(select(&pair, &chains[..1], 230.0, &ipaq()), None);
}

fn arbitrary() -> impl Strategy<Value = Vec<Transcoder>> {
    let one =
        (0.01..3.0f64, 0.05..1.2f64).prop_map(|(time, ratio)| transcoder("any", time, ratio, Approximation::default()));
    prop::collection::vec(one, 1..=4)
}

/// All sequences of different transcoders.
fn all_chains(count: usize) -> Vec<Vec<usize>> {
    let mut chains: Vec<Vec<usize>> = vec![Vec::new()];
    let mut at = 0;
    while at < chains.len() {
        for next in (0..count).filter(|next| !chains[at].contains(next)).collect::<Vec<_>>() {
            let longer = [chains[at].clone(), vec![next]].concat();
            chains.push(longer);
        }
        at += 1;
    }
    chains.split_off(1)
}

proptest! {
    #[test]
    fn the_chosen_chain_is_that_of_brute_force(transcoders in arbitrary(), size in 1.0..900.0f64) {
        let (chains, costs) = (all_chains(transcoders.len()), ipaq());
        let chosen = select(&transcoders, &chains, size, &costs).unwrap();
        let teqs = chains.iter().map(|chain| evaluate(&transcoders, chain, size, &costs).teq_j);
        prop_assert_eq!(chosen.teq_j, teqs.fold(0.0, f64::max));
    }
}
