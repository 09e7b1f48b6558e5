//! The metrics of energy. Each amount has the label `source`; amounts of different sources have no sum.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use qfabric_types::api::energy::{DeviceEnergy, EnergyStatus};

use super::Value::{Amount, Counter, Gauge};
use super::family;
use crate::energy::joules;

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, status: &EnergyStatus) -> fmt::Result {
    let EnergyStatus { devices, applications, .. } = status;
    let labels = |device: &DeviceEnergy| {
        let (name, source) = (device.name.clone(), device.energy.source().name().to_owned());
        [("device", name), ("source", source)]
    };
    let help = "energy of the device since the start, in joules; source: rapl, battery, ina or model";
    let rows = devices.iter().map(|device| (labels(device), Amount(joules(device.energy))));
    family(encoder, "energy_device_joules", help, rows)?;
    let rows = devices.iter().filter_map(|device| Some((labels(device), Gauge(device.power_w?))));
    family(encoder, "energy_device_watts", "power of the device at the last reading, in watts", rows)?;
    let rows = devices.iter().map(|device| (labels(device), Counter(device.faults)));
    family(encoder, "energy_meter_faults", "readings of the device that counted nothing because of a fault", rows)?;
    let rows = applications.iter().flat_map(|app| {
        let labels = |source: &'static str| {
            let (id, name, pid) = (app.app.to_string(), app.name.clone(), app.pid.to_string());
            [("app", id), ("name", name), ("pid", pid), ("source", source.to_owned())]
        };
        app.energy.iter().map(move |energy| (labels(energy.source().name()), Amount(joules(*energy))))
    });
    family(encoder, "energy_app_joules", "energy of the application's CPU time since its contract, in joules", rows)
}
