//! Utility: which level of each metric gives the applications together the most, inside the amounts of the resources.
//!
//! ```text
//!   U = Σ wᵢ·Σ Uᵢⱼ(qᵢⱼ)     one level qᵢⱼ per metric, inside its range;  Σ needs(qᵢⱼ) ≤ capacity of each resource
//! ```
//! A metric is a table of levels from the minimum of its range to the maximum; a caller computes the tables from the
//! applications' utility functions. [`solve`] is exact while branch and bound ends within [`MOST_NODES`] nodes. Beyond
//! that it returns the best choice found, which is never worse than [`greedy`]. [`steps`] gives the same preference as
//! a list of increments, for a resource that can be divided at will. Amounts are whole numbers in the resource's unit.
//! Source: thesis §2.1, Figure 5. The problem is the multiple-choice knapsack problem.

/// Limit of the nodes of one search; keeps a decision below a millisecond.
pub const MOST_NODES: u32 = 4_000;

/// One level of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The value of the metric, in the metric's own unit.
    pub value: i64,
    /// U(value), before the weight; at most [`MOST_UTILITY`].
    pub utility: u64,
    /// The amount of each resource at this level, in the order of [`Choices::capacity`].
    pub needs: Vec<u64>,
}

/// The largest utility of a level.
pub const MOST_UTILITY: u64 = 1_000_000_000;

/// The metrics of one application, each as its levels from the minimum of the range to the maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// w: at least 1.
    pub weight: u32,
    pub metrics: Vec<Vec<Level>>,
}

/// The applications that share resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    pub applications: Vec<Tables>,
    /// The amount of each resource for all applications together.
    pub capacity: Vec<u64>,
}

/// A choice of one level per metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By application and metric: the index of the level.
    pub levels: Vec<Vec<usize>>,
    /// U: the weighted sum.
    pub utility: u128,
    /// The amount of each resource that the levels need.
    pub needs: Vec<u64>,
    /// Whether no other choice has a higher utility.
    pub is_exact: bool,
}

/// No choice fits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlan {
    #[error(
        "the minimum levels need {needed} of resource {resource}, of which {capacity} is there; lower a minimum, or stop an application"
    )]
    MinimaDoNotFit { resource: usize, needed: u64, capacity: u64 },
    #[error("application {application}, metric {metric} has no levels; give it at least one")]
    NoLevels { application: usize, metric: usize },
    #[error(
        "application {application}, metric {metric}: a level names {found} amounts for {expected} resources; name one for each"
    )]
    Needs { application: usize, metric: usize, found: usize, expected: usize },
    #[error(
        "application {application}, metric {metric}: utility or amounts fall at level {value}; both must grow with the level, or stay"
    )]
    Falls { application: usize, metric: usize, value: i64 },
}

/// A metric with its weight, as the search sees it.
struct Item<'c> {
    weight: u64,
    levels: &'c [Level],
}

impl Item<'_> {
    fn utility(&self, level: usize) -> u128 {
        u128::from(self.weight) * u128::from(self.levels[level].utility)
    }
}

fn items(choices: &Choices) -> Result<Vec<Item<'_>>, NoPlan> {
    let mut items = Vec::new();
    let expected = choices.capacity.len();
    for (application, tables) in choices.applications.iter().enumerate() {
        for (metric, levels) in tables.metrics.iter().enumerate() {
            if levels.is_empty() {
                return Err(NoPlan::NoLevels { application, metric });
            }
            if let Some(wrong) = levels.iter().find(|level| level.needs.len() != expected) {
                return Err(NoPlan::Needs { application, metric, found: wrong.needs.len(), expected });
            }
            if let Some(at) = levels.windows(2).position(|pair| falls(&pair[0], &pair[1])) {
                return Err(NoPlan::Falls { application, metric, value: levels[at + 1].value });
            }
            items.push(Item { weight: u64::from(tables.weight), levels });
        }
    }
    Ok(items)
}

fn falls(low: &Level, high: &Level) -> bool {
    high.utility < low.utility || low.needs.iter().zip(&high.needs).any(|(low, high)| high < low)
}

