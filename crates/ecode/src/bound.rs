//! Computes the largest number of instructions that a chain of handlers can execute for one event, and the fuel
//! that keeps the chain below the limit.

use crate::bpf::{Measure, measure};
use crate::engine::Limits;
use crate::hir::Program;

/// The worst case of a chain of handlers for one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Fuel of one call of each handler, in instructions.
    pub fuel: u32,
    /// Largest number of instructions of the whole chain.
    pub instructions: u64,
}

impl Bound {
    /// Computes the bound of a chain under `limit` instructions. Uses `fuel` if the author chose one. Otherwise
    /// the fuel covers the loops whose iteration count the text states; all other loops share a quarter of the
    /// limit, so that several such chains fit. [`Bound::fits`] says whether the bound keeps the limit.
    pub fn of<'a>(programs: impl IntoIterator<Item = &'a Program>, fuel: Option<u32>, limit: u32) -> Bound {
        let sizes: Vec<Measure> = programs.into_iter().map(measure).collect();
        let fuel = fuel.unwrap_or_else(|| fuel_for(&sizes, limit));
        let instructions = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(size.worst_case(fuel)));
        Bound { fuel, instructions }
    }

    pub fn fits(&self, limit: u32) -> bool {
        self.instructions <= u64::from(limit)
    }

    /// The limits of an engine that may deliver `emissions` events per call.
    pub fn limits(&self, emissions: u32) -> Limits {
        Limits { fuel: self.fuel, emissions }
    }
}

/// Iterations of this many instructions come from the range of a type, as in `i < input.n`, and not from a number in
/// the text. Such loops count as loops of unknown count.
const FROM_A_TYPE: u64 = 1 << 31;

fn fuel_for(sizes: &[Measure], limit: u32) -> u32 {
    let known = |size: &&Measure| size.turns < FROM_A_TYPE;
    let needed = sizes.iter().filter(known).map(|size| size.turns).max().unwrap_or(0);
    let open = sizes.iter().filter(|size| !known(size)).count() as u64;
    let fixed = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(size.worst_case(0)));
    let room = u64::from(limit).saturating_sub(fixed).min(u64::from(limit / 4));
    let share = room.checked_div(open).unwrap_or(0);
    u32::try_from(needed.max(share)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, compile};

    fn program(text: &str) -> Program {
        compile(text, &Environment::default()).unwrap()
    }

    #[test]
    fn a_text_without_loops_is_bounded_by_its_code_and_needs_no_fuel() {
        let program = program("return 1;");
        let bound = Bound::of([&program], None, 10_000);
        assert_eq!(bound, Bound { fuel: 0, instructions: measure(&program).instructions });
        assert!(bound.fits(10_000) && !bound.fits(1));
    }

    #[test]
    fn loops_with_a_known_count_get_enough_fuel_and_exceed_a_small_limit() {
        let text = "long n = 0; for (int i = 0; i < 1000; i++) n += i; return n;";
        let bound = Bound::of([&program(text)], None, 200_000);
        assert!(bound.fits(200_000) && !bound.fits(1_000) && bound.instructions > 5_000, "{bound:?}");
        let again = Bound::of([&program(text)], None, 10);
        assert_eq!(again.instructions, bound.instructions, "the need does not depend on the limit");
    }

    #[test]
    fn a_loop_that_only_the_range_of_a_type_bounds_counts_as_unknown() {
        let text = "struct input { int n; }; long s = 0; for (int i = 0; i < input.n; i++) s += i; return s;";
        let bound = Bound::of([&program(text)], None, 10_000);
        assert!(bound.fuel == 2_500 && bound.fits(10_000), "{bound:?}");
    }

    #[test]
    fn loops_of_unknown_count_share_a_quarter_of_the_limit() {
        let open = program("int n = 1; while (n != 0) n = n * 3; return n;");
        let one = Bound::of([&open], None, 10_000);
        let two = Bound::of([&open, &open], None, 10_000);
        assert_eq!((one.fuel, two.fuel), (2_500, 1_250));
        assert!(one.fits(10_000) && two.fits(10_000));
        assert!(!Bound::of([&open], Some(10_000), 10_000).fits(10_000), "the code outside the loop counts");
        assert_eq!(Bound::of([&open], None, 5).fuel, 0);
    }
}
