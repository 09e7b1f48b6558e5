//! Reads the file of a model. Every refusal names the file, the number, its limit and the next step.

use serde::Deserialize;

use super::{Cpu, Level, Model, NumberKind, Radio, SHIPPED, Tally};

/// Largest file of a model.
pub const MAX_BYTES: usize = 256 << 10;
const MAX_LEVELS: usize = 64;
const MAX_TEXT: usize = 400;
const MAX_W: f64 = 10_000.0;
const MAX_MHZ: f64 = 100_000.0;

/// A file that is no model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{file}: {mistake}")]
pub struct InvalidModel {
    pub file: String,
    pub mistake: Mistake,
}

/// The mistake in a model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Mistake {
    #[error("the file has {bytes} bytes; a model has at most {MAX_BYTES}")]
    TooLong { bytes: usize },
    #[error("{0}")]
    Toml(String),
    #[error("there is no {0} section; add it, or name a shipped model by {1}")]
    Absent(&'static str, &'static str),
    #[error("{0} names \"{1}\", which is no shipped model with that section; shipped models are {names}", names = shipped())]
    Reference(&'static str, String),
    #[error("{number} is {value}; give a number from {least} to {most}")]
    Range { number: String, value: f64, least: f64, most: f64 },
    #[error("{number} has no source; say where the number comes from, in 1 to {MAX_TEXT} characters")]
    Source { number: String },
    #[error("{text} must have 1 to {MAX_TEXT} characters without control characters")]
    Text { text: &'static str },
    #[error("cpu.levels has {count} levels; give 1 to {MAX_LEVELS}")]
    Levels { count: usize },
    #[error("{number} is {value}, which must be above the {before} of the level before; sort the levels by frequency")]
    Frequency { number: String, value: f64, before: f64 },
    #[error("{number} is {value}, which is below {name} ({other}); {next_step}")]
    Order { number: String, value: f64, name: &'static str, other: f64, next_step: &'static str },
}

fn shipped() -> String {
    SHIPPED.map(|(name, _)| name).join(", ")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    about: String,
    cpu_of: Option<String>,
    radio_of: Option<String>,
    cpu: Option<CpuSection>,
    radio: Option<RadioSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuSection {
    idle_w: Number,
    rest_w: Number,
    levels: Vec<LevelSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelSection {
    mhz: Number,
    active_w: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RadioSection {
    doze_w: Number,
    idle_w: Number,
    receive_w: Number,
    transmit_w: Number,
    wake_mj: Number,
    air_us_per_kb: Number,
    cpu_us_per_kb: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Number {
    value: f64,
    kind: NumberKind,
    source: String,
}

pub(super) fn model(file: &str, text: &str) -> Result<Model, InvalidModel> {
    read(text).map_err(|mistake| InvalidModel { file: file.to_owned(), mistake })
}

fn read(text: &str) -> Result<Model, Mistake> {
    let parsed = toml_file(text)?;
    for (value, text) in [(&parsed.name, "name"), (&parsed.about, "about")] {
        if !is_text(value) {
            return Err(Mistake::Text { text });
        }
    }
    let cpu_section = section(parsed.cpu, parsed.cpu_of, ("[cpu]", "cpu_of"), |file| file.cpu)?;
    let radio_section = section(parsed.radio, parsed.radio_of, ("[radio]", "radio_of"), |file| file.radio)?;
    let mut tally = Tally::default();
    let cpu = cpu(&cpu_section, &mut tally)?;
    let radio = radio(&radio_section, &mut tally)?;
    Ok(Model { name: parsed.name, about: parsed.about, cpu, radio, tally })
}

fn toml_file(text: &str) -> Result<File, Mistake> {
    if text.len() > MAX_BYTES {
        return Err(Mistake::TooLong { bytes: text.len() });
    }
    toml::from_str(text).map_err(|error| Mistake::Toml(error.to_string().trim_end().to_owned()))
}

fn is_text(text: &str) -> bool {
    (1..=MAX_TEXT).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

/// The section itself, or that of the shipped model that the file names.
fn section<T>(
    own: Option<T>,
    other: Option<String>,
    (name, key): (&'static str, &'static str),
    of: impl Fn(File) -> Option<T>,
) -> Result<T, Mistake> {
    let Some(other) = other.filter(|_| own.is_none()) else { return own.ok_or(Mistake::Absent(name, key)) };
    let text = SHIPPED.into_iter().find(|(known, _)| *known == other).map(|(_, text)| text);
    text.and_then(|text| of(toml_file(text).ok()?)).ok_or(Mistake::Reference(key, other))
}

fn cpu(section: &CpuSection, tally: &mut Tally) -> Result<Cpu, Mistake> {
    let mut read = |number: &Number, name: &str, most| read_number(number, name, (0.0, most), tally);
    let idle_w = read(&section.idle_w, "cpu.idle_w", MAX_W)?;
    let rest_w = read(&section.rest_w, "cpu.rest_w", MAX_W)?;
    let count = section.levels.len();
    if !(1..=MAX_LEVELS).contains(&count) {
        return Err(Mistake::Levels { count });
    }
    let mut levels: Vec<Level> = Vec::with_capacity(count);
    for (index, level) in section.levels.iter().enumerate() {
        let mhz = read_number(&level.mhz, &format!("cpu.levels[{index}].mhz"), (1.0, MAX_MHZ), tally)?;
        let active_w = read_number(&level.active_w, &format!("cpu.levels[{index}].active_w"), (0.0, MAX_W), tally)?;
        check_level(index, Level { mhz, active_w }, levels.last(), idle_w)?;
        levels.push(Level { mhz, active_w });
    }
    Ok(Cpu { idle_w, rest_w, levels })
}

/// Frequencies rise, and power rises with them; a busy processor takes no less than an idle one.
fn check_level(index: usize, level: Level, before: Option<&Level>, idle_w: f64) -> Result<(), Mistake> {
    if let Some(before) = before.filter(|before| level.mhz <= before.mhz) {
        let number = format!("cpu.levels[{index}].mhz");
        return Err(Mistake::Frequency { number, value: level.mhz, before: before.mhz });
    }
    let (name, other, next_step) = match before {
        Some(before) => {
            ("the power of the level before", before.active_w, "remove a level that is slower and takes more power")
        }
        None => ("cpu.idle_w", idle_w, "a busy processor takes at least the power of an idle one"),
    };
    let number = format!("cpu.levels[{index}].active_w");
    order(&number, level.active_w, name, other, next_step)
}

fn radio(section: &RadioSection, tally: &mut Tally) -> Result<Radio, Mistake> {
    let mut read = |number: &Number, name: &str, most| read_number(number, name, (0.0, most), tally);
    let radio = Radio {
        doze_w: read(&section.doze_w, "radio.doze_w", MAX_W)?,
        idle_w: read(&section.idle_w, "radio.idle_w", MAX_W)?,
        receive_w: read(&section.receive_w, "radio.receive_w", MAX_W)?,
        transmit_w: read(&section.transmit_w, "radio.transmit_w", MAX_W)?,
        wake_j: read(&section.wake_mj, "radio.wake_mj", 1e6)? / 1e3,
        air_s_per_kb: read(&section.air_us_per_kb, "radio.air_us_per_kb", 1e6)? / 1e6,
        cpu_s_per_kb: read(&section.cpu_us_per_kb, "radio.cpu_us_per_kb", 1e6)? / 1e6,
    };
    let check = "check which state each power belongs to";
    order("radio.idle_w", radio.idle_w, "radio.doze_w", radio.doze_w, check)?;
    order("radio.receive_w", radio.receive_w, "radio.idle_w", radio.idle_w, check)?;
    order("radio.transmit_w", radio.transmit_w, "radio.idle_w", radio.idle_w, check)?;
    Ok(radio)
}

fn order(number: &str, value: f64, name: &'static str, other: f64, next_step: &'static str) -> Result<(), Mistake> {
    if value >= other {
        return Ok(());
    }
    Err(Mistake::Order { number: number.to_owned(), value, name, other, next_step })
}

fn read_number(number: &Number, name: &str, (least, most): (f64, f64), tally: &mut Tally) -> Result<f64, Mistake> {
    if !(least..=most).contains(&number.value) {
        return Err(Mistake::Range { number: name.to_owned(), value: number.value, least, most });
    }
    if !is_text(&number.source) {
        return Err(Mistake::Source { number: name.to_owned() });
    }
    match number.kind {
        NumberKind::Printed => tally.printed += 1,
        NumberKind::Derived => tally.derived += 1,
        NumberKind::Assumed => tally.assumed += 1,
    }
    Ok(number.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IPAQ: &str = SHIPPED[0].1;

    fn refusal(text: &str) -> String {
        Model::parse("my.toml", text).unwrap_err().to_string()
    }

    /// The iPAQ's file with one line replaced.
    fn with(line: &str, other: &str) -> String {
        let found = IPAQ.lines().find(|found| found.starts_with(line)).expect("the file has the line");
        IPAQ.replacen(found, other, 1)
    }

    fn number(value: f64) -> String {
        format!("{{ value = {value:?}, kind = \"assumed\", source = \"a test\" }}")
    }

    #[test]
    fn every_shipped_model_is_read_and_has_its_own_name() {
        for (name, _) in SHIPPED {
            let model = Model::shipped(name).unwrap();
            assert_eq!(model.name, name);
            assert!(model.tally.printed + model.tally.derived + model.tally.assumed >= 10, "{name}");
        }
        assert_eq!(Model::shipped("toaster"), None);
    }

    #[test]
    fn the_ipaq_takes_the_printed_watts() {
        let model = Model::shipped("ipaq-h3870-orinoco").unwrap();
        assert!((model.idle_w() - 1.32).abs() < 0.01, "{} W idle (000 §6.2.2)", model.idle_w());
        assert_eq!(model.cpu.levels.len(), 11);
        assert!((model.cpu.stretch(0) - 3.498).abs() < 1e-3);
        assert!((model.radio.awake_w() - 0.853).abs() < 1e-9);
    }

    #[test]
    fn a_refusal_names_file_number_and_limit() {
        let negative = with("idle_w = ", &format!("idle_w = {}", number(-0.1)));
        assert_eq!(refusal(&negative), "my.toml: cpu.idle_w is -0.1; give a number from 0 to 10000");
        let absent = with("doze_w = ", "");
        assert!(refusal(&absent).contains("doze_w"), "{}", refusal(&absent));
        let infinite = with("wake_mj = ", &format!("wake_mj = {}", number(f64::INFINITY)));
        assert!(refusal(&infinite).contains("radio.wake_mj is inf"), "{}", refusal(&infinite));
        let unknown = with("idle_w = ", "idle_w = 3");
        assert!(refusal(&unknown).starts_with("my.toml: "), "{}", refusal(&unknown));
        let silent = with("rest_w = ", "rest_w = { value = 1.0, kind = \"assumed\", source = \"\" }");
        assert!(refusal(&silent).contains("cpu.rest_w has no source"));
    }

    #[test]
    fn levels_must_rise_in_frequency_and_power() {
        let slower = with("mhz = { value = 73.7", &format!("mhz = {}", number(58.0)));
        assert!(refusal(&slower).contains("cpu.levels[1].mhz is 58"), "{}", refusal(&slower));
        let cheaper = with("active_w = { value = 0.5629", &format!("active_w = {}", number(0.4)));
        assert!(refusal(&cheaper).contains("cpu.levels[3].active_w is 0.4"), "{}", refusal(&cheaper));
        let colder = with("active_w = { value = 0.41", &format!("active_w = {}", number(0.1)));
        assert!(refusal(&colder).contains("below cpu.idle_w (0.29)"), "{}", refusal(&colder));
        let awake = with("doze_w = ", &format!("doze_w = {}", number(2.0)));
        assert!(refusal(&awake).contains("radio.idle_w is 0.898, which is below radio.doze_w (2)"));
    }

    #[test]
    fn a_section_may_come_from_a_shipped_model() {
        let text = "name = \"a\"\nabout = \"b\"\ncpu_of = \"rk3399\"\nradio_of = \"wifi-generic-11n\"\n";
        assert_eq!(Model::parse("a", text).unwrap().cpu, Model::shipped("rk3399").unwrap().cpu);
        assert!(refusal(&text.replace("rk3399", "toaster")).contains("shipped models are ipaq"));
        assert!(refusal(&text.replace("rk3399", "wifi-generic-11n")).contains("cpu_of"));
        assert!(refusal("name = \"a\"\nabout = \"b\"\n").contains("no [cpu] section"));
    }

    #[test]
    fn files_and_lists_have_limits() {
        assert!(refusal(&" ".repeat(MAX_BYTES + 1)).contains("at most"));
        let level = format!("\n[[cpu.levels]]\nmhz = {}\nactive_w = {}\n", number(300.0), number(1.0));
        let many = IPAQ.replacen("\n[radio]", &(level.repeat(60) + "\n[radio]"), 1);
        assert!(refusal(&many).contains("71 levels; give 1 to 64"), "{}", refusal(&many));
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_a_model_or_a_refusal(text in ".{0,400}", cut in 0..IPAQ.len()) {
            let _ = Model::parse("x", &text);
            let cut = (0..=cut).rev().find(|&at| IPAQ.is_char_boundary(at)).unwrap_or(0);
            let _ = Model::parse("x", &IPAQ[..cut]);
        }
    }
}
