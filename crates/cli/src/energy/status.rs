//! `qfabric energy status`.

use comfy_table::CellAlignment;
use qfabric_types::Energy;
use qfabric_types::api::energy::{ApplicationEnergy, DeviceEnergy, EnergyStatus};

use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;

const EXAMPLE: &str = "\
Examples: qfabric energy status
          qfabric energy status --json | jq '.applications[] | .name, .energy'

Each amount names its source: rapl (counters of the processor), battery (fall of the stored energy), ina (sensors of \
the board), or model: CPU time × the power of a busy CPU above an idle one, by the power model that the daemon's \
configuration names. Amounts of different sources are never added.";

/// Shows the joules of applications and devices since the daemon's start, each with its source.
///
/// An application has an amount by the power model, and, if the processor has energy counters, its part of the counted
/// energy by CPU time. Ends with 4 if no daemon answers.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn run(args: Args) -> Outcome {
    let status = args.daemon.client()?.energy().map_err(connect::failure)?;
    if args.json {
        output::print_json(&status)?
    } else {
        output::print(&text(&status))?
    }
    Ok(Done(0))
}

fn text(status: &EnergyStatus) -> String {
    let model = &status.model;
    let clock = match status.clock_part {
        Some(part) => format!("clock {:.0} % of the highest", 100.0 * part),
        None => "the kernel reports no clock, so the model assumes the highest".to_owned(),
    };
    let mut text = format!(
        "energy of {}; model {}: {} values printed, {} derived, {} assumed; {clock}\n\n{}",
        status.over,
        model.name,
        model.printed,
        model.derived,
        model.assumed,
        devices(&status.devices)
    );
    if status.applications.is_empty() {
        text += "\nno application is under contract\n";
    } else {
        text += &format!("\n{}", applications(&status.applications));
    }
    if !status.ended.is_empty() {
        text += &format!("applications that have left: {}\n", amounts(&status.ended));
    }
    let faults = status.devices.iter().filter_map(|device| device.fault.as_ref());
    text + &faults.map(|fault| format!("not counted: {fault}\n")).collect::<String>()
}

fn devices(devices: &[DeviceEnergy]) -> String {
    let mut table = output::new_table(["DEVICE", "ENERGY", "POWER", "STORED"]);
    for device in devices {
        let power = device.power_w.map(|watts| format!("{watts:.2} W")).unwrap_or_default();
        let left = device.left.map(|left| left.to_string()).unwrap_or_default();
        table.add_row([device.name.clone(), device.energy.to_string(), power, left]);
    }
    aligned(table)
}

fn applications(applications: &[ApplicationEnergy]) -> String {
    let mut table = output::new_table(["APPLICATION", "NAME", "PID", "CPU TIME", "ENERGY"]);
    for app in applications {
        let time = format!("{:.3} s", app.cpu_time.as_f64() / 1e9);
        table.add_row([app.app.to_string(), app.name.clone(), app.pid.to_string(), time, amounts(&app.energy)]);
    }
    aligned(table)
}

fn amounts(energy: &[Energy]) -> String {
    energy.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn aligned(mut table: comfy_table::Table) -> String {
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use qfabric_types::api::energy::EnergyModel;
    use qfabric_types::{AppId, EnergySource, Nanos};

    use super::*;

    #[test]
    fn every_amount_is_shown_with_its_source() {
        let rapl = Energy::new(12.5, EnergySource::Rapl);
        let device = |name: &str, energy, fault: Option<&str>| DeviceEnergy {
            name: name.into(),
            energy,
            power_w: Some(2.5),
            left: None,
            fault: fault.map(str::to_owned),
            faults: 0,
        };
        let status = EnergyStatus {
            model: EnergyModel { name: "x86-server".into(), printed: 0, derived: 0, assumed: 17 },
            over: Nanos::from_millis(5_000),
            clock_part: None,
            devices: vec![
                device("package-0-0", rapl, Some("the counter went back")),
                device("rest", Energy::modelled(1.0), None),
            ],
            applications: vec![ApplicationEnergy {
                app: AppId(1),
                name: "player".into(),
                pid: 42,
                cpu_time: Nanos::from_millis(500),
                energy: vec![rapl, Energy::modelled(1.4)],
            }],
            ended: vec![Energy::modelled(7.0)],
            looks: 3,
            looks_cpu: Nanos::from_micros(400),
        };
        let text = text(&status);
        for part in [
            "12.500 J (rapl), 1.400 J (model)",
            "17 assumed",
            "have left: 7.000 J (model)",
            "not counted: the counter went back",
            "0.500 s",
        ] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}
