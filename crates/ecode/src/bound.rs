//! How long one event may keep a chain of handlers busy, in instructions, and the fuel that keeps it so.

use crate::bpf::{Measure, measure};
use crate::engine::Limits;
use crate::hir::Program;

/// What a chain of handlers may do with one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Fuel of each handler's call, in instructions.
    pub fuel: u32,
    /// Instructions of the whole chain at most.
    pub instructions: u64,
}

impl Bound {
    /// The bound of a chain under `limit` instructions. With `fuel` that the author chose, that; else what the loops
    /// need whose turns the text says, and for the others a quarter of the limit, so that several such chains fit.
    /// [`Bound::fits`] tells whether it keeps the limit.
    pub fn of<'a>(programs: impl IntoIterator<Item = &'a Program>, fuel: Option<u32>, limit: u32) -> Bound {
        let sizes: Vec<Measure> = programs.into_iter().map(measure).collect();
        let fuel = fuel.unwrap_or_else(|| fuel_for(&sizes, limit));
        let instructions = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(size.worst_case(fuel)));
        Bound { fuel, instructions }
    }

    /// Whether one event keeps within `limit` instructions.
    pub fn fits(&self, limit: u32) -> bool {
        self.instructions <= u64::from(limit)
    }

    /// For an engine, with so many emissions.
    pub fn limits(&self, emissions: u32) -> Limits {
        Limits { fuel: self.fuel, emissions }
    }
}

fn fuel_for(sizes: &[Measure], limit: u32) -> u32 {
    let known = |size: &&Measure| size.turns < u64::MAX;
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
    fn a_text_without_loops_is_as_long_as_its_code_and_needs_no_fuel() {
        let program = program("return 1;");
        let bound = Bound::of([&program], None, 10_000);
        assert_eq!(bound, Bound { fuel: 0, instructions: measure(&program).instructions });
        assert!(bound.fits(10_000) && !bound.fits(1));
    }

    #[test]
    fn known_turns_get_what_they_need_and_are_refused_where_it_is_too_much() {
        let text = "long n = 0; for (int i = 0; i < 1000; i++) n += i; return n;";
        let bound = Bound::of([&program(text)], None, 200_000);
        assert!(bound.fits(200_000) && !bound.fits(1_000) && bound.instructions > 5_000, "{bound:?}");
        let again = Bound::of([&program(text)], None, 10);
        assert_eq!(again.instructions, bound.instructions, "what it needs does not depend on the limit");
    }

    #[test]
    fn open_loops_share_a_quarter_and_fit() {
        let open = program("int n = 1; while (n != 0) n = n * 3; return n;");
        let one = Bound::of([&open], None, 10_000);
        let two = Bound::of([&open, &open], None, 10_000);
        assert_eq!((one.fuel, two.fuel), (2_500, 1_250));
        assert!(one.fits(10_000) && two.fits(10_000));
        assert!(!Bound::of([&open], Some(10_000), 10_000).fits(10_000), "the code outside the loop counts, too");
        assert_eq!(Bound::of([&open], None, 5).fuel, 0);
    }
}
