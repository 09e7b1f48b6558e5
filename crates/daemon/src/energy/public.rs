//! The amounts that every user may read.
//!
//! Linux lets only root read the energy counters of the processor: differences of fine readings tell which data another
//! program computes with (PLATYPUS, CVE-2020-8694). So measured amounts are cut to whole joules and watts here, and they
//! come from a look that no user can ask for ([`super::EnergyAccount::public`]). Amounts of the model come from CPU times
//! and traffic, which `/proc` shows to everybody, and stay as they are.

use qfabric_types::api::energy::EnergyStatus;
use qfabric_types::{Energy, EnergySource};

use super::joules;

/// The same account with whole joules and watts for everything that a meter measured.
pub(super) fn coarse(mut status: EnergyStatus) -> EnergyStatus {
    for device in &mut status.devices {
        if device.energy.source() != EnergySource::Model {
            device.power_w = device.power_w.map(f64::floor);
        }
        device.energy = whole(device.energy);
        device.left = device.left.map(whole);
    }
    let apps = status.applications.iter_mut().flat_map(|app| &mut app.energy);
    apps.chain(&mut status.ended).for_each(|energy| *energy = whole(*energy));
    status
}

fn whole(energy: Energy) -> Energy {
    match energy.source() {
        EnergySource::Model => energy,
        measured => Energy::new(joules(energy).floor(), measured),
    }
}
