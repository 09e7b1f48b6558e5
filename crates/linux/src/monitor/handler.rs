//! Active monitors in the kernel: a handler in E-code counts events where they happen, and a look reads what it has
//! counted.
//!
//! ```c
//! attr.total++;     // at tcp.accept: connections since the handler was put in
//! ```
//! Whatever the kernel tells events of can be counted so: bytes of one port, wake-ups of one process. Each event costs
//! a call of the handler (45 ns and what the text does).

use std::collections::BTreeMap;

use qfabric_ecode::{Environment, Limits, compile};

use crate::ecalls::{DownMemory, Install, InstallError, Installed, Kernel, Step};

/// A total that a handler keeps in the kernel. Dropping it takes the handler out.
#[derive(Debug)]
pub struct Handler {
    installed: Installed,
    down: DownMemory,
    word: usize,
}

/// Why there is no such monitor.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The text is no E-code for that service.
    #[error("{0}")]
    Text(String),
    /// The text does not name the attribute that is to be read.
    #[error("the text has no attribute `{0}`: what is put into attr.{0} is what is read")]
    NoAttribute(String),
    /// It cannot be put into the kernel.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// Memory for its attributes.
    #[error("memory for the handler's attributes: {0}")]
    Memory(std::io::Error),
}

impl Handler {
    /// Puts a text at a service; its attribute of that name is what is read. It starts at zero, and others of the text's
    /// attributes are its parameters.
    pub fn install(
        kernel: &Kernel,
        service: &str,
        options: &BTreeMap<String, String>,
        only_pid: Option<i32>,
        text: &str,
        attribute: &str,
    ) -> Result<Handler, HandlerError> {
        let input = kernel.service(service).map(|service| service.format.clone());
        let environment = Environment { input, ..Environment::default() };
        let program = compile(text, &environment).map_err(|errors| HandlerError::Text(errors.to_string()))?;
        let word = program.attributes.iter().position(|name| name == attribute);
        let word = word.ok_or_else(|| HandlerError::NoAttribute(attribute.to_owned()))?;
        let down = DownMemory::new().map_err(HandlerError::Memory)?;
        let (steps, limits) = ([Step::Handler(&program)], Limits::default());
        let request = Install {
            service,
            options,
            only_pid,
            steps: &steps,
            limits,
            down: Some(&down),
            deadline: None,
            fault_passes: true,
        };
        Ok(Handler { installed: kernel.install(&request)?, down, word })
    }

    /// What it has counted.
    pub fn total(&self) -> i64 {
        self.down.down().attribute(self.word)
    }

    /// What became of its calls.
    pub fn installed(&self) -> &Installed {
        &self.installed
    }
}
