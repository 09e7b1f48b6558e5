use proptest::prelude::*;

use super::*;

/// Levels with these increments of utility and of each amount.
fn table(increments: &[(u64, Vec<u64>)]) -> Vec<Level> {
    let resources = increments[0].1.len();
    let mut level = Level { value: 0, utility: 0, needs: vec![0; resources] };
    let grow = |(gain, needs): &(u64, Vec<u64>)| {
        level.value += 1;
        level.utility += gain;
        add(&mut level.needs, needs);
        level.clone()
    };
    increments.iter().map(grow).collect()
}

fn metric(resources: usize) -> impl Strategy<Value = Vec<Level>> {
    let increment = (0u64..100, prop::collection::vec(0u64..50, resources));
    prop::collection::vec(increment, 1..5).prop_map(|all| table(&all))
}

fn concave() -> impl Strategy<Value = Vec<Level>> {
    prop::collection::vec((0u64..100, 1u64..50), 1..6).prop_map(|mut all| {
        // The larger gain per amount first; the first level is the minimum.
        all.sort_by(|(g, n), (h, m)| (h * n).cmp(&(g * m)));
        table(&all.into_iter().map(|(gain, need)| (gain, vec![need])).collect::<Vec<_>>())
    })
}

fn tables(metric: impl Strategy<Value = Vec<Level>>) -> impl Strategy<Value = Tables> {
    let metrics = prop::collection::vec(metric, 1..3);
    (1u32..10, metrics).prop_map(|(weight, metrics)| Tables { weight, metrics })
}

fn small() -> impl Strategy<Value = Choices> {
    (1usize..4).prop_flat_map(|resources| {
        let applications = prop::collection::vec(tables(metric(resources)), 1..4);
        let capacity = prop::collection::vec(0u64..400, resources);
        (applications, capacity).prop_map(|(applications, capacity)| Choices { applications, capacity })
    })
}

/// The highest utility of all combinations, tried one by one.
fn brute_force(choices: &Choices) -> Option<u128> {
    let metrics: Vec<(u64, &Vec<Level>)> =
        choices.applications.iter().flat_map(|t| t.metrics.iter().map(|m| (u64::from(t.weight), m))).collect();
    let combinations: usize = metrics.iter().map(|(_, levels)| levels.len()).product();
    let value = |mut number: usize| {
        let (mut used, mut utility) = (vec![0; choices.capacity.len()], 0u128);
        for (weight, levels) in &metrics {
            let level = &levels[number % levels.len()];
            number /= levels.len();
            add(&mut used, &level.needs);
            utility += u128::from(*weight) * u128::from(level.utility);
        }
        used.iter().zip(&choices.capacity).all(|(used, capacity)| used <= capacity).then_some(utility)
    };
    (0..combinations).filter_map(value).max()
}

fn check(plan: &Plan, choices: &Choices) -> Result<(), TestCaseError> {
    prop_assert!(plan.needs.iter().zip(&choices.capacity).all(|(need, capacity)| need <= capacity));
    let shape: Vec<usize> = plan.levels.iter().map(Vec::len).collect();
    prop_assert_eq!(shape, choices.applications.iter().map(|t| t.metrics.len()).collect::<Vec<_>>());
    Ok(())
}

proptest! {
    #[test]
    fn small_sets_are_solved_exactly(choices in small()) {
        match solve(&choices) {
            Ok(plan) => {
                check(&plan, &choices)?;
                prop_assert!(plan.is_exact);
                prop_assert_eq!(Some(plan.utility), brute_force(&choices));
            }
            Err(error) => prop_assert_eq!((brute_force(&choices), true), (None, error.to_string().contains("minimum"))),
        }
    }

    #[test]
    fn greedy_gains_at_least_half_for_concave_tables(
        applications in prop::collection::vec(tables(concave()), 1..3), capacity in 0u64..400,
    ) {
        let choices = Choices { applications, capacity: vec![capacity] };
        let Ok(plan) = greedy(&choices) else { return Ok(()) };
        check(&plan, &choices)?;
        let least: u128 = choices.applications.iter()
            .flat_map(|t| t.metrics.iter().map(|m| u128::from(t.weight) * u128::from(m[0].utility))).sum();
        let best = brute_force(&choices).unwrap();
        prop_assert!(2 * (plan.utility - least) >= best - least, "{} of {best}, minimum {least}", plan.utility);
    }

    #[test]
    fn steps_fall_in_gain_per_amount_and_end_at_the_top(tables in tables(metric(1))) {
        let (floor, steps) = steps(&tables, 0);
        prop_assert!(steps.windows(2).all(|pair| by_rate(&pair[0], &pair[1]).is_le()));
        let top: u64 = tables.metrics.iter().map(|m| m.last().unwrap().needs[0]).sum();
        prop_assert_eq!(floor + steps.iter().map(|step| step.need).sum::<u64>(), top);
    }
}

#[test]
fn the_application_with_the_larger_marginal_utility_gets_the_rest() {
    let flat = table(&[(0, vec![100]), (10, vec![100]), (10, vec![100])]);
    let steep = table(&[(0, vec![100]), (50, vec![100]), (1, vec![100])]);
    let applications = [flat, steep].map(|metric| Tables { weight: 1, metrics: vec![metric] }).to_vec();
    let plan = solve(&Choices { applications, capacity: vec![400] }).unwrap();
    assert_eq!((plan.levels, plan.utility), (vec![vec![1], vec![1]], 60));
}

#[test]
fn a_table_that_is_not_complete_is_refused_with_its_place() {
    let refusal = |levels: Vec<Level>| {
        let applications = vec![Tables { weight: 1, metrics: vec![levels] }];
        solve(&Choices { applications, capacity: vec![10] }).unwrap_err().to_string()
    };
    assert!(refusal(Vec::new()).contains("no levels"));
    assert!(refusal(table(&[(1, vec![1, 2])])).contains("2 amounts for 1 resources"));
    assert!(refusal(table(&[(1, vec![11])])).contains("need 11 of resource 0, of which 10 is there"));
    let mut falling = table(&[(5, vec![1]), (1, vec![1])]);
    falling[1].utility = 4;
    assert!(refusal(falling).contains("fall at level 2"));
}
