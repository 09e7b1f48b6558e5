use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{
    BatteryTerms, Directive, EnergyTerms, Gains, PLACE_LEVEL, Rules, TranscoderPlace,
};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{EnergyDirective, EnergyPolicy, ImageGains};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use super::{Fabric, Runs, Shared, check_time, quality, refused};

/// The dimension of `app.level` that names the place of the transcoders.
static PLACE: std::sync::LazyLock<Name> =
    std::sync::LazyLock::new(|| PLACE_LEVEL.parse().expect("a constant that is a name"));

impl Runs for EnergyPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, now: Instant) -> Result<Box<dyn Controller>, Problem> {
        check_time("period_ns", self.period_ns, Nanos::from_millis(100), Nanos::from_millis(3_600_000))?;
        check_number("battery", self.battery.unwrap_or(1.0), 1.0, 1e9, "J")?;
        check_number("drain", self.drain, 0.0, 1e6, "W")?;
        check_number("floor", self.floor.into(), 0.0, 100.0, "%")?;
        let supply = self.supply.as_ref().map(ToString::to_string);
        let battery = BatteryTerms { joules: self.battery, drain_w: self.drain, supply };
        let gains = self.gains.map(|ImageGains { sender_mj, receiver_mj, cost_mj }| Gains {
            teq_s: sender_mj / 1e3,
            teq_r: receiver_mj / 1e3,
            e_rcvr: cost_mj / 1e3,
        });
        let directive = self.directive.map(|goal| match goal {
            EnergyDirective::MaxSot => Directive::MaxSot,
            EnergyDirective::MaxRot => Directive::MaxRot,
            EnergyDirective::MaxAot => Directive::MaxAot,
            EnergyDirective::MinSec => Directive::MinSec,
        });
        let floor = f64::from(self.floor) / 100.0;
        let rules = if self.printed { Rules::Printed } else { Rules::Corrected };
        let terms = EnergyTerms { directive, rules, battery, gains, period: self.period_ns, floor };
        Ok(Box::new(TranscoderPlace::new(&quality(&self.channel), terms, now)))
    }

    /// Applications report their gains in the group of the channel's name.
    fn members(&self) -> Option<&Name> {
        Some(&self.channel)
    }

    fn dimensions(&self) -> Vec<&Name> {
        vec![&PLACE]
    }
}

fn check_number(what: &str, number: f64, least: f64, most: f64, unit: &str) -> Result<(), Problem> {
    match (least..=most).contains(&number) {
        true => Ok(()),
        false => Err(refused::out_of_range(what, format!("{number} {unit}"), &format!("{least} to {most} {unit}"))),
    }
}
