//! Reads the text of an E-code program from a file or the command line, and finds the event format of its service.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use qfabric_daemon::EcallsConfig;
use qfabric_ecode::{Diagnostics, Environment, Program, Warnings};
use qfabric_linux::ecalls::Kernel;
use qfabric_types::api::ecalls::Origin;
use qfabric_types::format::Format;

use crate::exit::Failure;
use crate::{connect, output, services};

/// Bytes that are read at most. More than the compiler accepts, so that the compiler reports a text that is too long.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// The text of a program, and its name in messages.
pub(crate) struct Source {
    pub name: String,
    pub text: String,
}

impl Source {
    /// Reads a file; `-` is the standard input.
    pub(crate) fn read(path: &Path) -> Result<Source, Failure> {
        let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
        let mut text = String::new();
        if path.as_os_str() == "-" {
            std::io::stdin().take(MAX_TEXT_BYTES).read_to_string(&mut text).map_err(unreadable)?;
        } else {
            std::fs::File::open(path)
                .map_err(unreadable)?
                .take(MAX_TEXT_BYTES)
                .read_to_string(&mut text)
                .map_err(unreadable)?;
        }
        Ok(Source { name: path.display().to_string(), text })
    }

    /// Reads `file`, or takes `code` from the command line. Exactly one of them must be given.
    pub(crate) fn of(file: Option<&Path>, code: Option<&str>) -> Result<Source, Failure> {
        match (file, code) {
            (Some(path), None) => Source::read(path),
            (None, Some(code)) => Ok(Source { name: "--code".to_owned(), text: code.to_owned() }),
            _ => Err(Failure::usage("no E-code; give the name of a file, or the text with --code")),
        }
    }

    /// Compiles the text and prints its warnings to the standard error. The error shows the wrong lines.
    pub(crate) fn compile(&self, environment: &Environment) -> Result<Program, Failure> {
        self.compile_with_warnings(environment).map(|(program, _)| program)
    }

    /// Compiles the text, prints its warnings to the standard error, and also returns them.
    pub(crate) fn compile_with_warnings(&self, environment: &Environment) -> Result<(Program, Warnings), Failure> {
        let compiled = qfabric_ecode::compile_with_warnings(&self.text, environment);
        let (program, warnings) = compiled.map_err(|wrong| self.failure(&wrong))?;
        if !warnings.is_empty() {
            output::note(warnings.render(&self.name, &self.text, colour()));
        }
        Ok((program, warnings))
    }

    /// The failure that shows the wrong lines as compilers do, in colour at a terminal unless `NO_COLOR` is set.
    pub(crate) fn failure(&self, wrong: &Diagnostics) -> Failure {
        let shown = wrong.render(&self.name, &self.text, colour());
        Failure::usage(format!("{} does not compile\n{shown}", self.name))
    }
}

/// Whether the standard error shows colours.
fn colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// The event format of a service, and the limit of its handlers.
pub(crate) struct Events {
    pub format: Format,
    /// Instructions that all handlers of a user may take for one event, at worst.
    pub max_instructions: u32,
}

/// The event format of a service, from the daemon; without a daemon, from the kernel.
pub(crate) fn format_of(service: &str, socket: Option<&PathBuf>) -> Result<Format, Failure> {
    events_of(service, socket).map(|events| events.format)
}

/// The event format of a service, with the limit of the daemon; without a daemon, with the default limit.
pub(crate) fn events_of(service: &str, socket: Option<&PathBuf>) -> Result<Events, Failure> {
    if let Ok(client) = connect::daemon(socket.map(PathBuf::as_path)) {
        let list = client.services().map_err(connect::failure)?;
        let found = services::find(&list, service)?;
        return Ok(Events { format: found.format.clone(), max_instructions: found.max_instructions });
    }
    let known = match Kernel::open() {
        Ok(kernel) => kernel.services().to_vec(),
        Err(why) => Kernel::services_without(&why),
    };
    let names = || known.iter().map(|service| service.name).collect::<Vec<_>>().join(", ");
    let (max_instructions, _) = EcallsConfig::default().instructions_at(service, Origin::Kernel);
    let found = known.iter().find(|known| known.name == service);
    found.map(|known| Events { format: known.format.clone(), max_instructions }).ok_or_else(|| {
        Failure::usage(format!("there is no service {service:?} in the kernel; the services are: {}", names()))
    })
}

/// Parses `name=value` with a whole number of 64 bits.
pub(crate) fn attribute(text: &str) -> Result<(String, i64), String> {
    let (name, value) = pair(text)?;
    let value = value.parse().map_err(|_| format!("{value:?} is not a whole number of 64 bits"))?;
    Ok((name, value))
}

/// Parses `name=value`; the name must not be empty.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let found = text.split_once('=').filter(|(name, _)| !name.is_empty());
    found.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "write NAME=VALUE".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_needs_a_name_and_an_attribute_a_whole_number() {
        assert_eq!(attribute("x=-3"), Ok(("x".into(), -3)));
        assert_eq!(pair("interface=lo=1"), Ok(("interface".into(), "lo=1".into())));
        assert!(pair("=1").is_err() && pair("x").is_err() && attribute("x=1.5").is_err());
    }
}
