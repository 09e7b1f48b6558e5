//! OL[n,N]: `n` taps, computed once by least squares over `N` training jobs; no intercept. Afterwards O(n) per job;
//! the one solution costs O(N·n²) and is the only time at which this predictor allocates. Times in ns. Source:
//! AQuoSA 2009, §4.3.2. σ is the root mean square residual over the training set.
//!
//! Training gives `N − n` equations. If there are fewer equations than taps (as in the paper's own OL[36,60]), or
//! if they are dependent, the shortest solution is used: it is unique, and small taps amplify noise little.

use nalgebra::{DMatrix, DVector};

use super::window::{LANES, Recent};
use super::{Interval, Predictor};

/// `ol:n,N`.
#[derive(Clone, Debug)]
pub struct LeastSquares {
    training: usize,
    rho: f64,
    seen: Vec<f64>,
    recent: Recent,
    fit: Option<Fit>,
}

/// The result of training: `taps[j]` weighs the cost `taps.len() − j` jobs ago.
#[derive(Clone, Debug)]
struct Fit {
    taps: Vec<f64>,
    rms_ns: f64,
}

impl LeastSquares {
    /// `taps` (at least 1) from `training` jobs (more than `taps`), `rho` root mean squares to each side.
    pub fn new(taps: usize, training: usize, rho: f64) -> Self {
        let taps = taps.max(1);
        let training = training.max(taps + 1);
        LeastSquares { training, rho, seen: Vec::with_capacity(training), recent: Recent::new(taps), fit: None }
    }

    fn taps(&self) -> usize {
        self.recent.len()
    }
}

/// Computes the taps that best predict each sample from the `n` samples before it, and the remaining error.
fn train(seen: &[f64], n: usize) -> Fit {
    let rows = seen.len() - n;
    let past = DMatrix::from_fn(rows, n, |row, tap| seen[row + tap]);
    let next = DVector::from_fn(rows, |row, _| seen[row + n]);
    let taps = shortest_solution(&past, &next);
    let rms_ns = ((&past * &taps - next).norm_squared() / rows as f64).sqrt();
    Fit { taps: taps.as_slice().to_vec(), rms_ns }
}

/// The shortest `x` that minimises `|a·x − b|`, by the complete orthogonal decomposition: with `a·P = Q·R` and
/// `R`'s rows up to the rank as `S`, `Sᵀ = Z·T`, so `x = P·Z·T⁻ᵀ·Qᵀ·b`. It does not iterate: nalgebra's SVD stops
/// at a wrong decomposition for 3 of 200,000 such matrices (nalgebra issue 1172).
fn shortest_solution(a: &DMatrix<f64>, b: &DVector<f64>) -> DVector<f64> {
    let decomposed = a.clone().col_piv_qr();
    let r = decomposed.r();
    let diagonal: Vec<f64> = (0..r.nrows()).map(|row| r[(row, row)].abs()).collect();
    let smallest = diagonal[0] * f64::EPSILON * a.nrows().max(a.ncols()) as f64;
    let rank = diagonal.iter().take_while(|&&length| length > smallest).count();

    let narrow = r.rows(0, rank).transpose().qr();
    let known = decomposed.q().columns(0, rank).tr_mul(b);
    let inner = narrow.r().tr_solve_upper_triangular(&known).expect("the diagonal has no zero up to the rank");
    let mut x = narrow.q() * inner;
    decomposed.p().inv_permute_rows(&mut x);
    x
}

impl Predictor for LeastSquares {
    fn observe(&mut self, cost_ns: f64, _hint: Option<f64>) {
        self.recent.push(cost_ns);
        if self.fit.is_none() {
            self.seen.push(cost_ns);
            if self.seen.len() == self.training {
                self.fit = Some(train(&self.seen, self.taps()));
            }
        }
    }

    fn predict(&self, _hint: Option<f64>) -> Option<Interval> {
        let fit = self.fit.as_ref()?;
        let mean = dot(&fit.taps, self.recent.oldest_first());
        Some(Interval::around(mean, self.rho * fit.rms_ns))
    }
}

/// Adds [`LANES`] partial sums in parallel: a single sum would have to wait for its previous addition at every
/// step.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (x, y) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_periodic_sequence_is_learned_exactly() {
        let pattern = [30e6, 10e6, 11e6, 20e6, 9e6];
        let mut ol = LeastSquares::new(5, 30, 1.0);
        for k in 0..60 {
            let cost = pattern[k % 5];
            if k >= 30 {
                let costs = ol.predict(None).unwrap();
                assert!((costs.centre() - cost).abs() < 1.0 && costs.high - costs.low < 1.0, "job {k}: {costs:?}");
            }
            ol.observe(cost, None);
        }
    }

    #[test]
    fn fewer_equations_than_taps_give_the_shortest_solution() {
        let fit = train(&[4.0, 4.0, 4.0, 4.0], 3);
        assert!(fit.taps.iter().all(|tap| (tap - 1.0 / 3.0).abs() < 1e-12), "{:?}", fit.taps);
        assert!(fit.rms_ns < 1e-12);
    }

    /// The reduced input of a run in which nalgebra's SVD gave 0.216 for the first tap, in ms.
    const DEFEATING: [f64; 36] = [
        8.436_894_584_445_9,
        13.817455215611957,
        34.02104131301238,
        22.5615864401703,
        8.403981471862327,
        33.936469429687455,
        20.20005289607057,
        26.376636197455894,
        10.372324759456933,
        12.124209480772577,
        24.1155901593472,
        28.06117559957687,
        24.540_057_015_881_25,
        21.769074839615725,
        10.990744415076375,
        15.608158608966062,
        15.681285154938491,
        30.86239374495795,
        21.65335915033031,
        20.770505176244672,
        15.15762338867197,
        32.592_886_885_225_74,
        25.85126178421121,
        37.42329861426991,
        29.535352619263586,
        24.128701246260837,
        20.609_542_976_439_96,
        39.055637464909,
        39.91214849197155,
        23.584699646886554,
        36.197692505350344,
        3.37223841206538,
        23.18580763646379,
        9.649486583705667,
        31.807092057754893,
        1.0,
    ];

    #[test]
    fn a_matrix_that_defeats_an_iterative_svd_is_solved() {
        let fit = train(&DEFEATING.map(|cost| cost * 1e6), 5);
        assert!((fit.taps[0] - 0.2271665256).abs() < 1e-6, "{:?}", fit.taps);
    }

    #[test]
    fn a_training_set_of_zeros_predicts_zero() {
        let mut ol = LeastSquares::new(2, 6, 1.0);
        (0..6).for_each(|_| ol.observe(0.0, None));
        assert_eq!(ol.predict(None), Some(Interval { low: 0.0, high: 0.0 }));
    }

    proptest! {
        #[test]
        fn the_taps_solve_the_normal_equations(
            costs in prop::collection::vec(1e6f64..4e7, 24..60),
            n in 1usize..6,
        ) {
            let fit = train(&costs, n);
            let rows = costs.len() - n;
            let past = DMatrix::from_fn(rows, n, |row, tap| costs[row + tap]);
            let next = DVector::from_fn(rows, |row, _| costs[row + n]);
            let direct = (past.transpose() * &past).cholesky().unwrap().solve(&(past.transpose() * next));
            for (tap, expected) in fit.taps.iter().zip(direct.iter()) {
                prop_assert!((tap - expected).abs() < 1e-6, "got {tap}, expected {expected}");
            }
        }
    }
}