/// The amounts that all items need at the first level, each item's minimum.
fn minima(items: &[Item<'_>], capacity: &[u64]) -> Result<Vec<u64>, NoPlan> {
    let mut used = vec![0u64; capacity.len()];
    items.iter().for_each(|item| add(&mut used, &item.levels[0].needs));
    match used.iter().zip(capacity).position(|(needed, capacity)| needed > capacity) {
        Some(resource) => {
            Err(NoPlan::MinimaDoNotFit { resource, needed: used[resource], capacity: capacity[resource] })
        }
        None => Ok(used),
    }
}

fn add(used: &mut [u64], needs: &[u64]) {
    used.iter_mut().zip(needs).for_each(|(used, need)| *used = used.saturating_add(*need));
}

/// The amounts after one item moves between levels; `None` if they do not fit.
fn moved(used: &[u64], from: &Level, to: &Level, capacity: &[u64]) -> Option<Vec<u64>> {
    let after = used.iter().zip(&from.needs).zip(&to.needs).map(|((used, from), to)| used - from + to);
    let after: Vec<u64> = after.collect();
    after.iter().zip(capacity).all(|(after, capacity)| after <= capacity).then_some(after)
}

/// The change of the amounts as a fraction of the capacities: the price of a move, for a comparison of resources.
fn price(from: &Level, to: &Level, capacity: &[u64]) -> f64 {
    let part = |((from, to), capacity): ((&u64, &u64), &u64)| (*to as f64 - *from as f64) / (*capacity as f64).max(1.0);
    from.needs.iter().zip(&to.needs).zip(capacity).map(part).sum()
}

/// Raises levels by the largest gain per amount until none fits. If raising one metric alone gains more, it returns
/// that. For one resource and tables that are concave in the amount, the gain over the minima is at least half of the
/// largest possible one.
///
/// # Errors
/// [`NoPlan`] if the minima do not fit, or a table is not complete.
pub fn greedy(choices: &Choices) -> Result<Plan, NoPlan> {
    let items = items(choices)?;
    let used = minima(&items, &choices.capacity)?;
    let at = climb(&items, used.clone(), vec![0; items.len()], &choices.capacity);
    let single = best_single(&items, &used, &choices.capacity);
    let total = |at: &[usize]| items.iter().zip(at).map(|(item, at)| item.utility(*at)).sum::<u128>();
    // After the single raise, the rest may still climb.
    let best = single.map(|(index, level, used)| {
        let mut from = vec![0; items.len()];
        from[index] = level;
        climb(&items, used, from, &choices.capacity)
    });
    let at = best.filter(|best| total(best) > total(&at)).unwrap_or(at);
    Ok(plan(choices, &items, &at, false))
}

fn climb(items: &[Item<'_>], mut used: Vec<u64>, mut at: Vec<usize>, capacity: &[u64]) -> Vec<usize> {
    loop {
        let mut best: Option<(f64, usize, usize, Vec<u64>)> = None;
        for (index, item) in items.iter().enumerate() {
            let from = &item.levels[at[index]];
            for (level, to) in item.levels.iter().enumerate() {
                let Some(gain) = item.utility(level).checked_sub(item.utility(at[index])).filter(|gain| *gain > 0)
                else {
                    continue;
                };
                let price = price(from, to, capacity);
                let rate = if price <= 0.0 { f64::INFINITY } else { gain as f64 / price };
                if best.as_ref().is_some_and(|best| best.0 >= rate) {
                    continue;
                }
                if let Some(after) = moved(&used, from, to, capacity) {
                    best = Some((rate, index, level, after));
                }
            }
        }
        let Some((_, index, level, after)) = best else { return at };
        (at[index], used) = (level, after);
    }
}

/// The one raise from the minima with the largest gain.
fn best_single(items: &[Item<'_>], used: &[u64], capacity: &[u64]) -> Option<(usize, usize, Vec<u64>)> {
    let mut best: Option<(u128, usize, usize, Vec<u64>)> = None;
    for (index, item) in items.iter().enumerate() {
        for (level, to) in item.levels.iter().enumerate() {
            let gain = item.utility(level).saturating_sub(item.utility(0));
            if gain <= best.as_ref().map_or(0, |best| best.0) {
                continue;
            }
            if let Some(after) = moved(used, &item.levels[0], to, capacity) {
                best = Some((gain, index, level, after));
            }
        }
    }
    best.map(|(_, index, level, after)| (index, level, after))
}

fn plan(choices: &Choices, items: &[Item<'_>], at: &[usize], is_exact: bool) -> Plan {
    let mut needs = vec![0; choices.capacity.len()];
    items.iter().zip(at).for_each(|(item, at)| add(&mut needs, &item.levels[*at].needs));
    let utility = items.iter().zip(at).map(|(item, at)| item.utility(*at)).sum();
    let mut next = at.iter().copied();
    let of = |tables: &Tables| next.by_ref().take(tables.metrics.len()).collect();
    Plan { levels: choices.applications.iter().map(of).collect(), utility, needs, is_exact }
}

/// The choice with the highest utility.
///
/// # Errors
/// [`NoPlan`] if the minima do not fit, or a table is not complete.
pub fn solve(choices: &Choices) -> Result<Plan, NoPlan> {
    let first = greedy(choices)?;
    let items = items(choices)?;
    let mut search = Search::new(&items, &choices.capacity, &first);
    let used = minima(&items, &choices.capacity)?;
    let mut at = vec![0; items.len()];
    search.visit(0, 0, &used, &mut at);
    Ok(plan(choices, &items, &search.best, search.nodes < MOST_NODES))
}

/// An increase of the amount of one resource, and what it adds to the weighted utility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub need: u64,
    pub gain: u128,
}

/// The amount of `resource` at the minima of an application, and the steps above it, the largest gain per amount
/// first: the upper concave hull of each metric's table, merged. A resource that can be divided at will is divided
/// best by the steps of all applications in the order of their gain per amount.
///
/// # Panics
/// If a level names no amount for `resource`.
pub fn steps(tables: &Tables, resource: usize) -> (u64, Vec<Step>) {
    let weight = u64::from(tables.weight);
    let floor = tables.metrics.iter().filter_map(|levels| Some(levels.first()?.needs[resource])).sum();
    let mut all: Vec<Step> = tables.metrics.iter().flat_map(|levels| hull(levels, weight, resource)).collect();
    all.sort_by(by_rate);
    (floor, all)
}

/// The order of steps: the larger gain per amount first.
fn by_rate(a: &Step, b: &Step) -> std::cmp::Ordering {
    (b.gain * u128::from(a.need)).cmp(&(a.gain * u128::from(b.need)))
}

/// The steps from the first level to the last on the upper concave hull of amount and weighted utility.
fn hull(levels: &[Level], weight: u64, resource: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for pair in levels.windows(2) {
        let need = pair[1].needs[resource].saturating_sub(pair[0].needs[resource]);
        let gain = u128::from(weight) * u128::from(pair[1].utility.saturating_sub(pair[0].utility));
        let mut next = Step { need, gain };
        // A step that is better than the one before it belongs to that step: nobody would take only the first part.
        while let Some(last) = steps.last().filter(|last| by_rate(&next, last).is_lt()) {
            next = Step { need: next.need + last.need, gain: next.gain + last.gain };
            steps.pop();
        }
        if next.need > 0 || next.gain > 0 {
            steps.push(next);
        }
    }
    steps
}

/// Branch and bound, depth first, one metric per depth. Metrics from the present depth on are at their minimum.
struct Search<'s> {
    items: &'s [Item<'s>],
    /// For each resource, the steps of all items with the item's index, the largest gain per amount first.
    steps: Vec<Vec<(usize, Step)>>,
    /// The utility of the minima of the items from each depth on.
    minima: Vec<u128>,
    capacity: &'s [u64],
    best: Vec<usize>,
    utility: u128,
    nodes: u32,
}

impl<'s> Search<'s> {
    fn new(items: &'s [Item<'s>], capacity: &'s [u64], first: &Plan) -> Search<'s> {
        let mut minima = vec![0; items.len() + 1];
        (0..items.len()).rev().for_each(|index| minima[index] = minima[index + 1] + items[index].utility(0));
        let of = |resource: usize| {
            let own = |(index, item): (usize, &Item<'_>)| {
                hull(item.levels, item.weight, resource).into_iter().map(move |step| (index, step)).collect::<Vec<_>>()
            };
            let mut all: Vec<_> = items.iter().enumerate().flat_map(own).collect();
            all.sort_by(|(_, a), (_, b)| by_rate(a, b));
            all
        };
        let steps = (0..capacity.len()).map(of).collect();
        let best = first.levels.iter().flatten().copied().collect();
        Search { items, steps, minima, capacity, best, utility: first.utility, nodes: 0 }
    }

    fn visit(&mut self, depth: usize, utility: u128, used: &[u64], at: &mut [usize]) {
        if depth == self.items.len() {
            if utility > self.utility {
                self.utility = utility;
                self.best.copy_from_slice(at);
            }
            return;
        }
        let item = &self.items[depth];
        for (level, to) in item.levels.iter().enumerate().rev() {
            if self.nodes >= MOST_NODES {
                return;
            }
            self.nodes += 1;
            let Some(after) = moved(used, &item.levels[0], to, self.capacity) else { continue };
            let here = utility + item.utility(level);
            if here + self.bound(depth + 1, &after) <= self.utility {
                continue;
            }
            at[depth] = level;
            self.visit(depth + 1, here, &after, at);
            at[depth] = 0;
        }
    }

    /// A bound of the utility of the items from `depth` on: for each resource, what the free amount would add if steps
    /// could be divided; the least of these.
    fn bound(&self, depth: usize, used: &[u64]) -> u128 {
        let of = |(resource, steps): (usize, &Vec<(usize, Step)>)| {
            let mut free = self.capacity[resource] - used[resource];
            let mut sum = 0;
            for (_, step) in steps.iter().filter(|(index, _)| *index >= depth) {
                if step.need > free {
                    return sum + (step.gain * u128::from(free)).div_ceil(u128::from(step.need));
                }
                free -= step.need;
                sum += step.gain;
            }
            sum
        };
        let added = self.steps.iter().enumerate().map(of).min();
        let all = || self.items[depth..].iter().map(|item| item.utility(item.levels.len() - 1) - item.utility(0)).sum();
        self.minima[depth] + added.unwrap_or_else(all)
    }
}

#[cfg(test)]
mod tests;
